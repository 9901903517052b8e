//! Compressed messages.

use crate::fixture::{any_document, body, message, msg, op_msg, summed, whole};
use bson::rawdoc;
use proptest::prelude::*;
use remora_mongo::limits::MAX_MESSAGE_BYTES;
use remora_mongo::wire::{Body, Compressed, Compressor, Fatal, Parsed, WireError, compress, parse};

const ALL: [Compressor; 3] = [Compressor::Noop, Compressor::Snappy, Compressor::Zlib];

fn compressed(bytes: &[u8]) -> Compressed<'_> {
    let Body::Compressed(compressed) = whole(bytes).body else { panic!() };
    compressed
}

fn packed(bytes: &[u8], compressor: Compressor) -> Vec<u8> {
    let mut out = Vec::new();
    compress(bytes, compressor, &mut out).unwrap();
    out
}

/// OP_COMPRESSED with these fields.
fn made(opcode: i32, size: i32, id: u8, bytes: &[u8]) -> Vec<u8> {
    message(2012, &[&opcode.to_le_bytes()[..], &size.to_le_bytes(), &[id], bytes].concat())
}

fn fatal(bytes: &[u8]) -> Fatal {
    match parse(bytes) {
        Err(WireError::Fatal(fatal)) => fatal,
        other => panic!("{other:?}"),
    }
}

fn damaged(bytes: &[u8]) -> bool {
    compressed(bytes).decompress(&mut Vec::new()).unwrap_err() == WireError::Fatal(Fatal::Damaged)
}

proptest! {
    #[test]
    fn messages_go_round(command in any_document(), long in 0usize..20_000, sum in any::<bool>()) {
        let mut command = command;
        command.append(bson::cstr!("long"), "x".repeat(long));
        let sections = [body(command.as_bytes())];
        let bytes = if sum { summed(0, &sections) } else { msg(0, &sections) };
        for compressor in ALL {
            let packed = packed(&bytes, compressor);
            let found = compressed(&packed);
            prop_assert_eq!(found.compressor(), compressor);
            prop_assert_eq!(found.uncompressed_bytes(), bytes.len());
            let mut buffer = vec![1; 3];
            let message = found.decompress(&mut buffer).unwrap();
            prop_assert_eq!(message.header, whole(&bytes).header);
            prop_assert_eq!(op_msg(&message).body.as_bytes(), command.as_bytes());
            prop_assert_eq!(&buffer, &bytes);
        }
    }

    #[test]
    fn damaged_bytes_do_not_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        id in 0u8..3,
    ) {
        let command = rawdoc! { "insert": "c", "$db": "d", "text": "abc".repeat(50) };
        let bytes = msg(0, &[body(command.as_bytes())]);
        let mut packed = packed(&bytes, Compressor::from_id(id).unwrap());
        let at = 25 + at.index(packed.len() - 25);
        packed[at] = byte;
        let _ = compressed(&packed).decompress(&mut Vec::new());
    }
}

#[test]
fn declared_sizes_are_bounded_before_memory_is_used() {
    let most = (MAX_MESSAGE_BYTES - 16) as i32;
    for id in 0..3 {
        for size in [-1, i32::MIN, most + 1, i32::MAX, most] {
            assert_eq!(fatal(&made(2013, size, id, b"abc")), Fatal::UncompressedSize(size));
        }
    }
    // Ratios that the compressors reach pass.
    let bytes = msg(0, &[body(rawdoc! { "x": "\0".repeat(16_000_000) }.as_bytes())]);
    for compressor in ALL {
        let packed = packed(&bytes, compressor);
        let mut buffer = Vec::new();
        assert_eq!(compressed(&packed).decompress(&mut buffer).unwrap().header.bytes, bytes.len());
        assert_eq!(buffer.capacity(), bytes.len());
    }
}

#[test]
fn another_size_than_declared_is_damage() {
    let bytes = msg(0, &[body(rawdoc! { "x": "a".repeat(500) }.as_bytes())]);
    for compressor in ALL {
        let right = packed(&bytes, compressor);
        let size = (bytes.len() - 16) as i32;
        for other in [size - 1, size + 1, 0] {
            let mut wrong = right.clone();
            wrong[20..24].copy_from_slice(&other.to_le_bytes());
            match parse(&wrong) {
                Ok(Parsed::Message { .. }) => assert!(damaged(&wrong), "{compressor:?} {other}"),
                other => assert!(compressor == Compressor::Noop, "{other:?}"),
            }
        }
        // Bytes behind the stream, and a stream that ends early.
        let id = compressor.id();
        if compressor != Compressor::Noop {
            assert!(damaged(&made(2013, size, id, &[&right[25..], b"x"].concat())));
            assert!(damaged(&made(2013, size, id, &right[25..right.len() - 1])));
        }
    }
}

#[test]
fn only_plain_messages_are_inside() {
    for opcode in [2012, 1, 2010, 0, -1] {
        assert_eq!(fatal(&made(opcode, 1, 0, b"a")), Fatal::CompressedOpcode(opcode));
    }
    assert_eq!(fatal(&made(2013, 1, 3, b"a")), Fatal::Compressor(3));
    assert_eq!(fatal(&made(2013, 1, 255, b"a")), Fatal::Compressor(255));
    for short in 0..9 {
        assert_eq!(fatal(&message(2012, &[0; 9][..short])), Fatal::Truncated);
    }
    let refused = made(2013, 4, 0, &[0; 4]);
    match compressed(&refused).decompress(&mut Vec::new()) {
        Err(WireError::Refused(refusal)) => {
            assert_eq!(refusal.consumed, refused.len());
            assert_eq!((refusal.header.opcode, refusal.header.request_id), (2013, 77));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_whole_messages_are_compressed() {
    let bytes = msg(0, &[body(rawdoc! {}.as_bytes())]);
    let mut out = Vec::new();
    assert!(compress(&bytes[..bytes.len() - 1], Compressor::Zlib, &mut out).is_err());
    assert!(compress(&bytes[..10], Compressor::Zlib, &mut out).is_err());
    assert!(out.is_empty());
}

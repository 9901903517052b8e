//! Replies and errors.

use crate::fixture::{body, msg, op_msg, query, summed, whole};
use bson::{RawDocument, cstr, rawdoc};
use remora_mongo::limits::MAX_WIRE_DOCUMENT_BYTES;
use remora_mongo::wire::{WireError, parse};
use remora_mongo::writer::write_document;
use remora_mongo::{CommandError, Envelope, ErrorCode};
use std::collections::HashSet;

#[test]
fn a_reply_has_a_checksum_if_its_request_had_one() {
    let ping = [body(rawdoc! { "ping": 1, "$db": "d" }.as_bytes())];
    for (request, has_sum) in [(msg(0, &ping), false), (summed(0, &ping), true)] {
        let mut out = b"before".to_vec();
        let reply = Envelope::to(&whole(&request), 5);
        reply.write_ok(&mut out, |reply| reply.str(cstr!("s"), "é")).unwrap();
        // The parser checks the checksum.
        let found = whole(&out[6..]);
        assert_eq!((found.header.request_id, found.header.response_to), (5, 77));
        assert_eq!(op_msg(&found).flags.bits(), u32::from(has_sum));
        let expected = rawdoc! { "s": "é", "ok": 1.0 };
        assert_eq!(op_msg(&found).body.as_bytes(), expected.as_bytes());
    }
}

#[test]
fn the_reply_to_a_query_is_an_op_reply() {
    let hello = rawdoc! { "hello": 1 };
    let request = query("admin.$cmd", hello.as_bytes());
    let mut out = Vec::new();
    Envelope::to(&whole(&request), 5).write_ok(&mut out, |_| {}).unwrap();
    let numbers: Vec<_> =
        out[..36].chunks(4).map(|four| i32::from_le_bytes(four.try_into().unwrap())).collect();
    assert_eq!(numbers, [out.len() as i32, 5, 77, 1, 8, 0, 0, 0, 1]);
    assert_eq!(
        RawDocument::from_bytes(&out[36..]).unwrap().as_bytes(),
        rawdoc! { "ok": 1.0 }.as_bytes()
    );
}

#[test]
fn errors_have_code_and_name() {
    let mut out = Vec::new();
    let refused = msg(0, &[vec![7]]);
    let Err(WireError::Refused(refused)) = parse(&refused) else { panic!() };
    let error = CommandError::from(&refused);
    Envelope::to_refused(&refused, 5).write_error(&mut out, &error);
    let expected = rawdoc! {
        "ok": 0.0, "errmsg": "unknown section kind 7", "code": 17, "codeName": "ProtocolError"
    };
    let found = whole(&out);
    assert_eq!(found.header.response_to, 77);
    assert_eq!(op_msg(&found).body.as_bytes(), expected.as_bytes());
}

#[test]
fn long_texts_are_cut_between_characters() {
    for start in ["", "x"] {
        let text = format!("{start}{}", "é".repeat(10_000));
        let mut out = Vec::new();
        write_document(&mut out, |reply| CommandError::new(ErrorCode::BadValue, text).write(reply));
        let found = RawDocument::from_bytes(&out).unwrap();
        assert!((4095..=4096).contains(&found.get_str("errmsg").unwrap().len()));
    }
}

#[test]
fn too_long_replies_leave_nothing() {
    let ping = msg(0, &[body(rawdoc! { "ping": 1, "$db": "d" }.as_bytes())]);
    let reply = Envelope::to(&whole(&ping), 5);
    for (bytes, fits) in [(MAX_WIRE_DOCUMENT_BYTES, true), (MAX_WIRE_DOCUMENT_BYTES + 1, false)] {
        let mut out = b"before".to_vec();
        let text = "x".repeat(bytes - 13);
        let written = reply.write(&mut out, |reply| reply.str(cstr!("s"), &text));
        assert_eq!(written.is_ok(), fits);
        assert_eq!(out.len() == 6, !fits);
    }
}

#[test]
fn codes_are_mongodbs() {
    let known = [
        (ErrorCode::BadValue, 2, "BadValue"),
        (ErrorCode::AuthenticationFailed, 18, "AuthenticationFailed"),
        (ErrorCode::InvalidBson, 22, "InvalidBSON"),
        (ErrorCode::MaxTimeMsExpired, 50, "MaxTimeMSExpired"),
        (ErrorCode::CommandNotFound, 59, "CommandNotFound"),
        (ErrorCode::DuplicateKey, 11000, "DuplicateKey"),
        (ErrorCode::DuplicateField, 40413, "IDLDuplicateField"),
    ];
    for (code, number, name) in known {
        assert_eq!((code.number(), code.name()), (number, name));
    }
    assert!(ErrorCode::ALL.is_sorted_by_key(|code| code.number()));
    let numbers: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.number()).collect();
    let names: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
    assert_eq!((numbers.len(), names.len()), (ErrorCode::ALL.len(), ErrorCode::ALL.len()));
}

/// The writer against `bson`'s own.
#[test]
fn the_writer_writes_bson() {
    let id = bson::oid::ObjectId::from_bytes([7; 12]);
    let mut out = Vec::new();
    write_document(&mut out, |all| {
        all.i32(cstr!("i"), -1);
        all.i64(cstr!("l"), i64::MAX);
        all.f64(cstr!("f"), 0.5);
        all.bool(cstr!("b"), true);
        all.datetime_ms(cstr!("t"), 99);
        all.binary(cstr!("x"), b"abc");
        all.object_id(cstr!("o"), id);
        all.null(cstr!("z"));
        all.document(cstr!("d"), |inner| inner.array(cstr!("e"), |_| {}));
        all.raw_document(cstr!("r"), &rawdoc! { "k": "v" });
        all.array(cstr!("a"), |items| {
            (0..11).for_each(|item| items.i64(item));
            items.str("s");
            items.raw_document(&rawdoc! {});
            items.document(|inner| inner.i32(cstr!("n"), 1));
            assert_eq!(items.count(), 14);
        });
    });
    let expected = rawdoc! {
        "i": -1, "l": i64::MAX, "f": 0.5, "b": true,
        "t": bson::DateTime::from_millis(99),
        "x": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: b"abc".to_vec() },
        "o": id, "z": null, "d": { "e": [] }, "r": { "k": "v" },
        "a": [0i64, 1i64, 2i64, 3i64, 4i64, 5i64, 6i64, 7i64, 8i64, 9i64, 10i64, "s", {}, { "n": 1 }],
    };
    assert_eq!(out, expected.as_bytes());
}

//! Messages, whole, cut, damaged and hostile.

use crate::fixture::{any_document, body, message, msg, op_msg, query, sequence, summed, whole};
use bson::rawdoc;
use proptest::prelude::*;
use remora_mongo::limits::{MAX_MESSAGE_BYTES, MAX_SEQUENCES, MAX_WRITE_BATCH};
use remora_mongo::wire::{Fatal, Parsed, Refusal, WireError, parse};

fn fatal(bytes: &[u8]) -> Fatal {
    match parse(bytes) {
        Err(WireError::Fatal(fatal)) => fatal,
        other => panic!("{other:?}"),
    }
}

fn refusal(bytes: &[u8]) -> Refusal {
    match parse(bytes) {
        Err(WireError::Refused(refused)) => {
            assert_eq!(refused.consumed, bytes.len());
            assert_eq!(refused.header.request_id, 77);
            refused.reason
        }
        other => panic!("{other:?}"),
    }
}

/// An insert with its documents beside the body.
fn insert() -> Vec<Vec<u8>> {
    let command = rawdoc! { "insert": "c", "$db": "d" };
    let (one, two) = (rawdoc! { "_id": 1 }, rawdoc! { "_id": 2, "x": ["y"] });
    vec![sequence("documents", &[one.as_bytes(), two.as_bytes()]), body(command.as_bytes())]
}

#[test]
fn a_message_is_whole_at_its_last_byte_only() {
    let longer = |bytes: &[u8]| [bytes, b"next"].concat();
    for bytes in [msg(0, &insert()), summed(0, &insert()), query("admin.$cmd", HELLO)] {
        for end in 0..bytes.len() {
            match parse(&bytes[..end]) {
                Ok(Parsed::Incomplete { need }) => {
                    assert_eq!(need, if end < 16 { 16 } else { bytes.len() });
                }
                other => panic!("{end}: {other:?}"),
            }
        }
        let more = longer(&bytes);
        let Ok(Parsed::Message { consumed, .. }) = parse(&more) else { panic!() };
        assert_eq!(consumed, bytes.len());
    }
}

/// `{isMaster: 1}`
const HELLO: &[u8] = b"\x13\0\0\0\x10isMaster\0\x01\0\0\0\0";

/// A message that says that it ends earlier: no byte behind its end is read.
#[test]
fn a_shortened_message_is_an_error() {
    for bytes in [msg(0, &insert()), query("admin.$cmd", HELLO)] {
        for end in 16..bytes.len() {
            let mut cut = bytes[..end].to_vec();
            cut[..4].copy_from_slice(&(end as i32).to_le_bytes());
            assert!(parse(&cut).is_err(), "{end}");
        }
    }
}

#[test]
fn each_flipped_bit_is_refused() {
    let bytes = summed(0, &insert());
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match parse(&flipped) {
            Err(WireError::Fatal(_)) => {}
            // A longer length.
            Ok(Parsed::Incomplete { need }) => assert!(bit < 32 && need > bytes.len()),
            // Without the flag the checksum is taken for a section, or a shorter length was said.
            Err(WireError::Refused(_)) => assert!(bit < 32 || bit == 128, "{bit}"),
            Ok(Parsed::Message { .. }) => panic!("{bit}"),
        }
    }
}

#[test]
fn headers_are_bounded() {
    let head = |length: i32, opcode: i32| {
        [length, 77, 0, opcode].iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>()
    };
    for length in [i32::MIN, -1, 0, 15, MAX_MESSAGE_BYTES as i32 + 1, i32::MAX] {
        assert_eq!(fatal(&head(length, 2013)), Fatal::Length(length));
        // The length alone is enough.
        assert_eq!(fatal(&length.to_le_bytes()), Fatal::Length(length));
    }
    let longest = parse(&head(MAX_MESSAGE_BYTES as i32, 2013)).map(|parsed| format!("{parsed:?}"));
    assert_eq!(longest.as_deref(), Ok("Incomplete { need: 48000000 }"));
    for opcode in [0, 1, 1000, 2001, 2002, 2005, 2006, 2007, 2010, 2011, 2014, -1] {
        assert_eq!(fatal(&head(100, opcode)), Fatal::Opcode(opcode));
    }
    assert_eq!(fatal(&head(16, 2013)), Fatal::Truncated);
    assert_eq!(fatal(&message(2013, &[1, 0, 0, 0])), Fatal::Truncated);
}

#[test]
fn flags_are_as_specified() {
    for bit in 2..16 {
        assert_eq!(fatal(&msg(1 << bit, &insert())), Fatal::Flags(1 << bit));
    }
    for bit in 16..32 {
        let bytes = msg(1 << bit, &insert());
        assert_eq!(op_msg(&whole(&bytes)).flags.exhaust_allowed(), bit == 16);
    }
    let bytes = msg(2, &insert());
    assert!(op_msg(&whole(&bytes)).flags.more_to_come());
    let Err(WireError::Refused(refused)) = parse(&msg(2, &[vec![9]])) else { panic!() };
    assert!(!refused.wants_reply);
    let Err(WireError::Refused(refused)) = parse(&msg(0, &[vec![9]])) else { panic!() };
    assert!(refused.wants_reply);
}

#[test]
fn sections_are_as_specified() {
    let command = rawdoc! { "ping": 1 };
    let ping = body(command.as_bytes());
    assert_eq!(refusal(&msg(0, &[])), Refusal::Bodies(0));
    assert_eq!(refusal(&msg(0, &[sequence("a", &[])])), Refusal::Bodies(0));
    assert_eq!(refusal(&msg(0, &[ping.clone(), ping.clone()])), Refusal::Bodies(2));
    assert_eq!(refusal(&msg(0, &[ping.clone(), vec![2]])), Refusal::SectionKind(2));
    assert!(matches!(refusal(&msg(0, &[ping.clone(), vec![0, 1]])), Refusal::Document(_)));
    for size in [i32::MIN, -1, 0, 3, 7, i32::MAX] {
        let section = [&[1][..], &size.to_le_bytes(), b"a\0"].concat();
        let found = refusal(&msg(0, &[ping.clone(), section]));
        assert_eq!(found, Refusal::SequenceSize(size));
    }
    for name in [&b"\x05\0\0\0a"[..], b"\x06\0\0\0\xff\0", b"\x04\0\0\0"] {
        let section = [&[1][..], name].concat();
        assert_eq!(refusal(&msg(0, &[ping.clone(), section])), Refusal::SequenceName);
    }
    let damaged = sequence("a", &[command.as_bytes(), b"\x05\0\0\0\x01"]);
    assert!(matches!(refusal(&msg(0, &[ping.clone(), damaged])), Refusal::Document(_)));
    let mut many = vec![sequence("a", &[]); MAX_SEQUENCES];
    many.push(ping);
    assert_eq!(op_msg(&whole(&msg(0, &many))).sequences.count(), MAX_SEQUENCES);
    many.push(sequence("a", &[]));
    assert_eq!(fatal(&msg(0, &many)), Fatal::TooManySequences);
}

#[test]
fn sequences_are_bounded() {
    let ping = body(rawdoc! { "ping": 1 }.as_bytes());
    let empty: &[u8] = b"\x05\0\0\0\0";
    let most = msg(0, &[ping.clone(), sequence("a", &vec![empty; MAX_WRITE_BATCH])]);
    let count = op_msg(&whole(&most)).sequences.next().unwrap().documents().count();
    assert_eq!(count, MAX_WRITE_BATCH);
    let more = msg(0, &[ping, sequence("a", &vec![empty; MAX_WRITE_BATCH + 1])]);
    assert_eq!(refusal(&more), Refusal::TooManyDocuments);
}

#[test]
fn queries_are_for_the_handshake() {
    let hello = rawdoc! { "hello": 1, "helloOk": true };
    assert!(parse(&query("admin.$cmd", hello.as_bytes())).is_ok());
    assert!(parse(&query("admin.$cmd", HELLO)).is_ok());
    let find = rawdoc! { "find": "c" };
    assert_eq!(refusal(&query("admin.$cmd", find.as_bytes())), Refusal::UnsupportedQuery);
    assert_eq!(refusal(&query("d.$cmd", HELLO)), Refusal::UnsupportedQuery);
    assert_eq!(refusal(&query("d.c", HELLO)), Refusal::UnsupportedQuery);
    assert_eq!(refusal(&query("admin.$cmd", b"\x05\0\0\0\0")), Refusal::UnsupportedQuery);
    let two = [HELLO, HELLO].concat();
    assert!(matches!(refusal(&query("admin.$cmd", &two)), Refusal::Document(_)));
}

proptest! {
    #[test]
    fn messages_go_round(
        command in any_document(),
        sequences in prop::collection::vec(
            ("[a-z]{0,5}", prop::collection::vec(any_document(), 0..4)), 0..4),
        at in any::<prop::sample::Index>(),
        with_sum in any::<bool>(),
    ) {
        let mut sections: Vec<_> = sequences
            .iter()
            .map(|(name, documents)| {
                let documents: Vec<_> = documents.iter().map(|one| one.as_bytes()).collect();
                sequence(name, &documents)
            })
            .collect();
        sections.insert(at.index(sections.len() + 1), body(command.as_bytes()));
        let bytes = if with_sum { summed(0, &sections) } else { msg(0, &sections) };
        let found = op_msg(&whole(&bytes));
        prop_assert_eq!(found.body.as_bytes(), command.as_bytes());
        let found: Vec<(String, Vec<_>)> = found
            .sequences
            .map(|one| (one.name.to_owned(), one.documents().map(ToOwned::to_owned).collect()))
            .collect();
        prop_assert_eq!(found, sequences);
    }

    #[test]
    fn no_bytes_panic(
        opcode in prop_oneof![Just(2013), Just(2012), Just(2004)],
        flags in 0u8..4,
        rest in prop::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..80),
    ) {
        let bytes = message(opcode, &[&[flags, 0, 0, 0], &rest[..]].concat());
        if let Ok(Parsed::Message { consumed, .. }) = parse(&bytes) {
            prop_assert_eq!(consumed, bytes.len());
        }
    }
}

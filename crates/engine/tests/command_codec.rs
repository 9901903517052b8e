//! Commands and their one encoding: what is encoded is decoded as the same,
//! what is decoded is encoded to the same bytes, and strays are refused.

use proptest::prelude::*;
use remora_engine::command::{Command, Condition, ExpireCondition, Expiry, Pairs, TreeCommand};
use remora_geometry::{Refine, Shape};
use remora_layout::limits::MAX_VALUE_BYTES;
use remora_layout::message::{Op, REQUEST_HEADER_BYTES, Status};
use zerocopy::IntoBytes;

#[test]
fn commands_round_trip() {
    let mut list = Vec::new();
    Pairs::push(&mut list, b"a", b"1");
    Pairs::push(&mut list, b"", b"");
    let commands = [
        Command::Get { key: b"k" },
        Command::Set {
            key: b"k",
            value: b"v",
            condition: Condition::IfPresent,
            expiry: Expiry::At(77),
            get: true,
        },
        Command::Set {
            key: b"",
            value: b"",
            condition: Condition::IfAbsent,
            expiry: Expiry::Keep,
            get: false,
        },
        Command::Del { key: b"k" },
        Command::Exists { key: b"k" },
        Command::Incr { key: b"k", by: -5 },
        Command::Expire { key: b"k", at_ms: 9, condition: ExpireCondition::IfEarlier },
        Command::Expire { key: b"k", at_ms: u64::MAX, condition: ExpireCondition::IfSomeEarlier },
        Command::Ttl { key: b"k" },
        Command::MultiSet { pairs: Pairs::parse(&list).unwrap() },
        Command::Append { key: b"k", value: b"tail" },
        Command::SetRange { key: b"k", offset: u64::MAX, value: b"part" },
        Command::GetRange { key: b"k", start: 3, end: -1 },
        Command::GetRange { key: b"k", start: i32::MIN, end: i32::MAX },
        Command::SetBit { key: b"k", offset: u32::MAX, bit: true },
        Command::SetBit { key: b"k", offset: 0, bit: false },
        Command::GetBit { key: b"k", offset: 7 },
        Command::StrLen { key: b"k" },
        Command::GetDel { key: b"k" },
        Command::GetEx { key: b"k", at_ms: Some(u64::MAX) },
        Command::GetEx { key: b"k", at_ms: None },
        Command::Count,
        Command::Flush,
    ];
    for (id, command) in (0u32..).zip(commands) {
        let mut bytes = Vec::new();
        command.encode_into(id, &mut bytes);
        assert_eq!(Command::decode(&bytes), Ok((command, id)));
        for cut in 0..bytes.len() {
            assert!(Command::decode(&bytes[..cut]).is_err());
        }
    }
    // One byte too many in what the operation does not use: reserved,
    // flags, argument.
    let strays = [
        (Command::Get { key: b"k" }, 2),
        (Command::Get { key: b"k" }, 3),
        (Command::Get { key: b"k" }, 1),
        (Command::Append { key: b"k", value: b"v" }, 16),
        (Command::SetBit { key: b"k", offset: 1, bit: true }, 1),
        (Command::SetBit { key: b"k", offset: 1, bit: true }, 20),
        (Command::GetBit { key: b"k", offset: 1 }, 23),
        (Command::StrLen { key: b"k" }, 16),
        (Command::GetDel { key: b"k" }, 1),
        (Command::GetEx { key: b"k", at_ms: None }, 16),
    ];
    for (command, at) in strays {
        let mut bytes = Vec::new();
        command.encode_into(1, &mut bytes);
        bytes[at] |= 0x20;
        assert_eq!(Command::decode(&bytes), Err((Status::Malformed, 1)), "{command:?} {at}");
    }
    let big = vec![0; MAX_VALUE_BYTES + 1];
    for command in [
        Command::Append { key: b"k", value: &big },
        Command::SetRange { key: b"k", offset: 0, value: &big },
    ] {
        let mut bytes = Vec::new();
        command.encode_into(1, &mut bytes);
        assert_eq!(Command::decode(&bytes), Err((Status::TooLarge, 1)));
    }
    let pairs: Vec<_> = Pairs::parse(&list).unwrap().iter().collect();
    assert_eq!(pairs, [(&b"a"[..], &b"1"[..]), (b"", b"")]);
}

/// Highest number of an operation that is tried.
const LAST_TRIED: u8 = 40;

/// The value of a request for a refined search.
fn refine() -> Vec<u8> {
    let shape = Shape::from_wkt("POINT (1 2)").unwrap();
    let mut scratch = Vec::new();
    let refine = Refine::Intersects(shape).to_bytes();
    let command = TreeCommand::Refine { refine: &refine, ids: None };
    command.request(&mut scratch).unwrap();
    let searched = scratch.clone();
    TreeCommand::CountRefined { refine: &refine }.request(&mut scratch).unwrap();
    assert_eq!(scratch, searched, "flags tell them apart");
    scratch
}

/// Bytes that are a request often enough: a header of sensible parts.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let argument = prop_oneof![
        Just(0i64),
        0i64..10,
        Just(i64::from(u32::MAX)),
        Just(i64::from(u32::MAX) + 1),
        any::<i64>(),
    ];
    let text = || prop::collection::vec(any::<u8>(), 0..4);
    let pairs = Just([&[1u8, 0, 0, 0, 1, 0, 0, 0][..], b"kv"].concat());
    let numbers = prop::collection::vec(prop_oneof![Just(0.5f64), Just(2.0), Just(f64::NAN)], 0..6);
    let numbers = numbers.prop_map(|all| all.as_bytes().to_vec());
    let value = prop_oneof![
        4 => Just(Vec::new()), 4 => text(), 1 => pairs, 4 => numbers, 1 => Just(refine())
    ];
    let flags = prop_oneof![4 => Just(0u8), 2 => 0u8..40, 1 => any::<u8>()];
    (0..=LAST_TRIED, flags, text(), value, prop::bool::weighted(0.05), argument).prop_map(
        |(op, flags, key, value, reserved, argument)| {
            let mut bytes = vec![op, flags, u8::from(reserved), 0, key.len() as u8, 0, 0, 0];
            bytes.extend([value.len() as u8, 0, 0, 0, 7, 0, 0, 0]);
            bytes.extend(argument.to_le_bytes());
            bytes.extend(key);
            bytes.extend(value);
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn every_command_has_one_encoding(bytes in request()) {
        if let Ok((command, id)) = Command::decode(&bytes) {
            prop_assert_eq!(id, 7);
            let mut encoded = Vec::new();
            command.encode_into(id, &mut encoded);
            prop_assert_eq!(&encoded, &bytes, "{:?}", command);
        }
    }
}

/// Each operation is decoded from a plain header, or the property above would
/// say nothing of it.
#[test]
fn every_operation_can_be_asked() {
    for op in (0..=u8::MAX).filter(|&op| Op::from_number(op).is_some()) {
        assert!(op <= LAST_TRIED, "the property above has to try it too");
        // Nothing is in it that has no meaning: some trees' need numbers.
        let values = [0, 16, 32, 48].map(|bytes| vec![0; bytes]).into_iter().chain([refine()]);
        let plain = values.into_iter().find_map(|value| {
            let mut bytes = vec![0; REQUEST_HEADER_BYTES];
            (bytes[0], bytes[8]) = (op, value.len() as u8);
            bytes.extend(value);
            bytes[16] = if op == Op::TreeCreate as u8 { 30 } else { 0 };
            Command::decode(&bytes).ok().map(|(command, _)| command.encode(0).0.op)
        });
        assert_eq!(plain, Some(op));
    }
}

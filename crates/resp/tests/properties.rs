//! Properties of both parsers, over any bytes and any cut.

use proptest::prelude::*;
use remora_protocol::Command;
use remora_resp::wire::{ParsedValue, encode};
use remora_resp::{Args, Made, Parsed, Request, RespVersion, Value, parse, request};

fn words(args: &Args, bytes: &[u8]) -> Vec<Vec<u8>> {
    (0..args.len()).map(|index| args.get(index, bytes).to_vec()).collect()
}

/// Bytes that look like requests often enough to reach deep.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"*2\r\n".to_vec()),
        Just(b"*1\r\n".to_vec()),
        Just(b"$3\r\n".to_vec()),
        Just(b"GET\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"$-1\r\n".to_vec()),
        Just(b"%1\r\n".to_vec()),
        Just(b"|1\r\n:1\r\n".to_vec()),
        Just(b"\"a\\x4".to_vec()),
        prop::collection::vec(any::<u8>(), 0..8),
        prop::collection::vec(
            prop::sample::select(b"*$%~>|_#,(!=:+-0123456789\r\n'\" ".to_vec()),
            0..8
        ),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Words that commands are made of.
const WORDS: &str = "\
    get set mset mget del expire pexpireat incrby decrby append setrange getrange \
    substr setbit getbit rtree.create rtree.add rtree.rem rtree.search rtree.nearest \
    rtree.fset rtree.fget geometry fields hset hsetnx hget hmget hdel hincrby \
    hincrbyfloat hrandfield hscan match count getex setex persist hello client \
    config command info getkeys docs list setinfo nx xx gt lt ex pxat keepttl auth \
    setname filterby pattern select -1 0 3 9223372036854775807 -9223372036854775808 \
    [a- *";

fn command_word() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&[u8]> = WORDS.split(' ').chain(["POINT (1 2)"]).map(str::as_bytes).collect();
    prop_oneof![
        4 => prop::sample::select(words).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..10),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn requests_round_trip_at_every_cut(
        list in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        behind in prop::collection::vec(any::<u8>(), 0..10),
    ) {
        let mut bytes = Vec::new();
        let slices: Vec<&[u8]> = list.iter().map(Vec::as_slice).collect();
        encode::request(&mut bytes, &slices);
        let whole = bytes.len();
        bytes.extend(behind);
        for cut in 0..whole {
            let mut args = Args::new();
            match parse(&bytes[..cut], &mut args) {
                Ok(Parsed::Incomplete { need }) => prop_assert!(need > cut && need <= whole),
                other => prop_assert!(false, "{other:?}"),
            }
            prop_assert_eq!(parse(&bytes, &mut args), Ok(Parsed::Request { consumed: whole }));
            prop_assert_eq!(words(&args, &bytes), list.clone());
        }
    }

    #[test]
    fn any_bytes_in_pieces_are_as_whole(bytes in hostile(), step in 1usize..7) {
        let mut whole = Args::new();
        let expected = parse(&bytes, &mut whole);
        if let Ok(Parsed::Request { consumed }) = expected {
            prop_assert!(consumed > 0 && consumed <= bytes.len());
        }
        let mut pieces = Args::new();
        let mut found = Ok(Parsed::Incomplete { need: 0 });
        for end in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
            found = parse(&bytes[..end], &mut pieces);
            if !matches!(found, Ok(Parsed::Incomplete { .. })) {
                break;
            }
        }
        prop_assert_eq!(found, expected);
        if let Ok(Parsed::Request { .. }) = expected {
            prop_assert_eq!(words(&pieces, &bytes), words(&whole, &bytes));
            let _ = request(&whole, &bytes, &Made::default(), 1_700_000_000_000);
        }
    }

    #[test]
    fn what_is_needed_is_a_lower_bound(bytes in hostile()) {
        if let Ok(Parsed::Incomplete { need }) = parse(&bytes, &mut Args::new()) {
            prop_assert!(need > bytes.len());
        }
        // A shorter prefix of a whole request never asks for more than the whole.
        if let Ok(Parsed::Request { consumed }) = parse(&bytes, &mut Args::new()) {
            for cut in 0..consumed {
                let found = parse(&bytes[..cut], &mut Args::new());
                let fits = matches!(found, Ok(Parsed::Incomplete { need }) if need <= consumed);
                prop_assert!(fits);
            }
        }
        if let Ok(ParsedValue::Value { consumed, .. }) = Value::parse(&bytes) {
            for cut in 0..consumed {
                let found = Value::parse(&bytes[..cut]);
                let fits = matches!(found, Ok(ParsedValue::Incomplete { need }) if need <= consumed);
                prop_assert!(fits);
            }
        }
    }

    #[test]
    fn any_words_are_answered(list in prop::collection::vec(command_word(), 0..7)) {
        let mut bytes = Vec::new();
        let slices: Vec<&[u8]> = list.iter().map(Vec::as_slice).collect();
        encode::request(&mut bytes, &slices);
        let mut args = Args::new();
        parse(&bytes, &mut args).unwrap();
        for now in [0, 1_700_000_000_000, u64::MAX] {
            match request(&args, &bytes, &Made::default(), now) {
                Ok(Request::Command(query)) => {
                    for version in [RespVersion::Resp2, RespVersion::Resp3] {
                        let mut reply = Vec::new();
                        remora_resp::table::answer(&mut reply, version, &query);
                        let parsed = Value::parse(&reply);
                        let whole = matches!(parsed, Ok(ParsedValue::Value { consumed, .. })
                            if consumed == reply.len());
                        prop_assert!(whole);
                    }
                }
                // A shard executes the command as it is: a message would contain the same.
                Ok(Request::Object { key, request, .. }) => {
                    let command = Command::Of { key, request };
                    let mut encoded = Vec::new();
                    command.encode_into(7, &mut encoded);
                    prop_assert_eq!(Command::decode(&encoded), Ok((command, 7)));
                }
                Ok(_) => {}
                Err(error) => {
                    let mut reply = Vec::new();
                    error.write(&mut reply);
                    let parsed = Value::parse(&reply);
                    let whole = matches!(parsed, Ok(ParsedValue::Value { consumed, .. })
                        if consumed == reply.len());
                    prop_assert!(whole && reply.starts_with(b"-"));
                }
            }
        }
    }

    #[test]
    fn values_that_parse_are_written_the_same(bytes in hostile()) {
        if let Ok(ParsedValue::Value { value, .. }) = Value::parse(&bytes) {
            let written = value.to_bytes();
            let again = Value::parse(&written);
            let same = matches!(&again, Ok(ParsedValue::Value { value: other, consumed })
                if *consumed == written.len() && format!("{other:?}") == format!("{value:?}"));
            prop_assert!(same, "{value:?} {again:?}");
        }
    }
}

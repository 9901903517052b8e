//! Any bytes as RESP requests: whole and in pieces they mean the same, and
//! every request is either understood or refused with one RESP error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_protocol::Command;
use remora_resp::wire::ParsedValue;
use remora_resp::{Args, Made, Parsed, RespVersion, Request, Value, parse, request, table};

const NOW_UNIX_MS: u64 = 1_700_000_000_000;

fuzz_target!(|data: &[u8]| {
    // The first byte says where the bytes are cut into pieces.
    let Some((&step, mut bytes)) = data.split_first() else { return };
    let step = usize::from(step % 16) + 1;
    let mut whole = Args::new();
    let mut pieces = Args::new();
    loop {
        let found = parse(bytes, &mut whole);
        let mut in_pieces = Ok(Parsed::Incomplete { need: 0 });
        for end in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
            in_pieces = parse(&bytes[..end], &mut pieces);
            if !matches!(in_pieces, Ok(Parsed::Incomplete { .. })) {
                break;
            }
        }
        assert_eq!(found, in_pieces);
        let consumed = match found {
            Ok(Parsed::Request { consumed }) => consumed,
            Ok(Parsed::Incomplete { need }) => {
                assert!(need > bytes.len());
                return;
            }
            Err(_) => return,
        };
        assert!(consumed > 0 && consumed <= bytes.len());
        assert_eq!(whole.len(), pieces.len());
        for index in 0..whole.len() {
            assert_eq!(whole.get(index, bytes), pieces.get(index, bytes));
        }
        if !whole.is_empty() {
            answer(&whole, bytes);
        }
        bytes = &bytes[consumed..];
    }
});

fn answer(args: &Args, bytes: &[u8]) {
    let mut reply = Vec::new();
    let made = Made::default();
    match request(args, bytes, &made, NOW_UNIX_MS) {
        Ok(Request::Command(query)) => {
            table::answer(&mut reply, RespVersion::Resp3, &query);
        }
        Ok(Request::ConfigGet(patterns)) => {
            let parameters = [("maxmemory", "1"), ("port", "6379")];
            remora_resp::commands::server::write_config(&mut reply, RespVersion::Resp2, &patterns, &parameters);
        }
        Ok(Request::MSet(pairs)) => assert!(pairs.len() == pairs.count()),
        Ok(Request::Del(keys) | Request::Exists(keys) | Request::MGet(keys)) => {
            assert!(keys.len() == keys.count());
        }
        // A shard executes it as it is: it is what a message would say.
        Ok(Request::Object { key, request, .. }) => {
            let command = Command::Of { key, request };
            let mut encoded = Vec::new();
            command.encode_into(7, &mut encoded);
            assert_eq!(Command::decode(&encoded), Ok((command, 7)));
        }
        Ok(_) => {}
        Err(error) => error.write(&mut reply),
    }
    if !reply.is_empty() {
        let parsed = Value::parse(&reply);
        assert!(
            matches!(parsed, Ok(ParsedValue::Value { consumed, .. }) if consumed == reply.len())
        );
    }
}

//! Large values over RESP: at the limits, while others go on, changed in place,
//! asked for faster than they are read.

use remora_layout::limits::{
    CONNECTION_MAX_OUTPUT_BYTES, MAX_KEY_BYTES, MAX_REQUEST_BYTES, MAX_VALUE_BYTES,
};
use remora_tests::{Random, Resp, ServerProcess, Value, encode, is_skipped};
use std::io::Write;
use std::process::{Command, Stdio};

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=1", "--max-memory=512MiB"])
}

fn value_of(seed: u64, bytes: usize) -> Vec<u8> {
    Random::new(seed).bytes(bytes)
}

/// The reply has to be this value; it is not printed if it is not.
fn assert_value(found: Value, expected: &[u8]) {
    let Value::Bulk(found) = found else { panic!("{found:?}") };
    assert!(found == expected, "{} bytes for {}", found.len(), expected.len());
}

fn call(resp: &mut Resp, words: &[&[u8]]) -> Value {
    resp.try_call(words).unwrap()
}

#[test]
fn the_longest_key_and_value_are_kept_and_longer_ones_refused() {
    let server = server();
    let mut resp = server.resp();
    let value = value_of(1, MAX_VALUE_BYTES + 1);
    let (longest, longer) = (&value[..MAX_VALUE_BYTES], &value[..]);
    let key = vec![b'k'; MAX_KEY_BYTES + 1];
    let longest_key = &key[..MAX_KEY_BYTES];
    assert_eq!(call(&mut resp, &[b"SET", longest_key, longest]), Value::ok());
    assert_value(call(&mut resp, &[b"GET", longest_key]), longest);
    assert_eq!(call(&mut resp, &[b"STRLEN", longest_key]), Value::Integer(64 << 20));
    let refused = Value::Error(format!("ERR value is longer than {MAX_VALUE_BYTES} bytes"));
    assert_eq!(call(&mut resp, &[b"SET", longest_key, longer]), refused);
    assert_eq!(call(&mut resp, &[b"SETNX", b"other", longer]), refused);
    let refused = Value::Error(format!("ERR key is longer than {MAX_KEY_BYTES} bytes"));
    assert_eq!(call(&mut resp, &[b"SET", &key, b"v"]), refused);
    assert_eq!(call(&mut resp, &[b"GET", &key]), refused);
    let refused = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    let refused = Value::Error(refused.into());
    assert_eq!(call(&mut resp, &[b"APPEND", longest_key, b"x"]), refused);
    // Nothing was lost, and one connection has seen it all.
    let old = call(&mut resp, &[b"SET", longest_key, b"short", b"GET"]);
    assert_value(old, longest);
    assert_eq!(call(&mut resp, &[b"GET", longest_key]), Value::bulk("short"));
    assert_eq!(resp.call("DBSIZE"), Value::Integer(1));
    // A length that no command can have ends the connection, with its reason.
    let line = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", MAX_REQUEST_BYTES + 1);
    resp.send_raw(line.as_bytes()).unwrap();
    let refused = Value::Error("ERR Protocol error: invalid bulk length".into());
    assert_eq!(resp.receive().unwrap(), refused);
    assert_eq!(server.resp().call("DBSIZE"), Value::Integer(1));
}

#[test]
fn a_value_without_room_is_refused_and_the_old_one_stays() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=32MiB"]);
    let mut resp = server.resp();
    let old = value_of(2, 20 << 20);
    assert_eq!(call(&mut resp, &[b"SET", b"k", &old]), Value::ok());
    for round in 0..3 {
        let new = vec![round; 16 << 20];
        let Value::Error(text) = call(&mut resp, &[b"SET", b"k", &new]) else { panic!("no room") };
        assert!(text.starts_with("OOM "), "{text}");
        assert_value(call(&mut resp, &[b"GET", b"k"]), &old);
    }
    // Its memory serves again once it is gone.
    assert_eq!(resp.call("DEL k"), Value::Integer(1));
    assert_eq!(call(&mut resp, &[b"SET", b"k", &old]), Value::ok());
}

#[test]
fn a_value_grows_in_place_while_it_is_read() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=1GiB"]);
    let (mut resp, mut other) = (server.resp(), server.resp());
    let part = value_of(3, 64 << 10);
    let mut model = Vec::new();
    for round in 0..128 {
        model.extend_from_slice(&part);
        let length = Value::Integer(model.len() as i64);
        assert_eq!(call(&mut resp, &[b"APPEND", b"k", &part]), length);
        if round % 16 == 5 {
            assert_value(other.call("GET k"), &model);
            let place = round * 1000;
            model[place..place + 3].copy_from_slice(b"abc");
            assert_eq!(resp.call(&format!("SETRANGE k {place} abc")), length);
            assert_eq!(other.call(&format!("GETRANGE k {} {place}", place - 1)), {
                Value::bulk(&model[place - 1..=place])
            });
        }
    }
    assert_eq!(model.len(), 8 << 20);
    assert_value(resp.call("GETRANGE k 100000 -7"), &model[100_000..model.len() - 6]);
    // The last byte of all, on what is there and on nothing.
    let last = MAX_VALUE_BYTES - 1;
    model.resize(MAX_VALUE_BYTES, 0);
    model[last] = b'x';
    for key in ["k", "none"] {
        let length = Value::Integer(MAX_VALUE_BYTES as i64);
        assert_eq!(resp.call(&format!("SETRANGE {key} {last} x")), length);
        assert_eq!(resp.call(&format!("SETBIT {key} {} 1", last * 8 + 7)), Value::Integer(0));
    }
    model[last] |= 1;
    assert_value(other.call("GET k"), &model);
    model[..last].fill(0);
    assert_value(other.call("GETDEL none"), &model);
    // Left alone, it becomes readable from outside again.
    remora_tests::wait_until("it is republished", || {
        let before = other.info("optimistic_reads");
        // One of them is served by the thread of another shard.
        assert_eq!(resp.call("STRLEN k"), other.call("STRLEN k"));
        other.info("optimistic_reads") > before
    });
}

#[test]
fn others_go_on_and_a_pipeline_of_large_values_stays_in_order() {
    let server = server();
    let values = [value_of(4, MAX_VALUE_BYTES), value_of(5, 5 << 20)];
    let pipeline: Vec<u8> = (0..4)
        .flat_map(|round| {
            let value: &[u8] = &values[round % 2];
            let mut bytes = encode(&[b"SET", b"large", value]);
            bytes.extend(encode(&[b"GET", b"large"]));
            bytes.extend(encode(&[b"APPEND", b"large", b""]));
            bytes.extend(encode(&[b"GETRANGE", b"large", b"0", b"9999999"]));
            bytes
        })
        .collect();
    let mut large = server.resp();
    let mut writer = large.socket.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&pipeline).unwrap());
        let reader = scope.spawn(|| {
            for round in 0..4 {
                let value = &values[round % 2];
                assert_eq!(large.receive().unwrap(), Value::ok());
                assert_value(large.receive().unwrap(), value);
                let length = value.len() as i64;
                assert_eq!(large.receive().unwrap(), Value::Integer(length));
                assert_value(large.receive().unwrap(), &value[..value.len().min(10_000_000)]);
            }
        });
        let (mut other, mut rounds) = (server.resp(), 0);
        while !reader.is_finished() || rounds < 100 {
            rounds += 1;
            assert_eq!(other.call(&format!("SET small {rounds}")), Value::ok());
            assert_eq!(other.call("INCR small"), Value::Integer(rounds + 1));
            assert_eq!(other.call("PING"), Value::Simple("PONG".into()));
        }
        reader.join().unwrap();
    });
}

#[test]
fn many_large_replies_asked_at_once_are_all_sent() {
    let server = server();
    let mut resp = server.resp();
    let value = value_of(6, 30 << 20);
    assert_eq!(call(&mut resp, &[b"SET", b"k", &value]), Value::ok());
    // More than may wait to be read: each is fetched when the last has gone.
    let asked = CONNECTION_MAX_OUTPUT_BYTES / value.len() + 3;
    for ask_only in [false, true] {
        if ask_only {
            resp.call("SETBIT k 0 0");
        }
        let value = [&[value[0] & if ask_only { 0x7f } else { 0xff }], &value[1..]].concat();
        resp.send_raw(&[b"INCR c\r\nGET k\r\n".repeat(asked), b"PING\r\n".to_vec()].concat())
            .unwrap();
        for _ in 0..asked {
            assert!(matches!(resp.receive().unwrap(), Value::Integer(_)));
            assert_value(resp.receive().unwrap(), &value);
        }
        assert_eq!(resp.receive().unwrap(), Value::Simple("PONG".into()));
    }
    // Several in one reply are too many.
    let Value::Error(text) = resp.call("MGET k k k") else { panic!("90 MiB in one reply") };
    assert!(text.contains("ask for fewer keys"), "{text}");
    assert_eq!(resp.call("PING"), Value::Simple("PONG".into()));
}

#[test]
fn redis_cli_sets_and_gets_a_large_value() {
    if is_skipped("redis-cli") {
        println!("not run: redis-cli is missing, as REMORA_SKIP says");
        return;
    }
    let server = server();
    let address = server.resp_address();
    let run = |words: &[&str], input: &[u8]| {
        let mut command = Command::new("redis-cli");
        command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("redis-cli is installed");
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        output.stdout
    };
    let text: Vec<u8> = value_of(7, MAX_VALUE_BYTES).iter().map(|byte| b'a' + byte % 26).collect();
    assert_eq!(run(&["-x", "SET", "k"], &text), b"OK\n");
    let found = run(&["GET", "k"], b"");
    assert!(found[..found.len() - 1] == text, "{} bytes", found.len());
}

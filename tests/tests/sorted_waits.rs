//! Clients that wait for members of sorted sets: BZPOPMIN, BZPOPMAX and BZMPOP, held against a real
//! redis-server, beside clients that wait for lists at the same keys.

use crate::blocking::{Both, CLIENTS};
use remora_tests::{Random, RedisServer, Resp, ServerProcess, Value, is_skipped, wait_until};
use std::collections::BTreeSet;

const KEYS: &[&str] = &["{t}a", "{t}b", "c", "d", "e"];
/// Calls that are refused, or that end at once.
const BAD_CALLS: &[&str] = &[
    "BZPOPMIN a x",
    "BZPOPMIN a -1",
    "BZPOPMAX a 1e300",
    "BZPOPMAX a inf",
    "BZPOPMIN a nan",
    "BZPOPMIN a",
    "BZPOPMAX",
    "BZMPOP 0 0 a MIN",
    "BZMPOP x 1 a MIN",
    "BZMPOP -1 1 a MIN",
    "BZMPOP 0 2 a MIN",
    "BZMPOP 0 1 a UP",
    "BZMPOP 0 1 a LEFT",
    "BZMPOP 0 1 a MAX COUNT 0",
    "BZMPOP 0 1 a MAX COUNT",
    "BZMPOP 0 1 a MAX COUNT 1 COUNT 1",
    "BZMPOP 0 x a MIN",
    "BZMPOP 0 -1 a MIN",
    "BZMPOP 0 1 a MIN FOO 1",
    "BZPOPMIN a 9223372036854776",
    "COMMAND GETKEYS BZPOPMIN a b 0",
    "COMMAND GETKEYS BZMPOP 0 2 a b MIN",
    "COMMAND GETKEYS ZUNIONSTORE a 2 b c",
    "COMMAND GETKEYS ZDIFF 2 b c",
    "COMMAND GETKEYS ZRANGESTORE a b 0 1",
];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A random call.
fn draw(random: &mut Random) -> Vec<String> {
    let mut key = || random.pick(KEYS);
    let (one, two) = (key(), key());
    let keys: Vec<&str> = (0..1 + random.below(3)).map(|_| random.pick(KEYS)).collect();
    let count = keys.len().to_string();
    let end = random.pick(&["MIN", "MAX", "min"]);
    let (score, member) = (random.below(9).to_string(), format!("m{}", random.below(40)));
    match random.below(100) {
        0..16 => {
            let name = random.pick(&["BZPOPMIN", "BZPOPMAX", "bzpopmin"]);
            words(&[&[name], &keys[..], &["0"]].concat())
        }
        16..28 => {
            let most = (1 + random.below(4)).to_string();
            let call = [&["BZMPOP", "0", &count], &keys[..], &[end]].concat();
            match random.below(2) {
                0 => words(&call),
                _ => words(&[&call[..], &["COUNT", &most]].concat()),
            }
        }
        28..32 => words(&[&["BLPOP"], &keys[..], &["0"]].concat()),
        32..54 => {
            let more = (0..random.below(4)).flat_map(|at| [at.to_string(), format!("m{}", at * 7)]);
            let more: Vec<String> = more.collect();
            [words(&["ZADD", one, &score, &member]), more].concat()
        }
        54..58 => words(&["ZINCRBY", one, &score, &member]),
        58..60 => words(&["ZADD", one, "XX", &score, &member]),
        60..62 => words(&["GEOADD", one, "13.4", "52.5", &member]),
        62..65 => words(&["RPUSH", one, &member]),
        65..69 => words(&["DEL", one]),
        69..73 => words(&["RENAME", one, two]),
        73..77 => words(&["COPY", one, two, "REPLACE"]),
        77..80 => words(&[&["ZUNIONSTORE", one, &count], &keys[..]].concat()),
        80..82 => words(&["ZRANGESTORE", one, two, "0", "2"]),
        82..85 => words(&[random.pick(&["ZPOPMIN", "ZPOPMAX"]), one, "2"]),
        85..88 => words(&[&["ZMPOP", &count], &keys[..], &[end]].concat()),
        88..91 => words(&["ZRANGE", one, "0", "-1", "WITHSCORES"]),
        91..93 => words(&["ZREMRANGEBYRANK", one, "0", "1"]),
        93..94 => words(&["FLUSHALL"]),
        _ => random.pick(BAD_CALLS).split(' ').map(str::to_owned).collect(),
    }
}

/// Whether it has one outcome: a request over shards may not have come to all of its keys yet, and is
/// refused if one of them then holds another type.
fn is_comparable(call: &[&str], shards: &str) -> bool {
    shards == "1" || !matches!(call[0], "RPUSH" | "BLPOP")
}

#[test]
fn random_programs_are_answered_as_by_redis() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let redis = RedisServer::start();
    for (seed, shards) in [(1, "1"), (2, "3"), (3, "3"), (4, "1")] {
        let flag = format!("--shards={shards}");
        let ours = ServerProcess::start(&[&flag, "--max-memory=64MiB"]);
        let mut both = Both::connect(&ours, &redis);
        let mut random = Random::new(seed);
        for step in 0..1_500 {
            let free: Vec<usize> =
                (0..CLIENTS).filter(|client| !both.blocked.contains(client)).collect();
            let trace = format!("seed {seed}, step {step}, waiting {:?}", both.blocked);
            if free.len() < 2 || random.below(20) == 0 {
                let how = random.pick(&["", "TIMEOUT", "ERROR"]);
                let how: Vec<&str> = how.split(' ').filter(|word| !word.is_empty()).collect();
                both.unblock(random.below(CLIENTS), &how, &trace);
                continue;
            }
            let (client, call) = (free[random.below(free.len())], draw(&mut random));
            let call: Vec<&str> = call.iter().map(String::as_str).collect();
            if !is_comparable(&call, shards) {
                continue;
            }
            let trace_of = format!("{trace}, {call:?} by {client}");
            both.call(client, &call, &|ours, theirs| ours == theirs, &trace_of);
            if step % 20 == 0 {
                for key in KEYS {
                    both.control(&["ZRANGE", key, "0", "-1", "WITHSCORES"], &trace);
                    both.control(&["TYPE", key], &trace);
                }
            }
        }
        for client in both.blocked.clone() {
            both.unblock(client, &["ERROR"], "at the end");
        }
        assert!(both.blocked.is_empty() && both.served > 100, "{} were served", both.served);
    }
}

fn server(shards: usize) -> ServerProcess {
    ServerProcess::start(&[&format!("--shards={shards}"), "--max-memory=64MiB"])
}

/// A connection that waits.
fn waiting(server: &ServerProcess, control: &mut Resp, call: &str) -> Resp {
    let before = control.info("blocked_clients");
    let mut resp = server.resp();
    let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
    resp.send(&words).unwrap();
    wait_until("it waits", || control.info("blocked_clients") > before);
    resp
}

fn popped(key: &str, member: &str, score: &str) -> Value {
    Value::Array([key, member, score].map(Value::bulk).into())
}

#[test]
fn clients_are_served_in_the_order_in_which_they_wait() {
    let server = server(2);
    let mut control = server.resp();
    let mut clients: Vec<Resp> = (0..50)
        .map(|at| {
            let call = if at % 2 == 0 { "BZPOPMIN k 0" } else { "BZPOPMAX k 1000" };
            waiting(&server, &mut control, call)
        })
        .collect();
    let members: String = (0..50).map(|at| format!(" {at} m{at}")).collect();
    assert_eq!(control.call(&format!("ZADD k{members}")), Value::Integer(50));
    let mut taken = BTreeSet::new();
    for (at, client) in clients.iter_mut().enumerate() {
        // The lowest and the greatest of those that are left, in turns.
        let score = if at % 2 == 0 { at / 2 } else { 49 - at / 2 };
        let expected = popped("k", &format!("m{score}"), &score.to_string());
        assert_eq!(client.receive().unwrap(), expected);
        assert!(taken.insert(score));
    }
    assert_eq!(control.call("EXISTS k"), Value::Integer(0));
}

#[test]
fn waits_end_in_time_and_take_nothing_later() {
    let server = server(3);
    let mut control = server.resp();
    let mut forever = waiting(&server, &mut control, "BZPOPMIN a b c 0");
    let mut many = waiting(&server, &mut control, "BZMPOP 1000 2 b c MAX COUNT 2");
    let mut short = server.resp();
    for call in ["BZPOPMIN a b c 0.02", "BZPOPMAX a 0.001", "BZMPOP 0.02 1 c MIN COUNT 5"] {
        assert_eq!(short.call(call), Value::Null, "{call}");
    }
    assert_eq!(control.info("blocked_clients"), 2);
    assert_eq!(control.call("ZADD c 3 x 1.5 y 2 z"), Value::Integer(3));
    assert_eq!(forever.receive().unwrap(), popped("c", "y", "1.5"));
    let pair = |member: &str, score: &str| Value::Array([member, score].map(Value::bulk).into());
    let both = Value::Array(vec![pair("x", "3"), pair("z", "2")]);
    assert_eq!(many.receive().unwrap(), Value::Array(vec![Value::bulk("c"), both]));
    assert_eq!(control.call("EXISTS c"), Value::Integer(0));
}

/// A list at the key serves those that wait for lists only, and a sorted set the others.
#[test]
fn a_client_waits_for_its_type_only() {
    let server = server(2);
    let mut control = server.resp();
    let mut member = waiting(&server, &mut control, "BZPOPMIN k 0");
    let mut element = waiting(&server, &mut control, "BLPOP k 0");
    assert_eq!(control.call("RPUSH k e f"), Value::Integer(2));
    let pair = Value::Array(vec![Value::bulk("k"), Value::bulk("e")]);
    assert_eq!(element.receive().unwrap(), pair);
    assert_eq!(control.info("blocked_clients"), 1);
    assert_eq!(control.call("DEL k"), Value::Integer(1));
    assert_eq!(control.call("ZADD k 1 m"), Value::Integer(1));
    assert_eq!(member.receive().unwrap(), popped("k", "m", "1"));
}

#[test]
fn what_is_stored_renamed_and_added_as_a_place_serves_them() {
    let server = server(3);
    let mut control = server.resp();
    assert_eq!(control.call("ZADD source 1 m"), Value::Integer(1));
    for call in [
        "ZUNIONSTORE to 2 source none",
        "ZINTERSTORE to 1 source",
        "ZDIFFSTORE to 1 source",
        "ZRANGESTORE to source 0 -1",
        "COPY source to",
        "RENAME moved to",
    ] {
        assert_eq!(control.call("ZRANGESTORE moved source 0 -1"), Value::Integer(1));
        let mut client = waiting(&server, &mut control, "BZPOPMAX other to 0");
        let reply = control.call(call);
        assert!(!reply.is_error(), "{call}: {reply:?}");
        assert_eq!(client.receive().unwrap(), popped("to", "m", "1"), "{call}");
        assert_eq!(control.call("EXISTS to"), Value::Integer(0), "{call}");
    }
    let mut client = waiting(&server, &mut control, "BZMPOP 0 1 to MIN");
    assert_eq!(control.call("GEOADD to 13.4 52.5 Berlin"), Value::Integer(1));
    let Value::Array(reply) = client.receive().unwrap() else { panic!("a member") };
    assert_eq!(reply[0], Value::bulk("to"));
}

/// What waits has one step: of members that are too long for it, it takes as many as it may.
#[test]
fn of_long_members_a_part_is_popped() {
    const MEMBERS: usize = 600;
    let server = ServerProcess::start(&["--shards=2", "--max-memory=256MiB"]);
    let mut resp = server.resp();
    let mut left: BTreeSet<Vec<u8>> = BTreeSet::new();
    for at in 0..MEMBERS {
        let member = format!("{at:05}").repeat(12_000).into_bytes();
        let score = at.to_string();
        resp.send(&[b"ZADD", b"k", score.as_bytes(), &member]).unwrap();
        assert_eq!(resp.receive().unwrap(), Value::Integer(1));
        left.insert(member);
    }
    let mut calls = 0;
    while !left.is_empty() {
        let Value::Array(popped) = resp.call("BZMPOP 0 1 k MIN COUNT 600") else {
            panic!("members are popped");
        };
        let [_, Value::Array(pairs)] = &popped[..] else { panic!("a key and members") };
        for pair in pairs {
            let Value::Array(pair) = pair else { panic!("a member and its score") };
            let Value::Bulk(member) = &pair[0] else { panic!("a member") };
            assert!(left.remove(member), "once");
        }
        calls += 1;
    }
    assert!((2..10).contains(&calls), "{calls}");
    assert_eq!(resp.call("EXISTS k"), Value::Integer(0));
}

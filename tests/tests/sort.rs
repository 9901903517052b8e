//! SORT as Redis answers, of lists and sets, with values of keys in several shards.

use crate::redis_oracle::canonical;
use crate::sets::items;
use remora_resp::wire::ParsedValue;
use remora_tests::{Bytes, Random, RedisServer, Resp, ServerProcess, Value, is_skipped};

/// Keys that are sorted: lists of numbers, sets of numbers, and what other tests make.
const KEYS: &[&str] = &[
    "n1", "n1", "n2", "n2", "i1", "i1", "i2", "a", "b", "{t}a", "c", "sc", "sd", "string", "h_1",
    "none",
];
const STORED: &[&str] = &["stored", "stored", "{t}b", "c", "n2", "i2", "w_3", "string", ""];
const OPTIONS: &[&str] = &[
    "BY w_*",
    "BY w_*",
    "by w_*",
    "BY h_*->f",
    "BY h_*->g",
    "BY nosort",
    "BY nosort",
    "BY #",
    "BY *",
    "LIMIT 0 10",
    "LIMIT 2 5",
    "LIMIT -3 100",
    "LIMIT 1 -1",
    "LIMIT 0 0",
    "LIMIT 1000 5",
    "limit 9223372036854775807 9223372036854775807",
    "LIMIT x 1",
    "GET #",
    "GET #",
    "GET w_*",
    "GET w_*",
    "GET h_*->f",
    "get h_*->g",
    "GET h_*->",
    "GET x",
    "GET *",
    "ASC",
    "DESC",
    "DESC",
    "desc",
    "ALPHA",
    "ALPHA",
    "ALPHA",
    "alpha",
];
/// Options that are none.
const BAD_OPTIONS: &[&str] =
    &["foo", "BY", "GET", "STORE", "LIMIT 1", "LIMIT 1 x", "LIMIT", "ASC 1"];
/// What can be asked of the table of commands.
const TABLE_CALLS: &[&str] = &[
    "COMMAND GETKEYS SORT a",
    "COMMAND GETKEYS SORT a STORE b",
    "COMMAND GETKEYS SORT a BY STORE GET x LIMIT 1 2 store b store c ALPHA",
    "COMMAND GETKEYS SORT a LIMIT STORE b STORE",
    "COMMAND GETKEYS SORT a STORE get b",
    "COMMAND GETKEYS SORT_RO a STORE b",
    "SORT",
    "SORT_RO",
];

/// Whether a call is one of SORT.
pub fn is_sort(words: &[Vec<u8>]) -> bool {
    matches!(&words[0][..], b"SORT" | b"SORT_RO")
}

fn is_in(words: &[Vec<u8>], word: &str) -> bool {
    words.iter().skip(2).any(|other| other.eq_ignore_ascii_case(word.as_bytes()))
}

/// The pattern of the last BY; as Redis, that of none if there is one without a star.
fn by(words: &[Vec<u8>]) -> Option<&[u8]> {
    let of = |at: usize| words[at - 1].eq_ignore_ascii_case(b"BY").then_some(&words[at][..]);
    let all: Vec<&[u8]> = (3..words.len()).filter_map(of).collect();
    all.iter().find(|by| !by.contains(&b'*')).or(all.last()).copied()
}

/// A call of SORT, or a change of what is sorted or of a value that is looked up.
pub fn draw(random: &mut Random) -> Vec<Vec<u8>> {
    let split = |text: &str| -> Vec<Vec<u8>> {
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    };
    let number = |random: &mut Random| (random.below(40) as i64 - 20).to_string();
    let element = |random: &mut Random| match random.below(4) {
        0 => format!("m{}", random.below(60)),
        1 => format!("element {}", random.below(30)),
        _ => number(random),
    };
    // None is out of range: Redis would take later numbers, too, for such ones.
    let value = |random: &mut Random| match random.below(60) {
        0 => random.pick(&["x", "", "inf", "-inf", "nan", "0x10", " 7", "7 "]).to_owned(),
        1..6 => format!("{}.{}", random.below(9), random.below(9)),
        _ => number(random),
    };
    let words = |words: &[&str]| -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    };
    match random.below(100) {
        0..8 => words(&["SET", &format!("w_{}", element(random)), &value(random)]),
        8..14 => {
            let key = format!("h_{}", element(random));
            words(&["HSET", &key, "f", &value(random), "g", &element(random)])
        }
        14..17 => words(&["DEL", &format!("{}_{}", random.pick(&["w", "h"]), element(random))]),
        17 => words(&["RPUSH", &format!("w_{}", element(random)), "1"]),
        18..26 => {
            let mut call = split(random.pick(&["RPUSH n1", "RPUSH n2", "SADD i1", "SADD i2"]));
            for _ in 0..1 + random.below(6) {
                call.push(value(random).into_bytes());
            }
            call
        }
        26..31 => {
            split(random.pick(&["DEL n1", "DEL i1", "LTRIM n1 0 20", "DEL n2", "DEL i2 stored"]))
        }
        31..34 => words(&["LRANGE", random.pick(STORED), "0", "-1"]),
        34..36 => split(random.pick(TABLE_CALLS)),
        _ => draw_sort(random),
    }
}

fn draw_sort(random: &mut Random) -> Vec<Vec<u8>> {
    let mut text = format!("{} {}", random.pick(&["SORT", "SORT", "SORT_RO"]), random.pick(KEYS));
    for _ in 0..random.below(6) {
        text = format!("{text} {}", random.pick(OPTIONS));
    }
    if random.below(25) == 0 {
        text = format!("{text} {}", random.pick(BAD_OPTIONS));
    }
    let mut words: Vec<Vec<u8>> = text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let has_ties = is_in(&words, "ALPHA") && by(&words).is_some_and(|by| by.contains(&b'*'));
    // Where Redis promises no order, both would hold other lists from then on.
    if random.below(4) == 0 && !has_ties {
        words.extend([b"STORE".to_vec(), random.pick(STORED).into()]);
    }
    words
}

/// Whether two replies to SORT say the same, of a set or of a list, where Redis promises no order.
pub fn agree(words: &[Vec<u8>], is_set: bool, ours: &[u8], theirs: &[u8]) -> bool {
    if ours == theirs {
        return true;
    }
    let (Some(mut our), Some(mut their)) = (items(ours), items(theirs)) else { return false };
    let has_order = match by(words) {
        None => true,
        Some(by) if by.contains(&b'*') => !is_in(words, "ALPHA"),
        Some(_) => !is_set,
    };
    if has_order || our.len() != their.len() || ours[0] != theirs[0] {
        return false;
    }
    our.sort();
    their.sort();
    is_in(words, "LIMIT") || our == their
}

#[test]
fn random_sorts_are_answered_as_by_redis() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let redis = RedisServer::start();
    let worlds = [("1", "2"), ("3", "3"), ("4", "2"), ("2", "3")];
    for (seed, (shards, protocol)) in worlds.iter().enumerate() {
        let server = ServerProcess::start(&[&format!("--shards={shards}"), "--max-memory=64MiB"]);
        let [mut ours, mut theirs] = Bytes::pair(&server, &redis, protocol);
        let (mut random, mut results) = (Random::new(seed as u64 + 1), [0; 2]);
        theirs.call(&[b"FLUSHALL"]).expect("redis replies");
        for at in 0..6_000 {
            let words = draw(&mut random);
            let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let is_set = is_sort(&words)
                && words.len() > 1
                && theirs.call(&[b"TYPE", &words[1]]).expect("redis replies") == b"+set\r\n";
            let their = theirs.call(&slices).expect("redis replies");
            let our = ours.call(&slices).expect("we reply");
            let shown: Vec<String> = words.iter().map(|w| w.escape_ascii().to_string()).collect();
            let (a, b) = (our.escape_ascii().to_string(), their.escape_ascii().to_string());
            let is_alike =
                if is_sort(&words) { agree(&words, is_set, &our, &their) } else { our == their };
            assert!(is_alike, "seed {seed}, call {at}: {shown:?}\nours {a}\ntheirs {b}");
            if is_sort(&words) {
                results[usize::from(their[0] == b'-')] += 1;
            }
        }
        assert!(results[0] > 1_000 && results[1] > 100, "{results:?} results and errors");
    }
}

#[test]
fn numbers_are_read_as_by_redis() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let redis = RedisServer::start();
    let server = ServerProcess::start(&["--max-memory=64MiB"]);
    let mut ours = Bytes::connect(server.resp_address()).expect("a connection");
    let texts: &[&[u8]] = &[
        b"",
        b" ",
        b" 1",
        b"1 ",
        b"+1",
        b"--1",
        b"0x1p3",
        b"0x",
        b"0x.8",
        b"0x1g",
        b"1e5",
        b"1e",
        b".5",
        b"5.",
        b".",
        b"inf",
        b"-Infinity",
        b"infinit",
        b"nan",
        b"nan(1)",
        b"1e308",
        b"1e309",
        b"-1e400",
        b"1e-307",
        b"1e-310",
        b"0e999",
        b"1\0x",
        b"\t7",
        b"9223372036854775808",
        b"1e0005",
        b"1_0",
        b"1.5.",
    ];
    for text in texts {
        // Redis asks for an error that an earlier call may have left: a connection that it accepts resets it.
        let mut theirs = redis.connect();
        let mut both = |words: &[&[u8]]| {
            let [our, their] =
                [&mut ours, &mut theirs].map(|one| one.call(words).expect("a reply"));
            let (a, b) = (our.escape_ascii().to_string(), their.escape_ascii().to_string());
            assert_eq!(a, b, "{}", text.escape_ascii());
        };
        both(&[b"DEL", b"l"]);
        both(&[b"RPUSH", b"l", b"0", b"2", text, b"-3", b"8"]);
        both(&[b"SORT", b"l"]);
    }
}

#[test]
fn sort_describes_itself_as_in_redis() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let redis = RedisServer::start();
    let server = ServerProcess::start(&["--max-memory=64MiB"]);
    let both = Bytes::pair(&server, &redis, "2");
    let [ours, theirs] = both.map(|mut one| {
        let reply = one.call(&[b"COMMAND", b"INFO", b"SORT", b"SORT_RO"]).expect("a reply");
        let value = remora_resp::Value::parse(&reply);
        let Ok(ParsedValue::Value { value: remora_resp::Value::Array(all), .. }) = value else {
            panic!("no array")
        };
        all.iter().map(canonical).collect::<Vec<_>>()
    });
    assert_eq!(ours, theirs);
}

/// RPUSHes of numbers, in an order that is none.
fn fill(resp: &mut Resp, key: &str, count: usize) {
    for from in (0..count).step_by(1_000) {
        let some: Vec<String> =
            (from..count.min(from + 1_000)).map(|at| (at * 7_919 % count).to_string()).collect();
        let mut words: Vec<&[u8]> = vec![b"RPUSH", key.as_bytes()];
        words.extend(some.iter().map(String::as_bytes));
        resp.try_call(&words).expect("a reply");
    }
}

#[test]
fn many_elements_are_sorted_and_stored_over_shards_while_others_are_served() {
    const COUNT: usize = 100_000;
    let server = ServerProcess::start(&["--shards=3", "--max-memory=384MiB"]);
    let [mut resp, mut other] = [(), ()].map(|()| server.resp());
    fill(&mut resp, "l", COUNT);
    for at in 0..COUNT / 100 {
        resp.call(&format!("SET w_{at} {}", COUNT - at));
    }
    resp.send(&[b"SORT", b"l", b"GET", b"#", b"GET", b"w_*"]).unwrap();
    for _ in 0..20 {
        assert_eq!(other.call("LLEN l"), Value::Integer(COUNT as i64));
    }
    let Value::Array(told) = resp.receive().unwrap() else { panic!("no array") };
    assert_eq!(told.len(), 2 * COUNT);
    for (at, pair) in told.chunks(2).enumerate() {
        assert_eq!(pair[0], Value::bulk(at.to_string()));
        let weight = (at < COUNT / 100).then(|| Value::bulk((COUNT - at).to_string()));
        assert_eq!(pair[1], weight.unwrap_or(Value::Null));
    }
    // More than one change may hold: it goes to the key in pieces.
    for (store, count) in [("SORT l DESC STORE d", COUNT), ("SORT l LIMIT 0 70000 STORE d", 70_000)]
    {
        assert_eq!(resp.call(store), Value::Integer(count as i64));
        assert_eq!(resp.call("LLEN d"), Value::Integer(count as i64));
    }
    assert_eq!(resp.call("LINDEX d 69999"), Value::bulk("69999"));
    assert_eq!(resp.call("LPUSH d first"), Value::Integer(70_001));
    assert_eq!(resp.call("SORT l BY w_* LIMIT 99997 3 DESC GET # STORE d"), Value::Integer(3));
    let Value::Array(last) = resp.call("LRANGE d 0 -1") else { panic!("no array") };
    assert_eq!(last.len(), 3);
    assert_eq!(resp.call("SORT none STORE d"), Value::Integer(0));
    assert_eq!(resp.call("EXISTS d"), Value::Integer(0));
    // A client that waits gets from what is stored.
    other.send(&[b"BLPOP", b"d", b"0"]).unwrap();
    remora_tests::wait_until("it waits", || resp.info("blocked_clients") == 1);
    assert_eq!(resp.call("SORT l LIMIT 5 2 STORE d"), Value::Integer(2));
    assert_eq!(other.receive().unwrap(), Value::Array(vec![Value::bulk("d"), Value::bulk("5")]));
}

#[test]
fn sorts_beyond_the_limits_are_refused_and_their_ends_harm_nobody() {
    const MOST: usize = 1 << 20;
    let server = ServerProcess::start(&["--shards=2", "--max-memory=256MiB"]);
    let mut resp = server.resp();
    fill(&mut resp, "l", MOST + 1);
    let refused = |value: Value| match value {
        Value::Error(text) => text,
        other => panic!("{other:?}"),
    };
    let text =
        "ERR more than 1048576 elements, or more than 64 MiB of elements or values: sort fewer";
    assert_eq!(refused(resp.call("SORT l LIMIT 0 1")), text);
    // Without an order to be made, only what is wanted is looked at.
    assert_eq!(resp.call("SORT l BY nosort LIMIT 0 1"), Value::Array(vec![Value::bulk("0")]));
    let many = "GET x ".repeat(257);
    let text = "ERR more than 256 options GET in one command";
    assert_eq!(refused(resp.call(&format!("SORT l {}", many.trim_end()))), text);
    assert!(matches!(resp.call("LPOP l"), Value::Bulk(_)));
    // Clients that go while their elements are sorted.
    for _ in 0..4 {
        let mut gone = server.resp();
        gone.send(&[b"SORT", b"l", b"BY", b"w_*", b"GET", b"v_*"]).unwrap();
    }
    let Value::Array(last) = resp.call("SORT l DESC LIMIT 0 1") else { panic!("no array") };
    assert_eq!(last, [Value::bulk(MOST.to_string())]);
}

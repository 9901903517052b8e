//! The same random calls to a real redis-server and to ours, one by one: the
//! replies have to be the same, byte for byte, errors included. What
//! `docs/commands.md` says to be different is not asked.

use remora_resp::wire::ParsedValue;
use remora_tests::{Bytes, Random, RedisServer, ServerProcess, is_skipped, let_clocks_go_on};
use std::time::Instant;

/// So long that nothing expires during the test, as seconds and as ms.
const LONG: &str = "1000000";
/// Times as an argument: long, past, or senseless.
const TIMES: &[&str] = &[
    LONG,
    LONG,
    "0",
    "-1",
    "-1000000",
    "x",
    "",
    "01",
    "1.5",
    MOST,
    "-9223372036854775808",
    "9223372036854775808",
];
const MOST: &str = "9223372036854775807";
/// Numbers as an argument. (No offset between what we and what Redis can hold.)
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "-2",
    "7",
    "8",
    "9",
    "15",
    "16",
    "100",
    "-100",
    "1000",
    "-1000",
    "01",
    "+1",
    "-0",
    " 1",
    "1 ",
    "1.0",
    "",
    "x",
    "4294967296",
    "-4294967296",
    "-4294967297",
    MOST,
    "-9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "99999999999999999999",
];
const OPTIONS: &[&str] =
    &["NX", "xx", "GeT", "KEEPTTL", "persist", "EX", "px", "EXAT", "pxat", "GT", "lt", "foo", ""];
const KEYS: &[&str] = &["", "a", "b", "c", "d", "e", "key with spaces", "\0\r\n"];

/// What stands at one place of a call.
#[derive(Clone, Copy)]
enum Word {
    Key,
    Value,
    Number,
    Time,
    /// Up to this many options of SET, GETEX or EXPIRE, with times after some.
    Options(usize),
    /// Up to this many more keys.
    Keys,
    /// Up to three more pairs.
    Pairs,
}
use Word::{Key, Keys, Number, Options, Pairs, Time, Value as Text};

const CALLS: &[(&str, &[Word])] = &[
    ("APPEND", &[Key, Text]),
    ("APPEND", &[Key, Text]),
    ("STRLEN", &[Key]),
    ("SETRANGE", &[Key, Number, Text]),
    ("SETRANGE", &[Key, Number, Text]),
    ("GETRANGE", &[Key, Number, Number]),
    ("GETRANGE", &[Key, Number, Number]),
    ("SUBSTR", &[Key, Number, Number]),
    ("SETBIT", &[Key, Number, Number]),
    ("SETBIT", &[Key, Number, Number]),
    ("GETBIT", &[Key, Number]),
    ("GETDEL", &[Key]),
    ("GETEX", &[Key, Options(2)]),
    ("GETSET", &[Key, Text]),
    ("SETNX", &[Key, Text]),
    ("SETEX", &[Key, Time, Text]),
    ("PSETEX", &[Key, Time, Text]),
    ("SET", &[Key, Text]),
    ("SET", &[Key, Text, Options(3)]),
    ("GET", &[Key]),
    ("MGET", &[Key, Keys]),
    ("MSET", &[Key, Text, Pairs]),
    ("DEL", &[Key]),
    ("UNLINK", &[Key, Keys]),
    ("EXISTS", &[Key, Keys]),
    ("TYPE", &[Key, Options(1)]),
    ("INCR", &[Key]),
    ("DECR", &[Key]),
    ("INCRBY", &[Key, Number]),
    ("DECRBY", &[Key, Number]),
    ("EXPIRE", &[Key, Time, Options(2)]),
    ("PEXPIRE", &[Key, Time, Options(1)]),
    ("EXPIREAT", &[Key, Time, Options(1)]),
    ("PEXPIREAT", &[Key, Time, Options(1)]),
    ("TTL", &[Key]),
    ("PTTL", &[Key]),
    ("PING", &[]),
    ("ECHO", &[Text]),
    ("SELECT", &[Number]),
    ("NOSUCH", &[Key, Number, Options(3)]),
];

/// Calls about the connection and the server, and calls that make no sense.
/// (COMMAND GETKEYS of a lone name is left out: Redis 7.0 wants a word more.)
const OTHER_CALLS: &[&str] = &[
    "PING a",
    "PING a b",
    "ECHO",
    "SELECT",
    "SELECT 0",
    "SELECT 99999999999",
    "CLIENT",
    "CLIENT FOO",
    "CLIENT GETNAME",
    "CLIENT SETNAME me",
    "client getname",
    "CLIENT SETNAME a\tb",
    "CLIENT SETNAME a b",
    "CLIENT SETNAME ",
    "CLIENT GETNAME",
    "CLIENT ID x",
    "COMMAND FOO",
    "COMMAND COUNT x",
    "COMMAND INFO nosuch",
    "COMMAND DOCS nosuch",
    "COMMAND LIST FILTERBY FOO x",
    "COMMAND LIST FILTERBY MODULE x",
    "COMMAND LIST x",
    "COMMAND GETKEYS",
    "COMMAND GETKEYS nosuch a",
    "COMMAND GETKEYS PING a",
    "COMMAND GETKEYS GET a b",
    "COMMAND GETKEYS MSET a 1 b 2",
    "COMMAND GETKEYS MSET a 1 b",
    "COMMAND GETKEYS CLIENT ID",
    "CONFIG",
    "CONFIG FOO",
    "CONFIG GET",
    "CONFIG GET nosuch",
    "INFO nosuch",
    "DBSIZE x",
    "FLUSHALL FOO",
    "FLUSHALL SYNC ASYNC",
    "FLUSHALL async",
    "FLUSHDB SYNC",
    "HELLO 1",
    "HELLO x",
    "HELLO 3 FOO",
    "HELLO 3 AUTH a",
    "HELLO 3 SETNAME",
    "HELLO 2 AUTH nobody nothing",
    "MSET a 1 b",
    "GET a b c",
    "",
    " x",
    "QUIT now",
];

fn value(random: &mut Random) -> Vec<u8> {
    let some = random.below(40);
    match random.below(6) {
        0 => random.pick(NUMBERS).into(),
        1 => Vec::new(),
        2 => random.below(2_000).to_string().into(),
        _ => random.bytes(some),
    }
}

fn options(random: &mut Random, most: usize, words: &mut Vec<Vec<u8>>) {
    for _ in 0..random.below(most + 1) {
        let option = random.pick(OPTIONS);
        words.push(option.into());
        let is_timed = ["EX", "PX", "EXAT", "PXAT"].contains(&&*option.to_ascii_uppercase());
        if is_timed && random.below(10) > 0 {
            words.push(random.pick(TIMES).into());
        }
    }
}

/// One random call; some have a word too few or too many.
fn draw(random: &mut Random) -> Vec<Vec<u8>> {
    let (name, places) = CALLS[random.below(CALLS.len())];
    let mut words = vec![name.into()];
    for place in places {
        match place {
            Key => words.push(random.pick(KEYS).into()),
            Text => words.push(value(random)),
            Number if random.below(3) == 0 => words.push(random.below(200).to_string().into()),
            Number => words.push(random.pick(NUMBERS).into()),
            Time => words.push(random.pick(TIMES).into()),
            Options(most) => options(random, *most, &mut words),
            Keys => words.extend((0..random.below(4)).map(|_| random.pick(KEYS).into())),
            Pairs => {
                for _ in 0..random.below(4) {
                    words.extend([random.pick(KEYS).into(), value(random)]);
                }
            }
        }
    }
    match random.below(60) {
        0 if words.len() > 1 => drop(words.pop()),
        1 => words.push(random.pick(OPTIONS).into()),
        _ => {}
    }
    words
}

/// Redis keeps expiries beyond the year 2527; `docs/commands.md` says that
/// ours end there.
fn is_beyond_our_expiries(words: &[Vec<u8>]) -> bool {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let mut pairs = words.windows(2);
    (is(&words[0], "pexpireat") && words.get(2).is_some_and(|time| is(time, MOST)))
        || pairs.any(|pair| is(&pair[0], "pxat") && is(&pair[1], MOST))
}

/// Both servers, each with a connection of one protocol.
struct Both {
    ours: Bytes,
    theirs: Bytes,
    /// The longest time from before a call to one server until after the same
    /// call to the other, ms.
    gap_ms: u64,
}

impl Both {
    fn connect(server: &ServerProcess, redis: &RedisServer, protocol: &str) -> Self {
        let [ours, theirs] = Bytes::pair(server, redis, protocol);
        Self { ours, theirs, gap_ms: 0 }
    }

    /// One call to both, whose replies have to be the same.
    fn call(&mut self, at: usize, words: &[Vec<u8>]) {
        let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let_clocks_go_on(words);
        let begun = Instant::now();
        let theirs = self.theirs.call(&slices).expect("redis replies");
        let ours = self.ours.call(&slices).expect("we reply");
        self.gap_ms = self.gap_ms.max(begun.elapsed().as_millis() as u64 + 1);
        let shown = || {
            let words: Vec<String> =
                words.iter().map(|word| word.escape_ascii().to_string()).collect();
            format!("call {at}: {words:?}")
        };
        let is_ttl =
            words[0].eq_ignore_ascii_case(b"ttl") || words[0].eq_ignore_ascii_case(b"pttl");
        if let (true, Some(ours), Some(theirs)) = (is_ttl, number(&ours), number(&theirs)) {
            // A gap lies between the two when the expiry is set, and when it is read;
            // both round to a unit.
            let unit_ms = if words[0].len() == 3 { 1_000 } else { 1 };
            let apart = 2 * self.gap_ms / unit_ms + 1;
            let close = ours > 0 && theirs > 0 && ours.abs_diff(theirs) <= apart;
            assert!(ours == theirs || close, "{}\nours {ours}, theirs {theirs}", shown());
            return;
        }
        let (ours, theirs) = (ours.escape_ascii().to_string(), theirs.escape_ascii().to_string());
        assert_eq!(ours, theirs, "ours, theirs; {}", shown());
    }

    fn line(&mut self, at: usize, line: &str) {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.into()).collect();
        self.call(at, &words);
    }
}

fn number(reply: &[u8]) -> Option<i64> {
    std::str::from_utf8(reply.strip_prefix(b":")?).ok()?.trim_end().parse().ok()
}

fn servers() -> Option<(ServerProcess, RedisServer)> {
    if is_skipped("redis-server") {
        println!("not run: redis-server is missing, as REMORA_SKIP says");
        return None;
    }
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    Some((server, RedisServer::start()))
}

/// All keys are looked at, so that both have removed what has expired; then
/// everything about every key has to be the same.
fn compare_all(both: &mut Both, at: usize) {
    for key in KEYS {
        for command in ["GET", "STRLEN", "TTL", "TYPE"] {
            both.call(at, &[command.into(), (*key).into()]);
        }
    }
    both.line(at, "DBSIZE");
}

#[test]
fn random_calls_are_answered_as_by_redis() {
    let Some((server, redis)) = servers() else { return };
    for (seed, protocol) in [(1, "2"), (2, "3"), (3, "2"), (4, "3")] {
        let mut both = Both::connect(&server, &redis, protocol);
        both.line(0, "FLUSHALL");
        let mut random = Random::new(seed);
        for at in 0..6_000 {
            let words = draw(&mut random);
            if is_beyond_our_expiries(&words) {
                continue;
            }
            both.call(at, &words);
            if at % 1_000 == 999 {
                compare_all(&mut both, at);
            }
        }
        compare_all(&mut both, 6_000);
    }
}

#[test]
fn keys_that_expire_do_so_in_both() {
    let Some((server, redis)) = servers() else { return };
    let mut both = Both::connect(&server, &redis, "3");
    let rounds = [
        "SET a v PX 10",
        "PSETEX a 10 v",
        "GETEX a PX 10",
        "PEXPIRE a 10",
        "GETEX a EXAT 1",
        "SET a v PXAT 1",
        "EXPIREAT a 1",
    ];
    let looks = [
        "APPEND a x",
        "STRLEN a",
        "SETRANGE a 3 x",
        "GETRANGE a 0 -1",
        "SETBIT a 9 1",
        "GETBIT a 1",
        "GETDEL a",
        "GETEX a PERSIST",
        "GETSET a v",
        "SETNX a v",
        "SET a v KEEPTTL",
        "SET a v XX",
    ];
    for round in rounds {
        for look in looks {
            for line in ["DEL a", "SET a abc", round] {
                both.line(0, line);
            }
            std::thread::sleep(std::time::Duration::from_millis(15));
            for line in [look, "GET a", "TTL a", "EXISTS a", "DBSIZE"] {
                both.line(0, line);
            }
        }
    }
    // An edit keeps the expiry, and PERSIST takes it away.
    for line in [
        "SET a abc EX 1000000",
        "APPEND a d",
        "TTL a",
        "SETRANGE a 10 e",
        "TTL a",
        "SETBIT a 200 1",
        "TTL a",
        "INCR a",
        "GETEX a",
        "TTL a",
        "GETEX a PERSIST",
        "TTL a",
        "GETSET a b",
        "TTL a",
    ] {
        both.line(0, line);
    }
}

#[test]
fn what_is_not_about_data_is_answered_as_by_redis() {
    let Some((server, redis)) = servers() else { return };
    for protocol in ["2", "3"] {
        let mut both = Both::connect(&server, &redis, protocol);
        for (at, line) in OTHER_CALLS.iter().enumerate() {
            both.line(at, line);
        }
    }
}

/// A reply as text, with lists in one order: flags and categories have none.
pub fn canonical(value: &remora_resp::Value<'_>) -> String {
    match value {
        remora_resp::Value::Array(items) => {
            let mut items: Vec<String> = items.iter().map(canonical).collect();
            items.sort();
            items.join(" ")
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn string_commands_describe_themselves_as_those_of_redis() {
    let Some((server, redis)) = servers() else { return };
    let mut both = Both::connect(&server, &redis, "2");
    let mut names: Vec<&str> = CALLS.iter().map(|(name, _)| *name).collect();
    names.dedup();
    for name in names.into_iter().filter(|name| *name != "NOSUCH") {
        both.line(0, &format!("COMMAND GETKEYS {name} 1"));
        both.line(0, &format!("COMMAND GETKEYS {name} 1 2 3"));
        let words: [&[u8]; 3] = [b"COMMAND", b"INFO", name.as_bytes()];
        let ours = parsed(&both.ours.call(&words).unwrap());
        let theirs = parsed(&both.theirs.call(&words).unwrap());
        assert_eq!(ours, theirs, "{name}");
    }
}

/// Name, arity, flags, key places and categories of a COMMAND INFO.
fn parsed(reply: &[u8]) -> Vec<String> {
    use remora_resp::Value::Array;
    let value = remora_resp::Value::parse(reply);
    let Ok(ParsedValue::Value { value: Array(commands), .. }) = value else { panic!("no array") };
    let Some(Array(fields)) = commands.first() else { panic!("no command") };
    fields[..7].iter().map(canonical).collect()
}

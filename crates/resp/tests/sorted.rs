//! Sorted sets against a real redis-server: random calls, errors included, and the bytes of both replies.

use crate::sorted_model::{Model, Object};
use remora_protocol::message::Status;
use remora_resp::wire::{ParsedValue, Value, encode};
use remora_resp::{Args, Made, RespVersion, parse, request};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Calls in each version of the protocol, with one shard and with several.
const CALLS: u32 = 12_000;

/// A redis-server on a Unix socket; it is killed when this is dropped.
struct Redis {
    child: Child,
    path: PathBuf,
}

impl Redis {
    fn start(name: &str) -> Self {
        let name = format!("remora-resp-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: command.spawn().expect("redis-server is installed"), path }
    }

    fn connect(&self) -> Connection {
        for _ in 0..1_000 {
            match UnixStream::connect(&self.path) {
                Ok(stream) => return Connection { stream, buffer: Vec::new() },
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        panic!("redis-server does not listen");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Connection {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Sends a request and gives the bytes of its reply.
    fn call(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode::request(&mut bytes, &words.iter().map(|word| &word[..]).collect::<Vec<_>>());
        self.stream.write_all(&bytes).unwrap();
        self.buffer.clear();
        let mut piece = [0; 65_536];
        loop {
            let count = self.stream.read(&mut piece).unwrap();
            assert!(count > 0, "the server has closed the connection");
            self.buffer.extend_from_slice(&piece[..count]);
            if let ParsedValue::Value { consumed, .. } = Value::parse(&self.buffer).unwrap() {
                assert_eq!(consumed, self.buffer.len());
                return self.buffer.clone();
            }
        }
    }
}

/// Pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const KEYS: &[&str] = &["z0", "z1", "z2", "z3", "z4", "set", "none", "text"];
const MEMBERS: &[&str] =
    &["a", "b", "c", "d", "e", "f", "aa", "ab", "", "10", "a longer member", "\u{ff}\u{0}"];
/// Sums of these are exact in any order.
const PLAIN_SCORES: &[&str] =
    &["0", "1", "2", "-3", "1.5", "0.25", "10", "0x10", "1e3", "+4", "5."];
const SCORES: &[&str] = &[
    "0",
    "-0",
    "1",
    "2",
    "-1",
    "1.5",
    "0.1",
    "3.3",
    "inf",
    "-inf",
    "+Infinity",
    "1e300",
    "-1e-300",
    "4503599627370497",
    "1e17",
    "123456789012345678",
    "0x1p-3",
    "1e-320",
    ".5",
];
const NO_SCORES: &[&str] = &["nan", "x", "", " 1", "1 ", "1e400", "1e-400", "1e", "0x", "--1"];
const BOUNDS: &[&str] = &[
    "-inf", "+inf", "inf", "0", "(0", "1", "(1", "(2", "1.5", "-1", "10", "(-inf", "0x10", "", "(",
    " 1",
];
const NO_BOUNDS: &[&str] = &["nan", "x", "1 ", "((1", "[1"];
const LEX_BOUNDS: &[&str] = &["-", "+", "[a", "(a", "[b", "(c", "[aa", "[", "(", "[z"];
const NO_LEX_BOUNDS: &[&str] = &["", "a", "+a", "-x", "1"];
const INDEXES: &[&str] =
    &["0", "1", "2", "-1", "-2", "5", "-7", "100", "9223372036854775807", "-9223372036854775808"];
const COUNTS: &[&str] = &["0", "1", "2", "3", "-1", "-3", "100"];
const NO_INTEGERS: &[&str] = &["x", "", "1.5", "9223372036854775808", "01"];

/// Makes calls.
struct Calls {
    random: Random,
    scores: &'static [&'static str],
}

impl Calls {
    /// One of these words; now and then one of those that are errors.
    fn word(&mut self, of: &[&'static str], errors: &[&'static str]) -> String {
        let from = if self.random.below(25) == 0 { errors } else { of };
        self.random.pick(from).to_owned()
    }

    fn key(&mut self) -> String {
        let keys = if self.random.below(8) == 0 { KEYS } else { &KEYS[..5] };
        self.random.pick(keys).to_owned()
    }

    /// A key that is read, or whose members are removed. Only GEOADD writes to `geo`, as Redis leaves open
    /// where a score lies that is no geohash; and all members of `lex` have one score.
    fn source(&mut self) -> String {
        match self.random.below(10) {
            0 => "geo".to_owned(),
            1 => "lex".to_owned(),
            _ => self.key(),
        }
    }

    /// This key, now and then one of the others.
    fn one_of(&mut self, key: &'static str, others: &[&'static str]) -> String {
        if self.random.below(12) == 0 {
            self.random.pick(others).to_owned()
        } else {
            key.to_owned()
        }
    }

    fn member(&mut self) -> String {
        self.random.pick(MEMBERS).to_owned()
    }

    fn score(&mut self) -> String {
        self.word(self.scores, NO_SCORES)
    }

    fn bounds(&mut self, unit: usize, out: &mut Vec<String>) {
        for _ in 0..2 {
            out.push(match unit {
                0 => self.word(INDEXES, NO_INTEGERS),
                1 => self.word(BOUNDS, NO_BOUNDS),
                _ => self.word(LEX_BOUNDS, NO_LEX_BOUNDS),
            });
        }
    }

    /// Some of these options, each of words that are separated by spaces; `#` is a count.
    fn options(&mut self, of: &[&str], most: usize, out: &mut Vec<String>) {
        for _ in 0..self.random.below(most + 1) {
            for word in self.random.pick(of).split(' ') {
                out.push(match word {
                    "#" => self.word(COUNTS, NO_INTEGERS),
                    word => word.to_owned(),
                });
            }
        }
    }

    fn add(&mut self) -> Vec<String> {
        let mut out = vec!["ZADD".to_owned(), self.key()];
        if self.random.below(2) == 0 {
            self.options(&["NX", "xx", "GT", "lt", "CH", "INCR", "ch"], 3, &mut out);
        }
        if self.random.below(5) == 0 {
            out = vec![
                "ZADD".to_owned(),
                self.one_of("lex", &["string"]),
                "0".to_owned(),
                self.member(),
            ];
        }
        for _ in 0..1 + self.random.below(4) {
            let score = if out[1] == "lex" { "0".to_owned() } else { self.score() };
            out.extend([score, self.member()]);
        }
        if self.random.below(40) == 0 {
            out.pop();
        }
        out
    }

    fn of_members(&mut self) -> Vec<String> {
        let name = self.random.pick(&[
            "ZREM", "ZMSCORE", "ZSCORE", "ZRANK", "ZREVRANK", "ZINCRBY", "ZCARD", "GEOPOS",
            "GEODIST", "GEOHASH",
        ]);
        let key = match name {
            "ZINCRBY" => self.key(),
            "GEOPOS" | "GEODIST" | "GEOHASH" => self.one_of("geo", &["string", "nothing"]),
            _ => self.source(),
        };
        let mut out = vec![name.to_owned(), key];
        let members = match name {
            "ZREM" | "ZMSCORE" | "GEOPOS" | "GEOHASH" => 1 + self.random.below(3),
            "ZCARD" => 0,
            "GEODIST" => 2,
            _ => 1,
        };
        if name == "ZINCRBY" {
            out.push(self.score());
        }
        (0..members).for_each(|_| out.push(self.member()));
        out
    }

    fn range(&mut self) -> Vec<String> {
        let all = [
            ("ZRANGE", 3),
            ("ZRANGESTORE", 3),
            ("ZREVRANGE", 0),
            ("ZRANGEBYSCORE", 1),
            ("ZREVRANGEBYSCORE", 1),
            ("ZRANGEBYLEX", 2),
            ("ZREVRANGEBYLEX", 2),
            ("ZCOUNT", 1),
            ("ZLEXCOUNT", 2),
            ("ZREMRANGEBYRANK", 0),
            ("ZREMRANGEBYSCORE", 1),
            ("ZREMRANGEBYLEX", 2),
        ];
        let (name, unit) = all[self.random.below(all.len())];
        let by = if unit == 3 { self.random.below(3) } else { unit };
        let mut out = vec![name.to_owned()];
        if name == "ZRANGESTORE" {
            out.push(self.key());
        }
        out.push(if by == 2 { self.one_of("lex", &["string", "nothing"]) } else { self.source() });
        self.bounds(by, &mut out);
        if name.contains("COUNT") || name.starts_with("ZREM") {
            return out;
        }
        if unit == 3 && by > 0 {
            out.push(["BYSCORE", "bylex"][by - 1].to_owned());
        }
        if by == 0 {
            self.options(&["WITHSCORES", "REV", "withscores", "LIMIT 0 #"], 2, &mut out);
        } else if by == 1 {
            self.options(&["WITHSCORES", "LIMIT # #", "REV", "LIMIT 0 #"], 3, &mut out);
        } else {
            self.options(&["LIMIT # #", "REV", "LIMIT 0 #", "LIMIT 1"], 2, &mut out);
        }
        if self.random.below(30) == 0 {
            out.push(self.random.pick(&["WITHSCORES", "REV", "x", "LIMIT"]).to_owned());
        }
        out
    }

    fn combine(&mut self) -> Vec<String> {
        let name = self.random.pick(&[
            "ZUNION",
            "ZINTER",
            "ZDIFF",
            "ZINTERCARD",
            "ZUNIONSTORE",
            "ZINTERSTORE",
            "ZDIFFSTORE",
        ]);
        let mut out = vec![name.to_owned()];
        if name.ends_with("STORE") {
            out.push(self.key());
        }
        let keys = 1 + self.random.below(3);
        out.push(match self.random.below(40) {
            0 => self.random.pick(NO_INTEGERS).to_owned(),
            1 => self.random.pick(&["0", "-1", "9", "4"]).to_owned(),
            _ => keys.to_string(),
        });
        for _ in 0..keys {
            let with_set = self.random.below(6) == 0;
            out.push(if with_set { "set".to_owned() } else { self.source() });
        }
        for _ in 0..self.random.below(3) {
            match self.random.below(6) {
                0 | 1 => {
                    out.push("WEIGHTS".to_owned());
                    (0..keys).for_each(|_| out.push(self.score()));
                }
                2 | 3 => {
                    let how = self.word(&["SUM", "min", "MAX"], &["x", "SUMS"]);
                    out.extend(["AGGREGATE".to_owned(), how]);
                }
                _ => self.options(&["WITHSCORES", "LIMIT #"], 1, &mut out),
            }
        }
        out
    }

    fn pop(&mut self) -> Vec<String> {
        let name =
            self.random.pick(&["ZPOPMIN", "ZPOPMAX", "ZMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP"]);
        let mut out = vec![name.to_owned()];
        if !name.contains("MPOP") {
            out.push(self.key());
            if name.starts_with('B') {
                (0..self.random.below(3)).for_each(|_| out.push(self.key()));
                out.push(self.word(&["0.01"], &["x", "-1", ""]));
            } else if self.random.below(2) == 0 {
                out.push(self.word(COUNTS, NO_INTEGERS));
            }
            return out;
        }
        if name == "BZMPOP" {
            out.push(self.word(&["0.01"], &["x", "-1", ""]));
        }
        let keys = 1 + self.random.below(3);
        let number = keys.to_string();
        out.push(if self.random.below(25) == 0 { self.word(COUNTS, NO_INTEGERS) } else { number });
        (0..keys).for_each(|_| out.push(self.key()));
        out.push(self.word(&["MIN", "max"], &["x", "COUNT"]));
        self.options(&["COUNT #", "COUNT 2"], 1, &mut out);
        out
    }

    fn some(&mut self) -> Vec<String> {
        let mut out = vec!["ZSCAN".to_owned(), self.key()];
        match self.random.below(4) {
            0 => {
                out.push(self.word(&["0"], &["x", "-"]));
                self.options(&["MATCH a*", "COUNT #", "MATCH *", "x"], 2, &mut out);
            }
            1 => {
                out[0] = "ZRANDMEMBER".to_owned();
                out.push(self.word(&["0", "-2", "-5", "9223372036854775807"], NO_INTEGERS));
                self.options(&["WITHSCORES"], 1, &mut out);
                if self.random.below(9) == 0 {
                    out.push("x".to_owned());
                }
            }
            2 => {
                out = vec!["GEOADD".to_owned(), self.one_of("geo", &["string"])];
                self.options(&["NX", "XX", "CH"], 1, &mut out);
                for bound in [["13.5", "-70", "181"], ["38.1", "0x10", "x"]] {
                    out.push(self.random.pick(&bound).to_owned());
                }
                out.push(self.member());
            }
            _ => {
                out[0] = "ZRANDMEMBER".to_owned();
                out.push(self.random.pick(&["100", "0", "-9223372036854775808"]).to_owned());
            }
        }
        out
    }

    fn next(&mut self) -> Vec<String> {
        match self.random.below(100) {
            0..26 => self.add(),
            26..45 => self.of_members(),
            45..70 => self.range(),
            70..88 => self.combine(),
            88..93 => self.pop(),
            _ => self.some(),
        }
    }
}

/// The reply of the model to a call.
fn ours(model: &mut Model, words: &[Vec<u8>], version: RespVersion) -> Vec<u8> {
    let (mut bytes, mut args, made) = (Vec::new(), Args::new(), Made::default());
    encode::request(&mut bytes, &words.iter().map(|word| &word[..]).collect::<Vec<_>>());
    parse(&bytes, &mut args).unwrap();
    match request(&args, &bytes, &made, 0) {
        Ok(request) => model.answer(request, version),
        Err(error) => {
            let mut out = Vec::new();
            error.write(&mut out);
            out
        }
    }
}

/// What is compared of a reply: of random members only how many there are.
fn compared(name: &str, mut reply: Vec<u8>) -> Vec<u8> {
    if name == "ZRANDMEMBER" && reply.starts_with(b"*") {
        let line = reply.iter().position(|byte| *byte == b'\n').unwrap();
        reply.truncate(line);
    }
    reply
}

fn words(line: &[&str]) -> Vec<Vec<u8>> {
    line.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Gives both the keys that are no sorted sets, in the place of what was stored there.
fn seed(redis: &mut Connection, model: &mut Model) {
    redis.call(&words(&["DEL", "set", "text"]));
    redis.call(&words(&["SADD", "set", "a", "b", "aa", "10"]));
    redis.call(&words(&["MSET", "text", "text", "string", "text"]));
    let members = ["a", "b", "aa", "10"].map(|of| of.as_bytes().to_vec());
    model.keys.insert(b"set".to_vec(), Object::Set(members.into()));
    for key in ["text", "string"] {
        model.keys.insert(key.as_bytes().to_vec(), Object::String);
    }
}

/// Makes calls to Redis and to the model; the kinds of replies that were seen, by command.
fn run(version: RespVersion, shards: usize, scores: &'static [&'static str]) {
    let redis = Redis::start(&format!("{}-{shards}", version.number()));
    let mut connection = redis.connect();
    connection.call(&words(&["HELLO", &version.number().to_string()]));
    let mut model = Model { keys: BTreeMap::new(), shards };
    let seed_of = 0x9e37_79b9_7f4a_7c15 ^ (shards as u64) << 7 ^ version.number() as u64;
    let mut calls = Calls { random: Random(seed_of), scores };
    let mut seen: BTreeMap<String, [u32; 2]> = BTreeMap::new();
    for call in 0..CALLS {
        if call % 500 == 0 {
            seed(&mut connection, &mut model);
        }
        let call: Vec<String> = calls.next();
        let bytes: Vec<Vec<u8>> = call.iter().map(|word| word.clone().into_bytes()).collect();
        let expected = compared(&call[0], connection.call(&bytes));
        let found = compared(&call[0], ours(&mut model, &bytes, version));
        assert!(
            found == expected,
            "{call:?} with {:?}\nours  {}\nredis {}",
            model.keys,
            found.escape_ascii(),
            expected.escape_ascii()
        );
        let is_error = usize::from(found.starts_with(b"-"));
        seen.entry(call[0].clone()).or_default()[is_error] += 1;
    }
    assert_eq!(seen.len(), 37 + 2, "{seen:?}");
    let is_seen = |(name, [replies, errors]): (&String, &[u32; 2])| {
        assert!(*replies > 10 && *errors > 0, "{name}: {replies} replies, {errors} errors");
    };
    seen.iter().for_each(is_seen);
}

#[test]
fn replies_are_those_of_redis_in_resp2() {
    run(RespVersion::Resp2, 1, SCORES);
}

#[test]
fn replies_are_those_of_redis_in_resp3() {
    run(RespVersion::Resp3, 1, SCORES);
}

#[test]
fn replies_are_those_of_redis_with_several_shards() {
    run(RespVersion::Resp2, 3, PLAIN_SCORES);
    run(RespVersion::Resp3, 3, PLAIN_SCORES);
}

#[test]
fn long_results_are_sorted_and_stored_in_pieces() {
    let mut model = Model { keys: BTreeMap::new(), shards: 3 };
    for (key, from) in [("z1", 0), ("z2", 5_000)] {
        let of = |at: usize| (((at * 7_919) % 10_007) as f64, format!("m{at}").into_bytes());
        let mut members: Vec<_> = (from..from + 10_000).map(of).collect();
        members.sort_by(|a, b| a.partial_cmp(b).unwrap());
        model.keys.insert(key.as_bytes().to_vec(), Object::Sorted(members));
    }
    let version = RespVersion::Resp3;
    let stored = ours(&mut model, &words(&["ZUNIONSTORE", "to", "2", "z1", "z2"]), version);
    assert_eq!(stored, b":15000\r\n");
    let call = words(&["ZUNION", "2", "z1", "z2", "WITHSCORES"]);
    let union = ours(&mut model, &call, version);
    let all = ours(&mut model, &words(&["ZRANGE", "to", "0", "-1", "WITHSCORES"]), version);
    assert!(union == all && union.starts_with(b"*15000\r\n*2\r\n"));
}

#[test]
fn ranks_have_scores_as_in_redis_7_2() {
    let mut model = Model { keys: BTreeMap::new(), shards: 1 };
    let (two, three) = (RespVersion::Resp2, RespVersion::Resp3);
    ours(&mut model, &words(&["ZADD", "z", "1", "a", "2.5", "b"]), two);
    for (call, version, reply) in [
        (&["ZRANK", "z", "b", "WITHSCORE"][..], two, "*2\r\n:1\r\n$3\r\n2.5\r\n"),
        (&["ZREVRANK", "z", "b", "withscore"], three, "*2\r\n:0\r\n,2.5\r\n"),
        (&["ZRANK", "z", "c", "WITHSCORE"], two, "*-1\r\n"),
        (&["ZRANK", "z", "c", "WITHSCORE"], three, "_\r\n"),
        (&["ZRANK", "z", "b", "SCORE"], two, "-ERR syntax error\r\n"),
        (
            &["ZRANK", "z", "b", "WITHSCORE", "x"],
            two,
            "-ERR wrong number of arguments for 'zrank' command\r\n",
        ),
    ] {
        let found = ours(&mut model, &words(call), version);
        assert_eq!(String::from_utf8(found).unwrap(), reply, "{call:?}");
    }
}

#[test]
fn statuses_have_redis_s_texts() {
    let text = remora_resp::error::status_error(Status::NotANumber, "zincrby").unwrap();
    assert_eq!(text, "ERR resulting score is not a number (NaN)");
}

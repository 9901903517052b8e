//! Sorted sets over RESP as Redis answers: the same random calls to a real redis-server and to ours, one
//! by one. Replies have to be the same byte for byte, errors and digits included, but where chance
//! decides: what those say is compared as far as it is promised.

use remora_resp::Value as Front;
use remora_resp::wire::ParsedValue;
use remora_tests::{Bytes, Random, RedisServer, ServerProcess, is_skipped};
use std::collections::BTreeMap;

/// Keys of any scores.
const KEYS: &[&str] = &["a", "b", "{t}c", "{t}d", "e", "set", "string", "nowhere", ""];
/// Keys whose members all have the score 0, as ranges of members need; and a list.
const EVEN: &[&str] = &["x", "y", "{t}z", "x", "y", "{t}z", "list"];

const SCORES: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "1.5",
    "2",
    "0.1",
    "0.2",
    "-0.3",
    "3.14159265358979",
    "1e21",
    "1e300",
    "-1e300",
    "1.7976931348623157e308",
    "5e-324",
    "17179869184",
    "9007199254740993",
    "123456789012345678",
    "0.30000000000000004",
    "inf",
    "-inf",
    "+Infinity",
];
const BAD_SCORES: &[&str] = &[
    "nan", "-nan", "x", "", "1e", "1e400", "-1e400", "1e-400", " 1", "1 ", "0x10", "0x1p-2", "1_0",
    "+-1", "(1", "infinit", ".5", "5.", "1,5", "--1",
];
const SCORE_BOUNDS: &[&str] = &[
    "-inf",
    "+inf",
    "(-inf",
    "(+inf",
    "0",
    "(0",
    "1",
    "(1",
    "1.5",
    "(2",
    "-1",
    "(-1",
    "1e300",
    "nan",
    "(x",
    "",
    "(",
    "10",
    "(17179869184",
    "-0",
];
const MEMBER_BOUNDS: &[&str] = &[
    "-", "+", "[m1", "(m1", "[m3", "(m5", "[", "(", "[z", "[0", "(9", "[m", "x", "", "--", "+x",
    "[L", "(m29",
];
const INDEXES: &[&str] = &[
    "0",
    "0",
    "1",
    "-1",
    "-1",
    "-2",
    "3",
    "5",
    "10",
    "100",
    "-100",
    "300",
    "x",
    "",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
    "+1",
];
const ADDS: &[&str] = &[
    "",
    "",
    "",
    "",
    "",
    "NX",
    "XX",
    "GT",
    "lt",
    "CH",
    "NX CH",
    "XX CH",
    "GT CH",
    "LT XX CH",
    "INCR",
    "XX INCR",
    "GT INCR",
    "nx incr",
    "LT INCR CH",
    "NX GT",
    "NX XX",
    "GT LT",
    "NX LT CH",
    "foo",
];
const WITH: &[&str] = &["", "", "WITHSCORES", "withscores", "WITHSCORES x", "foo", "LIMIT 0 1"];
const RANGES: &[&str] =
    &["", "", "REV", "WITHSCORES", "rev withscores", "BYSCORE", "BYLEX", "LIMIT 0 1", "x"];
const BY_SCORE: &[&str] = &[
    "BYSCORE",
    "BYSCORE REV",
    "byscore WITHSCORES",
    "BYSCORE LIMIT 1 3",
    "BYSCORE LIMIT 0 -1 WITHSCORES",
    "REV BYSCORE LIMIT 2 5 withscores",
    "BYSCORE LIMIT -1 5",
    "BYSCORE LIMIT 0 0",
    "BYSCORE LIMIT x 1",
    "BYSCORE LIMIT 1",
    "BYSCORE BYLEX",
    "BYSCORE LIMIT 3 9223372036854775807",
];
const BY_MEMBER: &[&str] = &[
    "BYLEX",
    "BYLEX REV",
    "bylex LIMIT 1 3",
    "BYLEX REV LIMIT 0 2",
    "BYLEX WITHSCORES",
    "BYLEX LIMIT 2 -1",
    "REV BYLEX LIMIT 5 100",
    "BYLEX LIMIT x 1",
];
const OLD_LIMITS: &[&str] = &[
    "",
    "",
    "WITHSCORES",
    "LIMIT 0 3",
    "LIMIT 1 2 WITHSCORES",
    "WITHSCORES LIMIT 2 -1",
    "LIMIT -1 2",
    "LIMIT 0",
    "LIMIT x 2",
    "foo",
];
const STORED: &[&str] = &["0 -1", "0 3", "-5 -1", "0 -1 REV", "5 2", "0 x", "0 -1 WITHSCORES"];
const COMBINED: &[&str] = &[
    "",
    "",
    "",
    "WITHSCORES",
    "AGGREGATE MIN",
    "aggregate max WITHSCORES",
    "AGGREGATE SUM",
    "AGGREGATE",
    "AGGREGATE foo",
    "WITHSCORES foo",
];
const STORES: &[&str] =
    &["", "", "AGGREGATE MIN", "aggregate MAX", "AGGREGATE sum", "WITHSCORES", "foo"];
const WEIGHTS: &[&str] = &["1", "2", "0", "-1", "0.5", "inf", "-inf", "1e300", "3", "x", "nan", ""];
const LIMITS: &[&str] = &[
    "",
    "",
    "LIMIT 0",
    "LIMIT 2",
    "limit 1000",
    "LIMIT -1",
    "LIMIT x",
    "LIMIT",
    "foo",
    "LIMIT 1 x",
];
const POPS: &[&str] = &["", "", "1", "3", "0", "40", "x", "-1", "3 foo", "9223372036854775808"];
const MANY_POPS: &[&str] = &[
    "MIN",
    "MAX",
    "min COUNT 3",
    "MAX COUNT 10",
    "MIN COUNT 0",
    "MAX COUNT -1",
    "MIN COUNT x",
    "UP",
    "",
    "MIN COUNT",
    "MAX COUNT 1 COUNT 2",
    "MIN foo",
];
/// So many random members: refused with their scores.
const ENDLESS: &str = "-4611686018427387905";
const RANDOMS: &[&str] = &[
    "",
    "5",
    "-5",
    "0",
    "1000",
    "x",
    "3 WITHSCORES",
    "-7 withscores",
    "3 foo",
    "-9223372036854775808",
    "1.5",
    ENDLESS,
];
const CURSORS: &[&str] = &["0", "0", "0", "x", "-1", "+5", "18446744073709551616"];
const SCANS: &[&str] =
    &["", "", "COUNT 5", "COUNT 0", "COUNT x", "MATCH m*", "MATCH *", "foo", "COUNT"];

/// What stands at one place of a call.
#[derive(Clone, Copy)]
enum Word {
    Key,
    Even,
    /// Keys behind their number.
    Counted,
    /// The same, of keys whose scores are not only zeros, with weights now and then.
    Weighted,
    Member,
    Members,
    Score,
    Pairs,
    EvenPairs,
    /// One or two words, or none.
    Of(&'static [&'static str]),
}
use Word::{Counted, Even, EvenPairs, Key, Member, Members, Of, Pairs, Score, Weighted};

const CALLS: &[(&str, &[Word])] = &[
    ("ZADD", &[Key, Of(ADDS), Pairs]),
    ("ZADD", &[Key, Of(ADDS), Pairs]),
    ("ZADD", &[Key, Of(ADDS), Pairs]),
    ("ZADD", &[Key, Pairs]),
    ("ZADD", &[Key, Pairs]),
    ("ZADD", &[Even, EvenPairs]),
    ("ZADD", &[Even, EvenPairs]),
    ("ZINCRBY", &[Key, Score, Member]),
    ("ZINCRBY", &[Key, Score, Member]),
    ("ZREM", &[Key, Member, Members]),
    ("ZREM", &[Even, Member, Members]),
    ("ZSCORE", &[Key, Member]),
    ("ZMSCORE", &[Key, Member, Members]),
    ("ZRANK", &[Key, Member]),
    ("ZREVRANK", &[Key, Member]),
    ("ZCARD", &[Key]),
    ("ZCOUNT", &[Key, Of(SCORE_BOUNDS), Of(SCORE_BOUNDS)]),
    ("ZLEXCOUNT", &[Even, Of(MEMBER_BOUNDS), Of(MEMBER_BOUNDS)]),
    ("ZRANGE", &[Key, Of(INDEXES), Of(INDEXES), Of(RANGES)]),
    ("ZRANGE", &[Key, Of(SCORE_BOUNDS), Of(SCORE_BOUNDS), Of(BY_SCORE)]),
    ("ZRANGE", &[Even, Of(MEMBER_BOUNDS), Of(MEMBER_BOUNDS), Of(BY_MEMBER)]),
    ("ZREVRANGE", &[Key, Of(INDEXES), Of(INDEXES), Of(WITH)]),
    ("ZRANGEBYSCORE", &[Key, Of(SCORE_BOUNDS), Of(SCORE_BOUNDS), Of(OLD_LIMITS)]),
    ("ZREVRANGEBYSCORE", &[Key, Of(SCORE_BOUNDS), Of(SCORE_BOUNDS), Of(OLD_LIMITS)]),
    ("ZRANGEBYLEX", &[Even, Of(MEMBER_BOUNDS), Of(MEMBER_BOUNDS), Of(OLD_LIMITS)]),
    ("ZREVRANGEBYLEX", &[Even, Of(MEMBER_BOUNDS), Of(MEMBER_BOUNDS), Of(OLD_LIMITS)]),
    ("ZRANGESTORE", &[Key, Key, Of(STORED)]),
    ("ZRANGESTORE", &[Key, Key, Of(SCORE_BOUNDS), Of(SCORE_BOUNDS), Of(BY_SCORE)]),
    ("ZRANGESTORE", &[Key, Even, Of(MEMBER_BOUNDS), Of(MEMBER_BOUNDS), Of(BY_MEMBER)]),
    ("ZREMRANGEBYRANK", &[Key, Of(INDEXES), Of(INDEXES)]),
    ("ZREMRANGEBYSCORE", &[Key, Of(SCORE_BOUNDS), Of(SCORE_BOUNDS)]),
    ("ZREMRANGEBYLEX", &[Even, Of(MEMBER_BOUNDS), Of(MEMBER_BOUNDS)]),
    ("ZUNION", &[Weighted, Of(COMBINED)]),
    ("ZINTER", &[Weighted, Of(COMBINED)]),
    ("ZDIFF", &[Counted, Of(COMBINED)]),
    ("ZUNIONSTORE", &[Key, Weighted, Of(STORES)]),
    ("ZINTERSTORE", &[Key, Weighted, Of(STORES)]),
    ("ZDIFFSTORE", &[Key, Counted, Of(STORES)]),
    ("ZINTERCARD", &[Counted, Of(LIMITS)]),
    ("ZPOPMIN", &[Key, Of(POPS)]),
    ("ZPOPMAX", &[Key, Of(POPS)]),
    ("ZMPOP", &[Counted, Of(MANY_POPS)]),
    ("ZRANDMEMBER", &[Key, Of(RANDOMS)]),
    ("ZSCAN", &[Key, Of(CURSORS), Of(SCANS)]),
    ("TYPE", &[Key]),
    ("EXPIRE", &[Key, Of(&["100000"])]),
    ("PERSIST", &[Key]),
    ("GET", &[Key]),
    ("SCARD", &[Key]),
    ("SADD", &[Of(&["set", "set", "a"]), Member, Members]),
    ("RPUSH", &[Of(&["list"]), Member]),
    ("DEL", &[Of(&["a", "b", "x", "{t}c", "string", "set", "nowhere"])]),
    ("SET", &[Of(&["string"]), Member]),
    ("RENAME", &[Of(&["a", "{t}c"]), Of(&["b", "{t}d"])]),
    ("COPY", &[Of(&["a", "{t}c"]), Of(&["b", "{t}d"]), Of(&["", "REPLACE"])]),
];

fn draw_member(random: &mut Random) -> Vec<u8> {
    match random.below(30) {
        0 => "L".repeat(60 + random.below(10)).into_bytes(),
        // Some are longer than a key of the tree, and differ where it looks at them.
        1 => {
            let number = random.below(50);
            format!("{number:03}{}", "M".repeat(200 + 2 * number)).into_bytes()
        }
        2 => [&b"007"[..], b"-0", b"", b"9223372036854775807", b"+1"][random.below(5)].to_vec(),
        3 => {
            let bytes = random.below(20);
            random.bytes(bytes)
        }
        4..10 => format!("m{}", random.below(300)).into_bytes(),
        10..20 => format!("m{}", random.below(30)).into_bytes(),
        _ => random.below(40).to_string().into_bytes(),
    }
}

fn draw_score(random: &mut Random) -> Vec<u8> {
    match random.below(40) {
        0 => random.pick(BAD_SCORES).into(),
        1..10 => random.pick(SCORES).into(),
        10..15 => (random.below(1_000_000) as f64 / 1e4 - 50.0).to_string().into_bytes(),
        15..17 => format!("{:e}", f64::from_bits(random.below(1_usize << 62) as u64)).into_bytes(),
        _ => (random.below(20) as i64 - 5).to_string().into_bytes(),
    }
}

/// Members with scores; now and then many, so that sets become large. Redis forgets the sign of 0 in
/// small sets only, so none of those has it with which a set becomes large at once.
fn draw_pairs(random: &mut Random, words: &mut Vec<Vec<u8>>, is_even: bool) {
    let most = [1, 1, 1, 2, 4, 4, 4, 200][random.below(8)];
    let count = 1 + random.below(most);
    for _ in 0..count {
        let score = if is_even { b"0".to_vec() } else { draw_score(random) };
        words.push(if score == b"-0" && count > 1 { b"0".to_vec() } else { score });
        words.push(draw_member(random));
    }
}

/// The number of some keys, and the keys; the number may be another one.
fn draw_keys(random: &mut Random, words: &mut Vec<Vec<u8>>) -> usize {
    let count = 1 + random.below(4);
    words.push(match random.below(25) {
        0 => random.pick(&["0", "-1", "x", "100", "", "1"]).into(),
        _ => count.to_string().into_bytes(),
    });
    for _ in 0..count {
        let key = if random.below(8) == 0 { random.pick(EVEN) } else { random.pick(KEYS) };
        words.push(key.into());
    }
    count
}

fn draw_weights(random: &mut Random, words: &mut Vec<Vec<u8>>, keys: usize) {
    if random.below(3) > 0 {
        return;
    }
    words.push(random.pick(&["WEIGHTS", "weights"]).into());
    let count = if random.below(12) == 0 { random.below(keys + 2) } else { keys };
    let most = if random.below(4) == 0 { WEIGHTS.len() } else { 6 };
    (0..count).for_each(|_| words.push(WEIGHTS[random.below(most)].into()));
}

/// A random call.
pub fn draw(random: &mut Random) -> Vec<Vec<u8>> {
    let (name, places) = CALLS[random.below(CALLS.len())];
    let mut words: Vec<Vec<u8>> = vec![name.into()];
    for place in places {
        match place {
            Key => words.push(random.pick(KEYS).into()),
            Even => words.push(random.pick(EVEN).into()),
            Counted => drop(draw_keys(random, &mut words)),
            Weighted => {
                let keys = draw_keys(random, &mut words);
                draw_weights(random, &mut words, keys);
            }
            Member => words.push(draw_member(random)),
            Members => {
                let most = if random.below(12) == 0 { 200 } else { 4 };
                (0..random.below(most)).for_each(|_| words.push(draw_member(random)));
            }
            Score => words.push(draw_score(random)),
            Pairs => draw_pairs(random, &mut words, false),
            EvenPairs => draw_pairs(random, &mut words, true),
            Of(list) => {
                let some = random.pick(list);
                let is_bound = [SCORE_BOUNDS, MEMBER_BOUNDS, INDEXES].contains(list);
                if is_bound || !some.is_empty() {
                    words.extend(some.split(' ').map(|word| word.as_bytes().to_vec()));
                }
            }
        }
    }
    // Newer ones of Redis take WITHSCORE behind the member, as ours do.
    let is_rank = name.ends_with("RANK") && name != "ZREMRANGEBYRANK";
    match random.below(60) {
        0 if words.len() > 1 => drop(words.pop()),
        1 if !is_rank => words.push(b"more".to_vec()),
        _ => {}
    }
    if words.last().is_some_and(|word| word == ENDLESS.as_bytes()) {
        // Without it Redis answers nothing else any more.
        words.push(b"WITHSCORES".to_vec());
    }
    words
}

/// The parts of a reply, as text.
fn parts(reply: &[u8]) -> Option<Vec<String>> {
    let Ok(ParsedValue::Value { value, .. }) = Front::parse(reply) else { return None };
    match value {
        Front::Array(parts) => Some(parts.iter().map(|part| format!("{part:?}")).collect()),
        _ => None,
    }
}

/// Whether two replies say the same where chance decides.
pub fn agree(words: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> bool {
    if ours == theirs {
        return true;
    }
    match &words[0][..] {
        b"ZRANDMEMBER" if words.len() == 2 => {
            let is_bulk = |reply: &[u8]| reply[0] == b'$' && reply != b"$-1\r\n";
            is_bulk(ours) && is_bulk(theirs)
        }
        b"ZRANDMEMBER" => {
            let lengths = [ours, theirs].map(|reply| parts(reply).map(|parts| parts.len()));
            lengths[0].is_some() && lengths[0] == lengths[1]
        }
        // What a scan tells in all is compared below.
        b"ZSCAN" => [ours, theirs].iter().all(|reply| parts(reply).is_some_and(|of| of.len() == 2)),
        _ => false,
    }
}

/// Both servers, ours first.
struct Both([Bytes; 2]);

impl Both {
    fn replies(&mut self, words: &[Vec<u8>]) -> [Vec<u8>; 2] {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.0.each_mut().map(|server| {
            let shown = || words.iter().map(|word| word.escape_ascii().to_string());
            let lost = |error| panic!("{error}: no reply to {:?}", shown().collect::<Vec<_>>());
            server.call(&words).unwrap_or_else(lost)
        })
    }

    fn call(&mut self, words: &[Vec<u8>], trace: &str) {
        let [ours, theirs] = self.replies(words);
        let shown: Vec<String> = words.iter().map(|w| w.escape_ascii().to_string()).collect();
        let (a, b) = (ours.escape_ascii().to_string(), theirs.escape_ascii().to_string());
        assert!(agree(words, &ours, &theirs), "{trace}: {shown:?}\nours   {a}\ntheirs {b}");
    }

    /// All that scans of both tell, and all that is in order.
    fn compare(&mut self, key: &str, trace: &str) {
        for words in [
            vec!["ZRANGE", key, "0", "-1", "WITHSCORES"],
            vec!["ZREVRANGE", key, "0", "-1"],
            vec!["ZCARD", key],
            vec!["TYPE", key],
        ] {
            let words: Vec<Vec<u8>> = words.into_iter().map(Into::into).collect();
            self.call(&words, trace);
        }
        let told = [0, 1].map(|of| {
            let (mut cursor, mut told) = (b"0".to_vec(), BTreeMap::new());
            loop {
                let reply = self.0[of].call(&[b"ZSCAN", key.as_bytes(), &cursor, b"COUNT", b"7"]);
                let reply = reply.expect("a reply");
                let Ok(ParsedValue::Value { value: Front::Array(parts), .. }) =
                    Front::parse(&reply)
                else {
                    return told;
                };
                let [Front::Bulk(next), Front::Array(members)] = &parts[..] else {
                    panic!("{parts:?}")
                };
                let pairs = members.chunks(2);
                // As numbers: of large sets Redis writes them in another form here, and -0 in the
                // command that makes a set large is 0 for its first ones only.
                let number = |score: &Front| -> Option<f64> {
                    let Front::Bulk(text) = score else { return None };
                    std::str::from_utf8(text).ok()?.parse().ok()
                };
                let score = |score: &Front| format!("{:?}", number(score).map(|of| of + 0.0));
                told.extend(pairs.map(|pair| (format!("{:?}", pair[0]), score(&pair[1]))));
                cursor = next.to_vec();
                if cursor == b"0" {
                    return told;
                }
            }
        });
        assert_eq!(told[0], told[1], "{trace}: {key}");
    }
}

/// Calls of one world, of which there are four.
const CALLS_EACH: usize = 10_000;

#[test]
fn random_calls_are_answered_as_by_redis() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let redis = RedisServer::start();
    let worlds = [("1", "2"), ("3", "3"), ("1", "3"), ("3", "2")];
    let mut most = 0;
    for (seed, (shards, protocol)) in worlds.iter().enumerate() {
        let server = ServerProcess::start(&[&format!("--shards={shards}"), "--max-memory=64MiB"]);
        let mut both = Both(Bytes::pair(&server, &redis, protocol));
        both.call(&[b"FLUSHALL".to_vec()], "at first");
        let mut random = Random::new(seed as u64 + 1);
        for at in 0..CALLS_EACH {
            let words = draw(&mut random);
            let trace = format!("{shards} shards, RESP{protocol}, call {at}");
            both.call(&words, &trace);
            if at % 500 == 499 {
                for key in KEYS.iter().chain(EVEN) {
                    both.compare(key, &trace);
                    let [ours, _] = both.replies(&[b"ZCARD".to_vec(), (*key).into()]);
                    let digits = std::str::from_utf8(&ours[1..]).unwrap_or_default();
                    most = most.max(digits.trim_end().parse::<u64>().unwrap_or_default());
                }
            }
        }
    }
    assert!(most > 128, "some sets are large: {most}");
}

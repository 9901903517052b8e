//! Sorted sets beside the other commands: GEO commands on sorted sets and commands on sorted sets on GEO
//! keys, SORT, encodings, RENAME and COPY, large sets in turns, and a server that starts again.

use remora_tests::{
    Bytes, Random, RedisServer, Resp, ServerProcess, Value, is_skipped, wait_until,
};
use std::collections::BTreeMap;

/// A redis-server and ours; the same words go to both.
struct Both([Bytes; 2]);

impl Both {
    fn start(redis: &RedisServer, ours: &ServerProcess) -> Self {
        let mut both = Self(Bytes::pair(ours, redis, "2"));
        both.call("FLUSHALL");
        both
    }

    fn replies(&mut self, words: &[&[u8]]) -> [Vec<u8>; 2] {
        self.0.each_mut().map(|server| server.call(words).expect("a reply"))
    }

    /// A call that both answer with the same bytes.
    fn call(&mut self, call: &str) -> Vec<u8> {
        let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
        self.call_words(&words)
    }

    fn call_words(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let [ours, theirs] = self.replies(words);
        let shown = |reply: &[u8]| reply.escape_ascii().to_string();
        let call: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        assert_eq!(shown(&ours), shown(&theirs), "ours, and theirs, of {call:?}");
        ours
    }
}

/// Both servers, or none if redis-server may be missing.
fn both_servers(shards: &str) -> Option<(RedisServer, ServerProcess)> {
    if is_skipped("redis-server") {
        println!("not run: redis-server is missing, as REMORA_SKIP says");
        return None;
    }
    let ours = ServerProcess::start(&[&format!("--shards={shards}"), "--max-memory=64MiB"]);
    Some((RedisServer::start(), ours))
}

/// A call on GEO keys: scores are geohashes, by whatever command they came.
fn draw_geo(random: &mut Random) -> String {
    let key = random.pick(&["g", "h", "{t}i"]);
    let member = format!("m{}", random.below(200));
    let other = format!("m{}", random.below(200));
    // Far from the poles, where Redis looks into other cells.
    let east = (random.below(1_400) as f64 - 700.0) / 10.0;
    let north = (random.below(1_000) as f64 - 500.0) / 10.0;
    let hash = random.below(1_u64 << 52);
    let km = 1 + random.below(1_000);
    let search = format!("GEOSEARCH {key} FROMLONLAT {east} {north} BYRADIUS {km} km ASC WITHDIST");
    match random.below(20) {
        0..4 => format!("GEOADD {key} {east} {north} {member}"),
        4..6 => format!("GEOADD {key} CH {east} {north} {member} {north} {east} {other}"),
        6..8 => format!("ZADD {key} {hash} {member}"),
        8 => format!("ZADD {key} GT CH {hash} {member}"),
        9 => format!("ZREM {key} {member} {other}"),
        10 => format!("ZREMRANGEBYSCORE {key} {hash} {}", hash + (1 << 44)),
        11 => format!("GEOPOS {key} {member} {other}"),
        12 => format!("GEOHASH {key} {member} {other}"),
        13 => format!("GEODIST {key} {member} {other} km"),
        14 => format!("ZRANGE {key} 0 5 WITHSCORES"),
        15 => format!("ZSCORE {key} {member}"),
        16 => format!("ZPOPMIN {key}"),
        17 => format!("ZUNIONSTORE {key} 2 g h AGGREGATE MAX"),
        18 => format!("GEOSEARCHSTORE {key} g FROMLONLAT {east} {north} BYRADIUS {km} km"),
        _ => search,
    }
}

#[test]
fn geo_keys_are_sorted_sets() {
    for shards in ["1", "3"] {
        let Some((redis, ours)) = both_servers(shards) else { return };
        let mut both = Both::start(&redis, &ours);
        let mut random = Random::new(5);
        for at in 0..6_000 {
            both.call(&draw_geo(&mut random));
            if at % 300 == 299 {
                for key in ["g", "h", "{t}i"] {
                    both.call(&format!("ZRANGE {key} 0 -1 WITHSCORES"));
                    both.call(&format!("ZCARD {key}"));
                    both.call(&format!("TYPE {key}"));
                }
            }
        }
    }
}

#[test]
fn sort_takes_members_in_the_order_of_their_scores() {
    let Some((redis, ours)) = both_servers("3") else { return };
    let mut both = Both::start(&redis, &ours);
    for count in [20, 400] {
        both.call("DEL z");
        for at in 0..count {
            both.call(&format!("ZADD z {} {at}", (at * 7) % 31));
            both.call(&format!("SET weight_{at} {}", (at * 13) % 101));
        }
        for how in [
            "",
            " DESC",
            " ALPHA",
            " ALPHA DESC LIMIT 3 9",
            " BY nosort",
            " BY nosort DESC",
            " BY nosort LIMIT 2 5",
            " BY nosort DESC LIMIT 2 5",
            " BY weight_*",
            " BY weight_* DESC LIMIT 0 7 GET # GET weight_*",
            " BY nosort LIMIT 5 -1 GET weight_*",
            " LIMIT 1 4 STORE stored",
        ] {
            both.call(&format!("SORT z{how}"));
        }
        both.call("LRANGE stored 0 -1");
        both.call("SORT_RO z DESC");
        both.call("ZADD z 1 text");
        both.call("SORT z");
    }
}

#[test]
fn encodings_are_those_of_redis_while_sets_grow() {
    let Some((redis, ours)) = both_servers("1") else { return };
    let mut both = Both::start(&redis, &ours);
    for at in 0..140 {
        both.call(&format!("ZADD z {at} m{at}"));
        both.call("OBJECT ENCODING z");
    }
    let long = "L".repeat(65);
    both.call("ZADD l 1 m");
    both.call("OBJECT ENCODING l");
    both.call(&format!("ZADD l 1 {}", &long[..64]));
    both.call("OBJECT ENCODING l");
    both.call(&format!("ZADD l 1 {long}"));
    both.call("OBJECT ENCODING l");
    both.call("ZUNIONSTORE u 2 l l");
    both.call("OBJECT ENCODING u");
    both.call("ZRANGESTORE s z 0 20");
    both.call("OBJECT ENCODING s");
    both.call("OBJECT ENCODING none");
}

/// Later releases of Redis give the score with the rank.
#[test]
fn a_rank_comes_with_its_score_if_it_is_wanted() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut resp = server.resp();
    assert_eq!(resp.call("ZADD z 1 a 2.5 b 3 c"), Value::Integer(3));
    let pair = |rank, score: &str| Value::Array(vec![Value::Integer(rank), Value::bulk(score)]);
    assert_eq!(resp.call("ZRANK z b WITHSCORE"), pair(1, "2.5"));
    assert_eq!(resp.call("ZREVRANK z a withscore"), pair(2, "1"));
    assert_eq!(resp.call("ZRANK z none WITHSCORE"), Value::Null);
    assert!(resp.call("ZRANK z a WITHSCORES").is_error());
    assert!(resp.call("ZRANK z a WITHSCORE x").is_error());
}

/// Adds members by few calls: `m0`, `m1` and so on, whose scores are a seventh of their numbers.
fn fill(resp: &mut Resp, key: &str, numbers: std::ops::Range<u64>) {
    for from in numbers.clone().step_by(1_000) {
        let some = from..numbers.end.min(from + 1_000);
        let count = some.end - some.start;
        let members: String = some.map(|at| format!(" {} m{at}", at as f64 / 7.0)).collect();
        let added = resp.call(&format!("ZADD {key}{members}"));
        assert_eq!(added, Value::Integer(count as i64));
    }
}

fn items(value: Value) -> Vec<Value> {
    let Value::Array(items) = value else { panic!("no array: {value:?}") };
    items
}

/// The members of a reply with scores.
fn members(value: Value) -> BTreeMap<Vec<u8>, f64> {
    let items = items(value);
    let pairs = items.chunks(2).map(|pair| {
        let [Value::Bulk(member), Value::Bulk(score)] = pair else { panic!("{pair:?}") };
        (member.clone(), std::str::from_utf8(score).unwrap().parse().unwrap())
    });
    pairs.collect()
}

#[test]
fn sets_are_renamed_and_copied_whole() {
    for shards in ["--shards=1", "--shards=3"] {
        let server = ServerProcess::start(&[shards, "--max-memory=256MiB"]);
        let mut resp = server.resp();
        for (key, count) in [("small", 50), ("large", 20_000)] {
            fill(&mut resp, key, 0..count);
            let all = resp.call(&format!("ZRANGE {key} 0 -1 WITHSCORES"));
            assert_eq!(resp.call(&format!("RENAME {key} renamed")), Value::ok());
            assert_eq!(resp.call("COPY renamed copied REPLACE"), Value::Integer(1));
            for name in ["renamed", "copied"] {
                let found = resp.call(&format!("ZRANGE {name} 0 -1 WITHSCORES"));
                assert!(found == all, "{shards} {key} {name}");
                let ranked = resp.call(&format!("ZRANK {name} m{}", count / 2));
                assert_eq!(ranked, Value::Integer(count as i64 / 2), "{name}");
            }
            // They are sets of their own.
            assert_eq!(resp.call("ZREM copied m7"), Value::Integer(1));
            assert_eq!(resp.call("ZCARD renamed"), Value::Integer(count as i64));
            assert_eq!(resp.call("ZCOUNT copied -inf +inf"), Value::Integer(count as i64 - 1));
        }
    }
}

#[test]
fn large_sets_are_combined_cut_and_emptied_over_shards() {
    for shards in ["--shards=1", "--shards=4"] {
        let server = ServerProcess::start(&[shards, "--max-memory=256MiB"]);
        let mut resp = server.resp();
        fill(&mut resp, "a", 0..40_000);
        fill(&mut resp, "b", 20_000..60_000);
        fill(&mut resp, "c", 30_000..35_000);
        for (call, number) in [
            ("ZUNIONSTORE u 2 a b", 60_000),
            ("ZINTERSTORE i 3 a b c WEIGHTS 1 2 3 AGGREGATE MAX", 5_000),
            ("ZDIFFSTORE d 2 a b", 20_000),
            ("ZINTERCARD 2 a b", 20_000),
            ("ZINTERCARD 2 a b LIMIT 17", 17),
            ("ZCOUNT u -inf +inf", 60_000),
            ("ZCOUNT a 0 (1", 7),
            ("ZRANGESTORE r u 10000 29999", 20_000),
            ("ZREMRANGEBYRANK u 0 9999", 10_000),
            ("ZREMRANGEBYSCORE u -inf (2857.1428571428573", 10_000),
            ("ZCARD u", 40_000),
            ("ZRANK a m30000", 30_000),
            ("ZREVRANK a m30000", 9_999),
        ] {
            assert_eq!(resp.call(call), Value::Integer(number), "{shards} {call}");
        }
        let all = members(resp.call("ZRANGE i 0 -1 WITHSCORES"));
        let wanted = (30_000..35_000_u64).map(|at| (format!("m{at}"), 3.0 * (at as f64 / 7.0)));
        let wanted: BTreeMap<_, _> =
            wanted.map(|(name, score)| (name.into_bytes(), score)).collect();
        assert!(all == wanted, "{shards}");
        // In pieces, from both ends.
        let mut left = 40_000;
        for (call, at) in [("ZPOPMIN a 15000", 0), ("ZPOPMAX a 15000", 39_999)] {
            let popped = items(resp.call(call));
            assert_eq!((popped.len(), &popped[0]), (30_000, &Value::bulk(format!("m{at}"))));
            left -= 15_000;
            assert_eq!(resp.call("ZCARD a"), Value::Integer(left));
        }
        assert_eq!(resp.call("ZREMRANGEBYSCORE a -inf +inf"), Value::Integer(left));
        assert_eq!(resp.call("EXISTS a"), Value::Integer(0));
        assert_eq!(resp.call("ZINTERSTORE r 2 a b"), Value::Integer(0));
        assert_eq!(resp.call("EXISTS r"), Value::Integer(0));
    }
}

/// A scan of a set that changes all the time gives each member that stays.
#[test]
fn a_scan_misses_no_member_that_stays() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let (mut resp, mut writer) = (server.resp(), server.resp());
    fill(&mut resp, "z", 0..3_000);
    let (mut found, mut cursor, mut round) = (BTreeMap::new(), b"0".to_vec(), 0);
    loop {
        let reply = items(resp.try_call(&[b"ZSCAN", b"z", &cursor, b"COUNT", b"50"]).unwrap());
        let [Value::Bulk(next), list] = &reply[..] else { panic!("{reply:?}") };
        found.extend(members(list.clone()));
        cursor.clone_from(next);
        if cursor == b"0" {
            break;
        }
        // Some come and go, and others move.
        fill(&mut writer, "z", 10_000 + 20 * round..10_020 + 20 * round);
        writer.call(&format!("ZINCRBY z 0.5 m{}", round * 31 % 3_000));
        round += 1;
        assert!(round < 2_000, "it ends");
    }
    for at in 0..3_000_u64 {
        let score = found.get(format!("m{at}").as_bytes()).copied();
        assert!(score.is_some_and(|score| score >= at as f64 / 7.0), "m{at}: {score:?}");
    }
}

/// All that a server shows of some keys.
fn shown(resp: &mut Resp, keys: &[&str]) -> Vec<Value> {
    let calls = keys.iter().flat_map(|key| {
        ["ZRANGE KEY 0 -1 WITHSCORES", "ZCARD KEY", "ZCOUNT KEY 0 +inf", "TYPE KEY"]
            .map(|call| call.replace("KEY", key))
    });
    calls.map(|call| resp.call(&call)).collect()
}

#[test]
fn sets_are_there_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let keys = ["small", "large", "cut", "stored", "places", "gone"];
    let (mut before, mut digest) = (Vec::new(), Value::Null);
    for (shards, begins) in [("--shards=2", true), ("--shards=2", false), ("--shards=3", false)] {
        let server = ServerProcess::start_with_data(data.path(), &[shards, "--durability=fsync"]);
        let mut resp = server.resp();
        if begins {
            fill(&mut resp, "small", 0..60);
            fill(&mut resp, "large", 0..5_000);
            fill(&mut resp, "cut", 0..3_000);
            fill(&mut resp, "gone", 0..2_000);
            for call in [
                "ZREMRANGEBYRANK cut 100 2799",
                "ZINCRBY large -1000 m77",
                "ZADD small -inf low +inf high -0 zero",
                "ZUNIONSTORE stored 2 small cut WEIGHTS 2 3",
                "ZPOPMAX gone 1999",
                "ZREM gone m0",
                "GEOADD places 13.4 52.5 Berlin 2.35 48.86 Paris",
            ] {
                assert!(!resp.call(call).is_error(), "{call}");
            }
            before = shown(&mut resp, &keys);
            digest = resp.call("DEBUG DIGEST");
        }
        assert!(shown(&mut resp, &keys) == before, "{shards}");
        assert_eq!(resp.call("DEBUG DIGEST"), digest);
        assert_eq!(resp.call("EXISTS gone"), Value::Integer(0));
        let around = resp.call("GEOSEARCH places FROMMEMBER Paris BYRADIUS 1000 km ASC");
        assert_eq!(around, Value::Array(["Paris", "Berlin"].map(Value::bulk).into()));
        assert_eq!(resp.call("ZRANK large m77"), Value::Integer(0));
        server.terminate();
    }
}

/// A set goes in turns: other requests are answered meanwhile, and its memory comes back.
#[test]
fn the_memory_of_a_set_that_is_removed_comes_back() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB"]);
    let mut resp = server.resp();
    let mut used = Vec::new();
    for _ in 0..6 {
        fill(&mut resp, "z", 0..100_000);
        used.push(resp.info("used_memory"));
        assert_eq!(resp.call("DEL z"), Value::Integer(1));
        let most = used[0] / 4;
        wait_until("the set's memory is free", || resp.info("used_memory") < most);
    }
    assert!(used.iter().all(|&bytes| bytes < used[0] * 5 / 4), "{used:?}");
}

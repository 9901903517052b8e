//! GEO keys: the same random calls to a real redis-server and to ours, one by
//! one. Replies have to be the same byte for byte, errors included; what a
//! search finds is compared as a set where Redis promises no order. Then
//! redis-py, full memory, many members, and what the connections behind a
//! search see.

use remora_tests::{
    Bytes, Random, RedisServer, Resp, ServerProcess, Value, encode, is_skipped, let_clocks_go_on,
    run_redis_py, wait_until,
};
use std::collections::BTreeSet;

const KEYS: &[&str] = &["g", "h", "i", "j", "s", ""];
const UNITS: &[&str] = &["m", "km", "FT", "mi"];
const EDGES: &[f64] = &[-180.0, 180.0, 179.999999, -179.999999, 0.0, 5e-7, -90.0];
const EDGE_LATITUDES: &[f64] = &[-85.05112878, 85.05112878, 85.0511287, -85.05, 0.0, 66.5, -80.1];

/// From 0 to 1.
fn unit(random: &mut Random) -> f64 {
    random.below(1 << 30) as f64 / (1u64 << 30) as f64
}

/// Members whose names begin with b lie around one town, so that what is found
/// there is far from the poles; others anywhere.
fn member(random: &mut Random) -> Vec<u8> {
    match random.below(20) {
        0..8 => format!("b{}", random.below(60)).into(),
        8..16 => format!("w{}", random.below(200)).into(),
        16..19 => format!("e{}", random.below(20)).into(),
        _ => vec![b'w', 0, b'\r', b'\n', 0xff],
    }
}

fn place(random: &mut Random, member: &[u8]) -> (String, String) {
    let (longitude, latitude) = match member.first() {
        Some(b'b') => (13.4 + unit(random) * 0.5, 52.4 + unit(random) * 0.3),
        Some(b'e') => {
            (EDGES[random.below(EDGES.len())], EDGE_LATITUDES[random.below(EDGE_LATITUDES.len())])
        }
        _ => (unit(random) * 360.0 - 180.0, (unit(random) * 2.0 - 1.0) * 85.05),
    };
    match random.below(8) {
        0 => (format!("{longitude:.1}"), format!("{latitude:.0}")),
        1 => (format!("{longitude:e}"), format!("{latitude:.9}")),
        _ => (longitude.to_string(), latitude.to_string()),
    }
}

/// A number for a size; some make no sense.
fn size(random: &mut Random) -> String {
    match random.below(24) {
        0 => "0".into(),
        1 => random.pick(&["-1", "x", "", "nan", "inf", "1e400", " 1", "1 "]).into(),
        2..6 => (random.below(30_000) as f64 * 1.1).to_string(),
        _ => format!("{}e{}", 1 + random.below(9), random.below(7) - 1),
    }
}

/// A search's words after the key, and where they begin.
fn centre_and_shape(random: &mut Random) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let say = |words: &mut Vec<Vec<u8>>, word: &str| words.push(word.into());
    if random.below(3) == 0 {
        say(&mut words, "FROMMEMBER");
        words.push(member(random));
    } else {
        say(&mut words, "fromlonlat");
        let name = member(random);
        let (longitude, latitude) = place(random, &name);
        words.extend([longitude.into(), latitude.into()]);
    }
    if random.below(2) == 0 {
        say(&mut words, "BYRADIUS");
    } else {
        say(&mut words, "bybox");
        words.push(size(random).into());
    }
    words.push(size(random).into());
    words.push(random.pick(UNITS).into());
    words
}

/// What else is said: for replies, not for storing.
fn options(random: &mut Random, words: &mut Vec<Vec<u8>>) {
    for (word, chances) in [("WITHDIST", 2), ("withhash", 3), ("WITHCOORD", 3)] {
        if random.below(chances) == 0 {
            words.push(word.into());
        }
    }
    match random.below(6) {
        0 => words.push("ASC".into()),
        1 => words.push("desc".into()),
        _ => {}
    }
    if random.below(3) == 0 {
        // What is cut at the count is told apart by its distance.
        words.extend(["WITHDIST".into(), "COUNT".into()]);
        words.push(match random.below(10) {
            0 => random.pick(&["0", "-1", "x", "1.0"]).into(),
            _ => (1 + random.below(40)).to_string().into(),
        });
        if random.below(4) == 0 {
            words.push("ANY".into());
        }
    }
    if random.below(40) == 0 {
        words.push(random.pick(&["foo", "ANY", "COUNT", "STORE", "BYRADIUS"]).into());
    }
}

/// A circle around the town, far from the poles: what is found there is stored.
fn around_town(random: &mut Random) -> Vec<Vec<u8>> {
    let radius = (random.below(500)).to_string();
    let mut words: Vec<Vec<u8>> = Vec::new();
    match random.below(2) {
        0 => words.extend(["FROMLONLAT".into(), "13.5".into(), "52.5".into()]),
        _ => words.extend(["FROMMEMBER".into(), format!("b{}", random.below(60)).into_bytes()]),
    }
    words.extend(["BYRADIUS".into(), radius.into(), random.pick(UNITS).into()]);
    words
}

/// Calls of other kinds, with `@` for a key.
const CALLS: [&str; 36] = [
    "SET @ 5",
    "SET @ text NX",
    "SET @ text XX KEEPTTL",
    "SET @ 1 GET",
    "SET @ 1 XX EX 1000000",
    "SETNX @ 1",
    "GETSET @ 1",
    "GET @",
    "GETDEL @",
    "GETEX @ EX 1000000",
    "GETEX @ PERSIST",
    "GETRANGE @ 0 -1",
    "SETRANGE @ 1 x",
    "SETRANGE @ 0 ",
    "APPEND @ 5",
    "APPEND @ ",
    "STRLEN @",
    "SETBIT @ 1 1",
    "GETBIT @ 1",
    "INCR @",
    "DECRBY @ 3",
    "DEL @",
    "DEL @ g h",
    "UNLINK @",
    "EXISTS @ @ g",
    "TYPE @",
    "MGET @ g h s",
    "MSET s 1 @ 2",
    "EXPIRE @ 1000000",
    "EXPIRE @ 2000000 GT",
    "EXPIRE @ 1000 LT",
    "EXPIRE @ 1000000 NX",
    "PEXPIRE @ 0",
    "EXPIREAT @ 1",
    "TTL @",
    "DBSIZE",
];

/// A GEOADD of some members, mostly a good one.
fn add(random: &mut Random, words: &mut Vec<Vec<u8>>, key: Vec<u8>) {
    words.extend(["GEOADD".into(), key]);
    for option in ["NX", "xx", "CH"] {
        if random.below(8) == 0 {
            words.push(option.into());
        }
    }
    for _ in 0..1 + random.below(12) {
        let name = member(random);
        let (longitude, latitude) = place(random, &name);
        words.extend([longitude.into(), latitude.into(), name]);
    }
    match random.below(40) {
        0 => drop(words.pop()),
        1 => words[2] = random.pick(&["200", "x", "inf", "-180.1", ""]).into(),
        2 => words[3] = random.pick(&["85.06", "nan", "-inf", "1e10"]).into(),
        _ => {}
    }
}

/// A GEORADIUS of some kind that stores what it finds.
fn store_radius(random: &mut Random, words: &mut Vec<Vec<u8>>, key: Vec<u8>, into: Vec<u8>) {
    let how = random.pick(&["STORE", "storedist"]);
    let radius = random.below(300).to_string();
    if random.below(2) == 0 {
        words.extend(["GEORADIUS".into(), key, "13.5".into(), "52.5".into()]);
    } else {
        let name = format!("b{}", random.below(60));
        words.extend(["GEORADIUSBYMEMBER".into(), key, name.into()]);
    }
    words.extend([radius.into(), "km".into(), how.into(), into]);
}

/// One random call.
fn draw(random: &mut Random) -> Vec<Vec<u8>> {
    let key = || -> Vec<u8> { KEYS[0].into() };
    let mut words: Vec<Vec<u8>> = Vec::new();
    let chosen: Vec<u8> = match random.below(3) {
        0 => key(),
        _ => random.pick(KEYS).into(),
    };
    let other: Vec<u8> = random.pick(KEYS).into();
    let line = |text: &str| text.split(' ').map(|word| word.into()).collect::<Vec<Vec<u8>>>();
    match random.below(100) {
        0..30 => {
            add(random, &mut words, chosen);
        }
        30..50 => {
            words.extend(["GEOSEARCH".into(), chosen]);
            words.extend(centre_and_shape(random));
            options(random, &mut words);
        }
        50..55 => {
            let name = member(random);
            let (longitude, latitude) = place(random, &name);
            words.extend([random.pick(&["GEORADIUS", "GEORADIUS_RO"]).into(), chosen]);
            words.extend([longitude.into(), latitude.into(), size(random).into()]);
            words.push(random.pick(UNITS).into());
            options(random, &mut words);
        }
        55..60 => {
            let name = random.pick(&["GEORADIUSBYMEMBER", "GEORADIUSBYMEMBER_RO"]);
            words.extend([name.into(), chosen, member(random), size(random).into()]);
            words.push(random.pick(&["m", "km", "mi", "parsec"]).into());
            options(random, &mut words);
        }
        60..65 => {
            words.extend(["GEOSEARCHSTORE".into(), chosen, other]);
            words.extend(around_town(random));
            match random.below(8) {
                0..3 => words.push("STOREDIST".into()),
                3 => words.extend(line("COUNT 100000 desc")),
                4 => words.push("WITHDIST".into()),
                _ => {}
            }
        }
        65..68 => {
            store_radius(random, &mut words, chosen, other);
        }
        68..78 => {
            let name = random.pick(&["GEOPOS", "GEOHASH", "ZREM"]);
            words.extend([name.into(), chosen]);
            words.extend((0..random.below(5)).map(|_| member(random)));
        }
        78..82 => {
            words.extend(["GEODIST".into(), chosen, member(random), member(random)]);
            if random.below(2) == 0 {
                words.push(random.pick(&["m", "KM", "ft", "mi", "", "miles"]).into());
            }
        }
        82..86 => words.extend(["ZSCORE".into(), chosen, member(random)]),
        86 => words.extend(["ZCARD".into(), chosen]),
        _ => {
            words = line(random.pick(&CALLS));
            for word in &mut words {
                if word == b"@" {
                    word.clone_from(&chosen);
                }
            }
        }
    }
    // An empty request has no reply.
    if words.len() > 1 && random.below(80) == 0 {
        words.pop();
    }
    words
}

/// An item of a reply with its line ends; arrays are taken apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Item {
    One(Vec<u8>),
    Many(Vec<Item>),
}

fn item(bytes: &mut &[u8]) -> Item {
    let end = bytes.iter().position(|&byte| byte == b'\n').expect("a line") + 1;
    let (line, rest) = bytes.split_at(end);
    let number = || std::str::from_utf8(&line[1..]).unwrap().trim_end().parse::<i64>().unwrap();
    *bytes = rest;
    match line[0] {
        b'*' if number() >= 0 => Item::Many((0..number()).map(|_| item(bytes)).collect()),
        b'$' if number() >= 0 => {
            let (text, rest) = bytes.split_at(number() as usize + 2);
            *bytes = rest;
            Item::One(text.to_vec())
        }
        _ => Item::One(line.to_vec()),
    }
}

/// What a search found; none if the reply is no array.
fn found(reply: &[u8]) -> Option<Vec<Item>> {
    match item(&mut &reply[..]) {
        Item::Many(items) => Some(items),
        Item::One(_) => None,
    }
}

fn number(reply: &[u8]) -> Option<i64> {
    std::str::from_utf8(reply.strip_prefix(b":")?).ok()?.trim_end().parse().ok()
}

/// The name of a member found, and the item behind it.
fn told(item: &Item) -> (&Item, Option<&Item>) {
    match item {
        Item::Many(parts) => (&parts[0], parts.get(1)),
        one => (one, None),
    }
}

struct Both {
    ours: Bytes,
    theirs: Bytes,
    /// Searches in which Redis missed members, and those that found any.
    missed: usize,
    searches: usize,
}

impl Both {
    fn connect(server: &ServerProcess, redis: &RedisServer, protocol: &str) -> Self {
        let [ours, theirs] = Bytes::pair(server, redis, protocol);
        Self { ours, theirs, missed: 0, searches: 0 }
    }

    fn line(&mut self, line: &str) {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.into()).collect();
        self.call(&words);
    }

    fn call(&mut self, words: &[Vec<u8>]) {
        let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let asked = || words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>();
        let_clocks_go_on(words);
        let theirs = self.theirs.call(&slices);
        let theirs = theirs.unwrap_or_else(|error| panic!("redis: {error}: {:?}", asked()));
        let ours = self.ours.call(&slices).expect("we reply");
        if ours == theirs {
            self.searches += usize::from(theirs.len() > 4);
            return;
        }
        let words: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        let shown = || {
            let cut = |reply: &[u8]| reply[..reply.len().min(2_000)].escape_ascii().to_string();
            format!("{words:?}\nours   {}\ntheirs {}", cut(&ours), cut(&theirs))
        };
        if words[0] == "TTL" && (ours[0], theirs[0]) == (b':', b':') {
            // Some time passes between the two.
            return;
        }
        let is_search = ["GEOSEARCH", "GEORADIUS"].iter().any(|name| words[0].starts_with(name));
        let is_circle = ["-ERR need numeric", "-ERR radius", "-ERR unsupported unit"]
            .iter()
            .any(|text| ours.starts_with(text.as_bytes()));
        if words[0].starts_with("GEORADIUSBYMEMBER")
            && is_circle
            && self.theirs.call(&[b"EXISTS", slices[1]]).expect("a reply") == b":0\r\n"
        {
            // Without the key Redis does not look at the circle.
            return;
        }
        if let (Some(ours), Some(theirs), true) = (number(&ours), number(&theirs), is_search) {
            // What was stored differs as what was found does.
            assert!(ours > theirs, "{}", shown());
            self.missed += 1;
            let to =
                if words[0] == "GEOSEARCHSTORE" { slices[1] } else { slices[slices.len() - 1] };
            self.call(&[b"DEL".into(), to.into()]);
            return;
        }
        let (Some(ours), Some(theirs), true) = (found(&ours), found(&theirs), is_search) else {
            panic!("{}", shown());
        };
        self.searches += 1;
        let said = |word: &str| words.iter().any(|other| other.eq_ignore_ascii_case(word));
        if said("ANY") {
            assert!(ours.len() >= theirs.len(), "{}", shown());
            self.missed += usize::from(ours.len() > theirs.len());
            return;
        }
        let ours_set: BTreeSet<&Item> = ours.iter().collect();
        assert_eq!(ours_set.len(), ours.len(), "one twice: {}", shown());
        let lost: Vec<&Item> = theirs.iter().filter(|item| !ours_set.contains(item)).collect();
        if said("COUNT") {
            // Which of those that are equally far stand at the cut is open.
            let distances = |items: &[Item]| -> Vec<Option<Item>> {
                items.iter().map(|item| told(item).1.cloned()).collect()
            };
            let cut = distances(&theirs).last().cloned();
            let only_ties =
                lost.iter().all(|item| told(item).1 == cut.as_ref().and_then(Option::as_ref));
            if distances(&ours) == distances(&theirs) && only_ties {
                return;
            }
        }
        // Redis may have missed some: then ours are more, or nearer ones. That
        // each is within, and none is missing, the engine's tests say.
        let is_more = ours.len() >= theirs.len() && (lost.is_empty() || said("COUNT"));
        assert!(is_more, "{}", shown());
        self.missed += usize::from(ours.len() != theirs.len() || !lost.is_empty());
    }
}

fn servers() -> Option<(ServerProcess, RedisServer)> {
    if is_skipped("redis-server") {
        println!("not run: redis-server is missing, as REMORA_SKIP says");
        return None;
    }
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    Some((server, RedisServer::start()))
}

/// Everything about every key has to be the same.
fn compare_all(both: &mut Both) {
    both.line("DBSIZE");
    for key in KEYS {
        for command in ["EXISTS", "TYPE", "TTL", "ZCARD", "GET"] {
            both.call(&[command.into(), (*key).into()]);
        }
        let names = (0..60).map(|at| format!("b{at}")).chain((0..200).map(|at| format!("w{at}")));
        let mut words: Vec<Vec<u8>> = vec!["GEOPOS".into(), (*key).into()];
        words.extend(names.map(String::into_bytes));
        both.call(&words);
    }
}

#[test]
fn random_calls_are_answered_as_by_redis() {
    let Some((server, redis)) = servers() else { return };
    let calls: usize =
        std::env::var("REMORA_GEO_CALLS").map_or(12_000, |calls| calls.parse().unwrap());
    for (seed, protocol) in [(1, "2"), (2, "3")] {
        let mut both = Both::connect(&server, &redis, protocol);
        both.line("FLUSHALL");
        let mut random = Random::new(seed);
        for at in 0..calls {
            both.call(&draw(&mut random));
            if at % 1_000 == 999 {
                compare_all(&mut both);
            }
        }
        println!(
            "protocol {protocol}: Redis missed members in {} of {} replies with something in it",
            both.missed, both.searches
        );
        assert!(both.missed * 20 < both.searches, "{} of {}", both.missed, both.searches);
    }
    assert!(!server.log().contains("panic"), "{}", server.log());
}

/// What sorted sets can do besides is refused.
#[test]
fn every_key_has_a_type() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut resp = server.resp();
    for line in ["RTREE.CREATE t", "RTREE.ADD t 1 2 3 2 3", "GEOADD g 1 2 a", "SET s 1"] {
        assert!(!matches!(resp.call(line), Value::Error(_)), "{line}");
    }
    for (key, wanted) in [("t", "rtree"), ("g", "zset"), ("s", "string"), ("x", "none")] {
        assert_eq!(resp.call(&format!("TYPE {key}")), Value::Simple(wanted.into()), "{key}");
    }
    assert_eq!(resp.call("ZADD g 1 b"), Value::Integer(1));
    assert_eq!(resp.call("ZCARD g"), Value::Integer(2));
    assert_eq!(resp.call("TYPE new"), Value::Simple("none".into()));
    let Value::Error(why) = resp.call("TYPE g s") else { panic!("two keys") };
    assert_eq!(why, "ERR wrong number of arguments for 'type' command");
}

#[test]
fn redis_py_on_places() {
    run_redis_py("geo.py", "as brute force does");
}

fn split(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

/// Adds members m0, m1 and so on along the equator.
fn add_row(resp: &mut Resp, key: &str, count: usize) {
    for from in (0..count).step_by(1_000) {
        let mut line = format!("GEOADD {key}");
        let to = count.min(from + 1_000);
        for at in from..to {
            line += &format!(" {} 0 m{at}", at as f64 / count as f64 * 90.0);
        }
        assert_eq!(resp.call(&line), Value::Integer((to - from) as i64));
    }
}

/// What one connection sends behind a search or a store sees what they did.
#[test]
fn pipelines_are_answered_in_order() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut resp = server.resp();
    let count = 5_000;
    add_row(&mut resp, "from", count);
    // Keys of both shards.
    for key in ["a", "b", "c", "d", "e", "f"] {
        let calls = [
            format!("SET {key} text"),
            format!("GEOSEARCHSTORE {key} from FROMLONLAT 0 0 BYRADIUS 30000 km"),
            format!("ZCARD {key}"),
            format!("GEOSEARCHSTORE {key} from FROMMEMBER m0 BYRADIUS 0 km STOREDIST"),
            format!("ZSCORE {key} m0"),
            format!("GEOSEARCH {key} FROMLONLAT 0 0 BYRADIUS 30000 km"),
            format!("GEOSEARCHSTORE {key} nothing FROMLONLAT 0 0 BYRADIUS 1 km"),
            format!("EXISTS {key}"),
        ];
        let requests: Vec<u8> = calls.iter().flat_map(|call| encode(&split(call))).collect();
        resp.send_raw(&requests).unwrap();
        let expected = [
            Value::ok(),
            Value::Integer(count as i64),
            Value::Integer(count as i64),
            Value::Integer(1),
            Value::bulk("0"),
            Value::Array(vec![Value::bulk("m0")]),
            Value::Integer(0),
            Value::Integer(0),
        ];
        for (call, expected) in calls.iter().zip(expected) {
            assert_eq!(resp.receive().unwrap(), expected, "{call}");
        }
    }
}

/// Long replies, asked for again and again: others are answered in between,
/// and a client that goes away under a store leaves nothing behind.
#[test]
fn others_are_served_while_long_replies_are_made() {
    let mut server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut resp = server.resp();
    let count = 50_000;
    add_row(&mut resp, "g", count);
    let search = encode(&split("GEOSEARCH g FROMLONLAT 45 0 BYBOX 40000 1 km WITHCOORD ASC"));
    resp.send_raw(&search.repeat(6)).unwrap();
    let mut other = server.resp();
    for _ in 0..50 {
        let found = other.call("GEOSEARCH g FROMMEMBER m0 BYRADIUS 1 m");
        assert_eq!(found, Value::Array(vec![Value::bulk("m0")]));
    }
    for _ in 0..6 {
        let Value::Array(found) = resp.receive().unwrap() else { panic!("no array") };
        assert_eq!(found.len(), count);
    }
    for _ in 0..20 {
        let mut gone = server.resp();
        gone.send_raw(&encode(&split("GEOSEARCHSTORE h g FROMLONLAT 45 0 BYRADIUS 9000 km")))
            .unwrap();
    }
    wait_until("the connections have gone", || resp.info("connected_clients") == 2);
    // A store may still be under way.
    wait_until("nothing is left", || {
        assert_eq!(resp.call("FLUSHALL"), Value::ok());
        resp.info("geo_bytes") + resp.info("geo_keys") == 0
    });
    assert!(server.is_alive() && !server.log().contains("panic"), "{}", server.log());
}

/// Full memory refuses members and stores, and everything stays readable.
#[test]
fn full_memory_is_refused() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=8MiB"]);
    let mut resp = server.resp();
    let mut added = 0;
    let refused = loop {
        match resp.call(&format!("GEOADD g {} 1 member:{added}", added as f64 / 1e4)) {
            Value::Integer(1) => added += 1,
            other => break other,
        }
    };
    let Value::Error(text) = refused else { panic!("{refused:?}") };
    assert!(text.starts_with("OOM"), "{text}");
    assert_eq!(resp.call("ZCARD g"), Value::Integer(added));
    for key in ["g", "h", "i", "j"] {
        let store = format!("GEOSEARCHSTORE {key} g FROMLONLAT 0 0 BYRADIUS 30000 km");
        let reply = resp.call(&store);
        assert!(reply.is_error() || reply == Value::Integer(added), "{reply:?}");
        assert_eq!(resp.call("ZCARD g"), Value::Integer(added));
    }
    let Value::Array(all) = resp.call("GEOSEARCH g FROMLONLAT 0 0 BYRADIUS 30000 km") else {
        panic!("no array")
    };
    assert_eq!(all.len() as i64, added);
    let Value::Integer(keys) = resp.call("DBSIZE") else { panic!("no number") };
    assert_eq!(resp.call("DEL g h i j"), Value::Integer(keys));
    assert_eq!(resp.call("GEOADD g 1 1 again"), Value::Integer(1));
}

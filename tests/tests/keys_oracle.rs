//! Random calls about keys of any type, in several databases, to a real
//! redis-server and to ours: the replies have to be the same. Keys of lists are
//! compared as sets, times to live within what passes between two calls.

use remora_resp::wire::ParsedValue;
use remora_tests::{Bytes, Random, RedisServer, ServerProcess, is_skipped};
use std::collections::{BTreeMap, BTreeSet};

const STRINGS: &[&str] = &["a", "b", "{t}c", "{t}d", "e:1", "e:2", "", "[x]", "*", "\0\r\n"];
const PLACES: &[&str] = &["g:1", "g:2"];
const HASHES: &[&str] = &["h:1", "h:2", "{t}h"];
const PATTERNS: &[&str] = &[
    "*", "e:*", "?", "[a-b]", "[^a]", "\\*", "\\[x\\]", "g:?", "*t*", "", "nothing", "[", "e:[0-1]",
];
const LONG: i64 = 1_000_000;

type Words = Vec<Vec<u8>>;

fn words(parts: &[&str]) -> Words {
    parts.iter().map(|part| part.as_bytes().to_vec()).collect()
}

fn pick<'a>(random: &mut Random, list: &[&'a str]) -> &'a str {
    list[random.below(list.len())]
}

/// One random call.
fn draw(random: &mut Random) -> Words {
    let any = [STRINGS, PLACES, HASHES].concat();
    let (one, other) = (pick(random, &any), pick(random, &any));
    let (key, place, hash) = (pick(random, &any), pick(random, PLACES), pick(random, HASHES));
    let number = random.below(4).to_string();
    let time = (LONG + random.below(5_000) as i64).to_string();
    let text = random.below(1_000).to_string();
    let condition = pick(random, &["NX", "XX", "GT", "LT"]);
    let parts: &[&str] = match random.below(40) {
        34 => &["HSET", hash, &text, &time],
        35 => return many_fields(random, hash),
        36 => return many_members(random, place),
        37 => &["HLEN", key],
        38 => &["HGET", key, &text],
        39 => &["GEOPOS", place, "Berlin", &number],
        0..=4 => &["SET", one, &text],
        5 => &["SET", one, &text, "EX", &time],
        6 => &["GEOADD", place, "13.4", "52.5", &number],
        7 => &["DEL", key],
        8 => &["UNLINK", key, one],
        9..=10 => &["SELECT", &number],
        11..=12 => &["RENAME", one, other],
        13 => &["RENAMENX", one, other],
        14 => &["COPY", one, other],
        15 => &["COPY", one, other, "REPLACE"],
        16 => &["COPY", one, other, "DB", &number],
        17 => &["copy", one, one, "replace", "db", &number],
        18 => &["MOVE", one, &number],
        19 => &["PERSIST", key],
        20 => &["EXPIRE", key, &time],
        21 => &["EXPIRE", key, &time, condition],
        22 => &["EXPIRETIME", key],
        23 => &["TOUCH", key, one],
        24 => &["TYPE", key],
        25 => &["EXISTS", key, one, other],
        26 => &["DBSIZE"],
        27 => &["TTL", key],
        28 => &["KEYS", pick(random, PATTERNS)],
        29 => &["OBJECT", "REFCOUNT", pick(random, &["nosuch", "nosuch either"])],
        30 if random.below(12) == 0 => &["FLUSHDB"],
        30 => &["GET", key],
        31 => match random.below(9) {
            0 => &["MOVE", one, "16"],
            1 => &["MOVE", one, "x"],
            2 => &["COPY", one, other, "DB", "-1"],
            3 => &["COPY", one, other, "FOO"],
            4 => &["SCAN", "x"],
            5 => &["SCAN", "0", "COUNT", "0"],
            6 => &["SCAN", "0", "COUNT", "x"],
            7 => &["SCAN", "0", "MATCH"],
            _ => &["KEYS"],
        },
        32 => &["EXPIREAT", key, "1"],
        _ => &["PEXPIRE", key, "-5", condition],
    };
    words(parts)
}

/// A hash that becomes large, or one that Redis keeps whole.
fn many_fields(random: &mut Random, hash: &str) -> Words {
    let mut call = words(&["HSET", hash]);
    for _ in 0..1 + random.below(300) {
        let (name, length) = (random.below(1_000).to_string(), random.below(80));
        call.extend([name.into_bytes(), vec![b'v'; length]]);
    }
    call
}

/// Members of a GEO key, so many that it has a tree.
fn many_members(random: &mut Random, place: &str) -> Words {
    let mut call = words(&["GEOADD", place]);
    for _ in 0..1 + random.below(200) {
        let (east, north) = (random.below(360) as i64 - 180, random.below(160) as i64 - 80);
        let name = random.below(900);
        call.extend([east, north].map(|number| number.to_string().into_bytes()));
        call.push(name.to_string().into_bytes());
    }
    call
}

fn call(connection: &mut Bytes, words: &[Vec<u8>]) -> Vec<u8> {
    let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    connection.call(&slices).expect("it replies")
}

fn parsed(reply: &[u8]) -> remora_resp::Value<'_> {
    match remora_resp::Value::parse(reply) {
        Ok(ParsedValue::Value { value, .. }) => value,
        _ => panic!("no value: {}", reply.escape_ascii()),
    }
}

/// Keys of a reply.
fn keys(value: &remora_resp::Value<'_>) -> Vec<Vec<u8>> {
    let remora_resp::Value::Array(items) = value else { panic!("no list: {value:?}") };
    let key = |item: &remora_resp::Value<'_>| match item {
        remora_resp::Value::Bulk(key) => key.to_vec(),
        other => panic!("no key: {other:?}"),
    };
    items.iter().map(key).collect()
}

fn number(reply: &[u8]) -> Option<i64> {
    std::str::from_utf8(reply.strip_prefix(b":")?).ok()?.trim_end().parse().ok()
}

/// Whether two replies to a call are the same, as far as they can be.
fn agree(words: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> bool {
    let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
    if is("keys") && words.len() == 2 {
        let sorted = |reply: &[u8]| keys(&parsed(reply)).into_iter().collect::<BTreeSet<_>>();
        return sorted(ours) == sorted(theirs);
    }
    match (number(ours), number(theirs)) {
        // A machine that is busy with other things lets some seconds pass.
        (Some(ours), Some(theirs)) if is("ttl") || is("expiretime") => {
            ours == theirs || (ours > 0 && theirs > 0 && ours.abs_diff(theirs) < 300)
        }
        _ => ours == theirs,
    }
}

/// Fields and values of a HGETALL's reply; the reply itself if it is no list.
fn pairs_of(reply: &[u8]) -> Result<BTreeSet<[Vec<u8>; 2]>, Vec<u8>> {
    let text = |item: &remora_resp::Value<'_>| match item {
        remora_resp::Value::Bulk(text) => text.to_vec(),
        other => panic!("no text: {other:?}"),
    };
    match parsed(reply) {
        remora_resp::Value::Array(items) => {
            Ok(items.chunks(2).map(|pair| [text(&pair[0]), text(&pair[1])]).collect())
        }
        remora_resp::Value::Map(pairs) => {
            Ok(pairs.iter().map(|(name, value)| [text(name), text(value)]).collect())
        }
        _ => Err(reply.to_vec()),
    }
}

/// Members with scores of a GEOSEARCH's reply; the reply itself if it is no list.
fn members_of(reply: &[u8]) -> Result<BTreeSet<String>, Vec<u8>> {
    match parsed(reply) {
        remora_resp::Value::Array(items) => {
            Ok(items.iter().map(|item| format!("{item:?}")).collect())
        }
        _ => Err(reply.to_vec()),
    }
}

/// Everything that SCAN gives, with options.
fn scanned(connection: &mut Bytes, options: &[&str]) -> BTreeSet<Vec<u8>> {
    let (mut cursor, mut all) = (b"0".to_vec(), BTreeSet::new());
    loop {
        let mut call_words = words(&["SCAN"]);
        call_words.push(cursor);
        call_words.extend(words(options));
        let reply = call(connection, &call_words);
        let remora_resp::Value::Array(parts) = parsed(&reply) else { panic!("no list") };
        let [remora_resp::Value::Bulk(next), list] = &parts[..] else { panic!("{parts:?}") };
        all.extend(keys(list));
        cursor = next.to_vec();
        if cursor == b"0" {
            return all;
        }
    }
}

#[test]
fn random_calls_about_keys_are_answered_as_by_redis() {
    if is_skipped("redis-server") {
        println!("not run: redis-server is missing, as REMORA_SKIP says");
        return;
    }
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let redis = RedisServer::start();
    for (seed, protocol) in [(1, "2"), (2, "3"), (3, "2")] {
        let [mut ours, mut theirs] = Bytes::pair(&server, &redis, protocol);
        for one in [&mut ours, &mut theirs] {
            call(one, &words(&["FLUSHALL"]));
        }
        let mut random = Random::new(seed);
        for at in 0..4_000 {
            let asked = draw(&mut random);
            let (mine, other) = (call(&mut ours, &asked), call(&mut theirs, &asked));
            let shown: Vec<String> =
                asked.iter().map(|word| word.escape_ascii().to_string()).collect();
            let (a, b) = (mine.escape_ascii(), other.escape_ascii());
            assert!(agree(&asked, &mine, &other), "call {at}: {shown:?}\nours {a}\ntheirs {b}");
            if at % 100 == 0 {
                let pattern = pick(&mut random, PATTERNS);
                for options in
                    [&["COUNT", "3"][..], &["MATCH", pattern], &["TYPE", "zset", "COUNT", "100"]]
                {
                    assert_eq!(scanned(&mut ours, options), scanned(&mut theirs, options));
                }
                for hash in HASHES {
                    let all = words(&["HGETALL", hash]);
                    let all = [&mut ours, &mut theirs].map(|one| call(one, &all));
                    assert_eq!(pairs_of(&all[0]), pairs_of(&all[1]), "{hash}");
                }
                for place in PLACES {
                    let whole = ["FROMLONLAT", "0", "0", "BYRADIUS", "40000", "km", "WITHHASH"];
                    let all = words(&[&["GEOSEARCH", place], &whole[..]].concat());
                    let all = [&mut ours, &mut theirs].map(|one| call(one, &all));
                    assert_eq!(members_of(&all[0]), members_of(&all[1]), "{place}");
                }
                let any = call(&mut ours, &words(&["RANDOMKEY"]));
                let all = scanned(&mut theirs, &[]);
                match parsed(&any) {
                    remora_resp::Value::Bulk(key) => assert!(all.contains(key)),
                    _ => assert!(all.is_empty(), "there are keys: {all:?}"),
                }
            }
        }
    }
}

#[test]
fn a_scan_gives_every_key_that_stays_while_others_come_and_go() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let [mut scanning, mut changing] =
        [(), ()].map(|()| Bytes::connect(server.resp_address()).expect("it takes connections"));
    let name = |what: &str, at: usize| format!("{what}:{at}");
    for at in 0..4_000 {
        call(&mut changing, &words(&["SET", &name("stays", at), "v"]));
    }
    let (mut cursor, mut met, mut coming) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let reply = call(&mut scanning, &words(&["SCAN", &cursor, "COUNT", "50"]));
        let remora_resp::Value::Array(parts) = parsed(&reply) else { panic!("no list") };
        let [remora_resp::Value::Bulk(next), list] = &parts[..] else { panic!("{parts:?}") };
        met.extend(keys(list));
        cursor = String::from_utf8(next.to_vec()).expect("a number");
        if cursor == "0" {
            break;
        }
        for _ in 0..150 {
            call(&mut changing, &words(&["SET", &name("comes", coming), "v"]));
            call(&mut changing, &words(&["DEL", &name("comes", coming / 2)]));
            coming += 1;
        }
    }
    assert!((0..4_000).all(|at| met.contains(name("stays", at).as_bytes())));
}

/// Any bytes of which patterns are made.
fn of_bytes(random: &mut Random, bytes: &[u8], most: usize) -> Vec<u8> {
    (0..random.below(most + 1)).map(|_| bytes[random.below(bytes.len())]).collect()
}

#[test]
fn patterns_match_as_in_redis_and_have_a_limit() {
    if is_skipped("redis-server") {
        println!("not run: redis-server is missing, as REMORA_SKIP says");
        return;
    }
    let server = ServerProcess::start(&["--max-memory=64MiB"]);
    let redis = RedisServer::start();
    let [mut ours, mut theirs] = Bytes::pair(&server, &redis, "2");
    let mut random = Random::new(5);
    for _ in 0..400 {
        let key = of_bytes(&mut random, b"abc-]^\\*[", 6);
        let set = [b"SET".to_vec(), key, b"v".to_vec()];
        let field = [b"HSET".to_vec(), b"hash".to_vec(), set[1].clone(), vec![b'v'; 70]];
        for words in [&set[..], &field] {
            assert_eq!(call(&mut ours, words), call(&mut theirs, words));
        }
    }
    let mut found = 0;
    for _ in 0..2_500 {
        let pattern = of_bytes(&mut random, b"aabbc***??[[]^-\\", 12);
        let keys = [b"KEYS".to_vec(), pattern.clone()];
        let [mine, other] =
            [&mut ours, &mut theirs].map(|one| self::keys(&parsed(&call(one, &keys))));
        let [mine, other] = [mine, other].map(BTreeSet::from_iter);
        assert!(mine == other, "{}", pattern.escape_ascii());
        found += mine.len();
        let scan = [&b"HSCAN"[..], b"hash", b"0", b"COUNT", b"4000", b"MATCH", &pattern];
        let scan: Words = scan.map(<[u8]>::to_vec).into();
        let [mine, other] = [&mut ours, &mut theirs].map(|one| {
            let reply = call(one, &scan);
            let remora_resp::Value::Array(parts) = parsed(&reply) else { panic!("no list") };
            assert_eq!(parts[0], remora_resp::Value::Bulk(b"0"));
            BTreeSet::from_iter(self::keys(&parts[1]))
        });
        assert!(mine == other, "{}", pattern.escape_ascii());
    }
    assert!(found > 10_000, "{found}");
    // Beyond the limit Redis takes as long as it takes.
    let long = vec![b'*'; 1_025];
    for words in [
        &[&b"KEYS"[..], &long][..],
        &[b"SCAN", b"0", b"MATCH", &long],
        &[b"HSCAN", b"hash", b"0", b"MATCH", &long],
        &[b"CONFIG", b"GET", &long],
        &[b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN", &long],
    ] {
        let words: Words = words.iter().map(|word| word.to_vec()).collect();
        let reply = call(&mut ours, &words);
        assert_eq!(
            reply.escape_ascii().to_string(),
            "-ERR pattern is longer than 1024 bytes\\r\\n"
        );
    }
}

/// A tree in the model: its objects' ids, with their places and fields.
type ModelTree = BTreeMap<String, (u32, String)>;

/// Trees go to other keys, databases and shards as a model says; they are compared by
/// what a search finds, and by what an object has.
#[test]
fn trees_are_renamed_copied_and_moved_as_by_a_model() {
    let server = ServerProcess::start(&["--shards=3", "--max-memory=96MiB"]);
    let mut ours = Bytes::connect(server.resp_address()).expect("it takes connections");
    let names = ["t:1", "t:2", "t:3", "{t}a", "{t}b"];
    let mut model: BTreeMap<(usize, &str), ModelTree> = BTreeMap::new();
    let (mut random, mut on, mut given) = (Random::new(7), 0, 0);
    for at in 0..3_000 {
        let (one, other) = (pick(&mut random, &names), pick(&mut random, &names));
        let held = model.get(&(on, one)).cloned();
        let number = random.below(3);
        let text = number.to_string();
        let parts: Vec<&str> = match random.below(12) {
            0..=2 => {
                let objects = if random.below(4) == 0 { 600 } else { 4 };
                put_objects(
                    &mut ours,
                    &mut random,
                    one,
                    objects,
                    model.entry((on, one)).or_default(),
                );
                continue;
            }
            3 => {
                assert_eq!(call(&mut ours, &words(&["SELECT", &text])), b"+OK\r\n");
                on = number;
                continue;
            }
            4 => {
                let removed = model.remove(&(on, one)).is_some();
                let reply = call(&mut ours, &words(&["DEL", one]));
                assert_eq!(self::number(&reply), Some(removed.into()));
                continue;
            }
            5 | 6 => vec!["RENAME", one, other],
            7 => vec!["RENAMENX", one, other],
            8 => vec!["COPY", one, other, "DB", &text],
            9 | 10 => vec!["COPY", one, other, "REPLACE", "DB", &text],
            _ => vec!["MOVE", one, &text],
        };
        let is_copy = parts[0] == "COPY";
        let to_on = if is_copy || parts[0] == "MOVE" { number } else { on };
        let to = if parts[0] == "MOVE" { one } else { other };
        let is_same = (on, one) == (to_on, to);
        let replaces = parts[0] == "RENAME" || parts.contains(&"REPLACE");
        let is_done = held.is_some() && (replaces || !model.contains_key(&(to_on, to)));
        let expected = match parts[0] {
            "COPY" | "MOVE" if is_same => {
                "-ERR source and destination objects are the same\r\n".to_owned()
            }
            "RENAME" | "RENAMENX" if held.is_none() => "-ERR no such key\r\n".to_owned(),
            "RENAME" => "+OK\r\n".to_owned(),
            _ => format!(":{}\r\n", i32::from(is_done)),
        };
        let reply = call(&mut ours, &words(&parts));
        assert_eq!(String::from_utf8_lossy(&reply), expected, "call {at}: {parts:?}");
        if let Some(tree) = held.filter(|_| is_done && !is_same) {
            given += 1;
            model.insert((to_on, to), tree);
            if !is_copy {
                model.remove(&(on, one));
            }
            agree_on_tree(&mut ours, (to_on, to), &model, on);
        }
    }
    assert!(given > 300, "{given}");
    for database in 0..3 {
        for name in names {
            agree_on_tree(&mut ours, (database, name), &model, on);
        }
    }
}

fn put_objects(
    ours: &mut Bytes,
    random: &mut Random,
    key: &str,
    objects: usize,
    tree: &mut ModelTree,
) {
    for _ in 0..objects {
        let (id, place) = (random.below(2_000), random.below(1_000) as u32);
        let id = if id % 3 == 0 { format!("name {id}") } else { id.to_string() };
        let (x, fact) = (place.to_string(), random.below(1_000).to_string());
        let put = ["RTREE.ADDPOINT", key, &id, &x, "7", "FIELDS", "1", "fact", &fact];
        let reply = call(ours, &words(&put));
        assert!(number(&reply).is_some(), "{}", reply.escape_ascii());
        tree.insert(id, (place, fact));
    }
}

/// Compares one tree with that of the model; the connection is in database `on`.
fn agree_on_tree(
    ours: &mut Bytes,
    (database, name): (usize, &str),
    model: &BTreeMap<(usize, &str), ModelTree>,
    on: usize,
) {
    call(ours, &words(&["SELECT", &database.to_string()]));
    let tree = model.get(&(database, name));
    let kind = call(ours, &words(&["TYPE", name]));
    assert_eq!(kind, if tree.is_some() { &b"+rtree\r\n"[..] } else { b"+none\r\n" });
    if let Some(tree) = tree {
        let reply = call(ours, &words(&["RTREE.SEARCH", name, "-1", "-1", "1001", "9"]));
        let remora_resp::Value::Array(found) = parsed(&reply) else {
            panic!("no objects: {}", reply.escape_ascii())
        };
        assert_eq!(found.len(), tree.len(), "{name}");
        for (id, (place, fact)) in tree.iter().take(5) {
            let reply = call(ours, &words(&["RTREE.FGET", name, id, "fact"]));
            assert!(reply.escape_ascii().to_string().contains(fact), "{id} {fact}");
            let x = place.to_string();
            let reply = call(ours, &words(&["RTREE.COUNT", name, &x, "0", &x, "9"]));
            let expected = tree.values().filter(|(other, _)| other == place).count();
            assert_eq!(number(&reply), Some(expected as i64));
        }
    }
    call(ours, &words(&["SELECT", &on.to_string()]));
}

/// The only key of a database is found beside many of another one, on whatever shard it
/// is; and where there is none any more, that is found out.
#[test]
fn any_key_of_a_database_with_one_key_is_that_key() {
    let server = ServerProcess::start(&["--shards=3", "--max-memory=96MiB"]);
    let mut ours = Bytes::connect(server.resp_address()).expect("it takes connections");
    for from in (0..60_000).step_by(1_000) {
        let pairs = (from..from + 1_000).flat_map(|at| [format!("k{at}"), String::new()]);
        let mset: Vec<String> = ["MSET".to_owned()].into_iter().chain(pairs).collect();
        let mset: Vec<&str> = mset.iter().map(String::as_str).collect();
        assert_eq!(call(&mut ours, &words(&mset)), b"+OK\r\n");
    }
    assert_eq!(call(&mut ours, &words(&["SELECT", "3"])), b"+OK\r\n");
    for name in ["a", "b", "c", "d"] {
        assert_eq!(call(&mut ours, &words(&["RANDOMKEY"])), b"$-1\r\n");
        assert_eq!(call(&mut ours, &words(&["SET", name, ""])), b"+OK\r\n");
        let told = format!("$1\r\n{name}\r\n");
        for _ in 0..20 {
            assert_eq!(call(&mut ours, &words(&["RANDOMKEY"])), told.as_bytes());
        }
        assert_eq!(call(&mut ours, &words(&["DEL", name])), b":1\r\n");
    }
}

//! Hashes over RESP as Redis answers, and read by clients: small and large ones,
//! cached and cold, beside writers that replace and remove them.

use remora_client_core::{Error, Path, ServedBy, Session};
use remora_protocol::message::Status;
use remora_resp::Value as Front;
use remora_resp::wire::ParsedValue;
use remora_tests::{
    Bytes, Random, RedisServer, Resp, ServerProcess, Value, is_skipped, options,
    while_read_lease_lapses,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

const KEYS: &[&str] = &["a", "b", "c", "string", ""];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "7",
    "100",
    "01",
    "+1",
    "-0",
    " 1",
    "1 ",
    "1.0",
    "",
    "x",
    "0.1",
    "-0.5",
    "3.14",
    "1e3",
    "1e-5",
    "inf",
    "-inf",
    "nan",
    "1e400",
    "1e5000",
    "10.50",
    ".5",
    "5.",
    "1e",
    "1e20",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "123456789012345678901234567890",
    "0.1234567890123456789",
    "99999999999999999999.5",
];
const CURSORS: &[&str] = &["0", "0", "0", "x", "", "-1", "+5", "18446744073709551616"];
const SCANS: &[&str] = &[
    "",
    "",
    "COUNT 5",
    "COUNT 0",
    "COUNT x",
    "MATCH f*",
    "MATCH *",
    "foo",
    "COUNT",
    "match ?1 count 999",
];
const RANDOMS: &[&str] = &[
    "",
    "5",
    "-5",
    "0",
    "1000",
    "x",
    "3 WITHVALUES",
    "-3 withvalues",
    "3 foo",
    "1 WITHVALUES x",
    "-9223372036854775808",
    "9223372036854775807 WITHVALUES",
];

/// What stands at one place of a call.
#[derive(Clone, Copy)]
enum Word {
    Key,
    Field,
    Fields,
    Pairs,
    Text,
    Number,
    Of(&'static [&'static str]),
}
use Word::{Field, Fields, Key, Number, Of, Pairs, Text};

const CALLS: &[(&str, &[Word])] = &[
    ("HSET", &[Key, Field, Text, Pairs]),
    ("HSET", &[Key, Field, Text, Pairs]),
    ("HMSET", &[Key, Field, Text, Pairs]),
    ("HSETNX", &[Key, Field, Text]),
    ("HGET", &[Key, Field]),
    ("HMGET", &[Key, Field, Fields]),
    ("HGETALL", &[Key]),
    ("HKEYS", &[Key]),
    ("HVALS", &[Key]),
    ("HDEL", &[Key, Field, Fields]),
    ("HEXISTS", &[Key, Field]),
    ("HLEN", &[Key]),
    ("HSTRLEN", &[Key, Field]),
    ("HINCRBY", &[Key, Field, Number]),
    ("HINCRBYFLOAT", &[Key, Field, Number]),
    ("HRANDFIELD", &[Key, Of(RANDOMS)]),
    ("HSCAN", &[Key, Of(CURSORS), Of(SCANS)]),
    ("TYPE", &[Key]),
    ("EXPIRE", &[Key, Of(&["100000"])]),
    ("PERSISTS", &[Key]),
    ("GET", &[Key]),
    ("APPEND", &[Key, Of(&["x"])]),
    ("SETNX", &[Key, Of(&["x"])]),
    ("DEL", &[Of(&["a", "", "", "", "string"])]),
    ("SET", &[Of(&["string"]), Text]),
];

pub fn draw(random: &mut Random) -> Vec<Vec<u8>> {
    let pick = |random: &mut Random, list: &[&str]| list[random.below(list.len())].to_owned();
    let field = |random: &mut Random| match random.below(40) {
        0 => "L".repeat(60 + random.below(10)),
        1..4 => format!("rare {}", random.below(400)),
        _ => format!("f{}", random.below(24)),
    };
    let value = |random: &mut Random| match random.below(10) {
        0..4 => pick(random, NUMBERS).into_bytes(),
        4..7 => (random.below(2_000) as i64 - 1_000).to_string().into_bytes(),
        7 if random.below(10) == 0 => vec![b'v'; 60 + random.below(400)],
        _ => {
            let bytes = random.below(30);
            random.bytes(bytes)
        }
    };
    let (name, places) = CALLS[random.below(CALLS.len())];
    let mut words: Vec<Vec<u8>> = vec![name.into()];
    for place in places {
        match place {
            Key => words.push(pick(random, KEYS).into()),
            Field => words.push(field(random).into()),
            Fields => {
                for _ in 0..random.below(5) {
                    words.push(field(random).into());
                }
            }
            Pairs if random.below(4) > 0 => {}
            Pairs => {
                for _ in 0..random.below(30) {
                    words.extend([field(random).into(), value(random)]);
                }
            }
            Text => words.push(value(random)),
            Number => words.push(pick(random, NUMBERS).into()),
            Of(list) => {
                let some = pick(random, list);
                if some.is_empty() && list.len() != CURSORS.len() {
                    continue;
                }
                words.extend(some.split(' ').map(|word| word.as_bytes().to_vec()));
            }
        }
    }
    match random.below(60) {
        0 if words.len() > 1 => drop(words.pop()),
        1 => words.push(b"more".to_vec()),
        _ => {}
    }
    words
}

/// The items of a reply that has some; pairs of a map one after the other.
fn items(reply: &[u8]) -> Option<Vec<String>> {
    let Ok(ParsedValue::Value { value, .. }) = Front::parse(reply) else { return None };
    match value {
        Front::Array(items) => Some(items.iter().map(|item| format!("{item:?}")).collect()),
        Front::Map(pairs) => {
            Some(pairs.iter().map(|(name, value)| format!("{name:?}={value:?}")).collect())
        }
        _ => None,
    }
}

/// Whether two replies say the same where Redis promises no order, or chance
/// decides.
pub fn agree(words: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> bool {
    if ours == theirs {
        return true;
    }
    let (Some(mut our), Some(mut their)) = (items(ours), items(theirs)) else {
        // A random name is there or not.
        return words[0] == b"HRANDFIELD" && words.len() == 2 && ours[0] == theirs[0];
    };
    match &words[0][..] {
        b"HGETALL" | b"HKEYS" | b"HVALS" => {
            let is_flat = words[0] == b"HGETALL" && ours[0] == b'*';
            let sorted = |items: &mut Vec<String>| match is_flat {
                true => {
                    let mut pairs: Vec<Vec<String>> =
                        items.chunks(2).map(<[String]>::to_vec).collect();
                    pairs.sort();
                    pairs.concat()
                }
                false => {
                    items.sort();
                    items.clone()
                }
            };
            sorted(&mut our) == sorted(&mut their)
        }
        b"HRANDFIELD" => our.len() == their.len(),
        // The parts that a scan has are its own: what it tells in all is compared
        // below.
        b"HSCAN" => our.len() == 2 && their.len() == 2,
        _ => false,
    }
}

#[test]
fn random_calls_are_answered_as_by_redis() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let redis = RedisServer::start();
    for (seed, protocol) in [(1, "2"), (2, "3"), (3, "2"), (4, "3")] {
        let [mut ours, mut theirs] = Bytes::pair(&server, &redis, protocol);
        let mut both = |words: &[Vec<u8>], at: usize| {
            let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let their = theirs.call(&slices).expect("redis replies");
            let our = ours.call(&slices).expect("we reply");
            let shown: Vec<String> = words.iter().map(|w| w.escape_ascii().to_string()).collect();
            let (a, b) = (our.escape_ascii().to_string(), their.escape_ascii().to_string());
            assert!(agree(words, &our, &their), "call {at}: {shown:?}\nours {a}\ntheirs {b}");
        };
        both(&[b"FLUSHALL".to_vec()], 0);
        let mut random = Random::new(seed);
        for at in 0..6_000 {
            let words = draw(&mut random);
            both(&words, at);
            if at % 500 == 499 {
                for (key, command) in KEYS
                    .iter()
                    .flat_map(|key| ["HGETALL", "HLEN", "TYPE"].map(|command| (*key, command)))
                {
                    both(&[command.into(), key.into()], at);
                }
            }
        }
    }
}

#[test]
fn a_hash_of_many_fields_is_told_whole_while_others_are_served() {
    const FIELDS: usize = 150_000;
    let server = ServerProcess::start(&["--shards=1", "--max-memory=256MiB"]);
    let mut resp = Resp::connect(server.resp_address()).unwrap();
    let mut sent = Vec::new();
    for from in (0..FIELDS).step_by(1_000) {
        let words: Vec<String> =
            (from..from + 1_000).flat_map(|at| [format!("field {at}"), at.to_string()]).collect();
        sent = ["HSET", "h"].map(str::to_owned).into_iter().chain(words).collect();
        let words: Vec<&[u8]> = sent.iter().map(String::as_bytes).collect();
        assert_eq!(resp.try_call(&words).unwrap(), Value::Integer(1_000));
    }
    assert_eq!(sent.len(), 2_002);
    let mut other = Resp::connect(server.resp_address()).unwrap();
    resp.send(&[b"HGETALL", b"h"]).unwrap();
    // What two connections send is not always taken in that order.
    resp.wait_for_reply().unwrap();
    // Each is served between two turns; a change does not show.
    for at in 0..50 {
        let name = format!("field {}", at * 1_000);
        assert_eq!(other.call(&format!("HDEL h {}", name.replace(' ', "_"))), Value::Integer(0));
        let words: [&[u8]; 3] = [b"HDEL", b"h", name.as_bytes()];
        assert_eq!(other.try_call(&words).unwrap(), Value::Integer(1));
    }
    let Value::Array(told) = resp.receive().unwrap() else { panic!("no array") };
    assert_eq!(told.len(), 2 * FIELDS);
    assert_eq!(other.call("HLEN h"), Value::Integer(FIELDS as i64 - 50));
    assert_eq!(other.call("DEL h"), Value::Integer(1));
    assert_eq!(other.call("HGETALL h"), Value::Array(Vec::new()));
    // More than is kept of a reply at any time.
    let part = vec![b'v'; 9 << 20];
    for at in 0..20 {
        let name = format!("f{at}");
        let words: [&[u8]; 4] = [b"HSET", b"huge", name.as_bytes(), &part];
        assert_eq!(resp.try_call(&words).unwrap(), Value::Integer(1));
    }
    let Value::Array(told) = resp.call("HVALS huge") else { panic!("no array") };
    assert!(told.len() == 20 && told.iter().all(|value| *value == Value::Bulk(part.clone())));
    // What is one look is bounded.
    let many = "HMGET huge f0 f1 f2 f3 f4 f5 f6 f7";
    let Value::Error(refused) = resp.call(many) else { panic!("no error") };
    assert!(refused.starts_with("ERR the reply is longer than 64 MiB"), "{refused}");
    let Value::Array(some) = resp.call("HMGET huge f0 none f6") else { panic!("no array") };
    assert_eq!(some.len(), 3);
}

fn name(at: u64) -> Vec<u8> {
    format!("field {at}").into_bytes()
}

/// A key whose hash has so many fields, each the name with a number behind it.
fn fill(session: &mut Session, key: &[u8], fields: u64, stamp: u64) {
    let hash = session.open_hash(key).unwrap();
    for from in (0..fields).step_by(100) {
        let some: Vec<(Vec<u8>, Vec<u8>)> = (from..fields.min(from + 100))
            .map(|at| (name(at), format!("field {at}:{stamp}").into_bytes()))
            .collect();
        let some: Vec<(&[u8], &[u8])> = some.iter().map(|(n, v)| (&n[..], &v[..])).collect();
        session.hash_set(&hash, &some).unwrap();
    }
}

#[test]
fn fields_are_read_in_one_round_trip_once_they_are_known() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut session = server.session_with(&options());
    for (key, fields) in [(&b"small"[..], 10), (b"large", 5_000)] {
        fill(&mut session, key, fields, 1);
        let mut hash = session.open_hash(key).unwrap();
        let trips = |session: &mut Session, hash: &mut _, at: u64| {
            while_read_lease_lapses(session, |session| {
                let got = session.hash_get(hash, &name(at), Path::Read).unwrap();
                assert_eq!(got.value, Some(format!("field {at}:1").as_bytes()));
                assert!(
                    matches!(got.served_by, ServedBy::Read | ServedBy::ReadAfter(_)),
                    "{:?}",
                    got.served_by
                );
                got.counts.round_trips
            })
        };
        // Bucket and record of the key; of a large one bucket and record of the
        // field, each with the root's words.
        assert!(trips(&mut session, &mut hash, 3) <= 5);
        assert_eq!(trips(&mut session, &mut hash, 3), 1);
        let other = trips(&mut session, &mut hash, 4);
        assert!(if fields == 10 { other == 1 } else { other <= 3 }, "{other}");
        // A pointer comes with an answer, too.
        let mut asked = session.open_hash(key).unwrap();
        let got = session.hash_get(&mut asked, &name(7), Path::Ask).unwrap();
        assert_eq!((got.served_by, got.counts.round_trips), (ServedBy::Asked, 1));
        assert_eq!(trips(&mut session, &mut asked, 7), 1);
        // Absence is the owner's word.
        let none = session.hash_get(&mut hash, b"nowhere", Path::Read).unwrap();
        assert_eq!((none.value, none.served_by), (None, ServedBy::AskedAfterRead));
        // A changed field is found anew, one of a removed hash is not found.
        session.hash_set(&hash, &[(&name(3), b"new")]).unwrap();
        let got = session.hash_get(&mut hash, &name(3), Path::Read).unwrap();
        assert_eq!(got.value, Some(&b"new"[..]));
        session.del(key).unwrap();
        for at in [3, 4] {
            assert_eq!(session.hash_get(&mut hash, &name(at), Path::Read).unwrap().value, None);
        }
    }
}

#[test]
fn values_that_no_frame_carries_and_whole_hashes_come_in_parts() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB"]);
    let mut session = server.session_with(&options());
    let mut hash = session.open_hash(b"h").unwrap();
    let long = vec![b'l'; 3 << 20];
    session.hash_set(&hash, &[(b"long", &long), (b"short", b"s")]).unwrap();
    for path in [Path::Ask, Path::Read, Path::Choose] {
        assert_eq!(session.hash_get(&mut hash, b"long", path).unwrap().value, Some(&long[..]));
    }
    let values = session.hash_get_many(&hash, &[b"short", b"none", b"long"]).unwrap();
    assert_eq!(values, [Some(b"s".to_vec()), None, Some(long)]);
    session.hash_remove(&hash, &[b"long"]).unwrap();
    fill(&mut session, b"h", 20_000, 2);
    assert_eq!(session.hash_len(&hash).unwrap(), 20_001);
    let all: BTreeMap<Vec<u8>, Vec<u8>> = session.hash_all(&hash).unwrap();
    assert_eq!((all.len(), &all[&name(77)][..]), (20_001, &b"field 77:2"[..]));
    assert_eq!(session.hash_increment(&hash, b"n", 5).unwrap(), 5);
    assert_eq!(
        session.hash_increment(&hash, b"short", 1),
        Err(Error::Refused(Status::NotAnInteger))
    );
    let string = session.open_hash(b"string").unwrap();
    session.set(b"string", b"v", Default::default()).unwrap();
    assert_eq!(session.hash_len(&string), Err(Error::Refused(Status::WrongType)));
}

/// A writer replaces fields, removes hashes and makes them anew, small and large;
/// readers see of each field values of growing numbers, and never another's.
#[test]
fn readers_beside_a_writer_see_each_field_as_it_was_at_some_time() {
    const FIELDS: [(&[u8], u64); 2] = [(b"small", 8), (b"large", 400)];
    const ROUNDS: u64 = 300;
    let server = ServerProcess::start(&["--shards=2", "--max-memory=32MiB"]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (server, over) = (&server, &over);
                scope.spawn(move || {
                    let mut session = server.session_with(&options());
                    let mut random = Random::new(seed);
                    let mut hashes =
                        FIELDS.map(|(key, fields)| (session.open_hash(key).unwrap(), fields));
                    let mut newest: BTreeMap<(usize, u64), u64> = BTreeMap::new();
                    let mut read = 0u64;
                    while !over.load(Ordering::Relaxed) {
                        let of = random.below(2);
                        let (hash, fields) = &mut hashes[of];
                        let at = random.below(*fields as usize) as u64;
                        let got = session.hash_get(hash, &name(at), Path::Read).unwrap();
                        read +=
                            matches!(got.served_by, ServedBy::Read | ServedBy::ReadAfter(_)) as u64;
                        let Some(value) = got.value else { continue };
                        let text = std::str::from_utf8(value).unwrap();
                        let stamp = text.strip_prefix(&format!("field {at}:"));
                        let stamp: u64 = stamp.expect("its own value").parse().unwrap();
                        let before = newest.insert((of, at), stamp).unwrap_or(0);
                        assert!(stamp >= before, "{text} after {before}");
                    }
                    read
                })
            })
            .collect();
        let mut writer = server.session_with(&options());
        for stamp in 1..=ROUNDS {
            for (key, fields) in FIELDS {
                if stamp % 7 == 0 {
                    writer.del(key).unwrap();
                }
                fill(&mut writer, key, fields, stamp);
            }
        }
        over.store(true, Ordering::Relaxed);
        let read: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(read > 100, "{read} were read");
    });
}

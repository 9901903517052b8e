//! Sets over RESP as Redis answers, of keys of one shard and of several, and read by clients: small and
//! large ones, cached and cold, beside writers that change and remove them.

use remora_client_core::{Path, ServedBy, Session};
use remora_resp::Value as Front;
use remora_resp::wire::ParsedValue;
use remora_tests::{
    Bytes, Random, RedisServer, Resp, ServerProcess, Value, is_skipped, options,
    while_read_lease_lapses,
};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

const KEYS: &[&str] = &["a", "b", "c", "d", "e", "string", ""];
const CURSORS: &[&str] = &["0", "0", "0", "x", "", "-1", "+5", "18446744073709551616"];
const SCANS: &[&str] =
    &["", "", "COUNT 5", "COUNT 0", "COUNT x", "MATCH m*", "MATCH *", "foo", "COUNT"];
const RANDOMS: &[&str] = &["", "5", "-5", "0", "1000", "x", "3 foo", "-9223372036854775808", "1.5"];
const POPS: &[&str] = &["", "", "1", "3", "0", "1000", "x", "-1", "3 foo", "9223372036854775808"];
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
const NUMBERS: &[&str] = &["1", "2", "2", "3", "0", "-1", "x", "100", ""];

/// What stands at one place of a call.
#[derive(Clone, Copy)]
enum Word {
    Key,
    Keys,
    Member,
    Members,
    Of(&'static [&'static str]),
}
use Word::{Key, Keys, Member, Members, Of};

const CALLS: &[(&str, &[Word])] = &[
    ("SADD", &[Key, Member, Members]),
    ("SADD", &[Key, Member, Members]),
    ("SADD", &[Key, Member, Members]),
    ("SREM", &[Key, Member, Members]),
    ("SREM", &[Key, Member, Members]),
    ("SCARD", &[Key]),
    ("SISMEMBER", &[Key, Member]),
    ("SMISMEMBER", &[Key, Member, Members]),
    ("SMEMBERS", &[Key]),
    ("SRANDMEMBER", &[Key, Of(RANDOMS)]),
    ("SPOP", &[Key, Of(POPS)]),
    ("SMOVE", &[Key, Key, Member]),
    ("SINTER", &[Key, Keys]),
    ("SUNION", &[Key, Keys]),
    ("SDIFF", &[Key, Keys]),
    ("SINTERSTORE", &[Key, Key, Keys]),
    ("SUNIONSTORE", &[Key, Key, Keys]),
    ("SDIFFSTORE", &[Key, Key, Keys]),
    ("SINTERCARD", &[Of(NUMBERS), Key, Keys, Of(LIMITS)]),
    ("SSCAN", &[Key, Of(CURSORS), Of(SCANS)]),
    ("TYPE", &[Key]),
    ("EXPIRE", &[Key, Of(&["100000"])]),
    ("PERSIST", &[Key]),
    ("GET", &[Key]),
    ("HGET", &[Key, Member]),
    ("DEL", &[Of(&["a", "b", "", "", "string"])]),
    ("SET", &[Of(&["string"]), Member]),
];

fn draw_member(random: &mut Random) -> Vec<u8> {
    match random.below(30) {
        0 => "L".repeat(60 + random.below(10)).into_bytes(),
        1 => (random.below(1_i64 << 40) - (1 << 39)).to_string().into_bytes(),
        2 => [&b"007"[..], b"-0", b"", b"9223372036854775807", b"+1"][random.below(5)].to_vec(),
        3 => {
            let bytes = random.below(20);
            random.bytes(bytes)
        }
        4..12 => format!("m{}", random.below(60)).into_bytes(),
        _ => random.below(40).to_string().into_bytes(),
    }
}

pub fn draw(random: &mut Random) -> Vec<Vec<u8>> {
    let pick = |random: &mut Random, list: &[&str]| list[random.below(list.len())].to_owned();
    let (name, places) = CALLS[random.below(CALLS.len())];
    let mut words: Vec<Vec<u8>> = vec![name.into()];
    for place in places {
        match place {
            Key => words.push(pick(random, KEYS).into()),
            Keys => {
                for _ in 0..random.below(3) {
                    words.push(pick(random, KEYS).into());
                }
            }
            Member => words.push(draw_member(random)),
            Members => {
                let most = if random.below(12) == 0 { 200 } else { 4 };
                for _ in 0..random.below(most) {
                    words.push(draw_member(random));
                }
            }
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

/// The items of a reply that has some.
pub fn items(reply: &[u8]) -> Option<Vec<Vec<u8>>> {
    let Ok(ParsedValue::Value { value, .. }) = Front::parse(reply) else { return None };
    let bytes = |item: &Front<'_>| match item {
        Front::Bulk(bytes) => bytes.to_vec(),
        other => format!("{other:?}").into_bytes(),
    };
    match value {
        Front::Array(items) | Front::Set(items) => Some(items.iter().map(bytes).collect()),
        Front::Bulk(item) => Some(vec![item.to_vec()]),
        _ => None,
    }
}

/// Whether two replies say the same where Redis promises no order, or chance decides.
pub fn agree(words: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> bool {
    if ours == theirs {
        return true;
    }
    let (Some(mut our), Some(mut their)) = (items(ours), items(theirs)) else { return false };
    if ours[0] != theirs[0] {
        return false;
    }
    match &words[0][..] {
        b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF" => {
            our.sort();
            their.sort();
            our == their
        }
        b"SRANDMEMBER" => our.len() == their.len(),
        // What a scan tells in all is compared below.
        b"SSCAN" => our.len() == 2 && their.len() == 2,
        _ => false,
    }
}

/// Both servers.
struct Both {
    ours: Bytes,
    theirs: Bytes,
}

impl Both {
    fn theirs(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.theirs.call(&words).expect("redis replies")
    }

    fn ours(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.ours.call(&words).expect("we reply")
    }

    fn call(&mut self, words: &[Vec<u8>], at: usize) {
        let our = self.ours(words);
        let popped = items(&our).filter(|items| words[0] == b"SPOP" && !items.is_empty());
        let Some(popped) = popped else {
            let their = self.theirs(words);
            let shown: Vec<String> = words.iter().map(|w| w.escape_ascii().to_string()).collect();
            let (a, b) = (our.escape_ascii().to_string(), their.escape_ascii().to_string());
            return assert!(
                agree(words, &our, &their),
                "call {at}: {shown:?}\nours {a}\ntheirs {b}"
            );
        };
        // Chance decides which members go: the same go there.
        let length = self.theirs(&[b"SCARD".to_vec(), words[1].clone()]);
        let length: usize =
            std::str::from_utf8(&length[1..]).unwrap().trim_end().parse().expect("a number");
        let wanted = words.get(2).map_or(1, |count| {
            std::str::from_utf8(count).unwrap().parse().expect("it was accepted")
        });
        assert_eq!(popped.len(), length.min(wanted), "call {at}");
        let mut remove = vec![b"SREM".to_vec(), words[1].clone()];
        remove.extend(popped.iter().cloned());
        assert_eq!(self.theirs(&remove), format!(":{}\r\n", popped.len()).into_bytes());
    }

    /// All members that scans of both tell.
    fn scan(&mut self, key: &str) {
        let told = [false, true].map(|is_ours| {
            let (mut cursor, mut told) = (b"0".to_vec(), BTreeSet::new());
            loop {
                let words =
                    [b"SSCAN".to_vec(), key.into(), cursor, b"COUNT".to_vec(), b"7".to_vec()];
                let reply = if is_ours { self.ours(&words) } else { self.theirs(&words) };
                let Ok(ParsedValue::Value { value: Front::Array(parts), .. }) =
                    Front::parse(&reply)
                else {
                    return told;
                };
                let [Front::Bulk(next), Front::Array(members)] = &parts[..] else {
                    panic!("{parts:?}")
                };
                told.extend(members.iter().map(|member| format!("{member:?}")));
                cursor = next.to_vec();
                if cursor == b"0" {
                    return told;
                }
            }
        });
        assert_eq!(told[0], told[1], "{key}");
    }
}

#[test]
fn random_calls_are_answered_as_by_redis() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let redis = RedisServer::start();
    let worlds = [("1", "2"), ("3", "3"), ("1", "3"), ("3", "2")];
    for (seed, (shards, protocol)) in worlds.iter().enumerate() {
        let server = ServerProcess::start(&[&format!("--shards={shards}"), "--max-memory=64MiB"]);
        let [ours, theirs] = Bytes::pair(&server, &redis, protocol);
        let mut both = Both { ours, theirs };
        both.call(&[b"FLUSHALL".to_vec()], 0);
        let mut random = Random::new(seed as u64 + 1);
        for at in 0..7_500 {
            let words = draw(&mut random);
            both.call(&words, at);
            if at % 500 == 499 {
                for key in KEYS {
                    for command in ["SMEMBERS", "SCARD", "TYPE"] {
                        both.call(&[command.into(), (*key).into()], at);
                    }
                    both.scan(key);
                }
            }
        }
    }
}

/// SADDs of members that no frame has to hold at once.
fn add(resp: &mut Resp, key: &str, members: std::ops::Range<u64>) {
    for from in members.clone().step_by(1_000) {
        let some: Vec<String> =
            (from..members.end.min(from + 1_000)).map(|at| format!("member {at}")).collect();
        let mut words: Vec<&[u8]> = vec![b"SADD", key.as_bytes()];
        words.extend(some.iter().map(String::as_bytes));
        assert_eq!(resp.try_call(&words).unwrap(), Value::Integer(some.len() as i64));
    }
}

fn length(value: &Value) -> usize {
    let Value::Array(items) = value else { panic!("no array: {value:?}") };
    items.len()
}

#[test]
fn large_sets_are_combined_and_stored_over_shards() {
    for shards in ["--shards=1", "--shards=4"] {
        let server = ServerProcess::start(&[shards, "--max-memory=256MiB"]);
        let mut resp = Resp::connect(server.resp_address()).unwrap();
        add(&mut resp, "a", 0..40_000);
        add(&mut resp, "b", 20_000..60_000);
        add(&mut resp, "c", 30_000..35_000);
        for (command, members) in [
            ("SINTER a b", 20_000),
            ("SINTER a b c", 5_000),
            ("SINTER a b none", 0),
            ("SUNION a b c", 60_000),
            ("SDIFF a b", 20_000),
            ("SDIFF a c b", 20_000),
            ("SMEMBERS a", 40_000),
        ] {
            assert_eq!(length(&resp.call(command)), members, "{command}");
        }
        for (command, number) in [
            ("SINTERCARD 2 a b", 20_000),
            ("SINTERCARD 3 a b c LIMIT 17", 17),
            ("SINTERSTORE i a b", 20_000),
            ("SUNIONSTORE u a b c", 60_000),
            ("SDIFFSTORE a a b", 20_000),
            ("SCARD a", 20_000),
            ("SINTERCARD 3 i u b", 20_000),
            ("SDIFFSTORE u a a", 0),
            ("EXISTS u", 0),
            ("SMOVE b c member_20000", 0),
            ("SINTERSTORE i c c", 5_000),
            ("SCARD i", 5_000),
        ] {
            assert_eq!(resp.call(command), Value::Integer(number), "{shards} {command}");
        }
        let Value::Array(popped) = resp.call("SPOP b 30000") else { panic!("no array") };
        assert_eq!(popped.len(), 30_000);
        assert_eq!(resp.call("SCARD b"), Value::Integer(10_000));
        add(&mut resp, "many", 0..66_000);
        // In pieces, then all that is left as one change.
        add(&mut resp, "many", 66_000..140_000);
        let mut popped = BTreeSet::new();
        for (count, left) in [(66_000, 74_000), (100_000, 0)] {
            let Value::Array(some) = resp.call(&format!("SPOP many {count}")) else {
                panic!("no array")
            };
            popped.extend(some.iter().map(|member| format!("{member:?}")));
            assert_eq!(resp.call("SCARD many"), Value::Integer(left));
        }
        assert_eq!(popped.len(), 140_000);
    }
}

fn member(at: u64) -> Vec<u8> {
    format!("member {at}").into_bytes()
}

fn fill(session: &mut Session, key: &[u8], members: std::ops::Range<u64>) {
    let set = session.open_set(key).unwrap();
    for from in members.clone().step_by(100) {
        let some: Vec<Vec<u8>> = (from..members.end.min(from + 100)).map(member).collect();
        let some: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
        session.set_add(&set, &some).unwrap();
    }
}

fn is_read(served_by: ServedBy) -> bool {
    matches!(served_by, ServedBy::Read | ServedBy::ReadAfter(_))
}

#[test]
fn members_are_read_in_one_round_trip_once_they_are_known() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut session = server.session_with(&options());
    for (key, members) in [(&b"small"[..], 10), (b"large", 5_000)] {
        fill(&mut session, key, 0..members);
        let mut set = session.open_set(key).unwrap();
        // The answer brings the place.
        let asked = session.set_has(&mut set, &member(3), Path::Ask).unwrap();
        assert_eq!((asked.value.is_some(), asked.served_by), (true, ServedBy::Asked));
        let read = while_read_lease_lapses(&mut session, |session| {
            let got = session.set_has(&mut set, &member(3), Path::Read).unwrap();
            (got.value.is_some(), is_read(got.served_by), got.counts.round_trips)
        });
        assert_eq!(read, (true, true, 1));
        // A small set's record proves absence; of a large one it is the owner's word.
        let none = while_read_lease_lapses(&mut session, |session| {
            let got = session.set_has(&mut set, b"nowhere", Path::Read).unwrap();
            (got.value.is_some(), is_read(got.served_by))
        });
        assert_eq!(none, (false, members == 10));
        let all = session.set_members(&mut set, Path::Read).unwrap();
        assert_eq!(all.members.len() as u64, members);
        assert_eq!(session.set_len(&set).unwrap(), members);
        // What is removed is not found.
        let name = member(3);
        assert_eq!(session.set_remove(&set, &[&name]).unwrap(), 1);
        assert!(session.set_has(&mut set, &name, Path::Read).unwrap().value.is_none());
        session.del(key).unwrap();
        assert!(session.set_has(&mut set, &member(4), Path::Read).unwrap().value.is_none());
    }
}

/// A writer adds and removes members, so that bins come, split and go: readers always find the member
/// that stays, and never one that was not added.
#[test]
fn readers_beside_a_writer_see_members_that_are_there() {
    const SETS: [(&[u8], u64); 2] = [(b"small", 8), (b"large", 3_000)];
    const ROUNDS: u64 = 60;
    let server = ServerProcess::start(&["--shards=2", "--max-memory=32MiB"]);
    let mut writer = server.session_with(&options());
    for (key, _) in SETS {
        let set = writer.open_set(key).unwrap();
        writer.set_add(&set, &[b"always"]).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (server, over) = (&server, &over);
                scope.spawn(move || {
                    let mut session = server.session_with(&options());
                    let mut random = Random::new(seed);
                    let mut sets =
                        SETS.map(|(key, members)| (session.open_set(key).unwrap(), members));
                    let mut read = 0u64;
                    while !over.load(Ordering::Relaxed) {
                        let (set, members) = &mut sets[random.below(2)];
                        let at = random.below(*members as usize) as u64;
                        let got = session.set_has(set, &member(at), Path::Read).unwrap();
                        read += u64::from(is_read(got.served_by));
                        // This one is never there.
                        let never = format!("never {at}");
                        let got = session.set_has(set, never.as_bytes(), Path::Read).unwrap();
                        assert!(got.value.is_none(), "{never}");
                        // This one always is.
                        let got = session.set_has(set, b"always", Path::Read).unwrap();
                        assert!(got.value.is_some(), "{:?}", got.served_by);
                    }
                    read
                })
            })
            .collect();
        for round in 1..=ROUNDS {
            for (key, members) in SETS {
                let set = writer.open_set(key).unwrap();
                for from in (0..members).step_by(50) {
                    let some: Vec<Vec<u8>> = (from..members.min(from + 50)).map(member).collect();
                    let some: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
                    match round % 2 {
                        1 => writer.set_add(&set, &some).unwrap(),
                        _ => writer.set_remove(&set, &some).unwrap(),
                    };
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        let read: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(read > 100, "{read} were read");
    });
}

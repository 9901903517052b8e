//! Lists over RESP as Redis answers, and read by clients: small and large ones, beside writers that
//! push, take and remove.

use remora_client_core::{Error, Path, ServedBy, Session, Side};
use remora_layout::limits::LIST_READ_CHUNKS;
use remora_protocol::message::Status;
use remora_tests::{
    Bytes, Random, RedisServer, Resp, ServerProcess, Value, by_pointers, is_skipped, options,
    while_read_lease_lapses,
};
use std::sync::atomic::{AtomicBool, Ordering};

const KEYS: &[&str] = &["a", "b", "c{a}", "string", ""];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "-2",
    "7",
    "-7",
    "60",
    "-60",
    "1000",
    "-1000",
    "01",
    "+1",
    "-0",
    " 1",
    "1.0",
    "",
    "x",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
];
const COUNTS: &[&str] = &["", "", "", "1", "2", "0", "-1", "x", "40", "9223372036854775808", "1 2"];
const SIDES: &[&str] = &["LEFT", "RIGHT", "left", "Right", "middle", ""];
const WHERE: &[&str] = &["BEFORE", "AFTER", "before", "beside"];
const SEARCHES: &[&str] = &[
    "",
    "",
    "RANK 1",
    "RANK -1",
    "RANK 2 COUNT 0",
    "RANK -2 COUNT 2",
    "COUNT 0",
    "COUNT 1 MAXLEN 3",
    "MAXLEN 0",
    "MAXLEN 20 RANK -1 COUNT 0",
    "RANK 0",
    "COUNT -1",
    "MAXLEN -1",
    "RANK x",
    "RANK",
    "FOO 1",
    "rank 1 rank -1",
    "RANK -9223372036854775808",
];
const MANY: &[&str] = &[
    "1 a LEFT",
    "2 a b RIGHT COUNT 3",
    "3 b a c{a} LEFT COUNT 1",
    "2 string a LEFT",
    "2 a string RIGHT",
    "0 a LEFT",
    "x a LEFT",
    "5 a LEFT",
    "1 a LEFT COUNT 0",
    "1 a LEFT COUNT x",
    "1 a LEFT COUNT 1 COUNT 1",
    "1 a middle",
    "1 a LEFT COUNT",
    "1 b right count 90",
];

/// What stands at one place of a call.
#[derive(Clone, Copy)]
enum Word {
    Key,
    Text,
    Texts,
    Number,
    Of(&'static [&'static str]),
}
use Word::{Key, Number, Of, Text, Texts};

const CALLS: &[(&str, &[Word])] = &[
    ("LPUSH", &[Key, Text, Texts]),
    ("RPUSH", &[Key, Text, Texts]),
    ("RPUSH", &[Key, Text, Texts]),
    ("LPUSHX", &[Key, Text, Texts]),
    ("RPUSHX", &[Key, Text]),
    ("LPOP", &[Key, Of(COUNTS)]),
    ("RPOP", &[Key, Of(COUNTS)]),
    ("LLEN", &[Key]),
    ("LRANGE", &[Key, Number, Number]),
    ("LRANGE", &[Key, Of(&["0", "-70"]), Of(&["-1", "80"])]),
    ("LINDEX", &[Key, Number]),
    ("LSET", &[Key, Number, Text]),
    ("LINSERT", &[Key, Of(WHERE), Text, Text]),
    ("LREM", &[Key, Number, Text]),
    ("LTRIM", &[Key, Of(&["0", "1", "2", "-40", "x"]), Of(&["-1", "-2", "60", "x"])]),
    ("LPOS", &[Key, Text, Of(SEARCHES)]),
    ("LMOVE", &[Key, Key, Of(SIDES), Of(SIDES)]),
    ("LMOVE", &[Key, Key, Of(&["LEFT", "RIGHT"]), Of(&["LEFT", "RIGHT"])]),
    ("RPOPLPUSH", &[Key, Key]),
    ("LMPOP", &[Of(MANY)]),
    ("TYPE", &[Key]),
    ("EXPIRE", &[Key, Of(&["100000"])]),
    ("TTL", &[Key]),
    ("PERSIST", &[Key]),
    ("GET", &[Key]),
    ("APPEND", &[Key, Of(&["x"])]),
    ("HGET", &[Key, Of(&["x"])]),
    ("DEL", &[Of(&["a", "b", "nowhere", "nowhere", "nowhere", "string"])]),
    ("SET", &[Of(&["string"]), Text]),
    ("RENAME", &[Key, Key]),
    ("COPY", &[Key, Key]),
];

pub fn draw(random: &mut Random) -> Vec<Vec<u8>> {
    let pick = |random: &mut Random, list: &[&str]| list[random.below(list.len())].to_owned();
    let text = |random: &mut Random| match random.below(40) {
        0 => vec![b'L'; 60 + random.below(300)],
        1 if random.below(8) == 0 => vec![b'x'; random.below(20_000)],
        2 => {
            let bytes = random.below(30);
            random.bytes(bytes)
        }
        3..8 => pick(random, NUMBERS).into_bytes(),
        8..28 => (random.below(40) as i64 - 20).to_string().into_bytes(),
        _ => format!("element {}", random.below(30)).into_bytes(),
    };
    let (name, places) = CALLS[random.below(CALLS.len())];
    let mut words: Vec<Vec<u8>> = vec![name.into()];
    for place in places {
        match place {
            Key => words.push(pick(random, KEYS).into()),
            Text => words.push(text(random)),
            Texts => {
                let most = if random.below(12) == 0 { 150 } else { 5 };
                for _ in 0..random.below(most) {
                    words.push(text(random));
                }
            }
            Number => words.push(pick(random, NUMBERS).into()),
            Of(list) => {
                let some = pick(random, list);
                if !some.is_empty() {
                    words.extend(some.split(' ').map(|word| word.as_bytes().to_vec()));
                }
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

#[test]
fn random_calls_are_answered_as_by_redis() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let redis = RedisServer::start();
    for (seed, protocol, shards) in [(1, "2", 2), (2, "3", 1), (3, "2", 3), (4, "3", 2)] {
        let server =
            ServerProcess::start(&[&format!("--shards={shards}")[..], "--max-memory=64MiB"]);
        let [mut ours, mut theirs] = Bytes::pair(&server, &redis, protocol);
        let mut both = |words: &[Vec<u8>], at: usize| {
            let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let their = theirs.call(&slices).expect("redis replies");
            let our = ours.call(&slices).expect("we reply");
            let shown: Vec<String> = words.iter().map(|w| w.escape_ascii().to_string()).collect();
            let (a, b) = (our.escape_ascii().to_string(), their.escape_ascii().to_string());
            assert!(our == their, "seed {seed}, call {at}: {shown:?}\nours {a}\ntheirs {b}");
        };
        both(&[b"FLUSHALL".to_vec()], 0);
        let mut random = Random::new(seed);
        for at in 0..8_000 {
            both(&draw(&mut random), at);
            if at % 400 == 399 {
                for key in KEYS {
                    both(&[b"LRANGE".to_vec(), (*key).into(), b"0".to_vec(), b"-1".to_vec()], at);
                }
            }
        }
    }
}

#[test]
fn a_long_list_is_told_whole_while_others_are_served() {
    const ELEMENTS: usize = 200_000;
    let server = ServerProcess::start(&["--shards=1", "--max-memory=256MiB"]);
    let mut resp = Resp::connect(server.resp_address()).unwrap();
    for from in (0..ELEMENTS).step_by(1_000) {
        let words: Vec<String> = (from..from + 1_000).map(|at| format!("element {at}")).collect();
        let command = [&b"RPUSH"[..], b"l"].into_iter().chain(words.iter().map(String::as_bytes));
        let length = resp.try_call(&command.collect::<Vec<_>>()).unwrap();
        assert_eq!(length, Value::Integer(from as i64 + 1_000));
    }
    let mut other = Resp::connect(server.resp_address()).unwrap();
    resp.send(&[b"LRANGE", b"l", b"0", b"-1"]).unwrap();
    // What two connections send is not always taken in that order.
    resp.wait_for_reply().unwrap();
    assert_eq!(other.call("LSET l 150000 changed"), Value::Simple("OK".into()));
    assert_eq!(other.call("LTRIM l 199990 -1"), Value::Simple("OK".into()));
    assert_eq!(other.call("LLEN l"), Value::Integer(10));
    let Value::Array(told) = resp.receive().unwrap() else { panic!("no array") };
    assert_eq!(told.len(), ELEMENTS);
    for (at, element) in told.iter().enumerate() {
        assert_eq!(*element, Value::Bulk(format!("element {at}").into_bytes()));
    }
}

/// Pushes so many elements, each its index with a number before it.
fn fill(session: &mut Session, key: &[u8], elements: u64, stamp: u64) {
    let list = session.open_list(key).unwrap();
    for from in (0..elements).step_by(100) {
        let some: Vec<Vec<u8>> = (from..elements.min(from + 100))
            .map(|at| format!("{stamp}:{at}").into_bytes())
            .collect();
        let some: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
        session.list_push(&list, Side::Right, &some).unwrap();
    }
}

#[test]
fn ranges_near_the_ends_are_read_in_a_few_round_trips() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut session = server.session_with(&options());
    for (key, elements) in [(&b"small"[..], 20u64), (b"large", 5_000)] {
        fill(&mut session, key, elements, 1);
        let mut list = session.open_list(key).unwrap();
        let trips = |session: &mut Session, list: &mut _, range: (i64, i64)| {
            while_read_lease_lapses(session, |session| {
                let got = session.list_range(list, range, Path::Read).unwrap();
                let is_read = matches!(got.served_by, ServedBy::Read | ServedBy::ReadAfter(_));
                assert!(is_read, "{:?}", got.served_by);
                let from_end = |at: i64| if at < 0 { at + elements as i64 } else { at };
                let wanted: Vec<Vec<u8>> = (from_end(range.0)..=from_end(range.1))
                    .map(|at| format!("1:{at}").into_bytes())
                    .collect();
                assert_eq!(got.items, wanted);
                got.counts.round_trips
            })
        };
        // Bucket and record of the key; of a large one the chunk, with the root record.
        assert!(trips(&mut session, &mut list, (0, 9)) <= 3);
        assert_eq!(trips(&mut session, &mut list, (0, 9)), 1);
        assert_eq!(trips(&mut session, &mut list, (-3, -1)), 1);
        if elements > 20 {
            assert!(trips(&mut session, &mut list, (0, 250)) <= 5);
            // Too far from both ends: it is asked for, unless it is to be read.
            let far = session.list_range(&mut list, (2_500, 2_501), Path::Choose).unwrap();
            assert_eq!(far.served_by, ServedBy::Asked);
        }
        // What has changed is found anew, a removed list is not found.
        assert!(session.list_set(&list, 3, b"new").unwrap());
        let got = session.list_range(&mut list, (3, 3), Path::Read).unwrap();
        assert_eq!(got.items, [b"new"]);
        session.del(key).unwrap();
        let got = session.list_range(&mut list, (0, 3), Path::Read).unwrap();
        assert_eq!((got.items.len(), got.served_by), (0, ServedBy::AskedAfterRead));
    }
    let string = session.open_list(b"string").unwrap();
    session.set(b"string", b"v", Default::default()).unwrap();
    assert_eq!(session.list_len(&string), Err(Error::Refused(Status::WrongType)));
}

fn unix_ms() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("it is after 1970").as_millis() as u64
}

/// A list that has expired is not read, although its chunks are still there: a read that began after
/// its expiry, with a margin for the clocks, gives nothing. The server removes expired keys by and by:
/// with many of them some are still there.
#[test]
fn an_expired_list_is_not_read() {
    const LISTS: usize = 200;
    const MARGIN_MS: u64 = 100;
    let server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB"]);
    let mut session = server.session_with(&options());
    let keys: Vec<Vec<u8>> = (0..LISTS).map(|at| format!("l{at}").into_bytes()).collect();
    let mut lists = Vec::new();
    for key in &keys {
        fill(&mut session, key, 150, 1);
        lists.push(session.open_list(key).unwrap());
    }
    let expires_at_ms = unix_ms() + 2_000;
    let mut resp = Resp::connect(server.resp_address()).unwrap();
    for key in &keys {
        let at = expires_at_ms.to_string();
        drop(resp.try_call(&[b"PEXPIREAT", key, at.as_bytes()]).unwrap());
    }
    let mut are_left = true;
    while are_left {
        are_left = false;
        for list in &mut lists {
            let began_ms = unix_ms();
            let got = session.list_range(list, (0, 1), Path::Read).unwrap();
            if !got.items.is_empty() {
                are_left = true;
                let is_right = began_ms < expires_at_ms + MARGIN_MS;
                assert!(is_right, "it is read although it has expired");
            }
        }
    }
    let read: u64 = lists.iter().map(|list| list.events().read).sum();
    assert!(read > 0, "the lists are read");
}

/// Few elements of many bytes do not fit one reply of a ring, are not copied in one turn, and lie in
/// more chunks than a few READs fetch.
#[test]
fn a_short_range_of_long_elements_is_told_whole() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=256MiB"]);
    let mut session = server.session_with(&by_pointers());
    for (key, bytes) in [("a", 1_000), ("b", 4_000), ("c", 4_000), ("d", 100_000), ("e", 100_000)] {
        let mut list = session.open_list(key.as_bytes()).unwrap();
        let all: Vec<Vec<u8>> = (0..100u8).map(|at| vec![at; bytes]).collect();
        for item in &all {
            session.list_push(&list, Side::Right, &[item]).unwrap();
        }
        for (start, stop) in [(0, 99), (0, 0), (-1, -1), (40, 60)] {
            let from_end = |at: i64| (if at < 0 { at + 100 } else { at }) as usize;
            let wanted = &all[from_end(start)..=from_end(stop)];
            for path in [Path::Ask, Path::Read, Path::Choose] {
                let got = session.list_range(&mut list, (start, stop), path).unwrap();
                assert!(got.items == wanted, "{key} {start} {stop} {path:?}");
                let most = 2 + LIST_READ_CHUNKS;
                let is_few = path != Path::Choose || got.counts.round_trips <= most;
                assert!(is_few || got.counts.retries > 0, "{key}: {:?}", got.counts);
            }
            // What is sent behind it is answered behind it.
            let mut resp = Resp::connect(server.resp_address()).unwrap();
            let [first, last] = [start, stop].map(|at| at.to_string());
            for _ in 0..2 {
                resp.send(&[b"LRANGE", key.as_bytes(), first.as_bytes(), last.as_bytes()]).unwrap();
                resp.send(&[b"LLEN", key.as_bytes()]).unwrap();
            }
            for _ in 0..2 {
                let told = wanted.iter().cloned().map(Value::Bulk).collect();
                assert!(resp.receive().unwrap() == Value::Array(told), "{key} {start} {stop}");
                assert_eq!(resp.receive().unwrap(), Value::Integer(100));
            }
        }
    }
}

/// A writer takes from the front, adds behind, and now and then removes the list or cuts it: readers
/// see neighbours that follow each other, and never an older list than before.
#[test]
fn readers_beside_a_writer_see_the_list_of_one_moment() {
    const ROUNDS: u64 = 4_000;
    let server = ServerProcess::start(&["--shards=2", "--max-memory=32MiB"]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2u64)
            .map(|seed| {
                let (server, over) = (&server, &over);
                scope.spawn(move || {
                    let mut session = server.session_with(&options());
                    let mut random = Random::new(seed);
                    let mut list = session.open_list(b"l").unwrap();
                    let (mut newest, mut read) = (0u64, 0u64);
                    while !over.load(Ordering::Relaxed) {
                        let range = match random.below(3) {
                            0 => (0, random.below(150) as i64),
                            1 => (-1 - random.below(150) as i64, -1),
                            _ => (0, -1),
                        };
                        let got = session.list_range(&mut list, range, Path::Read).unwrap();
                        read += u64::from(matches!(
                            got.served_by,
                            ServedBy::Read | ServedBy::ReadAfter(_)
                        ));
                        let numbers: Vec<u64> = got
                            .items
                            .iter()
                            .map(|item| std::str::from_utf8(item).unwrap().parse().unwrap())
                            .collect();
                        for two in numbers.windows(2) {
                            assert_eq!(two[0] + 1, two[1], "{range:?}");
                        }
                        if range.1 == -1
                            && let Some(last) = numbers.last()
                        {
                            assert!(*last >= newest, "{last} after {newest}");
                            newest = *last;
                        }
                    }
                    read
                })
            })
            .collect();
        let mut writer = server.session_with(&options());
        let list = writer.open_list(b"l").unwrap();
        let (mut random, mut next) = (Random::new(9), 1u64);
        for round in 0..ROUNDS {
            let some: Vec<Vec<u8>> = (0..1 + random.below(30) as u64)
                .map(|at| (next + at).to_string().into_bytes())
                .collect();
            next += some.len() as u64;
            let some: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
            let length = writer.list_push(&list, Side::Right, &some).unwrap();
            match round % 50 {
                48 if round % 700 == 48 => drop(writer.del(b"l").unwrap()),
                49 => writer.list_trim(&list, (-30, -1)).unwrap(),
                _ if length > 600 => drop(writer.list_pop(&list, Side::Left, 40).unwrap()),
                _ => {}
            }
        }
        over.store(true, Ordering::Relaxed);
        let read: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(read > 100, "{read} were read");
    });
}

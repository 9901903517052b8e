//! Ordered trees over RESP, against Redis's sorted sets of one score, whose members are in the order of
//! their bytes; and read by clients beside a writer that divides, joins and removes.

use remora_client_core::{
    KeyForm, OpenOrdered, OrderedCache, OrderedHold, OrderedSettings, Path, Session,
};
use remora_protocol::ordered::OrderedRange;
use remora_resp::Value as Front;
use remora_resp::wire::ParsedValue;
use remora_tests::{
    Bytes, Random, RedisServer, Resp, ServerProcess, Value, is_skipped, options,
    while_read_lease_lapses,
};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn call(resp: &mut Resp, words: &[&[u8]]) -> Value {
    resp.try_call(words).expect("it replies")
}

/// A reply of Redis.
fn ask(redis: &mut Bytes, words: &[&[u8]]) -> Value {
    fn value(of: &Front<'_>) -> Value {
        match of {
            Front::Bulk(bytes) => Value::Bulk(bytes.to_vec()),
            Front::Integer(number) => Value::Integer(*number),
            Front::Array(items) => Value::Array(items.iter().map(value).collect()),
            Front::Null => Value::Null,
            other => panic!("unexpected: {other:?}"),
        }
    }
    let reply = redis.call(words).expect("it replies");
    match Front::parse(&reply) {
        Ok(ParsedValue::Value { value: whole, .. }) => value(&whole),
        _ => panic!("no reply: {}", reply.escape_ascii()),
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    let number = random.below(400);
    match number % 5 {
        0 => format!("a/long/path/that/many/keys/share/{number}").into_bytes(),
        1 => (number as u32).to_be_bytes().to_vec(),
        2 => format!("k{number}").repeat(1 + number as usize % 30).into_bytes(),
        _ => format!("{number}").into_bytes(),
    }
}

/// An end of a range, as both take it.
fn bound(random: &mut Random, end: &[u8]) -> Vec<u8> {
    match random.below(6) {
        0 => end.to_vec(),
        1 | 2 => [b"(", &key(random)[..]].concat(),
        _ => [b"[", &key(random)[..]].concat(),
    }
}

/// The keys of a flat list of keys and values; the values are the keys again.
fn keys_of(pairs: Value) -> Vec<Value> {
    let Value::Array(pairs) = pairs else { panic!("no array: {pairs:?}") };
    let (keys, values): (Vec<_>, Vec<_>) =
        pairs.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).unzip();
    assert_eq!(keys, values);
    keys
}

/// A question about a range, or a number, to both.
fn compare(ours: &mut Resp, theirs: &mut Bytes, some: &[u8], random: &mut Random) {
    let (min, max) = (bound(random, b"-"), bound(random, b"+"));
    let limit = random.below(50).to_string();
    let limit = limit.as_bytes();
    match random.below(5) {
        0 => assert_eq!(
            keys_of(call(ours, &[b"BTREE.RANGE", b"t", &min, &max, b"LIMIT", limit])),
            list(ask(theirs, &[b"ZRANGEBYLEX", b"t", &min, &max, b"LIMIT", b"0", limit])),
        ),
        1 => assert_eq!(
            keys_of(call(ours, &[b"BTREE.REVRANGE", b"t", &max, &min])),
            list(ask(theirs, &[b"ZREVRANGEBYLEX", b"t", &max, &min])),
        ),
        2 => assert_eq!(
            call(ours, &[b"BTREE.COUNT", b"t", &min, &max]),
            ask(theirs, &[b"ZLEXCOUNT", b"t", &min, &max]),
        ),
        3 => assert_eq!(
            call(ours, &[b"BTREE.RANK", b"t", some]),
            ask(theirs, &[b"ZRANK", b"t", some]),
        ),
        _ => {
            let rank = (random.below(100) as i64 - 50).to_string();
            let selected = call(ours, &[b"BTREE.SELECT", b"t", rank.as_bytes()]);
            let their = list(ask(theirs, &[b"ZRANGE", b"t", rank.as_bytes(), rank.as_bytes()]));
            match their.first() {
                None => assert_eq!(selected, Value::Null),
                Some(_) => assert_eq!(keys_of(selected), their),
            }
        }
    }
}

#[test]
fn random_calls_are_answered_as_redis_answers_about_sorted_sets() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let redis = RedisServer::start();
    let mut theirs = redis.connect();
    // Longer values lie in records.
    for (seed, (fan_out, value_bytes)) in
        [("4", "0"), ("16", "20"), ("64", "1024")].iter().enumerate()
    {
        let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
        let (mut ours, mut random) = (server.resp(), Random::new(seed as u64));
        theirs.call(&[b"FLUSHALL"]).expect("it replies");
        let created = call(
            &mut ours,
            &[
                b"BTREE.CREATE",
                b"t",
                b"FANOUT",
                fan_out.as_bytes(),
                b"VALUEBYTES",
                value_bytes.as_bytes(),
            ],
        );
        assert_eq!(created, Value::ok());
        for step in 0..6_000 {
            let some = key(&mut random);
            let removes = random.below(10) < if (step / 1_500) % 2 == 0 { 2 } else { 7 };
            let (our, their) = match removes {
                true => (
                    call(&mut ours, &[b"BTREE.DEL", b"t", &some]),
                    ask(&mut theirs, &[b"ZREM", b"t", &some]),
                ),
                false => (
                    call(&mut ours, &[b"BTREE.SET", b"t", &some, &some]),
                    ask(&mut theirs, &[b"ZADD", b"t", b"0", &some]),
                ),
            };
            assert_eq!(our, their, "step {step}");
            compare(&mut ours, &mut theirs, &some, &mut random);
        }
        // All of it, by steps of a scan.
        let (mut cursor, mut scanned) = (b"0".to_vec(), Vec::new());
        loop {
            let Value::Array(step) =
                call(&mut ours, &[b"BTREE.SCAN", b"t", &cursor, b"COUNT", b"7"])
            else {
                panic!("no array")
            };
            scanned.extend(keys_of(step[1].clone()));
            let Value::Bulk(next) = &step[0] else { panic!("no cursor: {step:?}") };
            cursor = next.clone();
            if cursor == b"0" {
                break;
            }
        }
        assert_eq!(scanned, list(ask(&mut theirs, &[b"ZRANGE", b"t", b"0", b"-1"])));
    }
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => panic!("no array: {other:?}"),
    }
}

#[test]
fn bad_requests_say_what_to_do_and_change_nothing() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB"]);
    let mut resp = server.resp();
    assert_eq!(resp.call("BTREE.CREATE n INTEGERS FANOUT 8 VALUEBYTES 8"), Value::ok());
    assert_eq!(resp.call("BTREE.SET n 7 seven"), Value::Integer(1));
    assert_eq!(resp.call("SET s v"), Value::ok());
    for (words, says) in [
        ("BTREE.CREATE n", "DEL removes it"),
        ("BTREE.CREATE m FANOUT 3", "FANOUT"),
        ("BTREE.CREATE m FANOUT 257", "FANOUT"),
        ("BTREE.CREATE m FANOUT", "syntax"),
        ("BTREE.CREATE m KEYBYTES 1025", "KEYBYTES"),
        ("BTREE.CREATE m INTEGERS KEYBYTES 9", "KEYBYTES"),
        ("BTREE.CREATE m VALUEBYTES -1", "VALUEBYTES"),
        ("BTREE.CREATE m SIDEWAYS", "syntax"),
        ("BTREE.SET n x 1", "integers from 0 to 18446744073709551615"),
        ("BTREE.SET n -1 1", "integers from 0"),
        ("BTREE.SET n 18446744073709551616 1", "integers from 0"),
        ("BTREE.SET n 1 2 3", "syntax"),
        ("BTREE.GET n x", "integers from 0"),
        ("BTREE.RANGE n x +", "integers from 0"),
        ("BTREE.RANGE n - + LIMIT -1", "positive"),
        ("BTREE.RANGE n - + LIMIT", "syntax"),
        ("BTREE.RANGE n - + 1 2", "syntax"),
        ("BTREE.SCAN n 17", "cursor"),
        ("BTREE.SCAN n 0 COUNT 0", "syntax"),
        ("BTREE.SELECT n x", "integer"),
        ("BTREE.LEVELS n NODES", "syntax"),
        ("BTREE.LEVELS n NODES 40", "NODES is not an integer from 0 to 39"),
        ("BTREE.LEVELS n NODES 1 LIMIT 1025", "LIMIT is not an integer from 1 to 1024"),
        ("BTREE.SET s 1 2", "WRONGTYPE"),
        ("BTREE.GET s 1", "WRONGTYPE"),
        ("LPUSH n 1", "WRONGTYPE"),
        ("BTREE.GET n", "wrong number"),
    ] {
        let Value::Error(text) = resp.call(words) else { panic!("{words} is no error") };
        assert!(text.to_lowercase().contains(&says.to_lowercase()), "{words}: {text}");
    }
    let long = vec![b'k'; 1_025];
    assert!(call(&mut resp, &[b"BTREE.SET", b"b", &long, b"v"]).is_error());
    assert!(call(&mut resp, &[b"BTREE.SET", b"n", b"1", &vec![b'v'; (64 << 10) + 1]]).is_error());
    assert_eq!(resp.call("EXISTS b m"), Value::Integer(0), "nothing was made");
    assert_eq!(resp.call("BTREE.COUNT n - +"), Value::Integer(1));
    assert_eq!(resp.call("BTREE.RANGE n + -"), Value::Array(Vec::new()));
    // One level, which is a leaf: nodes, entries, deep nodes, lookups.
    let numbers = |of: [i64; 4]| Value::Array(of.map(Value::Integer).to_vec());
    assert_eq!(resp.call("BTREE.LEVELS n"), Value::Array(vec![numbers([1, 1, 0, 0])]));
    let Value::Array(nodes) = resp.call("BTREE.LEVELS n NODES 0 LIMIT 1") else { panic!("a list") };
    let [Value::Array(node)] = &nodes[..] else { panic!("one node: {nodes:?}") };
    assert_eq!(node[2..], [0, 1, 0].map(Value::Integer), "not deep, one key");
    assert_eq!(resp.call("BTREE.LEVELS n NODES 1"), Value::Array(Vec::new()));
    assert_eq!(resp.call("TYPE n"), Value::Simple("ordered".into()));
    for (words, number) in
        [("BTREE.SET n 7 again", 0), ("BTREE.DEL n 8", 0), ("BTREE.DEL n 7", 1), ("DEL n", 1)]
    {
        assert_eq!(resp.call(words), Value::Integer(number), "{words}");
    }
    for words in
        ["BTREE.GET n 7", "BTREE.FIRST n", "BTREE.LAST n", "BTREE.INFO n", "BTREE.RANK n 1"]
    {
        assert_eq!(resp.call(words), Value::Null, "{words}");
    }
}

#[test]
fn a_key_is_read_in_one_round_trip_once_the_upper_nodes_are_kept() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut session = server.session_with(&options());
    let mut open = session.open_ordered(b"t").unwrap();
    let settings = OrderedSettings { fan_out: 16, ..OrderedSettings::of(KeyForm::Integers) };
    assert!(session.ordered_create(&open, settings).unwrap());
    for number in 0..20_000u64 {
        let text = (number * 7).to_string();
        session.ordered_set(&open, text.as_bytes(), (&number.to_le_bytes(), false)).unwrap();
    }
    let height = session.ordered_info(&open).unwrap().unwrap().height;
    assert!(height >= 4, "{height}");
    // The first one finds the record, and reads each level.
    let get = |session: &mut _, key: u64, open: &mut _| {
        while_read_lease_lapses(session, |session| {
            let got = session.ordered_get(open, key.to_string().as_bytes(), Path::Read).unwrap();
            let value = got.value.map(|got| u64::from_le_bytes(got.value.try_into().unwrap()));
            (value, got.served_by.is_read(), got.counts.round_trips)
        })
    };
    let (value, is_read, trips) = get(&mut session, 7, &mut open);
    assert_eq!((value, is_read), (Some(1), true));
    assert!(trips >= height, "{trips}");
    assert_eq!(get(&mut session, 7, &mut open), (Some(1), true, 1));
    // A leaf proves absence.
    assert_eq!(get(&mut session, 8, &mut open), (None, true, 1));
    // What a writer has changed is found, in a node that was divided too.
    for number in 0..40u64 {
        let text = (7 * 9_000 + 1 + number % 6 + 7 * (number / 6)).to_string();
        session.ordered_set(&open, text.as_bytes(), (&[9; 8], false)).unwrap();
        let (value, ..) = get(&mut session, text.parse().unwrap(), &mut open);
        assert_eq!(value, Some(u64::from_le_bytes([9; 8])));
    }
    // The tree goes, and another takes its name.
    session.del(b"t").unwrap();
    assert_eq!(get(&mut session, 7, &mut open).0, None);
    session.ordered_set(&open, b"7", (&[5; 8], false)).unwrap();
    assert_eq!(get(&mut session, 7, &mut open).0, Some(u64::from_le_bytes([5; 8])));
}

const HOLD: OrderedHold =
    OrderedHold { epoch: 0, for_ms: 60_000, levels: 3, most_bytes: 200 << 10, below: None };
const STAYS: u64 = 300;
const BETWEEN: u64 = 40;

/// Reads a range of 30 keys that stay, with all that stands between them. Whether READs concluded.
fn read_range(session: &mut Session, tree: &mut OpenOrdered, from: u64, is_reverse: bool) -> bool {
    let to = (from + 30).min(STAYS - 1);
    let texts = [from, to].map(|number| (number * BETWEEN).to_string());
    let [from_key, to_key] = texts.each_ref().map(|text| Bound::Included(text.as_bytes()));
    let range = OrderedRange { from: from_key, to: to_key };
    let found = session.ordered_range(tree, range, (is_reverse, 1_000), Path::Read).unwrap();
    let mut keys: Vec<u64> = found
        .entries
        .iter()
        .map(|(key, _)| str::from_utf8(key).unwrap().parse().unwrap())
        .collect();
    if is_reverse {
        keys.reverse();
    }
    assert!(keys.is_sorted_by(|one, next| one < next), "{keys:?}");
    let stay: Vec<u64> = keys.iter().copied().filter(|key| key % BETWEEN == 0).collect();
    assert_eq!(stay, (from..=to).map(|number| number * BETWEEN).collect::<Vec<_>>());
    assert!(keys.iter().all(|key| key % BETWEEN < 6), "{keys:?}");
    found.served_by.is_read()
}

/// The same range asked and read, with round trips that grow with the leaves and not with the keys.
#[test]
fn a_range_is_read_several_leaves_at_a_time() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut session = server.session_with(&options());
    let mut open = session.open_ordered(b"t").unwrap();
    for number in 0..5_000u64 {
        let value = (&number.to_le_bytes()[..], number.is_multiple_of(3));
        session.ordered_set(&open, format!("key {number:05}").as_bytes(), value).unwrap();
    }
    let mut random = Random::new(3);
    for limit in [1, 10, 100, 1_000] {
        for _ in 0..20 {
            let from = format!("key {:05}", random.below(5_000u64));
            let (from, to) = (Bound::Excluded(from.as_bytes()), Bound::Unbounded);
            for (range, is_reverse) in
                [(OrderedRange { from, to }, false), (OrderedRange { from: to, to: from }, true)]
            {
                let of = (is_reverse, limit);
                let asked = session.ordered_range(&mut open, range, of, Path::Ask).unwrap();
                let read = while_read_lease_lapses(&mut session, |session| {
                    let read = session.ordered_range(&mut open, range, of, Path::Read).unwrap();
                    (read.entries == asked.entries, read.served_by.is_read(), {
                        let most = if is_reverse { 200 } else { 12 };
                        read.counts.round_trips <= most
                    })
                });
                assert_eq!(read, (true, true, true), "{range:?} {of:?}");
                let chosen = session.ordered_range(&mut open, range, of, Path::Choose).unwrap();
                assert_eq!(chosen.entries, asked.entries);
            }
        }
    }
    assert!(open.events().ranges >= 160);
}

/// Adds keys between those that stay, and removes them, by turns; for some turns addresses of the
/// upper nodes are held, and then the depth is mended. Gives the deep nodes that were seen.
fn change_and_hold(writer: &mut Session, tree: &OpenOrdered) -> u64 {
    let mut deep = 0;
    for round in 0..40u64 {
        let hold = OrderedHold { epoch: 1 + round, ..HOLD };
        match round % 8 {
            2 => assert!(!writer.ordered_hold(tree, hold).unwrap().unwrap().is_empty()),
            5 => assert!(writer.ordered_release(tree, hold.epoch - 3).unwrap()),
            _ => {}
        }
        let levels = writer.ordered_levels(tree).unwrap();
        deep += levels.iter().map(|level| level.deep).sum::<u64>();
        for number in 0..STAYS {
            for between in 1..6 {
                let text = (number * BETWEEN + between).to_string();
                match round % 2 {
                    0 => writer.ordered_set(tree, text.as_bytes(), (b"x", false)).unwrap(),
                    _ => writer.ordered_remove(tree, text.as_bytes()).unwrap(),
                };
            }
        }
    }
    deep
}

/// A writer adds and removes keys between those that stay, so that nodes are divided, joined and
/// freed: a reader always finds the keys that stay, and never one that was not set.
#[test]
fn readers_beside_a_writer_find_each_key_that_stays() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut writer = server.session_with(&options());
    let tree = writer.open_ordered(b"t").unwrap();
    let settings = OrderedSettings { fan_out: 8, ..OrderedSettings::of(KeyForm::Integers) };
    assert!(writer.ordered_create(&tree, settings).unwrap());
    for number in 0..STAYS {
        let text = (number * BETWEEN).to_string();
        writer.ordered_set(&tree, text.as_bytes(), (&number.to_le_bytes(), false)).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (server, over) = (&server, &over);
                scope.spawn(move || {
                    let mut session = server.session_with(&options());
                    let (mut random, mut read) = (Random::new(seed), 0u64);
                    let mut tree = session.open_ordered(b"t").unwrap();
                    if seed == 1 {
                        tree.set_cache(OrderedCache { bytes: 0, ..OrderedCache::default() });
                    }
                    while !over.load(Ordering::Relaxed) {
                        let number = random.below(STAYS as usize) as u64;
                        let text = (number * BETWEEN).to_string();
                        let got =
                            session.ordered_get(&mut tree, text.as_bytes(), Path::Read).unwrap();
                        let value = got.value.map(|got| got.value);
                        assert_eq!(value, Some(number.to_le_bytes().to_vec()), "{text}");
                        read += u64::from(got.served_by.is_read());
                        // The last key between two that stay is never set.
                        let text = (number * BETWEEN + BETWEEN - 1).to_string();
                        let got =
                            session.ordered_get(&mut tree, text.as_bytes(), Path::Read).unwrap();
                        assert_eq!(got.value, None, "{text}");
                        read += u64::from(read_range(&mut session, &mut tree, number, seed == 1));
                    }
                    (read, tree.events())
                })
            })
            .collect();
        let deep = change_and_hold(&mut writer, &tree);
        assert!(deep > 0, "no held node was divided");
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            let (read, events) = reader.join().unwrap();
            assert!(read > 100, "{read} were read: {events:?}");
        }
    });
    let all = (false, u64::MAX >> 1);
    for path in [Path::Ask, Path::Read] {
        let mut tree = writer.open_ordered(b"t").unwrap();
        let found = writer.ordered_range(&mut tree, OrderedRange::ALL, all, path).unwrap();
        assert_eq!(found.entries.len() as u64, STAYS);
    }
}

const CHANGED: usize = 40;

/// The value that stands for a number: some lie in leaves, others in records.
fn value_of(number: u64) -> Vec<u8> {
    let bytes = [10, 256, 257, 1_000, 20_000][number as usize % 5];
    let mut value = vec![number as u8; bytes];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

fn number_of(value: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*value.first_chunk().expect("a whole value"));
    assert_eq!(value, value_of(number), "a value that never was");
    number
}

/// Values up to the longest one come and go, asked for and read. One that lies in a record takes one
/// more round trip.
#[test]
fn a_value_too_long_for_a_leaf_is_read_from_its_record() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut session = server.session_with(&options());
    let mut open = session.open_ordered(b"t").unwrap();
    let settings = OrderedSettings { value_bytes: 8, ..OrderedSettings::of(KeyForm::Integers) };
    assert!(session.ordered_create(&open, settings).unwrap());
    for number in 0..1_000u64 {
        let value = vec![number as u8; number as usize % 17];
        let of = (&value[..], number.is_multiple_of(3));
        session.ordered_set(&open, number.to_string().as_bytes(), of).unwrap();
    }
    let info = session.ordered_info(&open).unwrap().unwrap();
    assert_eq!(info.long_values, (0..1_000).filter(|number| number % 17 > 8).count() as u64);
    for bytes in [0, 8, 9, 255, 4_000, 64 << 10] {
        let value = vec![bytes as u8; bytes];
        session.ordered_set(&open, b"500", (&value, bytes == 255)).unwrap();
        let wanted = (Some((value.clone(), bytes == 255)), true, 1 + u64::from(bytes > 8));
        let read = while_read_lease_lapses(&mut session, |session| {
            session.ordered_get(&mut open, b"500", Path::Read).unwrap();
            let got = session.ordered_get(&mut open, b"500", Path::Read).unwrap();
            let value = got.value.map(|of| (of.value, of.is_link));
            (value, got.served_by.is_read(), got.counts.round_trips)
        });
        assert!(read == wanted, "{bytes} bytes: {} round trips", read.2);
        let asked = session.ordered_get(&mut open, b"500", Path::Ask).unwrap().value.unwrap();
        assert_eq!((asked.value, asked.is_link), wanted.0.unwrap());
    }
    for is_reverse in [false, true] {
        let of = (is_reverse, 10_000);
        let asked =
            session.ordered_range(&mut open, OrderedRange::ALL, of, Path::Ask).unwrap().entries;
        assert_eq!(asked.len(), 1_000);
        let read = while_read_lease_lapses(&mut session, |session| {
            let found =
                session.ordered_range(&mut open, OrderedRange::ALL, of, Path::Read).unwrap();
            (found.entries == asked, found.served_by.is_read())
        });
        assert_eq!(read, (true, true));
    }
    assert!(session.ordered_remove(&open, b"500").unwrap());
    let got = session.ordered_get(&mut open, b"500", Path::Read).unwrap();
    assert_eq!(got.value, None);
}

/// A writer replaces values in leaves and in records by each other: a reader sees none that never was,
/// and none older than one that any reader has seen before it began.
#[test]
fn long_values_beside_a_writer_are_none_older_than_one_that_was_shown() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut writer = server.session_with(&options());
    let tree = writer.open_ordered(b"t").unwrap();
    let key = |at: usize| format!("key {at:03}");
    for at in 0..CHANGED {
        writer.ordered_set(&tree, key(at).as_bytes(), (&value_of(0), false)).unwrap();
    }
    let (over, shown) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; CHANGED]);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2u64)
            .map(|seed| {
                let (server, over, shown) = (&server, &over, &shown);
                scope.spawn(move || {
                    let mut session = server.session_with(&options());
                    let (mut random, mut read) = (Random::new(seed), 0u64);
                    let mut tree = session.open_ordered(b"t").unwrap();
                    while !over.load(Ordering::Relaxed) {
                        let at = random.below(CHANGED);
                        let least = shown[at].load(Ordering::SeqCst);
                        let path = if random.one_in(8) { Path::Ask } else { Path::Read };
                        let got = session.ordered_get(&mut tree, key(at).as_bytes(), path).unwrap();
                        let number = number_of(&got.value.expect("it stays").value);
                        assert!(number >= least, "{at}: {number} after {least}");
                        shown[at].fetch_max(number, Ordering::SeqCst);
                        read += u64::from(got.served_by.is_read());
                        let least = shown.each_ref().map(|of| of.load(Ordering::SeqCst));
                        let all = OrderedRange::ALL;
                        let found =
                            session.ordered_range(&mut tree, all, (false, 99), Path::Read).unwrap();
                        assert_eq!(found.entries.len(), CHANGED);
                        for (at, (_, value)) in found.entries.iter().enumerate() {
                            let number = number_of(&value.value);
                            assert!(number >= least[at], "{at}: {number} after {}", least[at]);
                            shown[at].fetch_max(number, Ordering::SeqCst);
                        }
                        read += u64::from(found.served_by.is_read());
                    }
                    (read, tree.events())
                })
            })
            .collect();
        let mut random = Random::new(77);
        for number in 1..20_000u64 {
            let at = random.below(CHANGED);
            let of = (&value_of(number)[..], false);
            assert!(!writer.ordered_set(&tree, key(at).as_bytes(), of).unwrap());
        }
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            let (read, events) = reader.join().unwrap();
            assert!(read > 20, "{read} were read: {events:?}");
        }
    });
    let info = writer.ordered_info(&tree).unwrap().unwrap();
    assert!(info.long_values > 0 && info.keys == CHANGED as u64);
    writer.del(b"t").unwrap();
}

/// Changes are durable late: a reader that keeps the upper nodes still needs one round trip, and asks
/// only for what is not durable yet.
#[test]
fn kept_nodes_lead_to_durable_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    for durability in ["--durability=memory", "--durability=fsync", "--durability=everysec"] {
        let data_dir = format!("--data-dir={data}/{durability}");
        let server = ServerProcess::start(&["--max-memory=64MiB", durability, &data_dir]);
        let mut session = server.session_with(&options());
        let mut tree = session.open_ordered(b"t").unwrap();
        let settings = OrderedSettings { fan_out: 8, ..OrderedSettings::of(KeyForm::Integers) };
        assert!(session.ordered_create(&tree, settings).unwrap());
        for number in 0..4_000u32 {
            let text = number.to_string();
            session.ordered_set(&tree, text.as_bytes(), (text.as_bytes(), false)).unwrap();
        }
        // Until the last change is durable.
        std::thread::sleep(Duration::from_millis(2_500));
        let mut get = |number: u32| {
            let text = number.to_string();
            let got = session.ordered_get(&mut tree, text.as_bytes(), Path::Read).unwrap();
            assert_eq!(got.value.as_ref().unwrap().value, text.as_bytes());
            got
        };
        (0..4_000).for_each(|number| drop(get(number)));
        let (mut asked, mut trips, mut lapsed) = (0, 0, 0);
        for number in 0..4_000 {
            let got = get(number * 7 % 4_000);
            asked += u64::from(!got.served_by.is_read());
            trips += got.counts.round_trips;
            lapsed += got.counts.read_lease_lapsed;
        }
        assert!(asked <= lapsed, "{durability}: {asked} were asked, {lapsed} leases lapsed");
        assert!(trips - lapsed <= 4_100, "{durability}: {trips} round trips");
        let range = OrderedRange { from: Bound::Included(b"5"), to: Bound::Unbounded };
        let found = session.ordered_range(&mut tree, range, (false, 100), Path::Read).unwrap();
        assert_eq!(found.entries.len(), 100);
        assert!(found.served_by.is_read() || found.counts.read_lease_lapsed > 0, "{found:?}");
    }
}

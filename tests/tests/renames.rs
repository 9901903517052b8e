//! A large hash is renamed from key to key, of one shard and of several, while
//! clients read its fields one-sidedly and ask for its length.

use remora_client_core::{Path, ServedBy, Session};
use remora_tests::{Random, Resp, ServerProcess, Value, encode, options};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

const FIELDS: u64 = 600;
const KEYS: [&[u8]; 4] = [b"{t}a", b"{t}b", b"c", b"d"];
const ROUNDS: u64 = 150;

fn name(at: u64) -> Vec<u8> {
    format!("field {at}").into_bytes()
}

/// Sets all fields in one call, each to its name with a number behind it.
fn fill(resp: &mut Resp, key: &[u8], stamp: u64) {
    let pairs: Vec<Vec<u8>> =
        (0..FIELDS).flat_map(|at| [name(at), format!("field {at}:{stamp}").into_bytes()]).collect();
    let mut words: Vec<&[u8]> = vec![b"HSET", key];
    words.extend(pairs.iter().map(Vec::as_slice));
    assert!(matches!(resp.try_call(&words).expect("it replies"), Value::Integer(_)));
}

/// The number behind a field's name, read one-sidedly if that can be.
fn stamp_of(got: Option<&[u8]>, at: u64) -> Option<u64> {
    let text = std::str::from_utf8(got?).expect("its own value");
    let stamp = text.strip_prefix(&format!("field {at}:")).expect("its own value");
    Some(stamp.parse().expect("a number"))
}

/// Reads until it is over. How many fields were read one-sidedly.
fn read(mut session: Session, seed: u64, over: &AtomicBool) -> u64 {
    let mut random = Random::new(seed);
    let mut hashes = KEYS.map(|key| session.open_hash(key).expect("it connects"));
    let mut newest: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    let mut one_sided = 0;
    while !over.load(Ordering::Relaxed) {
        let (of, at) = (random.below(KEYS.len()), random.below(FIELDS as usize) as u64);
        if random.below(8) == 0 {
            let length = session.hash_len(&hashes[of]).expect("it answers");
            assert!(length == 0 || length == FIELDS, "half a hash: {length}");
            continue;
        }
        let got = session.hash_get(&mut hashes[of], &name(at), Path::Read).expect("it reads");
        one_sided += u64::from(matches!(got.served_by, ServedBy::Read | ServedBy::ReadAfter(_)));
        let Some(stamp) = stamp_of(got.value, at) else { continue };
        let before = newest.insert((of, at), stamp).unwrap_or(0);
        assert!(stamp >= before, "{stamp} after {before}");
    }
    one_sided
}

#[test]
fn readers_beside_renames_see_no_half_hash_and_none_that_has_gone() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (session, over) = (server.session_with(&options()), &over);
                scope.spawn(move || read(session, seed, over))
            })
            .collect();
        let mut resp = Resp::connect(server.resp_address()).expect("it takes connections");
        let mut own = server.session_with(&options());
        let mut hashes = KEYS.map(|key| own.open_hash(key).expect("it connects"));
        let (mut random, mut is_at) = (Random::new(9), 0);
        fill(&mut resp, KEYS[0], 1);
        for stamp in 2..ROUNDS {
            let (from, to) = (is_at, (is_at + 1 + random.below(3)) % KEYS.len());
            let rename = resp.try_call(&[b"RENAME", KEYS[from], KEYS[to]]).expect("it replies");
            assert_eq!(rename, Value::Simple("OK".into()));
            is_at = to;
            // Once it is answered there is one, also for clients with pointers.
            let at = random.below(FIELDS as usize) as u64;
            let old = own.hash_get(&mut hashes[from], &name(at), Path::Read).expect("it reads");
            assert_eq!(old.value, None);
            let new = own.hash_get(&mut hashes[to], &name(at), Path::Read).expect("it reads");
            assert_eq!(stamp_of(new.value, at), Some(stamp - 1));
            fill(&mut resp, KEYS[to], stamp);
        }
        over.store(true, Ordering::Relaxed);
        let one_sided: u64 =
            readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
        assert!(one_sided > 100, "{one_sided} were read");
    });
}

/// Adds to one key as fast as it can. How many additions were answered, and how many
/// refused.
fn add(mut resp: Resp, over: &AtomicBool) -> (u64, u64) {
    const TOGETHER: usize = 500;
    let additions = encode(&[b"INCR", b"counter"]).repeat(TOGETHER);
    let (mut answered, mut refused) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        resp.send_raw(&additions).expect("it is taken");
        for _ in 0..TOGETHER {
            match resp.receive().expect("it replies") {
                Value::Integer(_) => answered += 1,
                Value::Error(text) if text.starts_with("TRYAGAIN") => refused += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    (answered, refused)
}

/// Clients add to one key while another one renames that to keys of its shard and of
/// another one: no addition that was answered is lost.
#[test]
fn no_answered_addition_to_a_key_that_is_renamed_is_lost() {
    const NAMES: usize = 300;
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let connect = || Resp::connect(server.resp_address()).expect("it takes connections");
    let over = AtomicBool::new(false);
    let name = |at: usize| format!("counted {at}").into_bytes();
    let (answered, refused) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let (resp, over) = (connect(), &over);
                scope.spawn(move || add(resp, over))
            })
            .collect();
        let (mut resp, mut renamed) = (connect(), 0);
        while renamed < NAMES {
            match resp.try_call(&[b"RENAME", b"counter", &name(renamed)]).expect("it replies") {
                Value::Simple(_) => renamed += 1,
                // Nothing was added since the last time.
                Value::Error(text) => assert_eq!(text, "ERR no such key"),
                other => panic!("{other:?}"),
            }
        }
        over.store(true, Ordering::Relaxed);
        let counts = writers.into_iter().map(|writer| writer.join().expect("no panic"));
        counts.fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1))
    });
    let (mut resp, mut sum) = (connect(), 0);
    for name in (0..NAMES).map(name).chain([b"counter".to_vec()]) {
        match resp.try_call(&[b"GET", &name]).expect("it replies") {
            Value::Bulk(text) => sum += std::str::from_utf8(&text).unwrap().parse::<u64>().unwrap(),
            Value::Null => assert_eq!(name, b"counter"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sum, answered, "{refused} were refused");
}

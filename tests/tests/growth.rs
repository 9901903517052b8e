//! The index grows under readers: a session that connected to an empty server,
//! and the server's other threads, follow without asking.

use remora_client_core::{Options, Path, SetOptions, Wake};
use remora_tests::{ServerProcess, Value};

const KEYS: u32 = 60_000;
/// Keys of one batch.
const BATCH: u32 = 500;

fn key(number: u32) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[..4].copy_from_slice(&number.to_le_bytes());
    key
}

fn value(number: u32) -> [u8; 32] {
    [number as u8; 32]
}

/// Sets keys `from..to`.
fn load(session: &mut remora_client_core::Session, from: u32, to: u32) {
    let keys: Vec<[u8; 16]> = (from..to).map(key).collect();
    let values: Vec<[u8; 32]> = (from..to).map(value).collect();
    let pairs: Vec<(&[u8], &[u8])> =
        keys.iter().zip(&values).map(|(key, value)| (&key[..], &value[..])).collect();
    for pairs in pairs.chunks(10_000) {
        session.set_many(pairs).unwrap();
    }
}

/// A session without pointers: each read begins at the index.
fn cold() -> Options {
    Options { wake: Wake::Event, pointer_cache_entries: 0, ..remora_tests::by_pointers() }
}

#[test]
fn a_session_with_an_old_view_refreshes_it_and_reads_on() {
    // 64 buckets at first, more than 11 000 at the end: over seven doublings.
    let server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB", "--buckets=64"]);
    let mut reader = server.session_with(&cold());
    let mut late = server.session_with(&cold());
    load(&mut server.session(), 0, KEYS);

    for number in (0..KEYS).step_by(7) {
        let got = reader.get(&key(number), Path::Read).unwrap();
        assert_eq!(got.value, Some(&value(number)[..]));
    }
    let totals = reader.totals();
    println!("one by one: {totals:?}");
    assert_eq!(totals.operations, totals.read + totals.asked);
    // A read lease that lapsed on a busy machine may send some to the owner.
    assert_eq!(totals.asked, totals.read_lease_lapsed + totals.undecided, "{totals:?}");
    assert!(totals.undecided <= 2, "{totals:?}");
    assert_eq!(totals.retries, 1, "told once, and the view holds from then on");
    let trips = totals.round_trips - totals.nodes - totals.asked;
    assert_eq!(trips, 1, "one fetch of the header page");

    // The same in batches: one fetch of the page for a whole batch.
    let mut seen = 0;
    for first in (0..KEYS).step_by(BATCH as usize) {
        let keys: Vec<[u8; 16]> = (first..first + BATCH).map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        late.get_batch(&keys, Path::Read, &mut |at, found, _| {
            assert_eq!(found, Some(&value(first + at as u32)[..]));
            seen += 1;
        })
        .unwrap();
    }
    let totals = late.totals();
    println!("in batches: {totals:?}");
    assert_eq!(seen, KEYS);
    assert_eq!(totals.asked, totals.read_lease_lapsed + totals.undecided, "{totals:?}");
    assert!(totals.undecided <= 2, "{totals:?}");
    assert!(totals.retries <= BATCH as u64, "only the first batch is told: {totals:?}");
}

#[test]
fn readers_follow_while_the_table_grows_and_empties() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB", "--buckets=64"]);
    let mut writer = server.session();
    let mut reader = server.session_with(&cold());
    let mut resp = server.resp();
    load(&mut writer, 0, 500);
    let before = resp.info("optimistic_reads");
    for round in 0..40 {
        load(&mut writer, 500 + round * 500, 1_000 + round * 500);
        for number in (0..500).step_by(11) {
            let got = reader.get(&key(number), Path::Read).unwrap();
            assert_eq!(got.value, Some(&value(number)[..]));
            let answer = resp.try_call(&[b"GET", &key(number)]).unwrap();
            assert_eq!(answer, Value::bulk(value(number)));
        }
    }
    for number in 500..20_500 {
        assert!(writer.del(&key(number)).unwrap());
    }
    for number in 0..500 {
        let got = reader.get(&key(number), Path::Read).unwrap();
        assert_eq!(got.value, Some(&value(number)[..]));
        assert!(!writer.set(&key(number), b"", only_if_absent()).unwrap());
    }
    let totals = reader.totals();
    println!("{totals:?}");
    assert_eq!(totals.asked, totals.read_lease_lapsed + totals.undecided, "{totals:?}");
    assert!(totals.undecided <= 5, "{totals:?}");
    assert!(totals.retries >= 5, "the view was renewed again and again: {totals:?}");
    let read = resp.info("optimistic_reads") - before;
    // About half of the keys are in the shard whose thread does not have the connection.
    assert!(read >= 40 * 46 / 3, "RESP reads without asking: {read}");
}

fn only_if_absent() -> SetOptions {
    let condition = remora_protocol::Condition::IfAbsent;
    SetOptions { condition, ..SetOptions::default() }
}

//! Batches of GETs: the answers of as many single ones, and their cost in fewer
//! trips.

use remora_client_core::{Counts, Options, Path, ServedBy, Session, SetOptions, Wake};
use remora_protocol::{Condition, Expiry};
use remora_tests::{ServerProcess, long_leases, wait_for, wait_until, while_read_lease_lapses};
use std::time::{SystemTime, UNIX_EPOCH};

const KEYS: u32 = 60;

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=2", "--max-memory=32MiB"])
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn value(number: u32, round: u32) -> Vec<u8> {
    vec![(number + round) as u8; 10 + number as usize * 7]
}

fn set(session: &mut Session, numbers: impl Iterator<Item = u32>, round: u32) {
    for number in numbers {
        session.set(&key(number), &value(number, round), SetOptions::default()).unwrap();
    }
}

type Answers = Vec<(Option<Vec<u8>>, ServedBy)>;

/// Each key's answer, which comes once, and the cost of all.
fn batch(session: &mut Session, keys: &[Vec<u8>], path: Path) -> (Answers, Counts) {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut answers = vec![None; keys.len()];
    let before = session.totals();
    let counts = session.get_batch(&keys, path, &mut |at, value, via| {
        let answer = (value.map(<[u8]>::to_vec), via);
        assert!(answers[at].replace(answer).is_none(), "key {at} was answered twice");
    });
    let counts = counts.unwrap();
    assert_eq!(session.totals().since(&before), counts);
    let answers: Answers = answers.into_iter().map(|answer| answer.expect("answered")).collect();
    assert_eq!(counts.operations, keys.len() as u64);
    assert_eq!(counts.read + counts.asked, counts.operations);
    let read =
        answers.iter().filter(|(_, via)| matches!(via, ServedBy::Read | ServedBy::ReadAfter(_)));
    assert_eq!(counts.read, read.count() as u64);
    (answers, counts)
}

/// The same, one at a time; and the most trips that one took.
fn singles(session: &mut Session, keys: &[Vec<u8>], path: Path) -> (Answers, Counts, u64) {
    let (mut counts, mut most_trips) = (Counts::default(), 0);
    let answers = keys.iter().map(|key| {
        let got = session.get(key, path).unwrap();
        counts.add(&got.counts);
        most_trips = most_trips.max(got.counts.round_trips);
        (got.value.map(<[u8]>::to_vec), got.served_by)
    });
    let answers = answers.collect();
    (answers, counts, most_trips)
}

fn keys() -> Vec<Vec<u8>> {
    (0..KEYS).map(key).collect()
}

/// A session whose pointers' leases outlast the test.
fn session(server: &ServerProcess) -> Session {
    server.session_with(&Options { wake: Wake::Event, ..long_leases() })
}

/// The same, which knows no pointer and may read.
fn cold(server: &ServerProcess) -> Session {
    let mut session = session(server);
    session.exists(b"anything").unwrap();
    session
}

fn with_trips(mut counts: Counts, round_trips: u64) -> Counts {
    counts.round_trips = round_trips;
    counts
}

#[test]
fn by_pointers_a_batch_is_one_trip() {
    let server = server();
    let mut session = session(&server);
    set(&mut session, 0..KEYS, 0);
    batch(&mut session, &keys(), Path::Ask);
    for path in [Path::Choose, Path::Read] {
        let (many, (answers, counts, _)) = while_read_lease_lapses(&mut session, |session| {
            (batch(session, &keys(), path), singles(session, &keys(), path))
        });
        assert_eq!(many.0, answers);
        assert_eq!(many.1, with_trips(counts, 1));
        assert_eq!((counts.hits, counts.nodes), (KEYS as u64, KEYS as u64));
        for (number, (found, via)) in (0..).zip(many.0) {
            assert_eq!((found, via), (Some(value(number, 0)), ServedBy::Read));
        }
    }
}

#[test]
fn without_pointers_a_batch_walks_in_step_or_asks() {
    let server = server();
    set(&mut server.session(), 0..KEYS, 0);
    // Pointers that a session learns while its read lease has lapsed are no part of
    // this: then it takes fresh sessions.
    let both = wait_for("two sessions have a read lease all the while", || {
        let mut session = cold(&server);
        let many = batch(&mut session, &keys(), Path::Read);
        let single = singles(&mut cold(&server), &keys(), Path::Read);
        (many.1.read_lease_lapsed + single.1.read_lease_lapsed == 0)
            .then_some((session, many, single))
    });
    let (mut session, many, (answers, counts, most_trips)) = both;
    assert_eq!((counts.asked, counts.retries), (0, 0));
    assert_eq!(many.0, answers);
    assert_eq!(many.1, with_trips(counts, most_trips));
    // What it found it knows from now on.
    let (_, again) =
        while_read_lease_lapses(&mut session, |session| batch(session, &keys(), Path::Choose));
    assert_eq!((again.hits, again.round_trips, again.asked), (KEYS as u64, 1, 0));
    for path in [Path::Choose, Path::Ask] {
        let (asked, counts) = batch(&mut cold(&server), &keys(), path);
        assert_eq!((counts.asked, counts.hits, counts.nodes), (KEYS as u64, 0, 0));
        for (number, (found, via)) in (0..).zip(asked) {
            assert_eq!((found, via), (Some(value(number, 0)), ServedBy::Asked));
        }
    }
}

#[test]
fn what_was_overwritten_or_is_absent_is_asked_for() {
    let server = server();
    let mut writer = session(&server);
    let mut reader = cold(&server);
    for (path, round) in [(Path::Choose, 1), (Path::Read, 2)] {
        let mut wanted = keys();
        wanted.push(b"absent".to_vec());
        let (answers, counts) = while_read_lease_lapses(&mut reader, |reader| {
            set(&mut writer, 0..KEYS, 0);
            batch(reader, &keys(), Path::Ask);
            set(&mut writer, (0..KEYS).step_by(3), round);
            batch(reader, &wanted, path)
        });
        assert_eq!(counts.stale, KEYS as u64 / 3, "{counts:?}");
        for (number, (found, via)) in (0..KEYS).zip(&answers) {
            let is_new = number % 3 == 0;
            let expected = value(number, if is_new { round } else { 0 });
            assert_eq!(found.as_ref(), Some(&expected));
            assert!(!is_new || *via != ServedBy::Read);
        }
        assert_eq!(answers[KEYS as usize].0, None);
    }
}

#[test]
fn a_batch_never_reads_what_has_expired() {
    let server = server();
    let mut session = session(&server);
    let unix_ms = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let (mut round, mut read, mut late) = (0, 0, 0);
    wait_until("values are read before they expire, and looked for afterwards", || {
        let at = unix_ms() + 50;
        let expires = SetOptions { condition: Condition::Always, expiry: Expiry::At(at) };
        for number in 0..4 {
            session.set(&key(number), &value(number, round), expires).unwrap();
        }
        let wanted: Vec<Vec<u8>> = (0..4).map(key).collect();
        let path = [Path::Read, Path::Choose][round as usize % 2];
        while unix_ms() <= at + 20 {
            let before = unix_ms();
            let (answers, counts) = batch(&mut session, &wanted, path);
            let after = unix_ms();
            for (found, via) in answers {
                // The server's clock is cut to ms and may lag by as much.
                assert!(after >= at || found.is_some(), "gone {} ms early", at - after);
                assert!(before <= at + 1 || found.is_none(), "{} ms late by {via:?}", before - at);
                late += (before > at + 1) as u32;
            }
            read += counts.read;
        }
        round += 1;
        round >= 6 && read > 100 && late > 0
    });
}

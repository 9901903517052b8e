//! Sessions at their bounds: sizes, full memory, wrap-around, expiry, flush,
//! and what one session sees of another.

use remora_client_core::{Counts, Error, Options, Path, ServedBy, Session, SetOptions, Wake};
use remora_layout::limits::{
    MAX_INLINE_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, RING_BYTES, STREAM_BYTES,
};
use remora_protocol::{Command, Condition, Expiry};

/// Longest value that this client sends with any key of these tests but the longest.
const MOST: usize = MAX_INLINE_BYTES - 16;
use remora_protocol::message::Status;
use remora_tests::{
    DEADLINE, ServerProcess, Value, long_leases, wait_for, wait_until, while_read_lease_lapses,
};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PATHS: [Path; 3] = [Path::Ask, Path::Read, Path::Choose];

fn server(flags: &[&str]) -> ServerProcess {
    ServerProcess::start(flags)
}

fn value_of(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + bytes) as u8).collect()
}

/// A session whose pointers' leases outlast the test.
fn session(server: &ServerProcess) -> Session {
    server.session_with(&Options { wake: Wake::Event, ..long_leases() })
}

/// A GET of `k`: its value, how it was served, and what it cost.
fn get(session: &mut Session, path: Path) -> (Option<Vec<u8>>, ServedBy, Counts) {
    let got = session.get(b"k", path).unwrap();
    (got.value.map(<[u8]>::to_vec), got.served_by, got.counts)
}

#[test]
fn a_key_is_asked_then_read() {
    let server = server(&["--shards=2", "--max-memory=32MiB"]);
    let mut session = session(&server);
    let (old, new) = (Some(b"v".to_vec()), Some(b"w".to_vec()));
    assert!(session.get(b"k", Path::Choose).unwrap().value.is_none());
    assert!(session.set(b"k", b"v", SetOptions::default()).unwrap());
    let (value, via, counts) = get(&mut session, Path::Ask);
    assert_eq!((&value, via, counts.round_trips), (&old, ServedBy::Asked, 1));
    let (value, via, counts) =
        while_read_lease_lapses(&mut session, |session| get(session, Path::Choose));
    assert_eq!((&value, via, counts.round_trips), (&old, ServedBy::Read, 1));
    assert_eq!((counts.hits, counts.nodes), (1, 1));
    // Another session has no pointer: bucket, then record. Asking for
    // anything first gives it the read lease.
    let (mut other, (value, via, counts)) = wait_for("another session reads", || {
        let mut other = self::session(&server);
        assert!(other.exists(b"k").unwrap());
        let got = get(&mut other, Path::Read);
        (got.2.read_lease_lapsed == 0).then_some((other, got))
    });
    assert_eq!((&value, via, counts.round_trips), (&old, ServedBy::Read, 2));
    let (_, via, counts) = while_read_lease_lapses(&mut other, |other| get(other, Path::Read));
    assert_eq!((via, counts.round_trips, counts.nodes), (ServedBy::Read, 1, 1));
    // An update makes its pointer stale: one wasted READ, then it asks.
    let (value, via, counts) = while_read_lease_lapses(&mut other, |other| {
        session.set(b"k", b"w", SetOptions::default()).unwrap();
        get(other, Path::Choose)
    });
    assert_eq!((&value, via, counts.stale), (&new, ServedBy::AskedAfterRead, 1));
    assert_eq!(counts.round_trips, 2);
    let (value, via, _) = while_read_lease_lapses(&mut other, |other| get(other, Path::Choose));
    assert_eq!((value, via), (new, ServedBy::Read));
}

#[test]
fn every_size_up_to_the_limits_is_kept() {
    let server = server(&["--shards=1", "--max-memory=64MiB"]);
    let mut session = server.session();
    // Around every size class: 32 bytes of header, key and value.
    let mut sizes: Vec<usize> = (0..40).collect();
    let mut size = 48;
    while size < MOST {
        sizes.extend([size - 33, size - 32, size - 31, size]);
        size += (size / 8).max(16);
    }
    sizes.extend([MOST - 1, MOST]);
    for &bytes in &sizes {
        let (key, value) = (bytes.to_le_bytes(), value_of(bytes));
        assert!(session.set(&key, &value, SetOptions::default()).unwrap(), "{bytes}");
        for path in PATHS {
            assert_eq!(
                session.get(&key, path).unwrap().value,
                Some(&value[..]),
                "{bytes} {path:?}"
            );
        }
    }
    for bytes in (0..200).chain([1000, 4000, MAX_KEY_BYTES - 1, MAX_KEY_BYTES]) {
        let key = vec![b'x'; bytes];
        let value = value_of(if bytes == MAX_KEY_BYTES { MAX_INLINE_BYTES - bytes } else { 10 });
        session.set(&key, &value, SetOptions::default()).unwrap();
        for path in PATHS {
            assert_eq!(
                session.get(&key, path).unwrap().value,
                Some(&value[..]),
                "{bytes} {path:?}"
            );
        }
    }
    println!("{} sizes of values", sizes.len());
}

#[test]
fn what_is_too_long_is_refused_and_the_session_lives_on() {
    let server = server(&["--shards=1", "--max-memory=32MiB"]);
    let mut session = server.session();
    let (key, value) = (vec![b'k'; MAX_KEY_BYTES + 1], vec![b'v'; MAX_VALUE_BYTES + 1]);
    let options = SetOptions::default();
    assert_eq!(session.set(b"k", &value, options), Err(Error::ValueTooLong));
    assert_eq!(session.set(&key, b"v", options), Err(Error::KeyTooLong));
    assert_eq!(session.del(&key), Err(Error::KeyTooLong));
    assert_eq!(session.incr(&key, 1), Err(Error::KeyTooLong));
    for path in PATHS {
        assert_eq!(session.get(&key, path).unwrap_err(), Error::KeyTooLong);
        assert_eq!(session.get_batch(&[&key], path, &mut |_, _, _| ()), Err(Error::KeyTooLong));
    }
    assert_eq!(session.set_many(&[(b"k", &value)]), Err(Error::ValueTooLong));
    let long = Command::Set {
        key: b"k",
        value: &value,
        condition: Condition::Always,
        expiry: Expiry::Never,
        get: false,
    };
    let submitted = session.submit(&long);
    if submitted.is_ok() {
        // Then the server has to refuse it.
        let refused = session.next_reply(&mut |_, reply| assert_ne!(reply.status, Status::Ok));
        assert_eq!(refused, Ok(true));
    }
    assert!(session.set(b"k", b"v", options).unwrap());
    assert_eq!(session.get(b"k", Path::Read).unwrap().value, Some(&b"v"[..]));
    assert_eq!(server.resp().call("DBSIZE"), Value::Integer(1));
}

#[test]
fn a_submitted_value_beyond_any_frame_goes_in_pieces() {
    let server = server(&["--shards=1", "--max-memory=32MiB"]);
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut session = server.session();
    std::thread::spawn(move || {
        for bytes in [130 << 10, 200 << 10, 300 << 10, 1 << 20] {
            let value = vec![1; bytes];
            let set = Command::Set {
                key: b"k",
                value: &value,
                condition: Condition::Always,
                expiry: Expiry::Never,
                get: false,
            };
            let submitted = session.submit(&set).is_ok()
                && session.next_reply(&mut |_, reply| assert_eq!(reply.status, Status::Ok))
                    == Ok(true);
            let kept = session.get(b"k", Path::Ask).unwrap().value == Some(&value[..]);
            let _ = sender.send((bytes, submitted, kept));
        }
    });
    for _ in 0..4 {
        let answered = receiver.recv_timeout(DEADLINE);
        let (bytes, submitted, kept) = answered.expect("it does not hang");
        assert!(submitted && kept, "{bytes} bytes");
    }
}

#[test]
fn full_memory_is_said_and_nothing_is_lost() {
    let server = server(&["--shards=1", "--max-memory=4MiB", "--buckets=256"]);
    let mut session = server.session();
    let mut kept = 0u32;
    let error = loop {
        let (key, value) = (kept.to_le_bytes(), value_of(1000 + kept as usize % 500));
        match session.set(&key, &value, SetOptions::default()) {
            Ok(done) => assert!(done),
            Err(error) => break error,
        }
        kept += 1;
        assert!(kept < 100_000, "memory never gets full");
    };
    assert_eq!(error, Error::Refused(Status::OutOfMemory));
    assert!(error.to_string().contains("memory is full") && !error.is_final(), "{error}");
    println!("{kept} records fit 4 MiB");
    assert!(kept > 2000, "{kept}");
    for number in 0..kept {
        let value = value_of(1000 + number as usize % 500);
        let path = PATHS[number as usize % 3];
        let got = session.get(&number.to_le_bytes(), path).unwrap();
        assert_eq!(got.value, Some(&value[..]), "{number}");
    }
    // What is removed makes room again.
    for number in 0..kept / 2 {
        assert!(session.del(&number.to_le_bytes()).unwrap());
    }
    for number in 0..kept / 4 {
        let value = value_of(1000 + number as usize % 500);
        session.set(&number.to_le_bytes(), &value, SetOptions::default()).unwrap();
    }
    for number in kept / 2..kept {
        assert!(session.exists(&number.to_le_bytes()).unwrap(), "{number}");
    }
}

#[test]
fn large_frames_wrap_around_and_pipelines_fill_the_rings() {
    let server = server(&["--shards=1", "--max-memory=64MiB"]);
    let mut session = server.session();
    let mut sent = 0;
    for round in 0..60usize {
        // Odd lengths, so that the ring's end is met at many places.
        let value = value_of(STREAM_BYTES - round * 997);
        let key = [b'w', (round % 7) as u8];
        session.set(&key, &value, SetOptions::default()).unwrap();
        for _ in 0..12 {
            session.submit(&Command::Get { key: &key }).unwrap();
        }
        for _ in 0..12 {
            let taken =
                session.next_reply(&mut |_, reply| assert_eq!(reply.value, Some(&value[..])));
            assert!(taken.unwrap());
        }
        sent += 12 * value.len();
    }
    assert!(sent > 50 * RING_BYTES, "many laps: {sent} bytes");
    // More requests than fit a ring, replies taken late.
    for id in 0..1000u32 {
        session.submit(&Command::Get { key: &[b'w', (id % 7) as u8] }).unwrap();
        if id % 100 == 99 {
            for _ in 0..100 {
                assert!(
                    session.next_reply(&mut |_, reply| assert!(reply.value.is_some())).unwrap()
                );
            }
        }
    }
    assert_eq!(session.in_flight(), 0);
}

#[test]
fn after_a_flush_was_answered_no_old_value_is_read() {
    let server = server(&["--shards=2", "--max-memory=32MiB"]);
    let (mut one, mut two) = (server.session(), server.session());
    let mut resp = server.resp();
    for round in 0..50u32 {
        let value = round.to_le_bytes();
        for key in 0..20u8 {
            one.set(&[key], &value, SetOptions::default()).unwrap();
        }
        for key in 0..20u8 {
            for session in [&mut one, &mut two] {
                assert_eq!(session.get(&[key], Path::Read).unwrap().value, Some(&value[..]));
            }
        }
        assert_eq!(resp.call("FLUSHALL"), Value::ok());
        for key in 0..20u8 {
            let path = PATHS[key as usize % 3];
            assert_eq!(one.get(&[key], path).unwrap().value, None, "round {round}");
            assert_eq!(two.get(&[key], path).unwrap().value, None, "round {round}");
        }
        assert_eq!(resp.call("DBSIZE"), Value::Integer(0));
    }
    assert!(two.totals().stale > 0, "its pointers were cached");
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn what_has_expired_is_never_read() {
    let server = server(&["--shards=1", "--max-memory=32MiB"]);
    let mut session = session(&server);
    let (mut round, mut read, mut late) = (0u32, 0, 0);
    wait_until("a value is read before it expires, and looked for afterwards", || {
        let key = round.to_le_bytes();
        let at = unix_ms() + 50;
        let set = SetOptions { condition: Condition::Always, expiry: Expiry::At(at) };
        session.set(&key, b"v", set).unwrap();
        let path = PATHS[1 + round as usize % 2];
        loop {
            let before = unix_ms();
            let got = session.get(&key, path).unwrap();
            let (found, via) = (got.value.is_some(), got.served_by);
            let after = unix_ms();
            // One machine, one clock: before it has expired it is there,
            // afterwards it is not. The server's clock is cut to ms and may
            // lag by as much.
            if after < at {
                assert!(found, "gone {} ms early", at - after);
            } else if before > at + 1 {
                assert!(!found, "read {} ms late by {via:?}", before - at);
            }
            read += (found && via == ServedBy::Read) as u32;
            if before > at + 20 {
                break;
            }
            late += !found as u32;
        }
        round += 1;
        round >= 12 && read > 100 && late > 0
    });
    println!("{read} reads while it lived, {late} misses afterwards");
}

#[test]
fn a_shortened_expiry_holds_for_cached_pointers_too() {
    let server = server(&["--shards=1", "--max-memory=32MiB"]);
    let mut session = session(&server);
    session.set(b"k", b"v", SetOptions::default()).unwrap();
    let (_, via, _) = while_read_lease_lapses(&mut session, |session| get(session, Path::Read));
    assert_eq!(via, ServedBy::Read);
    let mut resp = server.resp();
    assert_eq!(resp.call("PEXPIRE k 60"), Value::Integer(1));
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(100) {
        let late = since.elapsed() > Duration::from_millis(62);
        let found = session.get(b"k", Path::Read).unwrap().value.is_some();
        assert!(!(late && found), "read after its expiry");
    }
    assert_eq!(session.get(b"k", Path::Read).unwrap().value, None);
    assert_eq!(resp.call("GET k"), Value::Null);
}

#[test]
fn a_write_by_one_session_is_seen_by_the_other_at_once() {
    let server = server(&["--shards=2", "--max-memory=32MiB"]);
    let (mut one, mut two) = (server.session(), server.session());
    let mut resp = server.resp();
    for round in 0..2000u32 {
        let (key, value) = ([b'k', (round % 9) as u8], round.to_string());
        one.set(&key, value.as_bytes(), SetOptions::default()).unwrap();
        let path = PATHS[round as usize % 3];
        assert_eq!(two.get(&key, path).unwrap().value, Some(value.as_bytes()), "{path:?}");
        if round % 10 == 0 {
            let got = resp.try_call(&[b"GET", &key]).unwrap();
            assert_eq!(got, Value::bulk(value.as_bytes()));
            assert_eq!(resp.try_call(&[b"SET", &key, b"by resp"]).unwrap(), Value::ok());
            assert_eq!(one.get(&key, Path::Read).unwrap().value, Some(&b"by resp"[..]));
            assert_eq!(two.get(&key, path).unwrap().value, Some(&b"by resp"[..]));
        }
    }
}

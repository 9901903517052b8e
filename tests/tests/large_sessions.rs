//! Values and keys that no frame carries, by sessions, over both transports.

use remora_client_core::{
    Client, Error, Options, Path, PointerCacheKind, ServedBy, Session, SetOptions, Wake, Wanted,
};
use remora_tests::{Random, ServerProcess, long_leases, wait_until, while_read_lease_lapses};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const MIB: usize = 1 << 20;
const KEY_LIMIT: usize = 64 << 10;
const VALUE_LIMIT: usize = 64 * MIB;
const FLAGS: [&str; 4] =
    ["--max-memory=400MiB", "--shards=1", "--fabric-address=127.0.0.1:0", "--wake=event"];

fn options(transport: Wanted) -> Options {
    Options { transport, wake: Wake::Event, ..remora_tests::by_pointers() }
}

fn session(server: &ServerProcess, transport: Wanted) -> Session {
    server.session_with(&options(transport))
}

fn value(seed: u64, bytes: usize) -> Vec<u8> {
    let pattern = Random::new(seed).bytes(bytes.min(100_003));
    pattern.iter().copied().cycle().take(bytes).collect()
}

const SIZES: [usize; 9] =
    [60_000, 65_536, 65_537, 97_000, 98_304, 200_001, 3 * MIB + 5, 20 * MIB, VALUE_LIMIT];

fn sizes(transport: Wanted) {
    let server = ServerProcess::start(&FLAGS);
    let mut session = session(&server, transport);
    for (seed, bytes) in (1u64..).zip(SIZES) {
        let value = value(seed, bytes);
        assert!(session.set(b"k", &value, SetOptions::default()).unwrap());
        assert_eq!(session.strlen(b"k").unwrap(), bytes as u64);
        for path in [Path::Ask, Path::Read, Path::Choose] {
            let got = session.get(b"k", path).unwrap();
            assert!(
                got.value == Some(&value[..]),
                "{bytes} bytes by {path:?}: {:?}",
                got.served_by
            );
        }
        let (from, to) = (bytes / 3, bytes - 2);
        let part = session.get_range(b"k", from as i64, to as i64).unwrap();
        assert!(part == &value[from..=to], "{bytes} bytes, a range");
    }
    let last = value(SIZES.len() as u64, VALUE_LIMIT);
    assert!(session.get_del(b"k").unwrap() == Some(&last[..]), "given, then gone");
    assert_eq!(session.get(b"k", Path::Ask).unwrap().value, None);
    // Nothing is left behind that was held for it.
    let mut resp = server.resp();
    assert_eq!(resp.info("sessions_violated"), 0);
    assert_eq!(resp.call("DBSIZE"), remora_tests::Value::Integer(0));
}

#[test]
fn every_size_goes_in_and_comes_back_over_shared_memory() {
    sizes(Wanted::Shm);
}

#[test]
fn every_size_goes_in_and_comes_back_over_tcp() {
    sizes(Wanted::Tcp);
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused_and_nothing_is_lost() {
    let server = ServerProcess::start(&FLAGS);
    for transport in [Wanted::Shm, Wanted::Tcp] {
        let mut session = session(&server, transport);
        let key = vec![b'k'; KEY_LIMIT];
        session.set(&key, &value(7, 3 * MIB), SetOptions::default()).unwrap();
        assert!(session.get(&key, Path::Read).unwrap().value == Some(&value(7, 3 * MIB)[..]));
        let long = vec![b'k'; KEY_LIMIT + 1];
        let error = session.set(&long, b"v", SetOptions::default()).unwrap_err();
        assert_eq!(error, Error::KeyTooLong);
        let huge = vec![0; VALUE_LIMIT + 1];
        let error = session.set(&key, &huge, SetOptions::default()).unwrap_err();
        assert_eq!(error, Error::ValueTooLong);
        assert!(session.get(&key, Path::Ask).unwrap().value == Some(&value(7, 3 * MIB)[..]));
        session.del(&key).unwrap();
    }
}

/// Without memory an upload is refused at once, its pieces are passed over,
/// and the session goes on.
#[test]
fn an_upload_without_room_is_refused_and_the_session_goes_on() {
    let flags = ["--max-memory=16MiB", "--shards=1", "--fabric-address=127.0.0.1:0"];
    let server = ServerProcess::start(&flags);
    for transport in [Wanted::Shm, Wanted::Tcp] {
        let mut session = session(&server, transport);
        session.set(b"small", b"v", SetOptions::default()).unwrap();
        for _ in 0..3 {
            let error = session.set(b"big", &value(1, 30 * MIB), SetOptions::default());
            assert!(matches!(error, Err(Error::Refused(_))), "{error:?}");
            assert_eq!(session.get(b"small", Path::Read).unwrap().value, Some(&b"v"[..]));
        }
        assert_eq!(session.get(b"big", Path::Ask).unwrap().value, None);
        session.set(b"fits", &value(2, 5 * MIB), SetOptions::default()).unwrap();
        assert!(session.get(b"fits", Path::Ask).unwrap().value == Some(&value(2, 5 * MIB)[..]));
        session.del(b"fits").unwrap();
    }
}

/// Says at its end, panicking or not, that it is over.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Increments a key of its own until it is over, and counts that.
fn increment(mut session: Session, key: &[u8], served: &AtomicU64, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let done = served.fetch_add(1, Ordering::Relaxed) + 1;
        assert_eq!(session.incr(key, 1).unwrap() as u64, done);
    }
}

/// What one thread streams does not hold up the others, be they of the same
/// process or of another: they are served between the pieces.
#[test]
fn others_are_served_while_a_large_value_is_under_way() {
    /// Requests of each that are served within one SET, and within one GET. Were
    /// they served before and behind it alone, there would be one or two.
    const SERVED: u64 = 20;
    for transport in [Wanted::Shm, Wanted::Tcp] {
        let server = ServerProcess::start(&FLAGS);
        let client = Client::connect(&server.socket(), &options(transport)).unwrap();
        let big = value(5, 48 * MIB);
        let is_over = AtomicBool::new(false);
        let [beside, same] = [AtomicU64::new(0), AtomicU64::new(0)];
        let served = || [&beside, &same].map(|served| served.load(Ordering::Relaxed));
        std::thread::scope(|scope| {
            let _over = OnDrop(&is_over);
            let (other, neighbour) = (session(&server, transport), client.session().unwrap());
            scope.spawn(|| increment(other, b"beside", &beside, &is_over));
            scope.spawn(|| increment(neighbour, b"same", &same, &is_over));
            let mut session = client.session().unwrap();
            // A busy machine may run the others little for a while.
            wait_until("both are served within one SET and one GET", || {
                let before = served();
                session.set(b"big", &big, SetOptions::default()).unwrap();
                let between = served();
                let got = session.get(b"big", Path::Ask).unwrap();
                let after = served();
                assert!(got.value == Some(&big[..]));
                println!(
                    "{transport:?}, beside and in this process: {before:?}, {between:?}, {after:?}"
                );
                (0..2)
                    .all(|of| between[of] - before[of] > SERVED && after[of] - between[of] > SERVED)
            });
        });
    }
}

/// Threads that send and get large values at once, each its own.
#[test]
fn threads_share_the_buffer_for_large_replies() {
    let server = ServerProcess::start(&FLAGS);
    for transport in [Wanted::Shm, Wanted::Tcp] {
        let client = Client::connect(&server.socket(), &options(transport)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let client = &client;
                scope.spawn(move || {
                    let mut session = client.session().unwrap();
                    let key = format!("key:{thread}");
                    for round in 0..8u64 {
                        let bytes =
                            70_000 + (thread * 977_777 + round * 333_331) as usize % (5 * MIB);
                        let value = value(thread * 100 + round, bytes);
                        session.set(key.as_bytes(), &value, SetOptions::default()).unwrap();
                        let path = if round % 2 == 0 { Path::Ask } else { Path::Choose };
                        let got = session.get(key.as_bytes(), path).unwrap();
                        assert!(got.value == Some(&value[..]), "thread {thread} round {round}");
                    }
                    assert!(session.get_del(key.as_bytes()).unwrap().is_some());
                });
            }
        });
    }
    assert_eq!(server.resp().info("sessions_violated"), 0);
}

/// Bytes of a process's resident memory.
fn resident(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// A client that goes in the middle leaves no memory behind at the shard, and
/// the pages of its buffer are given back.
#[test]
fn a_client_that_goes_in_the_middle_leaves_nothing() {
    let server = ServerProcess::start(&["--max-memory=200MiB", "--shards=1"]);
    let mut keeper = session(&server, Wanted::Shm);
    keeper.set(b"big", &value(1, 40 * MIB), SetOptions::default()).unwrap();
    let mut resp = server.resp();
    for round in 0..12u64 {
        let mut raw = remora_tests::RawSession::connect(&server.socket());
        // An announcement of 60 MiB, some pieces, and then the end.
        raw.announce_large(1, b"big", 60 * MIB, 3 + round as usize);
    }
    wait_until("the uploads' memory is free again", || {
        keeper.get(b"small", Path::Ask).unwrap();
        resp.info("connected_sessions_shm") == 1
    });
    // Only fits if nothing of the twelve is held.
    for seed in 0..3 {
        keeper.set(b"other", &value(seed, 60 * MIB), SetOptions::default()).unwrap();
        keeper.del(b"other").unwrap();
    }
    assert!(keeper.get(b"big", Path::Ask).unwrap().value == Some(&value(1, 40 * MIB)[..]));
    let before = resident(server.pid());
    for _ in 0..20 {
        assert!(keeper.get(b"big", Path::Ask).unwrap().value.is_some());
    }
    wait_until("the pages of the buffer are given back", || {
        resident(server.pid()).saturating_sub(before) < 8 * MIB
    });
}

/// Announcements without end are not kept without end.
#[test]
fn a_client_that_announces_without_end_is_cut_off() {
    // However long it takes, none counts as stalled meanwhile.
    let flags = ["--max-memory=32MiB", "--shards=1", "--upload-idle-s=3600"];
    let server = ServerProcess::start(&flags);
    let mut raw = remora_tests::RawSession::connect(&server.socket());
    for id in 0..5000 {
        if raw.is_withdrawn() {
            break;
        }
        raw.announce_large(id, b"k", MIB, 0);
        while raw.receive().is_some() {}
    }
    wait_until("it is cut off", || {
        while raw.receive().is_some() {}
        raw.is_withdrawn()
    });
    let mut honest = session(&server, Wanted::Shm);
    honest.set(b"k", &value(1, 20 * MIB), SetOptions::default()).unwrap();
    assert_eq!(server.resp().info("sessions_violated"), 1);
}

/// A large value's pointer is read like any other.
#[test]
fn a_large_value_is_read_by_its_pointer() {
    let server = ServerProcess::start(&FLAGS);
    let options = Options {
        transport: Wanted::Shm,
        wake: Wake::Event,
        pointer_cache: PointerCacheKind::Private,
        ..long_leases()
    };
    let mut session = server.session_with(&options);
    let big = value(3, 10 * MIB);
    session.set(b"big", &big, SetOptions::default()).unwrap();
    session.get(b"big", Path::Read).unwrap();
    let (via, round_trips) = while_read_lease_lapses(&mut session, |session| {
        let got = session.get(b"big", Path::Read).unwrap();
        assert!(got.value == Some(&big[..]));
        (got.served_by, got.counts.round_trips)
    });
    assert_eq!((via, round_trips), (ServedBy::Read, 1));
    // Changed in place it is asked for, until it has been left alone.
    let mut length = big.len();
    wait_until("what has just been changed is asked for", || {
        session.append(b"big", b"tail").unwrap();
        length += 4;
        let got = session.get(b"big", Path::Read).unwrap();
        assert_eq!(got.value.unwrap().len(), length);
        got.served_by != ServedBy::Read
    });
}

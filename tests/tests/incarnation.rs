//! The server is killed under load and started again: errors are clear, and
//! no client takes a value of the former incarnation for a fresh one.

use remora_client_core::{Error, Options, Path, ServedBy, Session, SetOptions, Wake};
use remora_tests::{
    Role, ServerDirectory, ServerProcess, Value, long_leases, role, wait_until,
    while_read_lease_lapses,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::Instant;

const FLAGS: [&str; 2] = ["--shards=2", "--max-memory=64MiB"];

fn options() -> Options {
    Options { wake: Wake::Hybrid, ..long_leases() }
}

/// What the reader of the old incarnation saw. `Instant` is CLOCK_MONOTONIC.
struct Seen {
    /// When the last successful read began.
    last: Instant,
    /// The first error.
    error: Option<Error>,
    session: Session,
}

/// Reads a key by its cached pointer until it fails or is told to stop, and
/// counts its READs.
fn read_on(
    mut session: Session,
    reads: Arc<AtomicU64>,
    stop: &'static AtomicBool,
) -> JoinHandle<Seen> {
    spawn(move || {
        let (mut last, mut error) = (Instant::now(), None);
        while error.is_none() && !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            match session.get(b"key", Path::Read) {
                Ok(got) => {
                    assert_eq!(got.value, Some(&b"old"[..]));
                    last = began;
                    reads.fetch_add((got.served_by == ServedBy::Read) as u64, Ordering::Relaxed);
                }
                Err(first) => error = Some(first),
            }
        }
        Seen { last, error, session }
    })
}

/// Writes as fast as it can until it fails.
fn load(mut session: Session) -> JoinHandle<Error> {
    spawn(move || {
        for round in 0u64.. {
            let key = (round % 500).to_le_bytes();
            if let Err(error) = session.set(&key, &[7; 100], SetOptions::default()) {
                return error;
            }
        }
        unreachable!()
    })
}

struct Outcome {
    /// When the first SET to the new server was acknowledged.
    acknowledged: Instant,
    seen: Seen,
    server: ServerProcess,
}

fn kill_and_restart(stop: &'static AtomicBool) -> Outcome {
    let place = ServerDirectory::new();
    let mut old = ServerProcess::start_at(&place, &FLAGS);
    let mut session = old.session_with(&options());
    session.set(b"key", b"old", SetOptions::default()).unwrap();
    let reads = Arc::new(AtomicU64::new(0));
    let reader = read_on(session, Arc::clone(&reads), stop);
    let writers = [load(old.session_with(&options())), load(old.session_with(&options()))];
    let mut resp = old.resp();
    wait_until("the reader reads", || reads.load(Ordering::Relaxed) > 1000);
    assert_eq!(resp.call("GET key"), Value::bulk("old"));
    old.kill();
    let server = ServerProcess::start_at(&place, &FLAGS);
    let mut session = server.session_with(&options());
    // (c) It is empty; only then it is written to.
    assert_eq!(session.get(b"key", Path::Read).unwrap().value, None);
    assert_eq!(server.resp().call("DBSIZE"), Value::Integer(0));
    session.set(b"key", b"new", SetOptions::default()).unwrap();
    let acknowledged = Instant::now();
    for writer in writers {
        // It is told so, and does not wait for its time-out.
        let error = writer.join().unwrap();
        assert!(matches!(error, Error::ServerGone | Error::SessionEnded), "{error}");
    }
    assert!(resp.try_call(&[b"PING"]).is_err(), "the old connection is closed");
    // A client that trusts the former incarnation goes on: the second READ from now on
    // has begun after the write.
    let before = reads.load(Ordering::Relaxed);
    wait_until("the reader fails, or reads on", || {
        reader.is_finished() || reads.load(Ordering::Relaxed) >= before + 2
    });
    stop.store(true, Ordering::Relaxed);
    let seen = reader.join().unwrap();
    Outcome { acknowledged, seen, server }
}

/// The check itself: did a read of the old incarnation begin after the new incarnation's
/// first acknowledged write, and succeed?
fn reads_the_dead(outcome: &Outcome) -> bool {
    outcome.seen.last > outcome.acknowledged
}

#[test]
fn nothing_of_a_former_incarnation_is_read_as_fresh() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let mut outcome = kill_and_restart(&STOP);
    assert!(!reads_the_dead(&outcome));
    let Outcome { seen, server, .. } = &mut outcome;
    let error = seen.error.expect("the old session fails");
    assert!(matches!(error, Error::ServerGone | Error::SessionEnded), "{error}");
    assert!(error.to_string().contains("connect again"), "{error}");
    // The old session stays over.
    assert_eq!(seen.session.get(b"key", Path::Read).unwrap_err(), error);
    assert_eq!(seen.session.set(b"key", b"x", SetOptions::default()).unwrap_err(), error);
    // Others connect again and see the new incarnation only.
    let mut other = Role::start(module_path!(), "reader", &[server.socket().to_str().unwrap()]);
    assert_eq!(other.hear().as_deref(), Some("new"));
    let mut session = server.session();
    for path in [Path::Ask, Path::Read, Path::Choose] {
        assert_eq!(session.get(b"key", path).unwrap().value, Some(&b"new"[..]));
    }
    assert_eq!(server.resp().call("GET key"), Value::bulk("new"));
}

#[test]
fn a_server_that_drains_ends_sessions_at_once() {
    let mut server = ServerProcess::start(&FLAGS);
    let mut session = server.session_with(&options());
    session.set(b"key", b"old", SetOptions::default()).unwrap();
    let read = |session: &mut Session| session.get(b"key", Path::Read).unwrap().served_by;
    assert_eq!(while_read_lease_lapses(&mut session, read), ServedBy::Read);
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    let error = session.get(b"key", Path::Read).unwrap_err();
    assert!(matches!(error, Error::ServerGone | Error::SessionEnded), "{error}");
}

#[test]
fn plays_its_part() {
    let Some((_, arguments)) = role() else { return };
    let socket = std::path::Path::new(&arguments[0]);
    let mut session = Session::connect(socket, &remora_tests::options()).unwrap();
    let got = session.get(b"key", Path::Choose).unwrap();
    Role::say(&String::from_utf8_lossy(got.value.unwrap_or_default()));
}

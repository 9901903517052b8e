//! Over a network the sessions of a process share one ring pair for each shard: no
//! thread waits for another to send, few for one that copies, and frames of several leave
//! by one doorbell.

use remora_client_core::{
    Client, Error, Options, Path, SendCounts, Session, SetOptions, Wake, Wanted,
};
use remora_layout::limits::RING_BYTES;
use remora_protocol::Command;
use remora_tests::{ServerProcess, wait_until};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

const FLAGS: [&str; 4] =
    ["--max-memory=128MiB", "--shards=2", "--wake=event", "--fabric-address=127.0.0.1:0"];

fn client(server: &ServerProcess, wake: Wake) -> Client {
    let options = Options { wake, transport: Wanted::Tcp, ..remora_tests::by_pointers() };
    Client::connect(&server.socket(), &options).unwrap()
}

/// Each thread counts on a key of its own, one request at a time.
fn count(client: &Client, threads: u64, times: u64) {
    let gate = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut session = client.session().unwrap();
                let key = format!("{:?}", std::thread::current().id());
                gate.wait();
                for time in 1..=times {
                    assert_eq!(session.incr(key.as_bytes(), 1).unwrap() as u64, time);
                }
            });
        }
    });
}

fn per_doorbell(SendCounts { frames, doorbells, .. }: SendCounts) -> f64 {
    frames as f64 / doorbells as f64
}

/// Threads meet at locks that are held for a copy. A lock that is held while a thread
/// sends, or waits, would make nearly each request wait.
fn assert_few(waits: u64, sends: SendCounts) {
    assert!(waits * 4 < sends.frames, "{waits} waits for a lock, {sends:?}");
}

#[test]
fn frames_of_several_threads_leave_by_one_doorbell_and_few_wait_for_a_lock() {
    let server = ServerProcess::start(&FLAGS);
    let alone = client(&server, Wake::Event);
    count(&alone, 1, 500);
    let sends = alone.sends();
    assert_eq!((sends.frames, sends.doorbells, sends.handed_over), (500, 500, 0));
    for wake in [Wake::Event, Wake::Hybrid] {
        let client = client(&server, wake);
        let mut frames = 0;
        wait_until("two threads meet at a ring", || {
            count(&client, 16, 500);
            frames += 16 * 500;
            per_doorbell(client.sends()) > 1.0
        });
        let (sends, waits) = (client.sends(), client.lock_waits());
        println!("{wake:?}: {sends:?}, {:.3} frames for each doorbell", per_doorbell(sends));
        println!("{waits} waits for a lock");
        assert_eq!(sends.frames, frames);
        assert!(sends.handed_over > 0);
        assert_few(waits, sends);
    }
    assert_eq!(server.resp().info("sessions_violated"), 0);
}

/// What is under way is more than a ring holds, so that requests stay with the threads that
/// send for others, and with those that make them.
#[test]
fn full_rings_stop_nobody() {
    const IN_FLIGHT: usize = 200;
    let server = ServerProcess::start(&FLAGS);
    let client = client(&server, Wake::Event);
    let value = [b'v'; 2_000];
    let threads = 12usize;
    const { assert!(12 * IN_FLIGHT / 2 * 2_000 > 4 * RING_BYTES) }
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let client = &client;
            scope.spawn(move || {
                let mut session = client.session().unwrap();
                for round in 0..10i64 {
                    let (key, number) = (format!("{thread}-v"), format!("{thread}-n"));
                    for _ in 0..IN_FLIGHT / 2 {
                        let command = Command::Append { key: key.as_bytes(), value: &value };
                        session.submit(&command).unwrap();
                        session.submit(&Command::Incr { key: number.as_bytes(), by: 1 }).unwrap();
                    }
                    let mut numbers = Vec::new();
                    let mut keep =
                        |_, reply: &remora_protocol::Reply<'_>| numbers.push(reply.number);
                    while session.next_reply(&mut keep).unwrap() {}
                    // In the order in which they were made.
                    let half = IN_FLIGHT as i64 / 2;
                    for (at, pair) in (1..).zip(numbers.chunks(2)) {
                        assert_eq!(pair, [at * value.len() as i64, round * half + at]);
                    }
                    assert_eq!(numbers.len(), IN_FLIGHT);
                    session.del(key.as_bytes()).unwrap();
                }
            });
        }
    });
    assert_few(client.lock_waits(), client.sends());
    assert_eq!(server.resp().info("sessions_violated"), 0);
}

#[test]
fn a_session_that_panics_or_leaves_stops_nobody() {
    let server = ServerProcess::start(&FLAGS);
    let client = client(&server, Wake::Event);
    std::thread::scope(|scope| {
        let ends: Vec<_> = (0..8)
            .map(|thread| {
                let client = &client;
                scope.spawn(move || {
                    for round in 0..20 {
                        let mut session = client.session().unwrap();
                        for _ in 0..20 {
                            session.submit(&Command::Incr { key: b"n", by: 1 }).unwrap();
                        }
                        assert!(thread % 2 == 0 || round < 10, "on purpose");
                    }
                })
            })
            .collect();
        count(&client, 8, 300);
        let panics = ends.into_iter().map(|end| end.join().is_err()).filter(|&ended| ended).count();
        assert_eq!(panics, 4);
    });
    let mut session = client.session().unwrap();
    wait_until("all requests are executed", || {
        session.get(b"n", Path::Ask).unwrap().value == Some(&b"2480"[..])
    });
}

#[test]
fn a_link_that_breaks_ends_every_session_with_an_error() {
    let mut server = ServerProcess::start(&FLAGS);
    let client = client(&server, Wake::Event);
    let asked = AtomicU64::new(0);
    let asks_until_error = |session: &mut Session| -> Error {
        loop {
            match session.set(b"k", b"v", SetOptions::default()) {
                Ok(_) => _ = asked.fetch_add(1, Ordering::Relaxed),
                Err(error) => return error,
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| asks_until_error(&mut client.session().unwrap())))
            .collect();
        wait_until("they ask", || asked.load(Ordering::Relaxed) > 1_000);
        server.kill();
        for thread in threads {
            let error = thread.join().unwrap();
            assert!(error.is_final(), "{error}");
        }
    });
}

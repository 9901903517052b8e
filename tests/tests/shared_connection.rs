//! One connection, whatever the number of threads of a client process. Over shared memory
//! each of these threads has rings of its own, over TCP they share one ring pair for each
//! shard: replies reach the thread that asked, no thread sleeps on, and a thread that leaves
//! does not disturb the others.

use remora_client_core::{Client, Error, Options, Path, SetOptions, Wake, Wanted};
use remora_protocol::Command;
use remora_tests::{ServerProcess, wait_until};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

const ROUNDS: u64 = 300;

fn client(server: &ServerProcess, wake: Wake) -> Client {
    client_over(server, wake, Wanted::Shm)
}

fn client_over(server: &ServerProcess, wake: Wake, transport: Wanted) -> Client {
    let options = Options { wake, transport, ..remora_tests::by_pointers() };
    Client::connect(&server.socket(), &options).unwrap()
}

/// Every thread works on keys of its own and on shared counters; each value
/// names its writer and round, so that a reply to somebody else is noticed.
fn hammer(server: &ServerProcess, wake: Wake, transport: Wanted, threads: u64) {
    let client = client_over(server, wake, transport);
    let counter = format!("sum-{wake:?}-{transport:?}");
    let gate = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (client, gate, counter) = (&client, &gate, counter.as_bytes());
            scope.spawn(move || {
                let mut session = client.session().unwrap();
                gate.wait();
                for round in 0..ROUNDS {
                    let key = format!("{wake:?}-{thread}-{}", round % 7);
                    let value = format!("{thread}/{round}/{}", "x".repeat(round as usize % 900));
                    session.set(key.as_bytes(), value.as_bytes(), SetOptions::default()).unwrap();
                    session.incr(counter, 1).unwrap();
                    let path = if round % 2 == 0 { Path::Ask } else { Path::Choose };
                    let got = session.get(key.as_bytes(), path).unwrap();
                    assert_eq!(got.value, Some(value.as_bytes()), "thread {thread} round {round}");
                    for lane in 0..3 {
                        let key = format!("p-{thread}-{lane}");
                        session.submit(&Command::Incr { key: key.as_bytes(), by: 1 }).unwrap();
                    }
                    for _ in 0..3 {
                        let mut number = 0;
                        session.next_reply(&mut |_, reply| number = reply.number).unwrap();
                        assert_eq!(number as u64, round + 1, "thread {thread}");
                    }
                }
            });
        }
    });
    let mut session = client.session().unwrap();
    let total = session.get(counter.as_bytes(), Path::Ask).unwrap().value.unwrap().to_vec();
    assert_eq!(total, (threads * ROUNDS).to_string().into_bytes());
    for thread in 0..threads {
        for lane in 0..3 {
            session.del(format!("p-{thread}-{lane}").as_bytes()).unwrap();
        }
    }
}

/// Over shared memory each thread sleeps on a futex of its own. A lost wake-up would end in
/// `Error::TimedOut`; `hand_over.rs` looks for one where threads share rings.
#[test]
fn replies_reach_the_thread_that_asked_in_every_way_of_waiting() {
    let server = ServerProcess::start(&["--max-memory=64MiB", "--shards=3", "--wake=event"]);
    // No more threads poll without end than there are cores.
    for (wake, threads) in [(Wake::Event, 12), (Wake::Hybrid, 12), (Wake::Poll, 2)] {
        hammer(&server, wake, Wanted::Shm, threads);
    }
    // The server sees the end of a connection when it looks next.
    let mut resp = server.resp();
    wait_until("no session is left", || resp.info("connected_sessions_shm") == 0);
}

#[test]
fn replies_reach_the_thread_that_asked_over_tcp_too() {
    let flags =
        ["--max-memory=64MiB", "--shards=3", "--wake=event", "--fabric-address=127.0.0.1:0"];
    let server = ServerProcess::start(&flags);
    for (wake, threads) in [(Wake::Event, 12), (Wake::Hybrid, 12), (Wake::Poll, 2)] {
        hammer(&server, wake, Wanted::Tcp, threads);
    }
    remora_tests::wait_until("the sessions have ended", || {
        server.resp().info("connected_sessions_tcp") == 0
    });
}

#[test]
fn many_threads_are_one_session_at_the_server() {
    let server = ServerProcess::start(&["--max-memory=32MiB", "--shards=2"]);
    let client = client(&server, Wake::Event);
    let sessions: Vec<_> = (0..64).map(|_| client.session().unwrap()).collect();
    assert_eq!(server.resp().info("connected_sessions_shm"), 1);
    drop(sessions);
    drop(client);
    remora_tests::wait_until("the session has ended", || {
        server.resp().info("connected_sessions_shm") == 0
    });
}

/// A session that leaves with requests in flight: the next holder of its
/// number never sees their replies.
#[test]
fn a_number_is_given_out_again_only_after_its_last_reply() {
    let server = ServerProcess::start(&["--max-memory=64MiB", "--shards=1", "--wake=event"]);
    let client = client(&server, Wake::Event);
    let served = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..6u32 {
            let (client, served) = (&client, &served);
            scope.spawn(move || {
                for round in 0..150u32 {
                    let mut session = client.session().unwrap();
                    let key = format!("k{thread}");
                    let value = format!("{thread}:{round}");
                    session.set(key.as_bytes(), value.as_bytes(), SetOptions::default()).unwrap();
                    for _ in 0..round % 9 {
                        session.submit(&Command::Get { key: key.as_bytes() }).unwrap();
                    }
                    // Half of the replies are never taken.
                    for _ in 0..round % 9 / 2 {
                        let mut right = false;
                        session
                            .next_reply(&mut |_, reply| {
                                right = reply.value == Some(value.as_bytes())
                            })
                            .unwrap();
                        assert!(right, "thread {thread} round {round}");
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(served.load(Ordering::Relaxed) > 1000);
}

/// A thread that does not take its replies holds up itself only.
#[test]
fn a_lazy_thread_holds_up_nobody() {
    let server = ServerProcess::start(&["--max-memory=64MiB", "--shards=1", "--wake=event"]);
    let client = client(&server, Wake::Event);
    let mut lazy = client.session().unwrap();
    let value = vec![7u8; 4000];
    lazy.set(b"large", &value, SetOptions::default()).unwrap();
    // Far more replies than the ring holds.
    for _ in 0..600 {
        lazy.submit(&Command::Get { key: b"large" }).unwrap();
    }
    let mut busy = client.session().unwrap();
    for round in 0..2000i64 {
        assert_eq!(busy.incr(b"n", 1).unwrap(), round + 1);
    }
    let mut taken = 0;
    while lazy.next_reply(&mut |_, reply| assert_eq!(reply.value, Some(&value[..]))).unwrap() {
        taken += 1;
    }
    assert_eq!(taken, 600);
}

/// More requests than the rings hold: a thread that waits for room takes
/// replies meanwhile, its own too, and finds them later.
fn threads_fill_the_rings(client: &Client) {
    const THREADS: usize = 32;
    let keys: Vec<Vec<u8>> = (0..256u32).map(|number| number.to_be_bytes().to_vec()).collect();
    let mut session = client.session().unwrap();
    for key in &keys {
        session.set(key, key, SetOptions::default()).unwrap();
    }
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let gate = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut session = client.session().unwrap();
                gate.wait();
                for _ in 0..8 {
                    let mut right = 0;
                    let mut each = |index: usize, value: Option<&[u8]>, _| {
                        right += (value == Some(names[index])) as usize;
                    };
                    session.get_batch(&names, Path::Ask, &mut each).unwrap();
                    assert_eq!(right, names.len());
                    for name in &names {
                        session.submit(&Command::Get { key: name }).unwrap();
                    }
                    for name in &names {
                        let took = session.next_reply(&mut |_, reply| {
                            assert_eq!(reply.value, Some(*name));
                        });
                        assert!(took.unwrap());
                    }
                }
            });
        }
    });
}

#[test]
fn threads_that_fill_the_rings_together_get_every_reply() {
    let server =
        ServerProcess::start(&["--max-memory=32MiB", "--shards=1", "--fabric-address=127.0.0.1:0"]);
    threads_fill_the_rings(&client(&server, Wake::Hybrid));
    let options =
        Options { transport: Wanted::Tcp, wake: Wake::Hybrid, ..remora_tests::by_pointers() };
    threads_fill_the_rings(&Client::connect(&server.socket(), &options).unwrap());
}

#[test]
fn the_end_of_the_server_ends_every_thread() {
    let mut server = ServerProcess::start(&["--max-memory=32MiB", "--shards=2"]);
    let client = client(&server, Wake::Event);
    let gate = Barrier::new(9);
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let (client, gate) = (&client, &gate);
            scope.spawn(move || {
                let mut session = client.session().unwrap();
                session.get(b"k", Path::Ask).unwrap();
                gate.wait();
                let key = format!("k{thread}");
                let error = loop {
                    if let Err(error) = session.get(key.as_bytes(), Path::Ask) {
                        break error;
                    }
                };
                assert!(
                    matches!(error, Error::ServerGone | Error::SessionEnded),
                    "thread {thread}: {error}"
                );
            });
        }
        gate.wait();
        std::thread::sleep(std::time::Duration::from_millis(20));
        server.kill();
    });
    assert!(client.session().is_err());
}

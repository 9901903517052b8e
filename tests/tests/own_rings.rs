//! Rings of one's own over shared memory: what a frame costs does not depend on
//! how many sessions there are, over TCP neither, and no thread waits for another.

use remora_client_core::{Client, Options, Path, Session, SetOptions, Wake, Wanted};
use remora_layout::limits::{KEPT_UNPARKED, MAX_RING_SETS};
use remora_layout::session::ready_word;
use remora_protocol::Command;
use remora_tests::{RawSession, Resp, ServerProcess, Value, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Idle client processes beside the active one.
const IDLE: usize = 1_000;
/// The same over TCP.
const IDLE_OVER_TCP: usize = 200;

fn raise_own_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

fn options() -> Options {
    Options { transport: Wanted::Shm, ..remora_tests::by_pointers() }
}

/// What a shard has looked at since it was asked last.
#[derive(Default)]
struct Looks {
    frames: u64,
    turns: u64,
    rings: u64,
    clients: u64,
}

impl Looks {
    fn now(resp: &mut Resp) -> Self {
        Self {
            frames: resp.info("ring_frames"),
            turns: resp.info("ring_turns"),
            rings: resp.info("rings_looked_at"),
            clients: resp.info("ring_clients_looked_at"),
        }
    }

    fn since(self, before: &Self) -> Self {
        Self {
            frames: self.frames - before.frames,
            turns: self.turns - before.turns,
            rings: self.rings - before.rings,
            clients: self.clients - before.clients,
        }
    }
}

/// One session asks; what that took of the shard.
fn asks(session: &mut Session, resp: &mut Resp, times: u64) -> Looks {
    let before = Looks::now(resp);
    for round in 0..times {
        if round % 100 == 0 {
            session.set(b"k", &round.to_le_bytes(), SetOptions::default()).unwrap();
        }
        assert!(session.get(b"k", Path::Ask).unwrap().value.is_some());
    }
    Looks::now(resp).since(&before)
}

#[test]
fn a_frame_costs_as_many_looks_among_a_thousand_idle_sessions_as_alone() {
    raise_own_limit();
    for wake in ["event", "poll"] {
        let server = ServerProcess::start(&["--max-memory=64MiB", "--shards=1", "--wake", wake]);
        let connect = || server.session_with(&options());
        costs_as_many_looks_among_idle_sessions(wake, &server, connect, (IDLE, 1));
    }
}

/// With two shards half of the sessions are received by the other shard's thread.
#[test]
fn a_frame_over_tcp_costs_as_many_looks_among_idle_sessions_as_alone() {
    raise_own_limit();
    for (wake, shards) in [("event", 1), ("poll", 1), ("event", 2), ("hybrid", 2)] {
        let flags = ["--max-memory=64MiB", "--fabric-address=127.0.0.1:0", "--wake", wake];
        let shards_flag = format!("--shards={shards}");
        let server = ServerProcess::start(&[&flags[..], &[&shards_flag]].concat());
        let address = fabric(&server);
        let options = Options { transport: Wanted::Tcp, ..options() };
        let connect = || Session::connect(address, &options).unwrap();
        let what = format!("{wake}, {shards} shards");
        costs_as_many_looks_among_idle_sessions(&what, &server, connect, (IDLE_OVER_TCP, shards));
    }
}

fn fabric(server: &ServerProcess) -> SocketAddr {
    let told = server.resp().call("CONFIG GET fabric_address");
    let Value::Array(pair) = &told else { panic!("{told:?}") };
    let Some(Value::Bulk(address)) = pair.get(1) else { panic!("{told:?}") };
    String::from_utf8_lossy(address).parse().unwrap()
}

fn costs_as_many_looks_among_idle_sessions(
    what: &str,
    server: &ServerProcess,
    connect: impl Fn() -> Session,
    (many, shards): (usize, usize),
) {
    let mut resp = server.resp();
    let mut active = connect();
    let alone = asks(&mut active, &mut resp, 2_000);
    let mut idle: Vec<Session> = (0..many).map(|_| connect()).collect();
    for session in &mut idle {
        session.set(b"k", b"v", SetOptions::default()).unwrap();
    }
    wait_until("idle clients are parked", || {
        // The shards park in their turns.
        for number in 0..10 * shards as u64 {
            active.set(&number.to_le_bytes(), b"v", SetOptions::default()).unwrap();
        }
        // They publish their counts every 10 ms: an older one may be that of before the
        // idle clients had set their keys.
        std::thread::sleep(Duration::from_millis(20));
        resp.info("ring_clients_parked") >= ((many - KEPT_UNPARKED) * shards) as u64
    });
    let among = asks(&mut active, &mut resp, 2_000);
    for Looks { frames, turns, rings, clients } in [alone, among] {
        println!("{what}: {frames} frames in {turns} turns: {rings} rings, {clients} clients");
        assert!(frames >= 2_000 && turns > 0);
        assert!(rings <= 2 * frames, "{rings} rings for {frames} frames");
        let most = (KEPT_UNPARKED as u64 + 2) * turns;
        assert!(clients <= most, "{clients} clients in {turns} turns");
    }
    // Each of them is heard when it rings.
    for session in &mut idle {
        assert!(session.get(b"k", Path::Ask).unwrap().value.is_some());
    }
    assert!(resp.info("ring_doorbells") > 0);
    assert_eq!(resp.info("sessions_violated"), 0);
}

#[test]
fn no_thread_waits_for_another_and_each_sees_its_own_writes() {
    let server = ServerProcess::start(&["--max-memory=64MiB", "--shards=2", "--wake=event"]);
    let client = Client::connect(&server.socket(), &options()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let client = &client;
            scope.spawn(move || {
                let mut session = client.session().unwrap();
                for round in 0..500u64 {
                    let key = format!("{thread}-{}", round % 11);
                    let value = format!("{round}{}", "x".repeat(round as usize * 7 % 3_000));
                    session.set(key.as_bytes(), value.as_bytes(), SetOptions::default()).unwrap();
                    for lane in 0..20 {
                        let key = format!("{thread}-n{lane}");
                        session.submit(&Command::Incr { key: key.as_bytes(), by: 1 }).unwrap();
                    }
                    for _ in 0..20 {
                        let mut number = 0;
                        session.next_reply(&mut |_, reply| number = reply.number).unwrap();
                        assert_eq!(number as u64, round + 1, "thread {thread}");
                    }
                    let got = session.get(key.as_bytes(), Path::Ask).unwrap();
                    assert_eq!(got.value, Some(value.as_bytes()));
                }
            });
        }
    });
    assert_eq!(client.lock_waits(), 0);
}

/// More threads than ring sets, which come and go while others ask.
#[test]
fn sessions_come_and_go_under_load() {
    let server = ServerProcess::start(&["--max-memory=64MiB", "--shards=2", "--wake=event"]);
    let options = Options { wake: Wake::Event, ..options() };
    let client = Client::connect(&server.socket(), &options).unwrap();
    let stays: Vec<Session> = (0..MAX_RING_SETS - 3).map(|_| client.session().unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..12u64 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..150u64 {
                    let mut session = client.session().unwrap();
                    let key = format!("come-{thread}");
                    assert_eq!(session.incr(key.as_bytes(), 1).unwrap() as u64, round + 1);
                    // Left behind: no client receives its reply.
                    session.submit(&Command::Get { key: key.as_bytes() }).unwrap();
                    session.flush().unwrap();
                }
            });
        }
    });
    drop(stays);
    assert_eq!(server.resp().info("sessions_violated"), 0);
}

#[test]
fn ready_bits_for_nothing_cost_a_bounded_turn_and_no_bits_delay_their_client_only() {
    let server = ServerProcess::start(&["--max-memory=64MiB", "--shards=1", "--wake=poll"]);
    let mut resp = server.resp();
    let mut other = server.session_with(&options());
    let hostile = RawSession::connect(&server.socket());
    let stop = AtomicBool::new(false);
    let looks = std::thread::scope(|scope| {
        let (hostile, stop) = (&hostile, &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                hostile.to_server().store(ready_word(0), u64::MAX);
                std::hint::spin_loop();
            }
        });
        let looks = asks(&mut other, &mut resp, 2_000);
        stop.store(true, Ordering::Relaxed);
        looks
    });
    let Looks { frames, turns, rings, .. } = looks;
    println!("{frames} frames in {turns} turns: {rings} rings");
    assert!(rings <= turns * (MAX_RING_SETS as u64 + 1), "a look at each ring in a turn");
    assert!(!hostile.is_withdrawn());
    // A frame that no bit tells of stays in the ring, whichever other session asks.
    let mut silent = RawSession::connect(&server.socket());
    let mut payload = Vec::new();
    Command::Exists { key: b"k" }.encode_into(1, &mut payload);
    let frame = silent.first_frame(&payload);
    silent.to_server().copy_in(remora_layout::session::ring_offset(0), &frame);
    silent.connected.bells[0].ring();
    asks(&mut other, &mut resp, 500);
    assert!(silent.receive().is_none(), "nobody has looked there");
    silent.ring_bell();
    wait_until("the reply", || silent.receive().is_some());
    assert_eq!(resp.info("sessions_violated"), 0);
}

/// While sessions are parked, a thread that polls looks at the kernel for their
/// doorbells, and finds RESP requests by that, too. Here they come while it polls
/// and just as it goes to sleep.
#[test]
fn a_resp_request_that_a_look_for_doorbells_finds_is_served() {
    raise_own_limit();
    let server = ServerProcess::start(&["--max-memory=64MiB", "--shards=1"]);
    let mut resp = server.resp();
    let mut session = server.session_with(&options());
    let idle: Vec<Client> = (0..KEPT_UNPARKED + 4)
        .map(|_| Client::connect(&server.socket(), &options()).unwrap())
        .collect();
    wait_until("sessions are parked", || {
        session.set(b"k", b"v", SetOptions::default()).unwrap();
        resp.info("ring_clients_parked") > 0
    });
    let pause = |nanoseconds: u64| {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_nanos(nanoseconds) {
            std::hint::spin_loop();
        }
    };
    for round in 0..20_000 {
        // The looks are apart by more than the thread polls. So that one falls to the end
        // of polling, the last request comes some time after one that had a look.
        for pause_before in [0, 0, 20_000 + round * 13 % 25_000] {
            pause(pause_before);
            assert!(session.get(b"k", Path::Ask).unwrap().value.is_some());
        }
        pause(round * 7_919 % 20_000);
        assert_eq!(resp.call("GET k"), Value::bulk("v"));
    }
    drop(idle);
}

//! A real server of 8 shards with 64 sessions and 64 connections: what a request costs,
//! by the counters in INFO. All by counts.

use remora_client_core::{Client, Options, Path, Session, SetOptions, Wanted};
use remora_layout::limits::TURNS_PER_SOCKET_LOOK;
use remora_protocol::Command;
use remora_tests::{Resp, ServerProcess, Value, encode};
use std::time::Duration;

const SHARDS: u64 = 8;
const SESSIONS: usize = 64;
/// Requests that a busy session or connection sends at once.
const BATCH: usize = 64;
/// How often it does so.
const ROUNDS: usize = 5;

/// The counters of the threads.
#[derive(Clone, Copy, Debug)]
struct InfoCounts {
    frames: u64,
    rings: u64,
    /// Signals that shards needed: to end a sleep, or from a parked client.
    doorbells: u64,
    turns: u64,
    jobs: u64,
    mails: u64,
    waits: u64,
    writes: u64,
    bytes: u64,
}

impl InfoCounts {
    fn now(resp: &mut Resp) -> Self {
        let mut get = |name| resp.info(name);
        Self {
            frames: get("ring_frames"),
            rings: get("rings_looked_at"),
            doorbells: get("shard_sleeps") + get("ring_doorbells"),
            turns: get("shard_turns"),
            jobs: get("jobs_sent"),
            mails: get("mail_sent"),
            waits: get("mail_waited"),
            writes: get("socket_writes"),
            bytes: get("total_net_output_bytes"),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            frames: self.frames - before.frames,
            rings: self.rings - before.rings,
            doorbells: self.doorbells - before.doorbells,
            turns: self.turns - before.turns,
            jobs: self.jobs - before.jobs,
            mails: self.mails - before.mails,
            waits: self.waits - before.waits,
            writes: self.writes - before.writes,
            bytes: self.bytes - before.bytes,
        }
    }
}

fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to.max(1) as f64
}

fn server() -> ServerProcess {
    ServerProcess::start(&["--max-memory=256MiB", "--shards=8", "--wake=event"])
}

fn client(server: &ServerProcess) -> Client {
    let options = Options { transport: Wanted::Shm, ..remora_tests::by_pointers() };
    Client::connect(&server.socket(), &options).unwrap()
}

/// Asks for keys of all shards, so many at once.
fn ask(session: &mut Session, batch: usize) {
    for at in 0..batch {
        let key = format!("key-{at}");
        session.submit(&Command::Get { key: key.as_bytes() }).unwrap();
    }
    for _ in 0..batch {
        session.next_reply(&mut |_, _| ()).unwrap();
    }
}

#[test]
fn rings_looked_at_per_frame_do_not_grow_with_idle_sessions() {
    let server = server();
    let mut info = server.resp();
    let mut busy = client(&server).session().unwrap();
    let per_frame = |busy: &mut Session, info: &mut Resp| {
        let before = InfoCounts::now(info);
        for _ in 0..1_000 {
            ask(busy, 1);
        }
        let counts = InfoCounts::now(info).since(before);
        println!("{counts:?}");
        assert_eq!(counts.frames, 1_000);
        ratio(counts.rings, counts.frames)
    };
    let alone = per_frame(&mut busy, &mut info);
    // As many threads of one process, and as many processes.
    let other = client(&server);
    let mut idle: Vec<Session> = (1..SESSIONS).map(|_| other.session().unwrap()).collect();
    idle.extend((1..SESSIONS).map(|_| client(&server).session().unwrap()));
    for session in &mut idle {
        session.set(b"k", b"v", SetOptions::default()).unwrap();
        assert!(session.get(b"k", Path::Ask).unwrap().value.is_some());
    }
    let among = per_frame(&mut busy, &mut info);
    assert!((among - alone).abs() <= 0.1 * alone, "{among} looks a frame, {alone} alone");
}

#[test]
fn what_comes_together_goes_together() {
    let server = server();
    let mut info = server.resp();
    let shared = client(&server);
    let mut sessions: Vec<Session> = (0..SESSIONS).map(|_| shared.session().unwrap()).collect();
    let mut connections: Vec<Resp> = (0..SESSIONS).map(|_| server.resp()).collect();
    let mut work = |batch: usize| {
        let before = InfoCounts::now(&mut info);
        let sets =
            (0..batch).flat_map(|at| encode(&[b"SET", format!("key-{at}").as_bytes(), b"v"]));
        let sets: Vec<u8> = sets.collect();
        let rounds = ROUNDS * BATCH / batch;
        for _ in 0..rounds {
            sessions.iter_mut().for_each(|session| ask(session, batch));
        }
        let ring = InfoCounts::now(&mut info).since(before);
        let before = InfoCounts::now(&mut info);
        for _ in 0..rounds {
            connections.iter_mut().for_each(|resp| resp.send_raw(&sets).unwrap());
            for resp in &mut connections {
                (0..batch).for_each(|_| assert_eq!(resp.receive().unwrap(), Value::ok()));
            }
        }
        let resp = InfoCounts::now(&mut info).since(before);
        println!("{batch} at once: rings {ring:?}, connections {resp:?}");
        (ring, resp)
    };
    let (few_asked, few) = work(1);
    let (many_asked, many) = work(BATCH);
    assert!(ratio(many_asked.frames, many_asked.rings) > 2.0, "frames per look: {many_asked:?}");
    let doorbells = |counts: InfoCounts| ratio(counts.frames, counts.doorbells);
    assert!(doorbells(many_asked) > 2.0 * doorbells(few_asked), "frames per doorbell");
    for counts in [few, many] {
        assert!(counts.mails <= counts.turns * (SHARDS - 1), "mail per turn: {counts:?}");
        assert!(counts.waits <= counts.mails / 10, "waits for room: {counts:?}");
    }
    let rises = |of: fn(InfoCounts) -> u64, to: fn(InfoCounts) -> u64| {
        ratio(of(many), to(many)) / ratio(of(few), to(few))
    };
    assert!(rises(|c| c.jobs, |c| c.mails) > 2.0, "jobs per mail: {few:?} {many:?}");
    assert!(rises(|c| c.jobs, |c| c.turns) > 2.0, "forwarded per turn: {few:?} {many:?}");
    assert!(rises(|c| c.bytes, |c| c.writes) > 2.0, "bytes per write: {few:?} {many:?}");
}

/// A thread looks at its sockets by sleeping, or when it has been busy for some turns.
#[test]
fn looks_at_sockets_are_sleeps_and_those_of_busy_threads() {
    let server = server();
    let mut connections: Vec<Resp> = (0..SESSIONS).map(|_| server.resp()).collect();
    let sets: Vec<u8> =
        (0..BATCH).flat_map(|at| encode(&[b"SET", format!("key-{at}").as_bytes(), b"v"])).collect();
    for _ in 0..10 * ROUNDS {
        connections.iter_mut().for_each(|resp| resp.send_raw(&sets).unwrap());
        for resp in &mut connections {
            (0..BATCH).for_each(|_| assert_eq!(resp.receive().unwrap(), Value::ok()));
        }
    }
    // In this order: what grows meanwhile makes nothing wrong.
    let looks = connections[0].info("socket_looks");
    let [sleeps, turns] = ["shard_sleeps", "shard_turns"].map(|name| connections[0].info(name));
    println!("{looks} looks, {sleeps} sleeps, {turns} turns");
    let busy = turns / u64::from(TURNS_PER_SOCKET_LOOK);
    assert!((sleeps / 2..=sleeps + busy).contains(&looks), "{looks} looks, {sleeps} sleeps");
}

/// A hybrid thread polls for rings and mail. What only its sockets bring, as the requests
/// of a connection that thinks in between, costs it no more looks than in event mode.
#[test]
fn a_hybrid_thread_does_not_poll_for_its_sockets() {
    for wake in ["event", "hybrid"] {
        let server = ServerProcess::start(&["--max-memory=64MiB", "--shards=1", "--wake", wake]);
        let mut resp = server.resp();
        for _ in 0..300 {
            assert_eq!(resp.call("SET k v"), Value::ok());
            std::thread::sleep(Duration::from_millis(1));
        }
        let [looks, sleeps] = ["socket_looks", "shard_sleeps"].map(|name| resp.info(name));
        println!("{wake}: {looks} looks, {sleeps} sleeps");
        // Some, as a last scan may find a request; a thread that polls has a quarter more.
        assert!(looks <= sleeps + 20, "{wake}: {looks} looks, {sleeps} sleeps");
    }
}

/// Eight threads with eight sessions each, all at once: each has rings of its own.
#[test]
fn threads_of_a_process_do_not_wait_for_each_other() {
    const THREADS: usize = 8;
    let server = server();
    let shared = client(&server);
    let start = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut sessions: Vec<Session> =
                    (0..SESSIONS / THREADS).map(|_| shared.session().unwrap()).collect();
                start.wait();
                for _ in 0..4 * ROUNDS {
                    sessions.iter_mut().for_each(|session| ask(session, BATCH));
                }
            });
        }
    });
    let frames = shared.sends().frames;
    assert_eq!(frames as usize, 4 * ROUNDS * SESSIONS * BATCH);
    assert_eq!(shared.lock_waits(), 0);
}

/// Requests about many keys ask each other shard once, however many keys it has.
#[test]
fn many_keys_make_one_job_for_each_shard() {
    let server = server();
    let mut resp = server.resp();
    let mut info = server.resp();
    let keys: Vec<String> = (0..64).map(|key| format!("many-{key}")).collect();
    let request = |name: &str, value: &str| {
        let words = keys.iter().flat_map(|key| [key.as_str(), value]);
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        format!("{name} {}", words.join(" "))
    };
    let start = InfoCounts::now(&mut info);
    let mut jobs = |resp: &mut Resp, request: &str| {
        let before = InfoCounts::now(&mut info);
        let reply = resp.call(request);
        (reply, InfoCounts::now(&mut info).since(before))
    };
    // Keys that are missing are asked for, others are read in their shards' memory.
    let absent = jobs(&mut resp, &request("MGET", ""));
    let set = jobs(&mut resp, &request("MSET", "v"));
    let hits = resp.info("keyspace_hits");
    let read = jobs(&mut resp, &request("MGET", ""));
    assert_eq!(resp.info("keyspace_hits") - hits, 64, "wherever they were read");
    let counted = jobs(&mut resp, &request("TOUCH", ""));
    let removed = jobs(&mut resp, &request("DEL", ""));
    println!("{absent:?} {set:?} {read:?} {counted:?} {removed:?}");
    for (what, (_, counts)) in [("MGET", absent), ("MSET", set), ("TOUCH", counted.clone())] {
        assert!((1..SHARDS).contains(&counts.jobs), "{what}: {counts:?}");
    }
    assert_eq!(read.0, Value::Array(vec![Value::bulk("v"); 64]));
    assert_eq!(read.1.jobs, 0, "all were read");
    assert_eq!((counted.0, removed.0), (Value::Integer(64), Value::Integer(64)));
    assert!((1..SHARDS).contains(&removed.1.jobs));
    // There and back, for the four that ask. In sum: a thread counts mail after it has handed it
    // over, so mail with answers may be counted after the reply has come.
    let all = InfoCounts::now(&mut info).since(start);
    assert!(all.mails <= 4 * 2 * (SHARDS - 1), "{all:?}");
}

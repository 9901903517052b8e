//! Changes that are acknowledged once replicas have stored them, with real processes: replicas that
//! come, lag, stop and die, over shared memory and TCP.

use remora_client::{Address, Client, Error, Options, Refusal};
use remora_tests::{
    Resp, ServerDirectory, ServerProcess, Value, free_port, run_remora, wait_for, wait_until,
};
use rustix::process::Signal;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SMALL: [&str; 3] = ["--max-memory=64MiB", "--pin=false", "--wake=event"];
/// A laggard leaves after this and little more.
const TIMEOUT: Duration = Duration::from_millis(1000);

const LONG: Duration = Duration::from_secs(20);

/// A primary that asks for replicas.
struct Primary {
    place: Arc<ServerDirectory>,
    address: String,
    server: ServerProcess,
}

impl Primary {
    fn start(flags: &[&str]) -> Self {
        let (place, address) = (ServerDirectory::new(), format!("127.0.0.1:{}", free_port()));
        let fabric = format!("--fabric-address={address}");
        let flags = [&SMALL[..], &["--shards=2", &fabric], flags].concat();
        let server = ServerProcess::start_at(&place, &flags);
        Self { place, address, server }
    }

    fn replica(&self, over_tcp: bool) -> ServerProcess {
        let of = match over_tcp {
            true => format!("--replica-of={}", self.address),
            false => format!("--replica-of={}", self.place.socket().display()),
        };
        let own = format!("--fabric-address=127.0.0.1:{}", free_port());
        // What it has applied is read at it.
        let mut flags = [&SMALL[..], &[&of, "--shards=2", "--replica-reads=stale"]].concat();
        if over_tcp {
            flags.extend(["--transport=tcp", &own]);
        }
        ServerProcess::start(&flags)
    }

    /// Waits until every shard has so many members in its set.
    fn has_in_sync(&self, members: u64) {
        let mut resp = self.server.resp();
        wait_until("the set has its members", || resp.info("in_sync_replicas") == members);
    }
}

/// Asks for a change until it is taken. A replica that gets no processor for a second on a busy
/// machine leaves the set, as it should, and comes back; a refused change has changed nothing.
fn change(resp: &mut Resp, request: &str) -> Value {
    wait_for("enough replicas keep up", || {
        Some(resp.call(request)).filter(|reply| *reply != refused())
    })
}

fn refused() -> Value {
    Value::Error("NOREPLICAS Not enough good replicas to write.".into())
}

/// Stops a process, and waits until none of its threads runs any more.
fn stop(process: &ServerProcess) {
    process.signal(Signal::STOP);
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        status.contains("State:\tT")
    };
    let tasks = format!("/proc/{}/task", process.pid());
    wait_until("it is stopped", || std::fs::read_dir(&tasks).unwrap().all(is_stopped));
}

/// How long a request takes.
fn timed(resp: &mut Resp, request: &str) -> (Value, Duration) {
    let started = Instant::now();
    let value = resp.call(request);
    (value, started.elapsed())
}

#[test]
fn changes_are_refused_without_enough_replicas_and_go_on_when_one_is_back() {
    for over_tcp in [false, true] {
        let primary = Primary::start(&["--min-replicas=1"]);
        let mut resp = primary.server.resp();
        assert_eq!(resp.call("SET key 1"), refused());
        assert_eq!((resp.call("GET key"), resp.info("min_replicas")), (Value::Null, 1));
        let socket = Address::unix(primary.place.socket());
        let client = Client::connect(&socket, &Options::default()).unwrap();
        let mut session = client.session().unwrap();
        let refusal = session.set(b"key", b"1").unwrap_err();
        assert_eq!(refusal, Error::Refused(Refusal::TooFewReplicas));
        assert!(refusal.to_string().contains("--min-replicas"), "{refusal}");

        for round in 0..2 {
            let replica = primary.replica(over_tcp);
            primary.has_in_sync(1);
            for key in 0..50 {
                assert_eq!(change(&mut resp, &format!("SET key-{key} {round}")), Value::ok());
                let own = format!("own-{key}");
                let set = wait_for("enough replicas keep up", || {
                    let set = session.set(own.as_bytes(), b"1");
                    Some(set).filter(|set| *set != Err(Error::Refused(Refusal::TooFewReplicas)))
                });
                set.unwrap();
            }
            // It is received before it is acknowledged, and applied a little later.
            wait_until("all is replicated", || {
                let last = resp.info("master_repl_offset");
                last == 100 * (round + 1) && resp.info("replicated_offset") == last
            });
            let mut of = replica.resp();
            wait_until("it is applied", || of.call("GET key-49") == Value::bulk(round.to_string()));
            drop(replica);
            primary.has_in_sync(0);
            assert_eq!(resp.call("SET key-0 other"), refused());
            assert_eq!(resp.call("GET key-0"), Value::bulk(round.to_string()), "reads go on");
        }
    }
}

#[test]
fn a_stopped_replica_holds_changes_up_until_it_leaves_the_set_and_comes_back_by_itself() {
    let primary = Primary::start(&["--min-replicas=1"]);
    let [other, stopped] = [primary.replica(false), primary.replica(true)];
    primary.has_in_sync(2);
    let mut resp = primary.server.resp();
    let (reply, usual) = timed(&mut resp, "SET key 1");
    assert_eq!(reply, Value::ok());
    assert!(usual < TIMEOUT, "{usual:?}");

    stop(&stopped);
    let (reply, took) = timed(&mut resp, "SET key 2");
    assert_eq!(reply, Value::ok());
    assert!(took > TIMEOUT - Duration::from_millis(100), "it was waited for: {took:?}");
    // The key's shard does without it now.
    let (reply, took) = timed(&mut resp, "SET key 3");
    assert_eq!(reply, Value::ok());
    assert!(took < TIMEOUT / 2, "{took:?}");
    assert!(resp.info("replicas_lagged") >= 1);

    stopped.signal(Signal::CONT);
    primary.has_in_sync(2);
    assert_eq!(resp.call("SET key 4"), Value::ok());
    for replica in [&other, &stopped] {
        let mut replica = replica.resp();
        wait_until("it has it", || replica.call("GET key") == Value::bulk("4"));
    }
}

#[test]
fn a_change_that_waits_for_the_only_replica_is_acknowledged_once_it_is_back() {
    let primary = Primary::start(&["--min-replicas=1"]);
    let replica = primary.replica(true);
    primary.has_in_sync(1);
    let mut resp = primary.server.resp();
    assert_eq!(change(&mut resp, "SET key old"), Value::ok());
    stop(&replica);
    let mut waits = primary.server.resp();
    waits.send(&[b"SET", b"key", b"new"]).unwrap();
    wait_until("it has been logged", || resp.info("replies_held") == 1);
    // What does not depend on it is answered, before the replica is given up and after.
    assert_eq!(resp.call("GET other"), Value::Null);
    primary.has_in_sync(0);
    assert_eq!(resp.call("SET key newer"), refused());
    assert_eq!(resp.call("GET other"), Value::Null);
    waits.socket.set_nonblocking(true).unwrap();
    assert!(waits.wait_for_reply().is_err(), "it is not acknowledged");
    waits.socket.set_nonblocking(false).unwrap();
    replica.signal(Signal::CONT);
    assert_eq!(waits.receive().unwrap(), Value::ok());
    assert_eq!(resp.call("GET key"), Value::bulk("new"));
    primary.has_in_sync(1);
    assert_eq!(change(&mut resp, "SET key newest"), Value::ok());
}

/// The process does not run, and its memory has what was written there.
#[test]
fn over_shared_memory_a_replica_has_stored_what_lies_in_its_memory() {
    let primary = Primary::start(&["--min-replicas=1"]);
    let replica = primary.replica(false);
    primary.has_in_sync(1);
    let mut resp = primary.server.resp();
    stop(&replica);
    let (reply, took) = timed(&mut resp, "SET key 1");
    assert_eq!((reply, took < TIMEOUT), (Value::ok(), true), "{took:?}");
    // The primary dies before the replica has looked.
    let mut primary = primary;
    primary.server.kill();
    replica.signal(Signal::CONT);
    let mut replica = replica.resp();
    wait_until("it has received it", || replica.info("slave_received_offset") >= 1);
}

/// Strict: the replica's thread has to say so.
#[test]
fn a_strict_primary_waits_for_the_thread_of_the_replica() {
    let primary = Primary::start(&["--min-replicas=1", "--replica-acks=strict"]);
    let [_other, stopped] = [primary.replica(true), primary.replica(false)];
    primary.has_in_sync(2);
    let mut resp = primary.server.resp();
    for value in 0..100 {
        assert_eq!(resp.call(&format!("SET key {value}")), Value::ok());
    }
    stop(&stopped);
    let (reply, took) = timed(&mut resp, "SET key 1");
    assert_eq!(reply, Value::ok());
    assert!(took > TIMEOUT - Duration::from_millis(100), "{took:?}");
    stopped.signal(Signal::CONT);
    primary.has_in_sync(2);
}

#[test]
fn replies_leave_when_the_write_has_completed_and_no_tick_is_waited_for() {
    for over_tcp in [false, true] {
        let primary = Primary::start(&["--min-replicas=1"]);
        let _replica = primary.replica(over_tcp);
        primary.has_in_sync(1);
        let mut resp = primary.server.resp();
        let mut times: Vec<Duration> =
            (0..200).map(|at| timed(&mut resp, &format!("SET key-{at} 1")).1).collect();
        times.sort();
        // An awake shard ticks each 10 ms, a sleeping one each 100 ms.
        assert!(times[100] < Duration::from_millis(5), "over TCP: {over_tcp}, {:?}", times[100]);
    }
}

#[test]
fn a_disk_and_replicas_are_both_waited_for_and_a_restart_keeps_what_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", directory.path().join("data").display());
    let flags = ["--min-replicas=1", &data, "--durability=fsync"];
    let primary = Primary::start(&flags);
    assert_eq!(primary.server.resp().call("SET key 1"), refused());
    let replica = primary.replica(true);
    primary.has_in_sync(1);
    assert_eq!(change(&mut primary.server.resp(), "SET key 1"), Value::ok());
    drop((primary, replica));
    let primary = Primary::start(&flags);
    let mut resp = primary.server.resp();
    assert_eq!(resp.call("GET key"), Value::bulk("1"));
    assert_eq!(resp.call("SET key 2"), refused());
}

#[test]
fn too_many_replicas_are_refused_and_what_holds_is_said() {
    let run = run_remora(&["serve", "--port=0", "--min-replicas=17"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.err.contains("min_replicas: 17 is not in 0..=16"), "{run:?}");
    let run = run_remora(&["serve", "--check", "--min-replicas=2", "--replica-acks=strict"]);
    assert!(run.out.contains("min_replicas = 2\nreplica_acks = \"strict\""), "{run:?}");
}

#[test]
fn wait_counts_the_replicas_that_have_stored_what_was_written_before() {
    let primary = Primary::start(&[]);
    let mut resp = primary.server.resp();
    assert_eq!(resp.call("SET key 0"), Value::ok());
    assert_eq!(resp.call("WAIT 0 0"), Value::Integer(0));
    let [_other, stopped] = [primary.replica(false), primary.replica(true)];
    primary.has_in_sync(2);
    let socket = Address::unix(primary.place.socket());
    let client = Client::connect(&socket, &Options::default()).unwrap();
    let mut session = client.session().unwrap();
    for value in 1..20 {
        assert_eq!(resp.call(&format!("SET key {value}")), Value::ok());
        assert_eq!(resp.call("WAIT 2 0"), Value::Integer(2));
        session.set(b"own", b"1").unwrap();
        session.wait_replicated(2, LONG).unwrap();
    }
    let (reply, took) = timed(&mut resp, "WAIT 3 200");
    assert_eq!(reply, Value::Integer(2));
    assert!(took >= Duration::from_millis(190), "{took:?}");

    stop(&stopped);
    assert_eq!(resp.call("SET key 20"), Value::ok());
    assert_eq!(resp.call("WAIT 1 0"), Value::Integer(1));
    assert_eq!(resp.call("WAIT 2 100"), Value::Integer(1));
    session.set(b"own", b"2").unwrap();
    session.wait_replicated(1, LONG).unwrap();
    let lacks = session.wait_replicated(2, Duration::from_millis(100)).unwrap_err();
    assert_eq!(lacks, Error::NotReplicated { replicas: 1 });
    stopped.signal(Signal::CONT);
    assert_eq!(resp.call("WAIT 2 0"), Value::Integer(2));
    session.wait_replicated(2, LONG).unwrap();

    // They have no disks, and neither has the primary.
    let none = Value::Array(vec![Value::Integer(0), Value::Integer(0)]);
    assert_eq!(resp.call("WAITAOF 0 1 100"), none);
    for (request, words) in [
        ("WAIT -1 0", "ERR value is out of range, must be positive"),
        ("WAIT 1 -1", "ERR timeout is negative"),
        ("WAIT 1 x", "ERR value is not an integer or out of range"),
    ] {
        let Value::Error(refusal) = resp.call(request) else { panic!("{request}") };
        assert!(refusal.starts_with(words.split(',').next().unwrap()), "{request}: {refusal}");
    }
}

//! Servers change their roles while they run: replicas of another server, primaries by hand, and
//! back again. What is not to be followed is refused, with the reason.

use crate::replicas::{Primary, SMALL, catch_up, digest, fill, keys, says};
use remora_client_core::SetOptions;
use remora_tests::{Resp, ServerProcess, Value, free_port, run_redis_py_with, wait_until};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// After this nothing that was asked for is still on its way to a shard.
const ANSWERED_BY: Duration = Duration::from_secs(3);

/// A server whose fabric address is known.
struct Node {
    server: ServerProcess,
    address: String,
}

impl Node {
    fn start(shards: usize) -> Self {
        Self::with(shards, &[])
    }

    fn with(shards: usize, flags: &[&str]) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let own = [format!("--fabric-address={address}"), format!("--shards={shards}")];
        let [fabric, shards] = own.each_ref().map(String::as_str);
        let own = [fabric, shards, "--replica-reads=stale"];
        let has_memory = flags.iter().any(|flag| flag.starts_with("--max-memory"));
        let small = if has_memory { &SMALL[1..] } else { &SMALL[..] };
        let server = ServerProcess::start(&[small, &own, flags].concat());
        Self { server, address }
    }

    fn resp(&self) -> Resp {
        self.server.resp()
    }

    fn follow(&self, primary: &Self) {
        let followed = self.resp().call(&format!("REPLICAOF {}", primary.address));
        assert_eq!(followed, Value::ok());
    }
}

fn error(reply: Value) -> String {
    match reply {
        Value::Error(text) => text,
        other => panic!("no error: {other:?}"),
    }
}

fn role(resp: &mut Resp) -> Vec<Value> {
    match resp.call("ROLE") {
        Value::Array(parts) => parts,
        other => panic!("ROLE gives {other:?}"),
    }
}

/// Waits until the replica has a link, and all that its primary has.
fn follows(primary: &Node, replica: &Node) {
    let mut replica = replica.resp();
    wait_until("the copy has ended", || {
        says(&mut replica, "master_link_status:up")
            && says(&mut replica, "master_sync_in_progress:0")
    });
    catch_up(&mut primary.resp(), &mut replica);
}

#[test]
fn a_primary_becomes_a_replica_and_a_replica_a_primary() {
    let (one, two) = (Node::start(2), Node::start(2));
    fill(&mut one.resp(), 0);
    two.resp().call("SET own 1");
    let (host, port) = one.address.split_once(':').unwrap();
    // In two words, as Redis.
    assert_eq!(two.resp().call(&format!("SLAVEOF {host} {port}")), Value::ok());
    let refused = error(two.resp().call("SET own 2"));
    assert!(refused.starts_with("READONLY "), "{refused}");
    follows(&one, &two);
    assert_eq!(two.resp().call("EXISTS own"), Value::Integer(0), "a copy replaces what it had");
    let told = role(&mut two.resp());
    assert_eq!(told[..2], [Value::bulk("slave"), Value::bulk(host)]);
    assert_eq!(told[2], Value::Integer(port.parse().unwrap()));
    assert_eq!(told[3], Value::bulk("connected"));
    wait_until("the primary names its replica", || {
        let told = role(&mut one.resp());
        let port = two.server.resp_address().port().to_string();
        told[0] == Value::bulk("master")
            && matches!(&told[2], Value::Array(of) if matches!(&of[..], [Value::Array(of)]
                if of[..2] == [Value::bulk("127.0.0.1"), Value::bulk(port.as_str())]))
    });
    // By hand, in one pipeline: what comes behind the change is carried out in the new role.
    let mut resp = two.resp();
    resp.send_raw(b"REPLICAOF NO ONE\r\nSET own 3\r\nROLE\r\n").unwrap();
    assert_eq!(resp.receive().unwrap(), Value::ok());
    assert_eq!(resp.receive().unwrap(), Value::ok());
    assert!(matches!(resp.receive().unwrap(), Value::Array(of) if of[0] == Value::bulk("master")));
    assert!(resp.info("epoch") > one.resp().info("epoch"));
    assert_eq!(resp.call("REPLICAOF NO ONE"), Value::ok(), "it is one");
    fill(&mut resp, 1);
    // The old primary becomes its replica, and copies all of it.
    one.follow(&two);
    follows(&two, &one);
    assert_eq!(one.resp().call("GET own"), Value::bulk("3"));
}

#[test]
fn roles_go_back_and_forth_under_load() {
    let nodes = [Node::start(2), Node::start(2)];
    fill(&mut nodes[0].resp(), 0);
    nodes[1].follow(&nodes[0]);
    follows(&nodes[0], &nodes[1]);
    let stops = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    // Writers at both: the one that is a replica refuses.
    let writers: Vec<_> = nodes
        .iter()
        .map(|node| {
            let (mut resp, stops, written) =
                (node.resp(), Arc::clone(&stops), Arc::clone(&written));
            thread::spawn(move || {
                for at in 0.. {
                    if stops.load(Ordering::Relaxed) {
                        return;
                    }
                    let set = match at % 3 {
                        0 => format!("SET under-load-{} {at}", at % 97),
                        1 => format!("HSET load field-{} {at}", at % 89),
                        _ => format!("APPEND grows-{} x", at % 7),
                    };
                    match resp.call(&set) {
                        Value::Error(text) => assert!(text.starts_with("READONLY "), "{text}"),
                        _ => _ = written.fetch_add(1, Ordering::Relaxed),
                    }
                }
            })
        })
        .collect();
    for round in 0..4 {
        let (new, old) = (&nodes[(round + 1) % 2], &nodes[round % 2]);
        let before = written.load(Ordering::Relaxed);
        assert_eq!(new.resp().call("REPLICAOF NO ONE"), Value::ok());
        old.follow(new);
        wait_until("writes go on at the new primary", || {
            written.load(Ordering::Relaxed) > before + 200
        });
        let mut old = old.resp();
        wait_until("the old one has its copy", || {
            says(&mut old, "master_sync_in_progress:0") && says(&mut old, "slave_copies:2")
        });
    }
    stops.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    follows(&nodes[0], &nodes[1]);
    assert_eq!(nodes[0].resp().info("epoch"), 5, "one for each promotion");
}

/// Connections, and a thread with a session, whose changes wait for a replica that is stopped: eight
/// of both threads and both shards, and the session's own.
///
/// The replica leaves the set a second after it is stopped, and changes are refused from then on. On
/// a busy machine that is too early for some of them, and one that has just come back may be counted by one
/// shard only, so that all are answered: then it goes on, and all is begun again.
fn pending_changes(
    primary: &Node,
    replica: &Node,
) -> (Vec<Resp>, JoinHandle<Result<bool, remora_client_core::Error>>) {
    let mut resp = primary.resp();
    for round in 0..20 {
        let mut pending: Vec<Resp> = (0..8).map(|_| primary.resp()).collect();
        let mut session = primary.server.session();
        wait_until("both shards take changes", || resp.info("in_sync_replicas") == 1);
        replica.server.signal(Signal::STOP);
        for (at, resp) in pending.iter_mut().enumerate() {
            resp.send_raw(format!("INCR pending-{round}-{at}\r\n").as_bytes()).unwrap();
        }
        let in_session =
            thread::spawn(move || session.set(b"pending", b"1", SetOptions::default()));
        let stopped = Instant::now();
        wait_until("they wait, or the replica has left, or nothing waits for it", || {
            let is_over = resp.info("in_sync_replicas") == 0
                || resp.info("replies_held") == 0 && stopped.elapsed() > ANSWERED_BY;
            resp.info("replies_held") >= 9 || is_over
        });
        if resp.info("replies_held") >= 9 {
            return (pending, in_session);
        }
        replica.server.signal(Signal::CONT);
        // Each is answered now, by the change or by a refusal.
        pending.iter_mut().for_each(|resp| drop(resp.receive().unwrap()));
        _ = in_session.join().unwrap();
    }
    panic!("the replica leaves too early, each time");
}

#[test]
fn a_change_that_waits_for_replicas_is_not_acknowledged_by_a_new_replica() {
    let (one, other) = (Node::with(2, &["--min-replicas=1"]), Node::start(2));
    // Over TCP a process that is stopped stores nothing.
    let two = Node::with(2, &["--transport=tcp"]);
    two.follow(&one);
    follows(&one, &two);
    wait_until("changes are taken", || one.resp().call("SET before 1") == Value::ok());
    let mut resp = one.resp();
    let (pending, in_session) = pending_changes(&one, &two);
    assert_eq!(resp.call(&format!("REPLICAOF {}", other.address)), Value::ok());
    for mut resp in pending {
        match resp.receive() {
            // It may lie at the replica that is stopped: no refusal.
            Ok(Value::Error(text)) => assert!(text.starts_with("UNBLOCKED "), "{text}"),
            Ok(other) => panic!("{other:?} for a change that is lost"),
            Err(_) => {}
        }
    }
    in_session.join().unwrap().expect_err("its change is lost");
    follows(&other, &one);
    assert_eq!(one.resp().call("DBSIZE"), Value::Integer(0));
    two.server.signal(Signal::CONT);
}

#[test]
fn a_promoted_replica_has_all_that_was_written() {
    let (one, three) = (Node::start(2), Node::with(3, &["--max-memory=192MiB"]));
    three.follow(&one);
    let mut resp = one.resp();
    for at in 0..20_000 {
        resp.send_raw(format!("SET key-{at} {at}\r\n").as_bytes()).unwrap();
    }
    (0..20_000).for_each(|_| assert_eq!(resp.receive().unwrap(), Value::ok()));
    follows(&one, &three);
    assert_eq!(three.resp().call("REPLICAOF NO ONE"), Value::ok());
    assert_eq!(digest(&mut one.resp()), digest(&mut three.resp()));
    assert_eq!(three.resp().call("DBSIZE"), Value::Integer(20_000));
}

#[test]
fn chains_loops_and_wrong_addresses_are_refused_with_the_reason() {
    let (one, two, three) = (Node::start(2), Node::start(2), Node::start(2));
    fill(&mut one.resp(), 0);
    two.follow(&one);
    follows(&one, &two);
    // A chain.
    let mut resp = three.resp();
    resp.call("SET kept 1");
    let before = digest(&mut resp);
    three.follow(&two);
    wait_until("it says whose replica that is", || {
        says(&mut resp, &format!("itself a replica, of {}", one.address))
    });
    assert_eq!(role(&mut resp)[3], Value::bulk("connect"));
    assert_eq!(digest(&mut resp), before, "nothing was copied");
    // It goes on trying, and gets through once that is a primary.
    assert_eq!(two.resp().call("REPLICAOF NO ONE"), Value::ok());
    follows(&two, &three);
    // A primary with a replica becomes one: that replica keeps what it has.
    two.follow(&one);
    let mut resp = three.resp();
    wait_until("it is refused", || says(&mut resp, "itself a replica"));
    assert_eq!(resp.call("GET m-1"), Value::bulk("0"));
    follows(&one, &two);
    // What that leads with is another log.
    assert_eq!(two.resp().call("REPLICAOF NO ONE"), Value::ok());
    wait_until("it does not take that", || says(&mut resp, "RESYNC copies it"));
    assert_eq!(resp.call("RESYNC"), Value::ok());
    follows(&two, &three);
    // Itself, by both of its addresses.
    let own = error(two.resp().call(&format!("REPLICAOF {}", two.address)));
    assert!(own.contains("this server itself"), "{own}");
    let own = error(two.resp().call(&format!("REPLICAOF {}", two.server.socket().display())));
    assert!(own.contains("this server itself"), "{own}");
    // By one that it does not know for its own: it is noticed when it connects.
    let port = free_port();
    let wide = format!("--fabric-address=0.0.0.0:{port}");
    let wide = ServerProcess::start(
        &[&SMALL[..], &[&wide, "--shards=1", "--protected-mode=false"]].concat(),
    );
    let mut resp = wide.resp();
    assert_eq!(resp.call(&format!("REPLICAOF 127.0.0.1 {port}")), Value::ok());
    wait_until("it notices", || says(&mut resp, "the address of the replica itself"));
    // No address, no server, and the address for RESP.
    for wrong in ["nowhere", "127.0.0.1", "no where"] {
        let why = error(one.resp().call(&format!("REPLICAOF {wrong}")));
        assert!(why.contains("is neither a socket's path"), "{why}");
    }
    let mut resp = two.resp();
    assert_eq!(resp.call(&format!("REPLICAOF {}", one.server.resp_address())), Value::ok());
    wait_until("it says that this is no fabric address", || {
        says(&mut resp, "answers as a server for RESP does")
    });
    assert_eq!(resp.call("REPLICAOF NO ONE"), Value::ok(), "its own data are whole");
    assert_eq!(resp.call("GET m-1"), Value::bulk("0"));
    assert!(error(resp.call("RESYNC")).contains("is a primary"));
}

#[test]
fn resync_copies_a_primary_that_came_back_empty() {
    let mut primary = Primary::start();
    fill(&mut primary.server.resp(), 0);
    let replica = primary.replica(2, true);
    let mut replica = replica.resp();
    catch_up(&mut primary.server.resp(), &mut replica);
    let before = digest(&mut replica);
    primary.server.kill();
    // With fewer shards, and as much memory for each.
    let fabric = format!("--fabric-address={}", primary.address);
    let flags = ["--shards=1", "--max-memory=32MiB", &fabric];
    let server = ServerProcess::start_at(&primary.place, &[&SMALL[1..], &flags].concat());
    wait_until("it says why, and what helps", || says(&mut replica, "RESYNC copies it"));
    server.resp().call("SET other 1");
    assert_eq!(digest(&mut replica), before);
    assert_eq!(replica.call("RESYNC"), Value::ok());
    catch_up(&mut server.resp(), &mut replica);
    assert_eq!(replica.call("DBSIZE"), Value::Integer(1));
    assert!(says(&mut replica, "master_trouble:\r\n"));
}

#[test]
fn redis_py_reads_both_roles() {
    let (one, two) = (Node::start(2), Node::start(2));
    let of = |address: std::net::SocketAddr| [address.ip().to_string(), address.port().to_string()];
    let fabric = of(one.address.parse().unwrap());
    let arguments = [of(one.server.resp_address()), of(two.server.resp_address()), fabric].concat();
    run_redis_py_with("roles.py", &arguments, "redis-py reads both roles");
}

/// Fills a server, in one pipeline.
fn fill_many(resp: &mut Resp, keys: usize) {
    let value = "v".repeat(400);
    let mut requests = Vec::new();
    (0..keys).for_each(|at| requests.extend(format!("SET many-{at} {at}{value}\r\n").as_bytes()));
    let mut sender = Resp::connect(resp.socket.peer_addr().unwrap()).unwrap();
    let mut socket = sender.socket.try_clone().unwrap();
    let writer = thread::spawn(move || {
        std::io::Write::write_all(&mut socket, &requests).unwrap();
    });
    (0..keys).for_each(|_| assert_eq!(sender.receive().unwrap(), Value::ok()));
    writer.join().unwrap();
}

/// A primary that is stopped while the replica copies it.
fn stopped_in_a_copy(written: usize) -> (Primary, ServerProcess) {
    let primary = Primary::start();
    fill_many(&mut primary.server.resp(), written);
    let replica = primary.replica(2, true);
    let mut resp = replica.resp();
    let records = |resp: &mut Resp| {
        let Value::Bulk(text) = resp.call("INFO replication") else { panic!("no text") };
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("master_sync_records:"));
        line.map_or(0, |number| number.parse::<usize>().unwrap())
    };
    wait_until("a part of the copy has come", || records(&mut resp) > 0);
    primary.server.signal(Signal::STOP);
    wait_until("the link is down", || says(&mut resp, "master_link_status:down"));
    assert!(says(&mut resp, "master_sync_in_progress:1"), "it was stopped too late");
    let has = keys(&mut resp);
    assert!(0 < has && has < written, "{has} of {written}");
    (primary, replica)
}

#[test]
fn a_copy_that_a_cut_link_interrupts_begins_anew() {
    let (primary, replica) = stopped_in_a_copy(60_000);
    let mut resp = replica.resp();
    // A part of a copy is no state of anything.
    let refused = error(resp.call("REPLICAOF NO ONE"));
    assert!(refused.contains("a part of a copy"), "{refused}");
    primary.server.signal(Signal::CONT);
    let mut of = primary.server.resp();
    // What goes meanwhile is not there in the end.
    for at in 0..200 {
        of.call(&format!("DEL many-{}", at * 300));
    }
    catch_up(&mut of, &mut resp);
    assert_eq!(resp.call("DBSIZE"), Value::Integer(60_000 - 200));
    assert!(says(&mut resp, "master_sync_in_progress:0"));
    assert_eq!(resp.call("REPLICAOF NO ONE"), Value::ok());
}

#[test]
fn a_copy_of_a_primary_that_died_is_not_mixed_with_its_successor() {
    let (mut primary, replica) = stopped_in_a_copy(60_000);
    let mut resp = replica.resp();
    primary.server.kill();
    let server = Primary::serve(&primary.place, &primary.address);
    server.resp().call("SET other 1");
    wait_until("it says why it does not copy", || says(&mut resp, "RESYNC copies it"));
    assert!(error(resp.call("REPLICAOF NO ONE")).contains("a part of a copy"));
    // A replica in a copy answers no reads.
    let [other, none] =
        ["other", "none"].map(|key| resp.call(&format!("DEBUG DIGEST-VALUE {key}")));
    assert_eq!(other, none, "no key of the successor");
    assert_eq!(resp.call("RESYNC"), Value::ok());
    catch_up(&mut server.resp(), &mut resp);
    assert_eq!(resp.call("DBSIZE"), Value::Integer(1));
}

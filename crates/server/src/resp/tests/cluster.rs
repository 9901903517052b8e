//! Servers of a cluster: which requests they carry out, and what they tell clients that have not
//! asked.

use crate::resp::tests::world::World;
use remora_layout::limits::CONNECTION_MAX_PUSHED_BYTES;
use remora_resp::cluster::{ClusterFacts, GroupFacts, NodeFacts, NodeId, SlotRun};

/// Two groups with half of the slots each: this server leads the first, and has a replica.
fn facts() -> ClusterFacts {
    let node = |member, is_primary| NodeFacts {
        id: NodeId { member, incarnation: 1 },
        host: "h".into(),
        port: 7000 + member as u16,
        is_primary,
        is_healthy: true,
        offset: 0,
    };
    let group = |name: &str, nodes| GroupFacts { name: name.into(), epoch: 1, nodes };
    ClusterFacts {
        own: NodeId { member: 1, incarnation: 1 },
        epoch: 1,
        has_coordinator: true,
        takes_changes: true,
        groups: vec![
            group("one", vec![node(1, true), node(2, false)]),
            group("two", vec![node(3, true)]),
        ],
        slots: vec![
            SlotRun { first: 0, last: 8191, group: 0 },
            SlotRun { first: 8192, last: 16383, group: 1 },
        ],
    }
}

/// The facts once the replica leads.
fn switched() -> ClusterFacts {
    let mut facts = facts();
    facts.groups[0].nodes.iter_mut().for_each(|node| node.is_primary = !node.is_primary);
    facts.groups[0].epoch += 1;
    facts
}

const SWITCH: &str = "+switch-master";

fn world(connections: usize) -> World {
    let mut world = World::at_home(connections);
    world.tell(facts());
    world
}

/// The replies to these requests, each as it comes.
fn check(world: &mut World, replies: &[(&str, &str)]) {
    for (words, reply) in replies {
        let got = world.call(0, &format!("{words}\r\n")).0;
        assert_eq!(got.trim_end(), *reply, "{words}");
    }
}

const CROSSED: &str = "-CROSSSLOT Keys in request don't hash to the same slot";

#[test]
fn a_primary_carries_out_requests_about_its_own_slots() {
    let mut world = world(1);
    // The slot of `b` is 3300, that of `a` is 15495.
    check(
        &mut world,
        &[
            ("SET b 1", "+OK"),
            ("GET b", "$1\r\n1"),
            ("SET a 1", "-MOVED 15495 h:7003"),
            ("GET a", "-MOVED 15495 h:7003"),
            ("MSET b 1 {b}x 2", "+OK"),
            ("MGET {a}x a", "-MOVED 15495 h:7003"),
            ("MSET a 1 b 2", CROSSED),
            ("PLAN.RUN FROM KEYS 2 a b GETALL", "-MOVED 15495 h:7003"),
            ("PLAN.RUN FROM LIST a 0 -1 GETALL", "-MOVED 15495 h:7003"),
            ("PLAN.RUN FROM NEAREST a 0 0 1 GETKEY", "-MOVED 15495 h:7003"),
            ("DEL b a", CROSSED),
            ("RENAME b a", CROSSED),
            ("RENAME b {b}y", "+OK"),
            ("DBSIZE", ":2"),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            ("SELECT 1", "-ERR SELECT is not allowed in cluster mode"),
            ("SELECT 0", "+OK"),
            ("MOVE b 1", "-ERR MOVE is not allowed in cluster mode"),
            ("COPY {b}y b DB 1", "-ERR Copying to another database is not allowed in cluster mode"),
            ("COPY {b}y b", ":1"),
            ("READONLY", "+OK"),
            ("READWRITE", "+OK"),
            ("FLUSHALL", "+OK"),
        ],
    );
    assert!(world.call(0, "ASKING\r\n").0.starts_with("-ERR ASKING is of no use here"));
    assert!(world.call(0, "HELLO 3\r\n").0.contains("$4\r\nmode\r\n$7\r\ncluster\r\n"));
    // Its lease is over.
    world.host().refuses_reads = true;
    let fenced = "-CLUSTERDOWN the recorded in-sync set has not confirmed";
    assert!(world.call(0, "GET b\r\n").0.starts_with(fenced));
    check(&mut world, &[("SET b 2", "+OK")]);
    world.host().refuses_changes = true;
    for change in ["SET b 3\r\n", "DEL b\r\n", "MSET b 1 {b}x 2\r\n", "FLUSHALL\r\n"] {
        assert!(world.call(0, change).0.starts_with(fenced), "{change}");
    }
    check(&mut world, &[("SET a 1", "-MOVED 15495 h:7003")]);
    let digest = world.call(0, "DEBUG DIGEST-VALUE a b\r\n").0;
    assert!(digest.starts_with("*2\r\n"), "operators ask any server: {digest}");
}

#[test]
fn keys_that_are_named_by_patterns_are_refused() {
    let mut world = world(1);
    let by = "-ERR BY option of SORT denied in Cluster mode.";
    let get = "-ERR GET option of SORT denied in Cluster mode.";
    check(
        &mut world,
        &[
            ("RPUSH b 2 1", ":2"),
            ("SORT b BY w_*", by),
            ("SORT b BY w_* LIMIT x 1", by),
            ("SORT_RO b BY nosort BY w_*->f GET #", by),
            ("SORT b GET # BY w_*", get),
            ("SORT b GET no-star foo", get),
            ("SORT b LIMIT x 1 BY w_*", "-ERR value is not an integer or out of range"),
            ("SORT b foo BY w_*", "-ERR syntax error"),
            ("SORT b STORE a", CROSSED),
            ("SORT b BY w_* STORE a", CROSSED),
            ("SORT a BY w_*", "-MOVED 15495 h:7003"),
        ],
    );
}

#[test]
fn a_replica_sends_clients_to_its_primary_unless_they_may_read_here() {
    let mut world = world(2);
    world.call(0, "SET b 1\r\n");
    world.host().is_replica = true;
    let mut facts = switched();
    world.host().cluster = Some(facts.clone().into());
    let moved = "-MOVED 3300 h:7002";
    let read_only = "-READONLY You can't write against a read only replica.";
    check(
        &mut world,
        &[
            ("GET b", moved),
            ("SET b 2", moved),
            ("READONLY", "+OK"),
            ("GET b", "$1\r\n1"),
            ("SET b 2", moved),
            ("GET a", "-MOVED 15495 h:7003"),
            ("FLUSHALL", read_only),
            ("DBSIZE", ":1"),
        ],
    );
    assert_eq!(world.call(1, "GET b\r\n").0.trim_end(), moved, "it has not said READONLY");
    check(&mut world, &[("READWRITE", "+OK"), ("GET b", moved), ("READONLY", "+OK")]);
    world.host().refuses_reads = true;
    check(&mut world, &[("GET b", moved)]);
    // The primary is gone, and nobody leads yet.
    facts.groups[0].nodes[1].is_healthy = false;
    world.host().cluster = Some(facts.into());
    let down = "-CLUSTERDOWN Hash slot not served";
    check(&mut world, &[("GET b", down), ("SET b 2", down), ("GET a", "-MOVED 15495 h:7003")]);
    // It is to lead, and does not yet.
    world.host().cluster = Some(super::cluster::facts().into());
    check(&mut world, &[("SET b 2", down)]);
    world.host().is_replica = false;
    check(&mut world, &[("SET b 2", "+OK")]);
}

#[test]
fn a_primary_that_takes_no_changes_now_says_so_in_words_after_which_clients_try_again() {
    let mut world = world(1);
    let stopped = ClusterFacts { takes_changes: false, ..facts() };
    check(&mut world, &[("SET b 1", "+OK")]);
    world.tell(stopped);
    let down = "-CLUSTERDOWN Hash slot not served";
    check(&mut world, &[("SET b 2", down), ("GET b", "$1\r\n1"), ("DEL b", down)]);
    world.tell(facts());
    check(&mut world, &[("SET b 2", "+OK")]);
}

/// A client of Sentinel may have connected to a former primary, whose answers tell it nothing.
#[test]
fn a_connection_all_of_whose_requests_are_refused_for_a_second_is_ended() {
    let mut world = world(2);
    let moved = "-MOVED 15495 h:7003";
    world.set_time(10_000);
    check(&mut world, &[("GET a", moved)]);
    world.set_time(10_900);
    check(&mut world, &[("GET a", moved), ("GET b", "$-1"), ("SET a 1", moved), ("PING", "+PONG")]);
    world.set_time(11_899);
    check(&mut world, &[("GET a", moved), ("MGET a b", CROSSED)]);
    assert_eq!(world.open(), (2, 0), "one was carried out in between");
    world.set_time(11_900);
    check(&mut world, &[("MGET a b", CROSSED), ("PING", "+PONG")]);
    assert_eq!(world.open(), (2, 0), "these say nothing of another server");
    check(&mut world, &[("SET a 1", moved)]);
    assert_eq!(world.open(), (1, 0), "it has its reply, and is ended");
}

#[test]
fn without_a_cluster_nothing_is_moved() {
    let mut world = World::at_home(1);
    let disabled = "-ERR This instance has cluster support disabled";
    check(
        &mut world,
        &[
            ("MSET a 1 b 2", "+OK"),
            ("READONLY", disabled),
            ("READWRITE", disabled),
            ("SENTINEL MASTERS", disabled),
            ("CLUSTER SLOTS", disabled),
            ("CLUSTER INFO", "$19\r\ncluster_enabled:0"),
            ("CLUSTER KEYSLOT a", ":15495"),
            ("SUBSCRIBE +switch-master", "-ERR a server of no cluster has no channels"),
            ("UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0"),
            ("SELECT 1", "+OK"),
        ],
    );
}

#[test]
fn subscribers_are_told_of_a_switch_and_the_others_connect_anew() {
    let mut world = world(3);
    world.call(0, "SUBSCRIBE +switch-master +sdown\r\n");
    let asked = world.call(1, "HELLO 3\r\nPSUBSCRIBE +switch*\r\n").0;
    assert!(asked.ends_with(">3\r\n$10\r\npsubscribe\r\n$8\r\n+switch*\r\n:1\r\n"), "{asked}");
    check(
        &mut world,
        &[
            ("PING", "*2\r\n$4\r\npong\r\n$0"),
            ("PING hi", "*2\r\n$4\r\npong\r\n$2\r\nhi"),
            (
                "GET b",
                "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT are \
                 allowed in this context",
            ),
        ],
    );
    assert_eq!(world.call(1, "GET b\r\n").0, "_\r\n", "RESP3 tells replies from messages");
    // What has arrived when the server leads no more is answered, then the connection ends.
    world.send(2, "PING\r\n");
    world.tell(switched());
    world.serve_until_idle();
    let message = "$14\r\n+switch-master\r\n$17\r\none h 7001 h 7002\r\n";
    assert_eq!(world.written(0), format!("*3\r\n$7\r\nmessage\r\n{message}"));
    assert_eq!(world.written(1), format!(">4\r\n$8\r\npmessage\r\n$8\r\n+switch*\r\n{message}"));
    assert_eq!((world.written(2).as_str(), world.open()), ("+PONG\r\n", (2, 0)));
    // Nothing is new.
    world.tell(switched());
    world.serve_until_idle();
    assert_eq!(world.written(0) + &world.written(1), "");
    // Another server's fall is told, too, and ends nobody's connection.
    let mut facts = switched();
    facts.groups[1].nodes[0].is_healthy = false;
    world.tell(facts);
    world.serve_until_idle();
    assert!(world.written(0).ends_with("$6\r\n+sdown\r\n$17\r\nmaster two h 7003\r\n"));
    assert_eq!((world.written(1).as_str(), world.open()), ("", (2, 0)));
    check(&mut world, &[("UNSUBSCRIBE +sdown", "*3\r\n$11\r\nunsubscribe\r\n$6\r\n+sdown\r\n:1")]);
    world.call(0, "UNSUBSCRIBE\r\n");
    check(&mut world, &[("PING", "+PONG")]);
}

#[test]
fn a_message_comes_behind_replies_that_wait_and_never_within_one() {
    let mut world = World::new(1);
    world.tell(facts());
    world.call(0, "SET b 1\r\n");
    world.send(0, "INCR b\r\nSUBSCRIBE +switch-master\r\n");
    world.serve_until_idle();
    world.tell(switched());
    world.serve_until_idle();
    assert_eq!(world.written(0), "", "the shard has not answered yet");
    let all = world.call(0, "").0;
    assert!(all.starts_with(":2\r\n*3\r\n$9\r\nsubscribe\r\n"), "{all}");
    assert!(all.ends_with("$17\r\none h 7001 h 7002\r\n"), "{all}");
}

#[test]
fn a_subscriber_that_does_not_read_loses_its_connection_and_is_counted() {
    let mut world = world(2);
    for of in 0..2 {
        world.call(of, &format!("SUBSCRIBE {SWITCH}\r\n"));
    }
    world.bound(0, 100);
    let (mut messages, mut told) = (0, 0);
    while world.open().0 == 2 {
        messages += 1;
        world.tell(if messages % 2 == 1 { switched() } else { facts() });
        world.serve_until_idle();
        told += world.written(1).len();
        assert!(told <= 2 * CONNECTION_MAX_PUSHED_BYTES, "it is closed some day");
    }
    assert!(told > CONNECTION_MAX_PUSHED_BYTES, "{told} bytes are not many");
    assert_eq!(world.open(), (1, 1));
    world.tell(if messages % 2 == 0 { switched() } else { facts() });
    world.serve_until_idle();
    assert!(world.written(1).contains(SWITCH), "the other one reads, and is told on");
}

//! Replicas that are real processes: they follow their primary over each transport, with any number
//! of shards, through links that are lost.

use remora_tests::{Resp, ServerDirectory, ServerProcess, Value, free_port, wait_until};
use rustix::process::Signal;
use std::sync::Arc;

pub(crate) const SMALL: [&str; 3] = ["--max-memory=64MiB", "--pin=false", "--wake=event"];

/// Something of each type, and some of it gone again.
pub(crate) fn fill(resp: &mut Resp, round: u32) {
    for number in 0..200 {
        resp.call(&format!("SET key-{round}-{number} value-{number}"));
        resp.call(&format!("HSET large field-{round}-{number} {number}"));
        resp.call(&format!("GEOADD places 13.{number} 38.{round} place-{round}-{number}"));
    }
    let long = "l".repeat(300_000);
    for request in [
        format!("DEL key-{round}-1 key-{round}-2"),
        "INCRBY counter 5".into(),
        format!("SET long {long}"),
        "SETBIT bits 70 1".into(),
        format!("EXPIRE key-{round}-3 100000"),
        format!("HSET hash a {round} b 2"),
        format!("MSET m-1 {round} m-2 b m-3 c m-4 d"),
        format!("COPY m-1 copied-{round}"),
        "RTREE.CREATE tree".into(),
        format!("RTREE.ADD tree {round} 1 2 3 4"),
    ] {
        resp.call(&request);
    }
}

/// A primary whose fabric address stays the same when it is started again.
pub(crate) struct Primary {
    pub place: Arc<ServerDirectory>,
    pub address: String,
    pub server: ServerProcess,
}

impl Primary {
    pub fn start() -> Self {
        let (place, address) = (ServerDirectory::new(), format!("127.0.0.1:{}", free_port()));
        let server = Self::serve(&place, &address);
        Self { place, address, server }
    }

    pub fn serve(place: &Arc<ServerDirectory>, address: &str) -> ServerProcess {
        let fabric = format!("--fabric-address={address}");
        ServerProcess::start_at(place, &[&SMALL[..], &["--shards=2", &fabric]].concat())
    }

    /// A replica with so many shards, over shared memory or TCP.
    pub fn replica(&self, shards: usize, over_tcp: bool) -> ServerProcess {
        let of = match over_tcp {
            true => format!("--replica-of={}", self.address),
            false => format!("--replica-of={}", self.place.socket().display()),
        };
        let own = format!("--fabric-address=127.0.0.1:{}", free_port());
        // Three shards may each get all keys of both of the primary's.
        let memory = if shards == 3 { "--max-memory=192MiB" } else { "--max-memory=64MiB" };
        let shards = format!("--shards={shards}");
        let stale = "--replica-reads=stale";
        let mut flags = [&SMALL[1..], &[memory, &of, &shards, stale]].concat();
        if over_tcp {
            flags.extend(["--transport=tcp", &own]);
        }
        ServerProcess::start(&flags)
    }
}

/// Whether a replica says this of its primary.
pub(crate) fn says(replica: &mut Resp, what: &str) -> bool {
    let Value::Bulk(text) = replica.call("INFO replication") else { panic!("INFO gives no text") };
    String::from_utf8_lossy(&text).contains(what)
}

pub(crate) fn digest(resp: &mut Resp) -> Value {
    resp.call("DEBUG DIGEST")
}

/// Keys of a server, also of a replica that answers no reads.
pub(crate) fn keys(resp: &mut Resp) -> usize {
    let Value::Bulk(text) = resp.call("INFO keyspace") else { panic!("INFO gives no text") };
    let text = String::from_utf8(text).unwrap();
    let of = |line: &str| line.split_once(":keys=")?.1.split(',').next()?.parse::<usize>().ok();
    text.lines().filter_map(of).sum()
}

/// Waits until a replica that answers reads has applied all that its primary has logged.
pub(crate) fn catch_up(primary: &mut Resp, replica: &mut Resp) {
    let last = primary.info("master_repl_offset");
    wait_until("the replica has it all", || replica.info("slave_repl_offset") >= last);
    assert_eq!(digest(primary), digest(replica));
    wait_until("it answers reads", || !replica.call("EXISTS key").is_error());
}

#[test]
fn replicas_have_what_their_primary_has_over_each_transport_with_any_shards() {
    let primary = Primary::start();
    let mut resp = primary.server.resp();
    fill(&mut resp, 0);
    let replicas = [(2, false), (3, false), (1, true), (2, true)]
        .map(|(shards, over_tcp)| primary.replica(shards, over_tcp));
    for round in 1..3 {
        fill(&mut resp, round);
        for replica in &replicas {
            catch_up(&mut resp, &mut replica.resp());
        }
    }
    assert_eq!(resp.call("FLUSHALL"), Value::ok());
    fill(&mut resp, 3);
    for replica in &replicas {
        let mut replica = replica.resp();
        catch_up(&mut resp, &mut replica);
        assert_eq!(replica.call("GET m-1"), Value::bulk("3"));
        let Value::Error(refusal) = replica.call("SET key 1") else { panic!("it is a replica") };
        assert!(refusal.starts_with("READONLY "), "{refusal}");
        assert_eq!(replica.info("slave_copies"), 2, "one of each shard of the primary");
    }
    wait_until("the primary knows them", || resp.info("connected_slaves") == 4);
}

#[test]
fn info_tells_the_turns_of_a_copy() {
    let primary = Primary::start();
    let mut resp = primary.server.resp();
    fill(&mut resp, 0);
    assert_eq!(resp.info("replica_copy_turns"), 0);
    assert_eq!(resp.info("replica_copy_longest_turn_us"), 0);
    let replica = primary.replica(2, false);
    catch_up(&mut resp, &mut replica.resp());
    let turns = resp.info("replica_copy_turns");
    assert!(turns >= 2, "each shard is copied");
    for longest in ["replica_copy_longest_turn_us", "replica_copy_longest_turn_cpu_us"] {
        assert!(resp.info(longest) > 0, "{longest}");
    }
    fill(&mut resp, 1);
    catch_up(&mut resp, &mut replica.resp());
    assert_eq!(resp.info("replica_copy_turns"), turns, "the log is no copy");
}

#[test]
fn a_replica_goes_on_after_a_lost_link_without_another_copy() {
    let primary = Primary::start();
    let mut resp = primary.server.resp();
    let replicas = [primary.replica(1, false), primary.replica(3, true)];
    fill(&mut resp, 0);
    replicas.iter().for_each(|replica| catch_up(&mut resp, &mut replica.resp()));
    // The primary is silent for long enough that they give the link up.
    primary.server.signal(Signal::STOP);
    for replica in &replicas {
        let mut replica = replica.resp();
        wait_until("the link is down", || says(&mut replica, "master_link_status:down"));
        assert_eq!(replica.call("GET m-1"), Value::bulk("0"), "it answers all the same");
    }
    primary.server.signal(Signal::CONT);
    let mut resp = primary.server.resp();
    resp.call("SET after 1");
    for replica in &replicas {
        let mut replica = replica.resp();
        catch_up(&mut resp, &mut replica);
        assert_eq!(replica.info("slave_copies"), 2);
        assert!(replica.info("slave_links") > 1);
    }
}

#[test]
fn a_replica_that_was_away_too_long_gets_a_copy_and_no_mixture() {
    let primary = Primary::start();
    let mut resp = primary.server.resp();
    let replica = primary.replica(2, true);
    fill(&mut resp, 0);
    catch_up(&mut resp, &mut replica.resp());
    replica.signal(Signal::STOP);
    // More than the log keeps for a reader that is away.
    let value = "v".repeat(100_000);
    for at in 0..4000 {
        resp.call(&format!("SET large-{} {value}", at % 50));
    }
    resp.call("DEL key-0-10 hash");
    replica.signal(Signal::CONT);
    let mut replica = replica.resp();
    catch_up(&mut resp, &mut replica);
    assert_eq!(replica.call("EXISTS key-0-10 hash"), Value::Integer(0));
}

#[test]
fn a_replica_keeps_what_it_has_when_its_primary_came_back_empty() {
    let mut primary = Primary::start();
    fill(&mut primary.server.resp(), 0);
    let replica = primary.replica(2, true);
    let mut replica = replica.resp();
    catch_up(&mut primary.server.resp(), &mut replica);
    let before = digest(&mut replica);
    primary.server.kill();
    let server = Primary::serve(&primary.place, &primary.address);
    wait_until("it says why", || says(&mut replica, "it has begun anew"));
    server.resp().call("SET other 1");
    assert_eq!(digest(&mut replica), before);
}

#[test]
fn a_wrong_address_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("--socket={}", directory.path().join("s").display());
    let run = remora_tests::run_remora(&["serve", "--port=0", &socket, "--replica-of=nowhere"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.err.contains("replica_of: \"nowhere\" is neither"), "{}", run.err);
}

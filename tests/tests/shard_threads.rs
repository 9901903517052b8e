//! Shards' threads serve RESP connections: what they execute in place, what they
//! send to each other, and how busy connections spread. All by counts.

use remora_tests::{Resp, ServerProcess, Value, encode, wait_until};

/// Requests that a client sends at once.
const PIPELINE: usize = 64;

fn server(shards: usize) -> ServerProcess {
    ServerProcess::start(&[&format!("--shards={shards}"), "--max-memory=64MiB", "--wake=event"])
}

/// Keys, in the order in which they are sent, by what shard their slots are in.
fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key:{number}")).collect()
}

/// Sends so many SETs at once, and takes their replies.
fn set_all(resp: &mut Resp, keys: &[String], value: &str) {
    let sets = keys.iter().flat_map(|key| encode(&[b"SET", key.as_bytes(), value.as_bytes()]));
    resp.send_raw(&sets.collect::<Vec<u8>>()).unwrap();
    keys.iter().for_each(|_| assert_eq!(resp.receive().unwrap(), Value::ok()));
}

fn counts<const N: usize>(resp: &mut Resp, names: [&str; N]) -> [u64; N] {
    names.map(|name| resp.info(name))
}

#[test]
fn one_shard_executes_all_in_place_and_writes_once_a_turn() {
    let server = server(1);
    let mut resp = server.resp();
    let names = ["commands_executed_here", "socket_writes", "jobs_sent", "shard_jobs"];
    let before = counts(&mut resp, names);
    set_all(&mut resp, &keys(PIPELINE), "v");
    let after = counts(&mut resp, names);
    assert_eq!(after[0] - before[0], PIPELINE as u64);
    // Four of them are INFO's; the pipeline may have arrived in several pieces.
    let writes = after[1] - before[1];
    assert!(writes <= 4 + PIPELINE as u64 / 8, "{writes} writes");
    assert_eq!((after[2] - before[2], after[3] - before[3]), (0, 0));
}

#[test]
fn what_other_shards_do_goes_there_and_comes_back_in_batches() {
    let server = server(2);
    let mut resp = server.resp();
    let keys = keys(PIPELINE);
    let names = ["commands_executed_here", "jobs_sent", "mail_sent"];
    for round in 0..10 {
        let before = counts(&mut resp, names);
        set_all(&mut resp, &keys, &format!("v{round}"));
        let after = counts(&mut resp, names);
        let [here, jobs, mail] = [0, 1, 2].map(|at| after[at] - before[at]);
        assert_eq!(here + jobs, PIPELINE as u64, "each goes one way");
        assert!(here > 10 && jobs > 10, "{here} here, {jobs} there");
        // One there and one back for each piece in which the pipeline arrived.
        assert!(mail <= 8, "{mail} mails for {jobs} jobs");
        let gets = keys.iter().flat_map(|key| encode(&[b"GET", key.as_bytes()]));
        resp.send_raw(&gets.collect::<Vec<u8>>()).unwrap();
        keys.iter()
            .for_each(|_| assert_eq!(resp.receive().unwrap(), Value::bulk(format!("v{round}"))));
    }
}

/// Connections are spread by number; two busy ones may be neighbours all the same.
/// One of them is moved, between two of its requests, and notices nothing.
#[test]
fn busy_connections_that_meet_at_one_thread_are_spread() {
    let server = server(2);
    // Each thread has every other one.
    let mut all: Vec<Resp> = (0..8).map(|_| server.resp()).collect();
    for (at, resp) in all.iter_mut().enumerate() {
        assert_eq!(resp.call(&format!("SELECT {at}")), Value::ok());
    }
    let [busy, _, other, info, ..] = &mut all[..] else { panic!("there are eight") };
    let mut round = 0u64;
    let keys = keys(1_000);
    wait_until("one of them is moved", || {
        round += 1;
        for _ in 0..20 {
            for resp in [&mut *busy, &mut *other] {
                set_all(resp, &keys, &round.to_string());
            }
        }
        info.info("connections_moved") > 0
    });
    for (resp, database) in [(busy, 0), (other, 2)] {
        let Value::Bulk(text) = resp.call("CLIENT INFO") else { panic!("a text") };
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(&format!("db={database}")), "{text}");
        assert_eq!(resp.call("GET key:1"), Value::bulk(round.to_string()));
    }
    assert_eq!(info.info("connected_clients"), 8);
}

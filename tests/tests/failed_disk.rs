//! The real binary while its disk takes nothing: clients that go, and snapshots. The disk is a limit of
//! the length of files, so that no privilege is needed.

use remora_client_core::{Path, SetOptions};
use remora_tests::{Resp, ServerProcess, Value, wait_until};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// A limit that each file of the log reaches by one large value.
const FILE_BYTES: u64 = 1 << 20;
const CLIENTS: usize = 300;

fn large() -> String {
    "v".repeat(2 * FILE_BYTES as usize)
}

/// A server whose disk has failed, and the client whose SET of `large` waits for it.
fn failed(directory: &std::path::Path) -> (ServerProcess, Resp) {
    let server = ServerProcess::start_with_bounded_files(directory, &["--shards=2"]);
    server.bound_files(Some(FILE_BYTES));
    let mut waits = server.resp();
    waits.send(&[b"SET", b"large", large().as_bytes()]).unwrap();
    let mut resp = server.resp();
    wait_until("the disk fails", || resp.info("log_failures") > 0);
    (server, waits)
}

fn connected(resp: &mut Resp) -> u64 {
    resp.info("connected_clients")
}

#[test]
fn clients_that_go_leave_although_their_replies_wait_for_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (server, mut waits) = failed(directory.path());
    let mut resp = server.resp();
    let before = 2;
    wait_until("others have gone", || connected(&mut resp) == before);
    // The reply to PING is not read, so that the kernel resets the connection.
    let go = |requests: &[u8]| {
        let mut client = server.resp();
        client.send_raw(b"PING\r\n").unwrap();
        client.socket.peek(&mut [0]).unwrap();
        client.send_raw(requests).unwrap();
        client
    };
    let strlen = b"STRLEN large\r\n";
    let clients: Vec<Resp> = (0..CLIENTS).map(|_| go(strlen)).collect();
    let paused = go(&strlen.repeat(20_000));
    // Its own side alone is closed: it waits on.
    let mut half = server.resp();
    half.send(&[b"STRLEN", b"large"]).unwrap();
    half.socket.shutdown(Shutdown::Write).unwrap();
    wait_until("replies wait", || resp.info("replies_held") > CLIENTS as u64);
    wait_until("all are there", || connected(&mut resp) == before + CLIENTS as u64 + 2);
    drop((clients, paused));
    wait_until("they leave", || connected(&mut resp) == before + 1);
    assert_eq!(resp.info("log_mended"), 0, "the disk still fails");
    server.bound_files(None);
    assert_eq!(waits.receive().unwrap(), Value::ok());
    assert_eq!(half.receive().unwrap(), Value::Integer(large().len() as i64));
    assert!(half.rest().unwrap().is_empty());
    assert_eq!(resp.call("SET key 1"), Value::ok());
}

#[test]
fn what_depends_on_nothing_pending_goes_on_while_the_disk_fails() {
    let directory = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_bounded_files(directory.path(), &["--shards=2"]);
    let mut resp = server.resp();
    assert_eq!(resp.call("MSET a 1 b 2 c 3 d 4"), Value::ok());
    assert_eq!(resp.call("SET short 1 PX 400"), Value::ok());
    // Its memory is a file, too.
    let mut session = server.session();
    server.bound_files(Some(FILE_BYTES));
    let mut waits = server.resp();
    waits.send(&[b"SET", b"large", large().as_bytes()]).unwrap();
    wait_until("the disk fails", || resp.info("log_failures") > 0);
    wait_until("changes are refused", || resp.call("SET e 5").is_error());
    assert_eq!(resp.call("GET a"), Value::bulk("1"));
    let all = ["1", "2", "3", "4"].map(Value::bulk);
    assert_eq!(resp.call("MGET a b c d"), Value::Array(all.to_vec()));
    // The refusals and the reads of one pipeline come in order.
    resp.send_raw(b"SET a 9\r\nGET b\r\nMSET a 9 b 9\r\nGET a\r\nDEL c\r\nGET c\r\n").unwrap();
    for expected in ["2", "1", "3"] {
        assert!(resp.receive().unwrap().is_error());
        assert_eq!(resp.receive().unwrap(), Value::bulk(expected));
    }
    // Clients over rings, by asking and by reading.
    for path in [Path::Ask, Path::Read] {
        assert_eq!(session.get(b"a", path).unwrap().value, Some(&b"1"[..]), "{path:?}");
    }
    let refused = session.set(b"a", b"9", SetOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("the disk of the server's log takes nothing"), "{refused}");
    // Its removal would be a change that waits; a client sees it only once that is durable.
    std::thread::sleep(Duration::from_millis(600));
    let mut late = server.resp();
    late.send(&[b"GET", b"short"]).unwrap();
    server.bound_files(None);
    assert_eq!(waits.receive().unwrap(), Value::ok());
    assert_eq!(late.receive().unwrap(), Value::Null);
    assert_eq!(resp.call("SET e 5"), Value::ok());
}

#[test]
fn snapshots_that_fail_leave_nothing_and_the_next_one_works() {
    let directory = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_bounded_files(directory.path(), &["--shards=4"]);
    let mut resp = server.resp();
    for number in 0..16 {
        let key = format!("large-{number}");
        let set = resp.try_call(&[b"SET", key.as_bytes(), large().as_bytes()]).unwrap();
        assert_eq!(set, Value::ok());
    }
    server.bound_files(Some(FILE_BYTES));
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        resp.call("BGSAVE");
        std::thread::sleep(Duration::from_millis(5));
    }
    let given_up = resp.info("snapshots_given_up");
    assert!((1..=6).contains(&given_up), "{given_up} in 4 s");
    server.bound_files(None);
    wait_until("a snapshot is written", || {
        resp.call("BGSAVE");
        resp.info("snapshots_written") > 0
    });
    wait_until("none is under way", || resp.info("rdb_bgsave_in_progress") == 0);
    let names = std::fs::read_dir(directory.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let snapshots: Vec<String> = names.filter(|name| name.starts_with("snapshot-")).collect();
    assert!(snapshots.len() == 1 && !snapshots[0].ends_with(".tmp"), "{snapshots:?}");
    let told = server.log().matches("a snapshot was given up").count();
    assert_eq!(told, 1, "the same reason is logged once");
}

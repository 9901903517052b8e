//! The data directory goes away while the server runs, and comes back.

use remora_tests::{Resp, ServerProcess, Value, wait_until};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

fn failure(resp: &mut Resp) -> String {
    let Value::Bulk(text) = resp.call("INFO persistence") else { panic!("no INFO") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("log_failure:"));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn is_refused(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with("MISCONF"))
}

/// Everything that was acknowledged is there after a kill.
fn has_all(directory: &Path, keys: &[&str]) {
    let server = ServerProcess::start_with_data(directory, &["--shards=2"]);
    let mut resp = server.resp();
    for key in keys {
        assert_eq!(resp.call(&format!("GET {key}")), Value::bulk("1"), "{key}");
    }
}

#[test]
fn nothing_is_acknowledged_while_the_directory_is_elsewhere() {
    for durability in ["fsync", "everysec", "memory"] {
        let place = tempfile::tempdir().unwrap();
        let (directory, aside) = (place.path().join("data"), place.path().join("aside"));
        let flags = [&format!("--durability={durability}") as &str, "--shards=2"];
        let mut server = ServerProcess::start_with_data(&directory, &flags);
        let mut resp = server.resp();
        assert_eq!(resp.call("SET before 1"), Value::ok());
        fs::rename(&directory, &aside).unwrap();
        let moved = Instant::now();
        if durability == "fsync" {
            // The reply waits for the directory.
            let mut waiting = server.resp();
            waiting.send(&[b"SET", b"waits", b"1"]).unwrap();
        }
        wait_until("the server says so", || failure(&mut resp).contains("data is gone"));
        let noticed = moved.elapsed();
        assert!(noticed < Duration::from_secs(5), "{noticed:?}");
        wait_until("changes are refused", || is_refused(&resp.call("SET refused 1")));
        assert_eq!(resp.call("GET before"), Value::bulk("1"));
        let both = Value::Array(vec![Value::Integer(0), Value::Integer(0)]);
        if durability == "fsync" {
            assert_eq!(resp.call("WAITAOF 1 0 50"), both);
        }
        // An empty directory at its path stays empty.
        fs::create_dir(&directory).unwrap();
        wait_until("the text tells", || failure(&mut resp).contains("another directory"));
        resp.call("BGSAVE");
        wait_until("the snapshot fails", || resp.info("snapshots_given_up") > 0);
        assert!(is_refused(&resp.call("SET refused 1")));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        assert!(server.log().contains("the log cannot be written"), "{}", server.log());

        fs::remove_dir(&directory).unwrap();
        fs::rename(&aside, &directory).unwrap();
        wait_until("it goes on", || resp.call("SET after 1") == Value::ok());
        assert_eq!(failure(&mut resp), "");
        let synced = Value::Array(vec![Value::Integer(1), Value::Integer(0)]);
        assert_eq!(resp.call("WAITAOF 1 0 0"), synced);
        drop(resp);
        server.kill();
        has_all(&directory, &["before", "after"]);
    }
}

#[test]
fn a_removed_directory_stops_an_idle_server() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("data");
    let server = ServerProcess::start_with_data(&directory, &["--shards=2"]);
    let mut resp = server.resp();
    assert_eq!(resp.call("SET key 1"), Value::ok());
    let synced = Value::Array(vec![Value::Integer(1), Value::Integer(0)]);
    assert_eq!(resp.call("WAITAOF 1 0 0"), synced);
    fs::remove_dir_all(&directory).unwrap();
    wait_until("the server says so", || failure(&mut resp).contains("is gone"));
    wait_until("changes are refused", || is_refused(&resp.call("SET refused 1")));
}

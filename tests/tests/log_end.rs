//! The end of a server with a data directory: what its shards have handed over last is written and
//! synced, or the log says how many bytes are not.

use remora_tests::{Resp, ServerProcess, Value, run_remora};

/// Longer than a file may be once its size is limited, shorter than a group of the log.
const LARGE_BYTES: usize = 1 << 20;
/// The server's own messages have room in it.
const LIMIT_BYTES: u64 = 64 << 10;

/// Sends SETs in pipelines until the server has ended. Returns how many were acknowledged.
fn write_until_the_end(mut resp: Resp, writer: usize) -> usize {
    let mut acknowledged = 0;
    loop {
        let keys: Vec<String> =
            (0..64).map(|at| format!("key-{writer}-{}", acknowledged + at)).collect();
        for key in &keys {
            if resp.send(&[b"SET", key.as_bytes(), &[b'v'; 500]]).is_err() {
                return acknowledged;
            }
        }
        for _ in &keys {
            match resp.receive() {
                Ok(Value::Simple(_)) => acknowledged += 1,
                _ => return acknowledged,
            }
        }
    }
}

#[test]
fn a_clean_end_at_full_load_writes_all_that_was_acknowledged() {
    for durability in ["memory", "everysec", "fsync"] {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--shards=2", &format!("--durability={durability}")];
        let mut server = ServerProcess::start_with_data(directory.path(), &flags);
        let connections = [server.resp(), server.resp()];
        let acknowledged: Vec<usize> = std::thread::scope(|scope| {
            let writers: Vec<_> = connections
                .into_iter()
                .enumerate()
                .map(|(writer, resp)| scope.spawn(move || write_until_the_end(resp, writer)))
                .collect();
            std::thread::sleep(std::time::Duration::from_millis(200));
            server.terminate();
            assert_eq!(server.ended(), Some(0), "{}", server.log());
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        assert!(acknowledged.iter().all(|count| *count > 64), "{durability}: {acknowledged:?}");
        let verified = run_remora(&["log", "verify", &directory.path().display().to_string()]);
        assert!(verified.out.starts_with("whole: "), "{durability}: {verified:?}");
        let server = ServerProcess::start_with_data(directory.path(), &flags);
        let mut resp = server.resp();
        for (writer, count) in acknowledged.into_iter().enumerate() {
            for at in (0..count).rev().take(500) {
                let key = format!("EXISTS key-{writer}-{at}");
                assert_eq!(resp.call(&key), Value::Integer(1), "{durability}: {key} of {count}");
            }
        }
    }
}

#[test]
fn an_end_with_a_disk_that_fails_says_how_many_bytes_are_not_written() {
    for durability in ["memory", "everysec", "fsync"] {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--shards=1", &format!("--durability={durability}")];
        let mut server = ServerProcess::start_with_bounded_files(directory.path(), &flags);
        let mut resp = server.resp();
        assert_eq!(resp.call("SET kept 1"), Value::ok());
        let synced = Value::Array(vec![Value::Integer(1), Value::Integer(0)]);
        assert_eq!(resp.call("WAITAOF 1 0 0"), synced);
        server.bound_files(Some(LIMIT_BYTES));
        let mut last = server.resp();
        last.send(&[b"SET", b"large", &vec![b'v'; LARGE_BYTES]]).unwrap();
        remora_tests::wait_until("the disk fails", || resp.info("log_failures") > 0);
        server.terminate();
        assert_eq!(server.ended(), Some(0), "{}", server.log());
        if durability != "memory" {
            assert!(last.receive().is_err(), "{durability}: it was acknowledged");
        }
        let log = server.log();
        let line = log.lines().find(|line| line.contains("the end of the log cannot be written"));
        let line = line.unwrap_or_else(|| panic!("{durability}: {log}"));
        let bytes = line.split_once("bytes=").map(|(_, rest)| rest);
        let digits = bytes.and_then(|rest| rest.split(|of: char| !of.is_ascii_digit()).next());
        let bytes: usize = digits.and_then(|digits| digits.parse().ok()).expect(line);
        assert!((LARGE_BYTES..LARGE_BYTES + 1024).contains(&bytes), "{durability}: {line}");
        // What was synced before is there.
        let server = ServerProcess::start_with_data(directory.path(), &flags);
        assert_eq!(server.resp().call("GET kept"), Value::bulk("1"));
    }
}

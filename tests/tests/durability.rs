//! The real binary with a data directory: killed, started again, damaged, crowded.

use remora_tests::{Finished, Resp, ServerProcess, Value, remora, run};
use std::path::Path;

fn serve(directory: &Path, flags: &[&str]) -> ServerProcess {
    let data = format!("--data-dir={}", directory.display());
    let flags = [&[data.as_str(), "--max-memory=64MiB", "--pin=false"], flags].concat();
    ServerProcess::start(&flags)
}

fn command(arguments: &[&str]) -> Finished {
    run(remora().args(arguments))
}

fn digest(resp: &mut Resp) -> Value {
    resp.call("DEBUG DIGEST")
}

/// Something of each type, and some of it gone again.
fn fill(resp: &mut Resp) {
    for number in 0..300 {
        resp.call(&format!("SET key-{number} value-{number}"));
    }
    for request in [
        "DEL key-1 key-2",
        "INCRBY counter 5",
        "APPEND text some",
        "APPEND text more",
        "SETBIT bits 70 1",
        "EXPIRE key-3 100000",
        "HSET hash a 1 b 2",
        "HDEL hash a",
        "GEOADD places 13.36 38.11 Palermo 15.08 37.50 Catania",
        "MSET m-1 a m-2 b m-3 c m-4 d",
        "RENAME m-1 renamed",
        "COPY key-5 copied",
        "RTREE.CREATE tree",
        "RTREE.ADD tree 7 1 2 3 4",
    ] {
        let reply = resp.call(request);
        assert!(!matches!(reply, Value::Error(_)), "{request}: {reply:?}");
    }
    for field in 0..2000 {
        resp.call(&format!("HSET large field-{field} {field}"));
    }
}

#[test]
fn what_was_acknowledged_is_there_after_kill_9_with_any_number_of_shards() {
    for durability in ["everysec", "fsync"] {
        let directory = tempfile::tempdir().unwrap();
        let durability = format!("--durability={durability}");
        let mut server = serve(directory.path(), &[&durability, "--shards=3"]);
        let mut resp = server.resp();
        fill(&mut resp);
        let before = digest(&mut resp);
        for shards in [3, 1, 4] {
            server.kill();
            server = serve(directory.path(), &[&durability, &format!("--shards={shards}")]);
            let mut resp = server.resp();
            assert_eq!(digest(&mut resp), before, "{shards} shards");
            assert_eq!(resp.call("GET text"), Value::bulk("somemore"));
            assert_eq!(resp.call("HLEN large"), Value::Integer(2000));
        }
        let mut resp = server.resp();
        assert_eq!(resp.call("SET later 1"), Value::ok());
        let before = digest(&mut resp);
        drop(resp);
        server.kill();
        let server = serve(directory.path(), &[&durability, "--shards=2"]);
        assert_eq!(digest(&mut server.resp()), before);
    }
}

#[test]
fn a_second_server_a_foreign_directory_and_too_little_memory_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serve(directory.path(), &["--shards=1"]);
    let mut resp = server.resp();
    let value = "v".repeat(1 << 20);
    (0..20).for_each(|at| assert_eq!(resp.call(&format!("SET {at} {value}")), Value::ok()));
    let data = format!("--data-dir={}", directory.path().display());
    let socket = format!("--socket={}", directory.path().join("none").display());
    let second = command(&["serve", "--port=0", &socket, &data]);
    let text = second.err;
    assert!(text.contains("in use by process"), "{text}");
    server.kill();
    let small = command(&["serve", "--port=0", "--shards=1", &socket, &data, "--max-memory=8MiB"]);
    let text = small.err;
    assert!(text.contains("max_memory is too small") && text.contains("bytes"), "{text}");
    assert_eq!(small.code, Some(2));

    let foreign = tempfile::tempdir().unwrap();
    std::fs::write(foreign.path().join("photo"), "x").unwrap();
    let data = format!("--data-dir={}", foreign.path().display());
    let refused = command(&["serve", "--port=0", &socket, &data]);
    let text = refused.err;
    assert!(text.contains("photo") && text.contains("no data directory"), "{text}");
    let without = command(&["serve", "--port=0", &socket, "--durability=fsync"]);
    assert_eq!(without.code, Some(2));
}

#[test]
fn a_damaged_directory_is_refused_and_a_torn_one_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serve(directory.path(), &["--shards=2", "--durability=fsync"]);
    fill(&mut server.resp());
    server.kill();
    let name = directory.path().display().to_string();
    let verified = command(&["log", "verify", &name]);
    assert!(verified.code == Some(0) && verified.out.starts_with("whole: "), "{verified:?}");
    let dumped = command(&["log", "dump", &name]);
    assert!(dumped.out.lines().count() > 2300);

    let segment = directory.path().join("log-0000000000000001");
    let whole = std::fs::read(&segment).unwrap();
    // A torn tail: nothing says that it was synced.
    std::fs::write(&segment, &whole[..whole.len() - 3]).unwrap();
    let torn = command(&["log", "verify", &name]);
    assert!(torn.code == Some(0) && torn.out.starts_with("torn log-"), "{torn:?}");
    let mut changed = whole.clone();
    changed[8000] ^= 1;
    std::fs::write(&segment, &changed).unwrap();
    let corrupt = command(&["log", "verify", &name]);
    let text = corrupt.out;
    assert_eq!(corrupt.code, Some(1));
    assert!(text.starts_with("corrupt log-0000000000000001 offset="), "{text}");
    let data = format!("--data-dir={name}");
    let socket = format!("--socket={}", directory.path().join("none").display());
    let refused = command(&["serve", "--port=0", &socket, &data]);
    let text = refused.err;
    assert!(text.contains("corrupt log-0000000000000001 offset="), "{text}");
    std::fs::write(&segment, &whole).unwrap();
    assert_eq!(serve(directory.path(), &[]).resp().call("GET text"), Value::bulk("somemore"));
}

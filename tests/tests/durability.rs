//! The real binary with a data directory: killed, started again, damaged, crowded.

use remora_tests::{Resp, ServerProcess, Value, run_remora, wait_until};

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
        let mut server =
            ServerProcess::start_with_data(directory.path(), &[&durability, "--shards=3"]);
        let mut resp = server.resp();
        fill(&mut resp);
        let before = digest(&mut resp);
        for shards in [3, 1, 4] {
            server.kill();
            server = ServerProcess::start_with_data(
                directory.path(),
                &[&durability, &format!("--shards={shards}")],
            );
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
        let server = ServerProcess::start_with_data(directory.path(), &[&durability, "--shards=2"]);
        assert_eq!(digest(&mut server.resp()), before);
    }
}

#[test]
fn a_second_server_a_foreign_directory_and_too_little_memory_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start_with_data(directory.path(), &["--shards=1"]);
    let mut resp = server.resp();
    let value = "v".repeat(1 << 20);
    (0..20).for_each(|at| assert_eq!(resp.call(&format!("SET {at} {value}")), Value::ok()));
    let data = format!("--data-dir={}", directory.path().display());
    let socket = format!("--socket={}", directory.path().join("none").display());
    let second = run_remora(&["serve", "--port=0", &socket, &data]);
    let text = second.err;
    assert!(text.contains("in use by process"), "{text}");
    server.kill();
    // A life that writes nothing does not forget how large the data are.
    ServerProcess::start_with_data(directory.path(), &["--shards=1"]).kill();
    let small =
        run_remora(&["serve", "--port=0", "--shards=1", &socket, &data, "--max-memory=8MiB"]);
    let text = small.err;
    let needed =
        text.split_once("they took up to ").and_then(|(_, rest)| rest.split_once(" bytes"));
    let needed = needed.and_then(|(bytes, _)| bytes.parse::<u64>().ok());
    assert!(text.contains("max_memory is too small"), "{text}");
    assert!(needed.is_some_and(|bytes| (20 << 20..40 << 20).contains(&bytes)), "{text}");
    assert_eq!(small.code, Some(2));

    let foreign = tempfile::tempdir().unwrap();
    std::fs::write(foreign.path().join("photo"), "x").unwrap();
    let data = format!("--data-dir={}", foreign.path().display());
    let refused = run_remora(&["serve", "--port=0", &socket, &data]);
    let text = refused.err;
    assert!(text.contains("photo") && text.contains("no data directory"), "{text}");
    let without = run_remora(&["serve", "--port=0", &socket, "--durability=fsync"]);
    assert_eq!(without.code, Some(2));
}

#[test]
fn a_damaged_directory_is_refused_and_a_torn_one_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let mut server =
        ServerProcess::start_with_data(directory.path(), &["--shards=2", "--durability=fsync"]);
    fill(&mut server.resp());
    server.kill();
    let name = directory.path().display().to_string();
    let verified = run_remora(&["log", "verify", &name]);
    assert!(verified.code == Some(0) && verified.out.starts_with("whole: "), "{verified:?}");
    let dumped = run_remora(&["log", "dump", &name]);
    assert!(dumped.out.lines().count() > 2300);

    let segment = directory.path().join("log-0000000000000001");
    let whole = std::fs::read(&segment).unwrap();
    // A torn tail: nothing says that it was synced.
    std::fs::write(&segment, &whole[..whole.len() - 3]).unwrap();
    let torn = run_remora(&["log", "verify", &name]);
    assert!(torn.code == Some(0) && torn.out.starts_with("torn log-"), "{torn:?}");
    let mut changed = whole.clone();
    changed[8000] ^= 1;
    std::fs::write(&segment, &changed).unwrap();
    let corrupt = run_remora(&["log", "verify", &name]);
    let text = corrupt.out;
    assert_eq!(corrupt.code, Some(1));
    assert!(text.starts_with("corrupt log-0000000000000001 offset="), "{text}");
    let data = format!("--data-dir={name}");
    let socket = format!("--socket={}", directory.path().join("none").display());
    let refused = run_remora(&["serve", "--port=0", &socket, &data]);
    let text = refused.err;
    assert!(text.contains("corrupt log-0000000000000001 offset="), "{text}");
    std::fs::write(&segment, &whole).unwrap();
    assert_eq!(
        ServerProcess::start_with_data(directory.path(), &[]).resp().call("GET text"),
        Value::bulk("somemore")
    );
}

/// What is missing is named by the tools and by a start, and no data are left out silently.
#[test]
fn a_missing_file_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let name = directory.path().display().to_string();
    let (data, socket) = (format!("--data-dir={name}"), format!("--socket={name}/none"));
    let live = |request: &str, saves: bool| {
        let mut server = ServerProcess::start_with_data(directory.path(), &["--shards=2"]);
        let mut resp = server.resp();
        assert_eq!(resp.call(request), Value::ok());
        if saves {
            save(&mut resp);
            wait_until("the log before goes", || !path("log-0000000000000002").exists());
        }
        server.kill();
    };
    let kept = tempfile::tempdir().unwrap();
    let missed = |file: &str, missing: &str| {
        let away = kept.path().join("away");
        std::fs::rename(path(file), &away).unwrap();
        let verified = run_remora(&["log", "verify", &name]);
        let text = verified.out;
        assert_eq!(verified.code, Some(1), "{file}: {text}");
        assert!(text.starts_with(&format!("corrupt {missing} offset=0 ")), "{file}: {text}");
        let refused = run_remora(&["serve", "--port=0", &socket, &data]);
        assert!(refused.err.contains(&format!("corrupt {missing}")), "{}", refused.err);
        let to = kept.path().join("copy").display().to_string();
        let copied = run_remora(&["backup", &data, "--to", &to]);
        assert!(copied.code == Some(1) && copied.err.contains(missing), "{copied:?}");
        std::fs::rename(&away, path(file)).unwrap();
    };
    let segment = |number: u64| format!("log-{number:016}");
    let snapshot = format!("snapshot-{:016}", 1);
    live("SET a 1", false);
    missed(&segment(1), &segment(1));
    live("SET b 1", false);
    missed(&segment(1), &segment(1));
    live("SET c 1", true);
    missed(&snapshot, &segment(2));
    live("SET d 1", false);
    missed(&snapshot, &segment(2));
    missed(&segment(3), &segment(3));
    let server = ServerProcess::start_with_data(directory.path(), &["--shards=2"]);
    let mut resp = server.resp();
    for key in ["a", "b", "c", "d"] {
        assert_eq!(resp.call(&format!("GET {key}")), Value::bulk("1"));
    }
}

/// Writes a snapshot, and waits until it is there.
fn save(resp: &mut Resp) {
    let before = resp.info("snapshots_written");
    assert_eq!(resp.call("BGSAVE"), Value::Simple("Background saving started".into()));
    for _ in 0..2000 {
        if resp.info("snapshots_written") > before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("no snapshot came: {:?}", resp.call("INFO persistence"));
}

#[test]
fn a_snapshot_and_the_log_behind_it_are_loaded_with_any_number_of_shards() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start_with_data(directory.path(), &["--shards=2"]);
    let mut resp = server.resp();
    fill(&mut resp);
    save(&mut resp);
    assert_eq!(resp.call("SET after 1"), Value::ok());
    let before = digest(&mut resp);
    let exists = |name: &str| directory.path().join(name).exists();
    assert!(exists("snapshot-0000000000000001") && exists("log-0000000000000001"));
    for shards in [2, 3, 1] {
        server.kill();
        server = ServerProcess::start_with_data(directory.path(), &[&format!("--shards={shards}")]);
        assert_eq!(digest(&mut server.resp()), before, "{shards} shards");
    }
    // The next one covers the lives before, and only it is kept.
    let mut resp = server.resp();
    save(&mut resp);
    assert!(exists("snapshot-0000000000000002") && !exists("snapshot-0000000000000001"));
    for _ in 0..1000 {
        if !exists("log-0000000000000003") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(!exists("log-0000000000000001") && !exists("log-0000000000000003"));
    let saved = |resp: &mut Resp| match resp.call("LASTSAVE") {
        Value::Integer(at_s) => at_s,
        other => panic!("{other:?}"),
    };
    let saved_at_s = saved(&mut resp);
    assert!(saved_at_s > 1_700_000_000);
    server.kill();
    let server = ServerProcess::start_with_data(directory.path(), &["--shards=4"]);
    let mut resp = server.resp();
    assert_eq!(digest(&mut resp), before);
    // The log says nothing of a time, but the snapshot does.
    assert!((saved(&mut resp) - saved_at_s).abs() < 60, "{saved_at_s}");
    let name = directory.path().display().to_string();
    let verified = run_remora(&["log", "verify", &name]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

#[test]
fn the_turns_of_the_last_snapshot_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_data(directory.path(), &["--shards=2"]);
    let mut resp = server.resp();
    let turns_of = |resp: &mut Resp| {
        save(resp);
        resp.info("snapshot_turns")
    };
    let empty = turns_of(&mut resp);
    // At least one of each shard.
    assert!(empty >= 2, "{empty} turns");
    // A turn writes 256 KiB, and at most a piece of 64 KiB more.
    let value = "v".repeat(320 << 10);
    for at in 0..20 {
        resp.call(&format!("SET key-{at} {value}"));
    }
    let many = turns_of(&mut resp);
    assert!(many >= 20 && many > empty, "{many} turns, {empty} without keys");
    assert_eq!(resp.call("FLUSHALL"), Value::ok());
    let again = turns_of(&mut resp);
    assert!(again < many, "{again} turns");
}

#[test]
fn a_snapshot_comes_by_itself_once_the_log_has_grown() {
    let directory = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_data(
        directory.path(),
        &["--shards=1", "--snapshot-log-bytes=1MiB"],
    );
    let mut resp = server.resp();
    let value = "v".repeat(10_000);
    for at in 0..2000 {
        resp.call(&format!("SET key-{} {value}", at % 10));
        if resp.info("snapshots_written") > 0 {
            return;
        }
    }
    wait_until("a snapshot is written", || resp.info("snapshots_written") > 0);
}

#[test]
fn waitaof_waits_for_the_disk_and_delays_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    for durability in ["memory", "everysec", "fsync"] {
        let server = ServerProcess::start_with_data(
            &directory.path().join(durability),
            &["--shards=3", &format!("--durability={durability}")],
        );
        let mut resp = server.resp();
        for at in 0..20 {
            resp.call(&format!("SET key-{at} 1"));
        }
        let both =
            |local, replicas| Value::Array(vec![Value::Integer(local), Value::Integer(replicas)]);
        assert_eq!(resp.call("WAITAOF 1 0 0"), both(1, 0));
        assert_eq!(resp.info("log_unsynced_bytes"), 0);
        // There are no replicas: it takes the time that it is given.
        assert_eq!(resp.call("WAITAOF 1 1 50"), both(1, 0));
        assert!(matches!(resp.call("WAITAOF 2 0 0"), Value::Error(_)));
        assert!(matches!(resp.call("WAITAOF 1 0 -1"), Value::Error(_)));
    }
    let server = ServerProcess::start(&["--max-memory=64MiB"]);
    let mut resp = server.resp();
    for request in ["WAITAOF 1 0 0", "BGSAVE"] {
        assert!(matches!(resp.call(request), Value::Error(_)), "{request}");
    }
}

/// A value of more runs than are on their way to the log's thread at a time: the shard that waits for
/// room is woken although no other request comes.
#[test]
fn a_large_value_is_acknowledged_by_an_idle_server() {
    for durability in ["everysec", "fsync"] {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--shards=1", &format!("--durability={durability}")];
        let mut server = ServerProcess::start_with_data(directory.path(), &flags);
        let mut resp = server.resp();
        let value = "v".repeat(24 << 20);
        assert_eq!(resp.call(&format!("SET large {value}")), Value::ok(), "{durability}");
        drop(resp);
        server.kill();
        let server = ServerProcess::start_with_data(directory.path(), &flags);
        assert_eq!(server.resp().call("STRLEN large"), Value::Integer(24 << 20));
    }
}

/// A server that was quiet for a moment, or has ended, says which bytes are synced: bytes of it that
/// change are no torn tail.
#[test]
fn what_changes_behind_a_clean_end_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start_with_data(directory.path(), &["--shards=2"]);
    fill(&mut server.resp());
    server.terminate();
    assert_eq!(server.ended(), Some(0), "{}", server.log());
    let segment = directory.path().join("log-0000000000000001");
    let whole = std::fs::read(&segment).unwrap();
    let name = directory.path().display().to_string();
    for offset in [4100, whole.len() / 2, whole.len() - 70] {
        let mut changed = whole.clone();
        changed[offset] ^= 1;
        std::fs::write(&segment, &changed).unwrap();
        let corrupt = run_remora(&["log", "verify", &name]);
        assert_eq!(corrupt.code, Some(1), "offset {offset}: {corrupt:?}");
    }
}

//! Backups of a server that runs, and what is made of them: directories, and keys of other servers.

use remora_tests::{
    Fault, Finished, Resp, ServerProcess, UnreliableDisk, Value, run_remora, wait_until,
};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// `remora backup` of this server, with `--json`.
fn backup(server: &ServerProcess, to: &Path) -> serde_json::Value {
    let (address, to) = (server.resp_address().to_string(), to.display().to_string());
    let made = run_remora(&["backup", "--server", &address, "--to", &to, "--json"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    serde_json::from_str(&made.out).unwrap()
}

/// `remora restore` into this directory.
fn restore(backup: &Path, to: &Path) -> Finished {
    run_remora(&["restore", &backup.display().to_string(), "--data-dir", &to.display().to_string()])
}

fn digest(resp: &mut Resp) -> String {
    match resp.call("DEBUG DIGEST") {
        Value::Simple(text) => text,
        other => panic!("a digest, and not {other:?}"),
    }
}

fn integer(resp: &mut Resp, request: &str) -> i64 {
    match resp.call(request) {
        Value::Integer(number) => number,
        other => panic!("{request}: {other:?}"),
    }
}

fn fill(resp: &mut Resp) {
    for number in 0..500 {
        assert_eq!(resp.call(&format!("SET key-{number} value-{number}")), Value::ok());
    }
    for field in 0..1500 {
        resp.call(&format!("HSET large field-{field} {field}"));
    }
    for request in [
        "GEOADD places 13.36 38.11 Palermo 15.08 37.50 Catania",
        "RTREE.ADD tree 7 1 2 3 4",
        "PEXPIREAT key-3 4000000000000",
        "DEL key-1 key-2",
    ] {
        let reply = resp.call(request);
        assert!(!reply.is_error(), "{request}: {reply:?}");
    }
}

#[test]
fn a_backup_of_a_running_server_makes_the_same_data() {
    let (directory, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = ServerProcess::start_with_data(directory.path(), &["--shards=3"]);
    let mut resp = server.resp();
    fill(&mut resp);
    let (before, keys) = (digest(&mut resp), integer(&mut resp, "DBSIZE"));
    let (copy, restored) = (place.path().join("backup"), place.path().join("restored"));
    let report = backup(&server, &copy);
    assert_eq!(report["digest"], before.as_str());
    assert_eq!(report["keys"], keys);
    assert_eq!(digest(&mut resp), before, "it is served on");
    assert_eq!(resp.call("SET later 1"), Value::ok());

    let checked = run_remora(&["restore", &copy.display().to_string(), "--check", "--json"]);
    assert_eq!(checked.code, Some(0), "{}", checked.err);
    let checked: serde_json::Value = serde_json::from_str(&checked.out).unwrap();
    assert_eq!((&checked["digest"], &checked["files"]), (&report["digest"], &report["files"]));
    let made = restore(&copy, &restored);
    assert_eq!(made.code, Some(0), "{}", made.err);
    assert!(made.out.contains(&before), "{}", made.out);
    for shards in ["--shards=3", "--shards=2"] {
        let restored = ServerProcess::start_with_data(&restored, &[shards]);
        let mut resp = restored.resp();
        assert_eq!((digest(&mut resp), integer(&mut resp, "DBSIZE")), (before.clone(), keys));
        assert_eq!(resp.call("GET later"), Value::Null);
        assert_eq!(integer(&mut resp, "HLEN large"), 1500);
    }
}

/// `remora restore` into this server, with more arguments.
#[test]
fn nobody_but_its_owner_reads_a_data_directory_or_a_backup() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let server = ServerProcess::start_with_data(&data, &["--shards=2"]);
    let mut resp = server.resp();
    fill(&mut resp);
    assert!(!resp.call("BGSAVE").is_error());
    wait_until("the snapshot is there", || resp.info("snapshots_written") == 1);
    assert_eq!(resp.call("SET later 1"), Value::ok());
    let copy = place.path().join("backup");
    backup(&server, &copy);
    let mut seen = Vec::new();
    let mut left = vec![data, copy];
    while let Some(path) = left.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.permissions().mode() & 0o777, expected, "{}", path.display());
        if metadata.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        seen.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    for name in ["log-", "snapshot-", "shard-1", "manifest", "identity", "lock"] {
        assert!(seen.iter().any(|seen| seen.starts_with(name)), "{name}: {seen:?}");
    }
}

fn restore_into(backup: &Path, server: &ServerProcess, more: &[&str]) -> Finished {
    let (backup, address) = (backup.display().to_string(), server.resp_address().to_string());
    run_remora(&[&["restore", &backup, "--server", &address], more].concat())
}

#[test]
fn a_backup_is_restored_into_a_server_that_runs() {
    let [directory, other, place] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let server = ServerProcess::start_with_data(directory.path(), &["--shards=3"]);
    let mut resp = server.resp();
    fill(&mut resp);
    let value = "v".repeat(300_000);
    for request in [
        "RTREE.ADD tree name 5 6 7 8",
        "SELECT 5",
        &format!("SET long {value}"),
        "HSET small a 1 b 2",
        "PEXPIREAT small 4000000000000",
        "SELECT 0",
    ] {
        let reply = resp.call(request);
        assert!(!reply.is_error(), "{request}: {reply:?}");
    }
    let before = digest(&mut resp);
    let copy = place.path().join("backup");
    let report = backup(&server, &copy);
    let flags = ["--shards=2", "--durability=fsync", "--fabric-address=127.0.0.1:0"];
    let mut target = ServerProcess::start_with_data(other.path(), &flags);
    let none = restore_into(&copy, &target, &[]);
    assert_eq!(none.code, Some(0), "{}", none.err);
    assert!(none.out.contains(&before) && none.out.contains("into the server at"), "{}", none.out);
    assert_eq!(digest(&mut target.resp()), before);

    // It has keys now: they stay, unless they are said to go.
    assert_eq!(target.resp().call("SET stray 1"), Value::ok());
    let refused = restore_into(&copy, &target, &[]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""));
    assert!(refused.err.contains("keys: --replace removes them"), "{}", refused.err);
    assert_eq!(target.resp().call("GET stray"), Value::bulk("1"));
    let replaced = restore_into(&copy, &target, &["--replace", "--transport=tcp", "--json"]);
    assert_eq!(replaced.code, Some(0), "{}", replaced.err);
    let replaced: serde_json::Value = serde_json::from_str(&replaced.out).unwrap();
    assert_eq!((&replaced["digest"], &replaced["keys"]), (&report["digest"], &report["keys"]));
    assert_eq!(replaced["server"], target.resp_address().to_string().as_str());
    let mut resp = target.resp();
    assert_eq!((digest(&mut resp), resp.call("GET stray")), (before.clone(), Value::Null));
    drop(resp);
    // What it has got is logged, as any change.
    target.kill();
    let target = ServerProcess::start_with_data(other.path(), &["--shards=1"]);
    assert_eq!(digest(&mut target.resp()), before);
}

#[test]
fn a_restore_waits_for_a_disk_that_fails_for_a_while_and_makes_whole_objects() {
    let (directory, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = ServerProcess::start_with_data(directory.path(), &["--shards=2"]);
    fill(&mut server.resp());
    let before = digest(&mut server.resp());
    let copy = place.path().join("backup");
    backup(&server, &copy);
    for durability in ["memory", "everysec"] {
        let disk = UnreliableDisk::new();
        let mut target = disk.serve(&["--shards=2", &format!("--durability={durability}")]);
        disk.set_fault(Some(Fault::Full));
        let restored = std::thread::scope(|scope| {
            let restoring = scope.spawn(|| restore_into(&copy, &target, &[]));
            wait_until("the disk fails", || target.resp().info("log_failures") > 0);
            std::thread::sleep(std::time::Duration::from_millis(300));
            disk.set_fault(None);
            restoring.join().unwrap()
        });
        assert_eq!(restored.code, Some(0), "{durability}: {}", restored.err);
        assert!(restored.out.contains(&before), "{}", restored.out);
        target.kill();
        let target = disk.serve(&["--shards=3"]);
        assert_eq!(digest(&mut target.resp()), before, "{durability}");
    }
}

#[test]
fn a_damaged_backup_and_a_server_without_room_change_nothing_or_say_it() {
    let (directory, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = ServerProcess::start_with_data(directory.path(), &["--shards=2"]);
    fill(&mut server.resp());
    let value = "v".repeat(1 << 20);
    (0..24).for_each(|at| _ = server.resp().call(&format!("SET long-{at} {value}")));
    let copy = place.path().join("backup");
    backup(&server, &copy);
    let target = ServerProcess::start(&["--max-memory=16MiB", "--shards=1"]);
    let mut resp = target.resp();
    assert_eq!(resp.call("SET mine 1"), Value::ok());
    let before = digest(&mut resp);
    let file = copy.join("snapshot-0000000000000001/shard-1");
    let whole = std::fs::read(&file).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    std::fs::write(&file, &changed).unwrap();
    let damaged = restore_into(&copy, &target, &["--replace"]);
    assert_eq!(damaged.code, Some(1));
    assert!(damaged.err.contains("corrupt snapshot-"), "{}", damaged.err);
    assert_eq!(digest(&mut resp), before, "nothing was changed");
    std::fs::write(&file, &whole).unwrap();

    let full = restore_into(&copy, &target, &["--replace"]);
    assert_eq!((full.code, full.out.as_str()), (Some(1), ""));
    for says in ["only a part of the backup", "key long-", "memory is full"] {
        assert!(full.err.contains(says), "{says}: {}", full.err);
    }
    let name = copy.display().to_string();
    for (arguments, code, says) in [
        (&["restore", &name, "--server", "127.0.0.1:1"][..], 3, "cannot connect"),
        (&["restore", &name, "--server", "/tmp/socket"], 2, "HOST:PORT"),
        (&["restore", &name, "--replace"], 2, "--server"),
        (&["restore", &name, "--server", "127.0.0.1:1", "--data-dir", "x"], 2, "--data-dir"),
    ] {
        let refused = run_remora(arguments);
        assert_eq!((refused.code, refused.out.as_str()), (Some(code), ""), "{arguments:?}");
        assert!(refused.err.contains(says), "{arguments:?}: {}", refused.err);
    }
}

#[test]
fn the_log_commands_know_snapshots() {
    let (directory, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = ServerProcess::start_with_data(directory.path(), &["--shards=2"]);
    fill(&mut server.resp());
    let copy = place.path().join("backup");
    backup(&server, &copy);
    assert_eq!(server.resp().call("SET behind it"), Value::ok());
    for (data, has_more) in [(directory.path(), true), (copy.as_path(), false)] {
        let name = data.display().to_string();
        let inspected = run_remora(&["log", "inspect", &name]).out;
        assert!(inspected.contains("\nsnapshot-0000000000000001: 2 shard(s), of epoch 1\n"));
        let inspected = run_remora(&["log", "inspect", &name, "--json"]).out;
        let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
        let operations = inspected["snapshot"]["operations"].as_u64().unwrap();
        assert!(operations >= 501, "{inspected}");
        let verified = run_remora(&["log", "verify", &name]);
        let says = format!("; {operations} operations in snapshot-0000000000000001, ");
        assert!(verified.code == Some(0) && verified.out.contains(&says), "{verified:?}");
        let dumped = run_remora(&["log", "dump", &name]).out;
        let mut lines = dumped.lines();
        let of_snapshot = lines.by_ref().take(2 + operations as usize);
        assert!({ of_snapshot }.all(|line| line.starts_with("snapshot=1 shard=")));
        assert!(dumped.lines().take(2).all(|line| line.contains(" sequence=")));
        assert!(!lines.clone().any(|line| line.starts_with("snapshot=")));
        assert_eq!(lines.any(|line| line.contains(" key=behind ")), has_more);
    }
    let file = directory.path().join("snapshot-0000000000000001/shard-1");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[300] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let corrupt = run_remora(&["log", "verify", &directory.path().display().to_string()]);
    assert_eq!(corrupt.code, Some(1));
    let start = "corrupt snapshot-0000000000000001/shard-1 offset=64 ";
    assert!(corrupt.out.starts_with(start), "{corrupt:?}");
}

/// The names in a directory.
fn names(of: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(of).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A snapshot lies in the directory that the server was started with, whatever a client asks for.
#[test]
fn no_client_names_the_directory_of_a_snapshot() {
    let place = tempfile::tempdir().unwrap();
    let (data, other) = (place.path().join("data"), place.path().join("other"));
    std::fs::create_dir(&other).unwrap();
    let server = ServerProcess::start_with_data(&data, &["--shards=2"]);
    let mut resp = server.resp();
    fill(&mut resp);
    let written = integer(&mut resp, "LASTSAVE");
    for request in [
        "CONFIG SET dir DIR",
        "CONFIG SET dbfilename DIR/dump.rdb",
        "CONFIG SET appenddirname DIR",
        "CONFIG SET data-dir DIR data_dir DIR",
        "CONFIG REWRITE",
        "BGSAVE DIR",
        "BGSAVE TO DIR",
        "BGSAVE SCHEDULE DIR",
        "SAVE DIR",
        "BGREWRITEAOF DIR",
    ] {
        let reply = resp.call(&request.replace("DIR", &other.display().to_string()));
        assert!(reply.is_error(), "{request}: {reply:?}");
    }
    assert_eq!(resp.info("snapshots_written"), 0);
    assert_eq!(integer(&mut resp, "LASTSAVE"), written);
    for (count, request) in [(1, "BGSAVE"), (2, "BGSAVE SCHEDULE")] {
        assert!(!resp.call(request).is_error());
        wait_until("the snapshot is there", || resp.info("snapshots_written") == count);
    }
    assert!(names(&data).iter().any(|name| name.starts_with("snapshot-")), "{:?}", names(&data));
    assert_eq!(names(place.path()), ["data", "other"]);
    assert!(names(&other).is_empty(), "{:?}", names(&other));
}

/// Counts up keys of all shards, and renames a key round and round, until it is told to end.
fn change(server: &ServerProcess, (ends, counted): (&AtomicBool, &AtomicI64)) {
    let mut resp = server.resp();
    let mut round = 0;
    while !ends.load(Ordering::Relaxed) {
        let next = counted.load(Ordering::Relaxed) + 1;
        for counter in 0..4 {
            assert_eq!(integer(&mut resp, &format!("INCR counter-{counter}")), next);
        }
        counted.store(next, Ordering::Release);
        let renamed = resp.call(&format!("RENAME moved-{} moved-{}", round % 8, (round + 1) % 8));
        assert_eq!(renamed, Value::ok());
        round += 1;
    }
}

/// Has one snapshot after the other written, so that they are replaced while they are copied.
fn save_all_the_time(server: &ServerProcess, ends: &AtomicBool) {
    let mut resp = server.resp();
    while !ends.load(Ordering::Relaxed) {
        resp.call("BGSAVE");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_backup_under_changes_is_one_state_behind_all_that_was_acknowledged() {
    let (directory, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = ServerProcess::start_with_data(directory.path(), &["--shards=3"]);
    fill(&mut server.resp());
    assert_eq!(server.resp().call("SET moved-0 it"), Value::ok());
    let (ends, counted) = (AtomicBool::new(false), AtomicI64::new(0));
    let taken: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| change(&server, (&ends, &counted)));
        scope.spawn(|| save_all_the_time(&server, &ends));
        let taken = (0..4).map(|at| {
            let copy = place.path().join(format!("backup-{at}"));
            let acknowledged = counted.load(Ordering::Acquire);
            let report = backup(&server, &copy);
            (copy, acknowledged, counted.load(Ordering::Acquire), report)
        });
        let taken = taken.collect();
        ends.store(true, Ordering::Relaxed);
        taken
    });
    for (copy, acknowledged, by_then, report) in taken {
        let restored = copy.with_extension("restored");
        let made = restore(&copy, &restored);
        assert_eq!(made.code, Some(0), "{}", made.err);
        let server = ServerProcess::start_with_data(&restored, &["--shards=2"]);
        let mut resp = server.resp();
        assert_eq!(report["digest"], digest(&mut resp).as_str());
        for counter in 0..4 {
            let Value::Bulk(number) = resp.call(&format!("GET counter-{counter}")) else {
                panic!()
            };
            let number: i64 = String::from_utf8(number).unwrap().parse().unwrap();
            assert!((acknowledged..=by_then + 1).contains(&number), "{acknowledged} {number}");
        }
        let moved = (0..8).map(|at| resp.call(&format!("GET moved-{at}")));
        let there = moved.filter(|value| *value == Value::bulk("it")).count();
        assert!((1..=2).contains(&there), "{there}");
        assert_eq!(integer(&mut resp, "HLEN large"), 1500);
    }
}

#[test]
fn damaged_backups_and_bad_places_are_refused() {
    let (directory, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server =
        ServerProcess::start_with_data(directory.path(), &["--shards=2", "--durability=fsync"]);
    fill(&mut server.resp());
    let (copy, target) = (place.path().join("backup"), place.path().join("target"));
    backup(&server, &copy);
    let files = |path: &Path| {
        let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.is_file()).collect::<Vec<_>>()
    };
    let mut damaged = files(&copy.join("snapshot-0000000000000001"));
    damaged.extend(files(&copy).into_iter().filter(|path| !path.ends_with("manifest")));
    assert!(damaged.len() >= 4, "{damaged:?}");
    for file in damaged {
        let name = file.strip_prefix(&copy).unwrap().display().to_string();
        let whole = std::fs::read(&file).unwrap();
        let mut changed = whole.clone();
        changed[whole.len() * 2 / 3] ^= 1;
        for (bytes, is_cut) in [(&changed[..], false), (&whole[..whole.len() - 1], true)] {
            std::fs::write(&file, bytes).unwrap();
            let refused = restore(&copy, &target);
            assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{name} {is_cut}");
            let says = format!("corrupt {name} offset=");
            assert!(refused.err.contains(&says), "{}", refused.err);
            assert!(!target.exists());
        }
        std::fs::write(&file, &whole).unwrap();
    }
    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("photo"), "x").unwrap();
    let (copy_name, target_name) = (copy.display().to_string(), target.display().to_string());
    let address = server.resp_address().to_string();
    let without = ServerProcess::start(&["--max-memory=16MiB"]);
    let keeps_nothing = without.resp_address().to_string();
    let elsewhere = place.path().join("elsewhere").display().to_string();
    std::fs::rename(copy.join("manifest"), copy.join("other")).unwrap();
    for (arguments, code, says) in [
        (&["restore", &copy_name, "--data-dir", &elsewhere][..], 2, "has no file `manifest`"),
        (&["restore", &elsewhere, "--check"], 2, "is no directory"),
        (&["restore", &copy_name, "--data-dir", &target_name], 2, "it holds photo"),
        (&["restore", &copy_name], 2, "--data-dir"),
        (&["backup", "--server", &address, "--to", &target_name], 2, "it holds photo"),
        (&["backup", "--server", &keeps_nothing, "--to", &elsewhere], 2, "keeps nothing"),
        (&["backup", "--server", "127.0.0.1:1", "--to", &elsewhere], 3, "cannot connect"),
        (&["backup", "--data-dir", &elsewhere, "--to", &elsewhere], 2, "is no directory"),
    ] {
        let refused = run_remora(arguments);
        assert_eq!((refused.code, refused.out.as_str()), (Some(code), ""), "{arguments:?}");
        assert!(refused.err.contains(says), "{arguments:?}: {}", refused.err);
        assert!(!Path::new(&elsewhere).exists(), "{arguments:?}");
    }
}

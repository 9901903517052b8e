//! One shard is one thread, pinned to a core of its own where it is asked to.

use remora_client_core::Path;
use remora_tests::proc::{cores_of, tasks};
use remora_tests::{ServerProcess, wait_until};
use std::collections::HashSet;
use std::time::Duration;

/// The cores of each shard's thread, by the shard's number.
fn cores_of_shards(server: &ServerProcess) -> Vec<String> {
    let mut shards: Vec<_> = tasks(server.pid())
        .into_iter()
        .filter(|task| task.name.starts_with("shard-"))
        .map(|task| (task.name, cores_of(server.pid(), task.tid)))
        .collect();
    shards.sort();
    shards.into_iter().map(|(_, cores)| cores).collect()
}

#[test]
fn each_shard_is_one_thread_pinned_to_a_core() {
    let all = cores_of(std::process::id(), std::process::id());
    let cores = std::thread::available_parallelism().unwrap().get();
    let shards = cores.to_string();
    let pinned = ["--max-memory=32MiB", "--pin=true", "--shards", &shards];
    let server = ServerProcess::start(&pinned);
    // Each pins itself when it begins.
    let is_pinned = |found: &Vec<String>| found.iter().all(|cores| cores.parse::<u32>().is_ok());
    wait_until("the shards are pinned", || {
        let found = cores_of_shards(&server);
        found.len() == cores && is_pinned(&found)
    });
    let found = cores_of_shards(&server);
    println!("{shards} shards on cores {found:?} of {all}");
    assert_eq!(found.len(), cores, "one thread for each shard");
    assert!(found.iter().all(|cores| cores.parse::<u32>().is_ok()), "one core each: {found:?}");
    assert_eq!(found.iter().collect::<HashSet<_>>().len(), cores, "each its own: {found:?}");
    // Threads that are no shards may run anywhere.
    for task in tasks(server.pid()) {
        if !task.name.starts_with("shard-") {
            assert_eq!(cores_of(server.pid(), task.tid), all, "{}", task.name);
        }
    }
    let free = ServerProcess::start(&["--max-memory=32MiB", "--pin=false", "--shards=3"]);
    assert_eq!(cores_of_shards(&free), [&all[..]; 3]);
}

#[test]
fn heartbeats_tell_the_utilisation() {
    let server = ServerProcess::start(&["--shards", "1"]);
    let mut session = server.session();
    let keys = [&b"absent"[..]; 1_000];
    // Heartbeats come every 10 ms; a shard that has requests all the time is busy
    // for a good part of it.
    wait_until("the server is told to be busy", || {
        for _ in 0..20 {
            session.get_batch(&keys, Path::Ask, &mut |_, _, _| ()).unwrap();
        }
        session.server_utilisation_ppm().is_some_and(|ppm| ppm >= 20_000)
    });
    // Asked now and then, it is not. (A client that does nothing at all gets
    // no heartbeats.)
    wait_until("the server is told to be idle again", || {
        std::thread::sleep(Duration::from_millis(15));
        session.get(b"absent", Path::Ask).unwrap();
        session.server_utilisation_ppm().unwrap() < 20_000
    });
}

#[test]
fn the_limit_of_open_files_is_raised() {
    let server = ServerProcess::start(&["--max-memory=32MiB"]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let values: Vec<&str> = line["Max open files".len()..].split_whitespace().collect();
    assert_eq!(values[0], values[1], "soft and hard: {line}");
}

/// A shard that goes to sleep right after its work has told its counts first.
#[test]
fn info_knows_of_work_done_just_before_a_shard_fell_asleep() {
    let server =
        ServerProcess::start(&["--max-memory=32MiB", "--pin=false", "--wake=event", "--shards=1"]);
    let mut resp = server.resp();
    for key in 0..20 {
        resp.call(&format!("SET key:{key} v"));
    }
    // INFO does not wake the shard: what it did not tell before it fell asleep it
    // would never tell.
    wait_until("the shard tells of its work", || resp.info("last_sequence") == 20);
}

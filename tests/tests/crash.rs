//! `remora crash`: real servers are killed, their links cut, and nothing promised is lost.

use remora_tests::{Finished, remora, run};
use remora_zookeeper::LocalServer;

/// Rounds for each durability; `make test-long` asks for more.
const ROUNDS: u64 = 20;

/// Rounds with replicas: as many as there are kinds of faults, so that each has its turn.
const REPLICA_ROUNDS: u64 = 9;

/// Whatever else happens, in one of these rounds both replicas stand still and the primary dies
/// meanwhile: what was acknowledged without them is gone. More rounds draw a seed of their own.
const REPLICA_SEED: &str = "--seed=17568814196916047509";

fn rounds() -> u64 {
    std::env::var("REMORA_CRASH_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

fn crash(args: &[&str]) -> Finished {
    run(remora().arg("crash").args(args))
}

/// Runs the rounds of a durability; returns the fields of the last line.
fn crash_rounds(durability: &str) -> Vec<(String, u64)> {
    let rounds = rounds().to_string();
    let finished =
        crash(&["--durability", durability, "--rounds", &rounds, "--seconds-per-round", "0.5"]);
    assert_eq!(finished.code, Some(0), "{}\n{}", finished.out, finished.err);
    let last = finished.out.lines().last().unwrap();
    println!("{durability}: {last}");
    if durability != "memory" {
        check_small_disks(&finished.err);
    }
    fields(last)
}

/// The fields of a last line.
fn fields(line: &str) -> Vec<(String, u64)> {
    let field = |field: &str| {
        let (name, value) = field.split_once('=').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    line.split(' ').map(field).collect()
}

/// A server has filled a small disk, or the output says that this machine mounts none.
fn check_small_disks(notes: &str) {
    let did_not_run = notes.lines().find(|line| line.contains("small disk DID NOT RUN"));
    if let Some(line) = did_not_run {
        return println!("{line}");
    }
    assert!(notes.contains("a small disk was full, kill -9"), "{notes}");
}

fn check_rounds(durability: &str) {
    let fields = crash_rounds(durability);
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["rounds", "failovers", "acknowledged", "lost", "stale"]);
    let numbers: Vec<u64> = fields.iter().map(|(_, number)| *number).collect();
    assert_eq!([numbers[0], numbers[1], numbers[3], numbers[4]], [rounds(), 0, 0, 0]);
    assert!(numbers[2] > 10 * rounds(), "there was a load: {numbers:?}");
}

#[test]
fn rounds_with_durability_memory() {
    check_rounds("memory");
}

#[test]
fn rounds_with_durability_everysec() {
    check_rounds("everysec");
}

#[test]
fn rounds_with_durability_fsync() {
    check_rounds("fsync");
}

/// Rounds with replicas; without network namespaces all but the cuts of links.
fn replica_rounds(durability: &str, more: &[&str]) {
    let more_rounds = std::env::var("REMORA_CRASH_ROUNDS").ok();
    let seed = more_rounds.is_none().then_some(REPLICA_SEED);
    let rounds = more_rounds.map_or(REPLICA_ROUNDS, |rounds| rounds.parse().unwrap());
    let number = rounds.to_string();
    let args = ["--durability", durability, "--rounds", &number, "--seconds-per-round", "0.3"];
    let args: Vec<&str> = args.into_iter().chain(seed).collect();
    let finished = crash(&[&args[..], more].concat());
    let last = finished.out.lines().last().unwrap_or_default();
    println!("{more:?}: {last}");
    match finished.code {
        Some(0) => assert!(finished.err.contains(", links cut in "), "{}", finished.err),
        // This machine gives no namespaces, and the command says so.
        Some(2) => {
            let line = finished.err.lines().find(|line| line.contains("CutLinks DID NOT RUN"));
            println!("{}", line.unwrap_or_else(|| panic!("{}", finished.err)));
        }
        _ => panic!("{last}\n{}", finished.err),
    }
    let fields = fields(last);
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["rounds", "failovers", "acknowledged", "lost", "stale"]);
    let numbers: Vec<u64> = fields.iter().map(|(_, number)| *number).collect();
    assert_eq!([numbers[0], numbers[3], numbers[4]], [rounds, 0, 0]);
    assert!(numbers[1] > 0, "a replica was promoted: {numbers:?}");
    assert!(numbers[2] > 10 * rounds, "there was a load: {numbers:?}");
}

#[test]
fn rounds_with_two_replicas() {
    replica_rounds("memory", &["--replicas", "2"]);
}

#[test]
fn without_links_and_without_waiting_for_replicas() {
    let args = ["--durability=memory", "--rounds=2", "--seconds-per-round=0.2", "--types=hash"];
    let more = ["--replicas=1", "--min-replicas=0", "--without-links", "--json", "--seed=7"];
    let finished = crash(&[&args[..], &more].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.err);
    assert!(finished.err.contains("nothing is promised to survive a primary"), "{}", finished.err);
    let fields: serde_json::Value = serde_json::from_str(&finished.out).unwrap();
    assert_eq!((&fields["replicas"], &fields["min_replicas"]), (&1.into(), &0.into()));
    assert_eq!((&fields["rounds"], &fields["links_cut"]), (&2.into(), &0.into()));
    assert_eq!((&fields["lost"], &fields["stale"]), (&0.into(), &0.into()));
    assert!(fields["replica_reads"].as_u64() > Some(0), "{fields}");
}

/// Rounds with a cluster; `make test-long` asks for more.
const CLUSTER_ROUNDS: u64 = 20;

#[test]
fn rounds_with_a_cluster() {
    if LocalServer::is_skipped() {
        return println!("not run: ZooKeeper is missing, as REMORA_SKIP says");
    }
    let rounds = std::env::var("REMORA_CRASH_ROUNDS");
    let rounds: u64 = rounds.map_or(CLUSTER_ROUNDS, |rounds| rounds.parse().unwrap());
    let number = rounds.to_string();
    let args = ["--cluster", "zk", "--rounds", &number, "--seconds-per-round", "0.5"];
    let finished = crash(&[&args[..], &["--session-ms", "1000"]].concat());
    let last = finished.out.lines().last().unwrap_or_default();
    println!("{last}");
    match finished.code {
        Some(0) => {}
        // This machine gives no namespaces, and the command says so.
        Some(2) => assert!(finished.err.contains("no links were cut"), "{}", finished.err),
        _ => panic!("{last}\n{}", finished.err),
    }
    let numbers: Vec<u64> = fields(last).iter().map(|(_, number)| *number).collect();
    assert_eq!([numbers[0], numbers[3], numbers[4]], [rounds, 0, 0]);
    assert!(numbers[2] > 10 * rounds, "there was a load: {numbers:?}");
}

#[test]
fn json_is_one_object() {
    let args = ["--durability=memory", "--rounds=1", "--seconds-per-round=0.2", "--types=hash"];
    let finished = crash(&[&args[..], &["--seed=7", "--json"]].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.err);
    let fields: serde_json::Value = serde_json::from_str(&finished.out).unwrap();
    assert_eq!((&fields["seed"], &fields["rounds"]), (&7.into(), &1.into()));
    assert_eq!((&fields["lost"], &fields["stale"]), (&0.into(), &0.into()));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, words) in [
        (&["--durability=memory", "--rounds=0"][..], "name 1 or more"),
        (&["--durability=always", "--rounds=1"], "memory, everysec, fsync"),
        (&["--durability=memory", "--rounds=1", "--types=lists"], "there is no type \"lists\""),
        (&["--durability=memory", "--rounds=1", "--replicas=9"], "name 8 at most"),
        (
            &["--durability=memory", "--rounds=1", "--replicas=1", "--min-replicas=2"],
            "nothing would be acknowledged",
        ),
        (&["--rounds=1", "--cluster=raft"], "possible values: zk"),
        (&["--rounds=1"], "--durability"),
        (&["--rounds=1", "--cluster=zk", "--faults=rain"], "kill-primary"),
        (&["--durability=memory"], "--rounds"),
    ] {
        let finished = crash(args);
        assert_eq!(finished.code, Some(2), "{args:?}: {}", finished.err);
        assert!(finished.err.contains(words), "{args:?}: {}", finished.err);
    }
}

//! `remora bench keys` as a process: what it prints, how it ends, and that
//! nothing is left behind.

use remora_tests::proc::processes_with;
use remora_tests::{is_empty, json, remora, run as run_to_end, run_clean, wait_until};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

#[test]
fn every_path_finds_every_value() {
    for (path, transport) in
        [("ask", "shm"), ("read", "shm"), ("choose", "shm"), ("resp", "tcp"), ("local", "local")]
    {
        for shape in ["", "--batch 16", "--pipeline 8", "--clients 2", "--cold"] {
            if shape.starts_with("--pipeline") && !matches!(path, "ask" | "resp") {
                continue;
            }
            let args = format!(
                "bench keys --path {path} --records 2000 --ops 5003 --dist zipf:0.99 {shape}"
            );
            let report = json(&args);
            assert_eq!(report["ops"], 5003, "{args}");
            assert_eq!((&report["missing"], &report["wrong"]), (&0.into(), &0.into()), "{args}");
            assert_eq!(report["transport"], transport, "{args}");
            assert!(report["ops_per_s"].as_f64().unwrap() > 0.0, "{args}");
            assert!(report["p50_us"].as_f64().unwrap() > 0.0, "{args}");
        }
    }
}

#[test]
fn a_mixed_run_reads_and_writes_on_several_shards() {
    for path in ["ask", "read", "choose", "resp"] {
        for shape in ["", "--batch 4"] {
            let report = json(&format!(
                "bench keys --path {path} --records 500 --ops 4000 --reads 0.5 --shards 2 {shape}"
            ));
            assert_eq!(report["ops"], 4000, "{path}");
            assert!(report["asked"].as_u64().unwrap() > 1000, "{path}: writes are asked");
        }
    }
}

/// A count of a report.
fn count(report: &serde_json::Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"))
}

/// What was asked for, but for what a read lease that lapsed on a busy machine
/// was asked for.
fn asked_in_time(report: &serde_json::Value) -> u64 {
    count(report, "asked") - count(report, "read_lease_lapsed")
}

#[test]
fn cached_reads_take_one_round_trip_each() {
    let report = json("bench keys --path read --records 2000 --ops 20000 --dist zipf:0.99");
    // A few pointers may have been pushed out of the cache by others; and a READ
    // that comes too late is asked for after all.
    let trips = report["round_trips_per_op"].as_f64().unwrap() * 20_000.0;
    assert!(trips - (count(&report, "read_lease_lapsed") as f64) < 21_000.0, "{report}");
    assert!(count(&report, "hits") > 19_000, "{report}");
}

#[test]
fn a_run_for_a_time_repeats_its_operations() {
    // The clock is looked at in one of seven operations, not sooner.
    for shape in ["--path ask --pipeline 8", "--path read --clients 2", "--like-for-like"] {
        let report = json(&format!("bench keys {shape} --records 10 --ops 2 --seconds 0.05"));
        assert!(report["ops"].as_u64().unwrap() > 2, "{report}");
    }
}

#[test]
fn shared_pointers_warm_every_client() {
    let asked = |cache: &str| {
        let run = "bench keys --path choose --policy pointer --records 2000 --ops 8000 --clients 2 --cold";
        let report = json(&format!("{run} --pointer-cache {cache}"));
        assert_eq!((&report["missing"], &report["wrong"]), (&0.into(), &0.into()));
        asked_in_time(&report)
    };
    // 8000 even draws from 2000 records touch all but one in e^4 of them, and one
    // client's 4000 all but one in e^2. Private: each client asks for each that it
    // touches. Shared: one asks for both, but for those that both look up at once.
    let (off, private, shared) = (asked("off"), asked("private"), asked("shared"));
    assert_eq!(off, 8000);
    assert!((3300..3600).contains(&private), "{private}");
    assert!((1900..2400).contains(&shared), "{shared}");
}

#[test]
fn over_tcp_pointers_are_shared_through_the_users_directory() {
    let runtime = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut command = remora();
    let run = "bench keys --transport tcp --policy pointer --pointer-cache shared --records 2000 --ops 8000 --cold";
    command.args(run.split_whitespace()).args(["--clients", "2", "--json"]);
    command.env("XDG_RUNTIME_DIR", runtime.path());
    let finished = run_to_end(&mut command);
    assert_eq!(finished.code, Some(0), "{}", finished.err);
    let report: serde_json::Value = serde_json::from_str(&finished.out).unwrap();
    assert_eq!((&report["missing"], &report["wrong"]), (&0.into(), &0.into()));
    // About once for each key: what one asked for, the other reads.
    assert!((1900..2400).contains(&asked_in_time(&report)), "{report}");
    let tables = std::fs::read_dir(runtime.path().join("remora")).unwrap();
    assert_eq!(tables.count(), 1, "one for the incarnation of the bench's server");
}

#[test]
fn a_trace_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    for width in [4u32, 8] {
        let keys: Vec<u8> = (0..3000u64)
            .flat_map(|number| {
                (number % 100 * 40_000_000).to_be_bytes()[8 - width as usize..].to_vec()
            })
            .collect();
        std::fs::write(&trace, keys).unwrap();
        let report = json(&format!(
            "bench keys --path choose --policy pointer --cold --dist file:{} --trace-key-bytes {width}",
            trace.display()
        ));
        assert_eq!((&report["records"], &report["ops"]), (&100.into(), &3000.into()));
        // A thread that lost its processor may ask for a key once more.
        let (asked, hits) = (asked_in_time(&report), count(&report, "hits"));
        assert!((100..=110).contains(&asked) && hits >= 2_890, "{report}");
    }
}

#[test]
fn a_running_server_is_found_by_either_address() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let mut command = remora();
    command.args(["serve", "--port=0", "--owned-by-parent", "--log=warn", "--socket"]).arg(&socket);
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let resp = line.split(' ').nth(1).unwrap().strip_prefix("resp=").unwrap();
    for (path, address) in
        [("read", socket.to_str().unwrap()), ("read", resp), ("ask", resp), ("resp", resp)]
    {
        let report =
            json(&format!("bench keys --path {path} --records 1000 --ops 2000 --server {address}"));
        assert_eq!(report["missing"], 0, "{path} {address}");
        assert!(report["server_cpu_us_per_op"].is_number(), "{path} {address}");
    }
    let finished = run_clean(&format!("bench keys --path resp --server {}", socket.display()));
    assert_eq!(finished.code, Some(2));
    assert!(finished.err.contains("HOST:PORT"), "{}", finished.err);
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}

#[test]
fn exit_codes_tell_usage_from_missing_transports() {
    for (args, code) in [
        ("bench keys --path nonsense", 2),
        ("bench keys --reads 2", 2),
        ("bench keys --transport verbs", 3),
        ("bench keys --transport tcp --path ask --server /nowhere/remora.sock", 3),
        ("bench keys --path read --server /nowhere/remora.sock", 3),
        ("bench keys --path resp --server 127.0.0.1:1", 3),
        ("bench keys --json --transport verbs", 3),
    ] {
        let finished = run_clean(args);
        assert_eq!(finished.code, Some(code), "{args}: {}", finished.err);
        assert_eq!(finished.out, "", "{args}");
        assert!(!finished.err.is_empty(), "{args}");
    }
}

/// A bench that is under way, and the directory that it works in.
fn long_bench() -> (Child, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = remora();
    command
        .args(["bench", "keys", "--path", "ask", "--records", "1000", "--ops", "30000000"])
        .env("TMPDIR", directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.spawn().unwrap();
    wait_until("the server runs", || {
        let socket = std::fs::read_dir(directory.path()).unwrap().flatten().next();
        socket.is_some_and(|entry| entry.path().join("remora.sock").exists())
    });
    (child, directory)
}

/// Whether this process was started in the background of a shell, and its
/// children therefore ignore Ctrl-C.
fn ignores_interrupts() -> bool {
    const SIGINT_BIT: u64 = 1 << 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & SIGINT_BIT != 0
}

#[test]
fn a_bench_that_is_killed_leaves_no_server_and_no_file() {
    use rustix::process::{Pid, Signal, kill_process};
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        if signal == Signal::INT && ignores_interrupts() {
            continue;
        }
        let (mut child, directory) = long_bench();
        assert!(!processes_with(directory.path()).is_empty());
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
        wait_until("the server has ended", || processes_with(directory.path()).is_empty());
        assert!(is_empty(directory.path()), "{signal:?} leaves files");
    }
}

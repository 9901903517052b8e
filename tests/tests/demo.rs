//! `remora demo`, `version` and `bench keys` as others run them: the contract's
//! fields, counts, exit codes, and nothing left behind.

use remora_tests::proc::processes_with;
use remora_tests::{check_numbers, is_empty, json, remora, run_clean, wait_until};
use serde_json::Value;
use std::process::Stdio;

const ROW_NUMBERS: [&str; 6] =
    ["ops_per_s", "p50_us", "p99_us", "round_trips_per_op", "bytes_per_op", "server_cpu_us_per_op"];
const BENCH_NUMBERS: [&str; 14] = [
    "ops_per_s",
    "p50_us",
    "p99_us",
    "p999_us",
    "round_trips_per_op",
    "bytes_per_op",
    "server_cpu_us_per_op",
    "asked",
    "read",
    "hits",
    "stale",
    "retries",
    "lease_expired",
    "seed",
];

fn around_one(number: &Value) -> bool {
    number.as_f64().is_some_and(|number| (0.99..=1.01).contains(&number))
}

#[test]
fn the_demo_prints_what_the_contract_says_and_leaves_nothing() {
    let report = json("demo");
    assert!(report["records"].as_u64().unwrap() >= 50_000, "{report}");
    assert!(report["server_pid"].is_u64() && report["client_pid"].is_u64());
    assert_ne!(report["server_pid"], report["client_pid"]);
    let rows = report["rows"].as_array().unwrap();
    let paths: Vec<_> = rows.iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["resp", "ask", "read"]);
    for row in rows {
        check_numbers(row, &ROW_NUMBERS);
    }
    assert!(around_one(&rows[1]["round_trips_per_op"]), "{report}");
    let restart = &report["restart"];
    check_numbers(restart, &["records", "tree_records", "ready_ms", "recovery_ms"]);
    assert_eq!(restart["records"], report["records"]);
    assert_eq!(restart["tree_records"], report["records"]);
    assert_eq!(restart["digest"].as_str().unwrap().len(), 40);
    assert_ne!(restart["pids"][0], restart["pids"][1]);
}

#[test]
fn the_demo_draws_a_map_where_it_is_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("map.html");
    json(&format!("demo --map {}", file.display()));
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.len() < 400_000, "{} bytes", page.len());
    for answered in ["asked over TCP", "asked by message", "read from memory"] {
        assert!(page.matches(answered).count() >= 6, "{answered}");
    }
    let finished = run_clean("demo --map no/such/directory/map.html");
    assert_eq!((finished.code, finished.out.as_str()), (Some(2), ""), "{}", finished.err);
}

#[test]
fn the_demo_shows_three_ways_and_leaves_nothing() {
    let report = json("demo");
    assert!(report["records"].as_u64().unwrap() >= 50_000);
    assert_ne!(report["server_pid"], report["client_pid"]);
    let rows = report["rows"].as_array().unwrap();
    let paths: Vec<&str> = rows.iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["resp", "ask", "read"]);
    assert!(rows.iter().all(|row| row["server_cpu_us_per_op"].is_number()));
    let finished = run_clean("demo");
    assert_eq!(finished.code, Some(0), "{}", finished.err);
    assert!(finished.out.starts_with(&format!("loaded {} places\n", report["records"])));
    for path in paths {
        assert!(finished.out.lines().any(|line| line.starts_with(&format!("{path} "))), "{path}");
    }
    assert!(finished.out.contains("redis-cli") && finished.out.contains("Paris|FR|"));
    let restart = finished.out.lines().find(|line| line.starts_with("  restart: killed with -9, "));
    assert!(restart.is_some_and(|line| line.contains("digest equal")), "{}", finished.out);
}

#[test]
fn the_demo_of_a_cluster_kills_its_primary_and_loses_nothing() {
    if remora_zookeeper::LocalServer::is_skipped() {
        return;
    }
    let report = json("demo --cluster");
    let count = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
    assert_eq!((count("lost"), count("stale")), (0, 0), "{report}");
    assert_eq!(count("servers"), 3);
    assert!(count("records") >= 50_000 && count("acknowledged") > 0 && count("reads") > 0);
    let epochs: Vec<_> = (0..2).map(|at| report["epochs"][at].as_u64().unwrap()).collect();
    assert!(epochs[0] < epochs[1], "another server leads: {report}");
    assert!(count("pause_ms") > 0, "{report}");
}

#[test]
fn version_is_one_line() {
    let finished = run_clean("version");
    assert_eq!((finished.code, finished.out.as_str()), (Some(0), "remora 0.1.0 (layout 9)\n"));
}

#[test]
fn every_path_of_the_bench_counts_what_it_did() {
    const OPS: u64 = 50_000;
    for (path, policy, is_read) in [
        ("ask", "cost", false),
        ("read", "cost", true),
        ("choose", "pointer", true),
        ("resp", "cost", false),
    ] {
        let report = json(&format!(
            "bench keys --records 20000 --ops {OPS} --path {path} --policy {policy} --lease-ms 600000"
        ));
        check_numbers(&report, &BENCH_NUMBERS);
        for field in ["transport", "path", "command"] {
            assert!(report[field].is_string(), "{field}: {report}");
        }
        assert_eq!(report["path"], path);
        assert_eq!(report["transport"], if path == "resp" { "tcp" } else { "shm" });
        assert!(around_one(&report["round_trips_per_op"]), "{report}");
        println!(
            "{path}: {:.0}/s, p50 {} us, server CPU {} us, asked {}, read {}",
            report["ops_per_s"].as_f64().unwrap(),
            report["p50_us"],
            report["server_cpu_us_per_op"],
            report["asked"],
            report["read"]
        );
        let count = |name: &str| report[name].as_u64().unwrap();
        assert_eq!(count("asked") + count("read"), OPS, "{report}");
        // On a busy machine the read lease lapses now and then.
        match path {
            // It asks for what the cache lost.
            "choose" => {
                assert!(count("asked") - count("read_lease_lapsed") < OPS / 100, "{report}")
            }
            _ if is_read => assert_eq!(count("asked"), count("read_lease_lapsed"), "{report}"),
            _ => assert_eq!(count("asked"), OPS, "{report}"),
        }
    }
}

#[test]
fn the_command_in_a_report_repeats_the_run() {
    let report = json("bench keys --records 1000 --ops 3000 --path ask --dist zipf:0.99 --seed 7");
    let command = report["command"].as_str().unwrap().strip_prefix("remora ").unwrap();
    let again = run_clean(command);
    let again: Value = serde_json::from_str(&again.out).unwrap();
    for field in ["command", "seed", "asked", "round_trips_per_op", "bytes_per_op"] {
        assert_eq!(again[field], report[field], "{field}");
    }
}

#[test]
fn exit_codes_and_standard_output_of_failures() {
    for (args, code) in [
        ("bench keys --transport verbs --json", 3),
        ("bench keys --transport tcp --path read --json --server /nowhere/socket", 3),
        ("bench keys --path sideways --json", 2),
        ("bench keys --reads 7 --json", 2),
        ("bench keys --no-such-flag", 2),
        ("bench", 2),
        ("nonsense", 2),
        ("serve --wake never", 2),
    ] {
        let finished = run_clean(args);
        assert_eq!(finished.code, Some(code), "{args}: {}", finished.err);
        assert_eq!(finished.out, "", "{args}");
        assert!(!finished.err.is_empty(), "{args}");
    }
}

#[test]
fn a_bench_that_is_killed_leaves_no_server() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = remora();
    command.args("bench keys --records 1000 --ops 50000000 --path ask --json".split(' '));
    command.env("TMPDIR", directory.path());
    let mut bench = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("its server listens", || {
        let own = std::fs::read_dir(directory.path()).unwrap().flatten().next();
        own.is_some_and(|own| own.path().join("remora.sock").exists())
    });
    assert!(!processes_with(directory.path()).is_empty());
    bench.kill().unwrap();
    bench.wait().unwrap();
    wait_until("the server has ended", || processes_with(directory.path()).is_empty());
    wait_until("its files are gone", || is_empty(directory.path()));
}

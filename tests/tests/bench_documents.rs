//! `remora bench documents` as a process: every operation by every path, the counts that the paths lead to
//! expect, a server that refuses, and bad flags.

use remora_tests::{Finished, ServerProcess, json, remora, run};
use serde_json::Value;

const OPERATIONS: [&str; 5] = ["insert", "find", "update", "delete", "query"];
const PATHS: [&str; 4] = ["ask", "read", "choose", "mongo"];

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"))
}

/// A run in which nothing was refused, missing or wrong.
fn right(flags: &str) -> Value {
    let report = json(&format!("bench documents {flags}"));
    for name in ["errors", "missing", "wrong"] {
        assert_eq!(number(&report, name), 0.0, "{flags}: {report}");
    }
    report
}

#[test]
fn every_operation_goes_by_every_path() {
    for operation in OPERATIONS {
        for path in PATHS {
            for transport in ["shm", "tcp"] {
                let flags = format!(
                    "--op {operation} --path {path} --transport {transport} --connections 3 --records 400 \
                     --ops 301 --value-bytes 50 --wake event"
                );
                let report = right(&flags);
                assert_eq!(number(&report, "ops"), 301.0, "{report}");
                assert_eq!((&report["op"], &report["path"]), (&operation.into(), &path.into()));
                let by = if path == "mongo" { "tcp" } else { transport };
                assert_eq!(report["transport"], by, "{report}");
                for name in ["ops_per_s", "p50_us", "bytes_per_op", "server_cpu_us_per_op"] {
                    assert!(number(&report, name) > 0.0, "{name}: {report}");
                }
            }
        }
    }
}

/// Four operations, by one connection and by a hundred, which the server counts (RDMA_Mongo 5, row M31). What is
/// asked takes one round trip, however many connections there are.
#[test]
fn each_of_a_hundred_connections_has_its_operations() {
    let flags = ["--mongo-port=0", "--shards=1", "--fabric-address=127.0.0.1:0"];
    let server = ServerProcess::start(&flags);
    let mut resp = server.resp();
    let (socket, address) = (server.socket().display().to_string(), server.resp_address());
    let mongo = server.mongo_address();
    let paths = [
        (format!("--path ask --server {socket}"), "total_sessions_granted"),
        (format!("--path ask --transport tcp --server {address}"), "total_sessions_granted"),
        (format!("--path mongo --server {mongo}"), "total_connections_received"),
    ];
    for operation in ["insert", "delete", "update", "query"] {
        for connections in [1, 100] {
            for (path, counter) in &paths {
                let before = resp.info(counter);
                let report = right(&format!(
                    "--op {operation} {path} --connections {connections} --records 1000 --ops 1000 \
                     --wake event"
                ));
                assert_eq!(number(&report, "ops"), 1000.0, "{report}");
                assert_eq!(number(&report, "round_trips_per_op"), 1.0, "{report}");
                assert_eq!(number(&report, "asked"), 1000.0, "{report}");
                // Two more load the documents and look at the result; two may ask for an address.
                let made = resp.info(counter) - before;
                assert!((connections + 2..=connections + 4).contains(&made), "{made}: {report}");
            }
        }
    }
}

#[test]
fn a_known_document_is_one_read() {
    let report = right("--op find --path read --records 2000 --ops 5000");
    let lapsed = number(&report, "read_lease_lapsed");
    assert!(number(&report, "read") >= 5000.0 - lapsed, "{report}");
    assert!(number(&report, "asked") <= lapsed, "{report}");
    // Two documents may have the same place in what the session keeps.
    assert!(number(&report, "round_trips_per_op") < 1.05 + lapsed / 5000.0, "{report}");
    let cold = right("--op find --path read --records 2000 --ops 2000 --cold");
    assert!(number(&cold, "round_trips_per_op") > 1.3, "{cold}");
}

#[test]
fn a_running_server_is_measured_and_keeps_no_documents() {
    let server = ServerProcess::start(&["--mongo-port=0", "--shards=2"]);
    let pid = format!("--server-pid {}", server.pid());
    let addresses = [
        ("ask", server.socket().display().to_string(), ""),
        ("read", server.resp_address().to_string(), ""),
        ("mongo", server.mongo_address().to_string(), &*pid),
        ("mongo", server.mongo_address().to_string(), ""),
    ];
    for (path, address, more) in addresses {
        let flags = format!("--path {path} --server {address} {more} --records 100 --ops 100");
        let report = right(&flags);
        let has_cpu = path != "mongo" || !more.is_empty();
        assert_eq!(report["server_cpu_us_per_op"].is_number(), has_cpu, "{flags}: {report}");
    }
    assert_eq!(server.resp().info("documents"), 0);
}

#[test]
fn a_server_that_refuses_fails_the_run() {
    let server = ServerProcess::start(&["--mongo-port=0", "--shards=1", "--max-memory=8MiB"]);
    for (path, address) in [
        ("ask", server.socket().display().to_string()),
        ("mongo", server.mongo_address().to_string()),
    ] {
        let mut command = remora();
        command.args(["bench", "documents", "--op", "insert", "--path", path]);
        command.args(["--records", "10", "--ops", "2000", "--value-bytes", "20000", "--json"]);
        let Finished { code, out, err } = run(command.args(["--server", &address]));
        let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
        assert!(number(&report, "errors") > 0.0, "{report}");
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains("the server refused"), "{err}");
    }
}

#[test]
fn bad_flags_are_refused_with_what_to_do() {
    for (flags, code, said) in [
        ("--records 0", 2, "--records: 0 is not in"),
        ("--connections 0", 2, "--connections: 0 is not in 1..=1024"),
        ("--value-bytes 70000", 2, "--value-bytes: 70000 is not in 0..=65536"),
        ("--op delete --records 5 --ops 6", 2, "--ops 6 needs as many --records, not 5"),
        ("--op remove", 2, "insert, find, update, delete, query"),
        ("--server-pid 1", 2, "--server"),
        ("--server x:1 --server-pid 1", 2, "--server-pid goes with --path mongo"),
        ("--path mongo --server /nowhere/socket", 2, "no HOST:PORT of MongoDB's protocol"),
        ("--path mongo --server 127.0.0.1:1", 3, "MongoDB's protocol at 127.0.0.1:1"),
        ("--server /nowhere/socket", 3, "/nowhere/socket"),
    ] {
        let mut command = remora();
        command.args(["bench", "documents"]).args(flags.split_whitespace());
        let finished = run(&mut command);
        assert_eq!(finished.code, Some(code), "{flags}: {}", finished.err);
        assert!(finished.err.contains(said), "{flags}: {}", finished.err);
    }
}

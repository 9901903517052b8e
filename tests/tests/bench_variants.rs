//! Other messages and another shard model in `remora bench keys`: every value
//! is found, the report says what ran, and nothing is left behind.

use remora_tests::proc::processes_with;
use remora_tests::{is_empty, json, remora, run_clean, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;

const MESSAGES: [&str; 3] = ["ring", "sendrecv", "indicator"];
const MODELS: [&str; 2] = ["single", "pipelined"];

fn every_form() -> impl Iterator<Item = (&'static str, &'static str)> {
    MESSAGES.into_iter().flat_map(|messages| MODELS.map(|model| (messages, model)))
}

#[test]
fn every_form_finds_every_value() {
    for (messages, model) in every_form() {
        let mut shapes = vec!["", "--reads 0.5 --wake poll --cold"];
        if messages != "indicator" {
            shapes.extend(["--pipeline 40 --reads 0.5", "--batch 16 --wake event"]);
        }
        // A client that only polls is served late on a busy machine: few operations.
        let (records, ops) = if messages == "indicator" { (60, 101) } else { (500, 1003) };
        for shape in shapes {
            let args = format!(
                "bench keys --path ask --like-for-like --messages {messages} --shard-model {model} \
                 --records {records} --ops {ops} --dist zipf:0.99 {shape}"
            );
            let report = json(&args);
            assert_eq!((&report["ops"], &report["asked"]), (&ops.into(), &ops.into()), "{args}");
            assert_eq!((&report["missing"], &report["wrong"]), (&0.into(), &0.into()), "{args}");
            assert_eq!(
                (&report["messages"], &report["shard_model"]),
                (&messages.into(), &model.into())
            );
            assert_eq!((&report["transport"], &report["path"]), (&"shm".into(), &"ask".into()));
            assert_eq!((&report["round_trips_per_op"], &report["read"]), (&1.0.into(), &0.into()));
            assert!(report["bytes_per_op"].as_f64().unwrap() >= 24.0 + 16.0 + 48.0, "{args}");
            assert!(report["server_cpu_us_per_op"].is_number(), "{args}");
            let command = report["command"].as_str().unwrap();
            assert!(command.contains(&format!("--messages {messages} --shard-model {model}")));
        }
    }
}

#[test]
fn several_clients_and_shards_and_long_values() {
    for (messages, model) in every_form() {
        // With long values a conversation has room for one or two messages.
        for shape in ["--clients 3 --shards 2 --records 100", "--value-bytes 65536 --records 20"] {
            let report = json(&format!(
                "bench keys --like-for-like --messages {messages} --shard-model {model} --ops 100 \
                 --reads 0.5 {shape}"
            ));
            assert_eq!((&report["ops"], &report["wrong"]), (&100.into(), &0.into()), "{report}");
        }
    }
}

#[test]
fn a_default_run_is_the_products() {
    let report = json("bench keys --path ask --records 100 --ops 200");
    assert_eq!(report["messages"], "ring");
    assert_eq!(
        (&report["shard_model"], &report["like_for_like"]),
        (&"single".into(), &false.into())
    );
}

#[test]
fn combinations_that_do_not_exist_are_usage_errors() {
    for flags in [
        "--messages nonsense",
        "--shard-model nonsense",
        "--messages sendrecv --path read",
        "--messages sendrecv --path resp",
        "--messages indicator --path local",
        "--messages indicator --pipeline 2 --path ask",
        "--messages indicator --batch 2",
        "--messages indicator --wake event",
        "--messages sendrecv --transport tcp",
        "--shard-model pipelined --transport verbs",
        "--shard-model pipelined --server 127.0.0.1:1",
        "--shard-model pipelined --shards 65",
    ] {
        let finished = run_clean(&format!("bench keys {flags}"));
        assert_eq!(finished.code, Some(2), "{flags}: {}", finished.err);
        assert_eq!(finished.out, "", "{flags}");
        assert!(finished.err.contains("--"), "{flags}: {}", finished.err);
    }
}

#[test]
fn the_servers_command_is_hidden() {
    let finished = run_clean("bench --help");
    assert_eq!(finished.code, Some(0));
    assert!(finished.out.contains("keys") && !finished.out.contains("variant"), "{}", finished.out);
}

/// H4: a pipelined shard is two threads that take messages and two that execute them, for
/// each instance; the single one is one thread.
#[test]
fn a_pipelined_shard_is_two_dispatchers_and_two_that_execute() {
    for (model, wanted) in [
        (
            "pipelined",
            &[
                "dispatch-0-0",
                "dispatch-0-1",
                "dispatch-1-0",
                "dispatch-1-1",
                "execute-0-0",
                "execute-0-1",
                "execute-1-0",
                "execute-1-1",
            ][..],
        ),
        ("single", &["shard-0", "shard-1"]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut command = remora();
        command
            .args(["bench", "keys", "--records", "1000", "--ops", "30000000", "--shards", "2"])
            .args(["--messages", "sendrecv", "--shard-model", model])
            .env("TMPDIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let threads = || {
            let server = processes_with(directory.path());
            let tasks =
                server.iter().filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
            let names = tasks
                .flatten()
                .flatten()
                .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
            let mut names: Vec<String> = names
                .map(|name| name.trim().to_owned())
                .filter(|name| {
                    ["dispatch-", "execute-", "shard-"].iter().any(|of| name.starts_with(of))
                })
                .collect();
            names.sort();
            names
        };
        wait_until("the threads are there", || threads() == wanted);
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        wait_until("the server has ended", || processes_with(directory.path()).is_empty());
    }
}

#[test]
fn a_bench_that_is_killed_takes_its_server_along() {
    for (messages, model) in [("indicator", "single"), ("sendrecv", "pipelined")] {
        let directory = tempfile::tempdir().unwrap();
        let mut command = remora();
        command
            .args(["bench", "keys", "--records", "1000", "--ops", "30000000"])
            .args(["--messages", messages, "--shard-model", model])
            .env("TMPDIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        wait_until("the server runs", || {
            let socket = std::fs::read_dir(directory.path()).unwrap().flatten().next();
            socket.is_some_and(|entry| entry.path().join("remora.sock").exists())
        });
        assert!(!processes_with(directory.path()).is_empty());
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        wait_until("the server has ended", || processes_with(directory.path()).is_empty());
        assert!(is_empty(directory.path()), "{messages} leaves files");
    }
}

/// The owner may be gone before the server says that it is ready.
#[test]
fn a_server_whose_owner_is_gone_at_once_leaves_nothing() {
    let outer = tempfile::tempdir().unwrap();
    let directory = outer.path().join("owned");
    std::fs::create_dir(&directory).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = remora();
    command
        .args(["bench", "variant-server", "--messages", "sendrecv", "--shard-model", "single"])
        .args(["--message-bytes", "4096", "--shards", "1", "--max-memory-bytes", "67108864"])
        .args(["--buckets", "1024", "--lease-min-ms", "1000", "--wake", "poll", "--pin", "false"])
        .arg("--socket")
        .arg(directory.join("remora.sock"))
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(is_empty(outer.path()));
}

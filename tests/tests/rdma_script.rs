//! `bench/rdma.sh` leaves its file whatever fails: with stand-ins for the programs that it
//! calls, of which some fail.

use remora_tests::{Finished, remora_path, run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Builds nothing: the binary is there, and the conformance body cannot be built.
const CARGO: &str = r#"[ "$1" = build ] || { echo "error: planted" >&2; exit 101; }"#;
/// Runs its command here: options and the host's name end before it.
const SSH: &str = r#"while [ "$1" != "far.test" ]; do shift; done; shift; exec sh -c "$*""#;
/// What a program does that fails.
const FAILS: &str = "echo planted >&2; exit 9";

/// Runs the script with these stand-ins; what it said, and its file.
fn run_with(programs: &[(&str, &str)], flags: &[&str]) -> (Finished, Value) {
    let directory = TempDir::new().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (name, text) in programs {
        let file = directory.path().join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::create_dir(directory.path().join("release")).unwrap();
    symlink(remora_path(), directory.path().join("release/remora")).unwrap();
    let out = directory.path().join("new/rdma.json");
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let finished = run(Command::new("bash")
        .arg(root.join("bench/rdma.sh"))
        .args(flags)
        .args(["--address", "127.0.0.1", "--short", "--out"])
        .arg(&out)
        .env("PATH", path)
        .env("CARGO_TARGET_DIR", directory.path()));
    let text = fs::read_to_string(&out).unwrap_or_else(|_| panic!("no file: {}", finished.err));
    let file = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (finished, file)
}

#[test]
fn a_body_that_does_not_build_and_a_copy_that_fails_stand_in_the_file() {
    let programs = [("cargo", CARGO), ("ssh", SSH), ("scp", FAILS)];
    let (finished, file) = run_with(&programs, &["far.test", "--transport", "tcp"]);
    assert_eq!(finished.code, Some(1), "{}", finished.err);
    let steps = &file["steps"];
    assert_eq!(steps["build-conformance"]["exit"], 101, "{file}");
    assert_eq!(steps["build-conformance"]["error"], "error: planted\n");
    assert!(
        steps["doctor-here"]["result"]["findings"].is_array(),
        "what does not depend on it runs"
    );
    assert_eq!(file["left_out"][0], "conformance-here");
    assert_eq!(steps["copy-there"]["error"], "planted\n");
    assert_eq!(file["ended_early"]["while"], "copy-there");
    assert_eq!(file["ended_early"]["reason"], "the programs cannot be copied to far.test");
}

#[test]
fn a_host_that_cannot_be_reached_stands_in_the_file() {
    let programs = [("cargo", CARGO), ("ssh", FAILS), ("scp", FAILS)];
    let (finished, file) = run_with(&programs, &["far.test", "--transport", "tcp"]);
    assert_eq!(finished.code, Some(1), "{}", finished.err);
    assert_eq!(file["steps"]["ssh"]["exit"], 9, "{file}");
    let reason = file["ended_early"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("ssh does not reach far.test"), "{reason}");
}

#[test]
fn a_build_that_fails_stands_in_the_file() {
    let programs = [("cargo", FAILS), ("ssh", SSH), ("scp", FAILS)];
    let (finished, file) = run_with(&programs, &["far.test", "--transport", "tcp"]);
    assert_eq!(finished.code, Some(1), "{}", finished.err);
    assert_eq!(file["steps"]["build"]["error"], "planted\n", "{file}");
    assert_eq!(file["ended_early"]["exit"], 1);
}

#[test]
fn a_command_that_nothing_was_foreseen_for_is_named() {
    let programs = [("cargo", CARGO), ("mktemp", FAILS)];
    let (finished, file) = run_with(&programs, &["--running", "127.0.0.1:1", "--transport", "tcp"]);
    assert_eq!(finished.code, Some(9), "{}", finished.err);
    assert_eq!(file["ended_early"]["while"], "make a directory for results", "{file}");
    let command = file["ended_early"]["command"].as_str().unwrap();
    assert!(command.contains("mktemp -d"), "{command}");
}

#[test]
fn a_server_that_is_not_there_stands_in_the_file() {
    let flags = ["--running", "127.0.0.1:1", "--transport", "tcp"];
    let (finished, file) = run_with(&[("cargo", CARGO), ("sleep", "exit 0")], &flags);
    assert_eq!(finished.code, Some(1), "{}", finished.err);
    assert_eq!(file["ended_early"]["while"], "look for a server at 127.0.0.1:1", "{file}");
}

//! Runs that must leave nothing behind, and what they print.

use crate::binary::{Finished, remora, run};
use crate::proc::processes_with;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs `remora` with these words in a temporary directory of its own, in which
/// nothing is left.
pub fn run_clean(args: &str) -> Finished {
    run_command_clean(remora().args(args.split_whitespace()))
}

/// Runs `remora` with these words and `--json`, and gives the object that is all of
/// standard output.
pub fn json(args: &str) -> Value {
    json_of(remora().args(args.split_whitespace()))
}

/// The same for any command.
pub fn run_command_clean(command: &mut Command) -> Finished {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let finished = run(command.env("TMPDIR", directory.path()));
    assert!(is_empty(directory.path()), "{command:?} left files");
    assert!(processes_with(directory.path()).is_empty(), "{command:?} left a process");
    finished
}

/// The same for any command.
pub fn json_of(command: &mut Command) -> Value {
    let finished = run_command_clean(command.arg("--json"));
    assert_eq!(finished.code, Some(0), "{command:?}: {}", finished.err);
    let object: Value = serde_json::from_str(&finished.out)
        .unwrap_or_else(|error| panic!("{error}: {}", finished.out));
    assert!(object.is_object(), "{object}");
    object
}

/// Whether a directory is empty.
pub fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).expect("a directory").next().is_none()
}

/// These fields of a report are numbers.
pub fn check_numbers(report: &Value, fields: &[&str]) {
    for field in fields {
        assert!(report[field].is_number(), "{field}: {report}");
    }
}

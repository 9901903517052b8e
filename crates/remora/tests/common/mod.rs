//! Running the binary and looking at what it leaves.

#![allow(dead_code, unused_imports)] // Each test file uses a part.

#[path = "../../../../tests/src/wait.rs"]
mod wait;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
pub use wait::wait_until;

/// What a finished process said.
pub struct Finished {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// The binary, with none of this environment's settings.
pub fn remora() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remora"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REMORA_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs to the end.
pub fn run(mut command: Command) -> Finished {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Finished {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs with a temporary directory of its own, which must be empty afterwards.
pub fn run_clean(args: &str) -> Finished {
    let directory = tempfile::tempdir().unwrap();
    let mut command = remora();
    command.args(args.split_whitespace()).env("TMPDIR", directory.path());
    let finished = run(command);
    assert!(is_empty(directory.path()), "{args} left files");
    assert!(processes_with(directory.path()).is_empty(), "{args} left a process");
    finished
}

/// Runs with `--json` and gives the object that is all of standard output.
pub fn json(args: &str) -> Value {
    let finished = run_clean(&format!("{args} --json"));
    assert_eq!(finished.code, Some(0), "{args}: {}", finished.err);
    serde_json::from_str(&finished.out).unwrap_or_else(|error| panic!("{error}: {}", finished.out))
}

/// Processes whose command line names `path`.
pub fn processes_with(path: &Path) -> Vec<u32> {
    let path = path.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        String::from_utf8_lossy(&line).contains(path).then_some(pid)
    });
    processes.collect()
}

/// Whether a directory is empty.
pub fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

//! The binary under test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Path of the release binary: `REMORA_BIN`, else it is built, once.
pub fn remora_path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("REMORA_BIN") {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

/// The workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the root")
}

/// Where things are built.
pub fn target_directory() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from))
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "-p", "remora"])
        .current_dir(root())
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the release binary cannot be built");
    target_directory().join("release/remora")
}

/// The binary, with none of this environment's settings.
pub fn remora() -> Command {
    without_settings(Command::new(remora_path()))
}

/// The same, with so many open files at most, which it cannot raise.
pub fn remora_with_open_files(most: usize) -> Command {
    let mut command = without_settings(Command::new("sh"));
    command.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &most.to_string()]);
    command.arg(remora_path());
    command
}

/// The same, which survives a write beyond its limit of a file's length: such a write fails, as
/// on a full disk.
pub fn remora_with_bounded_files() -> Command {
    let mut command = without_settings(Command::new("sh"));
    command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(remora_path());
    command
}

fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REMORA_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the binary with these arguments to its end.
pub fn run_remora(arguments: &[&str]) -> Finished {
    run(remora().args(arguments))
}

/// What a finished process said.
#[derive(Debug)]
pub struct Finished {
    /// Exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs to the end, without input.
pub fn run(command: &mut Command) -> Finished {
    let output = command.stdin(Stdio::null()).output().expect("the program runs");
    Finished {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

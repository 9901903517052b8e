//! Child processes that end when the run is interrupted.

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// How often a waiting parent looks whether it was told to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// From now on Ctrl-C and SIGTERM end the child; we then clear up and leave.
pub fn watch_signals() -> Result<()> {
    let stop = STOP.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(stop)).context("signals")?;
    }
    Ok(())
}

/// An error once the run was told to stop.
pub fn interrupted() -> Result<()> {
    if STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}

/// Runs a command to its end; an error if it fails, or on interruption, in
/// which case the child is killed first.
pub fn run(command: &mut Command) -> Result<()> {
    interrupted()?;
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("{program} could not be run"))?;
    loop {
        if let Some(status) = child.try_wait()? {
            interrupted()?;
            if !status.success() {
                bail!("{program} ended with {status}");
            }
            return Ok(());
        }
        if interrupted().is_err() {
            child.kill()?;
            child.wait()?;
            bail!("interrupted");
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Lines of a log that are shown when its command failed.
const SHOWN_LINES: usize = 40;

/// As [`run`], with all output in a log; its end is shown if the command fails.
pub fn run_logged(command: &mut Command, log: &Path) -> Result<()> {
    let file = File::create(log).with_context(|| format!("{} cannot be made", log.display()))?;
    command.stdout(file.try_clone()?).stderr(file);
    run(command).inspect_err(|_| {
        let bytes = std::fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..]
            .iter()
            .for_each(|line| eprintln!("{line}"));
    })
}

/// A command in mount and process namespaces of its own: what it mounts is
/// invisible to other processes and goes with it, and so do its processes.
pub fn isolated() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "--pid", "--fork", "--kill-child"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_child_is_an_error() {
        assert!(run(&mut Command::new("true")).is_ok());
        assert!(run(&mut Command::new("false")).is_err());
        assert!(run(&mut Command::new("no-such-program-here")).is_err());
    }
}

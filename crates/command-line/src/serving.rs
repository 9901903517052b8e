//! The environment of a process that serves: a log, open files, and an end by a signal or by the
//! end of the process that owns it.

use crate::failure::usage;
use anyhow::Context;
use remora_fabric::vital_thread;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tracing::warn;
use tracing_subscriber::EnvFilter;

/// How long draining may take before the process ends anyway: longer than
/// any honest reply takes, shorter than the backoff of a service manager.
const DRAIN_LIMIT: Duration = Duration::from_secs(8);
const DRAIN_LIMIT_PASSED: i32 = 1;

/// Logs the filtered messages to standard error.
pub fn start_log(filter: &str) -> anyhow::Result<()> {
    let filter =
        EnvFilter::try_new(filter).map_err(|error| usage(format!("log: \"{filter}\": {error}")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // Standard error may be a pipe whose reader has died.
        .log_internal_errors(false)
        .init();
    Ok(())
}

/// Each session takes a descriptor for each shard and a few more: the soft
/// limit of most systems, 1024, is for programs that use select(2).
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "cannot raise the limit of open files; fewer clients will fit");
    }
}

/// Why the server is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// SIGTERM or SIGINT.
    Signal(i32),
    /// Standard input has ended: the owner is gone, or lets go.
    OwnerGone,
}

/// Watches for endings from now on. The first one arrives in the channel; a
/// second signal ends the process at once, and leaves the socket's file as
/// SIGKILL does: the next server replaces it.
pub fn watch_for_end(owned_by_parent: bool) -> anyhow::Result<Receiver<Ending>> {
    let (sender, receiver) = channel();
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot watch signals")?;
    let on_signal = sender.clone();
    spawn("signals", move || {
        for (count, signal) in signals.forever().enumerate() {
            if count > 0 {
                std::process::exit(128 + signal);
            }
            let _ = on_signal.send(Ending::Signal(signal));
        }
    })?;
    if owned_by_parent {
        spawn("owner", move || wait_for_owner(sender))?;
    }
    Ok(receiver)
}

/// Sees to it that the process ends even if draining hangs.
pub fn limit_draining() -> anyhow::Result<()> {
    spawn("drain-limit", || {
        std::thread::sleep(DRAIN_LIMIT);
        tracing::error!("draining took longer than {DRAIN_LIMIT:?}; giving up");
        std::process::exit(DRAIN_LIMIT_PASSED);
    })
}

/// The owner holds the other end of standard input. The kernel closes it when
/// the owner dies, even by SIGKILL.
fn wait_for_owner(sender: Sender<Ending>) {
    let mut ignored = [0u8; 64];
    let mut input = std::io::stdin().lock();
    loop {
        match input.read(&mut ignored) {
            Ok(bytes) if bytes > 0 => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    let _ = sender.send(Ending::OwnerGone);
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    vital_thread::spawn(name, body)
        .with_context(|| format!("cannot start the thread \"{name}\""))?;
    Ok(())
}

/// Leaves nothing of a server that belonged to another process. A directory
/// that holds anything, as the socket of a successor, stays.
pub fn remove_directory_of(socket: &Path) {
    if let Some(directory) = socket.parent() {
        let _ = std::fs::remove_dir(directory);
    }
}

//! What ends a server: a signal, or the end of the process that owns it.

use anyhow::Context;
use remora_fabric::vital_thread;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long draining may take before the process ends anyway: longer than
/// any honest reply takes, shorter than the patience of a service manager.
const DRAIN_LIMIT: Duration = Duration::from_secs(8);
const DRAIN_LIMIT_PASSED: i32 = 1;

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
pub fn watch(owned_by_parent: bool) -> anyhow::Result<Receiver<Ending>> {
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

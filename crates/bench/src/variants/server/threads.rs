//! Threads of the server, and the cores that they take.

use core_affinity::CoreId;

/// The cores, one for each thread that serves, from the first one up.
pub struct Pins {
    cores: std::vec::IntoIter<CoreId>,
    /// More threads than cores, the clients' not counted: a thread that polls has to offer the core
    /// to the others.
    pub is_crowded: bool,
}

impl Pins {
    pub fn new(threads: usize, pin: bool) -> Self {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let is_crowded = threads >= cores.len();
        let pinned = if pin && threads <= cores.len() { cores } else { Vec::new() };
        Self { cores: pinned.into_iter(), is_crowded }
    }

    pub fn next(&mut self) -> Option<CoreId> {
        self.cores.next()
    }
}

/// Starts a thread that serves, on its core if it has one.
pub fn spawn(
    name: String,
    core: Option<CoreId>,
    body: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    std::thread::Builder::new().name(name).spawn(move || {
        if let Some(core) = core {
            core_affinity::set_for_current(core);
        }
        body();
    })?;
    Ok(())
}

//! A client's link that knows when an operation has posted its first READ:
//! with it a walk that was admitted begins.

use remora_fabric::sim::{SimLink, SimWorld};
use remora_fabric::{Completion, Link, LinkError, Transport, Waited, Work};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When the first READ was posted since this was taken last, ns; 0: none was.
#[derive(Clone, Default, Debug)]
pub struct FirstRead(Arc<AtomicU64>);

impl FirstRead {
    /// Takes it.
    pub fn take(&self) -> Option<u64> {
        Some(self.0.swap(0, Ordering::Relaxed)).filter(|&ns| ns > 0)
    }
}

/// See the module's text.
pub struct Watched {
    world: SimWorld,
    link: SimLink,
    first: FirstRead,
}

impl Watched {
    /// A link that records its first use in `first`.
    pub fn new(world: &SimWorld, link: SimLink, first: &FirstRead) -> Self {
        Self { world: world.clone(), link, first: first.clone() }
    }
}

impl Link for Watched {
    fn transport(&self) -> Transport {
        self.link.transport()
    }

    fn reads_cost_peer_cpu(&self) -> bool {
        self.link.reads_cost_peer_cpu()
    }

    fn post(&mut self, batch: &[Work<'_>]) {
        if batch.iter().any(|work| matches!(work, Work::Read { .. })) {
            let now_ns = self.world.now_ns();
            // Only the first one is kept.
            let first = &self.first.0;
            let _ = first.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.link.post(batch);
    }

    fn poll(&mut self) -> Option<Completion> {
        self.link.poll()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Waited {
        self.link.wait(timeout)
    }

    fn landed(&self, at: usize, bytes: usize) -> &[u8] {
        self.link.landed(at, bytes)
    }

    fn reserve_landing(&mut self, bytes: usize) {
        self.link.reserve_landing(bytes);
    }

    fn failure(&self) -> Option<LinkError> {
        self.link.failure()
    }

    fn has_completed(&self) -> bool {
        self.link.has_completed()
    }
}

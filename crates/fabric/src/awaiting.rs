//! The shards that wait for the completions of WRITEs on a connection that another thread serves.

use remora_layout::limits::MAX_SHARDS;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const _: () = assert!(MAX_SHARDS <= u64::BITS as usize);

/// See the module's text. A connection on which none waits costs a load.
#[derive(Default)]
pub(crate) struct Awaiting {
    /// A bit for each of them.
    shards: AtomicU64,
    has_completed: AtomicBool,
}

impl Awaiting {
    /// This shard waits from now on.
    pub fn enter(&self, shard: usize) {
        self.shards.fetch_or(1 << shard, Ordering::SeqCst);
    }

    /// Whether some shard waits.
    pub fn any(&self) -> bool {
        self.shards.load(Ordering::Relaxed) != 0
    }

    /// Something has completed.
    pub fn completed(&self) {
        if self.any() {
            self.has_completed.store(true, Ordering::Release);
        }
    }

    /// The shards to be woken, as bits: none if nothing has completed since this was last asked.
    pub fn take(&self) -> u64 {
        let shards = self.shards.load(Ordering::Relaxed);
        let wakes = shards != 0 && self.has_completed.swap(false, Ordering::Acquire);
        if wakes { shards } else { 0 }
    }
}

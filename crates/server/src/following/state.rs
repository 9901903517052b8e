//! How far a replica has come, for its threads and for INFO.

use remora_fabric::Address;
use remora_layout::limits::MAX_SHARDS;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What the threads of a replica share.
pub struct Following {
    /// The address of the primary.
    pub primary: Address,
    /// Whether the link to the primary is up.
    pub is_up: AtomicBool,
    /// Whether a copy is under way.
    pub is_copying: AtomicBool,
    /// By shard of this server, the batches that it has carried out.
    pub done: Vec<AtomicU64>,
    /// By shard of this server, the last entry of each log of the primary that it has applied.
    pub applied: Vec<[AtomicU64; MAX_SHARDS]>,
    /// The sum over the logs of the last entry that was received, and that was applied.
    pub received_total: AtomicU64,
    /// See [`Following::received_total`].
    pub applied_total: AtomicU64,
    /// The same of the commit positions.
    pub commit_total: AtomicU64,
    /// Copies since the start.
    pub copies: AtomicU64,
    /// Links made since the start.
    pub links: AtomicU64,
    /// Why it does not follow; empty if it does.
    trouble: Mutex<String>,
}

impl Following {
    /// Of a server with so many shards.
    pub fn new(primary: Address, shards: usize) -> Self {
        Self {
            primary,
            is_up: AtomicBool::new(false),
            is_copying: AtomicBool::new(false),
            done: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            applied: (0..shards).map(|_| [const { AtomicU64::new(0) }; MAX_SHARDS]).collect(),
            received_total: AtomicU64::new(0),
            applied_total: AtomicU64::new(0),
            commit_total: AtomicU64::new(0),
            copies: AtomicU64::new(0),
            links: AtomicU64::new(0),
            trouble: Mutex::default(),
        }
    }

    /// Why it does not follow; empty if it does.
    pub fn trouble(&self) -> String {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It does not follow, for this reason, or does again.
    pub fn set_trouble(&self, why: String) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// The last entry of a log that these shards have applied.
    pub fn applied_of(&self, log: usize, shards: impl Iterator<Item = usize>) -> u64 {
        let of = shards.map(|shard| self.applied[shard][log].load(Ordering::Acquire));
        of.min().unwrap_or(0)
    }
}

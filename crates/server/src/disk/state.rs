//! What INFO tells of the disk.

use remora_storage::{LogWriter, Volume};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The state of the log's disk. The log's thread writes it.
#[derive(Default)]
pub struct DiskState {
    /// Writes of a group.
    pub groups: AtomicU64,
    /// Runs in them.
    pub runs: AtomicU64,
    /// Bytes of frames in them.
    pub bytes: AtomicU64,
    /// Syncs, and their time together, ns.
    pub syncs: AtomicU64,
    /// See [`DiskState::syncs`].
    pub sync_ns: AtomicU64,
    /// Times that a client or a snapshot asked for one.
    pub syncs_asked: AtomicU64,
    /// Longest sync, ns.
    pub longest_sync_ns: AtomicU64,
    /// Bytes that are written and not synced.
    pub unsynced_bytes: AtomicU64,
    /// Number of the present segment.
    pub segment: AtomicU64,
    /// Failures of the disk, and how many of them were mended.
    pub failures: AtomicU64,
    /// See [`DiskState::failures`].
    pub mended: AtomicU64,
    /// Entries that were carried out at the start, and how long that took, ms.
    pub recovered: AtomicU64,
    /// See [`DiskState::recovered`].
    pub recovery_ms: AtomicU64,
    /// Why it takes nothing; empty while it does.
    failure: Mutex<String>,
}

impl DiskState {
    /// Why the disk takes nothing; empty while it does.
    pub fn failure(&self) -> String {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It fails, or works again (an empty reason).
    pub fn set_failure(&self, reason: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Notes where the writer is.
    pub fn follow<V: Volume>(&self, writer: &LogWriter<V>) {
        self.unsynced_bytes.store(writer.unsynced_bytes() as u64, Ordering::Relaxed);
        self.segment.store(writer.number(), Ordering::Relaxed);
    }
}

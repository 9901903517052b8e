//! What connects the shards' threads, the log's thread and INFO.

use super::port::{LogBell, LogPort, LogShipper};
use super::state::DiskState;
use remora_arena::NoJournal;
use remora_engine::Shard;
use remora_storage::Promise;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What the log's thread shares with others.
pub struct Disk {
    /// The data directory.
    pub directory: PathBuf,
    /// When changes are durable.
    pub promise: Promise,
    /// By shard.
    pub ports: Vec<Arc<LogPort>>,
    /// Wakes the thread.
    pub bell: Arc<LogBell>,
    /// For INFO.
    pub state: DiskState,
    /// The thread is to write what there is, sync it, and end.
    pub stopping: AtomicBool,
}

impl Disk {
    /// For so many shards.
    pub fn new(directory: PathBuf, promise: Promise, shards: usize) -> Self {
        Self {
            directory,
            promise,
            ports: (0..shards).map(|_| Arc::default()).collect(),
            bell: Arc::default(),
            state: DiskState::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// The shard's end of its port.
    pub fn shipper(&self, number: usize, shard: &mut Shard<NoJournal>) -> LogShipper {
        LogShipper::new(shard, number, (Arc::clone(&self.ports[number]), Arc::clone(&self.bell)))
    }
}

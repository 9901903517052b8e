//! What connects the shards' threads, the log's thread and INFO.

use super::led::LedOnDisk;
use super::port::{Handed, LogPort, LogShipper, ThreadBell};
use super::snapshots::Snapshots;
use super::state::DiskState;
use remora_arena::NoJournal;
use remora_engine::Shard;
use remora_storage::{Directory, Promise};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What the log's thread shares with others.
pub struct Disk {
    /// The data directory.
    pub directory: PathBuf,
    /// When changes are durable.
    pub promise: Promise,
    /// By shard.
    pub ports: Vec<Arc<LogPort>>,
    /// What the shards have handed over.
    pub handed: Arc<Handed>,
    /// Wakes the thread.
    pub bell: Arc<ThreadBell>,
    /// By shard, the last sequence that is on the disk.
    pub synced: Vec<AtomicU64>,
    /// By shard, the first sequence of this incarnation.
    pub first: Vec<u64>,
    /// What the directory says of the last epoch that this server has led.
    pub led: LedOnDisk,
    /// Snapshots.
    pub snapshots: Snapshots,
    /// By shard, the sequences that a new snapshot covers.
    covered: Mutex<Option<Vec<u64>>>,
    wants_sync: AtomicBool,
    /// For INFO.
    pub state: DiskState,
    /// The thread is to write what there is, sync it, and end.
    pub stopping: AtomicBool,
}

impl Disk {
    /// For shards that begin with these sequences.
    pub fn new(
        (directory, volume): (PathBuf, Directory),
        promise: Promise,
        first: Vec<u64>,
    ) -> Self {
        let shards = first.len();
        Self {
            directory,
            promise,
            ports: (0..shards).map(|_| Arc::default()).collect(),
            handed: Arc::default(),
            bell: Arc::default(),
            synced: first.iter().map(|first| (first - 1).into()).collect(),
            first,
            led: LedOnDisk::read(volume),
            snapshots: Snapshots::default(),
            covered: Mutex::default(),
            wants_sync: AtomicBool::new(false),
            state: DiskState::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// The shard's end of its port.
    pub fn shipper(&self, number: usize, shard: &mut Shard<NoJournal>) -> LogShipper {
        let port = Arc::clone(&self.ports[number]);
        let to = (port, Arc::clone(&self.handed), Arc::clone(&self.bell));
        LogShipper::new(shard, (number, self.first[number]), to)
    }

    /// A connection waits until what is written now is on the disk.
    pub fn want_sync(&self) {
        self.state.syncs_asked.fetch_add(1, Ordering::Relaxed);
        self.wants_sync.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Whether a connection does, since this was last asked.
    pub fn takes_wanted_sync(&self) -> bool {
        self.wants_sync.swap(false, Ordering::SeqCst)
    }

    /// Whether a connection does.
    pub fn is_sync_wanted(&self) -> bool {
        self.wants_sync.load(Ordering::SeqCst)
    }

    /// A snapshot covers the entries up to these sequences.
    pub fn cover(&self, covered: Vec<u64>) {
        *self.covered.lock().unwrap_or_else(PoisonError::into_inner) = Some(covered);
        self.bell.ring();
    }

    /// Whether a snapshot covers entries that [`Disk::take_covered`] has not given yet.
    pub fn has_covered(&self) -> bool {
        self.covered.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// What a new snapshot covers.
    pub fn take_covered(&self) -> Option<Vec<u64>> {
        self.covered.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

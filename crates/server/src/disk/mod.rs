//! The log on a disk: the shards' threads hand their entries over, and one thread of its own writes
//! and syncs them (docs/decisions/0054).
//!
//! Invariant: no shard's thread ever waits for the disk.

mod content;
mod link;
mod log_thread;
mod open;
mod port;
mod progress;
mod recovery;
mod snapshot_port;
mod snapshot_thread;
mod snapshots;
mod state;

pub use content::Content;
pub use link::Disk;
pub use log_thread::LogThread;
pub use open::DataDirectory;
pub use port::LogShipper;
pub use progress::Progress;
pub use recovery::recover;
pub use snapshot_port::{SnapshotPort, SnapshotSource};
pub use snapshot_thread::{SnapshotPlace, SnapshotThread};

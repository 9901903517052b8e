//! The log on a disk: the shards' threads hand their entries over, and one thread of its own writes
//! and syncs them (docs/decisions/0054).
//!
//! Invariant: no shard's thread ever waits for the disk.

mod content;
mod led;
mod link;
mod loaded;
mod log_thread;
mod open;
mod pace;
mod port;
mod progress;
mod recover_shard;
mod recovery;
mod runs;
mod snapshot_port;
mod snapshot_streams;
mod snapshot_thread;
mod snapshots;
mod state;
#[cfg(test)]
mod tests;

pub use content::Content;
pub(crate) use link::Disk;
pub use loaded::{EachKey, Loaded, LoadedData};
pub(crate) use log_thread::LogThread;
pub(crate) use open::DataDirectory;
pub(crate) use port::LogShipper;
pub use progress::Progress;
pub use recover_shard::{Stopped, recover_following, recover_shard};
pub(crate) use recovery::{RecoverAs, recover};
pub use runs::RunSource;
pub(crate) use snapshot_port::{SnapshotPort, SnapshotSource};
pub use snapshot_streams::SnapshotStreams;
pub(crate) use snapshot_thread::{SnapshotPlace, SnapshotThread};

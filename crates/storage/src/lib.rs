//! The operation log on a disk (docs/decisions/0054): every change of every shard, in segments that
//! only grow.
//!
//! ```text
//! DIR/identity                    which data these are, and their layout
//! DIR/lock                        held by the server that has them
//! DIR/led-epoch                   which epoch of its cluster this server has led last
//! DIR/log-0000000000000007        a segment: runs of frames of all shards
//! DIR/snapshot-0000000000000003/  a snapshot: one file for each shard
//! ```
//! - A [`Volume`] is a disk: a [`Directory`] of the file system, or the simulator's.
//! - [`LogWriter`] appends runs and syncs them, a group at a time; after a failure it goes on in a
//!   new segment. [`GroupCommit`] decides when, and what may be acknowledged.
//! - [`copy_data`] copies a directory that a server may be writing into; a [`Manifest`] makes the copy
//!   a backup.
//! - [`Found`] is what [`find`] sees in a directory; [`replay`] gives its entries to a
//!   shard.
//!
//! A segment is one file for all shards, so one write and one sync are enough for all that waits.
//! Nothing here knows what an entry means, has threads or reads a clock.

#![forbid(unsafe_code)]

mod backup;
mod directory;
mod error;
mod find;
mod group;
mod head;
mod identity;
mod led_epoch;
mod manifest;
mod replay;
mod runs;
mod sealed;
mod segment;
pub mod sim;
mod snapshot;
mod volume;
mod window;
mod writer;

pub use backup::{FileSum, copy_data};
pub use directory::{Directory, Lock};
pub use error::StorageError;
pub use find::{Found, Incarnation, Notice, SegmentAt, find};
pub use group::{GroupCommit, Promise};
pub use head::LAYOUT;
pub use identity::Identity;
pub use led_epoch::LedEpochFile;
pub use manifest::{MANIFEST_NAME, Manifest};
pub use replay::{LogNumber, Replayed, replay};
pub use runs::{RUN_HEADER_BYTES, Run};
pub use segment::{SEGMENT_HEADER_BYTES, segment_name};
pub use snapshot::{
    ShardSnapshot, SnapshotAt, SnapshotWriter, find_snapshot, read_snapshot, remove_leftovers,
    snapshot_name,
};
pub use volume::{Volume, VolumeFile};
pub use writer::{LogStart, LogWriter, Sync, WriterOptions};

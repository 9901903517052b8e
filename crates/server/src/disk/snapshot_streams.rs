//! A snapshot as its writer has it: the streams of all shards, and when it counts.
//!
//! Invariant: a snapshot counts once the log has everything up to its sequences on the disk, so that
//! of an entry of several shards it never has a part alone. One that is interrupted leaves the one
//! before.

use remora_engine::OperationCount;
use remora_storage::{Identity, ShardSnapshot, SnapshotWriter, Volume};
use std::io;

/// See the module's text.
pub struct SnapshotStreams<V: Volume> {
    writer: SnapshotWriter<V>,
    counts: Vec<OperationCount>,
    bytes: u64,
}

impl<V: Volume> SnapshotStreams<V> {
    /// Begins a snapshot with this number, in this incarnation, of so many shards.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn begin(
        volume: V,
        identity: Identity,
        (number, epoch, shards): (u64, u64, usize),
    ) -> io::Result<Self> {
        let writer = SnapshotWriter::begin(volume, identity, (number, epoch, shards))?;
        let counts = vec![OperationCount::default(); shards];
        Ok(Self { writer, counts, bytes: 0 })
    }

    /// Writes some of a shard's stream.
    ///
    /// # Errors
    /// The disk refuses: the snapshot is to be given up.
    pub fn write(&mut self, shard: usize, stream: &[u8]) -> io::Result<()> {
        self.counts[shard].take(stream);
        self.bytes += stream.len() as u64;
        self.writer.write(shard, stream)
    }

    /// Ends a shard's stream: it is exact at this sequence, its data take these bytes, and the
    /// server's clock shows this.
    ///
    /// # Errors
    /// The disk refuses: the snapshot is to be given up.
    pub fn end_shard(
        &mut self,
        shard: usize,
        (sequence, used_bytes, time_ms): (u64, u64, u64),
    ) -> io::Result<()> {
        let operations = self.counts[shard].whole();
        let ended = ShardSnapshot { sequence, operations, used_bytes, time_ms, bytes: 0 };
        self.writer.end_shard(shard, ended)
    }

    /// Whether all shards have ended.
    pub fn is_complete(&self) -> bool {
        self.writer.is_complete()
    }

    /// Whether it may count: all shards have ended, and the log of each is on the disk up to there.
    pub fn may_count(&self, synced: impl Fn(usize) -> u64) -> bool {
        let mut covered = self.writer.covered().into_iter().enumerate();
        covered.all(|(shard, sequence)| sequence.is_some_and(|of| of <= synced(shard)))
    }

    /// It counts from now on. Returns the sequences at which it is exact, and its bytes.
    ///
    /// # Errors
    /// The disk refuses: the one before counts, or this one.
    pub fn finish(self) -> io::Result<(Vec<u64>, u64)> {
        Ok((self.writer.finish()?, self.bytes))
    }

    /// Removes what there is of it.
    pub fn give_up(self) {
        self.writer.give_up();
    }
}

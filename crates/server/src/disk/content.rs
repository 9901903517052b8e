//! What a data directory holds, on any disk.

use remora_engine::{EpochHistory, LogHistory};
use remora_storage::{
    Found, GroupCommit, Identity, LogStart, LogWriter, Promise, SnapshotAt, StorageError, Volume,
    WriterOptions, find, find_snapshot, remove_leftovers,
};

/// The newest snapshot in a directory, and the log behind it.
pub struct Content<V> {
    /// Which data these are.
    pub identity: Identity,
    /// The newest snapshot, if there is one.
    pub snapshot: Option<SnapshotAt>,
    /// The log.
    pub found: Found,
    /// The files.
    pub volume: V,
}

impl<V: Volume> Content<V> {
    /// Looks through the directory, and removes what an interrupted server has left.
    ///
    /// # Errors
    /// Something in it is damaged.
    pub fn take(volume: V, identity: Identity) -> Result<Self, StorageError> {
        remove_leftovers(&volume)?;
        Self::look(volume, identity)
    }

    /// Looks through the directory, and changes nothing in it.
    ///
    /// # Errors
    /// Something in it is damaged.
    pub fn look(volume: V, identity: Identity) -> Result<Self, StorageError> {
        let snapshot = find_snapshot(&volume, &identity)?;
        let covered = snapshot.as_ref().map(|at| (at.epoch, at.covered()));
        let (epoch, covered) = covered.unwrap_or_default();
        let found = find(&volume, &identity, (epoch, &covered))?;
        Ok(Self { identity, snapshot, found, volume })
    }

    /// The epoch of the next incarnation.
    pub fn epoch(&self) -> u64 {
        self.found.epoch().max(self.snapshot.as_ref().map_or(0, |at| at.epoch)) + 1
    }

    /// What the log of a shard was before the incarnation that begins with these entries, as far as there
    /// were as many shards.
    pub fn history(&self, number: usize, first: &[u64], promise: Promise) -> LogHistory {
        let incarnations = &self.found.incarnations;
        // An incarnation with another number of shards had other logs, and so had those before it.
        let others =
            incarnations.iter().rposition(|incarnation| incarnation.first.len() != first.len());
        let same = &incarnations[others.map_or(0, |at| at + 1)..];
        let epochs = same.iter().map(|incarnation| EpochHistory {
            epoch: incarnation.epoch,
            last: incarnation.last[number],
            is_empty: incarnation.first[number] > incarnation.last[number],
        });
        let memory_only = promise == Promise::Memory;
        LogHistory {
            of: None,
            epochs: epochs.collect(),
            first: first[number],
            memory_only,
            tail: Vec::new(),
        }
    }

    /// The number of the next snapshot.
    pub fn next_snapshot(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.number) + 1
    }

    /// The most bytes of memory that the data took when the snapshot was written, or at the end of a
    /// incarnation since then; 0 if nothing is known. An incarnation, or a shard, that has written nothing tells
    /// nothing.
    pub fn used_bytes(&self) -> u64 {
        let of_incarnations =
            self.found.incarnations.iter().map(|incarnation| incarnation.used_bytes.iter().sum());
        let of_snapshot = self.snapshot.iter().flat_map(|at| &at.shards);
        of_snapshot
            .map(|shard| shard.used_bytes)
            .sum::<u64>()
            .max(of_incarnations.max().unwrap_or(0))
    }

    /// The latest time of the server's clock that the directory knows, Unix ms; 0 for none.
    pub fn time_ms(&self) -> u64 {
        self.found.time_ms.max(self.snapshot_time_ms().unwrap_or(0))
    }

    /// When the snapshot was written, by the server's clock, Unix ms.
    pub fn snapshot_time_ms(&self) -> Option<u64> {
        self.snapshot.iter().flat_map(|at| &at.shards).map(|shard| shard.time_ms).max()
    }

    /// The number of shards that wrote last; 1 if nothing was written.
    pub fn shards(&self) -> usize {
        let of_snapshot = self.snapshot.as_ref().map(|at| at.shards.len());
        let of_log = self.found.incarnations.last().map(|incarnation| incarnation.first.len());
        of_log.or(of_snapshot).unwrap_or(1)
    }

    /// Entries of the log and operations of the snapshot, at most.
    pub fn entries(&self) -> u64 {
        let incarnations = self.found.incarnations.iter();
        let shards =
            incarnations.flat_map(|incarnation| incarnation.first.iter().zip(&incarnation.last));
        let of_log: u64 = shards.map(|(first, last)| last + 1 - first).sum();
        let of_snapshot = self.snapshot.iter().flat_map(|at| &at.shards);
        of_log + of_snapshot.map(|shard| shard.operations).sum::<u64>()
    }

    /// Begins the log of the next incarnation, whose shards begin with these sequences.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn begin_log(
        &self,
        first: Vec<u64>,
        (promise, segment_bytes): (Promise, u64),
        now_ms: u64,
    ) -> Result<GroupCommit<V>, StorageError> {
        let shards = first.len();
        let options = WriterOptions {
            cluster: self.identity.cluster,
            secret: self.identity.secret,
            epoch: self.epoch(),
            segment_bytes,
        };
        let writer =
            LogWriter::begin(self.volume.clone(), options, LogStart::behind(&self.found, first));
        let writer = writer.map_err(|source| StorageError::io("begin", "a segment", source))?;
        Ok(GroupCommit::new(writer, promise, shards, now_ms))
    }
}

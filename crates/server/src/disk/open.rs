//! A data directory, locked and looked through.

use crate::config::Data;
use crate::random::random_u64;
use crate::start_error::StartError;
use remora_layout::limits::LOG_SEGMENT_FILE_BYTES;
use remora_storage::{
    Directory, Found, GroupCommit, Identity, Lock, LogStart, LogWriter, Promise, SnapshotAt,
    StorageError, WriterOptions, find, find_snapshot, remove_leftovers,
};
use std::path::Path;

/// A data directory that this process has.
pub struct DataDirectory {
    /// Which data these are.
    pub identity: Identity,
    /// The newest snapshot, if there is one.
    pub snapshot: Option<SnapshotAt>,
    /// The log.
    pub found: Found,
    /// Its files.
    pub volume: Directory,
    promise: Promise,
    lock: Option<Lock>,
}

impl DataDirectory {
    /// Takes the directory, which is made if it is not there.
    ///
    /// # Errors
    /// Another server has it, it holds something else, or something in it is damaged.
    pub fn open(data: &Data) -> Result<Self, StartError> {
        let volume = Directory::at(&data.directory)?;
        let lock = volume.lock()?;
        let name = data.directory.display().to_string();
        let identity = match Identity::read(&volume, &name)? {
            Some(identity) => identity,
            None => {
                let identity = Identity { cluster: random_u64(), secret: random_u64() };
                identity.write(&volume)?;
                identity
            }
        };
        remove_leftovers(&volume)?;
        Self::found(volume, identity, (data.promise, Some(lock)))
    }

    /// Looks at a directory that no server has, and changes nothing in it.
    ///
    /// # Errors
    /// It is no data directory, or something in it is damaged.
    pub fn look(path: &Path) -> Result<Self, StartError> {
        let volume = Directory::existing(path)?;
        let name = path.display().to_string();
        match Identity::read(&volume, &name)? {
            Some(identity) => Self::found(volume, identity, (Promise::Memory, None)),
            None => Err(StartError::Config(format!("{name} is empty: it holds no data"))),
        }
    }

    fn found(
        volume: Directory,
        identity: Identity,
        (promise, lock): (Promise, Option<Lock>),
    ) -> Result<Self, StartError> {
        let snapshot = find_snapshot(&volume, &identity)?;
        let covered = snapshot.as_ref().map(|at| (at.epoch, at.covered()));
        let (epoch, covered) = covered.unwrap_or_default();
        let found = find(&volume, &identity, (epoch, &covered))?;
        for notice in &found.notices {
            tracing::warn!("{notice}");
        }
        Ok(Self { identity, snapshot, found, volume, promise, lock })
    }

    /// The epoch of this life.
    pub fn epoch(&self) -> u64 {
        self.found.epoch().max(self.snapshot.as_ref().map_or(0, |at| at.epoch)) + 1
    }

    /// The bytes of memory that the data took at the end, or when the snapshot was written; 0 if
    /// nothing is known.
    pub fn used_bytes(&self) -> u64 {
        let of_log = self.found.lives.last().map_or(0, |life| life.used_bytes.iter().sum());
        let of_snapshot = self.snapshot.iter().flat_map(|at| &at.shards);
        of_snapshot.map(|shard| shard.used_bytes).sum::<u64>().max(of_log)
    }

    /// The number of shards that wrote last; 1 if nothing was written.
    pub fn shards(&self) -> usize {
        let of_snapshot = self.snapshot.as_ref().map(|at| at.shards.len());
        let of_log = self.found.lives.last().map(|life| life.first.len());
        of_log.or(of_snapshot).unwrap_or(1)
    }

    /// Entries of the log and operations of the snapshot, at most.
    pub fn entries(&self) -> u64 {
        let lives = self.found.lives.iter();
        let shards = lives.flat_map(|life| life.first.iter().zip(&life.last));
        let of_log: u64 = shards.map(|(first, last)| last + 1 - first).sum();
        let of_snapshot = self.snapshot.iter().flat_map(|at| &at.shards);
        of_log + of_snapshot.map(|shard| shard.operations).sum::<u64>()
    }

    /// Begins the log of this life, whose shards begin with these sequences.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn begin_log(&self, first: Vec<u64>) -> Result<GroupCommit<Directory>, StorageError> {
        let shards = first.len();
        let options = WriterOptions {
            cluster: self.identity.cluster,
            secret: self.identity.secret,
            epoch: self.epoch(),
            segment_bytes: LOG_SEGMENT_FILE_BYTES,
        };
        let writer =
            LogWriter::begin(self.volume.clone(), options, LogStart::behind(&self.found, first));
        let writer = writer.map_err(|source| StorageError::io("begin", "a segment", source))?;
        Ok(GroupCommit::new(writer, self.promise, shards, 0))
    }

    /// The lock, to be kept as long as the directory is in use.
    pub fn into_lock(self) -> Option<Lock> {
        self.lock
    }
}

//! A data directory, locked and looked through.

use crate::config::Data;
use crate::random::random_u64;
use crate::start_error::StartError;
use remora_layout::limits::LOG_SEGMENT_FILE_BYTES;
use remora_storage::{
    Directory, Found, GroupCommit, Identity, Lock, LogStart, LogWriter, Promise, SnapshotAt,
    StorageError, WriterOptions, find, find_snapshot, remove_leftovers,
};

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
    lock: Lock,
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
        let snapshot = find_snapshot(&volume, &identity)?;
        let covered = snapshot.as_ref().map(|at| (at.epoch, at.covered()));
        let (epoch, covered) = covered.unwrap_or_default();
        let found = find(&volume, &identity, (epoch, &covered))?;
        for notice in &found.notices {
            tracing::warn!("{notice}");
        }
        Ok(Self { identity, snapshot, found, volume, promise: data.promise, lock })
    }

    /// The epoch of this life.
    pub fn epoch(&self) -> u64 {
        self.found.epoch().max(self.snapshot.as_ref().map_or(0, |at| at.epoch)) + 1
    }

    /// The bytes of memory that the data took at the end; 0 if nothing is known.
    pub fn used_bytes(&self) -> u64 {
        self.found.lives.last().map_or(0, |life| life.used_bytes.iter().sum())
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
    pub fn into_lock(self) -> Lock {
        self.lock
    }
}

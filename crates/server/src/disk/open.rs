//! A data directory, locked and looked through.

use super::content::Content;
use crate::config::Data;
use crate::random::random_u64;
use crate::start_error::StartError;
use remora_layout::limits::LOG_SEGMENT_FILE_BYTES;
use remora_storage::{Directory, GroupCommit, Identity, Lock, Promise, StorageError};

/// A data directory that this process has.
pub struct DataDirectory {
    /// What it holds.
    pub content: Content<Directory>,
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
        let content = Content::look(volume, identity)?;
        for notice in &content.found.notices {
            tracing::warn!("{notice}");
        }
        Ok(Self { content, promise: data.promise, lock })
    }

    /// Begins the log of this life, whose shards begin with these sequences.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn begin_log(&self, first: Vec<u64>) -> Result<GroupCommit<Directory>, StorageError> {
        self.content.begin_log(first, (self.promise, LOG_SEGMENT_FILE_BYTES), 0)
    }

    /// The lock, to be kept as long as the directory is in use.
    pub fn into_lock(self) -> Lock {
        self.lock
    }
}

//! A data directory, locked and looked through.

use super::content::Content;
use crate::config::Data;
use crate::random::random_u64;
use crate::start_error::StartError;
use remora_layout::limits::LOG_SEGMENT_FILE_BYTES;
use remora_storage::{Directory, GroupCommit, Identity, Lock, Promise, StorageError};
use std::path::Path;

/// A data directory that this process has.
pub struct DataDirectory {
    /// What it holds.
    pub content: Content<Directory>,
    promise: Promise,
    lock: Option<Lock>,
}

impl DataDirectory {
    /// Takes the directory, which is made if it is not there.
    ///
    /// # Errors
    /// Another server has it, it holds something else, or something in it is damaged.
    pub fn open(data: &Data) -> Result<Self, StartError> {
        Self::take(data).map_err(|error| error.of_data(&data.directory))
    }

    fn take(data: &Data) -> Result<Self, StartError> {
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
        Ok(Self::found(Content::take(volume, identity)?, (data.promise, Some(lock))))
    }

    /// Looks at a directory that no server has, and changes nothing in it.
    ///
    /// # Errors
    /// It is no data directory, or something in it is damaged.
    pub fn look(path: &Path) -> Result<Self, StartError> {
        Self::look_into(path).map_err(|error| error.of_data(path))
    }

    fn look_into(path: &Path) -> Result<Self, StartError> {
        let volume = Directory::existing(path)?;
        let name = path.display().to_string();
        match Identity::read(&volume, &name)? {
            Some(identity) => {
                Ok(Self::found(Content::look(volume, identity)?, (Promise::Memory, None)))
            }
            None => Err(StartError::Config(format!("{name} is empty: it holds no data"))),
        }
    }

    fn found(content: Content<Directory>, (promise, lock): (Promise, Option<Lock>)) -> Self {
        for notice in &content.found.notices {
            tracing::warn!("{notice}");
        }
        Self { content, promise, lock }
    }

    /// Begins the log of this incarnation, whose shards begin with these sequences.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn begin_log(&self, first: Vec<u64>) -> Result<GroupCommit<Directory>, StorageError> {
        let log = self.content.begin_log(first, (self.promise, LOG_SEGMENT_FILE_BYTES), 0)?;
        self.content.identity.note_log(&self.content.volume)?;
        Ok(log)
    }

    /// The lock, to be kept as long as the directory is in use.
    pub fn into_lock(self) -> Option<Lock> {
        self.lock
    }
}

//! Why a server did not start.

use remora_arena::MapError;
use remora_fabric::verbs::VerbsError;
use remora_storage::StorageError;
use std::path::{Path, PathBuf};

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be.
    #[error("{0}")]
    Config(String),
    /// An address or path cannot be listened on.
    #[error("cannot listen on {what}; is another server running?")]
    Listen {
        /// The address or path.
        what: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// Another server listens there.
    #[error("another server answers at {0}: stop it, or choose another socket")]
    Taken(PathBuf),
    /// The data directory cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Something in the data directory is damaged or missing.
    #[error(
        "{directory} cannot be used, and nothing in it was changed: `remora log verify {directory}` reads all of it; put the file back, or `remora restore` a backup into another directory"
    )]
    Damaged {
        /// Its path.
        directory: String,
        /// What is wrong.
        source: StorageError,
    },
    /// No memory.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// RDMA was asked for, and is not to be had.
    #[error("transport verbs: {0}")]
    Verbs(#[from] VerbsError),
    /// The kernel refused something else.
    #[error("cannot start")]
    System(#[from] std::io::Error),
}

impl StartError {
    /// The same, of a data directory: it names the directory, and says what to do.
    #[must_use]
    pub fn of_data(self, directory: &Path) -> Self {
        match self {
            Self::Storage(source @ StorageError::Corrupt { .. }) => {
                Self::Damaged { directory: directory.display().to_string(), source }
            }
            Self::Storage(error) => Self::Storage(error.in_directory(directory)),
            other => other,
        }
    }
}

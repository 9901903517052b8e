//! Why a data directory cannot be used.

use std::io;
use std::path::Path;

/// Why a data directory cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// There is no such directory.
    #[error("{0} is no directory")]
    NoDirectory(String),
    /// The directory holds other things than data of Remora.
    #[error(
        "{directory} holds {name}, but no file `identity`: it is no data directory of Remora; name an empty one"
    )]
    Foreign {
        /// Its path, as it was given.
        directory: String,
        /// One of the things.
        name: String,
    },
    /// Another process has it.
    #[error("{directory} is in use by {holder}; stop that server, or name another directory")]
    Locked {
        /// Its path.
        directory: String,
        /// The process, as far as it is known.
        holder: String,
    },
    /// Written by another version.
    #[error(
        "{name} has layout {found}, and this server reads layout {expected}: start the version that wrote it, or restore a backup"
    )]
    Layout {
        /// The file.
        name: String,
        /// Its layout.
        found: u32,
        /// The one of this version.
        expected: u32,
    },
    /// A file that belongs to other data.
    #[error(
        "{name} is of cluster {found:016x}, but the directory is of {expected:016x}: files of two directories are mixed"
    )]
    Cluster {
        /// The file.
        name: String,
        /// The cluster of the file.
        found: u64,
        /// The cluster of the directory.
        expected: u64,
    },
    /// Bytes are not what was written and synced.
    #[error("corrupt {name} offset={offset} {reason}")]
    Corrupt {
        /// The file.
        name: String,
        /// Where in it, bytes.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// The disk refuses. The cause comes with `source`; the text says what to do.
    #[error("cannot {what} {name}{}{}", within(directory), remedy(source))]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        name: String,
        /// Path of the directory in which it lies; empty if the name says it.
        directory: String,
        /// Why not.
        source: io::Error,
    },
}

fn within(directory: &str) -> String {
    match directory {
        "" => String::new(),
        directory => format!(" in {directory}"),
    }
}

/// What helps against a disk that refuses.
fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => {
            "; start as the user that owns it, or give this one the right"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount the file system to be written, or name another directory"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room there, or move the directory to a larger disk"
        }
        io::ErrorKind::Unsupported => {
            "; this file system cannot do it: name a directory on another"
        }
        _ => "",
    }
}

impl StorageError {
    /// The disk refuses to do this with a file.
    pub fn io(what: &'static str, name: &str, source: io::Error) -> Self {
        Self::Io { what, name: name.to_owned(), directory: String::new(), source }
    }

    /// The same, with the directory in which the file lies.
    #[must_use]
    pub fn in_directory(self, path: &Path) -> Self {
        match self {
            Self::Io { what, name, directory, source } if directory.is_empty() => {
                let path = path.display().to_string();
                let directory = if name == path { directory } else { path };
                Self::Io { what, name, directory, source }
            }
            other => other,
        }
    }

    /// The bytes at this offset of a file are wrong.
    pub fn corrupt(name: &str, offset: u64, reason: impl ToString) -> Self {
        Self::Corrupt { name: name.to_owned(), offset, reason: reason.to_string() }
    }
}

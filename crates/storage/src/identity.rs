//! The identity of a data directory: a short text file.
//!
//! ```text
//! remora data
//! layout 1
//! cluster 54a1f2d0c96b7733
//! secret 0b1c4f8f44aa9321
//! log begun
//! check 7bd1c2a8e0f96624
//! ```
//! `secret` keys the checksums of frames and runs: bytes that a client chose, inside a value, never
//! pass for either. `log begun` is there once the first segment is: from then on a directory without
//! a segment and a snapshot has lost them. `check` covers the lines before it.

use crate::error::StorageError;
use crate::sealed::{self, Sealed};
use crate::volume::Volume;

const NAME: &str = "identity";
const TITLE: &str = "remora data";
/// Longest identity that is read, bytes.
const MOST_BYTES: usize = 4096;

/// Which data a directory holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The same for all copies of the data.
    pub cluster: u64,
    /// Keys the checksums of logs and snapshots. Clients do not know it.
    pub secret: u64,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({:016x})", self.cluster)
    }
}

impl Identity {
    /// The identity of a directory; `None` if the directory is empty.
    ///
    /// # Errors
    /// It is another layout's, is damaged, or something else lies in the directory.
    pub fn read<V: Volume>(volume: &V, directory: &str) -> Result<Option<Self>, StorageError> {
        let names =
            volume.names("").map_err(|source| StorageError::io("list", directory, source))?;
        if !names.iter().any(|name| name == NAME) {
            let ours = ["lock", "identity.tmp", "lost+found"];
            let other = names.into_iter().find(|name| !ours.contains(&name.as_str()));
            return match other {
                Some(name) => Err(StorageError::Foreign { directory: directory.to_owned(), name }),
                None => Ok(None),
            };
        }
        let text = sealed::read(volume, NAME, MOST_BYTES)?;
        let sealed = Sealed::open(NAME, TITLE, &text)?;
        let (cluster, secret) = (sealed.number("cluster", 16)?, sealed.number("secret", 16)?);
        Ok(Some(Self { cluster, secret }))
    }

    /// Whether a log was begun in the directory.
    ///
    /// # Errors
    /// The identity is damaged.
    pub(crate) fn has_log<V: Volume>(volume: &V) -> Result<bool, StorageError> {
        let names = volume.names("").map_err(|source| StorageError::io("list", NAME, source))?;
        // A copy gets its identity last.
        if !names.iter().any(|name| name == NAME) {
            return Ok(false);
        }
        let text = sealed::read(volume, NAME, MOST_BYTES)?;
        Ok(Sealed::open(NAME, TITLE, &text)?.values("log").next().is_some())
    }

    /// Notes that the directory has a segment, unless that is noted.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn note_log<V: Volume>(&self, volume: &V) -> Result<(), StorageError> {
        match Self::has_log(volume)? {
            true => Ok(()),
            false => self.write_with(volume, "log begun\n"),
        }
    }

    /// Writes it into an empty directory.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn write<V: Volume>(&self, volume: &V) -> Result<(), StorageError> {
        self.write_with(volume, "")
    }

    fn write_with<V: Volume>(&self, volume: &V, more: &str) -> Result<(), StorageError> {
        let Self { cluster, secret } = self;
        let lines = format!("cluster {cluster:016x}\nsecret {secret:016x}\n{more}");
        sealed::write(volume, NAME, &sealed::seal(TITLE, &lines))
    }
}

//! The identity of a data directory: a short text file.
//!
//! ```text
//! remora data
//! layout 1
//! cluster 54a1f2d0c96b7733
//! secret 0b1c4f8f44aa9321
//! check 7bd1c2a8e0f96624
//! ```
//! `secret` keys the checksums of frames and runs: bytes that a client chose, inside a value, never
//! pass for either. `check` covers the lines before it.

use crate::error::StorageError;
use crate::segment::LAYOUT;
use crate::volume::{Volume, VolumeFile, read_from};
use remora_layout::hash::checksum;

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
        let text = volume.open(NAME).and_then(|file| read_from(&file, 0, MOST_BYTES));
        let text = text.map_err(|source| StorageError::io("read", NAME, source))?;
        Self::parse(&String::from_utf8_lossy(&text)).map(Some)
    }

    fn parse(text: &str) -> Result<Self, StorageError> {
        let wrong = |reason: &str| StorageError::corrupt(NAME, 0, reason);
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.ok_or_else(|| wrong(&format!("it has no line `{name}`")))
        };
        if text.lines().next() != Some(TITLE) {
            return Err(wrong("it does not begin with `remora data`"));
        }
        let found = value("layout")?.parse().map_err(|_| wrong("its layout is no number"))?;
        if found != LAYOUT {
            return Err(StorageError::Layout { name: NAME.into(), found, expected: LAYOUT });
        }
        let word = |name| {
            u64::from_str_radix(value(name)?, 16)
                .map_err(|_| wrong(&format!("{name} is no number")))
        };
        let own = Self { cluster: word("cluster")?, secret: word("secret")? };
        match own.text() == text {
            true => Ok(own),
            false => Err(wrong("its check is wrong")),
        }
    }

    fn text(&self) -> String {
        let Self { cluster, secret } = self;
        let lines =
            format!("{TITLE}\nlayout {LAYOUT}\ncluster {cluster:016x}\nsecret {secret:016x}\n");
        let check = checksum(lines.as_bytes(), 0);
        format!("{lines}check {check:016x}\n")
    }

    /// Writes it into an empty directory.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn write<V: Volume>(&self, volume: &V) -> Result<(), StorageError> {
        let temporary = "identity.tmp";
        let written = volume.create(temporary).and_then(|file| {
            file.append(&[self.text().as_bytes()])?;
            file.sync()?;
            volume.rename(temporary, NAME)?;
            volume.sync_names("")
        });
        written.map_err(|source| StorageError::io("write", NAME, source))
    }
}

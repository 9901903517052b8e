//! The manifest of a backup: a short text file, which is written last.
//!
//! ```text
//! remora backup
//! layout 1
//! version 0.1.0
//! cluster 54a1f2d0c96b7733
//! taken 1764140000123
//! keys 106421
//! digest 00000000f2d01b3c...
//! file 9f02ab44c1d0e377 1048576 snapshot-0000000000000003/shard-0
//! file 1c0f42b7ad903f11 4096 log-0000000000000007
//! check 7bd1c2a8e0f96624
//! ```
//! `taken` is Unix ms. `keys` and `digest` (as DEBUG DIGEST gives it) are missing if the backup was
//! not loaded to check it. A file has a checksum, its bytes, and its name. `check` covers the lines
//! before it.

use crate::backup::{FileSum, data_names, sum_of};
use crate::error::StorageError;
use crate::sealed::{self, Sealed};
use crate::volume::{Volume, VolumeFile};

/// The name of the file.
pub const MANIFEST_NAME: &str = "manifest";
const TITLE: &str = "remora backup";
/// Longest manifest that is read, bytes: a line for each file.
const MOST_BYTES: usize = 16 << 20;

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// The version of Remora that made the backup.
    pub version: String,
    /// The cluster of the data.
    pub cluster: u64,
    /// When it was taken, Unix ms.
    pub taken_ms: u64,
    /// Keys, and the digest of all that they hold; `None` if the backup was not loaded.
    pub content: Option<(u64, String)>,
    /// Its files.
    pub files: Vec<FileSum>,
}

impl Manifest {
    /// The manifest of a backup; `None` if there is none, so that it is no whole backup.
    ///
    /// # Errors
    /// It is damaged, or another layout's.
    pub fn read<V: Volume>(volume: &V) -> Result<Option<Self>, StorageError> {
        let failed = |source| StorageError::io("read", MANIFEST_NAME, source);
        if !volume.names("").map_err(failed)?.iter().any(|name| name == MANIFEST_NAME) {
            return Ok(None);
        }
        let text = sealed::read(volume, MANIFEST_NAME, MOST_BYTES)?;
        let sealed = Sealed::open(MANIFEST_NAME, TITLE, &text)?;
        let content = match sealed.values("digest").next() {
            Some(digest) => Some((sealed.number("keys", 10)?, digest.to_owned())),
            None => None,
        };
        let file = |line| file_of(line).ok_or_else(|| sealed.wrong("a line `file` is wrong"));
        Ok(Some(Self {
            version: sealed.value("version")?.to_owned(),
            cluster: sealed.number("cluster", 16)?,
            taken_ms: sealed.number("taken", 10)?,
            content,
            files: sealed.values("file").map(file).collect::<Result<_, _>>()?,
        }))
    }

    /// Writes it into the directory of the backup, which is whole from then on.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn write<V: Volume>(&self, volume: &V) -> Result<(), StorageError> {
        let Self { version, cluster, taken_ms, content, files } = self;
        let mut lines = format!("version {version}\ncluster {cluster:016x}\ntaken {taken_ms}\n");
        if let Some((keys, digest)) = content {
            lines += &format!("keys {keys}\ndigest {digest}\n");
        }
        for FileSum { name, bytes, checksum } in files {
            lines += &format!("file {checksum:016x} {bytes} {name}\n");
        }
        sealed::write(volume, MANIFEST_NAME, &sealed::seal(TITLE, &lines))
    }

    /// Compares the files' lengths, which takes no time.
    ///
    /// # Errors
    /// A file is missing, has another length, or is none of the backup's.
    pub fn check_lengths<V: Volume>(&self, volume: &V) -> Result<(), StorageError> {
        let names = data_names(volume)?;
        for FileSum { name, bytes, .. } in &self.files {
            if !names.contains(name) {
                return Err(StorageError::corrupt(name, 0, "the file is missing"));
            }
            let found = volume.open(name).and_then(|file| file.bytes());
            let found = found.map_err(|source| StorageError::io("read", name, source))?;
            if found != *bytes {
                let reason = format!("the file has {found} bytes, and the manifest says {bytes}");
                return Err(StorageError::corrupt(name, found.min(*bytes), reason));
            }
        }
        let is_known = |name: &&String| self.files.iter().any(|file| file.name == **name);
        match names.iter().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => {
                Err(StorageError::corrupt(name, 0, "the manifest does not have this file"))
            }
        }
    }

    /// Compares every byte of the files with their checksums.
    ///
    /// # Errors
    /// A file has changed.
    pub fn check_bytes<V: Volume>(&self, volume: &V) -> Result<(), StorageError> {
        let mut files = self.files.iter();
        files.try_for_each(|file| match sum_of(volume, &file.name)? == *file {
            true => Ok(()),
            false => {
                Err(StorageError::corrupt(&file.name, 0, "the file has changed since the backup"))
            }
        })
    }
}

/// `CHECKSUM BYTES NAME`
fn file_of(line: &str) -> Option<FileSum> {
    let mut words = line.splitn(3, ' ');
    let checksum = u64::from_str_radix(words.next()?, 16).ok()?;
    let bytes = words.next()?.parse().ok()?;
    Some(FileSum { name: words.next()?.to_owned(), bytes, checksum })
}

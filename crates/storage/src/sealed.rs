//! Short text files: a title, the layout, lines of a name and a value, and a checksum.
//!
//! ```text
//! remora data
//! layout 1
//! cluster 54a1f2d0c96b7733
//! check 7bd1c2a8e0f96624
//! ```
//! `check` covers the lines before it. Such a file has its name only once it is on the disk.

use crate::error::StorageError;
use crate::head::LAYOUT;
use crate::volume::{Volume, VolumeFile, read_from};
use remora_layout::hash::checksum;

/// A text file, checked.
pub(crate) struct Sealed<'t> {
    file: &'static str,
    lines: &'t str,
}

/// The text of a file with this title and these lines.
pub(crate) fn seal(title: &str, lines: &str) -> String {
    let lines = format!("{title}\nlayout {LAYOUT}\n{lines}");
    let check = checksum(lines.as_bytes(), 0);
    format!("{lines}check {check:016x}\n")
}

/// The text of a file, at most this many bytes of it.
///
/// # Errors
/// The disk's.
pub(crate) fn read<V: Volume>(
    volume: &V,
    file: &'static str,
    most_bytes: usize,
) -> Result<String, StorageError> {
    let bytes = volume.open(file).and_then(|opened| read_from(&opened, 0, most_bytes));
    let bytes = bytes.map_err(|source| StorageError::io("read", file, source))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes a file under a temporary name, and gives it its own.
///
/// # Errors
/// The disk's.
pub(crate) fn write<V: Volume>(
    volume: &V,
    file: &'static str,
    text: &str,
) -> Result<(), StorageError> {
    let temporary = format!("{file}.tmp");
    let written = volume.create(&temporary).and_then(|made| {
        made.append(&[text.as_bytes()])?;
        made.sync()?;
        volume.rename(&temporary, file)?;
        volume.sync_names("")
    });
    written.map_err(|source| StorageError::io("write", file, source))
}

impl<'t> Sealed<'t> {
    /// Checks the text of a file that has this title.
    ///
    /// # Errors
    /// It is another file, another layout's, or damaged.
    pub fn open(file: &'static str, title: &str, text: &'t str) -> Result<Self, StorageError> {
        let own = Self { file, lines: text };
        if text.lines().next() != Some(title) {
            return Err(own.wrong(&format!("it does not begin with `{title}`")));
        }
        let found = own.number("layout", 10)? as u32;
        if found != LAYOUT {
            return Err(StorageError::Layout { name: file.into(), found, expected: LAYOUT });
        }
        let (lines, _) = text.split_at(text.rfind("check ").unwrap_or(0));
        let check = checksum(lines.as_bytes(), 0);
        match text[lines.len()..] == format!("check {check:016x}\n") {
            true => Ok(Self { file, lines }),
            false => Err(own.wrong("its check is wrong")),
        }
    }

    /// The damage of this file.
    pub fn wrong(&self, reason: &str) -> StorageError {
        StorageError::corrupt(self.file, 0, reason)
    }

    /// The values of the lines that begin with this name.
    pub fn values(&self, name: &'t str) -> impl Iterator<Item = &'t str> + use<'t> {
        self.lines.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(' '))
    }

    /// The value of a line.
    ///
    /// # Errors
    /// There is no such line.
    pub fn value(&self, name: &'t str) -> Result<&'t str, StorageError> {
        let value = self.values(name).next();
        value.ok_or_else(|| self.wrong(&format!("it has no line `{name}`")))
    }

    /// The number in a line.
    ///
    /// # Errors
    /// There is no such line, or it holds none.
    pub fn number(&self, name: &'t str, radix: u32) -> Result<u64, StorageError> {
        let number = u64::from_str_radix(self.value(name)?, radix);
        number.map_err(|_| self.wrong(&format!("{name} is no number")))
    }
}

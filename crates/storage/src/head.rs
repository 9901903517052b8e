//! The head of a segment and of a snapshot's file: which data they belong to, and whether their header
//! is whole.
//!
//! ```text
//!  0        8          16       20       24       32      40        48
//! +--------+----------+--------+--------+--------+-------+---------+------------------+
//! | magic  | checksum | layout | shards | number | epoch | cluster | what the kind has |
//! +--------+----------+--------+--------+--------+-------+---------+------------------+
//! ```
//! The checksum covers the header behind it, and is under the secret of the directory and what else
//! the kind names: a header that is copied to another place is a wrong one.

use crate::error::StorageError;
use remora_layout::hash::checksum;
use remora_layout::limits::MAX_SHARDS;
use std::mem::offset_of;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The layout of all files of a data directory.
pub const LAYOUT: u32 = 1;

/// What kind of file it is.
pub(crate) struct FileKind {
    /// Its first bytes.
    pub magic: [u8; 8],
    /// In words.
    pub name: &'static str,
}

/// Which file is expected.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    /// Its path in the directory.
    pub file: &'a str,
    pub number: u64,
    pub cluster: u64,
}

/// See the module's text.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FileHead {
    magic: [u8; 8],
    checksum: U64,
    layout: U32,
    shards: U32,
    number: U64,
    epoch: U64,
    cluster: U64,
}

/// Bytes of it.
pub(crate) const HEAD_BYTES: usize = size_of::<FileHead>();
const CHECKED_FROM: usize = 16;
const _: () = assert!(offset_of!(FileHead, layout) == CHECKED_FROM && HEAD_BYTES == 48);

impl FileHead {
    /// The head of a file; [`FileHead::seal`] gives it its checksum. There are shards.
    pub fn new(kind: &FileKind, shards: usize, (number, epoch, cluster): (u64, u64, u64)) -> Self {
        assert!((1..=MAX_SHARDS).contains(&shards), "there are shards");
        Self {
            magic: kind.magic,
            checksum: U64::ZERO,
            layout: LAYOUT.into(),
            shards: (shards as u32).into(),
            number: number.into(),
            epoch: epoch.into(),
            cluster: cluster.into(),
        }
    }

    /// Puts the checksum into a whole header, which begins with a head.
    pub fn seal(header: &mut [u8], seed: u64) {
        let sum = checksum(&header[CHECKED_FROM..], seed);
        header[CHECKED_FROM - size_of::<u64>()..CHECKED_FROM].copy_from_slice(&sum.to_le_bytes());
    }

    /// The head of a header of this many bytes, with which `bytes` begin.
    ///
    /// # Errors
    /// There is none, it is another layout's or another directory's, or it has changed.
    pub fn open(
        bytes: &[u8],
        header_bytes: usize,
        kind: &FileKind,
        expected: Expected<'_>,
        seed: u64,
    ) -> Result<Self, StorageError> {
        let Expected { file, number, cluster } = expected;
        let corrupt = |reason: &str| StorageError::corrupt(file, 0, reason);
        let header = bytes.get(..header_bytes).ok_or_else(|| corrupt("the header is cut off"))?;
        let (head, _) = Self::read_from_prefix(header).expect("a header has a head");
        let (layout, found) = (head.layout.get(), head.cluster.get());
        let name = file.to_owned();
        if head.magic != kind.magic {
            return Err(corrupt(&format!("it does not begin as {}", kind.name)));
        }
        if layout != LAYOUT {
            return Err(StorageError::Layout { name, found: layout, expected: LAYOUT });
        }
        if found != cluster {
            return Err(StorageError::Cluster { name, found, expected: cluster });
        }
        let is_whole = checksum(&header[CHECKED_FROM..], seed) == head.checksum.get();
        if !is_whole || head.number.get() != number || !(1..=MAX_SHARDS).contains(&head.shards()) {
            return Err(Self::changed(file));
        }
        Ok(head)
    }

    /// The error of a header that is not what was written.
    pub fn changed(file: &str) -> StorageError {
        StorageError::corrupt(file, 0, "the checksum of the header is wrong")
    }

    /// How many shards wrote the file.
    pub fn shards(&self) -> usize {
        self.shards.get() as usize
    }

    /// The incarnation that wrote it.
    pub fn epoch(&self) -> u64 {
        self.epoch.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: FileKind = FileKind { magic: *b"remoratt", name: "a file of the test" };
    const OTHER: FileKind = FileKind { magic: *b"remoraxx", name: "another file" };
    const EXPECTED: Expected<'static> = Expected { file: "f", number: 3, cluster: 9 };
    const BYTES: usize = 64;

    fn header() -> Vec<u8> {
        let mut header = FileHead::new(&KIND, 5, (3, 2, 9)).as_bytes().to_vec();
        header.resize(BYTES, 7);
        FileHead::seal(&mut header, 11);
        header
    }

    fn open(bytes: &[u8], expected: Expected<'_>, seed: u64) -> Result<FileHead, StorageError> {
        FileHead::open(bytes, BYTES, &KIND, expected, seed)
    }

    #[test]
    fn a_head_is_found_again() {
        let mut bytes = header();
        bytes.extend([1; 20]);
        let head = open(&bytes, EXPECTED, 11).unwrap();
        assert_eq!((head.shards(), head.epoch()), (5, 2));
    }

    #[test]
    fn a_changed_bit_anywhere_is_refused() {
        for bit in 0..8 * BYTES {
            let mut bytes = header();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&bytes, EXPECTED, 11).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn each_error_says_what_is_wrong() {
        let bytes = header();
        let says = |opened: Result<FileHead, StorageError>, words: &str| {
            let text = opened.err().unwrap().to_string();
            assert!(text.contains(words), "{text}");
        };
        says(open(&bytes[..BYTES - 1], EXPECTED, 11), "corrupt f offset=0 the header is cut off");
        let other = FileHead::open(&bytes, BYTES, &OTHER, EXPECTED, 11);
        says(other, "it does not begin as another file");
        says(open(&bytes, Expected { cluster: 8, ..EXPECTED }, 11), "f is of cluster");
        says(open(&bytes, Expected { number: 4, ..EXPECTED }, 11), "the checksum of the header");
        says(open(&bytes, EXPECTED, 12), "the checksum of the header");
        let mut layout = bytes.clone();
        layout[CHECKED_FROM] += 1;
        says(open(&layout, EXPECTED, 11), "f has layout 2");
    }
}

//! The journal of the power-cut layer: what a server did to the files of its directory.
//!
//! ```text
//!  0   4   8   12  16     24       32    40       48
//!  op  path to  data  ino  offset   len   result   path, to, data
//! ```
//! `path`, `to` and `data` are lengths. All numbers are little-endian (`layer.c`, `struct record`).

use anyhow::{Context, bail};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

const HEADER_BYTES: usize = 48;
/// A path and a chunk of overwritten bytes are shorter.
const MAX_PART_BYTES: usize = 1 << 20;

/// One call of the server that the kernel carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A file was made.
    Create {
        /// Path below the directory.
        path: String,
        /// Inode number.
        ino: u64,
    },
    /// A directory was made.
    MakeDirectory {
        /// Path below the directory.
        path: String,
        /// Inode number.
        ino: u64,
    },
    /// A second name of a file.
    Link {
        /// The new name.
        path: String,
        /// Inode number.
        ino: u64,
    },
    /// Bytes were written.
    Write {
        /// Inode number.
        ino: u64,
        /// The first byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Bytes that the next change of the file overwrites or cuts off.
    Old {
        /// Inode number.
        ino: u64,
        /// The first byte.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The file has a new length.
    Resize {
        /// Inode number.
        ino: u64,
        /// Bytes.
        len: u64,
    },
    /// A sync of a file or a directory begins.
    SyncBegin {
        /// Inode number.
        ino: u64,
        /// It names the sync among those of its process.
        id: u64,
    },
    /// A sync has ended.
    SyncEnd {
        /// Inode number.
        ino: u64,
        /// As at its beginning.
        id: u64,
        /// Whether the kernel said that all is on the disk.
        succeeded: bool,
    },
    /// A file or a directory has another name.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// A name was removed.
    Remove {
        /// The name.
        path: String,
    },
}

/// Reads a whole journal. A record that the end cuts off did not happen.
pub fn read(path: &Path) -> anyhow::Result<Vec<Event>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(mut file) => file.read_to_end(&mut bytes).context("reading the layer's journal")?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error).context("opening the layer's journal"),
    };
    parse(&bytes)
}

/// The events of a journal's bytes.
pub fn parse(mut bytes: &[u8]) -> anyhow::Result<Vec<Event>> {
    let mut events = Vec::new();
    while bytes.len() >= HEADER_BYTES {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let lens = [word(4), word(8), word(12)].map(|len| len as usize);
        if lens.iter().any(|len| *len > MAX_PART_BYTES) {
            bail!("the layer's journal holds a part of {lens:?} bytes");
        }
        let (ino, offset, len, result) = (long(16), long(24), long(32), long(40));
        let op = word(0);
        let mut rest = &bytes[HEADER_BYTES..];
        if rest.len() < lens.iter().sum() {
            break;
        }
        let [path, to, data] = lens.map(|len| {
            let (part, after) = rest.split_at(len);
            rest = after;
            part
        });
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        events.push(match op {
            1 => Event::Create { path: text(path), ino },
            2 => Event::Write { ino, offset, len },
            3 => Event::SyncBegin { ino, id: offset },
            4 => Event::SyncEnd { ino, id: offset, succeeded: result == 0 },
            5 => Event::Resize { ino, len },
            6 => Event::Rename { from: text(path), to: text(to) },
            7 => Event::Remove { path: text(path) },
            8 => Event::MakeDirectory { path: text(path), ino },
            9 => Event::Old { ino, offset, bytes: data.to_vec() },
            10 => Event::Link { path: text(path), ino },
            op => bail!("the layer's journal holds an operation {op}"),
        });
        bytes = rest;
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(op: u32, path: &str, to: &str, data: &[u8], numbers: [u64; 4]) -> Vec<u8> {
        let lens = [op, path.len() as u32, to.len() as u32, data.len() as u32];
        let mut bytes: Vec<u8> = lens.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend([path.as_bytes(), to.as_bytes(), data].concat());
        bytes
    }

    #[test]
    fn records_are_read_and_a_cut_one_did_not_happen() {
        let mut bytes = record(1, "log-1", "", b"", [7, 0, 0, 0]);
        bytes.extend(record(9, "", "", b"old", [7, 4096, 3, 0]));
        bytes.extend(record(6, "a", "bc", b"", [0; 4]));
        bytes.extend(record(4, "", "", b"", [7, 3, 0, (-5i64) as u64]));
        let expected = [
            Event::Create { path: "log-1".into(), ino: 7 },
            Event::Old { ino: 7, offset: 4096, bytes: b"old".to_vec() },
            Event::Rename { from: "a".into(), to: "bc".into() },
            Event::SyncEnd { ino: 7, id: 3, succeeded: false },
        ];
        assert_eq!(parse(&bytes).unwrap(), expected);
        let whole = bytes.len();
        bytes.extend(record(7, "name", "", b"", [0; 4]));
        for cut in whole..bytes.len() {
            assert_eq!(parse(&bytes[..cut]).unwrap(), expected, "{cut}");
        }
        assert!(parse(&record(77, "", "", b"", [0; 4])).is_err());
    }
}

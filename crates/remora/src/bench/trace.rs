//! Files of keys: little-endian 32-bit numbers, plain or xz.

use crate::failure::usage;
use anyhow::Context;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// Longest trace, in bytes unpacked: bounds what a small xz file can become.
const MAX_TRACE_BYTES: u64 = 4 << 30;

/// A file of keys, each distinct key being one record.
#[derive(PartialEq, Eq, Debug)]
pub struct Trace {
    /// The distinct keys, in order of their first appearance.
    pub keys: Vec<u32>,
    /// The replay: indices into `keys`.
    pub indices: Vec<u32>,
}

impl Trace {
    /// Reads a file; one whose name ends in `.xz` is unpacked.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = read_bytes(path, "--dist")?;
        Self::from_bytes(&bytes).map_err(|why| usage(format!("--dist: {} {why}", path.display())))
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        let (numbers, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err("is no file of 32-bit keys: its length is no multiple of 4");
        }
        if numbers.is_empty() {
            return Err("holds no keys");
        }
        let mut keys = Vec::new();
        let mut index_of: HashMap<u32, u32> = HashMap::new();
        let indices = numbers
            .iter()
            .map(|bytes| {
                let key = u32::from_le_bytes(*bytes);
                *index_of.entry(key).or_insert_with(|| {
                    keys.push(key);
                    keys.len() as u32 - 1
                })
            })
            .collect();
        Ok(Self { keys, indices })
    }
}

/// The bytes of a file that `flag` names, unpacked.
pub fn read_bytes(path: &Path, flag: &str) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let file = std::fs::File::open(path)
        .map_err(|error| usage(format!("{flag}: cannot read {shown}: {error}")))?;
    let is_packed = path.extension().is_some_and(|extension| extension == "xz");
    let mut input: Box<dyn Read> =
        if is_packed { Box::new(liblzma::read::XzDecoder::new(file)) } else { Box::new(file) };
    let mut bytes = Vec::new();
    input
        .by_ref()
        .take(MAX_TRACE_BYTES)
        .read_to_end(&mut bytes)
        .with_context(|| format!("reading {shown}"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn distinct_keys_become_records() {
        let bytes: Vec<u8> =
            [7u32, u32::MAX, 7, 1].iter().flat_map(|key| key.to_le_bytes()).collect();
        let expected = Trace { keys: vec![7, u32::MAX, 1], indices: vec![0, 1, 0, 2] };
        assert_eq!(Trace::from_bytes(&bytes), Ok(expected));
        assert!(Trace::from_bytes(&bytes[1..]).is_err());
        assert!(Trace::from_bytes(&[]).is_err());
    }

    #[test]
    fn plain_and_packed_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let (plain, packed) = (directory.path().join("t"), directory.path().join("t.xz"));
        std::fs::write(&plain, 5u32.to_le_bytes()).unwrap();
        let mut encoder =
            liblzma::write::XzEncoder::new(std::fs::File::create(&packed).unwrap(), 1);
        encoder.write_all(&5u32.to_le_bytes()).unwrap();
        encoder.finish().unwrap();
        assert_eq!(Trace::read(&plain).unwrap(), Trace::read(&packed).unwrap());
        assert!(Trace::read(&directory.path().join("none")).is_err());
    }
}

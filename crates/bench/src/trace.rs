//! Traces: files of keys of a fixed width, plain or xz.

use anyhow::Context;
use remora_command_line::usage;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// Longest trace, in bytes unpacked: bounds the size to which a small xz file can grow.
const MAX_TRACE_BYTES: u64 = 4 << 30;
/// Longest trace, in requests; each takes some 20 bytes here.
const MAX_REQUESTS: usize = 1 << 30;
/// Widest key, in bytes.
pub const MAX_WIDTH: usize = 64;

/// A trace. Its keys only need to be distinguished, so their byte order does not matter: they are
/// numbered in order of their first appearance.
#[derive(PartialEq, Eq, Debug)]
pub struct Trace {
    /// Number of distinct keys.
    pub keys: usize,
    /// The requests, each the number of its key.
    pub requests: Vec<u32>,
}

impl Trace {
    /// Reads the file that `flag` names, with keys of `width` bytes; a file whose name ends in
    /// `.xz` is unpacked.
    pub fn read(path: &Path, flag: &str, width: usize) -> anyhow::Result<Self> {
        let bytes = read_bytes(path, flag)?;
        Self::from_bytes(&bytes, width)
            .map_err(|why| usage(format!("{flag}: {} {why}", path.display())))
    }

    fn from_bytes(bytes: &[u8], width: usize) -> Result<Self, &'static str> {
        if !bytes.len().is_multiple_of(width) {
            return Err("is no file of such keys: its length is no multiple of their width");
        }
        if bytes.is_empty() || bytes.len() / width > MAX_REQUESTS {
            return Err("holds no keys, or too many");
        }
        let mut numbers: HashMap<&[u8], u32> = HashMap::new();
        let requests = bytes.chunks_exact(width).map(|key| {
            let next = numbers.len() as u32;
            *numbers.entry(key).or_insert(next)
        });
        let requests = requests.collect();
        Ok(Self { keys: numbers.len(), requests })
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
    fn keys_are_numbered_in_order_of_appearance_at_any_width() {
        let trace = |keys, requests: &[u32]| Ok(Trace { keys, requests: requests.to_vec() });
        assert_eq!(Trace::from_bytes(b"abaabb", 1), trace(2, &[0, 1, 0, 0, 1, 1]));
        assert_eq!(Trace::from_bytes(b"abaabb", 2), trace(3, &[0, 1, 2]));
        for bytes in [&b"abaabb"[..], b""] {
            assert!(Trace::from_bytes(bytes, 4).is_err());
        }
        // Which end comes first makes no difference.
        let keys = [7u64 << 40, u64::MAX - 1, 7 << 40, 1];
        let little: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        let big: Vec<u8> = keys.iter().flat_map(|key| key.to_be_bytes()).collect();
        assert_eq!(Trace::from_bytes(&little, 8), trace(3, &[0, 1, 0, 2]));
        assert_eq!(Trace::from_bytes(&little, 8), Trace::from_bytes(&big, 8));
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
        let read = |path: &Path| Trace::read(path, "--dist", 4);
        assert_eq!(read(&plain).unwrap(), read(&packed).unwrap());
        assert!(read(&directory.path().join("none")).is_err());
    }
}

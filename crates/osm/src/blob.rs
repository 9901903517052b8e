//! The blobs that a file consists of: each has a header, and a block that may
//! be packed.

use crate::wire::Fields;
use crate::{Broken, Error};
use flate2::read::ZlibDecoder;
use std::io::{ErrorKind, Read, Seek, SeekFrom};

/// Longest header of a blob, by the format.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// Longest blob, packed or not, by the format.
const MAX_BLOB_BYTES: usize = 32 << 20;
/// Features that a file may need.
const KNOWN_FEATURES: [&str; 2] = ["OsmSchema-V0.6", "DenseNodes"];

/// Goes over the blocks of a file.
pub struct Blobs<R> {
    input: R,
    /// Where the blob begins that is read now.
    at: u64,
    next: u64,
    header: Vec<u8>,
    packed: Vec<u8>,
    block: Vec<u8>,
}

impl<R: Read + Seek> Blobs<R> {
    /// The blobs from the input's start.
    pub fn new(input: R) -> Self {
        let (header, packed, block) = (Vec::new(), Vec::new(), Vec::new());
        Self { input, at: 0, next: 0, header, packed, block }
    }

    /// To the start again.
    pub fn rewind(&mut self) -> Result<(), Error> {
        self.next = 0;
        self.input.seek(SeekFrom::Start(0))?;
        Ok(())
    }

    /// An error in the blob that is read now.
    pub fn broken(&self, why: Broken) -> Error {
        Error::Broken { at: self.at, why }
    }

    /// The next block of nodes, ways and relations if it is `wanted`, an empty
    /// one in place of others; `None` at the file's end.
    pub fn next(&mut self, wanted: bool) -> Result<Option<&[u8]>, Error> {
        self.at = self.next;
        let Some(length) = self.length()? else {
            return if self.at == 0 { Err(self.broken(Broken::NoHeader)) } else { Ok(None) };
        };
        let (kind, size) = self.head(length)?;
        self.next = self.at + 4 + length as u64 + size as u64;
        if self.at == 0 {
            if kind != Kind::Header {
                return Err(self.broken(Broken::NoHeader));
            }
            self.unpack(size)?;
            check_features(&self.block).map_err(|why| self.broken(why))?;
            self.block.clear();
        } else if kind == Kind::Data && wanted {
            self.unpack(size)?;
        } else {
            // A buffered input keeps what it has read ahead.
            self.input.seek_relative(size as i64)?;
            self.block.clear();
        }
        Ok(Some(&self.block))
    }

    /// The length of the next header; `None` at the end.
    fn length(&mut self) -> Result<Option<usize>, Error> {
        let mut bytes = [0; 4];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(self.broken(Broken::Short)),
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let length = u32::from_be_bytes(bytes) as usize;
        match length {
            0..=MAX_HEADER_BYTES => Ok(Some(length)),
            _ if self.at == 0 => Err(self.broken(Broken::NoHeader)),
            _ => Err(self.broken(Broken::TooLong)),
        }
    }

    /// A blob's header: its kind, and the bytes of what follows.
    fn head(&mut self, length: usize) -> Result<(Kind, usize), Error> {
        fill(&mut self.input, &mut self.header, length).map_err(|why| why.at(self.at))?;
        parse_head(&self.header).map_err(|why| self.broken(why))
    }

    /// Reads a blob of `size` bytes, and unpacks it.
    fn unpack(&mut self, size: usize) -> Result<(), Error> {
        fill(&mut self.input, &mut self.packed, size).map_err(|why| why.at(self.at))?;
        unpack(&self.packed, &mut self.block).map_err(|why| self.broken(why))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Header,
    Data,
    Other,
}

/// Why bytes could not be had.
enum Missing {
    Io(std::io::Error),
    Short,
}

impl Missing {
    fn at(self, at: u64) -> Error {
        match self {
            Self::Io(error) => Error::Io(error),
            Self::Short => Error::Broken { at, why: Broken::Short },
        }
    }
}

/// Reads exactly `length` bytes. Memory is taken as they come.
fn fill(input: &mut impl Read, into: &mut Vec<u8>, length: usize) -> Result<(), Missing> {
    into.clear();
    let read = input.by_ref().take(length as u64).read_to_end(into).map_err(Missing::Io)?;
    if read < length { Err(Missing::Short) } else { Ok(()) }
}

fn parse_head(bytes: &[u8]) -> Result<(Kind, usize), Broken> {
    let (mut kind, mut size) = (Kind::Other, None);
    for field in Fields(bytes) {
        match field? {
            (1, text) => {
                kind = match text.bytes()? {
                    b"OSMHeader" => Kind::Header,
                    b"OSMData" => Kind::Data,
                    _ => Kind::Other,
                }
            }
            (3, number) => size = Some(number.number()?),
            _ => {}
        }
    }
    match size.ok_or(Broken::FieldType)?.try_into() {
        Ok(size @ 0..=MAX_BLOB_BYTES) => Ok((kind, size)),
        _ => Err(Broken::TooLong),
    }
}

fn unpack(blob: &[u8], into: &mut Vec<u8>) -> Result<(), Broken> {
    into.clear();
    let (mut raw, mut size, mut zlib) = (None, None, None);
    for field in Fields(blob) {
        match field? {
            (1, bytes) => raw = Some(bytes.bytes()?),
            (2, number) => size = Some(number.number()?),
            (3, bytes) => zlib = Some(bytes.bytes()?),
            // LZMA, bzip2, LZ4, Zstandard.
            (4..=7, _) => return Err(Broken::Packing),
            _ => {}
        }
    }
    if size.is_some_and(|size| size > MAX_BLOB_BYTES as u64) {
        return Err(Broken::TooLong);
    }
    match (raw, zlib) {
        (Some(raw), None) if size.is_none_or(|size| size == raw.len() as u64) => {
            into.extend_from_slice(raw);
            Ok(())
        }
        (None, Some(zlib)) => {
            let size = size.ok_or(Broken::Size)?;
            // One byte more than it says shows that it says too little.
            let read = ZlibDecoder::new(zlib).take(size + 1).read_to_end(into);
            match read {
                Ok(read) if read as u64 == size => Ok(()),
                _ => Err(Broken::Size),
            }
        }
        _ => Err(Broken::Size),
    }
}

fn check_features(header: &[u8]) -> Result<(), Broken> {
    for field in Fields(header) {
        if let (4, feature) = field? {
            let feature = String::from_utf8_lossy(feature.bytes()?);
            if !KNOWN_FEATURES.contains(&&*feature) {
                return Err(Broken::Feature(feature.chars().take(80).collect()));
            }
        }
    }
    Ok(())
}

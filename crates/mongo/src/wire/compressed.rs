//! OP_COMPRESSED: a message whose body is compressed.
//!
//! ```text
//! | header | original opcode i32 | uncompressed bytes i32 | compressor u8 | bytes ... |
//! ```
//!
//! The uncompressed bytes are those behind the header of the original message.

use super::error::Fatal;
use super::header::{self, HEADER_BYTES, Header, opcode};
use crate::limits::MAX_MESSAGE_BYTES;
use flate2::{Compression, Decompress, FlushDecompress, Status};
use std::io::{self, Write as _};

const NUMBER_BYTES: usize = 4;

/// How a message is compressed.
///
/// zstd is missing: the one crate in Rust alone (ruzstd 0.9) has its fastest level only, and calls
/// its own compressor usable, but slower and weaker than zstd. Drivers choose another compressor
/// when the server does not offer it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compressor {
    /// Not at all; for tests.
    Noop,
    /// Snappy, in its format without frames.
    Snappy,
    /// zlib.
    Zlib,
}

impl Compressor {
    /// What a handshake may agree on, in the server's order.
    pub const OFFERED: [Self; 2] = [Self::Snappy, Self::Zlib];

    /// Its number in messages.
    pub fn id(self) -> u8 {
        match self {
            Self::Noop => 0,
            Self::Snappy => 1,
            Self::Zlib => 2,
        }
    }

    /// The compressor with this number.
    pub fn from_id(id: u8) -> Option<Self> {
        [Self::Noop, Self::Snappy, Self::Zlib].into_iter().find(|known| known.id() == id)
    }

    /// Its name in the handshake.
    pub fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
        }
    }

    /// Most bytes that one compressed byte can stand for. Snappy: a copy of 64 bytes takes 3.
    /// Deflate: 258 bytes take 2 bits.
    fn max_ratio(self) -> usize {
        match self {
            Self::Noop => 1,
            Self::Snappy => 22,
            Self::Zlib => 1032,
        }
    }
}

/// A compressed message.
#[derive(Clone, Copy, Debug)]
pub struct Compressed<'a> {
    /// The header of the original message.
    pub(super) header: Header,
    compressor: Compressor,
    /// Bytes of the message that it came in.
    pub(super) consumed: usize,
    bytes: &'a [u8],
}

impl<'a> Compressed<'a> {
    /// Reads what follows the header, without decompressing it. The declared size is checked.
    pub(super) fn read(outer: Header, bytes: &'a [u8]) -> Result<Self, Fatal> {
        let (original, bytes) =
            bytes.split_first_chunk::<NUMBER_BYTES>().ok_or(Fatal::Truncated)?;
        let (declared, bytes) =
            bytes.split_first_chunk::<NUMBER_BYTES>().ok_or(Fatal::Truncated)?;
        let (&id, bytes) = bytes.split_first().ok_or(Fatal::Truncated)?;
        let original = i32::from_le_bytes(*original);
        if !matches!(original, opcode::MSG | opcode::QUERY) {
            return Err(Fatal::CompressedOpcode(original));
        }
        let compressor = Compressor::from_id(id).ok_or(Fatal::Compressor(id))?;
        let declared = i32::from_le_bytes(*declared);
        let size = match usize::try_from(declared) {
            Ok(size)
                if size <= MAX_MESSAGE_BYTES - HEADER_BYTES
                    && size <= bytes.len() * compressor.max_ratio() =>
            {
                size
            }
            _ => return Err(Fatal::UncompressedSize(declared)),
        };
        let header = Header { bytes: HEADER_BYTES + size, opcode: original, ..outer };
        Ok(Self { header, compressor, consumed: outer.bytes, bytes })
    }

    /// How it is compressed. Its reply is compressed in the same way.
    pub fn compressor(&self) -> Compressor {
        self.compressor
    }

    /// Bytes of the original message.
    pub fn uncompressed_bytes(&self) -> usize {
        self.header.bytes
    }

    /// Writes the original message into `buffer`, which is cleared first.
    pub(super) fn write_original(&self, buffer: &mut Vec<u8>) -> Result<(), Fatal> {
        let Header { bytes, request_id, response_to, opcode } = self.header;
        buffer.clear();
        buffer.reserve_exact(bytes);
        header::begin(buffer, request_id, response_to, opcode);
        // The header's bounds are those of a message, which i32 holds.
        buffer[..NUMBER_BYTES].copy_from_slice(&(bytes as i32).to_le_bytes());
        let size = bytes - HEADER_BYTES;
        let is_whole = match self.compressor {
            Compressor::Noop => {
                buffer.extend_from_slice(self.bytes);
                self.bytes.len() == size
            }
            // The size that stands in the bytes is compared before memory is touched.
            Compressor::Snappy => {
                snap::raw::decompress_len(self.bytes).ok() == Some(size) && {
                    buffer.resize(bytes, 0);
                    let out = &mut buffer[HEADER_BYTES..];
                    snap::raw::Decoder::new().decompress(self.bytes, out).ok() == Some(size)
                }
            }
            Compressor::Zlib => {
                buffer.resize(bytes, 0);
                inflate(self.bytes, &mut buffer[HEADER_BYTES..])
            }
        };
        if !is_whole {
            return Err(Fatal::Damaged);
        }
        Ok(())
    }
}

/// Whether the stream `from` fills `out` exactly, and ends with its last byte.
fn inflate(from: &[u8], out: &mut [u8]) -> bool {
    let mut stream = Decompress::new(true);
    let status = stream.decompress(from, out, FlushDecompress::Finish);
    matches!(status, Ok(Status::StreamEnd))
        && stream.total_in() == from.len() as u64
        && stream.total_out() == out.len() as u64
}

/// Appends `message`, a whole message, to `out` as OP_COMPRESSED.
///
/// The replies to `hello`, to the commands of logging in and to those of users are never
/// compressed. It is on the caller to leave these as they are.
///
/// # Errors
/// `message` is shorter than a header, or longer than [`MAX_MESSAGE_BYTES`].
pub fn compress(message: &[u8], compressor: Compressor, out: &mut Vec<u8>) -> io::Result<()> {
    let short = || io::Error::from(io::ErrorKind::InvalidInput);
    let (head, body) = message.split_first_chunk::<HEADER_BYTES>().ok_or_else(short)?;
    let header = Header::read(head).map_err(|_| short())?;
    if header.bytes != message.len() {
        return Err(short());
    }
    let start = out.len();
    header::begin(out, header.request_id, header.response_to, opcode::COMPRESSED);
    out.extend_from_slice(&header.opcode.to_le_bytes());
    out.extend_from_slice(&(body.len() as i32).to_le_bytes());
    out.push(compressor.id());
    match compressor {
        Compressor::Noop => out.extend_from_slice(body),
        Compressor::Snappy => {
            let from = out.len();
            out.resize(from + snap::raw::max_compress_len(body.len()), 0);
            let written = snap::raw::Encoder::new().compress(body, &mut out[from..])?;
            out.truncate(from + written);
        }
        Compressor::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(&mut *out, Compression::default());
            encoder.write_all(body)?;
            encoder.finish()?;
        }
    }
    let length = (out.len() - start) as i32;
    out[start..start + NUMBER_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

//! A segment of the log: a header, then runs.
//!
//! ```text
//!  0        8          16       20       24       32      40        48         56      64
//! +--------+----------+--------+--------+--------+-------+---------+----------+-------+
//! | magic  | checksum | layout | shards | number | epoch | cluster | previous |  cuts |
//! +--------+----------+--------+--------+--------+-------+---------+----------+-------+
//! 64  first[64]  the first sequence of each shard in this segment
//! 576 cut[64]    the last sequence of each shard that counts of the epoch before
//! 1088 zeros up to 4096, then runs
//! ```
//! `previous`: bytes of the segment before that count. What lies behind them was torn by a crash,
//! or its sync failed and this segment has it again. An epoch is one incarnation of a server: its first
//! segment cuts the epoch before, and sequences begin where the header says.
//!
//! Invariant: a segment has its name only once its header is on the disk.

use crate::error::StorageError;
use crate::head::{Expected, FileHead, FileKind, HEAD_BYTES};
use remora_layout::hash::mix;
use remora_layout::limits::MAX_SHARDS;
use std::mem::offset_of;
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes before the first run.
pub const SEGMENT_HEADER_BYTES: usize = 4096;

const KIND: FileKind = FileKind { magic: *b"remoralg", name: "a segment of the log" };

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    head: FileHead,
    previous: U64,
    cuts: U64,
    first: [U64; MAX_SHARDS],
    cut: [U64; MAX_SHARDS],
    zeros: [u8; 3008],
}

const _: () = assert!(size_of::<RawHeader>() == SEGMENT_HEADER_BYTES);
const _: () = assert!(offset_of!(RawHeader, previous) == HEAD_BYTES);
const _: () = assert!(offset_of!(RawHeader, first) == 64);
const _: () = assert!(offset_of!(RawHeader, cut) == 576);

/// The header of a segment. See the module's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub number: u64,
    pub epoch: u64,
    pub cluster: u64,
    /// Bytes of the segment before that count.
    pub previous_bytes: u64,
    /// By shard, its first sequence here.
    pub first: Vec<u64>,
    /// By shard of the epoch before, its last sequence that counts; empty if the segment is not the
    /// first of its epoch, or there was none before.
    pub cut: Vec<u64>,
}

/// The name of a segment.
pub fn segment_name(number: u64) -> String {
    format!("log-{number:016}")
}

/// The number of the segment with this name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-").filter(|digits| digits.len() == 16)?;
    digits.parse().ok()
}

fn words(of: &[u64]) -> [U64; MAX_SHARDS] {
    let mut words = [U64::ZERO; MAX_SHARDS];
    words.iter_mut().zip(of).for_each(|(word, value)| *word = (*value).into());
    words
}

impl SegmentHeader {
    /// Its bytes.
    pub fn encode(&self, secret: u64) -> Vec<u8> {
        let of = (self.number, self.epoch, self.cluster);
        let raw = RawHeader {
            head: FileHead::new(&KIND, self.first.len(), of),
            previous: self.previous_bytes.into(),
            cuts: (self.cut.len() as u64).into(),
            first: words(&self.first),
            cut: words(&self.cut),
            zeros: [0; 3008],
        };
        let mut bytes = raw.as_bytes().to_vec();
        FileHead::seal(&mut bytes, mix(secret, self.number));
        bytes
    }

    /// The header in the first bytes of a file with this name and number.
    ///
    /// # Errors
    /// There is none, or it is another directory's.
    pub fn parse(
        bytes: &[u8],
        (name, number): (&str, u64),
        (cluster, secret): (u64, u64),
    ) -> Result<Self, StorageError> {
        let expected = Expected { file: name, number, cluster };
        let seed = mix(secret, number);
        let head = FileHead::open(bytes, SEGMENT_HEADER_BYTES, &KIND, expected, seed)?;
        let (raw, _) = RawHeader::ref_from_prefix(bytes).expect("the whole header is there");
        let (shards, cuts) = (head.shards(), raw.cuts.get() as usize);
        if cuts > MAX_SHARDS {
            return Err(FileHead::changed(name));
        }
        Ok(Self {
            number,
            epoch: head.epoch(),
            cluster,
            previous_bytes: raw.previous.get(),
            first: raw.first[..shards].iter().map(|word| word.get()).collect(),
            cut: raw.cut[..cuts].iter().map(|word| word.get()).collect(),
        })
    }
}

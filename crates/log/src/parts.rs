//! Entries of several shards: each names all of them, its own too.
//!
//! ```text
//! part   shard 4 | zero 4 | sequence 8
//! ```
//! Invariant: either all parts of such an entry are applied, or none. A part exists if a log or a
//! snapshot covers it.

use std::collections::BTreeMap;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a part.
pub(crate) const PART_BYTES: usize = 16;

/// The entry of one shard that belongs to others' entries.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Part {
    shard: U32,
    zero: U32,
    sequence: U64,
}

const _: () = assert!(size_of::<Part>() == PART_BYTES);

impl Part {
    /// The part of this shard.
    pub fn new(shard: u32, sequence: u64) -> Self {
        Self { shard: shard.into(), zero: 0.into(), sequence: sequence.into() }
    }

    /// The shard whose log contains it.
    pub fn shard(&self) -> u32 {
        self.shard.get()
    }

    /// Its sequence there.
    pub fn sequence(&self) -> u64 {
        self.sequence.get()
    }
}

/// The parts that an entry names; none for an entry of one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts<'a>(pub(crate) &'a [Part]);

impl<'a> Parts<'a> {
    /// `count` parts at the start of an entry's bytes, and the operation behind
    /// them.
    pub(crate) fn split(bytes: &'a [u8], count: u8) -> Option<(Self, &'a [u8])> {
        let (parts, rest) = <[Part]>::ref_from_prefix_with_elems(bytes, count.into()).ok()?;
        parts.iter().all(|part| part.zero.get() == 0).then_some((Self(parts), rest))
    }

    /// The parts, in the order in which they were given.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Part> + use<'a> {
        self.0.iter().copied()
    }

    /// Whether the entry is of one shard.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// The known state of one shard's log that is to be applied again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownLog {
    /// Everything up to this sequence is in a snapshot.
    pub covered: u64,
    /// The last whole entry.
    pub last: u64,
    /// The entries behind `covered` that name parts, by sequence.
    pub shared: BTreeMap<u64, Vec<Part>>,
}

/// For each shard the last sequence that may be applied, so that no entry of several shards is
/// applied in part: a log is cut before its first entry with a missing part. The entries cut off
/// may be parts of others.
///
/// A part of a shard that is not in `logs` is missing.
pub fn consistent_cut(logs: &BTreeMap<u32, KnownLog>) -> BTreeMap<u32, u64> {
    let mut cuts: BTreeMap<u32, u64> =
        logs.iter().map(|(&shard, log)| (shard, log.last.max(log.covered))).collect();
    // Bounded: each turn but the last cuts entries off.
    loop {
        let is_there =
            |part: &Part| cuts.get(&part.shard()).is_some_and(|&cut| part.sequence() <= cut);
        let shorter: Vec<(u32, u64)> = logs
            .iter()
            .filter_map(|(shard, log)| {
                let behind = log.covered + 1..cuts[shard] + 1;
                let mut kept = log.shared.range(behind);
                let torn = kept.find(|(_, parts)| !parts.iter().all(is_there));
                torn.map(|(&sequence, _)| (*shard, sequence - 1))
            })
            .collect();
        if shorter.is_empty() {
            return cuts;
        }
        cuts.extend(shorter);
    }
}

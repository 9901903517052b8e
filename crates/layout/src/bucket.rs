//! The bucket of the hash index: one cache line (HydraDB 4.1.3, H7 to H9).
//!
//! ```text
//!  word 0      header | in use, one bit a slot 7 | moved 1 | overflow bucket 32 | depth 6 | 0 |
//!  words 1-7   slots  | slot 32 | class 8 | generation, low bits 8 | signature 16 |
//! ```
//! (Low bits first.) The paper's 7 + 56 bits leave one bit of the header unused; here it is
//! "moved": since the table was made, a split has moved keys out of this bucket or into it. One bit
//! cannot tell this to a reader that is two rounds late, so six of the 56 bits hold the bucket's
//! *depth* (see [`crate::table`]). A reader whose key does not belong to bucket `i` at that depth
//! has an old table, and fetches the arena's header page again. The link is the slot number of an
//! overflow bucket, 0 for none. All buckets of a chain have the same depth, except during a split.
//! The paper's 48-bit location holds a 32-bit slot number, the size class (so that a cold reader
//! knows how much to read) and eight bits of the generation. A bucket is not a node: the record
//! that a word names validates that word alone.

use crate::limits::CACHE_LINE_BYTES;

/// Slots of one bucket.
pub const BUCKET_SLOTS: usize = 7;
/// Bytes of one bucket.
pub const BUCKET_BYTES: usize = 64;
/// The bit of the header that says "keys have moved from here or to here".
pub const MOVED_BIT: u64 = 1 << 7;
/// Largest depth that a header can tell.
pub const MAX_DEPTH: u32 = (1 << 6) - 1;

const LINK_SHIFT: u32 = 8;
const LINK_MASK: u64 = 0xffff_ffff << LINK_SHIFT;
const DEPTH_SHIFT: u32 = 40;
const DEPTH_MASK: u64 = (MAX_DEPTH as u64) << DEPTH_SHIFT;

/// A bucket's header word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketHeader(pub u64);

impl BucketHeader {
    /// The seven bits that say which slots are used.
    #[inline]
    pub const fn used(self) -> u8 {
        (self.0 & 0x7f) as u8
    }

    /// Whether keys have left or come by a split since the table was made.
    #[inline]
    pub const fn moved(self) -> bool {
        self.0 & MOVED_BIT != 0
    }

    /// The bucket's depth: 0 until keys have moved.
    #[inline]
    pub const fn depth(self) -> u32 {
        if self.moved() { ((self.0 & DEPTH_MASK) >> DEPTH_SHIFT) as u32 } else { 0 }
    }

    /// The header with another depth, at most [`MAX_DEPTH`].
    #[inline]
    #[must_use]
    pub const fn with_depth(self, depth: u32) -> Self {
        let rest = self.0 & !(DEPTH_MASK | MOVED_BIT);
        let moved = if depth > 0 { MOVED_BIT } else { 0 };
        Self(rest | moved | (depth as u64) << DEPTH_SHIFT & DEPTH_MASK)
    }

    /// The header with other slots in use.
    #[inline]
    #[must_use]
    pub const fn with_all_used(self, used: u8) -> Self {
        Self(self.0 & !0x7f | used as u64 & 0x7f)
    }

    /// Slot number of the overflow bucket, if any.
    #[inline]
    pub const fn overflow(self) -> Option<u32> {
        let link = (self.0 >> LINK_SHIFT) as u32;
        if link == 0 { None } else { Some(link) }
    }

    /// The header with slot `index` marked used or free.
    #[inline]
    #[must_use]
    pub const fn with_used(self, index: usize, used: bool) -> Self {
        let bit = 1u64 << index;
        Self(if used { self.0 | bit } else { self.0 & !bit })
    }

    /// The header with another overflow bucket; 0 for none.
    #[inline]
    #[must_use]
    pub const fn with_overflow(self, slot: u32) -> Self {
        Self(self.0 & !LINK_MASK | (slot as u64) << LINK_SHIFT)
    }
}

/// One slot word: where the record of a key with this signature may lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketSlot {
    /// The record's slot in the same region.
    pub slot: u32,
    /// Its size class: how many bytes to read.
    pub class: u8,
    /// Low bits of its generation.
    pub generation_low: u8,
    /// Signature of the key.
    pub signature: u16,
}

impl BucketSlot {
    /// The word as it stands in memory.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.slot as u64
            | (self.class as u64) << 32
            | (self.generation_low as u64) << 40
            | (self.signature as u64) << 48
    }

    /// The slot that a word encodes.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self {
            slot: word as u32,
            class: (word >> 32) as u8,
            generation_low: (word >> 40) as u8,
            signature: (word >> 48) as u16,
        }
    }
}

const _: () = assert!(BUCKET_BYTES == CACHE_LINE_BYTES && BUCKET_BYTES == 8 * (1 + BUCKET_SLOTS));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        let slot =
            BucketSlot { slot: 0xfedc_ba98, class: 77, generation_low: 5, signature: 0xabcd };
        assert_eq!(BucketSlot::from_word(slot.to_word()), slot);
        let header = BucketHeader::default().with_used(6, true).with_overflow(0xffff_ffff);
        assert_eq!((header.used(), header.overflow(), header.moved()), (64, Some(u32::MAX), false));
        assert_eq!(header.with_used(6, false).with_overflow(0), BucketHeader::default());
        let deep = header.with_depth(MAX_DEPTH);
        assert_eq!((deep.used(), deep.overflow(), deep.depth()), (64, Some(u32::MAX), 63));
        assert!(deep.moved() && deep.0 >> 46 == 0);
        assert_eq!(deep.with_all_used(0x7f).used(), 0x7f);
        assert_eq!(deep.with_depth(0), header);
        assert_eq!(BucketHeader(!MOVED_BIT).depth(), 0, "no depth counts before keys have moved");
    }
}

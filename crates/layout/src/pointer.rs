//! Remote pointers: the location of a record, and the generation that it must have.
//!
//! ```text
//!   0        4        8        12       16
//!   +--------+--------+--------+--------+
//!   | region |  slot  | length | genera-|
//!   |        |        | bytes  | tion   |
//!   +--------+--------+--------+--------+
//! ```
//! All data models use the same 16 bytes. `slot` counts units of [`SLOT_UNIT_BYTES`]; `length` is
//! the record's own length, so that one READ fetches exactly it (HydraDB 4.2.2; KELI 3.2).

use crate::limits::SLOT_UNIT_BYTES;

/// A pointer that any peer can follow with one READ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct RemotePointer {
    /// The region (arena) that holds the record.
    pub region: u32,
    /// The slot, in units of [`SLOT_UNIT_BYTES`] from the region's start.
    pub slot: u32,
    /// Bytes to read: the record with its header; 0 means "no pointer".
    pub length: u32,
    /// The generation that the slot must have.
    pub generation: u32,
}

impl RemotePointer {
    /// Bytes of an encoded pointer.
    pub const BYTES: usize = 16;

    /// No pointer: nothing to read.
    pub const NONE: Self = Self { region: 0, slot: 0, length: 0, generation: 0 };

    /// Whether this points anywhere.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.length != 0
    }

    /// Byte offset of the slot in its region.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.slot as u64 * SLOT_UNIT_BYTES as u64
    }

    /// The two words of the encoded pointer.
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        [
            self.region as u64 | (self.slot as u64) << 32,
            self.length as u64 | (self.generation as u64) << 32,
        ]
    }

    /// The pointer that two words encode.
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self {
            region: words[0] as u32,
            slot: (words[0] >> 32) as u32,
            length: words[1] as u32,
            generation: (words[1] >> 32) as u32,
        }
    }
}

const _: () = assert!(size_of::<RemotePointer>() == RemotePointer::BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        let pointer =
            RemotePointer { region: 3, slot: u32::MAX, length: 80, generation: 0xdead_beef };
        assert_eq!(RemotePointer::from_words(pointer.to_words()), pointer);
        assert!(pointer.is_some() && !RemotePointer::NONE.is_some());
    }
}

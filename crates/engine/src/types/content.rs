//! The sum of an object's content (DEBUG DIGEST).
//!
//! Invariant: the sum depends on the items alone, not on their order. Two items of different parts
//! are never added as the same bytes.

use crate::store::DumpAt;
use remora_layout::hash::digest;

/// The sum of some items, and where the next turn continues.
#[derive(Default)]
pub(crate) struct Content {
    sum: u128,
    /// Items that were added in this turn, and KiB of them.
    parts: usize,
    /// The type's own, kept between turns.
    pub at: DumpAt,
    scratch: Vec<u8>,
}

impl Content {
    /// Adds an item, given in parts.
    pub fn add(&mut self, parts: &[&[u8]]) {
        self.scratch.clear();
        for part in parts {
            self.scratch.extend_from_slice(&(part.len() as u64).to_le_bytes());
            self.scratch.extend_from_slice(part);
        }
        self.parts += 1 + self.scratch.len() / 1024;
        self.sum = self.sum.wrapping_add(digest(&self.scratch));
    }

    /// The sum so far.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Begins another sum, in the same memory.
    pub fn restart(&mut self) {
        (self.sum, self.at) = (0, None);
    }

    /// Begins another turn.
    pub fn begin_turn(&mut self) {
        self.parts = 0;
    }

    /// The work of this turn: items, and KiB of them.
    pub fn turn_parts(&self) -> usize {
        self.parts
    }
}

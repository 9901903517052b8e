//! What is known of the bins of an object of members beside its parts (`crate::elements::bins`).

use remora_layout::hash::KeyHash;
use remora_layout::limits::{BIN_MEMBERS, OBJECT_BASE_BUCKETS};
use remora_layout::table::TableShape;

/// Counts of an object's members, and how many bins it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bins {
    /// Its buckets are the bins.
    pub shape: TableShape,
    /// Members in bins.
    pub binned: u64,
    /// Members that are parts of their own, the spilled ones included.
    pub own: u64,
    /// Short ones among them.
    pub spilled: u64,
    /// How many changes of members there were.
    pub changes: u64,
}

impl Default for Bins {
    fn default() -> Self {
        let base = OBJECT_BASE_BUCKETS;
        let shape = TableShape::of_object(base, base).expect("a power of two");
        Self { shape, binned: 0, own: 0, spilled: 0, changes: 0 }
    }
}

impl Bins {
    /// How many members there are.
    pub const fn members(&self) -> u64 {
        self.binned + self.own
    }

    /// Whether any members are parts of their own.
    pub const fn has_own(&self) -> bool {
        self.own > 0
    }

    /// Bins, with parts or without.
    pub const fn count(&self) -> u64 {
        self.shape.buckets()
    }

    /// The bin of a short member with this hash.
    #[inline]
    pub const fn bin_of(&self, hash: KeyHash) -> u32 {
        hash.bucket(self.count()) as u32
    }

    /// Whether it has so many members that the next bin is to be split.
    pub fn wants_split(&self) -> bool {
        self.binned > self.count() * BIN_MEMBERS && self.shape.grown().is_some()
    }
}

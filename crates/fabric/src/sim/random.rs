//! The seeded generator of a simulated world: SplitMix64.

use std::ops::RangeInclusive;

/// Numbers that depend on the seed alone.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        // The bias is below 2^-32 for all bounds that a simulation uses.
        ((self.number() as u128 * bound as u128) >> 64) as u64
    }

    /// A number of the range.
    pub fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        range.start() + self.below((range.end() - range.start()).saturating_add(1))
    }

    /// True so often in a million.
    pub fn happens(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < ppm as u64
    }
}

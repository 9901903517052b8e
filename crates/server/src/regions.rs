//! Numbers of regions, by which records and pointers name an arena.
//!
//! Invariant: a number is given out once in a server's incarnation, so that a pointer into a former
//! arena never leads into another. The number is neither the shard's nor the one by which a link
//! addresses the region; the hello maps shards to numbers.

use remora_layout::limits::MAX_REGIONS;

/// The numbers that are left.
pub struct RegionNumbers(u32);

impl RegionNumbers {
    /// Begins anywhere, so that another incarnation hardly has the same numbers, but
    /// beyond those by which links address regions.
    pub fn begin(random: u64) -> Self {
        Self((random as u32 >> 1).max(MAX_REGIONS as u32))
    }

    /// A number that was never given out.
    ///
    /// # Panics
    /// Two thousand million were.
    pub fn next(&mut self) -> u32 {
        let number = self.0;
        self.0 = number.checked_add(1).expect("regions are not made that often");
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unlike_each_other_and_unlike_those_of_links() {
        for random in [0, 1, u64::MAX, 77 << 20] {
            let mut numbers = RegionNumbers::begin(random);
            let some: Vec<u32> = (0..1_000).map(|_| numbers.next()).collect();
            assert!(some.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(some[0] >= MAX_REGIONS as u32);
        }
    }
}

//! Fingerprints of keys that were evicted lately.
//!
//! ```text
//!  cell   | fingerprint 24 | age 8 |      eight cells a bucket; 0: empty
//! ```
//! Invariant: the ghost remembers about as many keys as configured, the latest ones. It may forget
//! a key early if its bucket is crowded. It may take a key for another one with a chance of one in
//! two million, or take an old key for a recent one after the ages have wrapped. Each of these
//! costs at most one hit.

const BUCKET_CELLS: usize = 8;
/// Smallest table, in cells.
const MIN_CELLS: usize = 64;
/// Ages that the ghost remembers, of 255 that it distinguishes (1 to 255).
const KEPT_AGES: u32 = 64;
const AGES: u32 = 255;

/// The memory of evicted keys; empty until the first is remembered.
#[derive(Default)]
pub struct Ghost {
    cells: Vec<u32>,
    /// The present age, 0 to 254.
    age: u32,
    /// Keys remembered under it.
    in_age: usize,
}

impl Ghost {
    /// Remembers a key, and about `keys - 1` before it.
    pub fn remember(&mut self, fingerprint: u64, keys: usize) {
        // A quarter more cells than keys, as buckets fill unevenly.
        let wanted = (keys + keys / 4).next_power_of_two().max(MIN_CELLS);
        if wanted > self.cells.len() {
            self.grow(wanted);
        }
        if self.in_age >= (keys / KEPT_AGES as usize).max(1) {
            self.age = (self.age + 1) % AGES;
            self.in_age = 0;
        }
        self.in_age += 1;
        let cell = Self::tag(fingerprint) << 8 | (self.age + 1);
        let age = self.age;
        let bucket = self.bucket(fingerprint);
        let oldest = bucket
            .iter_mut()
            .max_by_key(|old| if **old == 0 { u32::MAX } else { age_of(**old, age) })
            .expect("a bucket has cells");
        *oldest = cell;
    }

    /// Whether a key is remembered; it is no longer.
    pub fn forget(&mut self, fingerprint: u64) -> bool {
        if self.cells.is_empty() {
            return false;
        }
        let (age, tag) = (self.age, Self::tag(fingerprint));
        let found = self
            .bucket(fingerprint)
            .iter_mut()
            .find(|cell| **cell != 0 && **cell >> 8 == tag && age_of(**cell, age) < KEPT_AGES);
        found.map(|cell| *cell = 0).is_some()
    }

    pub fn heap_bytes(&self) -> usize {
        self.cells.len() * size_of::<u32>()
    }

    /// A larger table: cells keep their low bits, so that each key is found
    /// in either bucket that may be its own.
    fn grow(&mut self, cells: usize) {
        let old = std::mem::replace(&mut self.cells, vec![0; cells]);
        if old.is_empty() {
            return;
        }
        for (at, cell) in self.cells.iter_mut().enumerate() {
            *cell = old[at % old.len()];
        }
    }

    fn tag(fingerprint: u64) -> u32 {
        (fingerprint >> 32) as u32 & 0xff_ffff
    }

    fn bucket(&mut self, fingerprint: u64) -> &mut [u32] {
        let buckets = self.cells.len() / BUCKET_CELLS;
        let from = (fingerprint as usize & (buckets - 1)) * BUCKET_CELLS;
        &mut self.cells[from..from + BUCKET_CELLS]
    }
}

/// How many ages ago a cell was written.
fn age_of(cell: u32, now: u32) -> u32 {
    (now + AGES - ((cell & 255) - 1)) % AGES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: u64) -> u64 {
        let mut mixed = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    #[test]
    fn the_latest_are_remembered_and_older_ones_are_not() {
        const KEYS: usize = 10_000;
        let mut ghost = Ghost::default();
        (0..100_000).for_each(|key| ghost.remember(hash(key), KEYS));
        let mut count =
            |range: std::ops::Range<u64>| range.filter(|&key| ghost.forget(hash(key))).count();
        let old = count(0..100_000 - 10_200);
        assert!(old < 20, "{old} of those too old");
        let kept = count(100_000 - 9_800..100_000);
        assert!(kept > 9_300, "{kept} of 9800");
        assert_eq!(count(100_000 - 9_800..100_000), 0, "each is forgotten when it is met");
        assert_eq!(count(200_000..300_000), 0, "strangers");
    }

    #[test]
    fn growing_forgets_nobody() {
        let mut ghost = Ghost::default();
        for key in 0..3_000 {
            ghost.remember(hash(key), 3_000.max(key as usize * 4));
        }
        let kept = (0..3_000).filter(|&key| ghost.forget(hash(key))).count();
        assert!(kept > 2_950, "{kept}");
    }

    #[test]
    fn ages_come_round_without_waking_the_dead() {
        let mut ghost = Ghost::default();
        ghost.remember(hash(1), 64);
        // Elsewhere, so that the cell is never written again.
        for _ in 0..200 {
            ghost.remember(hash(2), 64);
        }
        assert!(!ghost.forget(hash(1)));
    }
}

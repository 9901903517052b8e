//! Sorted sets in a world: a seed's choices for them.
//!
//! Members of a set are registers, as fields of a hash are. The number of one is its score.

use crate::values::{HashName, Register, member_name};
use remora_fabric::sim::Random;

/// Mixed into the seed: the draws for sorted sets change no other draws.
const SALT: u64 = 0x736f_7274_6564_2121;
/// Operations of a world with sorted sets at most.
pub const SORTED_OPERATIONS: u64 = 1_500;
/// Scores whose order is not that of their making differ by this. All scores are below 2^53: exact.
const SCORE_UNIT: i64 = 1_000_000_000_000;
/// One score in so many is one that several members have.
const SHARED_ONCE_IN: u64 = 8;

/// A seed's choice of sorted sets.
#[derive(Clone, Copy, Debug)]
pub struct SortedSwarm {
    /// Sets of each database.
    pub sets: u8,
    /// Members of a set have numbers below.
    pub members: u32,
    /// Scores are spread over so many units.
    pub spread: u64,
    /// Inner nodes that a client keeps, in bytes.
    pub kept_bytes: usize,
    /// Members of one change, or of a run of changes, at most.
    pub most_at_once: u64,
    /// For so many ns clients mostly add members, and then mostly remove them for the same time.
    pub tide_ns: u64,
    /// How many of a hundred operations are about sorted sets.
    pub percent: u64,
    /// Operations, of a thousand on a set, that remove it or let it expire.
    pub ends: u64,
}

impl SortedSwarm {
    /// A seed's draw. Some sets stay small, and others become trees and small again.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ SALT);
        let mut one_of = |of: [u64; 4]| of[random.below(4) as usize];
        Self {
            sets: one_of([1, 1, 2, 3]) as u8,
            members: one_of([8, 60, 200, 400]) as u32,
            spread: one_of([1, 4, 100, 1_000]),
            kept_bytes: one_of([0, 2_000, 1 << 20, 1 << 20]) as usize,
            most_at_once: one_of([1, 10, 40, 200]),
            tide_ns: one_of([200_000, 2_000_000, 50_000_000, 2_000_000_000]),
            percent: one_of([50, 70, 90, 90]),
            ends: one_of([0, 3, 10, 30]),
        }
    }

    /// A score for a number that no value stood for before: no member had it, unless it is one of a few
    /// that members share.
    pub fn score(&self, number: i64, draw: impl Fn(u64) -> u64) -> i64 {
        let is_shared = draw(SHARED_ONCE_IN) == 0;
        self.place(draw) + if is_shared { 0 } else { number }
    }

    /// A score that no member had.
    pub fn new_score(&self, number: i64, draw: impl Fn(u64) -> u64) -> i64 {
        self.place(draw) + number
    }

    fn place(&self, draw: impl Fn(u64) -> u64) -> i64 {
        SCORE_UNIT * (draw(self.spread) as i64 - self.spread as i64 / 2)
    }
}

/// The number that is this score; `None` if no client gives such a score.
pub fn number_of_score(score: f64) -> Option<i64> {
    let number = score as i64;
    (number as f64 == score && number.unsigned_abs() < 1 << f64::MANTISSA_DIGITS).then_some(number)
}

/// The register of a member of a set; `None` if no client adds such a member.
pub fn register_of_member(database: u8, set: u8, name: &[u8], below: u32) -> Option<Register> {
    let text = std::str::from_utf8(name).ok()?;
    let digits = text.strip_prefix("member:")?.split(' ').next()?;
    let number = digits.parse::<u32>().ok()?;
    let is_it = number < below && member_name(set, number) == name;
    is_it.then_some(Register { database, hash: Some(HashName::Sorted(set)), number })
}

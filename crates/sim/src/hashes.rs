//! Hashes in a world: a seed's choices for them.

use crate::values::Lengths;
use remora_engine::evict::Eviction;
use remora_fabric::sim::Random;
use std::collections::BTreeSet;
use std::iter;

/// Mixed into the seed: the draws for hashes change no other draws.
const SALT: u64 = 0x6861_7368_5f6f_6666;

/// Fields whose expiry, with their hash's, is judged as a key's expiry.
pub const JUDGED_EXPIRY: [u32; 2] = [0, 2];

/// A seed's choice of hashes.
#[derive(Clone, Copy, Debug)]
pub struct HashSwarm {
    /// Hashes of each database; 0: none.
    pub hashes: u8,
    /// Fields of a hash have numbers below: an even number of them.
    pub fields: u32,
    /// How long their values are.
    pub lengths: Lengths,
    /// How many of a hundred operations are about hashes.
    pub percent: u64,
    /// Whether some hashes go from key to key.
    pub moves: bool,
    /// Operations, of a thousand on a hash, that remove it or let it expire.
    pub ends: u64,
}

impl HashSwarm {
    /// The field that is always set and removed together with this one, in one call:
    /// a call that reads both sees values of one number. Counters have none.
    pub fn twin_of(&self, field: u32) -> Option<u32> {
        let twin = field ^ 2;
        (field.is_multiple_of(2) && twin < self.fields).then_some(twin)
    }

    /// Fields, and their twins.
    pub fn with_twins(&self, fields: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
        fields.into_iter().flat_map(|field| iter::once(field).chain(self.twin_of(field))).collect()
    }

    /// A seed's draw: hashes in one world of three. They lie whole in their records, or get a field
    /// table from the first long value on, or from this many fields on.
    pub fn of(seed: u64, eviction: Eviction) -> Self {
        let mut random = Random::new(seed ^ SALT);
        let has_hashes = random.below(3) == 0;
        let mut one_of = |of: [u64; 4]| of[random.below(4) as usize];
        let hashes = one_of([1, 1, 2, 3]) as u8;
        Self {
            hashes: if has_hashes { hashes } else { 0 },
            fields: one_of([4, 10, 100, 200]) as u32,
            lengths: Lengths {
                most_bytes: one_of([20, 50, 2_000, 2_000]),
                one_for_each_key: false,
            },
            percent: one_of([20, 40, 60, 80]),
            ends: one_of([0, 3, 30, 100]),
            // The client that moves a hash must know its content.
            moves: one_of([0, 1, 0, 1]) == 1 && has_hashes && eviction == Eviction::None,
        }
    }
}

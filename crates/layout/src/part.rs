//! How the parts of an object are bound to its root record: records of a kind of
//! their own ([`crate::kind::Kind::is_part`]), found by name through a table whose
//! head lies in the root record ([`crate::table::TableHead::of_object`]).
//!
//! The root's slot and generation go into the hash of the names and into the seed of the parts'
//! checksums. So a reader never finds a part of another object, or of an earlier object in the same
//! slot, and such a part never passes the checks. In place of an expiry, word 1 of a part holds the
//! slot of its root record, for the owner that moves the part.

use crate::hash::mix;

/// The seed of the hash of the names of parts.
pub const fn part_hash_seed(hash_seed: u64, root_slot: u32, root_generation: u32) -> u64 {
    mix(hash_seed, root_word(root_slot, root_generation))
}

/// Replaces the arena's secret in the seed of the parts' checksums
/// ([`crate::record::checksum_seed`]).
pub const fn part_secret(secret: u64, root_slot: u32, root_generation: u32) -> u64 {
    mix(secret, !root_word(root_slot, root_generation))
}

/// A root record's slot and generation in one word; never 0, as no slot is.
pub const fn root_word(slot: u32, generation: u32) -> u64 {
    (slot as u64) << 32 | generation as u64
}

/// The slot and the generation that a [`root_word`] names.
pub const fn root_of_word(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_root_has_its_own_seeds() {
        let roots = (1..100).flat_map(|slot| (1..100).map(move |generation| (slot, generation)));
        let seeds: std::collections::BTreeSet<u64> = roots
            .flat_map(|(slot, at)| [part_hash_seed(7, slot, at), part_secret(7, slot, at)])
            .collect();
        assert_eq!(seeds.len(), 2 * 99 * 99);
        assert_eq!(root_of_word(root_word(7, 9)), (7, 9));
    }
}

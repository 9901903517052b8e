//! Databases: sixteen spaces of keys, as Redis has them.
//!
//! The number is part of a record's header, of the key's hash, and of what a
//! reader compares. Database 0 costs nothing: its seed is the cluster's own.

use crate::hash::mix;

/// Databases of a server: as many as Redis has by default, and as four bits
/// can number.
pub const DATABASES: usize = 16;

/// The number of a database, 0 to 15.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Database(u8);

impl Database {
    /// The database of connections and sessions that select none.
    pub const ZERO: Self = Self(0);

    /// The database with this number; `None` if there is none.
    pub const fn new(number: usize) -> Option<Self> {
        if number < DATABASES { Some(Self(number as u8)) } else { None }
    }

    /// The database that the low four bits of `bits` number.
    #[inline(always)]
    pub const fn of_bits(bits: u64) -> Self {
        Self(bits as u8 & 15)
    }

    /// Its number.
    #[inline(always)]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..DATABASES as u8).map(Self)
    }

    /// The seed of its keys' hashes, in a cluster with this seed.
    #[inline(always)]
    pub const fn seed(self, seed: u64) -> u64 {
        if self.0 == 0 { seed } else { seed ^ mix(self.0 as u64, 0x6461_7461_6261_7365) }
    }
}

const _: () = assert!(DATABASES == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_sixteen_and_each_has_a_seed_of_its_own() {
        assert_eq!(Database::new(DATABASES), None);
        let seeds: std::collections::BTreeSet<u64> =
            Database::all().map(|database| database.seed(7)).collect();
        assert_eq!((seeds.len(), Database::ZERO.seed(7)), (DATABASES, 7));
        for database in Database::all() {
            assert_eq!(Database::new(database.number() as usize), Some(database));
            assert_eq!(Database::of_bits(0xf0 | database.number() as u64), database);
        }
    }
}

//! The hash of keys: 64 bits of XXH3, seeded per cluster.
//!
//! ```text
//!  63            48 47            32 31                             0
//! +-----+----------+----------------+--------------------------------+
//! | db  |   free   |   signature    |             bucket             |
//! +-----+----------+----------------+--------------------------------+
//! ```
//! Signature and bucket use disjoint bits, so the two are independent (design, "Memory"; HydraDB
//! 4.1.3). The shard comes from the key's slot ([`crate::slot`]), which is independent of this
//! hash. The highest four bits are not hashed: they number the key's database, so that a lookup by
//! hash looks in one database.

use crate::database::Database;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed, xxh3_128};

/// Lowest of the bits that number a key's database.
const DATABASE_SHIFT: u32 = 60;

/// A key's database, and 60 bits of its hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Hash of a key of database 0 under the cluster's seed.
    #[inline]
    pub fn of(key: &[u8], seed: u64) -> Self {
        Self::within(Database::ZERO, key, seed)
    }

    /// Hash of a key of a database under the cluster's seed.
    #[inline]
    pub fn within(database: Database, key: &[u8], seed: u64) -> Self {
        let hash = xxh3_64_with_seed(key, seed_of(database, seed));
        Self(hash & !(15 << DATABASE_SHIFT) | (database.number() as u64) << DATABASE_SHIFT)
    }

    /// The hash for a command that has no key: it holds only the database.
    #[inline(always)]
    pub const fn without_key(database: Database) -> Self {
        Self((database.number() as u64) << DATABASE_SHIFT)
    }

    /// The key's database.
    #[inline(always)]
    pub const fn database(self) -> Database {
        Database::of_bits(self.0 >> DATABASE_SHIFT)
    }

    /// The 16-bit signature kept in a bucket slot (HydraDB 4.1.3, H9).
    #[inline]
    pub const fn signature(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// The bucket among `buckets` (1 to 2^32), by linear hashing. The round is the largest power of
    /// two that is not larger than `buckets`. The bucket is the hash modulo twice the round if that
    /// bucket exists, otherwise the hash modulo the round.
    #[inline(always)]
    pub const fn bucket(self, buckets: u64) -> u64 {
        let round = 1u64 << buckets.ilog2();
        let wide = (self.0 & 0xffff_ffff) & (2 * round - 1);
        if wide < buckets { wide } else { wide & (round - 1) }
    }
}

/// The seed of a database's hashes, in a cluster with this seed. Database 0 costs
/// nothing: its seed is the cluster's own.
#[inline(always)]
const fn seed_of(database: Database, seed: u64) -> u64 {
    match database.number() {
        0 => seed,
        number => seed ^ mix(number as u64, 0x6461_7461_6261_7365),
    }
}

/// Checksum of bytes that cross a fabric, keyed by `seed`.
#[inline]
pub fn checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// 128 bits by which servers compare bytes: the same on every server.
#[inline]
pub fn digest(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

/// Computes a [`checksum`] of bytes that arrive in pieces, with the same result. The value takes
/// half a KiB: keep it in a box.
pub struct PieceChecksum(Xxh3);

impl PieceChecksum {
    /// The checksum of no bytes yet, keyed by `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Xxh3::with_seed(seed))
    }

    /// Takes the next piece, of any length.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The checksum of all pieces so far.
    pub fn digest(&self) -> u64 {
        self.0.digest()
    }
}

/// Mixes two words into a seed, for a checksum that has to cover numbers that are not part of its
/// bytes (slot, generation, direction).
#[inline]
pub const fn mix(a: u64, b: u64) -> u64 {
    let x = (a ^ 0x9e37_79b9_7f4a_7c15).wrapping_add(b.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_its_database_and_its_bits_differ_by_it() {
        let mut seen = std::collections::BTreeSet::new();
        for database in Database::all() {
            let hash = KeyHash::within(database, b"remora", 7);
            assert_eq!(hash.database(), database);
            assert!(seen.insert((hash.signature(), hash.0 as u32)), "another place in the table");
            assert_eq!(KeyHash::without_key(database).database(), database);
        }
        assert_eq!(KeyHash::within(Database::ZERO, b"remora", 7), KeyHash::of(b"remora", 7));
    }

    #[test]
    fn each_database_has_a_seed_of_its_own() {
        let seeds: std::collections::BTreeSet<u64> =
            Database::all().map(|database| seed_of(database, 7)).collect();
        assert_eq!((seeds.len(), seed_of(Database::ZERO, 7)), (crate::database::DATABASES, 7));
    }

    #[test]
    fn pieces_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..5_000u32).map(|at| ((at * at) >> 3) as u8).collect();
        // Around every length at which XXH3 takes another code path.
        for length in [0, 1, 3, 8, 16, 17, 128, 129, 240, 241, 256, 1024, 1025, 4_999, 5_000] {
            for step in [1, 7, 64, 255, 256, 257, 5_000] {
                let mut sum = PieceChecksum::new(length as u64);
                for piece in bytes[..length].chunks(step) {
                    sum.update(piece);
                }
                assert_eq!(sum.digest(), checksum(&bytes[..length], length as u64));
            }
        }
    }

    #[test]
    fn the_hash_is_pinned() {
        // XXH3 is specified; other languages must compute the same.
        assert_eq!(checksum(b"", 0), 0x2d06_8005_38d3_94c2);
        assert_eq!(KeyHash::of(b"", 0).0, 0x0d06_8005_38d3_94c2);
        assert_eq!(xxh3_64_with_seed(b"remora", 7) << 4 >> 4, KeyHash::of(b"remora", 7).0);
    }
}

//! The hash of keys: 64 bits of XXH3, seeded per cluster.
//!
//! ```text
//!  63            48 47            32 31                             0
//! +----------------+----------------+--------------------------------+
//! |   partition    |   signature    |             bucket             |
//! +----------------+----------------+--------------------------------+
//! ```
//! Shard, signature and bucket use disjoint bits, so that knowing one says
//! nothing about another (design, "Memory"; HydraDB 4.1.1 and 4.1.3).

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// A key's 64-bit hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Hash of `key` under the cluster's seed.
    #[inline]
    pub fn of(key: &[u8], seed: u64) -> Self {
        Self(xxh3_64_with_seed(key, seed))
    }

    /// The 16-bit signature kept in a bucket slot (HydraDB 4.1.3, H9).
    #[inline]
    pub const fn signature(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// The bucket among `buckets` (1 to 2^32), by linear hashing: with `round`
    /// the largest power of two that is not larger, the hash modulo twice the
    /// round if there is such a bucket, else modulo the round.
    #[inline(always)]
    pub const fn bucket(self, buckets: u64) -> u64 {
        let round = 1u64 << buckets.ilog2();
        let wide = (self.0 & 0xffff_ffff) & (2 * round - 1);
        if wide < buckets { wide } else { wide & (round - 1) }
    }

    /// The shard among `shards`, by consistent hashing of the upper 16 bits
    /// (H1): when a shard is added, only the keys that it takes over move.
    #[inline]
    pub fn shard(self, shards: usize) -> usize {
        if shards <= 1 {
            return 0;
        }
        jump_consistent(self.0 >> 48, shards)
    }
}

/// Jump consistent hash (Lamping and Veach, arXiv:1406.2294) of a 16-bit
/// partition. The bound of the loop is `shards`.
fn jump_consistent(partition: u64, shards: usize) -> usize {
    // The generator of the paper needs well-mixed input; partitions are small
    // integers, so they are spread over 64 bits first.
    let mut state = partition.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut chosen = 0usize;
    let mut next = 0usize;
    while next < shards {
        chosen = next;
        state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let draw = ((state >> 33) + 1) as f64;
        next = ((chosen + 1) as f64 * ((1u64 << 31) as f64 / draw)) as usize;
    }
    chosen
}

/// Checksum of bytes that cross a fabric, keyed by `seed`.
#[inline]
pub fn checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// A [`checksum`] of bytes that come one piece after the other, with the same
/// result. Half a KiB large: to be kept in a box.
pub struct PieceChecksum(Xxh3);

impl PieceChecksum {
    /// The checksum of nothing yet, keyed by `seed`.
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

/// Mixes two words into a seed; used where a checksum has to cover numbers
/// that are not part of its bytes (slot, generation, direction).
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
    fn shards_share_the_partitions_evenly() {
        for shards in [1usize, 2, 3, 7, 64] {
            let mut counts = vec![0u32; shards];
            for partition in 0..65_536u64 {
                counts[KeyHash(partition << 48).shard(shards)] += 1;
            }
            let mean = 65_536 / shards as u32;
            for count in counts {
                assert!(count > mean * 8 / 10 && count < mean * 12 / 10, "{count} of {mean}");
            }
        }
    }

    #[test]
    fn a_new_shard_takes_keys_and_moves_no_others() {
        for shards in 1..20usize {
            for partition in (0..65_536u64).step_by(7) {
                let before = KeyHash(partition << 48).shard(shards);
                let after = KeyHash(partition << 48).shard(shards + 1);
                assert!(after == before || after == shards);
            }
        }
    }

    #[test]
    fn pieces_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..5_000u32).map(|at| ((at * at) >> 3) as u8).collect();
        // Around every length at which XXH3 takes another way.
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
        // XXH3 is specified; other languages must compute the same shard.
        assert_eq!(KeyHash::of(b"", 0).0, 0x2d06_8005_38d3_94c2);
        assert_eq!(xxhash_rust::xxh3::xxh3_64_with_seed(b"remora", 7), KeyHash::of(b"remora", 7).0);
    }
}

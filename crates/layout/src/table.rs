//! Where the buckets of a table that grows stand (linear hashing, decision
//! 0012): pure arithmetic that its writer and its readers share.
//!
//! ```text
//!  buckets 0 .. base                    side by side, at the table's offset
//!  doubling d: base << d .. base << d+1 up to 32 chunks, each taken from the
//!                                       arena when its first bucket is made
//!  directory entry 32 d + c             chunk c of doubling d: its byte offset
//!                                       / 64, 32 bits, two to a word; 0: none
//! ```
//! Buckets are only ever added at the end, and none ever changes its place.
//! A bucket's *depth* is the number of hash bits, beyond those that number
//! `base` buckets, by which its keys were chosen: bucket `i` of depth `d`
//! holds the keys whose hash is `i` modulo `base << d`.

use crate::arena_header::{ARENA_HEADER_BYTES, word};
use crate::bucket::{BUCKET_BYTES, MAX_DEPTH};
use crate::limits::{CHUNKS_PER_DOUBLING, MAX_DOUBLINGS, SMALLEST_CHUNK_BUCKETS};

/// Entries of the directory.
pub const DIRECTORY_ENTRIES: usize = CHUNKS_PER_DOUBLING as usize * MAX_DOUBLINGS as usize;
/// Bytes by which directory entries count.
pub const CHUNK_UNIT_BYTES: u64 = 64;
/// Most buckets of any table: as many as 32 bits of a hash can number.
pub const MAX_BUCKETS: u64 = 1 << 32;

/// How many buckets a table began with, and how many it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableShape {
    base_log2: u32,
    buckets: u64,
}

/// Where a bucket beyond the first `base` stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkPlace {
    /// The directory entry of its chunk.
    pub entry: usize,
    /// Its number in the chunk.
    pub within: u64,
}

impl TableShape {
    /// A shape from numbers that may have come from elsewhere; `None` if no
    /// table can have it.
    pub fn checked(base: u64, buckets: u64) -> Option<Self> {
        if !base.is_power_of_two() || base > MAX_BUCKETS {
            return None;
        }
        let shape = Self { base_log2: base.ilog2(), buckets };
        (base..=shape.most_buckets()).contains(&buckets).then_some(shape)
    }

    /// Buckets that the table began with: a power of two.
    #[inline(always)]
    pub const fn base(self) -> u64 {
        1 << self.base_log2
    }

    /// Buckets that it has.
    #[inline(always)]
    pub const fn buckets(self) -> u64 {
        self.buckets
    }

    /// Buckets that it can have: what the directory can name.
    pub fn most_buckets(self) -> u64 {
        (self.base() << MAX_DOUBLINGS).min(MAX_BUCKETS)
    }

    /// The shape after one more split; `None` when the directory ends.
    pub fn grown(self) -> Option<Self> {
        let buckets = self.buckets + 1;
        (buckets <= self.most_buckets()).then_some(Self { buckets, ..self })
    }

    /// Buckets when the present round of splits began: a power of two.
    #[inline(always)]
    const fn round(self) -> u64 {
        1 << self.buckets.ilog2()
    }

    /// The bucket that is split next; its other half is bucket
    /// [`TableShape::buckets`].
    pub const fn splits_next(self) -> u64 {
        self.buckets - self.round()
    }

    /// The depth of a bucket of this table.
    #[inline(always)]
    pub const fn depth(self, bucket: u64) -> u32 {
        let rounds = self.buckets.ilog2() - self.base_log2;
        let split = bucket < self.splits_next() || bucket >= self.round();
        rounds + split as u32
    }

    /// Where a bucket stands; `None` for one of the first `base`.
    #[inline(always)]
    pub fn chunk_place(self, bucket: u64) -> Option<ChunkPlace> {
        if bucket < self.base() {
            return None;
        }
        let doubling = bucket.ilog2() - self.base_log2;
        let chunk_log2 = self.chunk_log2(doubling);
        let within_doubling = bucket - (self.base() << doubling);
        let chunk = within_doubling >> chunk_log2;
        Some(ChunkPlace {
            entry: doubling as usize * CHUNKS_PER_DOUBLING as usize + chunk as usize,
            within: within_doubling & ((1 << chunk_log2) - 1),
        })
    }

    /// Byte offset of a bucket, given the table's offset and directory.
    #[inline(always)]
    pub fn bucket_offset(self, bucket: u64, table_offset: u64, directory: &[u32]) -> u64 {
        match self.chunk_place(bucket) {
            None => table_offset + bucket * BUCKET_BYTES as u64,
            Some(place) => {
                directory[place.entry] as u64 * CHUNK_UNIT_BYTES
                    + place.within * BUCKET_BYTES as u64
            }
        }
    }

    /// Bytes of a chunk of the doubling that `entry` belongs to.
    pub fn chunk_bytes(self, entry: usize) -> u64 {
        (BUCKET_BYTES as u64) << self.chunk_log2((entry as u64 / CHUNKS_PER_DOUBLING) as u32)
    }

    /// The directory entries that a table of this shape uses.
    pub fn entries(self) -> impl Iterator<Item = usize> {
        (0..MAX_DOUBLINGS).flat_map(move |doubling| {
            let first = self.base() << doubling;
            let made = self.buckets.min(first << 1).saturating_sub(first);
            let chunks = made.div_ceil(1 << self.chunk_log2(doubling));
            (0..chunks).map(move |chunk| (doubling as u64 * CHUNKS_PER_DOUBLING + chunk) as usize)
        })
    }

    /// A 32nd of the doubling, a page at least, the doubling at most.
    #[inline(always)]
    const fn chunk_log2(self, doubling: u32) -> u32 {
        let whole = self.base_log2 + doubling;
        let share = whole.saturating_sub(CHUNKS_PER_DOUBLING.ilog2());
        let least = SMALLEST_CHUNK_BUCKETS.ilog2();
        let least = if whole < least { whole } else { least };
        if share > least { share } else { least }
    }
}

const _: () = assert!(CHUNKS_PER_DOUBLING.is_power_of_two());
const _: () = assert!(SMALLEST_CHUNK_BUCKETS.is_power_of_two());
const _: () = assert!(MAX_DOUBLINGS <= MAX_DEPTH);
const _: () = assert!(word::DIRECTORY > word::ASLEEP + 7 && DIRECTORY_ENTRIES.is_multiple_of(2));
const _: () = assert!(word::DIRECTORY * 8 + DIRECTORY_ENTRIES * 4 <= ARENA_HEADER_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHash;

    /// The definition, with the two moduli spelled out.
    fn naive_bucket(hash: u64, base: u64, buckets: u64) -> (u64, u32) {
        let mut level = 0;
        while base << (level + 1) <= buckets {
            level += 1;
        }
        let split = buckets - (base << level);
        let wide = (hash & 0xffff_ffff) % (base << (level + 1));
        if wide < buckets {
            let deeper = wide < split || wide >= base << level;
            return (wide, level + deeper as u32);
        }
        ((hash & 0xffff_ffff) % (base << level), level)
    }

    proptest::proptest! {
        #[test]
        fn buckets_and_depths_are_those_of_the_definition(
            hash: u64, base_log2 in 0u32..20, more in 0u64..1 << 22,
        ) {
            let base = 1u64 << base_log2;
            let buckets = (base + more).min(base << 23);
            let shape = TableShape::checked(base, buckets).unwrap();
            let bucket = KeyHash(hash).bucket(buckets);
            assert_eq!((bucket, shape.depth(bucket)), naive_bucket(hash, base, buckets));
            assert!(bucket < buckets);
            // What "depth" means: the hash modulo `base << depth` is the bucket.
            let modulus = base << shape.depth(bucket);
            assert_eq!((hash & 0xffff_ffff) & (modulus - 1), bucket);
            // One split moves a key to the new bucket or not at all.
            let Some(grown) = shape.grown() else { return Ok(()) };
            let after = KeyHash(hash).bucket(grown.buckets());
            assert!(after == bucket || (bucket == shape.splits_next() && after == buckets));
        }
    }

    #[test]
    fn every_bucket_has_a_place_of_its_own() {
        for base in [1u64, 2, 16, 64, 1024] {
            let buckets = (base << 5) + 7;
            let shape = TableShape::checked(base, buckets).unwrap();
            let used: Vec<usize> = shape.entries().collect();
            // Chunks laid out one behind the other, from 1 MiB on.
            let mut directory = vec![0u32; DIRECTORY_ENTRIES];
            let mut next = 1 << 20;
            for &entry in &used {
                directory[entry] = (next / CHUNK_UNIT_BYTES) as u32;
                next += shape.chunk_bytes(entry);
            }
            let mut places: Vec<u64> =
                (0..buckets).map(|bucket| shape.bucket_offset(bucket, 4096, &directory)).collect();
            assert!(places.iter().all(|&place| place < next));
            places.sort_unstable();
            assert!(places.windows(2).all(|pair| pair[0] + 64 <= pair[1]), "base {base}");
            for entry in (base..buckets).filter_map(|bucket| shape.chunk_place(bucket)) {
                assert!(used.contains(&entry.entry));
            }
        }
    }

    #[test]
    fn impossible_shapes_are_refused() {
        for (base, buckets) in [(0, 0), (3, 3), (4, 3), (1, (1 << 23) + 1), (1 << 33, 1 << 33)] {
            assert_eq!(TableShape::checked(base, buckets), None, "{base} {buckets}");
        }
        let last = TableShape::checked(1, 1 << 23).unwrap();
        assert_eq!(last.grown(), None);
        assert_eq!(last.entries().last(), Some(DIRECTORY_ENTRIES - 1));
        assert!(TableShape::checked(1 << 32, 1 << 32).unwrap().grown().is_none());
        assert!(TableShape::checked(u64::MAX, u64::MAX).is_none());
    }
}

//! Where the buckets of a growing table lie (linear hashing, decision 0012): pure arithmetic that
//! its writer and its readers share.
//!
//! ```text
//!  buckets 0 .. base                    side by side, at the table's offset
//!  doubling d: base << d .. base << d+1 up to 32 chunks, each taken from the
//!                                       arena when its first bucket is made
//!  directory entry 32 d + c             chunk c of doubling d: its byte offset
//!                                       / 64, 32 bits, two to a word; 0: none
//! ```
//! The writer adds buckets only at the end, and no bucket ever changes its place. A bucket's
//! *depth* is the number of hash bits, beyond those that number `base` buckets, that selected its
//! keys: bucket `i` of depth `d` holds the keys whose hash is `i` modulo `base << d`.

use crate::arena_header::{self, ARENA_HEADER_BYTES};
use crate::bucket::{BUCKET_BYTES, MAX_DEPTH};
use crate::hash::KeyHash;
use crate::limits::{
    CHUNKS_PER_DOUBLING, MAX_DOUBLINGS, OBJECT_BASE_BUCKETS, OBJECT_CHUNKS_PER_DOUBLING,
    SMALLEST_CHUNK_BUCKETS,
};

/// Entries of the directory of a shard's table.
pub const DIRECTORY_ENTRIES: usize = CHUNKS_PER_DOUBLING as usize * MAX_DOUBLINGS as usize;
/// Entries of the directory of an object's table.
pub const OBJECT_DIRECTORY_ENTRIES: usize =
    OBJECT_CHUNKS_PER_DOUBLING as usize * MAX_DOUBLINGS as usize;

/// Where a table's numbers lie: word offsets in the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableHead {
    /// Number of buckets that it began with.
    pub base: usize,
    /// Number of buckets.
    pub buckets: usize,
    /// First word of the directory.
    pub directory: usize,
}

impl TableHead {
    /// A shard's table: its numbers stand in the arena's header page.
    pub const SHARD: Self = Self {
        base: arena_header::word::BASE_BUCKETS,
        buckets: arena_header::word::BUCKETS,
        directory: arena_header::word::DIRECTORY,
    };

    /// An object's table: its numbers stand in the state block that begins at this
    /// word, behind the guardian.
    ///
    /// ```text
    /// state block  guardian 8 | base buckets 8 | buckets 8 | directory 368 | 0 8 | the first buckets
    /// ```
    pub const fn of_object(state: usize) -> Self {
        Self { base: state + 1, buckets: state + 2, directory: state + 3 }
    }
}

/// Words of an object's state block before the first buckets of its table, which
/// begin where a slot could.
pub const OBJECT_HEAD_WORDS: usize = (3 + OBJECT_DIRECTORY_ENTRIES / 2).next_multiple_of(2);
/// Bytes of the state block of an object that has a table.
pub const OBJECT_STATE_BYTES: usize =
    OBJECT_HEAD_WORDS * 8 + OBJECT_BASE_BUCKETS as usize * BUCKET_BYTES;
/// Unit of the byte offsets in directory entries.
pub const CHUNK_UNIT_BYTES: u64 = 64;
/// Most buckets of any table: as many as 32 bits of a hash can number.
pub const MAX_BUCKETS: u64 = 1 << 32;
/// The place behind all keys in the order of a scan ([`TableShape::at_scan_place`]).
pub const SCAN_END: u64 = 1 << 32;

/// The number of buckets that a table began with, and the number that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableShape {
    base_log2: u32,
    /// Chunks of a doubling at most.
    chunks_log2: u32,
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
    /// The shape of a shard's table, from numbers that may come from another process; `None` if no
    /// table can have it.
    pub fn checked(base: u64, buckets: u64) -> Option<Self> {
        Self::with_chunks(base, buckets, CHUNKS_PER_DOUBLING.ilog2())
    }

    /// As [`TableShape::checked`], for an object's table.
    pub fn of_object(base: u64, buckets: u64) -> Option<Self> {
        Self::with_chunks(base, buckets, OBJECT_CHUNKS_PER_DOUBLING.ilog2())
    }

    fn with_chunks(base: u64, buckets: u64, chunks_log2: u32) -> Option<Self> {
        if !base.is_power_of_two() || base > MAX_BUCKETS {
            return None;
        }
        let shape = Self { base_log2: base.ilog2(), chunks_log2, buckets };
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

    /// The most buckets that it can have: as many as the directory can name.
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

    /// The buckets of this table that hold the keys which `bucket` held when the table had
    /// `buckets_then` buckets.
    pub fn came_from(self, bucket: u64, buckets_then: u64) -> impl Iterator<Item = u64> + use<> {
        let then = Self { buckets: buckets_then, ..self };
        let step = self.base() << then.depth(bucket);
        (bucket..self.buckets).step_by(step as usize)
    }

    /// The bucket that the next split halves; the other half becomes bucket
    /// [`TableShape::buckets`].
    pub const fn splits_next(self) -> u64 {
        self.buckets - self.round()
    }

    /// The bucket that holds the keys at a place in the order of a scan, and the place behind its
    /// last one: [`SCAN_END`] at the end.
    ///
    /// A scan goes in the order of the hashes' low 32 bits, reversed. So a bucket of any table
    /// holds one range of places, a split halves that range, and a scan that reached a place has
    /// visited all keys before it, however the table has grown.
    pub fn at_scan_place(self, place: u32) -> (u64, u64) {
        let bucket = KeyHash(place.reverse_bits().into()).bucket(self.buckets);
        let width = 32 - (self.base_log2 + self.depth(bucket)).min(32);
        (bucket, ((u64::from(place) >> width) + 1) << width)
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
            entry: ((doubling as usize) << self.chunks_log2) + chunk as usize,
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
        (BUCKET_BYTES as u64) << self.chunk_log2((entry >> self.chunks_log2) as u32)
    }

    /// The directory entries that a table of this shape uses.
    pub fn entries(self) -> impl Iterator<Item = usize> {
        (0..MAX_DOUBLINGS).flat_map(move |doubling| {
            let first = self.base() << doubling;
            let made = self.buckets.min(first << 1).saturating_sub(first);
            let chunks = made.div_ceil(1 << self.chunk_log2(doubling));
            let first = (doubling as usize) << self.chunks_log2;
            (0..chunks).map(move |chunk| first + chunk as usize)
        })
    }

    /// An equal share of the doubling, a page at least, the doubling at most.
    #[inline(always)]
    const fn chunk_log2(self, doubling: u32) -> u32 {
        let whole = self.base_log2 + doubling;
        let share = whole.saturating_sub(self.chunks_log2);
        let least = SMALLEST_CHUNK_BUCKETS.ilog2();
        let least = if whole < least { whole } else { least };
        if share > least { share } else { least }
    }
}

const _: () = assert!(CHUNKS_PER_DOUBLING.is_power_of_two());
const _: () = assert!(SMALLEST_CHUNK_BUCKETS.is_power_of_two());
const _: () = assert!(MAX_DOUBLINGS <= MAX_DEPTH);
const _: () = assert!(OBJECT_CHUNKS_PER_DOUBLING.is_power_of_two());
const _: () = assert!(OBJECT_BASE_BUCKETS.is_power_of_two());
const _: () = assert!(DIRECTORY_ENTRIES.is_multiple_of(2));
const _: () = assert!(OBJECT_DIRECTORY_ENTRIES.is_multiple_of(2));
const _: () = assert!(arena_header::word::DIRECTORY > arena_header::word::ASLEEP + 7);
const DIRECTORY_END: usize = arena_header::word::DIRECTORY * 8 + DIRECTORY_ENTRIES * 4;
const _: () = assert!(DIRECTORY_END <= ARENA_HEADER_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

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
            // The keys of a bucket of a smaller table are in the buckets that came from it, and
            // those buckets hold no other keys.
            let then = base + more / 3;
            let was = KeyHash(hash).bucket(then);
            assert!(shape.came_from(was, then).any(|now| now == bucket));
            for now in shape.came_from(was, then).take(9) {
                assert_eq!(KeyHash(now).bucket(then), was);
            }
            // One split moves a key to the new bucket or not at all.
            let Some(grown) = shape.grown() else { return Ok(()) };
            let after = KeyHash(hash).bucket(grown.buckets());
            assert!(after == bucket || (bucket == shape.splits_next() && after == buckets));
        }
    }

    #[test]
    fn a_scan_meets_every_bucket_once_and_misses_none_while_the_table_grows() {
        for (base, buckets) in [(1u64, 1u64), (1, 7), (4, 9), (64, 64), (64, 1000)] {
            let shape = TableShape::checked(base, buckets).unwrap();
            let (mut place, mut met) = (0u64, vec![0; buckets as usize]);
            while place < 1 << 32 {
                let (bucket, end) = shape.at_scan_place(place as u32);
                met[bucket as usize] += 1;
                assert!(end > place);
                place = end;
            }
            assert!(met.iter().all(|&times| times == 1), "{base} {buckets}");
        }
        // Some hashes, and a table that grows between any two steps.
        let hashes: Vec<u32> = (0..5_000u32).map(|at| at.wrapping_mul(0x9e37_79b9)).collect();
        let mut shape = TableShape::checked(2, 2).unwrap();
        let (mut place, mut met) = (0u64, std::collections::BTreeSet::new());
        while place < 1 << 32 {
            let (bucket, end) = shape.at_scan_place(place as u32);
            let in_bucket =
                |hash: &&u32| KeyHash(u64::from(**hash)).bucket(shape.buckets()) == bucket;
            met.extend(hashes.iter().filter(in_bucket).copied());
            place = end;
            for _ in 0..place % 13 {
                shape = shape.grown().unwrap();
            }
        }
        assert!(shape.buckets() > 100 && met.len() == hashes.len());
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

//! A reader's knowledge of a shard's table: a *view*, made from the arena's header page.
//!
//! A view becomes old: the table gets buckets, but no bucket ever changes its place, and the owner
//! writes each bucket's depth into it. So an old view leads to the key's bucket, or to one whose
//! header says that the key has left ([`Home::is_left`]).

use remora_layout::arena_header::{ARENA_HEADER_BYTES, durable_of, word};
use remora_layout::bucket::{BUCKET_BYTES, BUCKET_SLOTS, BucketHeader, BucketSlot};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    CHAIN_BUCKETS, OBJECT_BASE_BUCKETS, READ_RETRIES, SLOT_UNIT_BYTES, WORD_BYTES,
};
use remora_layout::pointer::RemotePointer;
use remora_layout::table::{
    CHUNK_UNIT_BYTES, OBJECT_HEAD_WORDS, OBJECT_STATE_BYTES, TableHead, TableShape,
};
use remora_walk::Memory;

/// How much of a record is prefetched: its header, and a key and value of common size.
const RECORD_LINES_BYTES: usize = 128;

/// A shard's table, as its arena's header page described it at some time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableRef {
    /// Region id of the arena.
    pub region: u32,
    /// Bytes of the arena; nothing beyond is ever wanted.
    pub region_bytes: u64,
    /// The arena's secret, part of the seed of each record's checksum.
    pub secret: u64,
    /// Changes are not durable at once: readers of nodes compare with the word [`word::DURABLE`],
    /// and ask for anything that has no sequence.
    pub lags: bool,
    offset: u64,
    shape: TableShape,
    /// Chunks by directory entry, as far as the shape uses them.
    directory: Box<[u32]>,
}

impl TableRef {
    /// The table that a header page describes, in a region of `region_bytes`. `None` if the page is
    /// too short, or describes a table that is impossible or does not lie in the region: a hostile
    /// page, or one that changed during the fetch, so that fetching it again may help.
    pub fn parse(region: u32, region_bytes: u64, page: &[u8]) -> Option<Self> {
        let page = page.get(..ARENA_HEADER_BYTES)?;
        let word_at = |index: usize| {
            let word = &page[index * 8..index * 8 + 8];
            u64::from_le_bytes(word.try_into().expect("eight bytes"))
        };
        let offset = word_at(word::TABLE_OFFSET);
        let shape = TableShape::checked(word_at(word::BASE_BUCKETS), word_at(word::BUCKETS))?;
        let base_bytes = shape.base() * BUCKET_BYTES as u64;
        if !offset.is_multiple_of(BUCKET_BYTES as u64)
            || offset.checked_add(base_bytes)? > region_bytes
        {
            return None;
        }
        let directory = directory(shape, region_bytes, |at| word_at(word::DIRECTORY + at))?;
        let secret = word_at(word::RECORD_SECRET);
        let lags = durable_of(word_at(word::DURABLE)) != u64::MAX;
        Some(Self { region, region_bytes, secret, lags, offset, shape, directory })
    }

    /// As [`TableRef::read`], of the owner's own process: the page says which
    /// region it is.
    pub fn of(arena: &impl Memory) -> Option<Self> {
        let mut region = [0; WORD_BYTES];
        arena.fetch((word::REGION * WORD_BYTES) as u64, &mut region).then_some(())?;
        Self::read(u64::from_le_bytes(region) as u32, arena)
    }

    /// The table of an object of this arena, as described by the state block of its root record,
    /// which stands at this offset. `None` as for [`TableRef::parse`].
    pub(super) fn of_object(&self, secret: u64, offset: u64, state: &[u8]) -> Option<Self> {
        let state = state.get(..OBJECT_STATE_BYTES)?;
        let word_at = |index: usize| {
            let word = &state[index * 8..index * 8 + 8];
            u64::from_le_bytes(word.try_into().expect("eight bytes"))
        };
        let head = TableHead::of_object(0);
        let shape = TableShape::of_object(word_at(head.base), word_at(head.buckets))?;
        if shape.base() != OBJECT_BASE_BUCKETS {
            return None;
        }
        let directory = directory(shape, self.region_bytes, |at| word_at(head.directory + at))?;
        let offset = offset + (OBJECT_HEAD_WORDS * WORD_BYTES) as u64;
        let &Self { region, region_bytes, lags, .. } = self;
        Some(Self { region, region_bytes, secret, lags, offset, shape, directory })
    }

    /// As [`TableRef::parse`], from memory that this process maps. Tries again if the page changed
    /// meanwhile.
    pub fn read(region: u32, arena: &impl Memory) -> Option<Self> {
        let mut page = [0; ARENA_HEADER_BYTES];
        (0..=READ_RETRIES).find_map(|_| {
            arena.fetch(0, &mut page).then_some(())?;
            Self::parse(region, arena.bytes() as u64, &page)
        })
    }

    /// Buckets that the table had.
    pub fn buckets(&self) -> u64 {
        self.shape.buckets()
    }

    /// Whether a READ of this slot lies in the region.
    pub fn holds(&self, pointer: RemotePointer) -> bool {
        pointer.offset() + pointer.length as u64 <= self.region_bytes
    }

    /// Whether a key with this hash may have a record in a slot of at least this class, by the
    /// present buckets in mapped memory: a hint, and true if this view cannot tell.
    pub fn may_hold_class(&self, arena: &impl Memory, hash: KeyHash, class: u8) -> bool {
        let home = self.home(hash);
        let mut offset = home.offset;
        for _ in 0..CHAIN_BUCKETS {
            let mut bytes = [0; BUCKET_BYTES];
            if !arena.fetch(offset, &mut bytes) {
                return true;
            }
            let word = |index: usize| {
                let word = &bytes[index * WORD_BYTES..(index + 1) * WORD_BYTES];
                u64::from_le_bytes(word.try_into().expect("eight bytes"))
            };
            let header = BucketHeader(word(0));
            let holds = |index: usize| {
                let slot = BucketSlot::from_word(word(1 + index));
                let is_used = header.used() & 1 << index != 0;
                is_used && slot.signature == hash.signature() && slot.class >= class
            };
            if home.is_left(header, hash) || (0..BUCKET_SLOTS).any(holds) {
                return true;
            }
            let Some(link) = header.overflow() else { return false };
            offset = link as u64 * SLOT_UNIT_BYTES as u64;
        }
        true
    }

    /// Prefetches the bucket of a hash: a hint.
    #[inline]
    pub fn prefetch(&self, arena: &impl Memory, hash: KeyHash) {
        arena.prefetch(self.home(hash).offset, BUCKET_BYTES);
    }

    /// The same, a while later, for the first record with its signature; if the main
    /// bucket has none, for the overflow bucket behind it.
    #[inline]
    pub fn prefetch_record(&self, arena: &impl Memory, hash: KeyHash) {
        let mut words = [[0; WORD_BYTES]; 1 + BUCKET_SLOTS];
        if !arena.fetch(self.home(hash).offset, words.as_flattened_mut()) {
            return;
        }
        let header = BucketHeader(u64::from_le_bytes(words[0]));
        let slots = words[1..].iter().map(|&word| BucketSlot::from_word(u64::from_le_bytes(word)));
        let found = slots.enumerate().find(|(index, slot)| {
            header.used() & 1 << index != 0 && slot.signature == hash.signature()
        });
        let unit = SLOT_UNIT_BYTES as u64;
        match found {
            Some((_, slot)) => arena.prefetch(slot.slot as u64 * unit, RECORD_LINES_BYTES),
            None => header.overflow().into_iter().for_each(|link| {
                arena.prefetch(link as u64 * unit, BUCKET_BYTES);
            }),
        }
    }

    /// Where this view looks for a hash.
    #[inline(always)]
    pub(super) fn home(&self, hash: KeyHash) -> Home {
        let bucket = hash.bucket(self.shape.buckets());
        Home {
            offset: self.shape.bucket_offset(bucket, self.offset, &self.directory),
            bucket,
            depth: self.shape.depth(bucket),
            base: self.shape.base(),
        }
    }
}

/// The chunks that a table of this shape has; `None` where one is missing or lies
/// beyond the region.
fn directory(
    shape: TableShape,
    region_bytes: u64,
    word_at: impl Fn(usize) -> u64,
) -> Option<Box<[u32]>> {
    let length = shape.entries().last().map_or(0, |last| last + 1);
    let mut directory = vec![0; length].into_boxed_slice();
    for entry in shape.entries() {
        let chunk = (word_at(entry / 2) >> (entry % 2 * 32)) as u32;
        let end = chunk as u64 * CHUNK_UNIT_BYTES + shape.chunk_bytes(entry);
        if chunk == 0 || end > region_bytes {
            return None;
        }
        directory[entry] = chunk;
    }
    Some(directory)
}

/// The bucket at which a walk begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    /// Its byte offset.
    pub offset: u64,
    /// Its number.
    bucket: u64,
    /// Its depth as the view has it.
    depth: u32,
    base: u64,
}

impl Home {
    /// Whether a header of this bucket's chain says that keys with `hash` have moved to a bucket
    /// that the view does not know.
    #[inline(always)]
    pub fn is_left(&self, header: BucketHeader, hash: KeyHash) -> bool {
        let depth = header.depth();
        if depth == self.depth {
            return false;
        }
        // `base` has at most 32 bits beside the 1, and so has a hash.
        let modulus = self.base << depth.min(31);
        hash.0 & 0xffff_ffff & (modulus - 1) != self.bucket
    }
}

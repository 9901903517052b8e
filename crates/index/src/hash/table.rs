//! The writer's side of the hash index.
//!
//! What it keeps true, in the order of its stores: a slot word is in place
//! before its "in use" bit is set; an overflow bucket is complete before it is
//! linked; a bit is cleared before its slot word is used again. A reader that
//! meets an old word finds an old record, whose guardian and generation tell.

use remora_arena::{BUCKET_CLASS, Journal, Owner, class_bytes, lengths_of};
use remora_layout::bucket::{BUCKET_BYTES, BUCKET_SLOTS, BucketHeader, BucketSlot};
use remora_layout::hash::KeyHash;
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::record::RECORD_HEADER_BYTES;

/// Size class of a slot that holds an overflow bucket: the slot's guardian
/// word (never live, so that no reader takes it for a record), a word of
/// padding, then the bucket.
pub const OVERFLOW_CLASS: u8 = BUCKET_CLASS;
/// Units between an overflow bucket's slot and the bucket in it.
const OVERFLOW_SHIFT: u32 = 1;

const _: () = assert!(
    class_bytes(OVERFLOW_CLASS) == BUCKET_BYTES + OVERFLOW_SHIFT as usize * SLOT_UNIT_BYTES
);

/// Where a key's slot word stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    header_word: usize,
    index: usize,
}

impl Place {
    fn slot_word(self) -> usize {
        self.header_word + 1 + self.index
    }
}

/// The table of one shard.
pub struct Table {
    offset: usize,
    buckets: u64,
    overflow_buckets: u64,
}

impl Table {
    /// A table of `buckets` (a power of two) zeroed buckets at `offset`.
    pub fn new(offset: usize, buckets: u64) -> Self {
        assert!(buckets.is_power_of_two() && buckets <= 1 << 32 && offset.is_multiple_of(64));
        Self { offset, buckets, overflow_buckets: 0 }
    }

    /// Buckets of the main array.
    pub fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Overflow buckets linked so far.
    pub fn overflow_buckets(&self) -> u64 {
        self.overflow_buckets
    }

    /// Asks for the main bucket's line ahead of use.
    #[inline(always)]
    pub fn prefetch<J: Journal>(&self, owner: &Owner<J>, hash: KeyHash) {
        owner.prefetch(self.main_word(hash) * 8);
    }

    /// Asks for the lines of the first record with this signature.
    #[inline(always)]
    pub fn prefetch_record<J: Journal>(&self, owner: &Owner<J>, hash: KeyHash) {
        let header_word = self.main_word(hash);
        let used = BucketHeader(owner.word(header_word)).used();
        for index in 0..BUCKET_SLOTS {
            if used & 1 << index == 0 {
                continue;
            }
            let slot = BucketSlot::from_word(owner.word(header_word + 1 + index));
            if slot.signature == hash.signature() {
                let offset = slot.slot as usize * SLOT_UNIT_BYTES;
                owner.prefetch(offset);
                owner.prefetch(offset + 64);
                return;
            }
        }
    }

    #[inline(always)]
    fn main_word(&self, hash: KeyHash) -> usize {
        self.offset / 8 + hash.bucket(self.buckets) as usize * (BUCKET_BYTES / 8)
    }

    fn overflow_word(link: u32) -> usize {
        link as usize * (SLOT_UNIT_BYTES / 8)
    }

    /// Header words of a key's chain, in order; the writer's own links, so
    /// their number bounds the walk.
    fn chain<'a, J: Journal>(
        &'a self,
        owner: &'a Owner<J>,
        hash: KeyHash,
    ) -> impl Iterator<Item = usize> + 'a {
        let mut next = Some(self.main_word(hash));
        std::iter::from_fn(move || {
            let word = next?;
            next = BucketHeader(owner.word(word)).overflow().map(Self::overflow_word);
            Some(word)
        })
    }

    /// The place and slot of `key`. The full key is compared only where the
    /// signature matches (H10).
    #[inline]
    pub fn find<J: Journal>(
        &self,
        owner: &Owner<J>,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<(Place, BucketSlot)> {
        for header_word in self.chain(owner, hash) {
            let used = BucketHeader(owner.word(header_word)).used();
            for index in 0..BUCKET_SLOTS {
                if used & 1 << index == 0 {
                    continue;
                }
                let slot = BucketSlot::from_word(owner.word(header_word + 1 + index));
                if slot.signature == hash.signature() && record_key(owner, slot.slot) == key {
                    return Some((Place { header_word, index }, slot));
                }
            }
        }
        None
    }

    /// Whether [`Table::insert`] of a key with this hash needs an overflow bucket.
    pub fn needs_overflow<J: Journal>(&self, owner: &Owner<J>, hash: KeyHash) -> bool {
        self.chain(owner, hash).all(|word| BucketHeader(owner.word(word)).used() == 0x7f)
    }

    /// Adds a slot for a key that is not in the table. `overflow_slot` is a
    /// slot of [`OVERFLOW_CLASS`]; it must be given if
    /// [`Table::needs_overflow`] says so, and is not looked at otherwise.
    pub fn insert<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        hash: KeyHash,
        slot: BucketSlot,
        overflow_slot: Option<u32>,
    ) {
        let mut last = self.main_word(hash);
        let mut free = None;
        for header_word in self.chain(owner, hash) {
            last = header_word;
            let used = BucketHeader(owner.word(header_word)).used();
            if used != 0x7f {
                free = Some(Place { header_word, index: (!used).trailing_zeros() as usize });
                break;
            }
        }
        if let Some(place) = free {
            owner.store(place.slot_word(), slot.to_word());
            let header = BucketHeader(owner.word(place.header_word)).with_used(place.index, true);
            owner.store_release(place.header_word, header.0);
            return;
        }
        let overflow_slot = overflow_slot.expect("the caller asked needs_overflow first");
        let link = overflow_slot + OVERFLOW_SHIFT;
        let header_word = Self::overflow_word(link);
        owner.store(header_word, BucketHeader::default().with_used(0, true).0);
        owner.store(header_word + 1, slot.to_word());
        for index in 1..BUCKET_SLOTS {
            owner.store(header_word + 1 + index, 0);
        }
        let linked = BucketHeader(owner.word(last)).with_overflow(link);
        owner.store_release(last, linked.0);
        self.overflow_buckets += 1;
    }

    /// Lets a key's slot word name another record.
    pub fn replace<J: Journal>(&mut self, owner: &mut Owner<J>, place: Place, slot: BucketSlot) {
        owner.store_release(place.slot_word(), slot.to_word());
    }

    /// Takes a key out.
    pub fn remove<J: Journal>(&mut self, owner: &mut Owner<J>, place: Place) {
        let header = BucketHeader(owner.word(place.header_word)).with_used(place.index, false);
        owner.store_release(place.header_word, header.0);
    }

    /// Every place in use in the chain of main bucket `bucket`.
    pub fn places<J: Journal>(&self, owner: &Owner<J>, bucket: u64) -> Vec<(Place, BucketSlot)> {
        let mut places = Vec::new();
        for header_word in self.chain(owner, KeyHash(bucket)) {
            let used = BucketHeader(owner.word(header_word)).used();
            for index in (0..BUCKET_SLOTS).filter(|index| used & 1 << index != 0) {
                let place = Place { header_word, index };
                places.push((place, BucketSlot::from_word(owner.word(place.slot_word()))));
            }
        }
        places
    }
}

/// The key of the record in `slot`.
#[inline(always)]
pub fn record_key<J: Journal>(owner: &Owner<J>, slot: u32) -> &[u8] {
    let lengths = lengths_of(owner, slot);
    owner.slice(slot as usize * SLOT_UNIT_BYTES + RECORD_HEADER_BYTES, lengths.key_bytes as usize)
}

/// The value of the record in `slot`.
#[inline(always)]
pub fn record_value<J: Journal>(owner: &Owner<J>, slot: u32) -> &[u8] {
    let lengths = lengths_of(owner, slot);
    owner.slice(
        slot as usize * SLOT_UNIT_BYTES + RECORD_HEADER_BYTES + lengths.key_bytes as usize,
        lengths.value_bytes as usize,
    )
}

//! The writer's side of the hash index.
//!
//! Invariants, in the order of its stores: a slot word is in place before its "in use" bit is set;
//! an overflow bucket is complete before it is linked; a bit is cleared before its slot word is
//! used again. A reader that finds an old word finds an old record, whose guardian and generation
//! reveal it. `grow` describes how the table grows and sheds overflow buckets.

use remora_arena::{BUCKET_CLASS, Journal, Owner, class_bytes, is_named, kind_of, lengths_of};
use remora_layout::arena_header::word;
use remora_layout::bucket::{BUCKET_BYTES, BUCKET_SLOTS, BucketHeader, BucketSlot};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    BUCKET_LOAD_QUARTERS, OBJECT_BASE_BUCKETS, OBJECT_LOAD_QUARTERS, PAGE_BYTES, SLOT_UNIT_BYTES,
    WORD_BYTES,
};
use remora_layout::link::Linked;
use remora_layout::packed::Field;
use remora_layout::record::RECORD_HEADER_BYTES;
use remora_layout::table::{OBJECT_HEAD_WORDS, TableHead, TableShape};

/// Size class of a slot that holds an overflow bucket: the slot's guardian
/// word (never live, so that no reader takes it for a record), a word of
/// padding, then the bucket.
const OVERFLOW_CLASS: u8 = BUCKET_CLASS;
/// Units between an overflow bucket's slot and the bucket in it.
pub(super) const OVERFLOW_SHIFT: u32 = 1;
/// The header's bits of a full bucket.
pub(super) const ALL_USED: u8 = (1 << BUCKET_SLOTS) - 1;

const _: () = assert!(
    class_bytes(OVERFLOW_CLASS) == BUCKET_BYTES + OVERFLOW_SHIFT as usize * SLOT_UNIT_BYTES
);

/// The position of a key's slot word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotIndex {
    pub(super) header_word: usize,
    pub(super) index: usize,
}

impl SlotIndex {
    pub(super) fn slot_word(self) -> usize {
        self.header_word + 1 + self.index
    }
}

/// The table of one shard, or of one object.
pub struct Table {
    pub(super) head: TableHead,
    pub(super) offset: u64,
    pub(super) shape: TableShape,
    /// Records per bucket, in quarters, above which it grows.
    pub(super) load_quarters: u64,
    /// The chunks by directory entry, as the table's head has them; only as many as exist.
    pub(super) directory: Vec<u32>,
    /// Slots in use, in all buckets.
    pub(super) records: u64,
    pub(super) overflow_buckets: u64,
    /// Insertions to wait before growth is tried again.
    pub(super) pause: u32,
    /// Places that a split is about to move; empty between splits.
    pub(super) leaving: Vec<SlotIndex>,
}

impl Table {
    /// A table that begins with `base` (a power of two) zeroed buckets at `offset`. The function
    /// describes it in the arena's header page.
    pub fn new<J: Journal>(owner: &mut Owner<J>, offset: usize, base: u64) -> Self {
        assert!(offset.is_multiple_of(64));
        let shape = TableShape::checked(base, base).expect("a power of two, at most 2^32");
        owner.store(word::TABLE_OFFSET, offset as u64);
        Self::at(owner, TableHead::SHARD, (offset, BUCKET_LOAD_QUARTERS), shape)
    }

    /// A table of an object. Its state block begins at this word, all zeros behind its guardian,
    /// and contains its first buckets.
    pub fn in_object<J: Journal>(owner: &mut Owner<J>, state: usize) -> Self {
        let base = OBJECT_BASE_BUCKETS;
        let shape = TableShape::of_object(base, base).expect("a power of two");
        let offset = (state + OBJECT_HEAD_WORDS) * WORD_BYTES;
        Self::at(owner, TableHead::of_object(state), (offset, OBJECT_LOAD_QUARTERS), shape)
    }

    fn at<J: Journal>(
        owner: &mut Owner<J>,
        head: TableHead,
        (offset, load_quarters): (usize, u64),
        shape: TableShape,
    ) -> Self {
        owner.store(head.base, shape.base());
        owner.store_release(head.buckets, shape.buckets());
        Self {
            head,
            offset: offset as u64,
            shape,
            load_quarters,
            directory: Vec::new(),
            records: 0,
            overflow_buckets: 0,
            pause: 0,
            leaving: Vec::new(),
        }
    }

    /// The main bucket that the next split halves.
    pub fn splits_next(&self) -> u64 {
        self.shape.splits_next()
    }

    /// Main buckets: one for each chain. Only grows.
    pub fn buckets(&self) -> u64 {
        self.shape.buckets()
    }

    /// Overflow buckets that are linked now.
    pub fn overflow_buckets(&self) -> u64 {
        self.overflow_buckets
    }

    /// Keys in the table.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The buckets of this table that hold the keys which `bucket` held when the table had so many
    /// buckets.
    pub fn came_from(&self, bucket: u64, buckets_then: u64) -> impl Iterator<Item = u64> + use<> {
        self.shape.came_from(bucket, buckets_then)
    }

    /// The bucket at a place in the order of a scan, and the place behind it
    /// ([`TableShape::at_scan_place`]).
    pub fn at_scan_place(&self, place: u32) -> (u64, u64) {
        self.shape.at_scan_place(place)
    }

    /// Bytes of all main buckets, made or only reserved, and of the slots of all overflow buckets.
    pub fn bytes(&self) -> u64 {
        // A chunk takes whole pages.
        let page = PAGE_BYTES as u64;
        let chunk = |entry| self.shape.chunk_bytes(entry).next_multiple_of(page);
        let chunks: u64 = self.shape.entries().map(chunk).sum();
        self.shape.base() * BUCKET_BYTES as u64
            + chunks
            + self.overflow_buckets * class_bytes(OVERFLOW_CLASS) as u64
    }

    /// The main bucket of a hash.
    #[inline(always)]
    pub fn bucket(&self, hash: KeyHash) -> u64 {
        hash.bucket(self.shape.buckets())
    }

    /// Prefetches the main bucket's line.
    #[inline(always)]
    pub fn prefetch<J: Journal>(&self, owner: &Owner<J>, hash: KeyHash) {
        owner.prefetch(self.main_word(hash) * 8);
    }

    /// Prefetches the lines of the first record with this signature; if the main bucket has none,
    /// those of the overflow bucket behind it.
    #[inline(always)]
    pub fn prefetch_record<J: Journal>(&self, owner: &Owner<J>, hash: KeyHash) {
        let header_word = self.main_word(hash);
        let header = BucketHeader(owner.word(header_word));
        for index in 0..BUCKET_SLOTS {
            if header.used() & 1 << index == 0 {
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
        if let Some(link) = header.overflow() {
            owner.prefetch(Self::overflow_word(link) * 8);
        }
    }

    #[inline(always)]
    fn main_word(&self, hash: KeyHash) -> usize {
        self.bucket_word(self.bucket(hash))
    }

    /// Header word of a main bucket.
    #[inline(always)]
    pub(super) fn bucket_word(&self, bucket: u64) -> usize {
        self.shape.bucket_offset(bucket, self.offset, &self.directory[..]) as usize / 8
    }

    pub(super) fn overflow_word(link: u32) -> usize {
        link as usize * (SLOT_UNIT_BYTES / 8)
    }

    /// Header words of a main bucket's chain, in order; only the writer changes the links, so their
    /// number bounds the walk.
    pub(super) fn chain<'a, J: Journal>(
        &self,
        owner: &'a Owner<J>,
        bucket: u64,
    ) -> impl Iterator<Item = usize> + use<'a, J> {
        let mut next = Some(self.bucket_word(bucket));
        std::iter::from_fn(move || {
            let word = next?;
            next = BucketHeader(owner.word(word)).overflow().map(Self::overflow_word);
            Some(word)
        })
    }

    /// The place and slot of `key` of the hash's database, whatever the kind of its record: each
    /// database has one key space. It compares the full key only if the signature matches (H10).
    #[inline]
    pub fn find<J: Journal>(
        &self,
        owner: &Owner<J>,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<(SlotIndex, BucketSlot)> {
        for header_word in self.chain(owner, self.bucket(hash)) {
            let used = BucketHeader(owner.word(header_word)).used();
            for index in 0..BUCKET_SLOTS {
                if used & 1 << index == 0 {
                    continue;
                }
                let slot = BucketSlot::from_word(owner.word(header_word + 1 + index));
                if slot.signature == hash.signature()
                    && is_named(owner, slot.slot, hash.database(), key)
                {
                    return Some((SlotIndex { header_word, index }, slot));
                }
            }
        }
        None
    }

    /// Whether a key with this hash may have a record in a slot of at least this class: examines
    /// the bucket alone.
    #[inline]
    pub fn may_hold_class<J: Journal>(&self, owner: &Owner<J>, hash: KeyHash, class: u8) -> bool {
        self.chain(owner, self.bucket(hash)).any(|header_word| {
            let used = BucketHeader(owner.word(header_word)).used();
            (0..BUCKET_SLOTS).filter(|index| used & 1 << index != 0).any(|index| {
                let slot = BucketSlot::from_word(owner.word(header_word + 1 + index));
                slot.signature == hash.signature() && slot.class >= class
            })
        })
    }

    /// Whether [`Table::insert`] of a key with this hash needs an overflow bucket.
    pub fn needs_overflow<J: Journal>(&self, owner: &Owner<J>, hash: KeyHash) -> bool {
        self.chain(owner, self.bucket(hash))
            .all(|word| BucketHeader(owner.word(word)).used() == ALL_USED)
    }

    /// Adds a slot for a key that is not in the table. `overflow_slot` is a slot of
    /// `OVERFLOW_CLASS`; it must be given if [`Table::needs_overflow`] says so, and is ignored
    /// otherwise.
    pub fn insert<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        hash: KeyHash,
        slot: BucketSlot,
        overflow_slot: Option<u32>,
    ) {
        let is_part = kind_of(owner, slot.slot).is_part();
        debug_assert!(!is_part || self.head != TableHead::SHARD, "no key names a part");
        self.records += 1;
        let mut last = self.main_word(hash);
        let mut free = None;
        for header_word in self.chain(owner, self.bucket(hash)) {
            last = header_word;
            let used = BucketHeader(owner.word(header_word)).used();
            if used != ALL_USED {
                free = Some(SlotIndex { header_word, index: (!used).trailing_zeros() as usize });
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
        let before = BucketHeader(owner.word(last));
        Self::write_bucket(owner, Self::overflow_word(link), before.depth(), 0, &[slot.to_word()]);
        let linked = before.with_overflow(link);
        owner.store_release(last, linked.0);
        self.overflow_buckets += 1;
    }

    /// Writes a whole bucket, which no reader can reach yet. `link` is its
    /// overflow bucket, 0 for none.
    pub(super) fn write_bucket<J: Journal>(
        owner: &mut Owner<J>,
        header_word: usize,
        depth: u32,
        link: u32,
        words: &[u64],
    ) {
        let used = ((1u32 << words.len()) - 1) as u8;
        let header = BucketHeader::default().with_depth(depth).with_overflow(link);
        owner.store(header_word, header.with_all_used(used).0);
        for index in 0..BUCKET_SLOTS {
            owner.store(header_word + 1 + index, words.get(index).copied().unwrap_or(0));
        }
    }

    /// Makes a key's slot word name another record.
    pub fn replace<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        place: SlotIndex,
        slot: BucketSlot,
    ) {
        owner.store_release(place.slot_word(), slot.to_word());
    }

    /// Removes a key. [`Table::shed`] then frees the unused part of its chain; until that call,
    /// other places of the chain stay valid.
    pub fn remove<J: Journal>(&mut self, owner: &mut Owner<J>, place: SlotIndex) {
        self.records -= 1;
        let header = BucketHeader(owner.word(place.header_word)).with_used(place.index, false);
        owner.store_release(place.header_word, header.0);
    }

    /// Places in use in the chain of a main bucket, in order.
    pub(super) fn places_of<J: Journal>(
        &self,
        owner: &Owner<J>,
        bucket: u64,
    ) -> impl Iterator<Item = SlotIndex> {
        self.chain(owner, bucket).flat_map(|header_word| {
            let used = BucketHeader(owner.word(header_word)).used();
            let in_use = (0..BUCKET_SLOTS).filter(move |index| used & 1 << index != 0);
            in_use.map(move |index| SlotIndex { header_word, index })
        })
    }

    /// The place in the chain of main bucket `bucket` that leads to this record.
    #[inline]
    pub fn place_of<J: Journal>(
        &self,
        owner: &Owner<J>,
        bucket: u64,
        record: u32,
    ) -> Option<(SlotIndex, BucketSlot)> {
        let slot_at = |place: SlotIndex| BucketSlot::from_word(owner.word(place.slot_word()));
        let mut all = self.places_of(owner, bucket).map(|place| (place, slot_at(place)));
        all.find(|(_, slot)| slot.slot == record)
    }

    /// Every place in use in the chain of main bucket `bucket`.
    pub fn places<J: Journal>(
        &self,
        owner: &Owner<J>,
        bucket: u64,
    ) -> Vec<(SlotIndex, BucketSlot)> {
        self.places_of(owner, bucket)
            .map(|place| (place, BucketSlot::from_word(owner.word(place.slot_word()))))
            .collect()
    }
}

/// The key of the record in `slot`.
#[inline(always)]
pub fn record_key<J: Journal>(owner: &Owner<J>, slot: u32) -> &[u8] {
    let lengths = lengths_of(owner, slot);
    owner.slice(slot as usize * SLOT_UNIT_BYTES + RECORD_HEADER_BYTES, lengths.key_bytes as usize)
}

/// What the value of the record in `slot` says, without hints of links, and whether it has some: the
/// value of a part that is a field of its own is a link then.
#[inline]
pub fn record_field<J: Journal>(owner: &Owner<J>, slot: u32) -> Field<'_> {
    let value = record_value(owner, slot);
    match kind_of(owner, slot).has_links() {
        true => Field { value: Linked::of(value).map_or(&[], |of| of.text), is_link: true },
        false => Field::plain(value),
    }
}

/// The value of the record in `slot`, with the hints of its links.
#[inline(always)]
pub fn record_value<J: Journal>(owner: &Owner<J>, slot: u32) -> &[u8] {
    let lengths = lengths_of(owner, slot);
    owner.slice(
        slot as usize * SLOT_UNIT_BYTES + RECORD_HEADER_BYTES + lengths.key_bytes as usize,
        lengths.value_bytes as usize,
    )
}

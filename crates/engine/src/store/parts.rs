//! Parts of objects: records that no key names, found by name through a table of
//! the object's own, which begins in its root record.
//!
//! Invariant: a part is bound to its root record by the seed of its checksum, so that it never
//! passes for a part of another object, nor of an earlier one. A new part is complete before it is
//! reachable, and the old one is dead before that. A part is valid only with its root: when the
//! root is dead all parts are, and their memory is released in turns. Before a part is changed,
//! moved or released, it is copied for the reads in turns that have not returned it
//! ([`super::part_reads`]). Parts whose names are numbers are also found by these
//! ([`super::numbered`]). Where parts are bins of members, their counts stand here too
//! ([`super::bins`]).

use super::bins::Bins;
use super::clock::Now;
use super::durable::Lag;
use super::numbered::Numbered;
use super::options::ShardOptions;
use super::part_reads::{PartReads, PartsRead, Readings, Write, in_bucket};
use super::record::{Found, word_to};
use remora_arena::{
    BUCKET_CLASS, Journal, Owner, Slot, Slots, class_bytes, copy_pending, flip_dead, kind_of,
    mutable_of, publish_live, slot_of, state_in,
};
use remora_index::hash::{SlotIndex, Table, record_key};
use remora_layout::bucket::BucketSlot;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::KEPT_PARTS_SHARE;
use remora_layout::part::{part_hash_seed, part_secret};
use remora_layout::record::State;
use remora_protocol::message::Status;
use std::collections::BTreeMap;

/// The number of a part of this name; `None` if its name is no number.
pub(crate) type NumberOf = fn(&[u8]) -> Option<u32>;

/// The parts of one object.
pub(crate) struct Parts {
    root: Slot,
    pub(super) kind: Kind,
    table: Table,
    hash_seed: u64,
    pub(super) secret: u64,
    /// Bytes of the slots of all parts.
    bytes: u64,
    /// The bucket that is released next, once the root record is dead.
    releasing: u64,
    readings: Readings,
    number_of: NumberOf,
    numbered: Numbered,
    bins: Bins,
}

/// All objects that have parts, and the copies for reads of them.
pub(crate) struct AllParts {
    /// By the slots of their root records.
    by_root: BTreeMap<u32, Parts>,
    reads: PartReads,
    /// Bytes that may be kept for all reads.
    most_kept: u64,
    /// Bytes of the slots by number, of all objects.
    numbered_bytes: u64,
}

/// A part with its new bytes, which no path leads to yet.
pub(crate) struct NewPart {
    pub hash: KeyHash,
    pub slot: Slot,
}

/// Parts that are written, and the buckets that publishing them may need.
#[derive(Default)]
pub(crate) struct PlannedParts {
    pub parts: Vec<NewPart>,
    pub spares: Vec<Slot>,
    /// How many of them are new.
    pub added: u64,
}

impl Parts {
    /// An empty table, for a root record: its head begins at this word of the state.
    fn new<J: Journal>(
        owner: &mut Owner<J>,
        (root, state): (Slot, usize),
        (kind, number_of): (Kind, NumberOf),
        options: &ShardOptions,
    ) -> Self {
        let (slot, generation) = (root.slot, root.generation);
        Self {
            root,
            kind,
            table: Table::in_object(owner, state),
            hash_seed: part_hash_seed(options.hash_seed, slot, generation),
            secret: part_secret(options.record_secret, slot, generation),
            bytes: 0,
            releasing: 0,
            readings: Readings::default(),
            number_of,
            numbered: Numbered::default(),
            bins: Bins::default(),
        }
    }

    /// What is known of the object's bins, if its parts are bins.
    #[inline]
    pub const fn bins(&self) -> &Bins {
        &self.bins
    }

    /// The slot of the part whose name is this number.
    #[inline]
    pub fn numbered(&self, number: u32) -> Option<u32> {
        self.numbered.get(number)
    }

    /// The part of this name is in this slot now; 0: in none. Returns by how many bytes the heap
    /// has grown.
    fn note_slot(&mut self, name: &[u8], slot: u32) -> u64 {
        (self.number_of)(name).map_or(0, |number| self.numbered.set(number, slot))
    }

    /// The hash of a name.
    pub fn hash(&self, name: &[u8]) -> KeyHash {
        KeyHash::of(name, self.hash_seed)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.table.records()
    }

    /// Buckets of the table: it only grows.
    pub fn buckets(&self) -> u64 {
        self.table.buckets()
    }

    /// The bucket at a place in the order of a scan, and the place behind it.
    pub fn at_scan_place(&self, place: u32) -> (u64, u64) {
        self.table.at_scan_place(place)
    }

    /// The place of the part in a slot in the order of a scan.
    pub fn scan_place<J: Journal>(&self, owner: &Owner<J>, slot: u32) -> u64 {
        (self.hash(record_key(owner, slot)).0 as u32).reverse_bits().into()
    }

    /// Bytes of the arena that the object takes beside its root record.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.table.bytes()
    }

    /// The same with what the heap has for it: the object's weight for eviction.
    pub fn weight(&self) -> u64 {
        self.bytes() + self.numbered.bytes()
    }

    /// A run of pages that the table needs before it grows.
    pub fn wants_run(&self) -> Option<usize> {
        self.table.wants_run()
    }

    /// Whether a new part with this hash needs an overflow bucket.
    pub fn needs_overflow<J: Journal>(&self, owner: &Owner<J>, hash: KeyHash) -> bool {
        self.table.needs_overflow(owner, hash)
    }

    /// Prefetches the bucket of the part whose name has this hash.
    #[inline]
    pub fn prefetch<J: Journal>(&self, owner: &Owner<J>, hash: KeyHash) {
        self.table.prefetch(owner, hash);
    }

    /// The part in this slot, whose name has this hash.
    pub fn in_slot<J: Journal>(&self, owner: &Owner<J>, hash: KeyHash, slot: u32) -> Option<Found> {
        let (place, slot) = self.table.place_of(owner, self.table.bucket(hash), slot)?;
        Some(Found { place, slot, mutable: mutable_of(owner, slot.slot) })
    }

    /// The part of this name.
    pub fn find<J: Journal>(&self, owner: &Owner<J>, name: &[u8]) -> Option<Found> {
        self.find_hashed(owner, name, self.hash(name))
    }

    /// The part of this name, which has this hash.
    pub fn find_hashed<J: Journal>(
        &self,
        owner: &Owner<J>,
        name: &[u8],
        hash: KeyHash,
    ) -> Option<Found> {
        let (place, slot) = self.place(owner, name, hash)?;
        Some(Found { place, slot, mutable: mutable_of(owner, slot.slot) })
    }

    pub(super) fn place<J: Journal>(
        &self,
        owner: &Owner<J>,
        name: &[u8],
        hash: KeyHash,
    ) -> Option<(SlotIndex, BucketSlot)> {
        self.table.find(owner, name, hash)
    }

    /// The slots of the parts in one bucket's chain.
    pub fn in_bucket<J: Journal>(&self, owner: &Owner<J>, bucket: u64) -> Vec<u32> {
        in_bucket(&self.table, owner, bucket)
    }

    /// The slots of the parts in the bucket of a hash.
    pub fn with_hash<J: Journal>(&self, owner: &Owner<J>, hash: KeyHash) -> Vec<u32> {
        self.in_bucket(owner, self.table.bucket(hash))
    }

    /// Called before the content of a hash's bucket changes.
    fn keep_for_reads<J: Journal>(
        &mut self,
        owner: &Owner<J>,
        hash: KeyHash,
        reads: (&mut PartReads, u64),
    ) {
        self.readings.keep((&self.table, owner), hash, reads);
    }

    /// Compares the parts with their table, and their numbers. Bytes of their slots, overflow
    /// buckets included.
    fn audit<J: Journal>(&self, owner: &Owner<J>, slots: &Slots) -> Result<u64, String> {
        let told = |what: &str| Err(format!("{what}: root {:?}", self.root));
        let (mut counted, mut found_bytes, mut numbered) = (0, 0, 0);
        for bucket in 0..self.table.buckets() {
            for slot in self.in_bucket(owner, bucket) {
                let is_one = kind_of(owner, slot).plain() == self.kind
                    && state_in(owner, slot) != State::Dead;
                if !is_one {
                    return told("a table leads to what is no part, or a dead one");
                }
                if self.table.bucket(self.hash(record_key(owner, slot))) != bucket {
                    return told("a part stands in another bucket than its name's");
                }
                if let Some(number) = (self.number_of)(record_key(owner, slot)) {
                    if self.numbered(number) != Some(slot) {
                        return told("a part is not found by its number");
                    }
                    numbered += 1;
                }
                counted += 1;
                found_bytes += slots.bytes_of(slot_of(owner, slot));
            }
        }
        if (counted, found_bytes) != (self.count(), self.bytes) {
            return told("an object's parts are not those of the books");
        }
        if numbered != self.numbered.count() {
            return told("a number leads to a part that is gone");
        }
        Ok(self.bytes + self.table.overflow_buckets() * class_bytes(BUCKET_CLASS) as u64)
    }
}

impl AllParts {
    /// An empty set of tables, in so many bytes of memory.
    pub fn new(memory_bytes: usize) -> Self {
        let most_kept = memory_bytes as u64 / KEPT_PARTS_SHARE;
        let (by_root, reads) = (BTreeMap::new(), PartReads::default());
        Self { by_root, reads, most_kept, numbered_bytes: 0 }
    }

    /// Begins the table of a root record: its head begins at this word of the state.
    pub fn begin<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        at: (Slot, usize),
        of: (Kind, NumberOf),
        options: &ShardOptions,
    ) {
        self.by_root.insert(at.0.slot, Parts::new(owner, at, of, options));
    }

    /// The parts of the object with this root record.
    pub fn of(&self, root: u32) -> &Parts {
        &self.by_root[&root]
    }

    /// Notes what is known of an object's bins after a change.
    pub fn set_bins(&mut self, root: u32, bins: Bins) {
        self.of_mut(root).0.bins = bins;
    }

    /// The root records of the objects with parts of this kind; some of them may be dead.
    pub fn roots(&self, kind: Kind) -> impl Iterator<Item = Slot> {
        self.by_root.values().filter(move |parts| parts.kind == kind).map(|parts| parts.root)
    }

    /// Bytes on the heap: what is kept for reads, and slots by number.
    pub fn heap_bytes(&self) -> u64 {
        self.reads.bytes() + self.numbered_bytes
    }

    fn of_mut(&mut self, root: u32) -> (&mut Parts, (&mut PartReads, u64)) {
        let parts = self.by_root.get_mut(&root).expect("an object with parts");
        (parts, (&mut self.reads, self.most_kept))
    }

    /// Lets a written part be seen, in the place of the one of the same name, which it
    /// gives: that is dead. A new one may take an overflow bucket of the spares.
    pub fn put<J: Journal>(
        &mut self,
        (owner, slots): (&mut Owner<J>, &Slots),
        root: u32,
        part: &NewPart,
        spares: &mut Vec<Slot>,
    ) -> Option<Slot> {
        let name = record_key(owner, part.slot.slot);
        self.note_slot(root, name, part.slot.slot);
        let (parts, reads) = self.of_mut(root);
        if let Some((place, slot)) = parts.table.find(owner, name, part.hash) {
            return Some(self.swap((owner, slots), root, part, (place, slot.slot)));
        }
        parts.keep_for_reads(owner, part.hash, reads);
        parts.bytes += slots.bytes_of(part.slot);
        let needs = parts.table.needs_overflow(owner, part.hash);
        let spare = needs.then(|| spares.pop()).flatten();
        let word = word_to(part.slot, part.hash);
        parts.table.insert(owner, part.hash, word, spare.map(|slot| slot.slot));
        None
    }

    /// Lets a written part be seen, in the place of the one of the same name, which is in this place
    /// and slot, and which it gives: that is dead.
    pub fn replace<J: Journal>(
        &mut self,
        (owner, slots): (&mut Owner<J>, &Slots),
        root: u32,
        part: &NewPart,
        old: (SlotIndex, u32),
    ) -> Slot {
        self.note_slot(root, record_key(owner, part.slot.slot), part.slot.slot);
        self.swap((owner, slots), root, part, old)
    }

    fn note_slot(&mut self, root: u32, name: &[u8], slot: u32) {
        let (parts, _) = self.of_mut(root);
        self.numbered_bytes += parts.note_slot(name, slot);
    }

    fn swap<J: Journal>(
        &mut self,
        (owner, slots): (&mut Owner<J>, &Slots),
        root: u32,
        part: &NewPart,
        (place, old): (SlotIndex, u32),
    ) -> Slot {
        let (parts, reads) = self.of_mut(root);
        parts.keep_for_reads(owner, part.hash, reads);
        let dead = flip_dead(owner, old);
        parts.table.replace(owner, place, word_to(part.slot, part.hash));
        parts.bytes = parts.bytes + slots.bytes_of(part.slot) - slots.bytes_of(dead);
        dead
    }

    /// Takes a part out of its table, if it is there; returns its slot: it is dead.
    pub fn take_out<J: Journal>(
        &mut self,
        (owner, slots): (&mut Owner<J>, &mut Slots),
        root: u32,
        name: &[u8],
        now: Now,
    ) -> Option<Slot> {
        let (parts, reads) = self.of_mut(root);
        let hash = parts.hash(name);
        let (place, slot) = parts.table.find(owner, name, hash)?;
        parts.keep_for_reads(owner, hash, reads);
        let grown = parts.note_slot(name, 0);
        let dead = flip_dead(owner, slot.slot);
        parts.table.remove(owner, place);
        parts.bytes -= slots.bytes_of(dead);
        let bucket = parts.table.bucket(hash);
        parts.table.shed(owner, slots, bucket, now.since_start_s);
        self.numbered_bytes += grown;
        Some(dead)
    }

    /// Splits a bucket of an object's table if it is too full.
    pub fn grow<J: Journal>(
        &mut self,
        (owner, slots): (&mut Owner<J>, &mut Slots),
        root: u32,
        now: Now,
    ) {
        let (Parts { table, hash_seed, .. }, _) = self.of_mut(root);
        let seed = *hash_seed;
        let hash_of = |_, name: &[u8]| KeyHash::of(name, seed);
        table.grow(owner, slots, now.since_start_s, hash_of);
    }

    /// Releases up to this many parts of an object whose root record is dead. Returns true once no
    /// part is left and the table is freed too.
    pub fn release<J: Journal>(
        &mut self,
        (owner, slots, lag): (&mut Owner<J>, &mut Slots, &mut Lag),
        root: u32,
        most: usize,
        now: Now,
    ) -> bool {
        let Some(parts) = self.by_root.get_mut(&root) else { return true };
        let mut released = 0;
        while parts.table.records() > 0 && released < most {
            let bucket = parts.releasing;
            parts.releasing += 1;
            // A bucket's number is a hash that leads to it.
            parts.keep_for_reads(owner, KeyHash(bucket), (&mut self.reads, self.most_kept));
            for (place, slot) in parts.table.places(owner, bucket) {
                self.numbered_bytes += parts.note_slot(record_key(owner, slot.slot), 0);
                let dead = flip_dead(owner, slot.slot);
                parts.table.remove(owner, place);
                parts.bytes -= slots.bytes_of(dead);
                lag.forget(dead.slot);
                slots.release(owner, dead, None, now.since_start_s);
                released += 1;
            }
            parts.table.shed(owner, slots, bucket, now.since_start_s);
            released += 1;
        }
        if parts.table.records() > 0 {
            return false;
        }
        parts.table.give_chunks(slots);
        self.numbered_bytes -= parts.numbered.bytes();
        self.by_root.remove(&root);
        true
    }

    /// Whether the part in this slot belongs to an object whose table is here.
    pub fn contain<J: Journal>(&self, owner: &Owner<J>, slot: u32) -> bool {
        let parts = self.by_root.get(&root_of(owner, slot));
        parts.is_some_and(|parts| parts.kind == kind_of(owner, slot).plain())
    }

    /// The position of the part in this slot in its object's table, if it is there.
    pub fn find_in<J: Journal>(&self, owner: &Owner<J>, slot: u32) -> Option<Found> {
        let parts = self.by_root.get(&root_of(owner, slot))?;
        parts.find(owner, record_key(owner, slot)).filter(|found| found.slot.slot == slot)
    }

    /// Moves the part that was found to another slot. Gives the old one: it is dead.
    pub fn move_to<J: Journal>(
        &mut self,
        (owner, slots): (&mut Owner<J>, &Slots),
        found: Found,
        to: Slot,
        region: u32,
    ) -> Slot {
        let slot = found.slot.slot;
        let root = root_of(owner, slot);
        self.note_slot(root, record_key(owner, slot), to.slot);
        let (parts, _) = self.of_mut(root);
        parts.readings.keep_moving(owner, slot);
        copy_pending(owner, parts.secret, region, slot, to);
        let dead = flip_dead(owner, slot);
        publish_live(owner, to);
        let word = BucketSlot {
            slot: to.slot,
            class: to.class,
            generation_low: to.generation as u8,
            ..found.slot
        };
        parts.table.replace(owner, found.place, word);
        parts.bytes = parts.bytes + slots.bytes_of(to) - slots.bytes_of(dead);
        dead
    }

    /// Begins a read of all parts of an object as they are now.
    pub fn begin_read(&mut self, root: u32, write: Write) -> PartsRead {
        let (Parts { root, table, readings, .. }, (reads, _)) = self.of_mut(root);
        reads.begin((*root, table), readings, write)
    }

    /// Continues a read: [`PartsRead::go_on`].
    ///
    /// # Errors
    /// Too much has changed since it began.
    pub fn read_more<J: Journal>(
        &self,
        owner: &Owner<J>,
        read: &PartsRead,
        found: &mut Vec<u8>,
        bytes: usize,
    ) -> Result<bool, Status> {
        let parts = self.by_root.get(&read.root.slot).filter(|parts| parts.root == read.root);
        read.go_on(owner, parts.map(|parts| &parts.table), found, bytes)
    }

    /// Compares the parts of all objects of this kind with their tables. Bytes of
    /// their slots, overflow buckets included.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub fn audit<J: Journal>(
        &self,
        owner: &Owner<J>,
        slots: &Slots,
        kind: Kind,
    ) -> Result<u64, String> {
        let numbered: u64 = self.by_root.values().map(|parts| parts.numbered.bytes()).sum();
        if numbered != self.numbered_bytes {
            return Err("slots by number take other bytes than the books say".to_owned());
        }
        let of_kind = self.by_root.values().filter(|parts| parts.kind == kind);
        of_kind.map(|parts| parts.audit(owner, slots)).sum()
    }
}

/// The slot of the root record of the part in a slot: it is in the field of the expiry, which parts
/// do not have.
pub(super) fn root_of<J: Journal>(owner: &Owner<J>, slot: u32) -> u32 {
    mutable_of(owner, slot).expires_at_ms as u32
}

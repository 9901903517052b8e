//! A tree's state beside its root record: the records of its objects, and the objects whose ids are
//! not their words.

use super::record::{bytes_of, carried_in, expires_at_ms, has_expired, word_in};
use super::stage::Stage;
use crate::store::{Now, Store};
use remora_arena::{Journal, Slot};
use remora_index::hash::record_key;
use remora_index::rtree::{Object, Tree};
use remora_index::{HashSweep, SlotTable};
use remora_layout::hash::{checksum, mix};
use remora_layout::object::{is_surrogate, object_key};
use remora_layout::rect::Rect;
use remora_protocol::tree::{FoundObjects, ObjectId};

/// A tree's state beside its root record, and its objects' data.
pub(super) struct Named {
    pub tree: Tree,
    pub root: Slot,
    /// The seed is secret, so that clients cannot find words and ids that share a bucket.
    seed: u64,
    /// Records of the objects' payloads, by the objects' words.
    records: SlotTable,
    /// Records of objects with surrogates, by the texts of their ids.
    names: SlotTable,
    /// Objects that have each of these.
    pub with: With,
    /// Bytes of the slots of their records.
    pub data_bytes: u64,
    /// The value of [`Named::heap_bytes`] at the last count.
    pub counted_heap: u64,
    /// The objects from which it is to be built, while they arrive.
    pub stage: Option<Stage>,
}

/// Objects that have each of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct With {
    pub data: u64,
    pub geometry: u64,
    pub fields: u64,
    pub expiry: u64,
    pub surrogate: u64,
}

impl With {
    /// The payload of the object whose record lies in this slot.
    pub fn of<J: Journal>(store: &Store<J>, slot: u32) -> Self {
        let payload = carried_in(store, slot);
        Self {
            data: u64::from(!payload.data.is_empty()),
            geometry: u64::from(!payload.geometry.is_empty()),
            fields: u64::from(!payload.fields.is_empty()),
            expiry: u64::from(expires_at_ms(store, slot) != 0),
            surrogate: u64::from(is_surrogate(word_in(store, slot))),
        }
    }

    /// Each number of the one replaced by that of the other.
    pub fn replace(&mut self, old: Self, new: Self) {
        self.data = self.data + new.data - old.data;
        self.geometry = self.geometry + new.geometry - old.geometry;
        self.fields = self.fields + new.fields - old.fields;
        self.expiry = self.expiry + new.expiry - old.expiry;
        self.surrogate = self.surrogate + new.surrogate - old.surrogate;
    }
}

impl Named {
    pub fn new(tree: Tree, root: Slot, seed: u64) -> Self {
        Self {
            tree,
            root,
            seed,
            records: SlotTable::default(),
            names: SlotTable::default(),
            with: With::default(),
            data_bytes: 0,
            counted_heap: 0,
            stage: None,
        }
    }

    /// Bytes on the heap, without staged objects.
    pub fn heap_bytes(&self) -> u64 {
        let tables = self.records.heap_bytes() + self.names.heap_bytes();
        // The tree counts itself. Half as much again for its entry in the map.
        (size_of::<Self>() * 3 / 2 - size_of::<Tree>()) as u64 + tables + self.tree.heap_bytes()
    }

    fn hash_of_word(&self, word: u64) -> u32 {
        (mix(word, self.seed) >> 32) as u32
    }

    fn hash_of_text(&self, text: &[u8]) -> u32 {
        (checksum(text, self.seed) >> 32) as u32
    }

    /// The slot of the record of the object with this word.
    pub fn record<J: Journal>(&self, store: &Store<J>, word: u64) -> Option<u32> {
        if self.records.is_empty() {
            return None;
        }
        let key = object_key(word);
        let is_it = |slot: u32| record_key(&store.owner, slot) == key;
        self.records.find(self.hash_of_word(word), is_it)
    }

    /// The slot of the record of the object with this id, if its word is a
    /// surrogate.
    pub fn surrogate_record<J: Journal>(&self, store: &Store<J>, id: ObjectId<'_>) -> Option<u32> {
        if self.names.is_empty() {
            return None;
        }
        id.with_text(|text| {
            let is_it = |slot: u32| carried_in(store, slot).id == text;
            self.names.find(self.hash_of_text(text), is_it)
        })
    }

    /// Gives some more objects of a sweep over those with surrogates to `found`; false if there are
    /// no more.
    pub fn sweep_surrogates<J: Journal>(
        &self,
        store: &Store<J>,
        sweep: &mut HashSweep,
        mut found: impl FnMut(&Object),
    ) -> bool {
        let Some(hash) = sweep.next(&self.names) else { return false };
        for word in self.names.slots_of(hash).map(|slot| word_in(store, slot)) {
            let rect = self.tree.find(&store.owner, word);
            rect.into_iter().for_each(|rect| found(&Object { rect, word }));
        }
        true
    }

    /// The word of an existing object, and its record's slot if it has one. The object may have
    /// expired.
    pub fn locate<J: Journal>(
        &self,
        store: &Store<J>,
        id: ObjectId<'_>,
    ) -> Option<(u64, Option<u32>)> {
        if let Some(slot) = self.surrogate_record(store, id) {
            return Some((word_in(store, slot), Some(slot)));
        }
        match id {
            ObjectId::Number(word) if self.tree.find(&store.owner, word).is_some() => {
                Some((word, self.record(store, word)))
            }
            _ => None,
        }
    }

    /// The word and the rectangle of the object that had this word: one with an
    /// integer may have been given a surrogate since.
    pub fn present<J: Journal>(&self, store: &Store<J>, word: u64) -> Option<(u64, Rect)> {
        let word = match self.tree.find(&store.owner, word) {
            Some(rect) => return Some((word, rect)),
            None if is_surrogate(word) => return None,
            None => word_in(store, self.surrogate_record(store, ObjectId::Number(word))?),
        };
        self.tree.find(&store.owner, word).map(|rect| (word, rect))
    }

    /// The text of the id of the object with this surrogate, unless the object was removed or has
    /// expired. Not inlined: searches call it rarely, and need their registers.
    #[inline(never)]
    pub fn text_of<'s, J: Journal>(
        &self,
        store: &'s Store<J>,
        word: u64,
        now: Now,
    ) -> Option<&'s [u8]> {
        let slot = self.record(store, word).filter(|&slot| !has_expired(store, slot, now))?;
        Some(carried_in(store, slot).id)
    }

    /// Whether a search gives the object with this word: a surrogate's may have
    /// expired.
    #[inline(always)]
    pub fn is_given<J: Journal>(&self, store: &Store<J>, word: u64, now: Now) -> bool {
        !is_surrogate(word) || self.text_of(store, word, now).is_some()
    }

    /// Appends an object to a search's results, with its id, unless it has expired. Returns whether
    /// it did.
    #[inline(always)]
    pub fn give<J: Journal>(
        &self,
        store: &Store<J>,
        object: &Object,
        now: Now,
        found: &mut Vec<u8>,
    ) -> bool {
        if !is_surrogate(object.word) {
            FoundObjects::push(found, object);
            return true;
        }
        let text = self.text_of(store, object.word, now);
        text.inspect(|text| FoundObjects::push_named(found, object, text)).is_some()
    }

    /// The record in this slot is an object's from now on.
    pub fn insert_record<J: Journal>(&mut self, store: &Store<J>, slot: u32) {
        let word = word_in(store, slot);
        self.data_bytes += bytes_of(store, slot);
        self.records.insert(self.hash_of_word(word), slot);
        if is_surrogate(word) {
            self.names.insert(self.hash_of_text(carried_in(store, slot).id), slot);
        }
    }

    /// The record in this slot no longer belongs to an object.
    pub fn remove_record<J: Journal>(&mut self, store: &Store<J>, slot: u32) {
        let word = word_in(store, slot);
        let was_there = self.records.remove(self.hash_of_word(word), slot);
        assert!(was_there, "an object's record is known");
        self.data_bytes -= bytes_of(store, slot);
        if is_surrogate(word) {
            self.names.remove(self.hash_of_text(carried_in(store, slot).id), slot);
        }
    }

    /// Slots of all records.
    pub fn record_slots(&self) -> impl Iterator<Item = u32> {
        self.records.slots()
    }

    /// Takes out some records for release: the tree is removed.
    pub fn take_records(&mut self, most: usize) -> Vec<u32> {
        self.records.take_some(most)
    }

    /// Compares records, ids and the tree.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub fn audit<J: Journal>(&self, store: &Store<J>) -> Result<(), String> {
        let mut with = With::default();
        let mut data_bytes = 0;
        for slot in self.record_slots() {
            let (word, payload) = (word_in(store, slot), carried_in(store, slot));
            with.replace(With::default(), With::of(store, slot));
            data_bytes += bytes_of(store, slot);
            if self.record(store, word) != Some(slot)
                || self.tree.find(&store.owner, word).is_none()
            {
                return Err(format!("the record in slot {slot} is of no object: {word:#x}"));
            }
            if is_surrogate(word) == payload.id.is_empty() {
                return Err(format!("object {word:#x} has an id of its own, or lacks one"));
            }
            let id = ObjectId::of_text(payload.id);
            if is_surrogate(word) && self.surrogate_record(store, id) != Some(slot) {
                return Err(format!("object {id} is not where it is looked for"));
            }
            if is_surrogate(word)
                && let ObjectId::Number(number) = id
                && self.tree.find(&store.owner, number).is_some()
            {
                return Err(format!("object {id} stands in the tree twice"));
            }
            if expires_at_ms(store, slot) != 0 && !is_surrogate(word) {
                return Err(format!("object {id} expires, and readers cannot know"));
            }
        }
        if data_bytes != self.data_bytes {
            return Err(format!("records take {data_bytes}, the books say {}", self.data_bytes));
        }
        if with != self.with || with.surrogate != self.names.len() {
            return Err(format!("objects have {with:?}, the books say {:?}", self.with));
        }
        Ok(())
    }
}

//! The places of one set's members.
//!
//! A table of slots finds a member's record by its name. The record has the member as its key and the
//! score as its value; no path of the shard's table leads to it. The score is changed in place: only the
//! owner reads it, and the record's checksum no longer holds. An entry of the R-tree has the record's
//! slot as its id, and the place of the score as its rectangle. Readers take the name from the record:
//! [`crate::geo_read`].

use crate::store::DumpAt;
use remora_arena::{Journal, Owner, Slot, set_state_guardian};
use remora_index::SlotTable;
use remora_index::hash::{record_key, record_value};
use remora_index::rtree::Tree;
use remora_layout::hash::checksum;
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::record::{RECORD_HEADER_BYTES, State};
use remora_protocol::geo::Position;

/// The places of one set's members.
pub(in crate::types::sorted) struct PlaceSet {
    /// The set's root record, in whose state the tree's header lies.
    pub root: Slot,
    pub tree: Tree,
    stage: Stage,
    /// The seed is secret, so that clients cannot find names that share a bucket.
    seed: u64,
    members: SlotTable,
    /// Bytes of the slots of the records.
    data_bytes: u64,
    /// The value of [`PlaceSet::heap_bytes`] at the last count.
    pub counted_heap: u64,
}

enum Stage {
    /// The sweep over the members goes on there.
    Building(DumpAt),
    /// Each member that can have a place has it.
    Complete,
    /// Memory did not suffice.
    Ended,
}

/// The name of the member in a slot.
pub(in crate::types::sorted) fn member_in<J: Journal>(owner: &Owner<J>, slot: u32) -> &[u8] {
    record_key(owner, slot)
}

/// The score of the member in a slot.
pub(in crate::types::sorted) fn score_in<J: Journal>(owner: &Owner<J>, slot: u32) -> f64 {
    let bytes = record_value(owner, slot).first_chunk().expect("a score has eight bytes");
    f64::from_le_bytes(*bytes)
}

/// Gives the member in a slot another score.
pub(super) fn set_score<J: Journal>(owner: &mut Owner<J>, slot: u32, score: f64) {
    let name = member_in(owner, slot).len();
    let at = slot as usize * SLOT_UNIT_BYTES + RECORD_HEADER_BYTES + name;
    owner.store_within(at, &score.to_le_bytes());
}

impl PlaceSet {
    /// No places yet, in this tree.
    pub fn new(root: Slot, tree: Tree, seed: u64) -> Self {
        let (stage, members) = (Stage::Building(None), SlotTable::default());
        Self { root, tree, stage, seed, members, data_bytes: 0, counted_heap: 0 }
    }

    /// Whether each member that can have a place has it.
    pub fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete)
    }

    /// Whether memory did not suffice.
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    /// Where the sweep over the members goes on; none if there is no more to do.
    pub fn begin_step(&mut self) -> Option<DumpAt> {
        let Stage::Building(at) = &mut self.stage else { return None };
        Some(at.take())
    }

    /// The sweep has come so far, or to its end.
    pub fn end_step(&mut self, at: DumpAt, is_last: bool) {
        self.stage = if is_last { Stage::Complete } else { Stage::Building(at) };
    }

    /// Memory does not suffice: no reader finds the tree from now on.
    pub fn end<J: Journal>(&mut self, owner: &mut Owner<J>) {
        self.stage = Stage::Ended;
        set_state_guardian(owner, self.root, State::Dead);
    }

    /// Number of places.
    pub fn count(&self) -> u64 {
        self.members.len()
    }

    /// Bytes that they take on the heap.
    pub fn heap_bytes(&self) -> u64 {
        // Half as much again for its entry in the map.
        let own = (size_of::<Self>() * 3 / 2) as u64;
        own + self.members.heap_bytes() + self.tree.heap_bytes()
    }

    /// Bytes of the slots of the records.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Slots of all records.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.members.slots()
    }

    /// Takes out some for release; their names are not found afterwards.
    pub fn take_some(&mut self, most: usize) -> Vec<u32> {
        self.members.take_some(most)
    }

    fn hash(&self, member: &[u8]) -> u32 {
        (checksum(member, self.seed) >> 32) as u32
    }

    /// The slot of a member's record.
    pub fn find<J: Journal>(&self, owner: &Owner<J>, member: &[u8]) -> Option<u32> {
        self.members.find(self.hash(member), |slot| member_in(owner, slot) == member)
    }

    /// Adds an absent member in this slot, of this many bytes.
    pub fn insert(&mut self, member: &[u8], (slot, bytes): (u32, u64)) {
        self.data_bytes += bytes;
        self.members.insert(self.hash(member), slot);
    }

    /// Removes the member in this slot.
    pub fn remove(&mut self, member: &[u8], (slot, bytes): (u32, u64)) {
        self.data_bytes -= bytes;
        self.members.remove(self.hash(member), slot);
    }

    /// Compares the table of names, the records and the tree with each other and with the scores.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub fn audit<J: Journal>(
        &self,
        owner: &Owner<J>,
        score_of: impl Fn(&[u8]) -> Option<f64>,
    ) -> Result<(), String> {
        let mut places = 0;
        for slot in self.slots() {
            places += 1;
            let (member, score) = (member_in(owner, slot), score_in(owner, slot));
            if self.find(owner, member) != Some(slot) {
                return Err(format!("slot {slot} is not where its member is looked for"));
            }
            if score_of(member) != Some(score) {
                return Err(format!("the member in slot {slot} has another score in its set"));
            }
            let point = Position::of_score(score).point();
            if self.tree.find(owner, slot.into()) != Some(point) {
                return Err(format!("the tree has the member in slot {slot} elsewhere"));
            }
        }
        match (places, self.tree.objects()) == (self.count(), self.count()) {
            true => Ok(()),
            false => Err(format!("{places} members have names, {} places", self.tree.objects())),
        }
    }
}

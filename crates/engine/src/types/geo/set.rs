//! The content of a GEO key: its members by name, and their positions in a tree once there are
//! many.
//!
//! A table of slots finds a member's record by its name. The record has the member as its key and
//! the score as its value; no path of the shard's table leads to it. The score is changed in place:
//! only the owner reads it, and the record's checksum no longer holds. A tree's object has the
//! record's slot as its id, and the place of the score as its rectangle. Readers take the name from
//! the record: [`crate::geo_read`].

use remora_arena::{Journal, Owner, Slot};
use remora_index::hash::{record_key, record_value};
use remora_index::rtree::Tree;
use remora_index::{HashSweep, SlotTable};
use remora_layout::hash::checksum;
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::record::RECORD_HEADER_BYTES;
use remora_protocol::geo::Position;

/// The content of a GEO key.
pub(super) struct GeoSet {
    /// The key's root record, in whose state block the tree's header lies.
    pub root: Slot,
    pub tree: Option<Tree>,
    /// The seed is secret, so that clients cannot find names that share a bucket.
    seed: u64,
    members: SlotTable,
    /// Bytes of the slots of the members' records.
    data_bytes: u64,
    /// The value of [`GeoSet::heap_bytes`] at the last count.
    pub counted_heap: u64,
}

/// The name of the member in a slot.
pub(super) fn member_in<J: Journal>(owner: &Owner<J>, slot: u32) -> &[u8] {
    record_key(owner, slot)
}

/// The score of the member in a slot.
pub(super) fn score_in<J: Journal>(owner: &Owner<J>, slot: u32) -> f64 {
    let bytes = record_value(owner, slot).first_chunk().expect("a score has eight bytes");
    f64::from_le_bytes(*bytes)
}

/// Gives the member in a slot another score.
pub(super) fn set_score<J: Journal>(owner: &mut Owner<J>, slot: u32, score: f64) {
    let name = member_in(owner, slot).len();
    let at = slot as usize * SLOT_UNIT_BYTES + RECORD_HEADER_BYTES + name;
    owner.store_within(at, &score.to_le_bytes());
}

impl GeoSet {
    /// An empty one.
    pub fn new(root: Slot, seed: u64) -> Self {
        Self {
            root,
            tree: None,
            seed,
            members: SlotTable::default(),
            data_bytes: 0,
            counted_heap: 0,
        }
    }

    /// Number of members.
    pub fn members(&self) -> u64 {
        self.members.len()
    }

    /// Bytes that it takes on the heap.
    pub fn heap_bytes(&self) -> u64 {
        let tree = self.tree.as_ref().map_or(0, Tree::heap_bytes);
        // Half as much again for its entry in the map.
        (size_of::<Self>() * 3 / 2) as u64 + self.members.heap_bytes() + tree
    }

    /// Bytes of the arena that the tree takes.
    pub fn tree_bytes(&self) -> u64 {
        self.tree.as_ref().map_or(0, Tree::bytes)
    }

    /// Bytes of the slots of the members' records.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Slots of all members.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.members.slots()
    }

    /// Into how many parts the members are divided.
    pub fn parts(&self) -> usize {
        self.members.parts()
    }

    /// Slots of the members of one part.
    pub fn slots_of(&self, part: usize) -> impl Iterator<Item = u32> {
        self.members.slots_in(part)
    }

    /// Gives the slots of some more members of a sweep to `found`; false if there are no more.
    pub fn sweep_some(&self, sweep: &mut HashSweep, found: impl FnMut(u32)) -> bool {
        let Some(hash) = sweep.next(&self.members) else { return false };
        self.members.slots_of(hash).for_each(found);
        true
    }

    /// Takes out some members for release; their names are not found afterwards.
    pub fn take_some(&mut self, most: usize) -> Vec<u32> {
        self.members.take_some(most)
    }

    fn hash(&self, member: &[u8]) -> u32 {
        (checksum(member, self.seed) >> 32) as u32
    }

    /// The slot of a member.
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

    /// Gets a tree of all its members.
    pub fn set_tree(&mut self, tree: Tree) {
        self.tree = Some(tree);
    }

    /// Compares the table of names, the records and the tree.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub fn audit<J: Journal>(&self, owner: &Owner<J>) -> Result<(), String> {
        let mut members = 0;
        for slot in self.slots() {
            members += 1;
            let (member, score) = (member_in(owner, slot), score_in(owner, slot));
            if self.find(owner, member) != Some(slot) {
                return Err(format!("slot {slot} is not where its member is looked for"));
            }
            let point = Position::of_score(score).point();
            if let Some(tree) = &self.tree
                && tree.find(owner, slot.into()) != Some(point)
            {
                return Err(format!("the tree has the member in slot {slot} elsewhere"));
            }
        }
        let objects = self.tree.as_ref().map_or(members, Tree::objects);
        if members != self.members() || objects != members {
            return Err(format!(
                "{members} members have names, {objects} places, the books say {}",
                self.members()
            ));
        }
        Ok(())
    }
}

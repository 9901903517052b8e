//! What a GEO key holds: its members by name, and their places in a tree once
//! there are many.
//!
//! ```text
//!  a word for each member   | 32 bits of the name's hash | slot of its record 32 |
//! ```
//! The record, which no path of the shard's table leads to, has the member as
//! its key and the score as its value. The score is changed in place: nobody
//! but the owner reads it, and the record's checksum no longer holds. A tree's
//! object has the record's slot as its id, and the place of the score as its
//! rectangle. Readers take the name from the record: [`crate::geo_read`].

use crate::geo::Position;
use hashbrown::HashTable;
use remora_arena::{Journal, Owner};
use remora_index::hash::{record_key, record_value};
use remora_index::rtree::Tree;
use remora_layout::hash::{KeyHash, mix};
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::node::NodeRef;
use remora_layout::record::RECORD_HEADER_BYTES;

/// Parts of the table of names once there is a tree: one that grows is copied,
/// and no command is to wait for the copy of a large one.
const PARTS: usize = 256;

/// What a GEO key holds.
pub(super) struct GeoSet {
    /// No two that a shard has had have the same.
    pub serial: u64,
    /// Unix ms; 0 for never.
    pub expires_at_ms: u64,
    pub tree: Option<Tree>,
    /// Nobody else knows which names share a bucket.
    seed: u64,
    parts: Box<[HashTable<u64>]>,
    members: u64,
}

fn spread(word: u64) -> u64 {
    mix(word >> 32, 0)
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
    pub fn new(serial: u64, seed: u64) -> Self {
        let parts = Box::new([HashTable::new()]);
        Self { serial, expires_at_ms: 0, tree: None, seed, parts, members: 0 }
    }

    /// Number of members.
    pub fn members(&self) -> u64 {
        self.members
    }

    /// Where the header of the tree lies, if there is one that may be read.
    pub fn place(&self) -> Option<NodeRef> {
        let tree = self.tree.as_ref().filter(|tree| !tree.is_hidden());
        tree.filter(|_| self.expires_at_ms == 0).map(Tree::at)
    }

    /// Bytes of the arena that the tree takes.
    pub fn tree_bytes(&self) -> u64 {
        self.tree.as_ref().map_or(0, Tree::bytes)
    }

    /// Slots of all members.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().flatten().map(|&word| word as u32)
    }

    fn hash(&self, member: &[u8]) -> u32 {
        (KeyHash::of(member, self.seed).0 >> 32) as u32
    }

    fn part(&self, hash: u32) -> usize {
        hash as usize % self.parts.len()
    }

    /// The slot of a member.
    pub fn find<J: Journal>(&self, owner: &Owner<J>, member: &[u8]) -> Option<u32> {
        let hash = self.hash(member);
        let word = self.parts[self.part(hash)].find(spread((hash as u64) << 32), |&word| {
            (word >> 32) as u32 == hash && member_in(owner, word as u32) == member
        });
        word.map(|&word| word as u32)
    }

    /// A member that is not there stands in this slot.
    pub fn insert(&mut self, member: &[u8], slot: u32) {
        let hash = self.hash(member);
        let word = (hash as u64) << 32 | slot as u64;
        let part = self.part(hash);
        self.parts[part].insert_unique(spread(word), word, |&word| spread(word));
        self.members += 1;
    }

    /// The member in this slot is there no more.
    pub fn remove(&mut self, member: &[u8], slot: u32) {
        let hash = self.hash(member);
        let word = (hash as u64) << 32 | slot as u64;
        let part = self.part(hash);
        if let Ok(entry) = self.parts[part].find_entry(spread(word), |&other| other == word) {
            entry.remove();
            self.members -= 1;
        }
    }

    /// Gets a tree of all its members.
    pub fn set_tree(&mut self, tree: Tree) {
        self.tree = Some(tree);
        let mut parts: Box<[HashTable<u64>]> = (0..PARTS).map(|_| HashTable::new()).collect();
        for &word in self.parts.iter().flatten() {
            let part = (word >> 32) as usize % PARTS;
            parts[part].insert_unique(spread(word), word, |&word| spread(word));
        }
        self.parts = parts;
    }

    /// Compares the table of names, the records and the tree.
    ///
    /// # Errors
    /// What does not fit.
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
        if members != self.members || objects != members {
            return Err(format!(
                "{members} members have names, {objects} places, the books say {}",
                self.members
            ));
        }
        Ok(())
    }
}

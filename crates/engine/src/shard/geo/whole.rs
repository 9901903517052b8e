//! GEO keys as a whole: stored, given a tree, removed.

use super::super::{Now, Shard};
use super::set::{GeoSet, member_in, score_in};
use crate::command::{Command, GeoCommand, Places, Reply};
use crate::geo::Position;
use remora_arena::{Journal, slot_of};
use remora_index::rtree::{Arena, Tree, TreeError, TreeOptions};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{GEO_TREE_MEMBERS, MAX_GEO_KEYS, NODE_ENTRIES};
use remora_layout::message::Status;
use remora_layout::node::Home;
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;

impl<J: Journal> Shard<J> {
    /// Makes a tree of a key's members if there are enough. Where memory does
    /// not suffice they are looked at one by one, until it is tried again.
    pub(super) fn plant_geo_tree(&mut self, key: &[u8], hash: KeyHash) {
        let Some(set) = self.geo.get_mut(key, hash) else { return };
        let members = set.members();
        if set.tree.is_some() || members < GEO_TREE_MEMBERS || !members.is_power_of_two() {
            return;
        }
        let place = |slot| (slot, score_in(&self.owner, slot));
        let places: Vec<(u32, f64)> = set.slots().map(place).collect();
        let Ok(tree) = self.tree_of(&places) else { return };
        self.geo.totals.node_bytes += tree.bytes();
        let set = self.geo.get_mut(key, hash).expect("it was there");
        set.set_tree(tree);
    }

    /// A tree of members, by slot and score.
    fn tree_of(&mut self, places: &[(u32, f64)]) -> Result<Tree, TreeError> {
        let home = Home { secret: self.options.record_secret, region: self.options.region };
        let options = TreeOptions {
            kind: TreeKind::default(),
            capacity: NODE_ENTRIES,
            bounds: Rect::default(),
        };
        let changed_at = self.log.last_sequence() + 1;
        let (owner, slots) = (&mut self.owner, &mut self.slots);
        let mut arena = Arena { owner, slots, changed_at };
        let mut tree = Tree::create(&mut arena, home, options)?;
        let object = |&(slot, score): &(u32, f64)| -> (u64, Rect) {
            (slot.into(), Position::of_score(score).point())
        };
        match tree.load(&mut arena, places.iter().map(object).collect(), |_| {}) {
            Ok(()) => Ok(tree),
            Err(error) => {
                tree.destroy(&mut arena);
                Err(error)
            }
        }
    }

    pub(super) fn geo_store(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        places: Places<'_>,
        now: Now,
    ) -> Reply<'_> {
        let is_there = self.meets_geo(key, hash, now);
        let found = self.lookup(key, hash, now);
        if places.is_empty() && !is_there && found.is_none() {
            return Reply::number(0);
        }
        if !is_there && !places.is_empty() && self.geo.keys.len() >= MAX_GEO_KEYS {
            return Reply::status(Status::TooManyGeoKeys);
        }
        let Some(made) = self.set_of(places, now) else {
            return Reply::status(Status::OutOfMemory);
        };
        self.log.append(&Command::Geo { key, command: GeoCommand::Store { places } });
        // Making room may have moved or evicted a record.
        if let Some(found) = self.found(key, hash) {
            self.remove(found, hash, now);
        }
        self.drop_geo(key, hash, now);
        let members = made.members();
        self.geo.totals.members += members;
        if members > 0 {
            self.geo.insert(key, hash, made);
        }
        Reply::number(members as i64)
    }

    /// A set of these members that no key leads to; none if there is no room.
    fn set_of(&mut self, places: Places<'_>, now: Now) -> Option<GeoSet> {
        let mut set = self.geo.new_set(self.options.record_secret);
        let mut kept: Vec<(u32, f64)> = Vec::new();
        for place in places.iter() {
            if set.find(&self.owner, place.member).is_some() {
                continue;
            }
            let Ok(slot) = self.keep_member(&place, now) else {
                for (slot, _) in kept {
                    self.drop_member(slot_of(&self.owner, slot), now);
                }
                return None;
            };
            set.insert(place.member, slot.slot);
            kept.push((slot.slot, place.score));
        }
        if set.members() >= GEO_TREE_MEMBERS
            && let Ok(tree) = self.tree_of(&kept)
        {
            self.geo.totals.node_bytes += tree.bytes();
            set.set_tree(tree);
        }
        Some(set)
    }

    /// Removes a GEO key, if it is one; nothing is logged. Whether it was.
    pub(in crate::shard) fn drop_geo(&mut self, key: &[u8], hash: KeyHash, now: Now) -> bool {
        if self.geo.is_empty() {
            return false;
        }
        let Some(set) = self.geo.take(key, hash) else { return false };
        self.end_geo(set, now);
        true
    }

    fn end_geo(&mut self, mut set: GeoSet, now: Now) {
        // Before any member's slot can hold something else.
        if let Some(tree) = &mut set.tree {
            tree.hide(&mut self.owner);
        }
        for slot in set.slots() {
            debug_assert!(set.find(&self.owner, member_in(&self.owner, slot)) == Some(slot));
            self.drop_member(slot_of(&self.owner, slot), now);
        }
        self.geo.totals.members -= set.members();
        self.geo.totals.node_bytes -= set.tree_bytes();
        let changed_at = self.log.last_sequence();
        let (owner, slots) = (&mut self.owner, &mut self.slots);
        if let Some(tree) = set.tree {
            tree.destroy(&mut Arena { owner, slots, changed_at });
        }
    }

    /// Removes all GEO keys: a flush. How many there were.
    pub(in crate::shard) fn drop_all_geo(&mut self, now: Now) -> u64 {
        self.geo.due.clear();
        let keys = std::mem::take(&mut self.geo.keys);
        let count = keys.len() as u64;
        for keyed in keys {
            self.end_geo(keyed.set, now);
        }
        count
    }
}

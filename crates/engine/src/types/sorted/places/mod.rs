//! The positions of sorted sets that were searched for them: what Redis calls GEO keys.
//!
//! The first search of a large set scans its members. It also makes the shard build an R-tree of
//! their positions, some members in each turn: a record of its own for each member, which the tree's
//! entry names ([`set`]). From the first turn on each change of the set changes its places too.
//!
//! Invariants:
//! * while a set has places, each member that a turn has come to, or that was changed since the first
//!   turn, has its place if its score is that of a position, and no other member has one;
//! * a set's places are no part of its content: they are not logged, a copy builds its own. If memory
//!   does not suffice for them they end, and searches scan the set from then on. The tree's header
//!   stays dead: its place has only one generation, so that there is no second tree.

mod build;
mod set;

pub(super) use set::{member_in, score_in};

use super::changes::Changes;
use crate::store::{Now, Room, Store};
use crate::types::arena::{arena_at, logged_arena};
use remora_arena::{Journal, NewRecord, Slot, publish_live, slot_of, write_pending};
use remora_index::rtree::TreeError;
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::RELEASE_RECORDS;
use remora_protocol::geo::position_of;
use set::{PlaceSet, set_score};
use std::collections::{BTreeMap, BTreeSet};

/// The places of all sets of a shard.
#[derive(Default)]
pub(super) struct AllPlaces {
    /// By the slots of their root records.
    by_root: BTreeMap<u32, PlaceSet>,
    /// Sets that were searched, and have no places yet.
    wanted: BTreeSet<u32>,
    /// Sets whose places are being built, or are being given back.
    unfinished: BTreeSet<u32>,
    totals: Totals,
    /// Bytes of the heap that sets took when they were counted last, and those that may have changed
    /// since.
    counted_heap: u64,
    touched: Vec<u32>,
}

/// What the places of all sets take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    pub places: u64,
    /// Bytes of the arena for nodes.
    pub node_bytes: u64,
    /// Bytes of the arena for records.
    pub data_bytes: u64,
}

impl AllPlaces {
    /// The places of a set, if it has all of them.
    pub fn complete(&self, root: u32) -> Option<&PlaceSet> {
        self.by_root.get(&root).filter(|places| places.is_complete())
    }

    /// Where readers find the tree of a set; 0 if they must ask.
    pub fn tree_word<J: Journal>(&self, store: &Store<J>, root: Slot) -> i64 {
        let places = self.complete(root.slot).filter(|_| store.is_live(root));
        places.map_or(0, |places| places.tree.at().to_word() as i64)
    }

    /// A set was searched: it is to have places.
    pub fn want<J: Journal>(&mut self, store: &mut Store<J>, root: u32) {
        if !self.by_root.contains_key(&root) && self.wanted.insert(root) {
            store.wants_tending = true;
        }
    }

    /// A change of a set is published: its members' places follow, before anything of the set can hold
    /// something else.
    pub fn publish<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, changed_at): (u32, u64),
        Changes { puts, gone }: Changes<'_, '_>,
        now: Now,
    ) {
        if self.by_root.get(&root).is_none_or(PlaceSet::has_ended) {
            return;
        }
        self.touched.push(root);
        let at = (root, changed_at);
        let put = puts.iter().all(|put| self.put(store, at, (put.new, put.member), now));
        let done = put && gone.iter().all(|(_, member)| self.remove(store, at, member, now));
        if !done {
            self.end(store, root);
        }
    }

    /// Gives a member its place. False if memory does not suffice.
    fn put<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        at: (u32, u64),
        (score, member): (f64, &[u8]),
        now: Now,
    ) -> bool {
        let Some(position) = position_of(score) else {
            return self.remove(store, at, member, now);
        };
        let (root, _) = at;
        let found = self.by_root[&root].find(&store.owner, member);
        let slot = match found {
            Some(slot) => slot_of(&store.owner, slot),
            None => match self.keep_member(store, (score, member), now) {
                Some(slot) => slot,
                None => return false,
            },
        };
        let is_put = self.change_tree(store, at, |places, arena| {
            places.tree.plan_put(arena, slot.slot.into(), position.point()).map(drop)
        });
        match (is_put, found) {
            (true, Some(slot)) => set_score(&mut store.owner, slot, score),
            (true, None) => {
                let bytes = store.slots.bytes_of(slot);
                let places = self.by_root.get_mut(&root).expect("looked at above");
                places.insert(member, (slot.slot, bytes));
                self.totals.places += 1;
            }
            (false, Some(_)) => {}
            (false, None) => self.drop_member(store, slot, now),
        }
        is_put
    }

    /// Takes a member's place away, if it has one. False if memory does not suffice.
    fn remove<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        at: (u32, u64),
        member: &[u8],
        now: Now,
    ) -> bool {
        let (root, _) = at;
        let Some(slot) = self.by_root[&root].find(&store.owner, member) else { return true };
        let is_removed = self.change_tree(store, at, |places, arena| {
            places.tree.plan_remove(arena, slot.into()).map(drop)
        });
        if is_removed {
            let slot = slot_of(&store.owner, slot);
            let bytes = store.slots.bytes_of(slot);
            let places = self.by_root.get_mut(&root).expect("looked at above");
            places.remove(member, (slot.slot, bytes));
            self.totals.places -= 1;
            self.drop_member(store, slot, now);
        }
        is_removed
    }

    /// Makes a change of the tree of a set, under this sequence. False if memory does not suffice.
    fn change_tree<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, changed_at): (u32, u64),
        plan: impl Fn(&mut PlaceSet, &mut remora_index::rtree::Arena<'_, J>) -> Result<(), TreeError>,
    ) -> bool {
        let places = self.by_root.get_mut(&root).expect("it has places");
        let before = places.tree.bytes();
        let planned = plan(places, &mut arena_at(store, changed_at));
        if planned.is_ok() {
            places.tree.publish(&mut arena_at(store, changed_at));
        }
        self.totals.node_bytes = self.totals.node_bytes + places.tree.bytes() - before;
        planned.is_ok()
    }

    /// Keeps a member and its score in a slot; none if memory does not suffice.
    fn keep_member<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (score, member): (f64, &[u8]),
        now: Now,
    ) -> Option<Slot> {
        let record = NewRecord {
            database: Database::ZERO,
            key: member,
            value: &score.to_le_bytes(),
            kind: Kind::SORTED_PLACE,
            expires_at_ms: 0,
        };
        // Nothing is moved or evicted for it: a change is being published.
        let slot = store.take_slot(Room::Record { bytes: record.record_bytes() }, now).ok()?;
        let (secret, region) = (store.options.record_secret, store.options.region);
        write_pending(&mut store.owner, secret, region, slot, &record);
        publish_live(&mut store.owner, slot);
        self.totals.data_bytes += store.slots.bytes_of(slot);
        Some(slot)
    }

    fn drop_member<J: Journal>(&mut self, store: &mut Store<J>, slot: Slot, now: Now) {
        self.totals.data_bytes -= store.slots.bytes_of(slot);
        store.give_back(slot, now);
    }

    /// Memory does not suffice: no reader finds the tree any more, and its memory is given back in
    /// turns.
    fn end<J: Journal>(&mut self, store: &mut Store<J>, root: u32) {
        let places = self.by_root.get_mut(&root).expect("it has places");
        places.end(&mut store.owner);
        self.unfinished.insert(root);
        store.wants_tending = true;
    }

    /// Gives back some memory of the places of a set; true once they have none.
    fn give_some<J: Journal>(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        let Some(places) = self.by_root.get_mut(&root) else { return true };
        self.touched.push(root);
        let some = places.take_some(RELEASE_RECORDS);
        if !some.is_empty() {
            self.totals.places -= some.len() as u64;
            for slot in some {
                self.drop_member(store, slot_of(&store.owner, slot), now);
            }
            return false;
        }
        let before = places.tree.bytes();
        let ended = places.tree.release_some(&mut logged_arena(store));
        self.totals.node_bytes -= before - places.tree.bytes();
        ended
    }

    /// Releases some memory of the places of a set that no key leads to any more; true once there is
    /// none.
    pub fn release_some<J: Journal>(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        self.wanted.remove(&root);
        self.unfinished.remove(&root);
        if !self.give_some(store, root, now) {
            return false;
        }
        if let Some(places) = self.by_root.remove(&root) {
            self.counted_heap -= places.counted_heap;
        }
        true
    }

    /// Bytes that the places of a set take, of the arena and of the heap.
    pub fn bytes_of(&self, root: u32) -> u64 {
        self.by_root
            .get(&root)
            .map_or(0, |places| places.data_bytes() + places.tree.bytes() + places.heap_bytes())
    }

    /// Bytes that all of them take on the heap.
    pub fn heap_bytes(&mut self) -> u64 {
        for root in std::mem::take(&mut self.touched) {
            if let Some(places) = self.by_root.get_mut(&root) {
                let now = places.heap_bytes();
                self.counted_heap = self.counted_heap + now - places.counted_heap;
                places.counted_heap = now;
            }
        }
        self.counted_heap
    }

    /// What all of them take.
    pub fn totals(&self) -> (u64, Totals) {
        (self.by_root.len() as u64, self.totals)
    }

    /// Compares the places of all sets with their records and trees, and the counts. `score` gives the
    /// score of a member of the set with this root record, `each_score` those of all. Bytes of the
    /// records.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub fn audit<J: Journal>(
        &self,
        store: &Store<J>,
        score: impl Fn(u32, &[u8]) -> Option<f64>,
        each_score: impl Fn(u32, &mut dyn FnMut(f64)),
    ) -> Result<u64, String> {
        let mut found = Totals::default();
        for (&root, places) in &self.by_root {
            let bytes = |slot| store.slots.bytes_of(slot_of(&store.owner, slot));
            found.places += places.count();
            found.node_bytes += places.tree.bytes();
            found.data_bytes += places.slots().map(bytes).sum::<u64>();
            if !store.is_live(places.root) || places.has_ended() {
                continue;
            }
            places.audit(&store.owner, |member| score(root, member))?;
            let mut wanted = 0;
            each_score(root, &mut |score| wanted += u64::from(position_of(score).is_some()));
            if places.is_complete() && places.count() != wanted {
                return Err(format!("root {root}: {} places, not {wanted}", places.count()));
            }
        }
        match found == self.totals {
            true => Ok(self.totals.data_bytes),
            false => Err(format!("places take {found:?}, not {:?}", self.totals)),
        }
    }
}

//! GEO keys as a whole: stored, given a tree.

use super::keys::GeoKeys;
use super::set::{GeoSet, score_in};
use crate::keys;
use crate::store::Store;
use crate::types::arena::{arena_at, logged_arena};
use crate::types::object::On;
use remora_arena::{Journal, Slot, slot_of};
use remora_index::rtree::{Tree, TreeError, TreeOptions};
use remora_layout::kind::Kind;
use remora_layout::limits::{GEO_TREE_MEMBERS, NODE_ENTRIES};
use remora_layout::node::Home;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_HEADER_BYTES, TreeKind};
use remora_protocol::geo::Position;
use remora_protocol::geo::{GeoCommand, Members};
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};

impl GeoKeys {
    /// Makes a tree of a key's members if there are enough, under the sequence of the change that
    /// brought the last one. If memory does not suffice, searches scan the members one by one until
    /// the next try.
    pub(super) fn plant_tree<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        changed_at: u64,
    ) {
        let Some(set) = self.by_root.get_mut(&root) else { return };
        let members = set.members();
        if set.tree.is_some() || members < GEO_TREE_MEMBERS || !members.is_power_of_two() {
            return;
        }
        let place = |slot| (slot, score_in(&store.owner, slot));
        let places: Vec<(u32, f64)> = set.slots().map(place).collect();
        let Ok(tree) = tree_of(store, (set.root, changed_at), &places) else { return };
        self.totals.node_bytes += tree.bytes();
        set.set_tree(tree);
    }

    pub(super) fn geo_store<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        places: Members<'_>,
    ) -> Reply<'static> {
        let On { key, hash, now } = on;
        let entry = Command::Of { key, request: GeoCommand::Store { places }.request() };
        if places.is_empty() {
            keys::del(store, on);
            return Reply::number(0);
        }
        // Expired or not: the present object is removed.
        let found = store.lookup(key, hash, now);
        store.making_room.keep = found.map(|found| found.slot.slot);
        let made = self.set_of(store, on, places);
        let Some(set) = made else { return Reply::status(Status::OutOfMemory) };
        let (root, members) = (set.root, set.members());
        self.totals.members += members;
        self.by_root.insert(root.slot, set);
        self.touched.push(root.slot);
        // Making room may have moved the object that was found.
        let found = store.found(key, hash);
        match store.enter_root((key, hash), (root, 0), found, (&entry).into(), now) {
            Ok(()) => Reply::number(members as i64),
            Err(_) => {
                self.end_unseen(store, root, now);
                Reply::status(Status::OutOfMemory)
            }
        }
    }

    /// A set of these members that no key leads to; none if there is no room.
    fn set_of<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        places: Members<'_>,
    ) -> Option<GeoSet> {
        let root =
            store.new_root((on.key, on.hash), Kind::GEO, TREE_HEADER_BYTES, 0, on.now).ok()?;
        let mut set = GeoSet::new(root, store.options.record_secret);
        let mut kept: Vec<(u32, f64)> = Vec::new();
        for place in places.iter() {
            if set.find(&store.owner, place.member).is_some() {
                continue;
            }
            let Ok(slot) = self.keep_member(store, &place, on.now) else {
                for (slot, _) in kept {
                    self.drop_member(store, slot_of(&store.owner, slot), on.now);
                }
                store.give_back(root, on.now);
                return None;
            };
            set.insert(place.member, (slot.slot, store.slots.bytes_of(slot)));
            kept.push((slot.slot, place.score));
        }
        if set.members() >= GEO_TREE_MEMBERS
            && let Ok(tree) = tree_of(store, (root, store.last_sequence() + 1), &kept)
        {
            self.totals.node_bytes += tree.bytes();
            set.set_tree(tree);
        }
        Some(set)
    }

    /// Ends a set that no key has led to, and whose root record is freed.
    fn end_unseen<J: Journal>(&mut self, store: &mut Store<J>, root: Slot, now: crate::Now) {
        let Some(mut set) = self.by_root.remove(&root.slot) else { return };
        self.counted_heap -= set.counted_heap;
        self.totals.members -= set.members();
        for slot in set.take_some(usize::MAX) {
            self.drop_member(store, slot_of(&store.owner, slot), now);
        }
        if let Some(tree) = set.tree {
            self.totals.node_bytes -= tree.bytes();
            tree.destroy(&mut logged_arena(store));
        }
    }
}

/// A tree of members, by slot and score, under this sequence. Its header lies in a root record.
fn tree_of<J: Journal>(
    store: &mut Store<J>,
    (root, changed_at): (Slot, u64),
    places: &[(u32, f64)],
) -> Result<Tree, TreeError> {
    let home = Home { secret: store.options.record_secret, region: store.options.region };
    let options =
        TreeOptions { kind: TreeKind::default(), capacity: NODE_ENTRIES, bounds: Rect::default() };
    let at = store.state_of(root);
    let mut arena = arena_at(store, changed_at);
    let mut tree = Tree::create(&mut arena, home, at, options)?;
    let object = |&(slot, score): &(u32, f64)| -> (u64, Rect) {
        (slot.into(), Position::of_score(score).point())
    };
    match tree.load(&mut arena, places.iter().map(object).collect()) {
        Ok(()) => Ok(tree),
        Err(error) => {
            tree.destroy(&mut arena);
            Err(error)
        }
    }
}

//! The GEO keys of a shard: the state of each, and the steps that add and remove a member's record
//! and its position in the tree.

use super::set::GeoSet;
use crate::store::{Now, Room, Store};
use crate::types::arena::{logged_arena, planned_arena};
use crate::types::object::On;
use remora_arena::{Journal, NewRecord, Slot, publish_live, write_pending};
use remora_index::rtree::{Arena, Tree, TreeError};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_protocol::geo::{Member, Position};
use remora_protocol::message::Status;
use std::collections::BTreeMap;

/// The GEO keys of one shard.
#[derive(Default)]
pub(crate) struct GeoKeys {
    /// By the slots of their root records.
    pub(super) by_root: BTreeMap<u32, GeoSet>,
    pub(super) totals: Totals,
    /// Bytes of the heap that keys took when they were counted last, and those that
    /// may have changed since.
    pub(super) counted_heap: u64,
    pub(super) touched: Vec<u32>,
    /// Buffer for a reply's value.
    pub(super) scratch: Vec<u8>,
}

/// The state shared by all GEO keys of a shard.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) members: u64,
    /// Bytes of the arena for nodes.
    pub(super) node_bytes: u64,
    /// Bytes of the arena for members' records.
    pub(super) data_bytes: u64,
}

impl GeoKeys {
    /// A key has given all its memory back.
    pub(super) fn forget(&mut self, root: u32) {
        if let Some(set) = self.by_root.remove(&root) {
            self.counted_heap -= set.counted_heap;
        }
    }

    /// The place of a key's tree for readers; 0 if they must ask.
    pub(super) fn place<J: Journal>(&self, store: &Store<J>, root: Slot) -> i64 {
        let set = self.by_root.get(&root.slot).filter(|_| store.is_live(root));
        let tree = set.and_then(|set| set.tree.as_ref());
        tree.map_or(0, |tree| tree.at().to_word() as i64)
    }

    /// Works out how a member is added that is not there: its record is kept, and its
    /// place in the tree is planned.
    pub(super) fn plan_member<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        place: &Member<'_>,
    ) -> Result<Slot, Status> {
        let point = Position::of_score(place.score).point();
        let slot = self.keep_member(store, place, on.now)?;
        let plan = self.plan_change(store, (on, root), |tree, arena| {
            tree.plan_put(arena, slot.slot.into(), point).map(drop)
        });
        if let Err(status) = plan {
            self.drop_member(store, slot, on.now);
            return Err(status);
        }
        Ok(slot)
    }

    /// A member has this record.
    pub(super) fn insert_member<J: Journal>(
        &mut self,
        store: &Store<J>,
        root: u32,
        (member, slot): (&[u8], Slot),
    ) {
        let set = self.by_root.get_mut(&root).expect("a root record has its set");
        set.insert(member, (slot.slot, store.slots.bytes_of(slot)));
        self.totals.members += 1;
    }

    /// Keeps a member and its score in a slot.
    pub(super) fn keep_member<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        place: &Member<'_>,
        now: Now,
    ) -> Result<Slot, Status> {
        let score = place.score.to_le_bytes();
        let kind = Kind::GEO_MEMBER;
        let record = NewRecord {
            database: Database::ZERO,
            key: place.member,
            value: &score,
            kind,
            expires_at_ms: 0,
        };
        let room = store.allocate(Room::Record { bytes: record.record_bytes() }, now);
        store.shed_thinned(now);
        let slot = room.map_err(|_| Status::OutOfMemory)?;
        let (secret, region) = (store.options.record_secret, store.options.region);
        write_pending(&mut store.owner, secret, region, slot, &record);
        publish_live(&mut store.owner, slot);
        self.totals.data_bytes += store.slots.bytes_of(slot);
        Ok(slot)
    }

    pub(super) fn drop_member<J: Journal>(&mut self, store: &mut Store<J>, slot: Slot, now: Now) {
        self.totals.data_bytes -= store.slots.bytes_of(slot);
        store.give_back(slot, now);
    }

    /// Plans a change of the tree of a key, if it has one; makes room if it is
    /// full and keys may go.
    pub(super) fn plan_change<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        plan: impl Fn(&mut Tree, &mut Arena<'_, J>) -> Result<(), TreeError>,
    ) -> Result<(), Status> {
        let set = self.by_root.get_mut(&root).expect("a root record has its set");
        let Some(tree) = &mut set.tree else { return Ok(()) };
        let before = tree.bytes();
        let mut planned = plan(tree, &mut planned_arena(store));
        if planned.is_err() && store.make_free(tree.wanted_run_bytes(), on.now) {
            planned = plan(tree, &mut planned_arena(store));
        }
        self.totals.node_bytes = self.totals.node_bytes + tree.bytes() - before;
        planned.map_err(|_| Status::OutOfMemory)
    }

    /// Publishes the planned change of a key's tree, if it has one.
    pub(super) fn publish<J: Journal>(&mut self, store: &mut Store<J>, root: u32) {
        let set = self.by_root.get_mut(&root).expect("a root record has its set");
        let Some(tree) = &mut set.tree else { return };
        tree.publish(&mut logged_arena(store));
    }
}

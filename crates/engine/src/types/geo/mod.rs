//! GEO keys: sets of members, each with a position (docs/decisions/0025).
//!
//! What it keeps true: a GEO key has members. A member that has no room is not
//! added, and one that cannot be moved stays. What is changed is logged, one
//! entry for each member.

mod search;
mod set;
mod transfer;
mod whole;

use super::{Content, LongRead, On, Turn, Type, find_root, resume};
use crate::store::{DumpAt, Now, Room, ShardStats, Store};
use remora_arena::{Journal, NewRecord, Slot, publish_live, slot_of, write_pending};
use remora_index::rtree::{Arena, Tree, TreeError};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::RELEASE_RECORDS;
use remora_layout::tree::TREE_HEADER_BYTES;
use remora_protocol::geo::Position;
use remora_protocol::geo::{GeoCommand, Place, Places};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Reply, Request};
use search::Searching;
use set::{GeoSet, score_in, set_score};
use std::collections::BTreeMap;

/// The GEO keys of one shard.
#[derive(Default)]
pub(crate) struct GeoKeys {
    /// By the slots of their root records.
    by_root: BTreeMap<u32, GeoSet>,
    totals: Totals,
    /// Bytes of the heap that keys took when they were counted last, and those that
    /// may have changed since.
    counted_heap: u64,
    touched: Vec<u32>,
    /// What a reply's value is made in.
    scratch: Vec<u8>,
}

/// What all GEO keys of a shard have.
#[derive(Clone, Copy, Default)]
struct Totals {
    members: u64,
    /// Bytes of the arena for nodes.
    node_bytes: u64,
    /// Bytes of the arena for members' records.
    data_bytes: u64,
}

/// What a change of one member has done.
#[derive(PartialEq, Eq)]
enum Put {
    New,
    Changed,
    Unchanged,
}

impl<J: Journal> Type<J> for GeoKeys {
    fn id(&self) -> Kind {
        Kind::GEO
    }

    fn execute<'s>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let command = GeoCommand::of(request);
        if let GeoCommand::Store { places } = command {
            return self.geo_store(store, on, places);
        }
        let root = match find_root(store, on, Kind::GEO) {
            Ok(root) => root,
            Err(status) => return Reply::status(status),
        };
        if let Some(root) = root.filter(|_| request.is_write()) {
            self.touched.push(root);
        }
        match command {
            GeoCommand::Add { condition, tell_changed, places } => {
                self.geo_add(store, (on, root), (condition, tell_changed, places))
            }
            GeoCommand::Remove { places } => self.geo_remove(store, (on, root), places),
            GeoCommand::Scores { places } => self.geo_scores(store, root, places),
            GeoCommand::Members => match root {
                None => Reply::status(Status::NotFound),
                Some(root) => Reply::number(self.by_root[&root].members() as i64),
            },
            GeoCommand::Search { .. } => self.whole_search(store, on, request),
            GeoCommand::Store { .. } => unreachable!("stored above"),
        }
    }

    fn begin_read(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Result<LongRead, Status> {
        let GeoCommand::Search { query } = GeoCommand::of(request) else {
            return Err(Status::Malformed);
        };
        let search = self.begin_search(store, on, query)?;
        Ok(LongRead::new(Kind::GEO, Box::new(search)))
    }

    fn read_turn(
        &self,
        store: &Store<J>,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        _now: Now,
    ) -> Result<Turn, Status> {
        let search: &mut Searching = read.state.downcast_mut().expect("it began here");
        let ended = self.search_turn(store, search, found);
        let number = if ended { self.place(store, search.root) } else { 0 };
        Ok(Turn { ended, number, gives_value: true, ..Turn::default() })
    }

    fn release(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        let Some(set) = self.by_root.get_mut(&root) else { return true };
        let some = set.take_some(RELEASE_RECORDS);
        if !some.is_empty() {
            self.totals.members -= some.len() as u64;
            some.into_iter()
                .for_each(|slot| self.drop_member(store, slot_of(&store.owner, slot), now));
            return false;
        }
        let Some(tree) = &mut set.tree else {
            self.forget(root);
            return true;
        };
        let before = tree.bytes();
        let ended = tree.release_some(&mut store.logged_arena());
        self.totals.node_bytes -= before - tree.bytes();
        if ended {
            self.forget(root);
        }
        ended
    }

    fn bytes_of(&self, _store: &Store<J>, root: u32) -> u64 {
        let set = &self.by_root[&root];
        set.data_bytes() + set.tree_bytes() + set.heap_bytes()
    }

    fn digest(&self, store: &Store<J>, slot: u32, content: &mut Content) -> bool {
        let set = &self.by_root[&slot];
        let part = *resume::<usize>(&mut content.at);
        for slot in set.slots_of(part) {
            let score = score_in(&store.owner, slot).to_le_bytes();
            content.add(&[set::member_in(&store.owner, slot), &score]);
        }
        content.at = Some(Box::new(part + 1));
        part + 1 >= set.parts()
    }

    fn encoding(&self, _is_whole: bool) -> &'static str {
        "skiplist"
    }

    fn dump(&self, store: &Store<J>, root: u32, at: &mut DumpAt, piece: &mut Vec<u8>) -> bool {
        self.dump_members(store, root, at, piece)
    }

    fn begin_load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        _head: &[u8],
    ) -> Result<Slot, Status> {
        self.begin_load_members(store, on)
    }

    fn load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        self.load_members(store, (on, root), piece)
    }

    fn audit(&self, store: &Store<J>) -> Result<u64, String> {
        let mut found = Totals::default();
        for (&root, set) in &self.by_root {
            let name = remora_index::hash::record_key(&store.owner, root);
            let told = |error| format!("GEO key {}: {error}", name.escape_ascii());
            found.members += set.members();
            found.node_bytes += set.tree_bytes();
            let bytes = |slot| store.slots.bytes_of(slot_of(&store.owner, slot));
            let data_bytes = set.slots().map(bytes).sum::<u64>();
            found.data_bytes += data_bytes;
            if store.is_live(set.root) {
                set.audit(&store.owner).map_err(told)?;
                if data_bytes != set.data_bytes() {
                    return Err(told(format!("its records take {data_bytes} bytes")));
                }
                if set.members() == 0 && !store.is_loading(root) {
                    return Err(told("it has no members".into()));
                }
            }
        }
        let books = |t: Totals| (t.members, t.node_bytes, t.data_bytes);
        if books(found) != books(self.totals) {
            return Err(format!(
                "GEO keys have (members, bytes of nodes, of records) {:?}, the books say {:?}",
                books(found),
                books(self.totals)
            ));
        }
        Ok(self.totals.data_bytes)
    }

    fn heap_bytes(&mut self) -> u64 {
        for root in std::mem::take(&mut self.touched) {
            if let Some(set) = self.by_root.get_mut(&root) {
                let now = set.heap_bytes();
                self.counted_heap = self.counted_heap + now - set.counted_heap;
                set.counted_heap = now;
            }
        }
        self.counted_heap
    }

    fn count(&self, stats: &mut ShardStats) {
        stats.geo_keys = self.by_root.len() as u64;
        stats.geo_members = self.totals.members;
        stats.geo_bytes = self.totals.node_bytes + self.totals.data_bytes;
    }
}

impl GeoKeys {
    /// A key has given all its memory back.
    fn forget(&mut self, root: u32) {
        if let Some(set) = self.by_root.remove(&root) {
            self.counted_heap -= set.counted_heap;
        }
    }

    /// Where readers find the tree of a key; 0 if they are to ask.
    fn place<J: Journal>(&self, store: &Store<J>, root: Slot) -> i64 {
        let set = self.by_root.get(&root.slot).filter(|_| store.is_live(root));
        let tree = set.and_then(|set| set.tree.as_ref());
        tree.map_or(0, |tree| tree.at().to_word() as i64)
    }

    fn geo_add<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, mut root): (On<'_>, Option<u32>),
        (condition, tell_changed, places): (Condition, bool, Places<'_>),
    ) -> Reply<'static> {
        let mut counted = 0;
        // Those that were given before memory was full stay as they are.
        for (at, place) in places.iter().enumerate().skip(store.making_room.done) {
            let set = root.map(|root| &self.by_root[&root]);
            let slot = set.and_then(|set| set.find(&store.owner, place.member));
            let is_skipped = match condition {
                Condition::Always => false,
                Condition::IfAbsent => slot.is_some(),
                Condition::IfPresent => slot.is_none(),
            };
            if is_skipped {
                continue;
            }
            match self.put_member(store, (on, &mut root), &place, slot) {
                Ok(Put::New) => counted += 1,
                Ok(Put::Changed) => counted += tell_changed as i64,
                Ok(Put::Unchanged) => {}
                // Tried again, it has those behind it that are counted.
                Err(status) => {
                    store.making_room.done = if store.making_room.tries_again { at } else { 0 };
                    return Reply { number: counted, ..Reply::status(status) };
                }
            }
        }
        Reply::number(counted)
    }

    /// Gives one member a score, and logs it; a key that is not there is made.
    fn put_member<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, &mut Option<u32>),
        place: &Place<'_>,
        slot: Option<u32>,
    ) -> Result<Put, Status> {
        if slot.is_some_and(|slot| score_in(&store.owner, slot) == place.score) {
            return Ok(Put::Unchanged);
        }
        let mut list = Vec::new();
        Places::push(&mut list, &Place { distance: 0.0, ..*place });
        let places = Places::parse(&list).expect("one member of a checked list");
        let command = GeoCommand::Add { condition: Condition::Always, tell_changed: false, places };
        let entry = Command::Of { key: on.key, request: command.request() };
        let point = Position::of_score(place.score).point();
        match (*root, slot) {
            (Some(root), Some(slot)) => {
                self.plan_change(store, (on, root), |tree, arena| {
                    tree.plan_put(arena, slot.into(), point).map(drop)
                })?;
                store.commit(on.hash.database(), &entry, |store| {
                    self.publish(store, root);
                    set_score(&mut store.owner, slot, place.score);
                });
                Ok(Put::Changed)
            }
            (Some(root), None) => {
                self.add_member(store, (on, root), place, &entry)?;
                self.plant_tree(store, root, store.last_sequence());
                Ok(Put::New)
            }
            (None, _) => {
                *root = Some(self.make(store, on, place, &entry)?);
                Ok(Put::New)
            }
        }
    }

    /// Makes a key of one member.
    fn make<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        place: &Place<'_>,
        entry: &Command<'_>,
    ) -> Result<u32, Status> {
        let root = store.new_root((on.key, on.hash), Kind::GEO, TREE_HEADER_BYTES, 0, on.now);
        let root = root.map_err(|_| Status::OutOfMemory)?;
        let slot = match self.keep_member(store, place, on.now) {
            Ok(slot) => slot,
            Err(status) => {
                store.give_back(root, on.now);
                return Err(status);
            }
        };
        let entered = store.enter_root((on.key, on.hash), (root, 0), None, entry.into(), on.now);
        if entered.is_err() {
            self.drop_member(store, slot, on.now);
            return Err(Status::OutOfMemory);
        }
        let mut set = GeoSet::new(root, store.options.record_secret);
        set.insert(place.member, (slot.slot, store.slots.bytes_of(slot)));
        self.by_root.insert(root.slot, set);
        self.touched.push(root.slot);
        self.totals.members += 1;
        Ok(root.slot)
    }

    /// Adds a member that is not there.
    fn add_member<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        place: &Place<'_>,
        entry: &Command<'_>,
    ) -> Result<(), Status> {
        let slot = self.plan_member(store, (on, root), place)?;
        store.commit(on.hash.database(), entry, |store| self.publish(store, root));
        self.insert_member(store, root, (place.member, slot));
        Ok(())
    }

    /// Works out how a member is added that is not there: its record is kept, and its
    /// place in the tree is planned.
    fn plan_member<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        place: &Place<'_>,
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
    fn insert_member<J: Journal>(
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
    fn keep_member<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        place: &Place<'_>,
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

    fn drop_member<J: Journal>(&mut self, store: &mut Store<J>, slot: Slot, now: Now) {
        self.totals.data_bytes -= store.slots.bytes_of(slot);
        store.give_back(slot, now);
    }

    /// Plans a change of the tree of a key, if it has one; makes room if it is
    /// full and keys may go.
    fn plan_change<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        plan: impl Fn(&mut Tree, &mut Arena<'_, J>) -> Result<(), TreeError>,
    ) -> Result<(), Status> {
        let set = self.by_root.get_mut(&root).expect("a root record has its set");
        let Some(tree) = &mut set.tree else { return Ok(()) };
        let before = tree.bytes();
        let mut planned = plan(tree, &mut store.planned_arena());
        if planned.is_err()
            && store.policy.is_some()
            && store.make_free(tree.wanted_run_bytes(), 1, on.now)
        {
            planned = plan(tree, &mut store.planned_arena());
        }
        self.totals.node_bytes = self.totals.node_bytes + tree.bytes() - before;
        planned.map_err(|_| Status::OutOfMemory)
    }

    /// Publishes what was planned of the tree of a key, if it has one.
    fn publish<J: Journal>(&mut self, store: &mut Store<J>, root: u32) {
        let set = self.by_root.get_mut(&root).expect("a root record has its set");
        let Some(tree) = &mut set.tree else { return };
        tree.publish(&mut store.logged_arena());
    }

    fn geo_remove<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        places: Places<'_>,
    ) -> Reply<'static> {
        let mut removed = 0;
        let Some(root) = root else { return Reply::number(0) };
        for Place { member, .. } in places.iter() {
            let set = &self.by_root[&root];
            let Some(slot) = set.find(&store.owner, member) else { continue };
            if set.members() == 1 {
                store.del(on.key, on.hash, on.now);
                return Reply::number(removed + 1);
            }
            let plan = self.plan_change(store, (on, root), |tree, arena| {
                tree.plan_remove(arena, slot.into()).map(drop)
            });
            if let Err(status) = plan {
                return Reply { number: removed, ..Reply::status(status) };
            }
            let mut list = Vec::new();
            Places::push(&mut list, &Place { member, ..Place::default() });
            let places = Places::parse(&list).expect("one member of a checked list");
            let request = GeoCommand::Remove { places }.request();
            store.commit(on.hash.database(), &Command::Of { key: on.key, request }, |store| {
                self.publish(store, root);
                let set = self.by_root.get_mut(&root).expect("it was there");
                let slot = slot_of(&store.owner, slot);
                set.remove(member, (slot.slot, store.slots.bytes_of(slot)));
                self.totals.members -= 1;
                self.drop_member(store, slot, on.now);
            });
            removed += 1;
        }
        Reply::number(removed)
    }

    fn geo_scores<'s, J: Journal>(
        &'s mut self,
        store: &Store<J>,
        root: Option<u32>,
        places: Places<'_>,
    ) -> Reply<'s> {
        self.scratch.clear();
        let set = root.map(|root| &self.by_root[&root]);
        for Place { member, .. } in places.iter() {
            let slot = set.and_then(|set| set.find(&store.owner, member));
            let score = slot.map_or(f64::NAN, |slot| score_in(&store.owner, slot));
            self.scratch.extend_from_slice(&score.to_le_bytes());
        }
        let is_there = set.is_some();
        Reply { value: Some(&self.scratch), ..Reply::number(is_there as i64) }
    }
}

//! GEO keys: sets of members, each with a position, in the space of the keys
//! (docs/decisions/0025).
//!
//! What it keeps true: a key has a record in the table, or is a GEO key, or is
//! not there; a GEO key has members. A member that has no room is not added,
//! and one that cannot be moved stays. What is changed is logged, one entry
//! for each member.

mod keys;
mod search;
mod set;
mod whole;

pub use search::GeoWalk;

use super::defragment::Room;
use super::{Now, Shard};
use crate::command::{Command, Condition, GeoCommand, Place, Places, Reply};
use crate::geo::Position;
use hashbrown::HashTable;
use remora_arena::{Journal, NewRecord, Owner, Slot, Slots, publish_live, slot_of, write_pending};
use remora_index::rtree::{Arena, Tree, TreeError};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{MAX_GEO_KEYS, NODE_ENTRIES, NODE_RUN_BYTES};
use remora_layout::message::Status;
use remora_layout::node::node_bytes;
use remora_layout::rect::Rect;
use set::{GeoSet, score_in, set_score};
use std::collections::BTreeSet;

/// One key.
struct Keyed {
    hash: KeyHash,
    name: Box<[u8]>,
    set: GeoSet,
}

/// The GEO keys of one shard.
#[derive(Default)]
pub(super) struct GeoKeys {
    keys: HashTable<Keyed>,
    /// Those with an expiry, the earliest first.
    due: BTreeSet<(u64, Box<[u8]>)>,
    last_serial: u64,
    totals: Totals,
    /// What a reply's value is made in.
    scratch: Vec<u8>,
}

/// What all GEO keys of a shard have.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub members: u64,
    /// Bytes of the arena for nodes.
    pub node_bytes: u64,
    /// Bytes of the arena for members' records.
    pub data_bytes: u64,
}

/// What a change of one member has done.
#[derive(PartialEq, Eq)]
enum Put {
    New,
    Changed,
    Unchanged,
}

impl GeoKeys {
    /// Whether there are none: what most shards ask.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.keys.len() as u64
    }

    /// How many of them expire.
    pub fn expiring(&self) -> u64 {
        self.due.len() as u64
    }

    /// What they have.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn get(&self, key: &[u8], hash: KeyHash) -> Option<&GeoSet> {
        self.keys.find(hash.0, |keyed| *keyed.name == *key).map(|keyed| &keyed.set)
    }

    fn get_mut(&mut self, key: &[u8], hash: KeyHash) -> Option<&mut GeoSet> {
        self.keys.find_mut(hash.0, |keyed| *keyed.name == *key).map(|keyed| &mut keyed.set)
    }

    fn insert(&mut self, key: &[u8], hash: KeyHash, set: GeoSet) {
        let keyed = Keyed { hash, name: key.into(), set };
        self.keys.insert_unique(hash.0, keyed, |keyed| keyed.hash.0);
    }

    fn take(&mut self, key: &[u8], hash: KeyHash) -> Option<GeoSet> {
        let found = self.keys.find_entry(hash.0, |keyed| *keyed.name == *key).ok()?;
        let (Keyed { name, set, .. }, _) = found.remove();
        if set.expires_at_ms != 0 {
            self.due.remove(&(set.expires_at_ms, name));
        }
        Some(set)
    }

    fn new_set(&mut self, seed: u64) -> GeoSet {
        self.last_serial += 1;
        GeoSet::new(self.last_serial, seed)
    }

    /// Compares each key's parts.
    ///
    /// # Errors
    /// What does not fit.
    pub fn audit<J: Journal>(&self, owner: &Owner<J>, slots: &Slots) -> Result<(), String> {
        let mut found = Totals::default();
        for Keyed { name, set, .. } in &self.keys {
            let told = |error| format!("GEO key {}: {error}", name.escape_ascii());
            set.audit(owner).map_err(told)?;
            if set.members() == 0 {
                return Err(told("it has no members".into()));
            }
            let is_due = self.due.contains(&(set.expires_at_ms, name.clone()));
            if is_due != (set.expires_at_ms != 0) {
                return Err(told("its expiry is not noted".into()));
            }
            found.members += set.members();
            found.node_bytes += set.tree_bytes();
            found.data_bytes +=
                set.slots().map(|slot| slots.bytes_of(slot_of(owner, slot))).sum::<u64>();
        }
        let books = |t: Totals| (t.members, t.node_bytes, t.data_bytes);
        if books(found) != books(self.totals) {
            return Err(format!(
                "GEO keys have (members, bytes of nodes, of records) {:?}, the books say {:?}",
                books(found),
                books(self.totals)
            ));
        }
        Ok(())
    }
}

impl<J: Journal> Shard<J> {
    /// Executes a command about a GEO key, a search to its end.
    pub(super) fn geo(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        command: GeoCommand<'_>,
        now: Now,
    ) -> Reply<'_> {
        if let GeoCommand::Store { places } = command {
            return self.geo_store(key, hash, places, now);
        }
        if self.lookup(key, hash, now).is_some() {
            return Reply::status(Status::WrongType);
        }
        let is_there = self.meets_geo(key, hash, now);
        match command {
            GeoCommand::Add { condition, tell_changed, places } => {
                self.geo_add(key, hash, (condition, tell_changed, places), now)
            }
            GeoCommand::Remove { places } => self.geo_remove(key, hash, places, now),
            GeoCommand::Scores { places } => self.geo_scores(key, hash, places),
            GeoCommand::Members if !is_there => Reply::status(Status::NotFound),
            GeoCommand::Members => {
                Reply::number(self.geo.get(key, hash).map_or(0, |set| set.members() as i64))
            }
            GeoCommand::Search { query } => self.whole_geo_search(key, hash, query, now),
            GeoCommand::Store { .. } => unreachable!("stored above"),
        }
    }

    fn geo_add(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        (condition, tell_changed, places): (Condition, bool, Places<'_>),
        now: Now,
    ) -> Reply<'_> {
        let mut counted = 0;
        for place in places.iter() {
            let set = self.geo.get(key, hash);
            let slot = set.and_then(|set| set.find(&self.owner, place.member));
            let is_skipped = match condition {
                Condition::Always => false,
                Condition::IfAbsent => slot.is_some(),
                Condition::IfPresent => slot.is_none(),
            };
            if is_skipped {
                continue;
            }
            match self.put_member(key, hash, &place, slot, now) {
                Ok(Put::New) => counted += 1,
                Ok(Put::Changed) => counted += tell_changed as i64,
                Ok(Put::Unchanged) => {}
                Err(status) => return Reply::status(status),
            }
        }
        Reply::number(counted)
    }

    /// Gives one member a score, and logs it.
    fn put_member(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        place: &Place<'_>,
        slot: Option<u32>,
        now: Now,
    ) -> Result<Put, Status> {
        if slot.is_some_and(|slot| score_in(&self.owner, slot) == place.score) {
            return Ok(Put::Unchanged);
        }
        let point = Position::of_score(place.score).point();
        let put = match slot {
            Some(slot) => {
                self.change_geo_tree(key, hash, now, |tree, arena| {
                    tree.put(arena, slot.into(), point).map(drop)
                })?;
                set_score(&mut self.owner, slot, place.score);
                Put::Changed
            }
            None => {
                self.add_member(key, hash, place, point, now)?;
                Put::New
            }
        };
        let mut list = Vec::new();
        Places::push(&mut list, &Place { distance: 0.0, ..*place });
        let places = Places::parse(&list).expect("one member of a checked list");
        let command = GeoCommand::Add { condition: Condition::Always, tell_changed: false, places };
        self.log.append(&Command::Geo { key, command });
        if put == Put::New {
            self.plant_geo_tree(key, hash);
        }
        Ok(put)
    }

    /// Adds a member that is not there; a key that is not there is made.
    fn add_member(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        place: &Place<'_>,
        point: Rect,
        now: Now,
    ) -> Result<(), Status> {
        let is_made = self.geo.get(key, hash).is_none();
        if is_made && self.geo.keys.len() >= MAX_GEO_KEYS {
            return Err(Status::TooManyGeoKeys);
        }
        let slot = self.keep_member(place, now)?;
        if is_made {
            let set = self.geo.new_set(self.options.record_secret);
            self.geo.insert(key, hash, set);
        }
        let put = self.change_geo_tree(key, hash, now, |tree, arena| {
            tree.put(arena, slot.slot.into(), point).map(drop)
        });
        if let Err(status) = put {
            self.drop_member(slot, now);
            return Err(status);
        }
        let set = self.geo.get_mut(key, hash).expect("it is there, or was made");
        set.insert(place.member, slot.slot);
        self.geo.totals.members += 1;
        Ok(())
    }

    /// Keeps a member and its score in a slot.
    fn keep_member(&mut self, place: &Place<'_>, now: Now) -> Result<Slot, Status> {
        let score = place.score.to_le_bytes();
        let record =
            NewRecord { key: place.member, value: &score, kind: MEMBER_KIND, expires_at_ms: 0 };
        let room = self.allocate(Room::Record { bytes: record.record_bytes() }, now);
        self.shed_thinned(now);
        let slot = room.map_err(|_| Status::OutOfMemory)?;
        let (secret, region) = (self.options.record_secret, self.options.region);
        write_pending(&mut self.owner, secret, region, slot, &record);
        publish_live(&mut self.owner, slot);
        self.geo.totals.data_bytes += self.slots.bytes_of(slot);
        Ok(slot)
    }

    fn drop_member(&mut self, slot: Slot, now: Now) {
        self.geo.totals.data_bytes -= self.slots.bytes_of(slot);
        self.give_back(slot, now);
    }

    /// Changes the tree of a key, if it has one; makes room if it is full and
    /// keys may go.
    fn change_geo_tree(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Now,
        change: impl Fn(&mut Tree, &mut Arena<'_, J>) -> Result<(), TreeError>,
    ) -> Result<(), Status> {
        let try_once = |shard: &mut Self| {
            let changed_at = shard.log.last_sequence() + 1;
            let Some(set) = shard.geo.get_mut(key, hash) else { return Ok(()) };
            let Some(tree) = &mut set.tree else { return Ok(()) };
            let before = tree.bytes();
            let (owner, slots) = (&mut shard.owner, &mut shard.slots);
            let changed = change(tree, &mut Arena { owner, slots, changed_at });
            let after = tree.bytes();
            shard.geo.totals.node_bytes = shard.geo.totals.node_bytes + after - before;
            changed
        };
        let mut changed = try_once(self);
        if changed.is_err() && self.policy.is_some() {
            let bytes = NODE_RUN_BYTES.max(8 * node_bytes(NODE_ENTRIES));
            if self.make_free(bytes, 1, now) {
                changed = try_once(self);
            }
        }
        changed.map_err(|_| Status::OutOfMemory)
    }

    fn geo_remove(&mut self, key: &[u8], hash: KeyHash, places: Places<'_>, now: Now) -> Reply<'_> {
        let mut removed = 0;
        for Place { member, .. } in places.iter() {
            let Some(set) = self.geo.get(key, hash) else { break };
            let Some(slot) = set.find(&self.owner, member) else { continue };
            let is_last = set.members() == 1;
            if !is_last
                && let Err(status) = self.change_geo_tree(key, hash, now, |tree, arena| {
                    tree.remove(arena, slot.into()).map(drop)
                })
            {
                return Reply::status(status);
            }
            let mut list = Vec::new();
            Places::push(&mut list, &Place { member, ..Place::default() });
            let places = Places::parse(&list).expect("one member of a checked list");
            let command = GeoCommand::Remove { places };
            self.log.append(&Command::Geo { key, command });
            if is_last {
                self.drop_geo(key, hash, now);
            } else {
                let set = self.geo.get_mut(key, hash).expect("it was there");
                set.remove(member, slot);
                self.geo.totals.members -= 1;
                self.drop_member(slot_of(&self.owner, slot), now);
            }
            removed += 1;
        }
        Reply::number(removed)
    }

    fn geo_scores(&mut self, key: &[u8], hash: KeyHash, places: Places<'_>) -> Reply<'_> {
        let mut scratch = std::mem::take(&mut self.geo.scratch);
        scratch.clear();
        let set = self.geo.get(key, hash);
        for Place { member, .. } in places.iter() {
            let slot = set.and_then(|set| set.find(&self.owner, member));
            let score = slot.map_or(f64::NAN, |slot| score_in(&self.owner, slot));
            scratch.extend_from_slice(&score.to_le_bytes());
        }
        let is_there = set.is_some();
        self.geo.scratch = scratch;
        Reply { value: Some(&self.geo.scratch), ..Reply::number(is_there as i64) }
    }
}

/// Kind of a record that holds a member.
const MEMBER_KIND: u8 = 2;

//! GEOADD, ZREM and ZMSCORE: members one by one, each change an entry of its own.

use super::keys::GeoKeys;
use super::set::{GeoSet, score_in, set_score};
use crate::keys;
use crate::store::Store;
use crate::types::object::On;
use remora_arena::{Journal, slot_of};
use remora_layout::kind::Kind;
use remora_layout::tree::TREE_HEADER_BYTES;
use remora_protocol::geo::{GeoCommand, Member, Members, Position};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Reply};

/// The outcome of a change of one member.
#[derive(PartialEq, Eq)]
enum Put {
    New,
    Changed,
    Unchanged,
}

impl GeoKeys {
    pub(super) fn geo_add<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, mut root): (On<'_>, Option<u32>),
        (condition, tell_changed, places): (Condition, bool, Members<'_>),
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
        place: &Member<'_>,
        slot: Option<u32>,
    ) -> Result<Put, Status> {
        if slot.is_some_and(|slot| score_in(&store.owner, slot) == place.score) {
            return Ok(Put::Unchanged);
        }
        let mut list = Vec::new();
        Members::push(&mut list, &Member { distance: 0.0, ..*place });
        let places = Members::parse(&list).expect("one member of a checked list");
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
        place: &Member<'_>,
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
        place: &Member<'_>,
        entry: &Command<'_>,
    ) -> Result<(), Status> {
        let slot = self.plan_member(store, (on, root), place)?;
        store.commit(on.hash.database(), entry, |store| self.publish(store, root));
        self.insert_member(store, root, (place.member, slot));
        Ok(())
    }

    pub(super) fn geo_remove<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        places: Members<'_>,
    ) -> Reply<'static> {
        let mut removed = 0;
        let Some(root) = root else { return Reply::number(0) };
        for Member { member, .. } in places.iter() {
            let set = &self.by_root[&root];
            let Some(slot) = set.find(&store.owner, member) else { continue };
            // A key that a snapshot is filling may have none meanwhile.
            if set.members() == 1 && !store.moves.is_filling(root) {
                keys::del(store, on);
                return Reply::number(removed + 1);
            }
            let plan = self.plan_change(store, (on, root), |tree, arena| {
                tree.plan_remove(arena, slot.into()).map(drop)
            });
            if let Err(status) = plan {
                return Reply { number: removed, ..Reply::status(status) };
            }
            let mut list = Vec::new();
            Members::push(&mut list, &Member { member, ..Member::default() });
            let places = Members::parse(&list).expect("one member of a checked list");
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

    pub(super) fn geo_scores<'s, J: Journal>(
        &'s mut self,
        store: &Store<J>,
        root: Option<u32>,
        places: Members<'_>,
    ) -> Reply<'s> {
        self.scratch.clear();
        let set = root.map(|root| &self.by_root[&root]);
        for Member { member, .. } in places.iter() {
            let slot = set.and_then(|set| set.find(&store.owner, member));
            let score = slot.map_or(f64::NAN, |slot| score_in(&store.owner, slot));
            self.scratch.extend_from_slice(&score.to_le_bytes());
        }
        let is_there = set.is_some();
        Reply { value: Some(&self.scratch), ..Reply::number(is_there as i64) }
    }
}

//! The payload of objects beside their rectangles: ids, geometries, fields and bytes.
//!
//! Invariant: a reader that read a live record read it before its object got another rectangle, was
//! removed, or got another payload. The record is made dead first; while it is dead, readers ask.
//! So no reader sees the new state of an object, then the old one.

use super::named::With;
use super::record::{carried_in, expires_at_ms, has_expired, word_in};
use super::trees::Trees;
use crate::store::{Now, Room, Store, with_expiry};
use crate::types::object::On;
use remora_arena::{
    ArenaFull, Journal, NewRecord, Slot, flip_dead, mutable_of, set_mutable, slot_of, write_pending,
};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::object::{Payload, object_key};
use remora_protocol::message::Status;
use remora_protocol::tree::{Fields, HAS_DATA, HAS_EXPIRY, HAS_FIELDS, HAS_GEOMETRY, ObjectId};
use remora_protocol::{Items, Reply};
use zerocopy::IntoBytes;

impl Trees {
    /// Writes an object's payload into a record that is not yet live.
    pub(super) fn keep<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        (word, expires_at_ms): (u64, u64),
        value: &[u8],
    ) -> Result<Slot, ArenaFull> {
        let key = object_key(word);
        let record = NewRecord {
            database: Database::ZERO,
            key: &key,
            value,
            kind: Kind::OBJECT,
            expires_at_ms,
        };
        let slot = store.allocate(Room::Record { bytes: record.record_bytes() }, on.now);
        store.shed_thinned(on.now);
        let slot = slot?;
        let (secret, region) = (store.options.record_secret, store.options.region);
        write_pending(&mut store.owner, secret, region, slot, &record);
        self.totals.data_bytes += store.slots.bytes_of(slot);
        Ok(slot)
    }

    /// Frees a record's slot, which is no longer reachable.
    pub(super) fn free_record<J: Journal>(&mut self, store: &mut Store<J>, slot: u32, now: Now) {
        let slot = slot_of(&store.owner, slot);
        self.totals.data_bytes -= store.slots.bytes_of(slot);
        store.give_back(slot, now);
    }

    /// Lets readers of an object's record ask from now on.
    pub(super) fn hide_record<J: Journal>(&mut self, store: &mut Store<J>, slot: Option<u32>) {
        if let Some(slot) = slot {
            flip_dead(&mut store.owner, slot);
        }
    }

    /// From now on an object's payload is in the record `new`, or it has none, and no longer in
    /// `old`.
    pub(super) fn set_record<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        (old, new): (Option<u32>, Option<Slot>),
        now: Now,
    ) {
        let mut with = [With::default(); 2];
        if let Some(old) = old {
            with[0] = With::of(store, old);
            self.named_mut(root).remove_record(store, old);
            self.set_due(store, (root, word_in(store, old)), (expires_at_ms(store, old), 0));
        }
        if let Some(Slot { slot: new, .. }) = new {
            store.show(slot_of(&store.owner, new));
            with[1] = With::of(store, new);
            self.named_mut(root).insert_record(store, new);
            self.set_due(store, (root, word_in(store, new)), (0, expires_at_ms(store, new)));
        }
        let [before, after] = with;
        self.named_mut(root).with.replace(before, after);
        if let Some(old) = old {
            self.free_record(store, old, now);
        }
    }

    /// Gives another expiry to the object whose record lies in this slot; 0 for none.
    pub(super) fn set_expiry<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        slot: u32,
        at_ms: u64,
    ) {
        let before = expires_at_ms(store, slot);
        if before == at_ms {
            return;
        }
        let mutable = with_expiry(mutable_of(&store.owner, slot), at_ms);
        set_mutable(&mut store.owner, slot, mutable);
        self.set_due(store, (root, word_in(store, slot)), (before, at_ms));
        let with = &mut self.named_mut(root).with;
        with.expiry = with.expiry + u64::from(at_ms != 0) - u64::from(before != 0);
    }

    /// The word of an existing, unexpired object, and its record's slot if it has one.
    pub(super) fn locate_live<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        id: ObjectId<'_>,
        now: Now,
    ) -> Option<(u64, Option<u32>)> {
        let located = self.named(root).locate(store, id);
        located.filter(|(_, slot)| slot.is_none_or(|slot| !has_expired(store, slot, now)))
    }

    pub(super) fn object<'s, J: Journal>(
        &'s mut self,
        store: &Store<J>,
        (on, root): (On<'_>, u32),
        id: ObjectId<'_>,
    ) -> Reply<'s> {
        let Some((word, slot)) = self.locate_live(store, root, id, on.now) else {
            return Reply::status(Status::NotFound);
        };
        let Some(rect) = self.named(root).tree.find(&store.owner, word) else {
            return Reply::status(Status::NotFound);
        };
        let expires_at_ms = slot.map_or(0, |slot| expires_at_ms(store, slot));
        let payload = slot.map_or_else(Payload::default, |slot| carried_in(store, slot));
        let payload = Payload { id: &[], ..payload };
        let scratch = &mut self.scratch;
        scratch.clear();
        scratch.extend_from_slice(rect.as_bytes());
        scratch.extend_from_slice(&expires_at_ms.to_le_bytes());
        payload.write(scratch);
        let flag = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
        let flags = flag(HAS_DATA, !payload.data.is_empty())
            | flag(HAS_GEOMETRY, !payload.geometry.is_empty())
            | flag(HAS_FIELDS, !payload.fields.is_empty())
            | flag(HAS_EXPIRY, expires_at_ms != 0);
        Reply { value: Some(scratch), ..Reply::number(flags.into()) }
    }

    pub(super) fn set_fields<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        (id, fields): (ObjectId<'_>, Fields<'_>),
        entry: &remora_protocol::Command<'_>,
    ) -> Reply<'static> {
        let Some((word, slot)) = self.locate_live(store, root, id, on.now) else {
            return Reply::status(Status::NotFound);
        };
        let (mut value, mut expires_at) = (Vec::new(), 0);
        let mut payload = Payload::default();
        if let Some(slot) = slot {
            (payload, expires_at) = (carried_in(store, slot), expires_at_ms(store, slot));
        }
        let known = Fields::parse(payload.fields).unwrap_or_default();
        let added = fields.iter().filter(|(name, _)| known.get(name).is_none()).count();
        let Some(merged) = Fields::encode(known.iter().chain(fields.iter())) else {
            return Reply::status(Status::TooLarge);
        };
        let payload = Payload { fields: &merged, ..payload };
        if payload.is_empty() {
            return Reply::number(0);
        }
        payload.write(&mut value);
        let Ok(new) = self.keep(store, on, (word, expires_at), &value) else {
            return Reply::status(Status::OutOfMemory);
        };
        store.commit(on.hash.database(), entry, |store| {
            self.hide_record(store, slot);
            self.set_record(store, root, (slot, Some(new)), on.now);
        });
        Reply::number(added as i64)
    }

    pub(super) fn get_fields<'s, J: Journal>(
        &'s mut self,
        store: &Store<J>,
        (on, root): (On<'_>, u32),
        (id, names): (ObjectId<'_>, Items<'_>),
    ) -> Reply<'s> {
        let Some((_, slot)) = self.locate_live(store, root, id, on.now) else {
            return Reply::status(Status::NotFound);
        };
        let payload = slot.map_or_else(Payload::default, |slot| carried_in(store, slot));
        let fields = Fields::parse(payload.fields).unwrap_or_default();
        let (scratch, mut count) = (&mut self.scratch, 0);
        scratch.clear();
        for name in names.iter().flatten() {
            match fields.get(name) {
                Some(value) => Items::push(scratch, value),
                None => Items::push_none(scratch),
            }
            count += 1;
        }
        if names.bytes().is_empty() {
            for (name, value) in fields.iter() {
                Items::push(scratch, name);
                Items::push(scratch, value);
                count += 2;
            }
        }
        Reply { value: Some(scratch), ..Reply::number(count) }
    }
}

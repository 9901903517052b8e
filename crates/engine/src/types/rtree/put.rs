//! Putting objects into trees, and taking them out.
//!
//! Invariant: an object keeps its surrogate during its whole life; so an unknown surrogate belongs
//! to a removed object. A shard never gives a surrogate twice. A word that is an id has no expiry.

use super::record::{carried_in, expires_at_ms, has_expired, word_in};
use super::trees::Trees;
use crate::store::Store;
use crate::types::object::On;
use remora_arena::{Journal, Slot};
use remora_layout::object::{Payload, SURROGATE, is_surrogate};
use remora_protocol::message::Status;
use remora_protocol::tree::{ObjectId, PutObject, TreeCommand, TreeSettings};
use remora_protocol::{Command, Expiry, Reply};

/// A planned put, of which nothing is visible yet.
pub(super) struct PlannedPut {
    is_new: bool,
    /// The object's record as it is.
    old: Option<u32>,
    /// The one that takes its place; none if the old one stays, or if the object
    /// is to carry nothing.
    new: Option<Slot>,
    /// Whether the old record, or its absence, stays.
    is_kept: bool,
    expires_at_ms: u64,
}

impl Trees {
    pub(super) fn put_object<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        put: &PutObject<'_>,
        entry: &Command<'_>,
    ) -> Reply<'static> {
        let is_past = matches!(put.expiry, Expiry::At(at_ms) if at_ms <= on.now.unix_ms);
        let Some(root) = root else {
            if is_past {
                return Reply::number(1);
            }
            let made =
                self.make(store, on, TreeSettings::default(), entry, |trees, store, root| {
                    let planned = trees.plan_object(store, (on, root), put, None)?;
                    // Its entry comes next.
                    let changed_at = store.last_sequence() + 1;
                    trees.publish_object(store, (on, root), put, (planned, changed_at));
                    Ok(())
                });
            return match made {
                Ok(()) => Reply::number(1),
                Err(status) => Reply::status(status),
            };
        };
        let mut known = self.named(root).surrogate_record(store, put.id);
        if let Some(slot) = known.take_if(|slot| has_expired(store, *slot, on.now))
            && let Err(status) = self.remove_expired(store, (on, root), slot)
        {
            return Reply::status(status);
        }
        if is_past {
            let removed = self.remove_live(store, (on, root), put.id);
            return removed
                .map_or_else(Reply::status, |was_there| Reply::number((!was_there).into()));
        }
        let planned = match self.plan_object(store, (on, root), put, known) {
            Ok(planned) => planned,
            Err(status) => return Reply::status(status),
        };
        let is_new = planned.is_new;
        store.commit(on.hash.database(), entry, |store| {
            let changed_at = store.last_sequence();
            self.publish_object(store, (on, root), put, (planned, changed_at));
        });
        Reply::number(is_new as i64)
    }

    /// Plans a put; an existing object has not expired. `known` is the object's record, if its word
    /// is a surrogate.
    pub(super) fn plan_object<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        put: &PutObject<'_>,
        known: Option<u32>,
    ) -> Result<PlannedPut, Status> {
        let needs_surrogate =
            matches!(put.id, ObjectId::Name(_)) || matches!(put.expiry, Expiry::At(_));
        // The present word, and the new one.
        let (before, after) = match (known, put.id) {
            (Some(slot), _) => (word_in(store, slot), word_in(store, slot)),
            (None, ObjectId::Number(number)) if !needs_surrogate => (number, number),
            (None, id) => {
                self.surrogates += 1;
                let after = SURROGATE | self.surrogates;
                (if let ObjectId::Number(number) = id { number } else { after }, after)
            }
        };
        let old = known.or_else(|| self.named(root).record(store, before));
        let payload = old.map_or_else(Payload::default, |slot| carried_in(store, slot));
        let expires_at_ms = match put.expiry {
            Expiry::Keep => old.map_or(0, |slot| expires_at_ms(store, slot)),
            Expiry::Never => 0,
            Expiry::At(at_ms) => at_ms,
        };
        // The payload stays as it is if only rectangle or expiry change.
        let is_kept = put.data.is_none()
            && put.fields.is_none()
            && put.geometry.is_none()
            && payload.geometry.is_empty()
            && before == after
            && (old.is_some() || !is_surrogate(after));
        let mut new = None;
        if !is_kept {
            let mut value = Vec::new();
            let mut write = |id: &[u8]| {
                let payload = Payload {
                    geometry: put.geometry.map_or(&[], |geometry| geometry.bytes()),
                    fields: put.fields.map_or(payload.fields, |fields| fields.as_bytes()),
                    data: put.data.unwrap_or(payload.data),
                    id,
                };
                payload.write(&mut value);
                payload.is_empty()
            };
            let is_empty = match is_surrogate(after) {
                true => put.id.with_text(write),
                false => write(&[]),
            };
            if !is_empty {
                let kept = self.keep(store, on, (after, expires_at_ms), &value);
                new = Some(kept.map_err(|_| Status::OutOfMemory)?);
            }
        }
        let plan = self.plan_change(store, (on, root), |tree, arena| {
            tree.plan_replace(arena, before, after, put.rect)
        });
        match plan {
            Ok(is_new) => Ok(PlannedPut { is_new, old, new, is_kept, expires_at_ms }),
            Err(status) => {
                if let Some(slot) = new {
                    self.free_record(store, slot.slot, on.now);
                }
                Err(status)
            }
        }
    }

    /// Lets a put that is worked out be seen.
    pub(super) fn publish_object<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        put: &PutObject<'_>,
        (planned, changed_at): (PlannedPut, u64),
    ) {
        let PlannedPut { old, new, is_kept, expires_at_ms, .. } = planned;
        if put.geometry.is_some() {
            self.named_mut(root).tree.tell_of_geometries(&mut store.owner);
        }
        if !is_kept {
            self.hide_record(store, old);
        }
        self.publish_as(store, root, changed_at);
        match old {
            _ if !is_kept => self.set_record(store, root, (old, new), on.now),
            Some(old) => self.set_expiry(store, root, old, expires_at_ms),
            None => {}
        }
    }

    pub(super) fn remove_object<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        id: ObjectId<'_>,
    ) -> Reply<'static> {
        if let Some(slot) = self.named(root).surrogate_record(store, id)
            && has_expired(store, slot, on.now)
        {
            let removed = self.remove_expired(store, (on, root), slot);
            return removed.map_or_else(Reply::status, |()| Reply::number(0));
        }
        let removed = self.remove_live(store, (on, root), id);
        removed.map_or_else(Reply::status, |was_there| Reply::number(was_there.into()))
    }

    /// Removes an object, expired or not. Returns whether it existed.
    pub(super) fn remove_live<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        id: ObjectId<'_>,
    ) -> Result<bool, Status> {
        let known = self.named(root).surrogate_record(store, id);
        let word = match (known, id) {
            (Some(slot), _) => word_in(store, slot),
            (None, ObjectId::Number(number)) => number,
            (None, ObjectId::Name(_)) => return Ok(false),
        };
        let is_there =
            self.plan_change(store, (on, root), |tree, arena| tree.plan_remove(arena, word))?;
        if !is_there {
            return Ok(false);
        }
        let record = known.or_else(|| self.named(root).record(store, word));
        let request = TreeCommand::Remove { id }.checked().map(TreeCommand::request)?;
        store.commit(on.hash.database(), &Command::Of { key: on.key, request }, |store| {
            self.hide_record(store, record);
            self.publish(store, root);
            if record.is_some() {
                self.set_record(store, root, (record, None), on.now);
            }
        });
        Ok(true)
    }
}

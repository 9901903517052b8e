//! Objects that expire: the owner gives none out from its time on, and removes
//! it soon after, as a change of its own. A tick finds that some are due; then some
//! go in every turn, until none is left but those of trees that are being moved.

use super::record::{carried_in, expires_at_ms, has_expired};
use super::trees::Trees;
use crate::store::{Now, Store};
use crate::types::object::On;
use remora_arena::Journal;
use remora_index::hash::record_key;
use remora_layout::limits::EXPIRE_TURN_OBJECTS;
use remora_protocol::message::Status;
use remora_protocol::tree::ObjectId;

impl Trees {
    /// An object that was due at one time is at another one; 0 for never.
    pub(super) fn set_due<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, word): (u32, u64),
        (before_ms, after_ms): (u64, u64),
    ) {
        if before_ms != 0 {
            self.due.remove(&(before_ms, root, word));
        }
        if after_ms != 0 {
            self.due.insert((after_ms, root, word));
        }
        store.due_objects = self.due.len() as u64;
    }

    /// Removes the expired object whose record lies in this slot.
    pub(super) fn remove_expired<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        slot: u32,
    ) -> Result<(), Status> {
        self.touch(root);
        let text = carried_in(store, slot).id.to_vec();
        self.remove_live(store, (on, root), ObjectId::of_text(&text))?;
        self.totals.expired += 1;
        Ok(())
    }

    /// Removes objects that have expired: a bounded number. True if more may have.
    pub(super) fn sweep_due<J: Journal>(&mut self, store: &mut Store<J>, now: Now) -> bool {
        let mut next = self.sweeps_from.take().unwrap_or_default();
        for _ in 0..EXPIRE_TURN_OBJECTS {
            let due = self.due.range(next..).next().copied();
            let Some(due) = due.filter(|(at_ms, ..)| *at_ms <= now.unix_ms) else { return false };
            let (at_ms, root, word) = due;
            if store.is_moving(root) || store.is_flushed_at(root) {
                // A tree that is being dumped or built stays unchanged; and a flush removes all of
                // it.
                next = (at_ms, root + 1, 0);
                continue;
            }
            next = due;
            self.due.remove(&due);
            store.due_objects = self.due.len() as u64;
            let named = self.by_root.get(&root).filter(|named| store.is_live(named.root));
            // If the tree is removed its objects are removed with it.
            let Some(slot) = named.and_then(|named| named.record(store, word)) else { continue };
            debug_assert!(has_expired(store, slot, now) && expires_at_ms(store, slot) == at_ms);
            let key = record_key(&store.owner, root).to_vec();
            let on = On { key: &key, hash: store.hash_in(root), now };
            store.making_room.keep = Some(root);
            if self.remove_expired(store, (on, root), slot).is_err() {
                // There is no room for the change: a later tick tries again, behind the others.
                self.due.insert(due);
                store.due_objects = self.due.len() as u64;
                self.sweeps_from = Some((at_ms, root, word + 1));
                return false;
            }
        }
        self.sweeps_from = Some(next);
        true
    }
}

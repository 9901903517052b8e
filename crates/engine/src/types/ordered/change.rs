//! Changes of one key.

use super::entry::{Planned, native, value_of};
use super::table::Named;
use super::trees::{OrderedTrees, refusal};
use crate::store::Store;
use crate::types::arena::arena_at;
use crate::types::object::On;
use remora_arena::Journal;
use remora_layout::btree::{INTEGER_BYTES, KeyForm, LongValue};
use remora_layout::limits::MAX_ORDERED_LONG_BYTES;
use remora_layout::packed::Field;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::ordered::OrderedSettings;

impl OrderedTrees {
    /// Gives a key a value. True if the key is new.
    pub(super) fn set<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        (text, value): (&[u8], Field<'_>),
        entry: &Command<'_>,
    ) -> Result<bool, Status> {
        let Some(root) = root else {
            let settings = OrderedSettings::of(KeyForm::Bytes);
            self.make(store, (on, settings), entry, |own, store, root| {
                let (planned, _) = own.plan_set(store, (on, root), (text, value))?;
                // Its entry comes next.
                own.publish_as(store, (on, root), planned, 1);
                Ok(())
            })?;
            return Ok(true);
        };
        let (planned, is_new) = self.plan_set(store, (on, root), (text, value))?;
        store.commit(on.hash.database(), entry, |store| {
            self.publish_as(store, (on, root), planned, 0);
        });
        Ok(is_new)
    }

    pub(super) fn plan_set<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        (text, value): (&[u8], Field<'_>),
    ) -> Result<(Planned, bool), Status> {
        if value.value.len() > MAX_ORDERED_LONG_BYTES {
            return Err(Status::TooLarge);
        }
        let (named, mut integer) = (self.named(root), [0; INTEGER_BYTES]);
        let key = native(named.keys_are(), text, &mut integer)?;
        named.tree.options().check_key(key).map_err(refusal)?;
        let (old, mut new) = (named.record_of(store, key), None);
        let in_leaf;
        let mut of_leaf = value_of(value);
        if named.is_long(value) {
            let tree = named.tree.at();
            let (slot, at) = self.write_long(store, (on, tree), value.value)?;
            in_leaf = LongValue { at, is_link: value.is_link }.to_bytes();
            (new, of_leaf) = (Some(slot), LongValue::in_leaf(&in_leaf));
        }
        let planned =
            self.with_room(store, (on, root), |tree, arena| tree.plan_set(arena, key, of_leaf));
        match planned {
            Ok((change, is_new)) => Ok((Planned { change, old, new }, is_new)),
            Err(status) => {
                if let Some(slot) = new {
                    self.free_long(store, slot.slot, on.now);
                }
                Err(status)
            }
        }
    }

    /// Publishes a change whose entry is so many entries ahead, in the order of [`super::long`].
    pub(super) fn publish_as<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        Planned { change, old, new }: Planned,
        ahead: u64,
    ) {
        self.show_long(store, root, (old, new));
        let changed_at = store.last_sequence() + ahead;
        let wants_mending = self.trees.on(root, |Named { tree, .. }| {
            tree.publish(&mut arena_at(store, changed_at), change);
            tree.wants_mending()
        });
        if wants_mending && self.held.insert(root) {
            store.to_be_mended = self.held.len() as u64;
        }
        if let Some(old) = old {
            self.free_long(store, old, on.now);
        }
    }

    /// Removes a key. True if it was there.
    pub(super) fn delete<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        text: &[u8],
        entry: &Command<'_>,
    ) -> Result<bool, Status> {
        let Some(root) = root else { return Ok(false) };
        let mut integer = [0; INTEGER_BYTES];
        let key = native(self.named(root).keys_are(), text, &mut integer)?;
        let old = self.named(root).record_of(store, key);
        let planned =
            self.with_room(store, (on, root), |tree, arena| Ok(tree.plan_delete(arena, key)))?;
        let Some(change) = planned else { return Ok(false) };
        let planned = Planned { change, old, new: None };
        store.commit(on.hash.database(), entry, |store| {
            self.publish_as(store, (on, root), planned, 0);
        });
        Ok(true)
    }
}

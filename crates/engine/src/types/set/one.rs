//! One member is added to a large set: most of what sets do, so without memory for a plan of bins.

use super::bins::{Bins, Logged, bin_name, is_empty, split_items};
use crate::store::{Now, PartValue, Store};
use remora_arena::{ArenaFull, Journal};
use remora_index::hash::record_value;
use remora_layout::limits::{SET_BIN_MOST_MEMBERS, WHOLE_ITEM_BYTES};
use remora_layout::packed_set::{self, push_item};

/// Buffers for the items of bins.
#[derive(Default)]
pub(super) struct Buffers {
    /// Of the member's bin.
    items: Vec<u8>,
    /// Of a bin that is split.
    stays: Vec<u8>,
    /// Of the new bin.
    goes: Vec<u8>,
}

impl Bins {
    /// Adds one short member, if it goes into a bin that has some and is not full. Returns whether
    /// it is new; `None` if [`Bins::add`] is to add it.
    pub fn add_one<J: Journal>(
        &mut self,
        (store, root): (&mut Store<J>, u32),
        (member, buffers): (&[u8], &mut Buffers),
        (entry, database): Logged<'_>,
        now: Now,
    ) -> Option<Result<bool, ArenaFull>> {
        if member.len() > WHOLE_ITEM_BYTES || self.spilled > 0 {
            return None;
        }
        let parts = store.parts.of(root);
        let bin = self.bin_of(parts, member);
        let slot = parts.numbered(bin)?;
        let value = record_value(&store.owner, slot);
        if packed_set::contains(value, member, || None) {
            return Some(Ok(false));
        }
        if packed_set::count(value) >= SET_BIN_MOST_MEMBERS {
            return None;
        }
        buffers.items.clear();
        buffers.items.extend_from_slice(value);
        push_item(&mut buffers.items, member);
        let mut after = *self;
        after.binned += 1;
        after.changes += 1;
        let added = if after.wants_split() {
            after.put_split((store, root), (bin.into(), buffers), (entry, database), now)
        } else {
            let name = bin_name(bin.into());
            let hash = parts.hash(&name);
            let found = parts.in_slot(&store.owner, hash, slot)?;
            let part = (&name[..], hash, &buffers.items[..]);
            store.replace_part((root, found), part, (entry, database), now)
        };
        Some(added.map(|()| {
            *self = after;
            true
        }))
    }

    /// Puts the items of this bin, and splits the next one, as one change.
    fn put_split<J: Journal>(
        &mut self,
        (store, root): (&mut Store<J>, u32),
        (bin, buffers): (u64, &mut Buffers),
        (entry, database): Logged<'_>,
        now: Now,
    ) -> Result<(), ArenaFull> {
        let Buffers { items, stays, goes } = buffers;
        let (splits, new) = (self.shape.splits_next(), self.count());
        self.shape = self.shape.grown().expect("it wants a split");
        let parts = store.parts.of(root);
        let mut split = &items[..];
        if splits != bin {
            let slot = parts.numbered(splits as u32);
            split = slot.map_or(&[], |slot| record_value(&store.owner, slot));
        }
        split_items(parts, split, (new, self.count()), (stays, goes));
        let names = [bin_name(bin), bin_name(splits), bin_name(new)];
        let mut all = [(&names[0], &items[..]), (&names[1], &stays[..]), (&names[2], &goes[..])];
        // What is put of the bin that is split is what stays in it.
        let all = if splits == bin { &mut all[1..] } else { &mut all[..] };
        let put = all.iter().filter(|(_, items)| !is_empty(items));
        let gone = all.iter().filter(|(_, items)| is_empty(items));
        let put = put.map(|(name, items)| (&name[..], PartValue::Plain(items)));
        let mut planned = store.plan_parts(root, put, now)?;
        store.commit(database, entry, |store| {
            store.publish_parts(root, &mut planned, now);
            store.remove_parts(root, gone.map(|(name, _)| &name[..]), now);
        });
        store.settle_parts(root, planned, now);
        Ok(())
    }
}

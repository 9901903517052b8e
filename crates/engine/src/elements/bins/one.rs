//! One member is put into a large object, or removed: most of what sets do, so without memory for a plan
//! of bins.

use super::change::{plan, push_with, push_without, split_items};
use super::packing::Packing;
use super::plan::{Counts, Name, Planned};
use crate::store::{Bins, Now, Store};
use remora_arena::{ArenaFull, Journal};
use remora_index::hash::record_value;
use remora_layout::bins::bin_name;
use remora_layout::limits::{BIN_MOST_MEMBERS, WHOLE_ITEM_BYTES};

/// Buffers for the items of bins.
#[derive(Default)]
pub(crate) struct Buffers {
    /// Of the member's bin.
    items: Vec<u8>,
    /// Of a bin that is split.
    stays: Vec<u8>,
    /// Of the new bin.
    goes: Vec<u8>,
}

/// Plans to put one member with its payload, or to remove it, as [`plan`] does for several.
#[inline]
pub(crate) fn plan_one<P: Packing, J: Journal>(
    (store, root): (&mut Store<J>, u32),
    (member, payload): (&[u8], Option<P::Payload>),
    buffers: &mut Buffers,
    now: Now,
) -> Result<Planned, ArenaFull> {
    match in_its_bin::<P, J>((store, root), (member, payload), buffers, now) {
        Some(planned) => planned,
        None => {
            let put = payload.map(|payload| (member, payload));
            let gone = payload.is_none().then_some(member);
            plan::<P, J>((store, root), put.into_iter(), gone.into_iter(), now)
        }
    }
}

/// The same for a short member of a bin that has some, has room for it, and keeps some; else `None`.
#[inline]
fn in_its_bin<P: Packing, J: Journal>(
    (store, root): (&mut Store<J>, u32),
    (member, payload): (&[u8], Option<P::Payload>),
    buffers: &mut Buffers,
    now: Now,
) -> Option<Result<Planned, ArenaFull>> {
    let parts = store.parts.of(root);
    let mut after = *parts.bins();
    if member.len() > WHOLE_ITEM_BYTES || after.spilled > 0 {
        return None;
    }
    let bin = after.bin_of(parts.hash(member));
    let slot = parts.numbered(bin)?;
    let value = record_value(&store.owner, slot);
    let mut counts = Counts::default();
    buffers.items.clear();
    match (P::find(value, member), payload) {
        (present, payload) if present == payload => {
            return Some(Ok(Planned::nothing(root, after)));
        }
        (Some(_), Some(payload)) => {
            P::begin(&mut buffers.items);
            push_with::<P>(&mut buffers.items, value, (member, payload));
            counts.changed = 1;
        }
        (Some(_), None) => {
            P::begin(&mut buffers.items);
            push_without::<P>(&mut buffers.items, value, member);
            if P::is_empty(&buffers.items) {
                return None;
            }
            counts.removed = 1;
            after.binned -= 1;
        }
        (None, _) if P::count(value) >= BIN_MOST_MEMBERS => return None,
        (None, Some(payload)) => {
            buffers.items.extend_from_slice(value);
            P::push(&mut buffers.items, member, payload);
            counts.new = 1;
            after.binned += 1;
        }
        (None, None) => unreachable!("both are the same"),
    }
    if counts.new == 1 && after.wants_split() {
        return Some(with_split::<P, J>((store, root), (bin, buffers), (after, counts), now));
    }
    let name = bin_name(bin);
    let hash = parts.hash(&name);
    let found = parts.in_slot(&store.owner, hash, slot)?;
    let part = (&name[..], hash, &buffers.items[..]);
    let planned = store.plan_part((root, found), part, now);
    Some(planned.map(|part| Planned::one(root, part, (after, counts))))
}

/// Plans to put the items of this bin, and to split the next one, as one change.
fn with_split<P: Packing, J: Journal>(
    (store, root): (&mut Store<J>, u32),
    (bin, buffers): (u32, &mut Buffers),
    (mut after, counts): (Bins, Counts),
    now: Now,
) -> Result<Planned, ArenaFull> {
    let Buffers { items, stays, goes } = buffers;
    let (splits, new) = (after.shape.splits_next() as u32, after.count());
    after.shape = after.shape.grown().expect("it wants a split");
    let parts = store.parts.of(root);
    let mut split = &items[..];
    if splits != bin {
        let slot = parts.numbered(splits);
        split = slot.map_or(&[], |slot| record_value(&store.owner, slot));
    }
    split_items::<P>(parts, split, (new, after.count()), (stays, goes));
    let names = [bin_name(bin), bin_name(splits), bin_name(new as u32)];
    let mut all = [(&names[0], &items[..]), (&names[1], &stays[..]), (&names[2], &goes[..])];
    // What is put of the bin that is split is what stays in it.
    let all = if splits == bin { &mut all[1..] } else { &mut all[..] };
    let put = all.iter().filter(|(_, items)| !P::is_empty(items));
    let gone = all.iter().filter(|(_, items)| P::is_empty(items));
    let gone = gone.map(|(name, _)| Name::Bin(**name)).collect();
    let put = put.map(|(name, items)| (&name[..], *items));
    Planned::write((store, root), put, gone, (after, counts), now)
}

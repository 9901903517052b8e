//! A change of several members is worked out: the new content of bins, and members of their own.

use super::find::{get_own, own_name};
use super::packing::Packing;
use super::plan::{Counts, Name, Planned};
use crate::store::{Bins, Now, Parts, Store};
use remora_arena::{ArenaFull, Journal};
use remora_index::hash::record_value;
use remora_layout::bins::bin_name;
use remora_layout::limits::{BIN_MOST_MEMBERS, WHOLE_ITEM_BYTES};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Room in a bin's buffer for members that come.
const SPARE_BYTES: usize = 256;

/// A change so far.
struct Change<'m, P: Packing> {
    after: Bins,
    /// By their numbers; items.
    bins: BTreeMap<u64, Vec<u8>>,
    /// Members of their own that are put.
    own: Vec<(&'m [u8], P::Payload)>,
    /// Members of their own that go.
    old_own: Vec<&'m [u8]>,
    counts: Counts,
}

/// Plans to put members with their payloads, new ones and those that are there, and to remove others,
/// as one change. Each member is named once. A member that is there with the same payload does not
/// change, and one that is not there is not removed. An error leaves no trace.
pub(crate) fn plan<'m, P: Packing, J: Journal>(
    (store, root): (&mut Store<J>, u32),
    puts: impl Iterator<Item = (&'m [u8], P::Payload)>,
    removes: impl Iterator<Item = &'m [u8]>,
    now: Now,
) -> Result<Planned, ArenaFull> {
    let mut change = Change::<P>::begin(*store.parts.of(root).bins());
    for member in removes {
        change.remove(store, root, member);
    }
    for (member, payload) in puts {
        change.put(store, root, (member, payload));
        // At once: members that come to a full bin would stay parts of their own.
        while change.after.wants_split() {
            change.split(store, root);
        }
    }
    change.write((store, root), now)
}

/// Splits the items of a bin: those of the members that belong to bin `new` of so many go.
pub(super) fn split_items<P: Packing>(
    parts: &Parts,
    items: &[u8],
    (new, bins): (u64, u64),
    (stays, goes): (&mut Vec<u8>, &mut Vec<u8>),
) {
    P::begin(stays);
    P::begin(goes);
    P::each(items, |member, payload| {
        let to = parts.hash(member).bucket(bins);
        P::push(if to == new { goes } else { stays }, member, payload);
    });
}

/// Appends the members among some items, with another payload for one of them.
pub(super) fn push_with<P: Packing>(
    made: &mut Vec<u8>,
    items: &[u8],
    (member, payload): (&[u8], P::Payload),
) {
    P::each(items, |other, present| {
        P::push(made, other, if other == member { payload } else { present });
    });
}

/// Appends all of these items but one.
pub(super) fn push_without<P: Packing>(made: &mut Vec<u8>, items: &[u8], member: &[u8]) {
    P::each(items, |other, payload| {
        if other != member {
            P::push(made, other, payload);
        }
    });
}

impl<'m, P: Packing> Change<'m, P> {
    fn begin(after: Bins) -> Self {
        let (own, old_own) = (Vec::new(), Vec::new());
        Self { after, bins: BTreeMap::new(), own, old_own, counts: Counts::default() }
    }

    fn bin_of<J: Journal>(&self, store: &Store<J>, root: u32, member: &[u8]) -> u64 {
        self.after.bin_of(store.parts.of(root).hash(member)).into()
    }

    /// The content of a bin, as it is so far.
    fn bin<J: Journal>(&mut self, store: &Store<J>, root: u32, bin: u64) -> &mut Vec<u8> {
        match self.bins.entry(bin) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let slot = store.parts.of(root).numbered(bin as u32);
                let value = slot.map(|slot| record_value(&store.owner, slot));
                let mut items = Vec::with_capacity(SPARE_BYTES + value.map_or(0, <[u8]>::len));
                match value {
                    Some(value) => items.extend_from_slice(value),
                    None => P::begin(&mut items),
                }
                place.insert(items)
            }
        }
    }

    /// The payload of a member of a bin, as it is so far.
    fn in_bin<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        (bin, member): (u64, &[u8]),
    ) -> Option<P::Payload> {
        match self.bins.get(&bin) {
            Some(items) => P::find(items, member),
            None => {
                let slot = store.parts.of(root).numbered(bin as u32)?;
                P::find(record_value(&store.owner, slot), member)
            }
        }
    }

    /// The payload of a member that is a part of its own.
    fn own<J: Journal>(store: &Store<J>, root: u32, member: &[u8]) -> Option<P::Payload> {
        get_own::<P, J>((store.parts.of(root), &store.owner), member)
    }

    /// Puts a member that it has not named yet.
    fn put<J: Journal>(
        &mut self,
        store: &Store<J>,
        root: u32,
        (member, payload): (&'m [u8], P::Payload),
    ) {
        let is_short = member.len() <= WHOLE_ITEM_BYTES;
        let bin = if is_short { self.bin_of(store, root, member) } else { 0 };
        if is_short && let Some(present) = self.in_bin(store, root, (bin, member)) {
            if present != payload {
                let items = self.bin(store, root, bin);
                let mut made = Vec::with_capacity(items.len());
                P::begin(&mut made);
                push_with::<P>(&mut made, items, (member, payload));
                *items = made;
                self.counts.changed += 1;
            }
            return;
        }
        if (!is_short || self.after.spilled > 0)
            && let Some(present) = Self::own(store, root, member)
        {
            if present != payload {
                self.own.push((member, payload));
                self.counts.changed += 1;
            }
            return;
        }
        self.counts.new += 1;
        if is_short {
            let items = self.bin(store, root, bin);
            if P::count(items) < BIN_MOST_MEMBERS {
                P::push(items, member, payload);
                self.after.binned += 1;
                return;
            }
        }
        self.own.push((member, payload));
        self.after.own += 1;
        self.after.spilled += u64::from(is_short);
    }

    /// Removes a member that it has not named yet.
    fn remove<J: Journal>(&mut self, store: &Store<J>, root: u32, member: &'m [u8]) {
        let is_short = member.len() <= WHOLE_ITEM_BYTES;
        if is_short {
            let bin = self.bin_of(store, root, member);
            if self.in_bin(store, root, (bin, member)).is_some() {
                let items = self.bin(store, root, bin);
                let mut kept = Vec::with_capacity(items.len());
                P::begin(&mut kept);
                push_without::<P>(&mut kept, items, member);
                *items = kept;
                self.after.binned -= 1;
                self.counts.removed += 1;
                return;
            }
        }
        if (!is_short || self.after.spilled > 0) && Self::own(store, root, member).is_some() {
            self.old_own.push(member);
            self.after.own -= 1;
            self.after.spilled -= u64::from(is_short);
            self.counts.removed += 1;
        }
    }

    /// Splits the next bin: some of its members go to a new one.
    fn split<J: Journal>(&mut self, store: &Store<J>, root: u32) {
        let Some(grown) = self.after.shape.grown() else { return };
        let (bin, new) = (self.after.shape.splits_next(), self.after.count());
        let items = std::mem::take(self.bin(store, root, bin));
        let room = || Vec::with_capacity(items.len());
        let (mut stays, mut goes) = (room(), room());
        let to = (&mut stays, &mut goes);
        split_items::<P>(store.parts.of(root), &items, (new, grown.buckets()), to);
        self.after.shape = grown;
        self.bins.insert(bin, stays);
        self.bins.insert(new, goes);
    }

    /// Writes the parts of the change.
    fn write<J: Journal>(
        self,
        (store, root): (&mut Store<J>, u32),
        now: Now,
    ) -> Result<Planned, ArenaFull> {
        let Self { after, bins, own, old_own, counts } = self;
        let own: Vec<_> =
            own.into_iter().map(|(of, with)| (own_name(of), P::bytes_of(with))).collect();
        let mut gone: Vec<Name> = Vec::new();
        let mut put: Vec<([u8; 5], &[u8])> = Vec::with_capacity(bins.len());
        for (&bin, items) in &bins {
            let name = bin_name(bin as u32);
            match P::is_empty(items) {
                true => gone.push(Name::Bin(name)),
                false => put.push((name, items)),
            }
        }
        gone.extend(old_own.into_iter().map(|member| Name::Own(own_name(member))));
        let put = put.iter().map(|(name, items)| (&name[..], *items));
        let put = put.chain(own.iter().map(|(name, value)| (&name[..], value.as_ref())));
        match counts.new + counts.changed + counts.removed {
            0 => Ok(Planned::nothing(root, after)),
            _ => Planned::write((store, root), put, gone, (after, counts), now),
        }
    }
}

//! The members of a large set. Its short members lie in *bins*: parts that hold several members
//! each, so that a member costs few bytes beside its own. A long member is a part of its own.
//!
//! ```text
//! bin        name: 0 | number 4      value: items (`remora_layout::packed_set`)
//! own member  name: 1 | member        no value
//! ```
//! A member's bin follows from its hash, as a key's bucket does: bins are split in order, one at a
//! time, so that a bin has [`SET_BIN_MEMBERS`] members on average (linear hashing, decision 0012).
//! An empty bin has no part. Bins are never joined again.
//!
//! Invariant: a member is in one part. A short member is in its bin, or it *spilled*: that bin was
//! full, and the member is a part of its own until it is removed.

use crate::elements::Elements;
use crate::store::{Found, Now, PartValue, Parts, Store};
use remora_arena::{ArenaFull, Journal};
use remora_index::hash::{record_key, record_value};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::{
    OBJECT_BASE_BUCKETS, SET_BIN_MEMBERS, SET_BIN_MOST_MEMBERS, SLOT_UNIT_BYTES, WHOLE_ITEM_BYTES,
};
use remora_layout::packed::Field;
use remora_layout::packed_set::{self, BIN, OWN, begin_items, push_item};
use remora_layout::table::TableShape;
use remora_protocol::Command;
use remora_protocol::set::each_member;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Members that are looked up together: what leads to them is fetched from memory side by side.
pub(super) const LOOKUPS: usize = 16;

/// Cache lines of a bin that are fetched at once: its header, and half a dozen members.
const BIN_LINES: usize = 4;

/// The entry of a change, and the key's database.
pub(super) type Logged<'e> = (&'e Command<'e>, Database);

/// Members of sets: several in a part, or one.
pub(super) struct Members;

impl Elements for Members {
    const KIND: Kind = Kind::SET;
    const PART: Kind = Kind::SET_PART;
    /// A chain has seven bins on average.
    const LOT_PLACES: u64 = 20 * SET_BIN_MEMBERS;

    fn of_whole(value: &[u8], mut each: impl FnMut(&[u8], Field<'_>)) {
        each_member(value, |member| each(member, Field::plain(&[])));
    }

    fn of_part(name: &[u8], value: Field<'_>, mut each: impl FnMut(&[u8], Field<'_>)) {
        match name.split_first() {
            Some((&OWN, member)) => each(member, Field::plain(&[])),
            _ => each_member(value.value, |member| each(member, Field::plain(&[]))),
        }
    }

    fn number_of(name: &[u8]) -> Option<u32> {
        let (&BIN, number) = name.split_first()? else { return None };
        number.first_chunk().copied().map(u32::from_le_bytes)
    }

    fn in_part(name: &[u8], value: &[u8]) -> u64 {
        if is_bin(name) { packed_set::count(value) as u64 } else { 1 }
    }
}

/// Whether a part of this name is a bin.
pub(super) fn is_bin(name: &[u8]) -> bool {
    name.first() == Some(&BIN)
}

/// The name of a bin.
pub(super) fn bin_name(bin: u64) -> [u8; 5] {
    let [a, b, c, d, ..] = bin.to_le_bytes();
    [BIN, a, b, c, d]
}

/// Whether a bin of these items has no members.
pub(super) fn is_empty(items: &[u8]) -> bool {
    packed_set::members(items).next().is_none()
}

/// The name of a part.
enum Name {
    Bin([u8; 5]),
    Own(Vec<u8>),
}

impl Name {
    fn own(member: &[u8]) -> Self {
        Self::Own(own_name(member))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bin(name) => name,
            Self::Own(name) => name,
        }
    }
}

fn own_name(member: &[u8]) -> Vec<u8> {
    [&[OWN], member].concat()
}

/// What is known of a large set beside its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bins {
    /// Its buckets are the bins.
    pub(super) shape: TableShape,
    /// Members in bins.
    pub(super) binned: u64,
    /// Members that are parts of their own, the spilled ones included.
    own: u64,
    /// Short ones among them.
    pub(super) spilled: u64,
    /// How often members were added or removed.
    pub changes: u64,
}

impl Default for Bins {
    fn default() -> Self {
        let base = OBJECT_BASE_BUCKETS;
        let shape = TableShape::of_object(base, base).expect("a power of two");
        Self { shape, binned: 0, own: 0, spilled: 0, changes: 0 }
    }
}

/// A change of members that is worked out: the new content of bins, and members of their own.
struct Change<'m> {
    after: Bins,
    /// By their numbers; items.
    bins: BTreeMap<u64, Vec<u8>>,
    new_own: Vec<&'m [u8]>,
    old_own: Vec<&'m [u8]>,
    /// Members that were added or removed.
    changed: u64,
}

impl Bins {
    /// How many members there are.
    pub const fn members(&self) -> u64 {
        self.binned + self.own
    }

    /// Whether any members are parts of their own.
    pub const fn has_own(&self) -> bool {
        self.own > 0
    }

    /// Bins, with parts or without.
    pub const fn count(&self) -> u64 {
        self.shape.buckets()
    }

    /// The bin at a place in the order of a scan, and the place behind it.
    pub fn at_scan_place(&self, place: u32) -> (u64, u64) {
        self.shape.at_scan_place(place)
    }

    /// The slot of the part of a bin.
    pub fn bin<J: Journal>(store: &Store<J>, root: u32, bin: u64) -> Option<u32> {
        store.parts.of(root).numbered(bin as u32)
    }

    /// The part that holds a member.
    pub fn find<J: Journal>(&self, store: &Store<J>, root: u32, member: &[u8]) -> Option<Found> {
        let parts = store.parts.of(root);
        let bin = self.bin_of(parts, member);
        if let Some(slot) = Self::holder(store, parts.numbered(bin), member) {
            return parts.in_slot(&store.owner, parts.hash(&bin_name(bin.into())), slot);
        }
        let may_be_own = member.len() > WHOLE_ITEM_BYTES || self.spilled > 0;
        may_be_own.then(|| parts.find(&store.owner, &own_name(member))).flatten()
    }

    /// Whether a member is there.
    pub fn has<J: Journal>(&self, store: &Store<J>, root: u32, member: &[u8]) -> bool {
        let parts = store.parts.of(root);
        self.has_near(store, parts, member, parts.numbered(self.bin_of(parts, member)))
    }

    /// The bin of a member, if it is a short one.
    pub(super) fn bin_of(&self, parts: &Parts, member: &[u8]) -> u32 {
        parts.hash(member).bucket(self.count()) as u32
    }

    /// The slot of a bin, if it holds a member.
    fn holder<J: Journal>(store: &Store<J>, bin: Option<u32>, member: &[u8]) -> Option<u32> {
        let holds =
            |slot: &u32| packed_set::contains(record_value(&store.owner, *slot), member, || None);
        bin.filter(holds)
    }

    /// Whether a member is there whose bin is in this slot.
    fn has_near<J: Journal>(
        &self,
        store: &Store<J>,
        parts: &Parts,
        member: &[u8],
        bin: Option<u32>,
    ) -> bool {
        let is_short = member.len() <= WHOLE_ITEM_BYTES;
        is_short && Self::holder(store, bin, member).is_some()
            || (!is_short || self.spilled > 0)
                && parts.find(&store.owner, &own_name(member)).is_some()
    }

    /// Leaves of up to [`LOOKUPS`] members those that are there, or those that are not.
    pub fn keep<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        members: &mut Vec<&[u8]>,
        wanted: bool,
    ) {
        let parts = store.parts.of(root);
        let mut bins = [None; LOOKUPS];
        for (member, bin) in members.iter().zip(&mut bins) {
            *bin = parts.numbered(self.bin_of(parts, member));
            let lines = bin.map_or(0..0, |_| 0..BIN_LINES);
            let at = bin.unwrap_or_default() as usize * SLOT_UNIT_BYTES;
            lines.for_each(|line| store.owner.prefetch(at + 64 * line));
        }
        let mut bins = bins.iter();
        members.retain(|member| {
            let bin = bins.next().expect("one for each member");
            self.has_near(store, parts, member, *bin) == wanted
        });
    }

    /// Adds members, each named once. Without an entry no key leads to the set yet, and that is not logged here.
    /// Returns how many are new.
    pub fn add<'m, J: Journal>(
        &mut self,
        (store, root): (&mut Store<J>, u32),
        members: impl Iterator<Item = &'m [u8]>,
        entry: Option<Logged<'_>>,
        now: Now,
    ) -> Result<u64, ArenaFull> {
        let mut change = Change::begin(*self);
        for member in members {
            change.add(store, root, member);
            // At once: members that come to a full bin would stay parts of their own.
            while change.after.wants_split() {
                change.split(store, root);
            }
        }
        self.make((store, root), change, entry, now)
    }

    /// Removes members, each named once. Returns how many were there.
    pub fn remove<'m, J: Journal>(
        &mut self,
        (store, root): (&mut Store<J>, u32),
        members: impl Iterator<Item = &'m [u8]>,
        entry: Logged<'_>,
        now: Now,
    ) -> Result<u64, ArenaFull> {
        let mut change = Change::begin(*self);
        for member in members {
            change.remove(store, root, member);
        }
        self.make((store, root), change, Some(entry), now)
    }

    /// Whether it has so many members that the next bin is to be split.
    pub(super) fn wants_split(&self) -> bool {
        self.binned > self.count() * SET_BIN_MEMBERS && self.shape.grown().is_some()
    }

    /// Plans the parts of a change, logs it, and publishes them.
    fn make<J: Journal>(
        &mut self,
        (store, root): (&mut Store<J>, u32),
        change: Change<'_>,
        entry: Option<Logged<'_>>,
        now: Now,
    ) -> Result<u64, ArenaFull> {
        let Change { mut after, bins, new_own, old_own, changed } = change;
        if changed == 0 {
            return Ok(0);
        }
        let named = |wants_empty: bool| {
            let some = bins.iter().filter(move |(_, items)| is_empty(items) == wants_empty);
            some.map(|(&bin, items)| (Name::Bin(bin_name(bin)), &items[..]))
        };
        let new_own = new_own.into_iter().map(|member| (Name::own(member), &[][..]));
        let put: Vec<(Name, &[u8])> = named(false).chain(new_own).collect();
        let emptied = named(true).map(|(name, _)| name);
        let gone: Vec<Name> = emptied.chain(old_own.into_iter().map(Name::own)).collect();
        let pairs = put.iter().map(|(name, value)| (name.bytes(), PartValue::Plain(value)));
        let mut planned = store.plan_parts(root, pairs, now)?;
        let mut publish = |store: &mut Store<J>| {
            store.publish_parts(root, &mut planned, now);
            store.remove_parts(root, gone.iter().map(Name::bytes), now);
        };
        match entry {
            Some((entry, database)) => store.commit(database, entry, publish),
            None => publish(store),
        }
        store.settle_parts(root, planned, now);
        after.changes += 1;
        *self = after;
        Ok(changed)
    }

    /// Compares what is known with the parts.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub fn audit<J: Journal>(&self, store: &Store<J>, root: u32) -> Result<(), String> {
        let parts = store.parts.of(root);
        let (mut binned, mut own, mut spilled, mut error) = (0, 0, 0, None);
        for slot in (0..parts.buckets()).flat_map(|at| parts.in_bucket(&store.owner, at)) {
            let name = record_key(&store.owner, slot);
            let value = record_value(&store.owner, slot);
            if !is_bin(name) {
                own += 1;
                spilled += u64::from(name.len() <= 1 + WHOLE_ITEM_BYTES);
                continue;
            }
            let mut members = std::collections::BTreeSet::new();
            each_member(value, |member| {
                let bin = parts.hash(member).bucket(self.count());
                if name != bin_name(bin) || !members.insert(member.to_vec()) {
                    error = Some(format!("a member stands in another bin, or twice: root {root}"));
                }
            });
            if members.is_empty() {
                error = Some(format!("an empty bin has a part: root {root}"));
            }
            binned += members.len() as u64;
        }
        if (binned, own, spilled) != (self.binned, self.own, self.spilled) {
            error = Some(format!("a set's members are not those of the books: root {root}"));
        }
        error.map_or(Ok(()), Err)
    }
}

/// Splits the items of a bin: those of the members that belong to bin `new` of so many go.
pub(super) fn split_items(
    parts: &Parts,
    items: &[u8],
    (new, bins): (u64, u64),
    (stays, goes): (&mut Vec<u8>, &mut Vec<u8>),
) {
    begin_items(stays);
    begin_items(goes);
    each_member(items, |member| {
        let to = parts.hash(member).bucket(bins);
        push_item(if to == new { goes } else { stays }, member);
    });
}

impl<'m> Change<'m> {
    fn begin(after: Bins) -> Self {
        let (new_own, old_own) = (Vec::new(), Vec::new());
        Self { after, bins: BTreeMap::new(), new_own, old_own, changed: 0 }
    }

    /// The content of a bin, as it is so far.
    fn bin<J: Journal>(&mut self, store: &Store<J>, root: u32, bin: u64) -> &mut Vec<u8> {
        match self.bins.entry(bin) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let mut items = Vec::new();
                match Bins::bin(store, root, bin) {
                    Some(slot) => {
                        let value = record_value(&store.owner, slot);
                        items.reserve(value.len() + 1 + WHOLE_ITEM_BYTES);
                        items.extend_from_slice(value);
                    }
                    None => begin_items(&mut items),
                }
                place.insert(items)
            }
        }
    }

    /// Whether a member is a part of its own.
    fn is_own<J: Journal>(store: &Store<J>, root: u32, member: &[u8]) -> bool {
        store.parts.of(root).find(&store.owner, &own_name(member)).is_some()
    }

    /// Whether a bin holds a member, as it is so far.
    fn holds<J: Journal>(&self, store: &Store<J>, root: u32, bin: u64, member: &[u8]) -> bool {
        match self.bins.get(&bin) {
            Some(items) => packed_set::contains(items, member, || None),
            None => Bins::holder(store, Bins::bin(store, root, bin), member).is_some(),
        }
    }

    /// Adds a member that it has not added yet.
    fn add<J: Journal>(&mut self, store: &Store<J>, root: u32, member: &'m [u8]) {
        let is_short = member.len() <= WHOLE_ITEM_BYTES;
        if is_short {
            let bin = store.parts.of(root).hash(member).bucket(self.after.count());
            if self.holds(store, root, bin, member)
                || (self.after.spilled > 0 && Self::is_own(store, root, member))
            {
                return;
            }
            let items = self.bin(store, root, bin);
            if packed_set::count(items) < SET_BIN_MOST_MEMBERS {
                push_item(items, member);
                self.after.binned += 1;
                self.changed += 1;
                return;
            }
        } else if Self::is_own(store, root, member) {
            return;
        }
        self.new_own.push(member);
        self.after.own += 1;
        self.after.spilled += u64::from(is_short);
        self.changed += 1;
    }

    /// Removes a member that it has not removed yet.
    fn remove<J: Journal>(&mut self, store: &Store<J>, root: u32, member: &'m [u8]) {
        let is_short = member.len() <= WHOLE_ITEM_BYTES;
        if is_short {
            let bin = store.parts.of(root).hash(member).bucket(self.after.count());
            if self.holds(store, root, bin, member) {
                let items = self.bin(store, root, bin);
                let mut kept = Vec::with_capacity(items.len());
                begin_items(&mut kept);
                each_member(items, |other| {
                    if other != member {
                        push_item(&mut kept, other);
                    }
                });
                *items = kept;
                self.after.binned -= 1;
                self.changed += 1;
                return;
            }
        }
        if (!is_short || self.after.spilled > 0) && Self::is_own(store, root, member) {
            self.old_own.push(member);
            self.after.own -= 1;
            self.after.spilled -= u64::from(is_short);
            self.changed += 1;
        }
    }

    /// Splits the next bin: some of its members go to a new one.
    fn split<J: Journal>(&mut self, store: &Store<J>, root: u32) {
        let Some(grown) = self.after.shape.grown() else { return };
        let (bin, new) = (self.after.shape.splits_next(), self.after.count());
        let items = std::mem::take(self.bin(store, root, bin));
        let room = || Vec::with_capacity(items.len());
        let (mut stays, mut goes) = (room(), room());
        split_items(store.parts.of(root), &items, (new, grown.buckets()), (&mut stays, &mut goes));
        self.after.shape = grown;
        self.bins.insert(bin, stays);
        self.bins.insert(new, goes);
    }
}

//! A change of members that is planned, and what its owner does with it.

use crate::store::{Bins, Now, PartValue, PlannedPart, PlannedParts, Store};
use remora_arena::{ArenaFull, Journal};
use remora_layout::database::Database;
use remora_protocol::Command;

/// The entry of a change, and the key's database.
pub(crate) type Logged<'e> = (&'e Command<'e>, Database);

/// A change of an object's members that is planned: its parts are written, and nothing leads to them
/// yet. It is published in [`Store::commit`], perhaps with other things, and settled after that; or
/// it is dropped.
#[must_use]
pub(crate) struct Planned {
    root: u32,
    parts: Written,
    after: Bins,
    pub(super) counts: Counts,
}

/// Members of a change.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// That were not there.
    pub new: u64,
    /// Whose payload is another one now.
    pub changed: u64,
    /// That are there no longer.
    pub removed: u64,
}

impl Counts {
    const fn all(self) -> u64 {
        self.new + self.changed + self.removed
    }
}

enum Written {
    /// Nothing changes.
    None,
    /// One bin, in the place of what it was.
    One(PlannedPart),
    /// Parts that come, and the names of those that go.
    Some(PlannedParts, Vec<Name>),
}

/// The name of a part.
pub(super) enum Name {
    Bin([u8; 5]),
    Own(Vec<u8>),
}

impl Name {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bin(name) => name,
            Self::Own(name) => name,
        }
    }
}

impl Planned {
    /// Nothing changes.
    pub(super) const fn nothing(root: u32, bins: Bins) -> Self {
        let counts = Counts { new: 0, changed: 0, removed: 0 };
        Self { root, parts: Written::None, after: bins, counts }
    }

    /// This part is replaced.
    pub(super) const fn one(root: u32, part: PlannedPart, (after, counts): (Bins, Counts)) -> Self {
        Self { root, parts: Written::One(part), after, counts }
    }

    /// Writes parts that come, and keeps the names of those that go. An error leaves no trace.
    pub(super) fn write<'p, J: Journal>(
        (store, root): (&mut Store<J>, u32),
        put: impl Iterator<Item = (&'p [u8], &'p [u8])>,
        gone: Vec<Name>,
        (after, counts): (Bins, Counts),
        now: Now,
    ) -> Result<Self, ArenaFull> {
        let pairs = put.map(|(name, value)| (name, PartValue::Plain(value)));
        let parts = Written::Some(store.plan_parts(root, pairs, now)?, gone);
        Ok(Self { root, parts, after, counts })
    }

    /// Whether nothing changes: then nothing is to be logged.
    pub const fn is_nothing(&self) -> bool {
        self.counts.all() == 0
    }

    /// Makes the change visible. The caller calls it in [`Store::commit`], and
    /// [`Planned::settle`] after that; memory may have been taken since it was planned.
    pub fn publish<J: Journal>(&mut self, store: &mut Store<J>, now: Now) {
        match &mut self.parts {
            Written::None => {}
            Written::One(part) => store.publish_part(self.root, part, now),
            Written::Some(parts, gone) => {
                store.publish_parts(self.root, parts, now);
                store.remove_parts(self.root, gone.iter().map(Name::bytes), now);
            }
        }
        if !self.is_nothing() {
            self.after.changes += 1;
            store.parts.set_bins(self.root, self.after);
        }
    }

    /// After the change is published: frees memory that it did not need, and lets the table grow.
    pub fn settle<J: Journal>(self, store: &mut Store<J>, now: Now) {
        if let Written::Some(parts, _) = self.parts {
            store.settle_parts(self.root, parts, now);
        }
    }

    /// Frees what was planned: the change is not made.
    pub fn drop_plan<J: Journal>(self, store: &mut Store<J>, now: Now) {
        match self.parts {
            Written::None => {}
            Written::One(part) => store.drop_part(part, now),
            Written::Some(parts, _) => store.drop_planned(parts, now),
        }
    }

    /// Logs the change, makes it visible, and settles it: a change of members alone. Without an entry
    /// no key leads to the object yet, and that is not logged here.
    pub fn make<J: Journal>(
        mut self,
        store: &mut Store<J>,
        entry: Option<Logged<'_>>,
        now: Now,
    ) -> Counts {
        let counts = self.counts;
        if !self.is_nothing() {
            match entry {
                Some((entry, database)) => {
                    store.commit(database, entry, |store| self.publish(store, now));
                }
                None => self.publish(store, now),
            }
        }
        self.settle(store, now);
        counts
    }
}

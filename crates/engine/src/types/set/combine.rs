//! The members of several sets of the shard, combined, in turns.
//!
//! The result is that of the sets as they were when the read began. For an intersection or a
//! difference each member of one set, the *base*, is looked up in the others. Reads of all the sets
//! begin at once ([`PartsRead`]), and rest. If one of the others changes meanwhile, the lookups end:
//! what is left of the base goes into a table, and the others are read from beginning to end. A
//! union goes through a table from the start.
//!
//! A turn is bounded however many sets there are: by the members that it reads, and by their
//! lookups. A key that is named several times is read once.

use super::bins::{LOOKUPS, Members};
use super::held::Sets;
use super::table::Found;
use crate::elements::{Elements, Held, packed_of};
use crate::store::{PartsRead, Store};
use crate::types::object::{On, Turn};
use remora_arena::{Journal, Slot, slot_of};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{COMBINE_TURN_MEMBERS, MAX_REPLY_BYTES, PARTS_TURN_BYTES};
use remora_protocol::Items;
use remora_protocol::message::Status;
use remora_protocol::set::{Combination, Others, packs};
use std::collections::BTreeSet;

/// One of the sets.
struct Source {
    /// Its members, as far as they are not read yet.
    left: Left,
    /// How many it had.
    members: u64,
    /// Where its members are looked up.
    lookup: Lookup,
}

enum Left {
    /// A list, and where it goes on.
    Made(Vec<u8>, usize),
    /// The read of a large set.
    Parts(PartsRead),
}

enum Lookup {
    /// The value of a small set's record.
    Packed(Vec<u8>),
    /// A large set's root record, and the number of changes when the read began.
    Parts(Slot, u64),
    /// Nowhere: these were found before.
    None,
}

/// How far it has come.
enum Stage {
    /// The base's members are looked up.
    Lookups,
    /// What is left of the base goes into the table.
    Gather,
    /// The other with this number is read: its members are marked in the table.
    Mark(usize),
    /// The table is read.
    Tell,
    /// Each source, this one next, is read into the table, and what is new is told.
    Union(usize),
}

/// Members that were read from the base and are being looked up.
#[derive(Default)]
struct Lot {
    list: Vec<u8>,
    /// Where the member stands that is next.
    at: usize,
    /// The other in which that is looked up next: the ones before it have said yes.
    other: usize,
    /// No members come after these.
    is_last: bool,
}

/// See the module's text.
pub(super) struct Combining {
    how: Combination,
    count_to: Option<u64>,
    /// The base first.
    sources: Vec<Source>,
    stage: Stage,
    lot: Lot,
    table: Found,
    /// Members of the result so far.
    count: u64,
}

impl Left {
    /// Appends some of the members to a list; true at the end.
    fn read<J: Journal>(&mut self, store: &Store<J>, list: &mut Vec<u8>) -> Result<bool, Status> {
        match self {
            Self::Made(all, at) => {
                if *at == 0 && all.len() <= PARTS_TURN_BYTES {
                    list.extend_from_slice(all);
                    *at = all.len();
                }
                let to = at.saturating_add(PARTS_TURN_BYTES);
                while *at < all.len().min(to) {
                    let (member, rest) = Items::split(&all[*at..]).ok_or(Status::Malformed)?;
                    Items::push(list, member.unwrap_or_default());
                    *at = all.len() - rest.len();
                }
                Ok(*at == all.len())
            }
            Self::Parts(read) => store.parts.read_more(&store.owner, read, list, PARTS_TURN_BYTES),
        }
    }
}

impl Source {
    fn made(list: Vec<u8>, lookup: Lookup) -> Self {
        let members = Items::parse(&list).map_or(0, |list| list.iter().count() as u64);
        Self { left: Left::Made(list, 0), members, lookup }
    }

    fn of<J: Journal>(sets: &Sets, store: &mut Store<J>, held: Option<Held>) -> Self {
        match held {
            None => Self::made(Vec::new(), Lookup::Packed(Vec::new())),
            Some(Held::Whole(found)) => {
                let packed = packed_of(store, found).to_vec();
                // About: the head of a member has three bytes more there.
                let mut list = Vec::with_capacity(packed.len() + packed.len() / 2);
                Members::of_whole(&packed, |member, _| Items::push(&mut list, member));
                Self::made(list, Lookup::Packed(packed))
            }
            Some(Held::Parts(root)) => {
                let slot = slot_of(&store.owner, root.slot.slot);
                let bins = sets.bins_of(root);
                let read = store.parts.begin_read(slot.slot, |name, value, found| {
                    Members::of_part(name, value, |member, _| Items::push(found, member));
                });
                let lookup = Lookup::Parts(slot, bins.changes);
                Self { left: Left::Parts(read), members: bins.members(), lookup }
            }
        }
    }

    /// Bytes that were copied for it.
    fn copied_bytes(&self) -> usize {
        let list = if let Left::Made(list, _) = &self.left { list.len() } else { 0 };
        let packed = if let Lookup::Packed(packed) = &self.lookup { packed.len() } else { 0 };
        list + packed
    }

    /// Whether lookups find what was there when the read began.
    fn is_unchanged<J: Journal>(&self, sets: &Sets, store: &Store<J>) -> bool {
        let Lookup::Parts(root, changes) = self.lookup else { return true };
        store.is_live(root) && sets.bins.get(&root.slot).is_some_and(|of| of.changes == changes)
    }

    /// Leaves of some members those that it has, or those that it does not have.
    fn keep<J: Journal>(
        &self,
        sets: &Sets,
        store: &Store<J>,
        members: &mut Vec<&[u8]>,
        wanted: bool,
    ) {
        match &self.lookup {
            Lookup::Packed(packed) => members.retain(|member| packs(packed, member) == wanted),
            Lookup::Parts(root, _) => {
                sets.bins[&root.slot].keep(store, root.slot, members, wanted);
            }
            Lookup::None => members.retain(|_| !wanted),
        }
    }
}

impl Combining {
    /// Begins a read; also gives the hashes of the other keys.
    ///
    /// # Errors
    /// A key is of another type; or so many small sets are named that their copies would be longer
    /// than a reply.
    pub fn begin<J: Journal>(
        sets: &Sets,
        store: &mut Store<J>,
        on: On<'_>,
        (how, others, count_to): (Combination, Others<'_>, Option<u64>),
    ) -> Result<(Self, Vec<KeyHash>), Status> {
        let mut all = vec![on];
        let (mut named, mut takes_itself) = (BTreeSet::from([on.key]), false);
        for key in others.keys() {
            if named.insert(key) {
                let hash = KeyHash::within(on.hash.database(), key, store.options.hash_seed);
                all.push(On { key, hash, ..on });
            }
            takes_itself |= key == on.key && others.before().is_none();
        }
        let mut sources = Vec::with_capacity(all.len() + 1);
        if let Some(before) = others.before() {
            sources.push(Source::made(before.to_vec(), Lookup::None));
        }
        let mut copied = 0;
        for on in &all {
            let held = Sets::find(store, *on)?;
            let source = Source::of(sets, store, held);
            copied += source.copied_bytes();
            if copied > MAX_REPLY_BYTES {
                return Err(Status::TooLarge);
            }
            sources.push(source);
        }
        if how == Combination::Diff && takes_itself {
            sources = vec![Source::made(Vec::new(), Lookup::None)];
        }
        if how == Combination::Inter && others.before().is_none() {
            sources.sort_by_key(|source| source.members);
        }
        let stage = match how {
            Combination::Union => Stage::Union(0),
            Combination::Inter | Combination::Diff => Stage::Lookups,
        };
        let table = Found::new(on.hash.0);
        let lot = Lot::default();
        let combining = Self { how, count_to, sources, stage, lot, table, count: 0 };
        Ok((combining, all.iter().skip(1).map(|on| on.hash).collect()))
    }

    /// Continues for one turn.
    ///
    /// # Errors
    /// Too much has changed since it began: `Outrun`, also if what is left of the base is then
    /// longer than a reply. The result is too long for a reply: `TooLarge`.
    pub fn turn<J: Journal>(
        &mut self,
        sets: &Sets,
        store: &Store<J>,
        found: &mut Vec<u8>,
    ) -> Result<Turn, Status> {
        let has_ended = self.go_on(sets, store, found)?;
        let is_enough = self.count_to.is_some_and(|most| most > 0 && self.count >= most);
        if is_enough {
            self.count = self.count_to.unwrap_or_default();
        }
        if found.len() > MAX_REPLY_BYTES {
            return Err(Status::TooLarge);
        }
        if self.table.bytes() > MAX_REPLY_BYTES {
            // A union's table is its result; others need one only beside changes.
            let is_result = self.how == Combination::Union;
            return Err(if is_result { Status::TooLarge } else { Status::Outrun });
        }
        let gives_value = self.count_to.is_none();
        let (ended, number) = (has_ended || is_enough, self.count as i64);
        Ok(Turn { ended, number, gives_value, ..Turn::default() })
    }

    fn go_on<J: Journal>(
        &mut self,
        sets: &Sets,
        store: &Store<J>,
        found: &mut Vec<u8>,
    ) -> Result<bool, Status> {
        match self.stage {
            Stage::Lookups => return self.look_up(sets, store, found),
            Stage::Gather => {
                let mut list = Vec::new();
                let ended = self.sources[0].left.read(store, &mut list)?;
                self.table.add_all(&list, |_| {});
                if ended {
                    self.stage = Stage::Mark(1);
                }
            }
            Stage::Mark(at) if at == self.sources.len() => self.stage = Stage::Tell,
            Stage::Mark(at) => {
                let mut list = Vec::new();
                let ended = self.sources[at].left.read(store, &mut list)?;
                let members = Items::parse(&list).ok_or(Status::Malformed)?;
                let mark = if self.how == Combination::Inter { at as u32 } else { 1 };
                members.iter().flatten().for_each(|member| self.table.mark(member, mark));
                if ended {
                    self.stage = Stage::Mark(at + 1);
                }
            }
            Stage::Tell => {
                let marks = match self.how {
                    Combination::Inter => self.sources.len() as u32 - 1,
                    Combination::Union | Combination::Diff => 0,
                };
                let some = self.table.take_some(COMBINE_TURN_MEMBERS);
                let Some(some) = some else { return Ok(true) };
                for (member, _) in some.filter(|(_, marked)| *marked == marks) {
                    tell(member, (self.count_to.is_none(), &mut self.count), found);
                }
            }
            Stage::Union(at) if at == self.sources.len() => return Ok(true),
            Stage::Union(at) => {
                let mut list = Vec::new();
                let ended = self.sources[at].left.read(store, &mut list)?;
                let (gives, count) = (self.count_to.is_none(), &mut self.count);
                self.table.add_all(&list, |member| tell(member, (gives, count), found));
                if ended {
                    self.stage = Stage::Union(at + 1);
                }
            }
        }
        Ok(false)
    }

    /// Looks some of the base's members up in the other sets.
    fn look_up<J: Journal>(
        &mut self,
        sets: &Sets,
        store: &Store<J>,
        found: &mut Vec<u8>,
    ) -> Result<bool, Status> {
        let Self { how, count_to, sources, stage, lot, table, count } = self;
        let Some((base, others)) = sources.split_first_mut() else { return Ok(true) };
        if !others.iter().all(|of| of.is_unchanged(sets, store)) {
            table.add_all(&lot.list[lot.at..], |_| {});
            *stage = if lot.is_last { Stage::Mark(1) } else { Stage::Gather };
            *lot = Lot::default();
            return Ok(false);
        }
        if lot.at == lot.list.len() && !lot.is_last {
            lot.list.clear();
            lot.at = 0;
            lot.is_last = base.left.read(store, &mut lot.list)?;
            found.reserve(if count_to.is_none() { lot.list.len() } else { 0 });
        }
        let wanted = *how == Combination::Inter;
        // Beside many sets a turn may end within the lookups of one member.
        let at_once = if others.len() * LOOKUPS <= COMBINE_TURN_MEMBERS { LOOKUPS } else { 1 };
        let (mut lookups, mut some) = (COMBINE_TURN_MEMBERS, Vec::with_capacity(LOOKUPS));
        loop {
            let mut rest = &lot.list[lot.at..];
            some.clear();
            while some.len() < at_once
                && let Some((member, behind)) = Items::split(rest)
            {
                some.push(member.ok_or(Status::Malformed)?);
                rest = behind;
            }
            if some.is_empty() {
                return Ok(lot.is_last);
            }
            while !some.is_empty() && lot.other < others.len() {
                if lookups == 0 && at_once == 1 {
                    return Ok(false);
                }
                lookups = lookups.saturating_sub(some.len());
                others[lot.other].keep(sets, store, &mut some, wanted);
                lot.other += 1;
            }
            for member in &some {
                tell(member, (count_to.is_none(), &mut *count), found);
            }
            (lot.at, lot.other) = (lot.list.len() - rest.len(), 0);
            if lookups == 0 {
                return Ok(false);
            }
        }
    }
}

/// Adds a member to the result.
fn tell(member: &[u8], (gives, count): (bool, &mut u64), found: &mut Vec<u8>) {
    *count += 1;
    if gives {
        Items::push(found, member);
    }
}

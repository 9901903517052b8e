//! Changes of sets: planned, logged by their results, published.

use super::held::Sets;
use super::members::Members;
use crate::elements::{
    self, Elements, Held, Random, bins, draw_different, is_filling, packed_of, with_drawn,
};
use crate::keys;
use crate::store::{Found, Store};
use crate::types::object::On;
use remora_arena::{ArenaFull, Journal};
use remora_layout::hash::mix;
use remora_layout::limits::{
    MAX_COMMAND_ITEMS, MAX_KEY_BYTES, WHOLE_INTEGERS, WHOLE_ITEM_BYTES, WHOLE_ITEMS,
};
use remora_layout::packed::Field;
use remora_layout::packed_set::{self, Member};
use remora_protocol::message::Status;
use remora_protocol::set::{SetCommand, each_member};
use remora_protocol::{Command, Items, Reply, integer};

/// The members of a list in ascending order, each once.
fn unique(members: Items<'_>) -> Vec<&[u8]> {
    sorted(members.iter().flatten().collect())
}

fn sorted(mut members: Vec<&[u8]>) -> Vec<&[u8]> {
    members.sort_unstable();
    members.dedup();
    members
}

/// The texts of all members that a record packs, one behind the other with their lengths.
fn listed(packed: &[u8]) -> Vec<u8> {
    let mut list = Vec::with_capacity(2 * packed.len());
    each_member(packed, |member| Items::push(&mut list, member));
    list
}

/// Packs members in the smallest form; false if they are too many or too long for one record.
/// `keeps_items`: those of a set that had others than integers stay items, as in Redis.
fn pack(members: &[&[u8]], keeps_items: bool, packed: &mut Vec<u8>) -> bool {
    if !keeps_items && members.len() <= WHOLE_INTEGERS {
        let integers: Option<Vec<i64>> = members.iter().map(|of| integer::parse(of)).collect();
        if let Some(mut integers) = integers {
            integers.sort_unstable();
            packed_set::pack_integers(packed, &integers);
            return true;
        }
    }
    if members.len() > WHOLE_ITEMS || members.iter().any(|of| of.len() > WHOLE_ITEM_BYTES) {
        return false;
    }
    packed_set::begin_items(packed);
    members.iter().for_each(|member| packed_set::push_item(packed, member));
    true
}

impl Sets {
    /// A random number: which ones come depends on the arena's secret.
    pub(super) fn draw<J: Journal>(&mut self, store: &Store<J>) -> u64 {
        self.drawn += 1;
        mix(store.options.record_secret, self.drawn)
    }

    pub(super) fn add<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        members: Items<'_>,
    ) -> Reply<'static> {
        if on.key.len() > MAX_KEY_BYTES {
            return Reply::status(Status::TooLarge);
        }
        let entry = Command::Of { key: on.key, request: SetCommand::Add { members }.request() };
        let added = match held {
            Some(Held::Parts(root)) => {
                self.add_to_parts((store, root.slot.slot), on, members, &entry)
            }
            Some(Held::Whole(found)) => self.add_whole(store, (on, found), members, &entry),
            None => {
                let members = unique(members);
                let made = self.put(store, (on, None, 0), (&members, false), &entry);
                made.map(|()| members.len() as u64)
            }
        };
        match added {
            Ok(added) => Reply::number(added as i64),
            Err(ArenaFull { .. }) => Reply::status(Status::OutOfMemory),
        }
    }

    /// Adds members to a large set.
    fn add_to_parts<J: Journal>(
        &mut self,
        (store, root): (&mut Store<J>, u32),
        on: On<'_>,
        members: Items<'_>,
        entry: &Command<'_>,
    ) -> Result<u64, ArenaFull> {
        let mut all = members.iter().flatten();
        let planned = if let (Some(only), None) = (all.next(), all.next()) {
            let buffers = &mut self.buffers;
            bins::plan_one::<Members, J>((store, root), (only, Some(())), buffers, on.now)
        } else {
            let new = unique(members).into_iter().map(|member| (member, ()));
            bins::plan::<Members, J>((store, root), new, std::iter::empty(), on.now)
        };
        let logged = (entry, on.hash.database());
        Ok(planned?.make(store, Some(logged), on.now).new)
    }

    /// Adds members to a set that lies whole in its record.
    fn add_whole<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, found): (On<'_>, Found),
        members: Items<'_>,
        entry: &Command<'_>,
    ) -> Result<u64, ArenaFull> {
        let packed = packed_of(store, found);
        let mut new = unique(members);
        new.retain(|member| !remora_protocol::set::packs(packed, member));
        if new.is_empty() {
            return Ok(0);
        }
        let added = new.len() as u64;
        let had_items = !packed_set::has_integers(packed);
        let is_short = new.iter().all(|of| of.len() <= WHOLE_ITEM_BYTES);
        let count = packed_set::count(packed) + new.len();
        let expires_at_ms = found.mutable.expires_at_ms;
        if had_items && is_short && count <= WHOLE_ITEMS {
            let mut made = std::mem::take(&mut self.scratch);
            packed_set::begin_items(&mut made);
            each_member(packed, |member| packed_set::push_item(&mut made, member));
            new.iter().for_each(|member| packed_set::push_item(&mut made, member));
            let at = (on, Some(found));
            let put = elements::put_whole::<Members, J>(store, at, (&made, expires_at_ms), entry);
            self.scratch = made;
            return put.map(|()| added);
        }
        let list = listed(packed);
        let all = Items::parse(&list).expect("just made").iter().flatten().chain(new);
        let all = sorted(all.collect());
        self.put(store, (on, Some(found), expires_at_ms), (&all, had_items), entry).map(|()| added)
    }

    /// Lets a key hold these members and nothing else: whole in a record if they fit one.
    fn put<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, found, expires_at_ms): (On<'_>, Option<Found>, u64),
        (members, keeps_items): (&[&[u8]], bool),
        entry: &Command<'_>,
    ) -> Result<(), ArenaFull> {
        let mut made = std::mem::take(&mut self.scratch);
        let put = if pack(members, keeps_items, &mut made) {
            let at = (on, found);
            elements::put_whole::<Members, J>(store, at, (&made, expires_at_ms), entry)
        } else {
            let fill = |store: &mut Store<J>, root: u32| {
                let all = members.iter().map(|member| (*member, ()));
                let none = std::iter::empty();
                let planned = bins::plan::<Members, J>((store, root), all, none, on.now)?;
                planned.make(store, None, on.now);
                Ok(())
            };
            elements::make_parts::<Members, J>(store, (on, expires_at_ms), fill, entry)
        };
        self.scratch = made;
        put
    }

    /// The key gets these members, in the place of what it holds.
    pub(super) fn store<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        members: Items<'_>,
    ) -> Reply<'static> {
        let unique = unique(members);
        if unique.is_empty() {
            keys::del(store, on);
            return Reply::number(0);
        }
        if on.key.len() > MAX_KEY_BYTES {
            return Reply::status(Status::TooLarge);
        }
        // Expired or not: the present object is removed.
        let found = store.lookup(on.key, on.hash, on.now);
        let entry = Command::Of { key: on.key, request: SetCommand::Store { members }.request() };
        match self.put(store, (on, found, 0), (&unique, false), &entry) {
            Ok(()) => Reply::number(unique.len() as i64),
            Err(ArenaFull { .. }) => Reply::status(Status::OutOfMemory),
        }
    }

    pub(super) fn remove<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        members: Items<'_>,
    ) -> Reply<'static> {
        let Some(held) = held else { return Reply::number(0) };
        let mut there = unique(members);
        there.retain(|member| Self::has(store, held, member));
        self.remove_these(store, (on, held), (&there, members))
    }

    /// Removes members that are there, in ascending order; `named` are logged.
    fn remove_these<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Held),
        (there, named): (&[&[u8]], Items<'_>),
    ) -> Reply<'static> {
        let removed = there.len() as u64;
        if removed == 0 {
            return Reply::number(0);
        }
        if removed == Self::length(store, held) && !is_filling(store, held) {
            keys::del(store, on);
            return Reply::number(removed as i64);
        }
        let request = SetCommand::Remove { members: named }.request();
        let entry = Command::Of { key: on.key, request };
        let done = match held {
            Held::Parts(root) => {
                let (from, gone) = ((&mut *store, root.slot.slot), there.iter().copied());
                let planned = bins::plan::<Members, J>(from, std::iter::empty(), gone, on.now);
                let logged = (&entry, on.hash.database());
                planned.map(|planned| _ = planned.make(store, Some(logged), on.now))
            }
            Held::Whole(found) => self.remove_whole(store, (on, found), there, &entry),
        };
        match done {
            Ok(()) => Reply::number(removed as i64),
            Err(ArenaFull { .. }) => Reply::status(Status::OutOfMemory),
        }
    }

    fn remove_whole<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, found): (On<'_>, Found),
        there: &[&[u8]],
        entry: &Command<'_>,
    ) -> Result<(), ArenaFull> {
        let mut made = std::mem::take(&mut self.scratch);
        let packed = packed_of(store, found);
        if packed_set::has_integers(packed) {
            let mut gone: Vec<i64> = there.iter().filter_map(|of| integer::parse(of)).collect();
            gone.sort_unstable();
            let kept = packed_set::members(packed).filter_map(|member| match member {
                Member::Integer(of) => gone.binary_search(&of).is_err().then_some(of),
                Member::Bytes(_) => None,
            });
            packed_set::pack_integers(&mut made, &kept.collect::<Vec<i64>>());
        } else {
            packed_set::begin_items(&mut made);
            each_member(packed, |member| {
                if there.binary_search(&member).is_err() {
                    packed_set::push_item(&mut made, member);
                }
            });
        }
        let (at, expires_at_ms) = ((on, Some(found)), found.mutable.expires_at_ms);
        let put = elements::put_whole::<Members, J>(store, at, (&made, expires_at_ms), entry);
        self.scratch = made;
        put
    }

    /// Moves a member to another set of the shard.
    pub(super) fn move_to<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        to_and_member: Items<'_>,
    ) -> Reply<'static> {
        let mut both = to_and_member.iter().flatten();
        let (Some(to), Some(member), Some(held)) = (both.next(), both.next(), held) else {
            return Reply::number(0);
        };
        let hash = store.hash(on.hash.database(), to);
        let to = On { key: to, hash, ..on };
        let other = match Self::find(store, to) {
            Ok(other) => other,
            Err(status) => return Reply::status(status),
        };
        let is_there = Self::has(store, held, member);
        if !is_there || to.key == on.key {
            return Reply::number(is_there.into());
        }
        let mut list = Vec::new();
        Items::push(&mut list, member);
        let members = Items::parse(&list).expect("just made");
        store.keep_both(to, on);
        let added = self.add(store, (to, other), members);
        if added.status != Status::Ok {
            return added;
        }
        // Making room may have moved records.
        store.keep_both(on, to);
        let held = Self::find(store, on).ok().flatten();
        let removed = self.remove(store, (on, held), members);
        if removed.status != Status::Ok && added.number == 1 {
            store.keep_both(to, on);
            let other = Self::find(store, to).ok().flatten();
            self.remove(store, (to, other), members);
        }
        removed
    }

    /// Removes random members, and gives them.
    pub(super) fn pop<'s, J: Journal>(
        &'s mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        count: u64,
    ) -> Reply<'s> {
        let mut list = Vec::new();
        if let Some(held) = held {
            let count = count.min(Self::length(store, held));
            if count > MAX_COMMAND_ITEMS as u64 {
                return Reply::status(Status::TooLarge);
            }
            self.choose(store, held, count, &mut list);
            let members = Items::parse(&list).expect("just made");
            let reply = self.remove_these(store, (on, held), (&unique(members), members));
            if reply.status != Status::Ok {
                return reply;
            }
        }
        let popped = Items::parse(&list).map_or(0, |list| list.iter().count());
        self.scratch = list;
        Reply { value: Some(&self.scratch), ..Reply::number(popped as i64) }
    }

    /// Appends this many different members, each equally likely.
    fn choose<J: Journal>(&mut self, store: &Store<J>, held: Held, count: u64, list: &mut Vec<u8>) {
        let mut random = Random(self.draw(store));
        let length = Self::length(store, held);
        if let (Held::Parts(root), true) = (held, count <= length / 4) {
            let root = root.slot.slot;
            // Bounded: after some lots the buckets are looked at in order.
            let all = (count, u64::MAX);
            let drawn = draw_different::<Members, J>(store, root, &mut random, all);
            for place in drawn.expect("the set has more members") {
                with_drawn::<Members, J>(store, place, |member, _| Items::push(list, member));
            }
            return;
        }
        let (mut wanted, mut left) = (count, length);
        let mut look = |member: &[u8], _: Field<'_>| {
            if random.below(left) < wanted {
                Items::push(list, member);
                wanted -= 1;
            }
            left -= 1;
        };
        match held {
            Held::Whole(found) => Members::of_whole(packed_of(store, found), look),
            Held::Parts(root) => elements::each::<Members, J>(store, root.slot.slot, &mut look),
        }
    }
}

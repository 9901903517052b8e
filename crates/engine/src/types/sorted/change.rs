//! Changes of sorted sets: conditions are decided first, and what is left is logged and published.

use super::changes::{Changes, Put, sort};
use super::held::{SortedSets, push_score};
use super::packing::Scores;
use super::whole::{Changed, changed, is_whole, pack};
use crate::elements::{self, Held, is_filling, packed_of};
use crate::keys;
use crate::store::{Found, Store};
use crate::types::object::On;
use remora_arena::Journal;
use remora_layout::limits::{MAX_KEY_BYTES, SORTED_CHANGE_MEMBERS};
use remora_layout::packed_scores;
use remora_protocol::message::Status;
use remora_protocol::sorted::{Comparison, Scored, SortedCommand, When};
use remora_protocol::{Command, Items, Reply};
use std::collections::BTreeMap;

/// What an addition comes to.
#[derive(Default)]
struct Resolved<'m> {
    puts: Vec<Put<'m>>,
    added: u64,
    changed: u64,
    /// Whether the members as they were given are what is to be logged.
    is_as_given: bool,
}

/// Members with scores, each once with the last score that it is given, in ascending order.
fn unique_scores<'m>(all: impl Iterator<Item = (f64, &'m [u8])>) -> Vec<(f64, &'m [u8])> {
    let last: BTreeMap<&[u8], f64> = all.map(|(score, member)| (member, score)).collect();
    let mut all: Vec<(f64, &[u8])> =
        last.into_iter().map(|(member, score)| (score, member)).collect();
    sort(&mut all);
    all
}

/// The names in a list, each once.
fn unique(members: Items<'_>) -> Vec<&[u8]> {
    let mut all: Vec<&[u8]> = members.iter().flatten().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A list of puts, as a change is logged.
fn listed(puts: &[Put<'_>]) -> Vec<u8> {
    let mut list = Vec::new();
    puts.iter().for_each(|put| Scored::push(&mut list, put.new, put.member));
    list
}

/// When what a key holds expires, Unix ms; 0 for never.
fn expiry_of(found: Option<Found>) -> u64 {
    found.map_or(0, |found| found.mutable.expires_at_ms)
}

/// A request that adds these members, whatever is there.
fn addition(members: Scored<'_>) -> SortedCommand<'_> {
    SortedCommand::Add { when: When::default(), counts_changed: false, members }
}

impl SortedSets {
    pub(super) fn add<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        (when, counts_changed, members): (When, bool, Scored<'_>),
    ) -> Reply<'static> {
        let resolved = self.resolve(store, held, (when, members));
        let Resolved { puts, added, changed, is_as_given } = resolved;
        let count = |added: u64, changed| (added + if counts_changed { changed } else { 0 }) as i64;
        if let Some(Held::Parts(root)) = held
            && puts.len() > SORTED_CHANGE_MEMBERS
        {
            let done = self.put_some(store, (on, root.slot.slot), &puts);
            let Err((done, status)) = done else { return Reply::number(count(added, changed)) };
            // Tried again, those that are done count no more.
            let new = puts[..done].iter().filter(|put| put.old.is_none()).count() as u64;
            let number = count(new, done as u64 - new);
            return Reply { number, ..Reply::status(status) };
        }
        let done = if is_as_given {
            self.put_all(store, (on, held), &puts, members)
        } else {
            let list = listed(&puts);
            self.put_all(store, (on, held), &puts, Scored::parse(&list).expect("just made"))
        };
        done.map_or_else(Reply::status, |()| Reply::number(count(added, changed)))
    }

    /// Gives many members of a large set scores, some in each change: what a change may need at worst
    /// stays small. An error says how many have theirs.
    fn put_some<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        puts: &[Put<'_>],
    ) -> Result<(), (usize, Status)> {
        let mut done = 0;
        for some in puts.chunks(SORTED_CHANGE_MEMBERS) {
            let list = listed(some);
            let members = Scored::parse(&list).expect("just made");
            let entry = Command::Of { key: on.key, request: addition(members).request() };
            let changes = Changes { puts: some, gone: &[] };
            self.change_large(store, (on, root), changes, &entry).map_err(|of| (done, of))?;
            done += some.len();
        }
        Ok(())
    }

    /// Decides which members get a score: one after the other, as each of them may be named twice.
    fn resolve<'m, J: Journal>(
        &self,
        store: &Store<J>,
        held: Option<Held>,
        (when, members): (When, Scored<'m>),
    ) -> Resolved<'m> {
        let score = |member| held.and_then(|held| self.score(store, held, member));
        let mut resolved = Resolved::default();
        let mut all = members.iter();
        if let (Some((new, member)), None) = (all.next(), all.next()) {
            let old = score(member);
            if old != Some(new) && when.permits(old, new) {
                resolved.puts.push(Put { member, old, new });
                resolved.added = old.is_none().into();
                resolved.changed = old.is_some().into();
                resolved.is_as_given = true;
            }
            return resolved;
        }
        let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
        let mut given = 0;
        for (new, member) in members.iter() {
            given += 1;
            let at = *places.entry(member).or_insert_with(|| {
                let old = score(member);
                // Not put yet: a score that no member has.
                resolved.puts.push(Put { member, old, new: old.unwrap_or(f64::NAN) });
                resolved.puts.len() - 1
            });
            let put = &mut resolved.puts[at];
            let present = Some(put.new).filter(|score| !score.is_nan());
            if present != Some(new) && when.permits(present, new) {
                resolved.added += u64::from(present.is_none());
                resolved.changed += u64::from(present.is_some());
                put.new = new;
            }
        }
        resolved.puts.retain(|put| !put.new.is_nan() && put.old != Some(put.new));
        resolved.is_as_given = resolved.puts.len() == given;
        resolved
    }

    /// Adds to the score of a member.
    pub(super) fn increment<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        (when, by, member): (When, f64, &[u8]),
    ) -> Reply<'_> {
        let old = held.and_then(|held| self.score(store, held, member));
        let new = old.map_or(by, |old| old + by);
        if new.is_nan() {
            let when = When { comparison: Comparison::Any, ..when };
            let is_error = when.permits(old, new);
            return Reply::status(if is_error { Status::NotANumber } else { Status::NotDone });
        }
        if !when.permits(old, new) {
            return Reply::status(Status::NotDone);
        }
        if old != Some(new) {
            let puts = [Put { member, old, new }];
            let list = listed(&puts);
            let members = Scored::parse(&list).expect("just made");
            if let Err(status) = self.put_all(store, (on, held), &puts, members) {
                return Reply::status(status);
            }
        }
        self.scratch.clear();
        push_score(new, &mut self.scratch);
        Reply { value: Some(&self.scratch), ..Reply::status(Status::Ok) }
    }

    /// Gives members scores; `logged` is what the log has of that.
    fn put_all<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        puts: &[Put<'_>],
        logged: Scored<'_>,
    ) -> Result<(), Status> {
        if puts.is_empty() {
            return Ok(());
        }
        if on.key.len() > MAX_KEY_BYTES {
            return Err(Status::TooLarge);
        }
        let entry = Command::Of { key: on.key, request: addition(logged).request() };
        let found = match held {
            Some(Held::Parts(root)) => {
                let changes = Changes { puts, gone: &[] };
                return self.change_large(store, (on, root.slot.slot), changes, &entry);
            }
            Some(Held::Whole(found)) => Some(found),
            None => None,
        };
        let packed = found.map(|found| packed_of(store, found)).unwrap_or_default();
        let changed = changed(packed, puts);
        if changed.is_whole {
            return self.put_changed(store, (on, found), &changed, &entry);
        }
        let Changed { gone, new, .. } = changed;
        let packed = packed.to_vec();
        let is_put = |item: &(f64, &[u8])| gone.contains(item);
        let all = packed_scores::items(&packed).filter(|item| !is_put(item)).chain(new);
        // A record that came from elsewhere may name a member twice.
        let all = unique_scores(all);
        self.make_large(store, (on, expiry_of(found)), &all, &entry)
    }

    /// Takes members of a set that lies whole in its record away, and puts others in.
    fn put_changed<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, found): (On<'_>, Option<Found>),
        changed: &Changed<'_>,
        entry: &Command<'_>,
    ) -> Result<(), Status> {
        let mut made = std::mem::take(&mut self.scratch);
        made.clear();
        let packed = found.map(|found| packed_of(store, found)).unwrap_or_default();
        packed_scores::push_changed(&mut made, packed, &changed.gone, &changed.new);
        self.put_packed(store, (on, found, expiry_of(found)), made, entry)
    }

    /// Lets a key hold a set that lies whole in its record.
    fn put_packed<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, found, expires_at_ms): (On<'_>, Option<Found>, u64),
        made: Vec<u8>,
        entry: &Command<'_>,
    ) -> Result<(), Status> {
        let put =
            elements::put_whole::<Scores, J>(store, (on, found), (&made, expires_at_ms), entry);
        self.scratch = made;
        put.map_err(|_| Status::OutOfMemory)
    }

    /// The key gets these members, in the place of what it holds.
    pub(super) fn store<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        members: Scored<'_>,
    ) -> Reply<'static> {
        if members.is_empty() {
            keys::del(store, on);
            return Reply::number(0);
        }
        if on.key.len() > MAX_KEY_BYTES {
            return Reply::status(Status::TooLarge);
        }
        let all = unique_scores(members.iter());
        // Expired or not: the present object is removed.
        let found = store.lookup(on.key, on.hash, on.now);
        let request = SortedCommand::Store { members }.request();
        let entry = Command::Of { key: on.key, request };
        let put = if is_whole(&all) {
            let mut made = std::mem::take(&mut self.scratch);
            pack(&all, &mut made);
            self.put_packed(store, (on, found, 0), made, &entry)
        } else {
            self.make_large(store, (on, 0), &all, &entry)
        };
        put.map_or_else(Reply::status, |()| Reply::number(all.len() as i64))
    }

    pub(super) fn remove<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        members: Items<'_>,
    ) -> Reply<'static> {
        let Some(held) = held else { return Reply::number(0) };
        let there = unique(members).into_iter();
        let gone: Vec<(f64, &[u8])> =
            there.filter_map(|member| Some((self.score(store, held, member)?, member))).collect();
        let removed = self.remove_these(store, (on, held), &gone);
        removed.map_or_else(Reply::status, |()| Reply::number(gone.len() as i64))
    }

    /// Removes members that are there, each named once with its score.
    pub(super) fn remove_these<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Held),
        gone: &[(f64, &[u8])],
    ) -> Result<(), Status> {
        if gone.is_empty() {
            return Ok(());
        }
        if gone.len() as u64 == self.length(store, held) && !is_filling(store, held) {
            keys::del(store, on);
            return Ok(());
        }
        let mut list = Vec::new();
        gone.iter().for_each(|(_, member)| Items::push(&mut list, member));
        let members = Items::parse(&list).expect("just made");
        let request = SortedCommand::Remove { members }.request();
        let entry = Command::Of { key: on.key, request };
        let found = match held {
            Held::Parts(root) => {
                let changes = Changes { puts: &[], gone };
                return self.change_large(store, (on, root.slot.slot), changes, &entry);
            }
            Held::Whole(found) => found,
        };
        let mut gone = gone.to_vec();
        sort(&mut gone);
        let changed = Changed { gone, new: Vec::new(), is_whole: true };
        self.put_changed(store, (on, Some(found)), &changed, &entry)
    }
}

//! The elements that LREM and LINSERT look for, found in turns while the list changes.
//!
//! Invariant: what is known holds for the list as it is now: each change moves the range that was
//! looked at, and the matches in it. So a search never begins again, and its last turn and the change
//! that follows are one step. A turn looks at as many elements as were added since the last one, and
//! some more: so the search ends, whatever is pushed.

use super::dumps::Change;
use super::entries::is_of;
use remora_arena::{Journal, Owner};
use remora_index::chain::{At, Chain, Directory};
use remora_layout::chain::encoded;
use remora_layout::limits::{LIST_TURN_BYTES, LIST_TURN_CHUNKS};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A search that is under way.
pub(super) struct Matches {
    /// The encoded entry that elements have to equal.
    wanted: Vec<u8>,
    /// Matches that are wanted, at most; 0: all.
    most: u64,
    /// The last ones are wanted, not the first ones.
    is_reverse: bool,
    /// All elements from this index on were looked at.
    from: u64,
    /// The end of that range.
    to: u64,
    /// The indexes of the matches in it, ascending, less `base`, modulo 2^32.
    found: VecDeque<u32>,
    base: u32,
    /// Elements that were added to the list since the last turn.
    added: u64,
}

/// The searches of one list that are under way.
#[derive(Default)]
pub(super) struct Searches(RefCell<Vec<Weak<Mutex<Matches>>>>);

pub(super) fn lock(matches: &Mutex<Matches>) -> MutexGuard<'_, Matches> {
    matches.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Matches {
    /// A search in a list of this length, for elements that equal an encoded entry: for `count` of
    /// them as LREM counts them.
    pub fn new(wanted: Vec<u8>, count: i64, length: u64) -> Self {
        let (most, is_reverse) = (count.unsigned_abs(), count < 0);
        let at = if is_reverse { length } else { 0 };
        Self {
            wanted,
            most,
            is_reverse,
            from: at,
            to: at,
            found: VecDeque::new(),
            base: 0,
            added: 0,
        }
    }

    /// The indexes of the matches that are wanted, ascending.
    pub fn indexes(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        let surplus = if most == 0 { 0 } else { self.found.len().saturating_sub(most) };
        let (skip, take) = match self.is_reverse {
            true => (surplus, self.found.len()),
            false => (0, self.found.len() - surplus),
        };
        self.found.iter().skip(skip).take(take).map(|of| of.wrapping_add(self.base))
    }

    /// Whether the matches that are wanted are known.
    fn has_ended(&self, length: u64) -> bool {
        let has_enough = self.most > 0 && self.found.len() as u64 >= self.most;
        match self.is_reverse {
            false => self.from == 0 && (self.to == length || has_enough),
            true => self.to == length && (self.from == 0 || has_enough),
        }
    }

    /// Whether the elements behind the known range come next, and not those before it.
    fn goes_up(&self, length: u64) -> bool {
        if self.is_reverse { self.to < length } else { self.from == 0 }
    }

    /// Looks at the entries of a list that lies whole in its record.
    pub fn look_at_all(&mut self, entries: &[u8]) {
        (self.from, self.to) = (0, 0);
        self.look_up(entries, 0);
    }

    /// Looks at the entries of a chunk behind so many: they follow the known range.
    fn look_up(&mut self, entries: &[u8], skip: usize) {
        for entry in encoded(entries).skip(skip) {
            if is_of(entry, &self.wanted) {
                self.found.push_back((self.to as u32).wrapping_sub(self.base));
            }
            self.to += 1;
        }
    }

    /// Looks at the first so many entries of a chunk: they come before the known range.
    fn look_down(&mut self, entries: &[u8], count: usize) {
        let first = self.from - count as u64;
        let all = encoded(entries).take(count).enumerate();
        let matches = all.filter(|(_, entry)| is_of(entry, &self.wanted));
        let found: Vec<usize> = matches.map(|(number, _)| number).collect();
        for number in found.into_iter().rev() {
            self.found.push_front((first as u32 + number as u32).wrapping_sub(self.base));
        }
        self.from = first;
    }

    /// Continues: looks at up to [`LIST_TURN_CHUNKS`] chunks of the list, or as many as were added.
    /// Returns whether it has ended, and the number of chunks.
    pub fn turn<J: Journal>(&mut self, owner: &Owner<J>, chain: &Chain) -> (bool, u64) {
        let (length, directory) = (chain.length(), chain.directory());
        let added = std::mem::take(&mut self.added);
        let (mut chunks, mut bytes, before) = (0, 0, self.to - self.from);
        let mut next = None;
        while !self.has_ended(length) {
            let is_long = chunks >= LIST_TURN_CHUNKS || bytes >= LIST_TURN_BYTES;
            if is_long && self.to - self.from - before >= added {
                return (false, chunks);
            }
            let goes_up = self.goes_up(length);
            let (at, number) = self.chunk(directory, goes_up, next);
            let entries = chain.entries(owner, at);
            match goes_up {
                true => self.look_up(entries, number),
                false => self.look_down(entries, number + 1),
            }
            next = Some((goes_up, at));
            (chunks, bytes) = (chunks + 1, bytes + entries.len());
        }
        (true, chunks)
    }

    /// The chunk that is looked at next, and the number of the entry in it that is beside the known
    /// range. `last` is the one before, and the direction then.
    fn chunk(&self, directory: &Directory, goes_up: bool, last: Option<(bool, At)>) -> (At, usize) {
        let beside = last
            .filter(|(went_up, _)| *went_up == goes_up)
            .and_then(|(_, at)| if goes_up { directory.next(at) } else { directory.previous(at) });
        match beside {
            Some(at) if goes_up => (at, 0),
            Some(at) => (at, usize::from(directory.get(at).entries) - 1),
            None => {
                let index = if goes_up { self.to } else { self.from - 1 };
                directory.find(index).expect("the search has not come to this end")
            }
        }
    }

    /// The position among the matches of the first one from this index on.
    fn position(&self, index: u64) -> usize {
        self.found.partition_point(|of| u64::from(of.wrapping_add(self.base)) < index)
    }

    /// An element of this index came into the range that was looked at, or changed there.
    fn meet(&mut self, index: u64, entry: &[u8]) {
        if is_of(entry, &self.wanted) {
            let position = self.position(index);
            self.found.insert(position, (index as u32).wrapping_sub(self.base));
        }
    }

    fn note(&mut self, change: Change<'_>) {
        match change {
            Change::PushedFront(count) => {
                (self.from, self.to) = (self.from + count, self.to + count);
                self.base = self.base.wrapping_add(count as u32);
                self.added += count;
            }
            Change::PushedBack(count) => self.added += count,
            Change::Kept { from, keep } => self.keep(from, keep),
            Change::Inserted(index, entry) => {
                self.added += 1;
                if index <= self.from {
                    (self.from, self.to) = (self.from + 1, self.to + 1);
                    self.base = self.base.wrapping_add(1);
                } else if index < self.to {
                    self.to += 1;
                    let position = self.position(index);
                    self.found.range_mut(position..).for_each(|of| *of = of.wrapping_add(1));
                    self.meet(index, entry);
                }
            }
            Change::Replaced(index, entry) => {
                if (self.from..self.to).contains(&index) {
                    let position = self.position(index);
                    let is_it = |of: &u32| u64::from(of.wrapping_add(self.base)) == index;
                    if self.found.get(position).is_some_and(is_it) {
                        self.found.remove(position);
                    }
                    self.meet(index, entry);
                }
            }
            Change::Removed(indexes) => self.remove(indexes),
        }
    }

    /// The elements before `from`, and all behind `keep` others, have gone.
    fn keep(&mut self, from: u64, keep: u64) {
        let first = self.position(from);
        self.found.drain(..first);
        let end = self.position(from + keep);
        self.found.truncate(end);
        self.base = self.base.wrapping_sub(from as u32);
        self.to = self.to.saturating_sub(from).min(keep);
        self.from = self.from.saturating_sub(from).min(self.to);
    }

    /// The elements of these indexes have gone.
    fn remove(&mut self, indexes: &[u32]) {
        let before = |index: u64| indexes.partition_point(|&of| u64::from(of) < index) as u64;
        let base = self.base;
        let mut gone = indexes.iter().copied().enumerate().peekable();
        let mut passed = 0;
        self.found.retain_mut(|of| {
            let index = of.wrapping_add(base);
            while let Some((number, _)) = gone.next_if(|(_, gone)| *gone < index) {
                passed = number as u32 + 1;
            }
            *of = of.wrapping_sub(passed);
            gone.peek().is_none_or(|(_, gone)| *gone != index)
        });
        (self.from, self.to) = (self.from - before(self.from), self.to - before(self.to));
    }
}

impl Searches {
    /// The list has changed.
    pub fn note(&self, change: Change<'_>) {
        let mut all = self.0.borrow_mut();
        if !all.is_empty() {
            all.retain(|matches| {
                let Some(matches) = matches.upgrade() else { return false };
                lock(&matches).note(change);
                true
            });
        }
    }

    /// A search begins.
    pub fn add(&self, matches: &Arc<Mutex<Matches>>) {
        let mut all = self.0.borrow_mut();
        all.retain(|matches| matches.strong_count() > 0);
        all.push(Arc::downgrade(matches));
    }
}

//! Ranges of large sorted sets that are read in turns.
//!
//! Invariant: a range is given as the set was when the read began. Before an entry of the tree is
//! added or removed, each read that is still to come to its key notes what was there. A read gives
//! the entries of the tree as they are, but for the keys that it has noted. What all reads of a
//! shard note is bounded: a read that would need more is broken off.

use crate::store::Store;
use crate::types::tree_range::{OwnBound, range_some};
use remora_arena::Journal;
use remora_index::btree::{Direction, Tree};
use remora_layout::limits::{KEPT_PARTS_SHARE, RANGE_TURN_BYTES, RANGE_TURN_KEYS};
use remora_protocol::message::Status;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The tree of a set, and what appends the entry of a key as it is given.
pub(super) type Entries<'t> = (&'t Tree, &'t dyn Fn(&[u8], &mut Vec<u8>));

/// Bytes that are noted for the ranges of all sets of a shard.
#[derive(Default)]
pub(super) struct Reads {
    bytes: Arc<AtomicU64>,
}

/// The ranges of one set that are being read.
#[derive(Default)]
pub(super) struct Readers(Vec<Weak<Mutex<Ahead>>>);

/// A key, and what was there: an entry as it is given, or none.
type Note = (Vec<u8>, Option<Box<[u8]>>);

/// Bytes on the heap for a noted key beside its own and the entry's: its place in a map whose nodes
/// are half full at least.
const NOTE_BYTES: u64 = 96;

/// What a read is still to come to.
pub(super) struct Ahead {
    from: OwnBound,
    to: OwnBound,
    direction: Direction,
    /// Entries that it is still to give.
    left: u64,
    /// The tree has no more entries for it.
    is_at_end: bool,
    /// What was at keys that have changed since: an entry as it is given, or none.
    noted: BTreeMap<Vec<u8>, Option<Box<[u8]>>>,
    /// Entries of a set that has ended, in their order.
    kept: Vec<u8>,
    /// Bytes of all this, which count in `total` too.
    bytes: u64,
    total: Arc<AtomicU64>,
    most: u64,
    is_broken: bool,
}

pub(super) fn lock(ahead: &Mutex<Ahead>) -> MutexGuard<'_, Ahead> {
    ahead.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Reads {
    /// Bytes that are noted.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A read of so many entries within these bounds.
    pub fn begin<J: Journal>(
        &self,
        store: &Store<J>,
        (from, to): (OwnBound, OwnBound),
        direction: Direction,
        left: u64,
    ) -> Arc<Mutex<Ahead>> {
        let (noted, kept, total) = (BTreeMap::new(), Vec::new(), Arc::clone(&self.bytes));
        let most = store.owner.region_bytes() as u64 / KEPT_PARTS_SHARE;
        let (bytes, is_broken, is_at_end) = (0, false, false);
        Arc::new(Mutex::new(Ahead {
            from,
            to,
            direction,
            left,
            is_at_end,
            noted,
            kept,
            bytes,
            total,
            most,
            is_broken,
        }))
    }
}

impl Readers {
    /// Whether no range is being read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A read begins.
    pub fn add(&mut self, ahead: &Arc<Mutex<Ahead>>) {
        self.0.retain(|ahead| ahead.strong_count() > 0);
        self.0.push(Arc::downgrade(ahead));
    }

    /// The entry of a key is about to be added, or to be removed: what is there, as it is given.
    pub fn note(&mut self, key: &[u8], was: Option<&[u8]>) {
        self.0.retain(|ahead| {
            let Some(ahead) = ahead.upgrade() else { return false };
            lock(&ahead).note(key, was);
            true
        });
    }

    /// The reads that are still to be served when their set has ended.
    pub fn running(&mut self) -> Option<Arc<Mutex<Ahead>>> {
        self.0.retain(|ahead| {
            ahead.upgrade().is_some_and(|ahead| {
                let ahead = lock(&ahead);
                ahead.left > 0 && !ahead.is_broken
            })
        });
        self.0.first().and_then(Weak::upgrade)
    }
}

impl Ahead {
    /// Counts bytes more, or breaks the read off if there is no room for them.
    fn charge(&mut self, bytes: u64) {
        if self.total.load(Ordering::Relaxed) + bytes > self.most {
            self.is_broken = true;
            (self.noted, self.kept) = (BTreeMap::new(), Vec::new());
            self.total.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
        } else {
            self.total.fetch_add(bytes, Ordering::Relaxed);
            self.bytes += bytes;
        }
    }

    fn discharge(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn note(&mut self, key: &[u8], was: Option<&[u8]>) {
        let is_ahead = is_from(&self.from, key) && is_to(&self.to, key);
        if self.left == 0 || self.is_broken || !is_ahead || self.noted.contains_key(key) {
            return;
        }
        self.charge(bytes_of(key, was));
        if !self.is_broken {
            self.noted.insert(key.to_vec(), was.map(Into::into));
        }
    }

    /// Appends some more entries; true once there are no more.
    ///
    /// # Errors
    /// Too much has changed since the read began.
    pub fn go_on<J: Journal>(
        &mut self,
        store: &Store<J>,
        set: Option<Entries<'_>>,
        found: &mut Vec<u8>,
    ) -> Result<bool, Status> {
        if self.is_broken {
            return Err(Status::Outrun);
        }
        if !self.kept.is_empty() {
            let kept = std::mem::take(&mut self.kept);
            self.discharge(kept.len() as u64);
            found.extend_from_slice(&kept);
        } else if let Some(set) = set.filter(|_| self.left > 0) {
            self.read_some(store, set, found);
        }
        Ok(self.left == 0 && self.kept.is_empty())
    }

    /// Keeps some more entries of a set that has ended.
    pub fn keep_some<J: Journal>(&mut self, store: &Store<J>, set: Entries<'_>) {
        let mut kept = std::mem::take(&mut self.kept);
        let before = kept.len();
        self.read_some(store, set, &mut kept);
        let added = (kept.len() - before) as u64;
        self.kept = kept;
        self.charge(added);
    }

    fn read_some<J: Journal>(
        &mut self,
        store: &Store<J>,
        (tree, push): Entries<'_>,
        found: &mut Vec<u8>,
    ) {
        let most = RANGE_TURN_KEYS.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let (mut lot, mut bytes) = (Vec::new(), 0);
        // The tree up to the key of a noted entry that belongs to a later turn.
        let horizon = self.horizon();
        let (mut from, mut to) = (self.from.clone(), self.to.clone());
        match (&horizon, self.direction) {
            (None, _) => {}
            (Some(key), Direction::Ascending) => to = Bound::Excluded(key.clone()),
            (Some(key), Direction::Descending) => from = Bound::Excluded(key.clone()),
        }
        let bounds = (&mut from, &mut to, self.direction);
        let has_notes = !self.noted.is_empty();
        let some = range_some(store, tree, bounds, most, |key, _| {
            let before = found.len();
            push(key, found);
            let length = found.len() - before;
            bytes += length;
            if has_notes {
                lot.push((key.to_vec(), found.split_off(before)));
            }
            length
        });
        let reached_end = some < most && bytes < RANGE_TURN_BYTES;
        match (self.direction, reached_end, horizon) {
            (Direction::Ascending, true, Some(key)) => self.from = Bound::Included(key),
            (Direction::Descending, true, Some(key)) => self.to = Bound::Included(key),
            (_, true, None) => self.is_at_end = true,
            (Direction::Ascending, false, _) => self.from = from,
            (Direction::Descending, false, _) => self.to = to,
        }
        match has_notes {
            true => self.give_corrected(lot, found),
            false => self.left -= some as u64,
        }
        if self.is_at_end {
            self.left = 0;
        }
    }

    /// The key of the first noted entry, in the order of the read, that a turn does not come to.
    fn horizon(&self) -> Option<Vec<u8>> {
        let mut keys = self.noted.keys();
        let key = match self.direction {
            Direction::Ascending => keys.nth(RANGE_TURN_KEYS),
            Direction::Descending => keys.nth_back(RANGE_TURN_KEYS),
        };
        key.cloned()
    }

    /// Gives a lot, corrected by what was noted of the keys that the read has passed.
    fn give_corrected(&mut self, lot: Vec<(Vec<u8>, Vec<u8>)>, found: &mut Vec<u8>) {
        let mut lot: BTreeMap<Vec<u8>, Box<[u8]>> =
            lot.into_iter().map(|(key, entry)| (key, entry.into())).collect();
        while let Some((key, was)) = self.take_passed() {
            self.discharge(bytes_of(&key, was.as_deref()));
            match was {
                Some(entry) => lot.insert(key, entry),
                None => lot.remove(&key),
            };
        }
        let entries = lot.into_values();
        let give = |entry: Box<[u8]>| found.extend_from_slice(&entry);
        let some = entries.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= some as u64;
        match self.direction {
            Direction::Ascending => entries.take(some).for_each(give),
            Direction::Descending => entries.rev().take(some).for_each(give),
        }
    }

    /// A noted entry whose key the read has passed, as long as there is one.
    fn take_passed(&mut self) -> Option<Note> {
        let (next, is_ahead) = match self.direction {
            Direction::Ascending => {
                let next = self.noted.first_entry()?;
                let is_ahead = is_from(&self.from, next.key());
                (next, is_ahead)
            }
            Direction::Descending => {
                let next = self.noted.last_entry()?;
                let is_ahead = is_to(&self.to, next.key());
                (next, is_ahead)
            }
        };
        (self.is_at_end || !is_ahead).then(|| next.remove_entry())
    }
}

/// Whether a key is not before this bound.
fn is_from(from: &OwnBound, key: &[u8]) -> bool {
    match from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from.as_slice(),
        Bound::Excluded(from) => key > from.as_slice(),
    }
}

/// Whether a key is not behind this bound.
fn is_to(to: &OwnBound, key: &[u8]) -> bool {
    match to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to.as_slice(),
        Bound::Excluded(to) => key < to.as_slice(),
    }
}

fn bytes_of(key: &[u8], was: Option<&[u8]>) -> u64 {
    NOTE_BYTES + (key.len() + was.map_or(0, <[u8]>::len)) as u64
}

//! Reads of lists in turns: LRANGE and LPOS.
//!
//! Invariant: a read gives the list as it was when the read began. Before the entries of a chunk
//! change, or its slot is released, they are copied for the reads that have not looked at them yet.
//! The copies for all reads of a shard are bounded: a read that would need more is broken off.

use super::entries::is_of;
use super::held::{Held, Lists, packed_of};
use super::kept::{Chunks, lock};
use crate::store::Store;
use remora_arena::{Journal, Owner};
use remora_index::chain::chunk_entries;
use remora_layout::chain::{Entry, TextBuffer, encoded, entries};
use remora_layout::limits::{KEPT_PARTS_SHARE, LIST_TURN_BYTES};
use remora_protocol::list::{Search, range};
use remora_protocol::message::Status;
use remora_protocol::{Items, Reply};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A read in turns.
pub(super) struct Reading {
    chunks: Arc<Mutex<Chunks>>,
    how: How,
    /// Items that it gives in all, or has given.
    items: u64,
}

enum How {
    /// The elements, without so many at first, and so many after that.
    Give { skip: usize, left: u64 },
    /// The indexes of those that equal an entry. `next` is the index of the next one, or one more
    /// than that if the search goes from the end.
    Find { wanted: Vec<u8>, how: Search, next: u64, passed: u64, compared: u64 },
}

impl Lists {
    /// The chunks that have the elements of a range, for a read.
    pub(super) fn content<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        (from, count): (u64, u64),
        is_reverse: bool,
    ) -> (Arc<Mutex<Chunks>>, usize) {
        self.reads.most = store.owner.region_bytes() as u64 / KEPT_PARTS_SHARE;
        let (mut left, mut skip) = (VecDeque::new(), 0);
        if let Some(Held::Chain(found)) = held.filter(|_| count > 0) {
            let directory = self.listed(found.slot.slot).chain.directory();
            let (first, number) = directory.find(from).expect("there are so many");
            (skip, left) = (number, directory.slots(first, number as u64 + count));
        }
        if is_reverse {
            left.make_contiguous().reverse();
        }
        let mut chunks = Chunks::new(left, &self.reads);
        if let Some(Held::Whole(found)) = held.filter(|_| count > 0) {
            chunks.left.push_back(0);
            chunks.kept.insert(0, packed_of(store, found).into_owned().into());
            skip = from as usize;
        }
        let chunks = Arc::new(Mutex::new(chunks));
        if let Some(Held::Chain(found)) = held {
            let listed = self.by_root.get_mut(&found.slot.slot).expect("found above");
            listed.readers.add(&chunks);
        }
        (chunks, skip)
    }

    /// Gives a range at once. `NeedsBuffer` if it has more bytes than `most_bytes`: not more of them
    /// are copied.
    pub(super) fn range<'s, J: Journal>(
        &'s mut self,
        store: &Store<J>,
        held: Option<Held>,
        (start, stop): (i64, i64),
        most_bytes: usize,
    ) -> Reply<'s> {
        let mut found = std::mem::take(&mut self.reply);
        found.clear();
        let length = held.map_or(0, |held| self.length(store, held));
        let (from, count) = range(length, start, stop).unwrap_or((0, 0));
        let mut is_whole = true;
        match held.filter(|_| count > 0) {
            None => {}
            Some(Held::Whole(of)) => {
                let some = (from as usize, count as usize);
                is_whole =
                    push_texts(&packed_of(store, of), some, most_bytes, &mut found).is_some();
            }
            Some(Held::Chain(of)) => {
                let chain = &self.listed(of.slot.slot).chain;
                let (first, mut skip) = chain.directory().find(from).expect("there are so many");
                let (mut at, mut left) = (Some(first), count as usize);
                while let Some(here) = at.filter(|_| left > 0) {
                    let all = chain.entries(&store.owner, here);
                    let some = (std::mem::take(&mut skip), left);
                    let Some(given) = push_texts(all, some, most_bytes, &mut found) else {
                        is_whole = false;
                        break;
                    };
                    left -= given;
                    at = chain.directory().next(here);
                }
            }
        }
        self.reply = found;
        if !is_whole {
            return Reply::status(Status::NeedsBuffer);
        }
        Reply { value: Some(&self.reply), ..Reply::number(count as i64) }
    }

    /// Begins LRANGE.
    pub(super) fn begin_range<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        start: i64,
        stop: i64,
    ) -> Reading {
        let length = held.map_or(0, |held| self.length(store, held));
        let (from, count) = range(length, start, stop).unwrap_or((0, 0));
        let (chunks, skip) = self.content(store, held, (from, count), false);
        Reading { chunks, how: How::Give { skip, left: count }, items: count }
    }
}

impl Reading {
    /// A search for elements that equal an entry.
    pub fn search(
        (chunks, _): (Arc<Mutex<Chunks>>, usize),
        length: u64,
        wanted: Vec<u8>,
        how: Search,
    ) -> Self {
        let next = if how.rank < 0 { length } else { 0 };
        Self { chunks, how: How::Find { wanted, how, next, passed: 0, compared: 0 }, items: 0 }
    }

    /// Items that it gives in all, or has given.
    pub fn items(&self) -> i64 {
        self.items as i64
    }

    /// Whether the number of items is known from the start.
    pub fn is_counted(&self) -> bool {
        matches!(self.how, How::Give { .. })
    }

    /// Continues: appends to `found` until that has this many bytes, or enough was looked at. True
    /// at its end.
    ///
    /// # Errors
    /// Too much has changed since it began.
    pub fn turn<J: Journal>(
        &mut self,
        owner: &Owner<J>,
        found: &mut Vec<u8>,
        bytes: usize,
    ) -> Result<bool, Status> {
        let mut chunks = lock(&self.chunks);
        if chunks.is_broken {
            return Err(Status::Outrun);
        }
        let mut looked_at = 0;
        while found.len() < bytes && looked_at < LIST_TURN_BYTES {
            let Some(slot) = chunks.left.pop_front() else { return Ok(true) };
            let kept = chunks.kept.remove(&slot);
            if let Some(kept) = kept.as_ref().filter(|_| slot != 0) {
                chunks.bytes -= kept.len() as u64;
                chunks.total.fetch_sub(kept.len() as u64, Ordering::Relaxed);
            }
            chunks.slots.remove(&slot);
            let all = match &kept {
                Some(kept) => kept,
                None => chunk_entries(owner, slot),
            };
            looked_at += all.len();
            if self.how.take(all, found, &mut self.items) {
                return Ok(true);
            }
        }
        Ok(chunks.left.is_empty())
    }
}

/// Appends the texts of some entries, without so many at first, and so many after that. Gives how
/// many there were; `None` if `found` would have more than `most_bytes`.
fn push_texts(
    all: &[u8],
    (skip, most): (usize, usize),
    most_bytes: usize,
    found: &mut Vec<u8>,
) -> Option<usize> {
    let (mut buffer, mut given) = (TextBuffer::default(), 0);
    let skipped: usize = encoded(all).take(skip).map(<[u8]>::len).sum();
    for entry in entries(&all[skipped..]).take(most) {
        let element = entry.field(&mut buffer);
        if found.len() + Items::bytes_of(element.value.len()) > most_bytes {
            return None;
        }
        Items::push_field(found, element);
        given += 1;
    }
    Some(given)
}

impl How {
    /// Looks at the entries of the next chunk. True if that is enough.
    fn take(&mut self, all: &[u8], found: &mut Vec<u8>, items: &mut u64) -> bool {
        match self {
            Self::Give { skip, left } => {
                let some = (std::mem::take(skip), *left as usize);
                *left -= push_texts(all, some, usize::MAX, found).map_or(0, |given| given as u64);
                *left == 0
            }
            Self::Find { wanted, how, next, passed, compared } => {
                let mut look = |index: u64, entry: &[u8]| {
                    if how.most > 0 && *compared == how.most {
                        return false;
                    }
                    *compared += 1;
                    if is_of(entry, wanted) {
                        *passed += 1;
                        if *passed >= how.rank.unsigned_abs() {
                            let mut buffer = TextBuffer::default();
                            let text = Entry::Integer(index as i64);
                            Items::push(found, text.text(&mut buffer));
                            *items += 1;
                        }
                    }
                    how.count == 0 || *items < how.count
                };
                let count = encoded(all).count() as u64;
                if how.rank > 0 {
                    let first = *next;
                    *next += count;
                    !encoded(all).enumerate().all(|(number, of)| look(first + number as u64, of))
                } else {
                    *next -= count;
                    let first = *next;
                    let all: Vec<&[u8]> = encoded(all).collect();
                    let mut all = all.into_iter().enumerate().rev();
                    !all.all(|(number, of)| look(first + number as u64, of))
                }
            }
        }
    }
}

//! Reads of sorted sets: ranges, random members, scans; at once or in turns.

use super::combine::Combines;
use super::held::SortedSets;
use super::packing::Scores;
use super::ranges::direction_of;
use super::ranging::Ranging;
use super::search::Searching;
use crate::elements::{self, Held, bins};
use crate::store::Store;
use crate::types::object::{LongRead, Turn};
use remora_arena::Journal;
use remora_index::btree::Range;
use remora_layout::limits::{MAX_INLINE_BYTES, PARTS_TURN_BYTES, RANGE_TURN_KEYS};
use remora_protocol::elements::Told;
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedRange, SortedRead};
use remora_protocol::{Items, Reply};
use std::any::Any;
use std::ops::Bound;

/// A range, as a read of its own.
pub(super) struct Reading {
    pub ranging: Ranging,
    /// What it finds is one reply.
    pub is_one: bool,
}

/// Random members that are chosen in turns.
pub(super) struct Choosing(pub elements::Reading);

impl SortedSets {
    /// The members of a range, if they are few; else `NeedsBuffer`.
    pub(super) fn range<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        read: &SortedRead<'_>,
    ) -> Reply<'_> {
        let mut found = std::mem::take(&mut self.scratch);
        found.clear();
        let count = held.map_or(Some(0), |held| self.short_range(store, held, read, &mut found));
        self.scratch = found;
        match count {
            Some(count) => Reply { value: Some(&self.scratch), ..Reply::number(count as i64) },
            None => Reply::status(Status::NeedsBuffer),
        }
    }

    /// Appends the members of a range; none if they are more than one step gives.
    fn short_range<J: Journal>(
        &self,
        store: &Store<J>,
        held: Held,
        read: &SortedRead<'_>,
        found: &mut Vec<u8>,
    ) -> Option<usize> {
        let direction = direction_of(read.is_reverse);
        let mut count = 0;
        let mut give = |score, member: &[u8]| {
            if found.len() <= MAX_INLINE_BYTES {
                Scored::push(found, score, member);
            }
            count += 1;
        };
        match held {
            Held::Parts(root)
                if read.offset == 0 && !matches!(read.range, SortedRange::Index { .. }) =>
            {
                let large = self.large_of(root);
                let Some([from, to]) = large.bounds(store, &read.range) else { return Some(0) };
                let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
                let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let limit = usize::try_from(read.limit).unwrap_or(usize::MAX);
                let range = Range { from, to, direction, limit: limit.min(RANGE_TURN_KEYS + 1) };
                large.tree.range(&store.owner, range, |key, _| {
                    large.with_member(store, key, &mut give);
                });
            }
            _ => {
                let span = self.span_of_read(store, held, read);
                if span.count() > RANGE_TURN_KEYS as u64 {
                    return None;
                }
                self.each_of(store, held, (span, direction), give);
            }
        }
        let is_short = count <= RANGE_TURN_KEYS && found.len() <= MAX_INLINE_BYTES;
        is_short.then_some(count)
    }

    /// Begins to read a range in turns.
    pub(super) fn begin_range<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        read: &SortedRead<'_>,
    ) -> Ranging {
        let Some(held) = held else { return Ranging::Made(Vec::new(), 0) };
        let (span, direction) =
            (self.span_of_read(store, held, read), direction_of(read.is_reverse));
        match held {
            Held::Whole(_) => {
                let mut found = Vec::new();
                self.each_of(store, held, (span, direction), |score, member| {
                    Scored::push(&mut found, score, member);
                });
                Ranging::Made(found, span.count() as i64)
            }
            Held::Parts(root) => self.begin_large(store, root.slot.slot, (span, direction)),
        }
    }

    /// Random members.
    pub(super) fn begin_random<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        held: Option<Held>,
        count: i64,
    ) -> Choosing {
        let members = held.map_or(0, |held| self.length(store, held));
        let seed = self.draw(store);
        let what = (count, Told::Both);
        Choosing(elements::Reading::random::<Scores, J>(store, (held, members), what, seed))
    }

    /// Continues a read for one turn.
    pub(super) fn go_on<J: Journal>(
        &self,
        store: &Store<J>,
        read: &mut LongRead,
        found: &mut Vec<u8>,
    ) -> Result<Turn, Status> {
        let names_only = read.lists_ordered.is_some();
        let state: &mut (dyn Any + Send) = &mut *read.state;
        if let Some(Reading { ranging, is_one }) = state.downcast_mut() {
            if !names_only {
                let turn = ranging.turn(self, store, found)?;
                return Ok(Turn { is_counted: turn.is_counted && !*is_one, ..turn });
            }
            let mut list = Vec::new();
            let turn = ranging.turn(self, store, &mut list)?;
            Scored::in_list(&list).for_each(|(_, member)| Items::push(found, member));
            return Ok(turn);
        }
        if let Some(Choosing(reading)) = state.downcast_mut() {
            let bytes = found.len() + PARTS_TURN_BYTES;
            let ended = reading.turn::<Scores, J>(store, found, bytes)?;
            let (number, is_counted) = (reading.items(), reading.is_counted());
            return Ok(Turn { ended, number, is_counted, gives_value: true, has_doubles: false });
        }
        if let Some(searching) = state.downcast_mut::<Searching>() {
            return self.search_turn(store, searching, found);
        }
        let combines = state.downcast_mut::<Combines>().ok_or(Status::Malformed)?;
        combines.turn(store, &store.scored, found)
    }

    /// A random number: which ones come depends on the arena's secret.
    pub(super) fn draw<J: Journal>(&mut self, store: &Store<J>) -> u64 {
        self.drawn += 1;
        remora_layout::hash::mix(store.options.record_secret, self.drawn)
    }

    /// One step of a scan.
    pub(super) fn scan<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        step: (u64, Items<'_>),
    ) -> Reply<'_> {
        self.scratch.clear();
        let next = bins::scan::<Scores, J>(store, held, step, &mut self.scratch);
        Reply { value: Some(&self.scratch), ..Reply::number(next as i64) }
    }
}

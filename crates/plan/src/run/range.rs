//! The entries of a range of an ordered tree, a part at a time.

use super::row::{Item, Row, refusal};
use super::rows::{Fetch, Next, Output, Taken};
use crate::limits::RANGE_ENTRIES;
use crate::outcome::{Column, Explain};
use crate::plan::{Bytes, KeyRange, Range};
use crate::want::{Given, Value, Want};
use std::ops::Bound;

/// Takes a range of each row's tree.
#[derive(Debug)]
pub(super) struct Entries {
    of: Range,
    /// The tree of the first waiting row, once some of it was read.
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    /// What comes behind the entries that are here; `None`: nothing.
    rest: Option<KeyRange>,
    /// Entries that are still to be taken.
    left: u64,
    here: std::vec::IntoIter<(Bytes, Value)>,
}

impl Entries {
    /// Takes this range.
    pub const fn new(of: Range) -> Self {
        Self { of, reading: None }
    }

    pub fn take(&mut self, row: Row, fetch: &mut Fetch, out: &mut dyn Output) -> Taken {
        match std::mem::take(fetch) {
            Fetch::Here(Given::Entries { entries, goes_on }) => self.read(entries, goes_on, out),
            Fetch::Here(other) => {
                self.visit(out);
                out.charge(&refusal(&other));
                self.reading = None;
                return Taken::Done;
            }
            Fetch::Idle | Fetch::Wanted(_) => {}
        }
        let Some(mut reading) = self.reading.take() else {
            return Taken::Back { row, moved: false };
        };
        let mut moved = false;
        while out.has_room() {
            if reading.left == 0 {
                return Taken::Done;
            }
            let Some((key, value)) = reading.here.next() else {
                if reading.rest.is_some() {
                    break;
                }
                return Taken::Done;
            };
            moved = true;
            reading.left -= 1;
            self.hand_on(&row, (key, &value), out);
        }
        self.reading = Some(reading);
        Taken::Back { row, moved }
    }

    fn hand_on(&self, row: &Row, (key, value): (Bytes, &Value), out: &mut dyn Output) {
        // Links of trees have no hints, so there is none to mend.
        match Item::behind(value, self.of.by_key, None) {
            Err(skipped) => out.charge(&Explain { elements: 1, ..skipped }),
            Ok(item) => {
                out.charge(&Explain { elements: 1, hops: 1, ..Explain::default() });
                let mut moved = row.moved(item);
                if self.of.with_keys {
                    moved.push(Column::Text(key));
                }
                out.push(Next::Row(moved));
            }
        }
    }

    /// Counts the tree, with its first answer.
    fn visit(&self, out: &mut dyn Output) {
        if self.reading.is_none() {
            out.charge(&Explain { lists: 1, ..Explain::default() });
        }
    }

    fn read(&mut self, entries: Vec<(Bytes, Value)>, goes_on: bool, out: &mut dyn Output) {
        self.visit(out);
        let (before, left) = match self.reading.take() {
            Some(reading) => (reading.rest, reading.left),
            None => (Some(self.of.keys.clone()), self.of.count),
        };
        let last = entries.last().filter(|_| goes_on).map(|(key, _)| key.clone());
        let rest = before.zip(last).map(|(range, last)| range.behind(last));
        self.reading = Some(Reading { rest, left, here: entries.into_iter() });
    }

    pub fn want(&self, row: &Row, is_first: bool) -> Option<Want> {
        let place = row.item.place.clone();
        let part = |count: u64| count.clamp(1, RANGE_ENTRIES.into()) as u32;
        match &self.reading {
            Some(reading) if is_first => {
                let is_needed = reading.here.as_slice().is_empty() && reading.left > 0;
                let range = reading.rest.clone().filter(|_| is_needed)?;
                Some(Want::Entries { place, range, count: part(reading.left) })
            }
            _ => {
                let range = self.of.keys.clone();
                Some(Want::Entries { place, range, count: part(self.of.count) })
            }
        }
    }
}

impl KeyRange {
    /// What is left of it behind a key.
    fn behind(self, key: Bytes) -> Self {
        match self.is_reverse {
            true => Self { to: Bound::Excluded(key), ..self },
            false => Self { from: Bound::Excluded(key), ..self },
        }
    }
}

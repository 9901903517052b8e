//! The elements of a list, a part at a time.

use super::row::{Item, Row, refusal};
use super::rows::{Fetch, Next, Output, Taken};
use crate::limits::LIST_ELEMENTS;
use crate::outcome::Explain;
use crate::want::{Given, LinkAt, LinkPlace, Value, Want};

/// Takes each row's list, or a range of it as LRANGE counts.
#[derive(Debug)]
pub(super) struct Each {
    by_key: bool,
    start: i64,
    stop: i64,
    /// The list of the first waiting row, once some of it was read.
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    /// The next element.
    at: u64,
    /// The element behind the last one of the range.
    stop: u64,
    /// Elements of the list, as the last answer says.
    total: u64,
    /// Those that are here, from `at` on.
    here: std::vec::IntoIter<Value>,
}

impl Each {
    /// Takes these elements, the first and the last one.
    pub fn new(by_key: bool, (start, stop): (i64, i64)) -> Self {
        Self { by_key, start, stop, reading: None }
    }

    pub fn take(&mut self, row: Row, fetch: &mut Fetch, out: &mut dyn Output) -> Taken {
        match std::mem::take(fetch) {
            Fetch::Here(Given::List { elements, total }) => self.read(elements, total, out),
            Fetch::Here(other) => {
                self.visit(out);
                out.charge(&refusal(&other));
                self.reading = None;
                return Taken::Done;
            }
            Fetch::Idle | Fetch::Wanted(_) => {}
        }
        let Some(reading) = &mut self.reading else { return Taken::Back { row, moved: false } };
        let mut moved = false;
        while out.has_room() {
            let Some((at, value)) = reading.next() else {
                if reading.at < reading.end() {
                    break;
                }
                self.reading = None;
                return Taken::Done;
            };
            moved = true;
            let link = LinkPlace { key: row.item.place.key.clone(), at: LinkAt::Element(at) };
            match Item::behind(&value, self.by_key, Some(link)) {
                Err(skipped) => out.charge(&Explain { elements: 1, ..skipped }),
                Ok(item) => {
                    out.charge(&Explain { elements: 1, hops: 1, ..Explain::default() });
                    out.push(Next::Row(row.moved(item)));
                }
            }
        }
        Taken::Back { row, moved }
    }

    /// Counts the list, with its first answer.
    fn visit(&self, out: &mut dyn Output) {
        if self.reading.is_none() {
            out.charge(&Explain { lists: 1, ..Explain::default() });
        }
    }

    fn read(&mut self, elements: Vec<Value>, total: u64, out: &mut dyn Output) {
        self.visit(out);
        // As many as LRANGE can name.
        let total = total.min(i64::MAX as u64);
        let place = |index: i64| match index {
            0.. => index as i128,
            _ => total as i128 + index as i128,
        };
        let begin = || Reading {
            at: place(self.start).max(0) as u64,
            stop: (place(self.stop) + 1).max(0) as u64,
            total,
            here: Vec::new().into_iter(),
        };
        let mut reading = self.reading.take().unwrap_or_else(begin);
        // Without an element the list has become shorter.
        reading.total = if elements.is_empty() { 0 } else { total };
        reading.here = elements.into_iter();
        self.reading = Some(reading);
    }

    pub fn want(&self, row: &Row, is_first: bool) -> Option<Want> {
        let place = row.item.place.clone();
        let part = |count: u64| count.clamp(1, LIST_ELEMENTS.into()) as u32;
        match &self.reading {
            Some(reading) if is_first => {
                let left = reading.end().saturating_sub(reading.at);
                let is_needed = reading.here.as_slice().is_empty() && left > 0;
                let from = i64::try_from(reading.at).ok()?;
                is_needed.then_some(Want::List { place, from, count: part(left) })
            }
            _ => {
                let is_known = (self.start < 0) == (self.stop < 0);
                let range = self.stop.saturating_sub(self.start).saturating_add(1).max(0);
                let count = part(if is_known { range as u64 } else { u64::MAX });
                Some(Want::List { place, from: self.start, count })
            }
        }
    }
}

impl Reading {
    /// The element behind the last one to take.
    fn end(&self) -> u64 {
        self.stop.min(self.total)
    }

    fn next(&mut self) -> Option<(u64, Value)> {
        let at = self.at;
        let value = if at < self.end() { self.here.next() } else { None }?;
        self.at += 1;
        Some((at, value))
    }
}

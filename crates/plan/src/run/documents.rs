//! Documents of a collection, some at a time.

use super::row::{Content, Item, Row, refusal};
use super::rows::{Fetch, Next, Output, Taken};
use crate::limits::DOCUMENTS_AT_ONCE;
use crate::outcome::Explain;
use crate::plan::{Bytes, Find};
use crate::want::{Given, Value, Want};

/// Each answer is a visit of the collection: one may have no documents, and more may follow.
fn visit() -> Explain {
    Explain { lists: 1, ..Explain::default() }
}

/// Takes the documents of each row's collection that match a filter.
#[derive(Debug)]
pub(super) struct Documents {
    of: Find,
    /// The collection of the first waiting row, once some of it was read.
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    /// What the search goes on with behind the documents that are here; `None`: they are the last.
    next: Option<Bytes>,
    /// Documents that are still to be taken.
    left: u64,
    here: std::vec::IntoIter<Vec<(Bytes, Value)>>,
}

impl Documents {
    /// Takes these documents.
    pub const fn new(of: Find) -> Self {
        Self { of, reading: None }
    }

    pub fn take(&mut self, row: Row, fetch: &mut Fetch, out: &mut dyn Output) -> Taken {
        match std::mem::take(fetch) {
            Fetch::Here(Given::Documents { documents, next }) => {
                out.charge(&visit());
                let left = self.reading.take().map_or(self.of.count, |reading| reading.left);
                self.reading = Some(Reading { next, left, here: documents.into_iter() });
            }
            Fetch::Here(other) => {
                out.charge(&visit());
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
            let Some(fields) = reading.here.next() else {
                if reading.next.is_some() {
                    break;
                }
                return Taken::Done;
            };
            moved = true;
            reading.left -= 1;
            hand_on(&row, fields, out);
        }
        self.reading = Some(reading);
        Taken::Back { row, moved }
    }

    pub fn want(&self, row: &Row, is_first: bool) -> Option<Want> {
        let (count, next) = match &self.reading {
            Some(reading) if is_first => {
                let is_needed = reading.here.as_slice().is_empty() && reading.left > 0;
                (reading.left, Some(reading.next.clone().filter(|_| is_needed)?))
            }
            _ => (self.of.count, None),
        };
        let (place, filter) = (row.item.place.clone(), self.of.filter.clone());
        let count = count.clamp(1, DOCUMENTS_AT_ONCE.into()) as u32;
        Some(Want::Documents { place, filter, count, next })
    }
}

/// Hands on a row whose item is a document.
fn hand_on(row: &Row, fields: Vec<(Bytes, Value)>, out: &mut dyn Output) {
    out.charge(&Explain { elements: 1, ..Explain::default() });
    let content = Content::of(Given::Hash(fields)).ok().map(Into::into);
    let place = row.item.place.clone();
    out.push(Next::Row(row.moved(Item { place, content })));
}

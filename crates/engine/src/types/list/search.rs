//! Elements of lists: one by its index, and those that equal a value.

use super::change::index_in;
use super::entries::entry_bytes;
use super::held::{Held, Lists, packed_of};
use super::read::Reading;
use crate::store::Store;
use remora_arena::Journal;
use remora_layout::chain::{Entry, TextBuffer, encoded};
use remora_layout::packed::Field;
use remora_protocol::Reply;
use remora_protocol::list::Search;
use remora_protocol::message::Status;
use std::borrow::Cow;

impl Lists {
    pub(super) fn index<'s, J: Journal>(
        &'s mut self,
        store: &'s Store<J>,
        held: Option<Held>,
        index: i64,
    ) -> Reply<'s> {
        let Some(held) = held else { return Reply::status(Status::NotFound) };
        let index = index_in(self.length(store, held), index);
        let whole = match held {
            Held::Whole(found) => packed_of(store, found),
            Held::Chain(_) => Cow::Borrowed(&[][..]),
        };
        let entry = index.and_then(|index| match held {
            Held::Whole(_) => encoded(&whole).nth(index as usize),
            Held::Chain(found) => self.listed(found.slot.slot).chain.entry(&store.owner, index),
        });
        let Some((entry, _)) = entry.and_then(Entry::split) else {
            return Reply::status(Status::NotFound);
        };
        let mut buffer = TextBuffer::default();
        self.reply.clear();
        let Field { value, is_link } = entry.field(&mut buffer);
        self.reply.extend_from_slice(value);
        Reply { value: Some(&self.reply), ..Reply::number(is_link.into()) }
    }

    /// Looks at all elements, from the first one on or from the last one, as long as `each` says.
    pub(super) fn visit<J: Journal>(
        &self,
        store: &Store<J>,
        held: Held,
        is_reverse: bool,
        mut each: impl FnMut(u64, &[u8]) -> bool,
    ) {
        let mut chunk = |first: u64, bytes: &[u8]| match is_reverse {
            false => {
                let mut all = encoded(bytes).enumerate();
                all.all(|(number, entry)| each(first + number as u64, entry))
            }
            true => {
                let all: Vec<&[u8]> = encoded(bytes).collect();
                let mut all = all.into_iter().enumerate().rev();
                all.all(|(number, entry)| each(first + number as u64, entry))
            }
        };
        match held {
            Held::Whole(found) => {
                chunk(0, &packed_of(store, found));
            }
            Held::Chain(found) => {
                let chain = &self.listed(found.slot.slot).chain;
                let directory = chain.directory();
                let mut first = if is_reverse { chain.length() } else { 0 };
                let mut at = if is_reverse { directory.last() } else { directory.first() };
                while let Some(here) = at {
                    let count = u64::from(directory.get(here).entries);
                    if is_reverse {
                        first -= count;
                    }
                    if !chunk(first, chain.entries(&store.owner, here)) {
                        return;
                    }
                    if !is_reverse {
                        first += count;
                    }
                    at = if is_reverse { directory.previous(here) } else { directory.next(here) };
                }
            }
        }
    }

    /// Begins LPOS.
    pub(super) fn begin_search<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        value: &[u8],
        how: Search,
    ) -> Reading {
        let is_reverse = how.rank < 0;
        let length = held.map_or(0, |held| self.length(store, held));
        let content = self.content(store, held, (0, length), is_reverse);
        Reading::search(content, length, entry_bytes(value), how)
    }
}

//! Elements that are links: their hints.

use super::held::{Held, Lists, packed_of};
use crate::store::Store;
use crate::types::object::On;
use remora_arena::{Journal, kind_of, set_hint};
use remora_layout::chain::{Entry, begins_with_link, encoded};
use remora_layout::kind::Kind;
use remora_layout::link::{self, MAX_LINKS};
use remora_layout::record::RECORD_HEADER_BYTES;
use remora_protocol::Reply;

/// A record's kind and value for entries of which some are links, all without hints.
pub(super) fn with_hints<J: Journal>(
    store: &Store<J>,
    on: On<'_>,
    entries: &[u8],
) -> Option<(Kind, Vec<u8>)> {
    let links = encoded(entries).filter_map(|one| match Entry::split(one) {
        Some((Entry::Link { key, .. }, _)) => Some(store.hint_of(on.hash.database(), key)),
        _ => None,
    });
    let hints: Vec<u64> = links.take(MAX_LINKS + 1).collect();
    // No command writes more links than that; a record that came with more has no hints.
    let mut value = Vec::new();
    (1..=MAX_LINKS).contains(&hints.len()).then(|| {
        link::make(&mut value, RECORD_HEADER_BYTES + on.key.len(), entries, &hints);
        (Kind::LIST.whole().linked(), value)
    })
}

impl Lists {
    /// Mends the hint of a link, if the element of this index is one to that key.
    pub(super) fn mend<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        index: u64,
        target: &[u8],
    ) -> Reply<'static> {
        let Some(held) = held.filter(|_| store.may_mend(on.now)) else { return Reply::number(0) };
        if let Held::Whole(found) = held
            && !kind_of(&store.owner, found.slot.slot).has_links()
        {
            // Restored with more links than one value has room for.
            return Reply::number(0);
        }
        let whole = match held {
            Held::Whole(found) => packed_of(store, found).into_owned(),
            Held::Chain(_) => Vec::new(),
        };
        let entry = match held {
            Held::Whole(_) => encoded(&whole).nth(index as usize),
            Held::Chain(found) => self.listed(found.slot.slot).chain.entry(&store.owner, index),
        };
        let hint = match entry.and_then(Entry::split) {
            Some((Entry::Link { key, hint }, _)) if key == target => hint,
            _ => return Reply::number(0),
        };
        let Some(new) = store.mended(on.hash.database(), target, hint) else {
            return Reply::number(0);
        };
        match held {
            Held::Whole(found) => {
                let before = encoded(&whole).take(index as usize);
                let number = before.filter(|entry| begins_with_link(entry)).count();
                set_hint(&mut store.owner, found.slot.slot, number, new);
            }
            Held::Chain(found) => {
                let chain = &self.listed(found.slot.slot).chain;
                chain.set_hint(&mut store.owner, index, new);
            }
        }
        Reply::number(1)
    }
}

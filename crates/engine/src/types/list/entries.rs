//! Entries of elements, which may be links.

use crate::store::Store;
use crate::types::object::On;
use remora_arena::Journal;
use remora_layout::chain::{Entry, begins_with_link};
use remora_layout::packed::Field;

/// The entry of a text.
pub(super) fn entry_bytes(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Entry::of(text).push(&mut bytes);
    bytes
}

/// The entry of an element; of a link with the hint that this shard knows.
pub(super) fn entry_for<'a, J: Journal>(
    store: &Store<J>,
    on: On<'_>,
    Field { value, is_link }: Field<'a>,
) -> Entry<'a> {
    match is_link {
        true => Entry::Link { key: value, hint: store.hint_of(on.hash.database(), value) },
        false => Entry::of(value),
    }
}

/// Whether an encoded entry is that of a text, or a link to that key.
#[inline]
pub(super) fn is_of(entry: &[u8], text: &[u8]) -> bool {
    entry == text
        || begins_with_link(entry)
            && Entry::split(entry)
                .zip(Entry::split(text))
                .is_some_and(|((entry, _), (text, _))| entry.has_text(&text))
}

//! The state of a collection's root record, and the entries of its indexes.
//!
//! ```text
//!  state of the root   B+tree header | version of the indexes 8 | 0 8 | table of parts
//!  entry of an index   encoded values, the first 510 bytes | encoded _id | bytes of the _id 2
//! ```
//! The parts are documents: a part's name is the encoded `_id`, its value the BSON. The B+tree has the encoded
//! `_id`s of all of them, with empty values. The header of each further index lies in the state of a record
//! of its own, which stays where it is while the index lives. No key leads to that record, so it is pending
//! until it is dead.
//!
//! The version grows before an index can be read that was made or has changed its form: a document is the first
//! one with several values in a field. A client that knows the indexes of one version reads it behind their
//! nodes, and asks what the indexes are if it is another one.

use crate::btree::ORDERED_ROOT_BYTES;
use crate::limits::{MAX_INDEX_VALUE_BYTES, SLOT_UNIT_BYTES, WORD_BYTES};

/// Where the version of the indexes stands in the state; the B+tree's header begins with the state.
pub const COLLECTION_VERSION_AT: usize = ORDERED_ROOT_BYTES.next_multiple_of(WORD_BYTES);
/// Where the table of parts begins in the state.
pub const COLLECTION_PARTS_AT: usize =
    (COLLECTION_VERSION_AT + WORD_BYTES).next_multiple_of(SLOT_UNIT_BYTES);

/// The encoded values as an entry has them.
pub fn cut_values(values: &[u8]) -> &[u8] {
    &values[..values.len().min(MAX_INDEX_VALUE_BYTES)]
}

/// The values of an entry, perhaps cut, and the encoded `_id` of its document; `None` if it is no entry.
pub fn split_entry(entry: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, length) = entry.split_last_chunk()?;
    rest.split_at_checked(rest.len().checked_sub(u16::from_be_bytes(*length).into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_split_and_other_bytes_are_none() {
        assert_eq!(split_entry(b"valueid\0\x02"), Some((&b"value"[..], &b"id"[..])));
        assert_eq!(split_entry(b"id\0\x02"), Some((&b""[..], &b"id"[..])));
        assert_eq!(split_entry(b"i\0\x02"), None);
        assert_eq!(split_entry(b"\x02"), None);
        assert_eq!(split_entry(b""), None);
        assert_eq!(cut_values(&[1; 600]).len(), MAX_INDEX_VALUE_BYTES);
        assert_eq!(cut_values(&[1; 6]).len(), 6);
    }
}

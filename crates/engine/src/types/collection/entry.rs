//! The keys of the B+trees: encoded `_id`s, and the entries of indexes.
//!
//! ```text
//!  tree of _ids   the encoded _id
//!  index          encoded values, the first 510 bytes | encoded _id | bytes of the _id 2
//! ```
//! Invariant: no entry of an index is there twice, and each says which document it is of. An encoding is no
//! prefix of another one, so entries are in the order of their values, but for those whose values are cut: these
//! are in the order of their first bytes. A search takes all that may be meant, and looks at the documents.

use super::failure::{Failure, code};
use bson::raw::RawDocument;
use remora_document::encode_id;
use remora_layout::btree::{Value, ValueKind};
pub(super) use remora_layout::collection::cut_values as cut;
use remora_layout::collection::split_entry;
use remora_layout::limits::MAX_INDEX_VALUE_BYTES;

/// The name of the field that each document has.
pub(super) const ID: &str = "_id";
/// The name of its index.
pub(super) const ID_INDEX: &str = "_id_";
/// What entries have beside them.
pub(super) const NOTHING: Value<'static> = Value { kind: ValueKind::Bytes, bytes: &[] };
/// Bytes at the end of an entry.
const LENGTH_BYTES: usize = 2;

/// Whether the values of an entry may be cut.
pub(super) fn may_be_cut(values: &[u8]) -> bool {
    values.len() >= MAX_INDEX_VALUE_BYTES
}

/// The entry of a document with these encoded values.
pub(super) fn entry(values: &[u8], id: &[u8]) -> Vec<u8> {
    let values = cut(values);
    let mut entry = Vec::with_capacity(values.len() + id.len() + LENGTH_BYTES);
    entry.extend_from_slice(values);
    entry.extend_from_slice(id);
    entry.extend_from_slice(&(id.len() as u16).to_be_bytes());
    entry
}

/// The values of an entry, perhaps cut, and the encoded `_id` of its document.
pub(super) fn split(entry: &[u8]) -> (&[u8], &[u8]) {
    split_entry(entry).expect("an entry ends with a length")
}

/// The encoded `_id` of a document.
///
/// # Errors
/// It has none, or one that MongoDB does not take, or a longer one than names of records and entries have room for.
pub(super) fn id_of(document: &RawDocument) -> Result<Vec<u8>, Failure> {
    let value = document.get(ID).ok().flatten();
    let Some(value) = value else {
        return Err(Failure::new(code::INVALID_ID_FIELD, "The document has no '_id' field"));
    };
    Ok(encode_id(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{RawDocumentBuf, oid::ObjectId, rawdoc};
    use remora_layout::limits::{MAX_DOCUMENT_ID_BYTES, MAX_ORDERED_KEY_BYTES};

    #[test]
    fn an_entry_says_which_document_it_is_of() {
        for values in [0, 1, 509, 510, 511, 5000] {
            let values = vec![7; values];
            let id = id_of(&rawdoc! { "_id": ObjectId::from_bytes([9; 12]) }).unwrap();
            assert_eq!(split(&entry(&values, &id)), (cut(&values), &id[..]));
        }
        let longest = entry(&[1; 600], &[2; MAX_DOCUMENT_ID_BYTES]);
        assert_eq!(longest.len(), MAX_ORDERED_KEY_BYTES);
    }

    #[test]
    fn an_id_has_a_type_and_a_length() {
        let code = |document: RawDocumentBuf| id_of(&document).map_err(|failure| failure.code);
        assert_eq!(code(rawdoc! { "a": 1 }), Err(53));
        assert_eq!(code(rawdoc! { "_id": [1] }), Err(53));
        assert_eq!(code(rawdoc! { "_id": { "$a": 1 } }), Err(52));
        assert_eq!(code(rawdoc! { "_id": { "a": 1, "$b": 1 } }), Err(52));
        assert!(code(rawdoc! { "_id": { "a$": 1 } }).is_ok());
        assert!(code(rawdoc! { "_id": "a".repeat(509) }).is_ok());
        assert_eq!(code(rawdoc! { "_id": "a".repeat(510) }), Err(17280));
    }
}

//! Operations on collections of documents.
//!
//! Documents, and requests that are documents, are BSON. A value here is only as long as it says it is: the
//! engine checks what is in it, once.

use crate::items::Items;
use crate::message::Status;
use crate::types::operation::{Encoded, Operation};
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_DOCUMENT_BYTES, MAX_DOCUMENT_REQUEST_BYTES, MAX_INDEX_NAME_BYTES};

/// Bytes of the smallest document: its length, and the zero byte at its end.
const MIN_DOCUMENT_BYTES: usize = 5;

/// One request about a collection. A key that holds something else is `WrongType`; one that holds nothing
/// is as an empty collection.
///
/// What MongoDB refuses with a code is `Refused`: the reply's number is the code, its value the text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CollectionCommand<'a> {
    /// Makes an empty collection with these options, a document; `NotDone` if there is one.
    Create {
        /// See above.
        options: &'a [u8],
    },
    /// Gives a collection other options, a document; `NotFound` without one.
    SetOptions {
        /// See above.
        options: &'a [u8],
    },
    /// Adds documents, each with an `_id`. A collection that is not there is made. `number` is that of those
    /// that were added; the value is a list of the failures, documents with `index`, `code`, `errmsg` and
    /// perhaps more: none is added behind the first one if they are `ordered`.
    Insert {
        /// The documents.
        documents: Items<'a>,
        /// See above.
        ordered: bool,
    },
    /// Adds documents, or replaces those with the same `_id`, without any check but that of the encoding: what
    /// the log and backups have. A collection that is not there is made.
    Put {
        /// The documents.
        documents: Items<'a>,
    },
    /// Removes documents, by their encoded `_id`s; `number` is that of those that were there.
    Remove {
        /// The encoded `_id`s.
        ids: Items<'a>,
    },
    /// Changes or removes documents that match a filter: some of them in one step. The request is a document:
    /// `q` the filter; `u` the update, a document or a pipeline, or nothing to remove; `multi`;
    /// `upsert`, whether a document is made if none matches, and `_id`, which it gets if nothing else says one; `arrayFilters`;
    /// `let`; `hint`; `give`, `"before"` or `"after"`, if the document is to be in the reply; `at`, where the
    /// last step ended.
    ///
    /// `number` is that of the documents that matched. The value is a document: `modified`; `upserted`, an
    /// `_id`; `document`; `at`, if there is more to be looked at; `error` with `code` and `errmsg`, behind
    /// which nothing was changed; `keys` and `documents`, how many were examined.
    Write {
        /// See above.
        request: &'a [u8],
    },
    /// Documents that match a filter: some of them. The request is a document: `filter`; `hint`; `sort`, an
    /// order that is wanted; `limit`, how many documents this step may give; `count`, true if only their number is wanted; `at`, where the last step
    /// ended; `keys`, paths, if no other fields are wanted; `explain`.
    ///
    /// `number` is that of the documents that were found. The value is a list: a document with `at`, if there may be more;
    /// `index`, the name of the index, or nothing; `sorted`, whether they come in the wanted order; `keys` and
    /// `documents`, how many were examined; `plans`, the best one first, if they are to be explained; and then the
    /// documents.
    Find {
        /// See above.
        request: &'a [u8],
    },
    /// Makes an index: some of it in one step. The request is a document: `spec`, MongoDB's description of the index
    /// with `key` and `name`; `at`, where the last step ended. A collection that is not there is made.
    ///
    /// The value is a document with `at` while there is more; `number` is 1 once it is made, and 0 if there was one.
    CreateIndex {
        /// See above.
        request: &'a [u8],
    },
    /// Removes an index; `NotFound` without one.
    DropIndex {
        /// Its name.
        name: &'a [u8],
    },
    /// What the collection is: a document with `options`, `indexes`, their descriptions, `count`, `size`, the bytes of all
    /// documents, `storageSize` and `indexSizes`. `NotFound` without one.
    Describe,
    /// What a client needs to read the indexes. `number` is their version
    /// ([`remora_layout::collection`]). The value is a document with `indexes`, those that searches may use, that of
    /// the `_id` first: each a document with its `spec`, `multikey`, the fields that had several values by their
    /// bits, and where its tree lies: `record`, the slot of the record that has the header, `at`, that of the header,
    /// and `generation`. The first one is that of the collection's root record. `NotFound` without a collection.
    Indexes,
    /// Documents that match a filter, as plans take them: some of them. `number` is that of the documents. The value
    /// is a list ([`split_rows`]): the place where the next step begins, empty at the end, and of each document its
    /// fields: names and texts, as a list. The text of a string is the string, that of another value is JSON.
    /// `NotFound` without a collection.
    Rows {
        /// The filter, as Extended JSON.
        filter: &'a [u8],
        /// Where the last step ended; empty at first.
        at: &'a [u8],
        /// So many at most.
        count: u32,
    },
}

/// The place where the next step begins, empty at the end, and the fields of the documents, of the value of a
/// reply to [`CollectionCommand::Rows`].
pub fn split_rows(value: &[u8]) -> Option<(&[u8], impl Iterator<Item = Items<'_>>)> {
    let mut items = Items::parse(value)?.iter();
    let next = items.next()??;
    Some((next, items.flatten().filter_map(Items::parse)))
}

/// Numbers of the operations.
mod op {
    pub const CREATE: u8 = 0;
    pub const SET_OPTIONS: u8 = 1;
    pub const INSERT: u8 = 2;
    pub const PUT: u8 = 3;
    pub const REMOVE: u8 = 4;
    pub const WRITE: u8 = 5;
    pub const FIND: u8 = 6;
    pub const CREATE_INDEX: u8 = 7;
    pub const DROP_INDEX: u8 = 8;
    pub const DESCRIBE: u8 = 9;
    pub const INDEXES: u8 = 10;
    pub const ROWS: u8 = 11;
}

/// Flag of an insertion: nothing is added behind a failure.
const ORDERED: u8 = 1;

/// Bytes that are as long as the document that they begin with, and end as one.
fn document(bytes: &[u8]) -> Result<&[u8], Status> {
    bounded(bytes, MAX_DOCUMENT_BYTES)
}

/// The same, of a request, which may have a document of the longest kind in it.
fn request(bytes: &[u8]) -> Result<&[u8], Status> {
    bounded(bytes, MAX_DOCUMENT_REQUEST_BYTES)
}

fn bounded(bytes: &[u8], most: usize) -> Result<&[u8], Status> {
    let length = bytes.first_chunk().map(|length| i32::from_le_bytes(*length));
    let is_one = bytes.len() >= MIN_DOCUMENT_BYTES
        && length == i32::try_from(bytes.len()).ok()
        && bytes.ends_with(&[0]);
    match is_one {
        true if bytes.len() > most => Err(Status::TooLarge),
        true => Ok(bytes),
        false => Err(Status::Malformed),
    }
}

fn documents(list: &[u8]) -> Result<Items<'_>, Status> {
    let items = some(list)?;
    items.iter().flatten().try_for_each(|item| document(item).map(drop))?;
    Ok(items)
}

/// Items that are all there, at least one.
fn some(list: &[u8]) -> Result<Items<'_>, Status> {
    let items = Items::parse(list).ok_or(Status::Malformed)?;
    let are_plain = items.fields().all(|item| item.is_some_and(|item| !item.is_link));
    if are_plain && !list.is_empty() { Ok(items) } else { Err(Status::Malformed) }
}

impl<'a> Operation<'a> for CollectionCommand<'a> {
    const KIND: Kind = Kind::COLLECTION;
    const COUNT: u8 = op::ROWS + 1;

    fn decode(from: Encoded<'a>) -> Result<Self, Status> {
        let Encoded { op, flags, argument, value } = from;
        let known = if op == op::INSERT { ORDERED } else { 0 };
        let uses_value = !matches!(op, op::DESCRIBE | op::INDEXES);
        let has_argument = argument != 0 && op != op::ROWS;
        if flags & !known != 0 || has_argument || value.is_empty() == uses_value {
            return Err(Status::Malformed);
        }
        Ok(match op {
            op::CREATE => Self::Create { options: document(value)? },
            op::SET_OPTIONS => Self::SetOptions { options: document(value)? },
            op::INSERT => {
                Self::Insert { documents: documents(value)?, ordered: flags & ORDERED != 0 }
            }
            op::PUT => Self::Put { documents: documents(value)? },
            op::REMOVE => Self::Remove { ids: some(value)? },
            op::WRITE => Self::Write { request: request(value)? },
            op::FIND => Self::Find { request: request(value)? },
            op::CREATE_INDEX => Self::CreateIndex { request: request(value)? },
            op::DROP_INDEX if value.len() > MAX_INDEX_NAME_BYTES => return Err(Status::TooLarge),
            op::DROP_INDEX => Self::DropIndex { name: value },
            op::DESCRIBE => Self::Describe,
            op::INDEXES => Self::Indexes,
            op::ROWS => {
                let mut parts = some(value)?.iter().flatten();
                let (Some(filter), Some(at), None) = (parts.next(), parts.next(), parts.next())
                else {
                    return Err(Status::Malformed);
                };
                let count = u32::try_from(argument).ok().filter(|count| *count > 0);
                Self::Rows { filter, at, count: count.ok_or(Status::Malformed)? }
            }
            _ => return Err(Status::Malformed),
        })
    }

    fn encode<'s>(&'s self, scratch: &'s mut Vec<u8>) -> Encoded<'s> {
        if let Self::Rows { filter, at, count } = *self {
            scratch.clear();
            Items::push(scratch, filter);
            Items::push(scratch, at);
            return Encoded { op: op::ROWS, flags: 0, argument: count.into(), value: scratch };
        }
        let (op, flags, value): (u8, u8, &[u8]) = match *self {
            Self::Create { options } => (op::CREATE, 0, options),
            Self::SetOptions { options } => (op::SET_OPTIONS, 0, options),
            Self::Insert { documents, ordered } => {
                (op::INSERT, if ordered { ORDERED } else { 0 }, documents.bytes())
            }
            Self::Put { documents } => (op::PUT, 0, documents.bytes()),
            Self::Remove { ids } => (op::REMOVE, 0, ids.bytes()),
            Self::Write { request } => (op::WRITE, 0, request),
            Self::Find { request } => (op::FIND, 0, request),
            Self::CreateIndex { request } => (op::CREATE_INDEX, 0, request),
            Self::DropIndex { name } => (op::DROP_INDEX, 0, name),
            Self::Describe => (op::DESCRIBE, 0, &[]),
            Self::Indexes => (op::INDEXES, 0, &[]),
            Self::Rows { .. } => unreachable!("it is encoded above"),
        };
        Encoded { op, flags, argument: 0, value }
    }

    fn command_name(&self) -> &'static str {
        match *self {
            Self::Create { .. } | Self::SetOptions { .. } => "doc.create",
            Self::Insert { .. } => "doc.insert",
            // It checks nothing, and replaces what is there.
            Self::Put { .. } => "restore",
            Self::Remove { .. } => "doc.del",
            Self::Write { .. } => "doc.update",
            Self::Find { .. } | Self::Indexes | Self::Rows { .. } => "doc.find",
            Self::CreateIndex { .. } | Self::DropIndex { .. } => "doc.index",
            Self::Describe => "doc.info",
        }
    }

    fn is_write(&self) -> bool {
        !matches!(self, Self::Find { .. } | Self::Describe | Self::Indexes | Self::Rows { .. })
    }

    fn grows(&self) -> bool {
        self.is_write() && !matches!(self, Self::Remove { .. } | Self::DropIndex { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

    #[test]
    fn what_is_encoded_comes_back_and_nothing_else_does() {
        let mut list = Vec::new();
        Items::push(&mut list, EMPTY);
        Items::push(&mut list, EMPTY);
        let items = Items::parse(&list).unwrap();
        let commands = [
            CollectionCommand::Create { options: EMPTY },
            CollectionCommand::SetOptions { options: EMPTY },
            CollectionCommand::Insert { documents: items, ordered: true },
            CollectionCommand::Insert { documents: items, ordered: false },
            CollectionCommand::Put { documents: items },
            CollectionCommand::Remove { ids: items },
            CollectionCommand::Write { request: EMPTY },
            CollectionCommand::Find { request: EMPTY },
            CollectionCommand::CreateIndex { request: EMPTY },
            CollectionCommand::DropIndex { name: b"a_1" },
            CollectionCommand::Describe,
            CollectionCommand::Indexes,
            CollectionCommand::Rows { filter: b"{}", at: b"", count: 1 },
            CollectionCommand::Rows { filter: b"{}", at: b"there", count: u32::MAX },
        ];
        for command in commands {
            let mut scratch = Vec::new();
            let encoded = command.encode(&mut scratch);
            assert_eq!(CollectionCommand::decode(encoded), Ok(command));
            for flags in 0..=u8::MAX {
                if let Ok(other) = CollectionCommand::decode(Encoded { flags, ..encoded }) {
                    let mut scratch = Vec::new();
                    assert_eq!(other.encode(&mut scratch).flags, flags, "{command:?}");
                }
            }
            if !matches!(command, CollectionCommand::Rows { .. }) {
                assert!(CollectionCommand::decode(Encoded { argument: 1, ..encoded }).is_err());
            }
        }
    }

    #[test]
    fn bytes_that_are_no_document_are_refused() {
        let create = |value| {
            CollectionCommand::decode(Encoded { op: op::CREATE, flags: 0, argument: 0, value })
        };
        for bytes in
            [&b""[..], &[0; 5], &[5, 0, 0, 0], &[5, 0, 0, 0, 1], &[6, 0, 0, 0, 0], &[255; 9]]
        {
            assert_eq!(create(bytes), Err(Status::Malformed), "{bytes:?}");
        }
        let mut long = (MAX_DOCUMENT_BYTES as i32 + 1).to_le_bytes().to_vec();
        long.resize(MAX_DOCUMENT_BYTES + 1, 0);
        assert_eq!(create(&long), Err(Status::TooLarge));
        let is_insert = |value: &[u8]| {
            let from = Encoded { op: op::INSERT, flags: 0, argument: 0, value };
            CollectionCommand::decode(from).is_ok()
        };
        let mut list = Vec::new();
        Items::push(&mut list, EMPTY);
        assert!(is_insert(&list));
        Items::push_none(&mut list);
        assert!(!is_insert(&list));
        let name = [b'a'; MAX_INDEX_NAME_BYTES + 1];
        let long = Encoded { op: op::DROP_INDEX, flags: 0, argument: 0, value: &name };
        assert_eq!(CollectionCommand::decode(long), Err(Status::TooLarge));
    }
}

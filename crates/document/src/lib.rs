//! BSON documents with the semantics of MongoDB: pure logic without I/O or clock.
//!
//! * [`compare`]: the order of BSON values.
//! * [`encode`], [`encode_compound`]: values as bytes that compare in the same order, for indexes.
//! * [`encode_id`]: the `_id` of a document as the name of its record.
//! * [`collection_key`]: the key of a collection.
//! * [`document_keys`]: the keys of a document in an index.
//! * [`Path`]: the values at a dotted path, through arrays.
//! * [`Filter`]: a filter document, parsed, and whether a document matches it.
//! * [`Near`]: the distance of a document from a place, by which `$near` sorts.
//! * [`Bounds`]: what a filter says of the keys of an index; [`IndexShape`]: the ranges of keys that come of it.
//! * [`Update`]: operators on fields, or a replacement, parsed, and applied to a document.
//! * [`SortKeys`], [`Sorter`]: sorting documents by some of their fields, in bounded memory.
//! * [`Projection`]: which fields of a document a result has, and which are computed.
//! * [`Pipeline`]: the stages of an aggregation, as a state machine that its caller drives.
//! * [`Variables`]: the time, a seed and the variables that expressions see.
//! * [`Distinct`]: the different values of a field.
//! * [`validate`]: whether a document is well formed and not too deep.
//!
//! The server and a client that reads memory directly use the same code, so they give the same
//! answers.
//!
//! No input makes a function panic, and every recursion is bounded. What expressions make of one
//! document takes a bounded number of steps and bytes. Functions other than [`validate`], [`encode`]
//! and those that parse expect valid documents. In a document that is not valid they read each level
//! up to its first malformed element, and nothing below the greatest depth.
//!
//! ```
//! use bson::rawdoc;
//! use remora_document::Filter;
//!
//! let filter = Filter::parse(&rawdoc! { "stock.size": { "$gte": 10 }, "tags": "red" })?;
//! let document = rawdoc! { "stock": [{ "size": 4 }, { "size": 12 }], "tags": ["red", "blue"] };
//! assert!(filter.matches(&document));
//! # Ok::<(), remora_document::DocumentError>(())
//! ```
#![forbid(unsafe_code)]

mod decimal;
mod distinct;
mod error;
mod expression;
mod filter;
mod geo;
mod id;
mod json;
mod key;
mod keys;
mod let_values;
mod namespace;
mod number;
mod order;
mod path;
mod pipeline;
mod projection;
mod ranges;
mod raw;
mod schema;
mod set_path;
mod sort;
mod sorter;
mod type_name;
mod update;
mod validate;
mod value;
mod variables;

pub use distinct::Distinct;
pub use error::DocumentError;
pub use filter::{Bounds, Filter, Interval, behind, intersection};
pub use geo::{GeoKind, GeoNear, Located, Near};
pub use id::encode_id;
pub use json::{from_json, from_json_value, to_canonical_json, to_json};
pub use key::{Direction, encode, encode_compound};
pub use keys::{DocumentKeys, IndexField, document_keys, encode_hash, key_values};
pub use namespace::{check_database, collection_key};
pub use order::{Class, compare, compare_documents};
pub use path::{Found, Leaves, Path, PathTooLong};
pub use pipeline::{Merge, Pipeline, Query, Sink, Source, Step, WhenMatched, WhenNotMatched};
pub use projection::Projection;
pub use ranges::{Fitted, IndexShape, KeyRange, has_all};
pub use sort::SortKeys;
pub use sorter::Sorter;
pub(crate) use type_name::type_name;
pub use update::{Update, UpdateContext};
pub use validate::{Invalid, validate};
pub use variables::Variables;

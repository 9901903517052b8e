//! Limits of BSON documents, and of filters, expressions and pipelines over them.

use super::MAX_ORDERED_KEY_BYTES;

/// Bytes of a document that is stored, as in MongoDB.
pub const MAX_DOCUMENT_BYTES: usize = 16 << 20;
/// Bytes of a request that is a document: room for the longest document and for what stands beside it.
pub const MAX_DOCUMENT_REQUEST_BYTES: usize = MAX_DOCUMENT_BYTES + (64 << 10);
/// Bytes of an index's name.
pub const MAX_INDEX_NAME_BYTES: usize = 128;
/// Indexes of a collection, that of `_id` among them, as in MongoDB: a change may touch them all.
pub const MAX_INDEXES: usize = 64;
/// Cursors that are open at a server: each may keep a batch.
pub const MAX_CURSORS: usize = 10_000;
/// Bytes that they keep together: sorted results, and what a batch had no room for.
pub const MAX_CURSOR_BYTES: usize = 512 << 20;
/// After so long without a request for it a cursor ends, as in MongoDB: 10 minutes.
pub const CURSOR_IDLE_MS: u64 = 600_000;
/// After so long without progress the unfinished result of `$out` goes away: 10 minutes, as long as a cursor
/// may wait.
pub const UNFINISHED_OUT_MS: u64 = CURSOR_IDLE_MS;
/// Documents of the first batch of a query that asks for no number, as in MongoDB.
pub const FIRST_BATCH_DOCUMENTS: usize = 101;
/// Bytes of documents in one step of an insertion: what a shard takes in at once.
pub const INSERT_STEP_BYTES: usize = 256 << 10;
/// Documents in one step of an insertion.
pub const INSERT_STEP_DOCUMENTS: usize = 128;
/// Levels of documents and arrays in a document, the document itself included, as in MongoDB. It
/// bounds the recursion of all code that reads documents.
pub const MAX_DOCUMENT_DEPTH: usize = 100;
/// Names in a dotted path: no document has more levels, and a set of positions is one 128-bit word.
pub const MAX_PATH_PARTS: usize = MAX_DOCUMENT_DEPTH;
/// Conditions of a filter: each reads a document once, so they are what one match may cost.
pub const MAX_FILTER_CONDITIONS: usize = 1024;
/// Regular expressions of a filter: each keeps a compiled program and a cache for each thread.
pub const MAX_FILTER_PATTERNS: usize = 64;
/// Heap bytes of a compiled regular expression, and of its cache: a match costs up to its size for
/// each byte of the text, so this is far below what the compiler allows.
pub const MAX_COMPILED_PATTERN_BYTES: usize = 256 << 10;
/// `$geoWithin` and `$geoIntersects` of one filter: each may compare [`MAX_EXPRESSION_STEPS`] points of a document.
pub const MAX_FILTER_REGIONS: usize = 8;
/// Bit positions of one bitwise operator: each is tested for each value of the field.
pub const MAX_FILTER_BITS: usize = 4096;
/// Fields that one update names: each is looked up in the document once.
pub const MAX_UPDATE_OPERATORS: usize = 1024;
/// Filters of array elements in one update: each is tried at each element.
pub const MAX_ARRAY_FILTERS: usize = 64;
/// Nulls that an update appends to an array to reach a position behind its end, as in MongoDB.
pub const MAX_ARRAY_BACKFILL: usize = 1_500_000;
/// Fields by which documents are sorted, as in MongoDB.
pub const MAX_SORT_KEYS: usize = 32;
/// Bytes of an encoded `_id`: it names a record, and each entry of an index ends with it.
pub const MAX_DOCUMENT_ID_BYTES: usize = 512;
/// Bytes of the encoded values in an entry of an index: longer ones are cut there. With the longest `_id` and its
/// length an entry is as long as a key of a B+tree may be.
pub const MAX_INDEX_VALUE_BYTES: usize = MAX_ORDERED_KEY_BYTES - MAX_DOCUMENT_ID_BYTES - 2;
/// Entries of a node of an index. A node has room for the longest keys in any case, and so for about so many of
/// the usual length.
pub const INDEX_FAN_OUT: usize = 128;
/// Fields of a compound index, as in MongoDB.
pub const MAX_INDEX_FIELDS: usize = 32;
/// Bytes of the description of an index, its partial filter among them.
pub const MAX_INDEX_SPEC_BYTES: usize = 64 << 10;
/// Entries that one document has in one index. A change of the document may touch all of them in one step of
/// the shard: about ten milliseconds. MongoDB's limit is ten times this.
pub const MAX_DOCUMENT_KEYS: usize = 10_000;
/// Bytes of these entries.
pub const MAX_DOCUMENT_KEYS_BYTES: usize = 4 << 20;
/// Ranges of an index that one search visits: as many values as `$in` usually has.
pub const MAX_INDEX_RANGES: usize = 1024;
/// Ranges whose keys are counted before an index is chosen; the others count as these do on average.
pub const COUNTED_INDEX_RANGES: usize = 16;
/// Keys that one step of a search examines: about a millisecond.
pub const SEARCH_STEP_KEYS: usize = 2048;
/// Documents that it examines, about as expensive.
pub const SEARCH_STEP_DOCUMENTS: usize = 512;
/// Bytes of documents that it examines, and so at most replies with, about: the last document may have more.
pub const SEARCH_STEP_BYTES: usize = 1 << 20;
/// Documents that one step of an update or a removal changes: each is a change of its own in the log.
pub const WRITE_STEP_DOCUMENTS: usize = 128;
/// Documents that become one change when they are inserted, and share one entry of the log. For each of them each
/// index takes a node beforehand, at worst.
pub const INSERT_GROUP_DOCUMENTS: usize = 16;
/// Bytes of these, about.
pub const INSERT_GROUP_BYTES: usize = 256 << 10;
/// Entries of a node of an R-tree of documents.
pub const PLACE_INDEX_CAPACITY: usize = 32;
/// Nodes of such a tree that are visited for some of its objects, about.
pub const PLACE_STEP_NODES: usize = 1024;
/// Documents that one ring of a search by distance is to have, about.
pub const NEAR_RING_DOCUMENTS: u64 = 128;
/// Documents that one step of building an index looks at.
pub const INDEX_STEP_DOCUMENTS: usize = 512;
/// Bytes of these, about.
pub const INDEX_STEP_BYTES: usize = 1 << 20;
/// Documents that have expired, and that one turn of a shard removes.
pub const EXPIRE_TURN_DOCUMENTS: usize = 32;
/// Indexes that one turn of a shard looks at for documents that have expired.
pub const EXPIRE_TURN_INDEXES: usize = 64;
/// Bytes of one value that an expression makes: it must fit into a document.
pub const MAX_EXPRESSION_BYTES: usize = MAX_DOCUMENT_BYTES;
/// Steps of the expressions of one document: each evaluates an operator, or handles up to 64 bytes; for a region of
/// a filter as many, of which each compares two points. So one
/// document keeps its server busy for less than a second.
pub const MAX_EXPRESSION_STEPS: u64 = 8 << 20;
/// Parts of the expressions of one projection or one stage: what one document must evaluate at least.
pub const MAX_EXPRESSION_PARTS: usize = 16 << 10;
/// Levels of an expression: each keeps less than 8 KiB on the stack, as a test with a small stack proves.
pub const MAX_EXPRESSION_DEPTH: usize = MAX_DOCUMENT_DEPTH;
/// Stages of a pipeline, as in MongoDB.
pub const MAX_PIPELINE_STAGES: usize = 1000;
/// Bytes that a stage keeps of the documents before it, as in MongoDB without files.
pub const MAX_STAGE_BYTES: usize = 100 << 20;
/// Pipelines inside each other, as in MongoDB.
pub const MAX_SUB_PIPELINES: usize = 20;
/// Pipelines of one `$facet`: each gets a copy of each document.
pub const MAX_FACETS: usize = 64;
/// Movements of documents from stage to stage in one step of a pipeline: a step takes about as long as
/// so many evaluations.
pub const MAX_STEP_MOVES: usize = 256;
/// Parts of a `$jsonSchema`: each is looked at for each value.
pub const MAX_SCHEMA_PARTS: usize = 1024;

const _: () = assert!(MAX_PATH_PARTS < u128::BITS as usize);
const _: () = assert!(MAX_INDEX_FIELDS <= u32::BITS as usize);

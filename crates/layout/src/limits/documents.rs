//! Limits of BSON documents, and of filters, expressions and pipelines over them.

/// Bytes of a document that is stored, as in MongoDB.
pub const MAX_DOCUMENT_BYTES: usize = 16 << 20;
/// Bytes of a request that is a document: room for the longest document and for what stands beside it.
pub const MAX_DOCUMENT_REQUEST_BYTES: usize = MAX_DOCUMENT_BYTES + (64 << 10);
/// Bytes of an index's name.
pub const MAX_INDEX_NAME_BYTES: usize = 128;
/// Indexes of a collection, that of `_id` among them, as in MongoDB: a change may touch them all.
pub const MAX_INDEXES: usize = 64;
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
/// Bytes of one value that an expression makes: it must fit into a document.
pub const MAX_EXPRESSION_BYTES: usize = MAX_DOCUMENT_BYTES;
/// Steps of the expressions of one document: each evaluates an operator, or handles up to 64 bytes. So one
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

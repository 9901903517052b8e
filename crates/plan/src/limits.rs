//! Bounds of plans and of their runs: without them one small question could ask for endless work or
//! memory.

use remora_layout::limits::{MAX_KEY_BYTES, MAX_ORDERED_KEY_BYTES};

/// Steps of a plan. A row passes each of them, and each holds up to [`ROWS_AHEAD`] rows.
pub const MAX_STEPS: usize = 32;
/// Steps of a plan that remember keys, ONCE and WALK: each may remember as many as the limit says.
pub const MAX_REMEMBERING_STEPS: usize = 4;
/// Keys that a plan starts from: all of them wait in its first step.
pub const MAX_START_KEYS: usize = 1024;
/// Conditions of a start: each is tested on every object that the search finds.
pub const MAX_CONDITIONS: usize = 16;
/// Fields of one GET, and so columns that one step adds to a row.
pub const MAX_GET_FIELDS: usize = 64;
/// Bytes of a field's name, and of a value to compare with: far more than names and numbers have.
pub const MAX_WORD_BYTES: usize = 4 << 10;
/// Bytes of a prefix of keys: with an object's id of the longest kind it fits a key.
pub const MAX_PREFIX_BYTES: usize = 1 << 10;
/// Bytes of a key, as everywhere.
pub const MAX_PLAN_KEY_BYTES: usize = MAX_KEY_BYTES;
/// Bytes of a bound of a range: as long as keys of ordered trees are.
pub const MAX_BOUND_BYTES: usize = MAX_ORDERED_KEY_BYTES;
/// Levels of a walk. In the graphs of people and pages 64 levels reach everything; a longer chain is
/// walked by several plans.
pub const MAX_DEPTH: u32 = 64;
/// Objects that a search for the nearest gives, after its conditions: as many as without a plan.
pub const MAX_NEAREST: u32 = remora_layout::limits::MAX_NEAREST as u32;
/// Distinct objects in a window. They are sorted before the first is used, so all of them are held.
pub const MAX_WINDOW_OBJECTS: usize = 1 << 16;

/// Visits of a run, if the plan does not say: some 50 ms of one shard's time.
pub const DEFAULT_VISITS: u64 = 100_000;
/// Most visits that a plan may ask for: a whole search of a graph of a million edges, ten times over.
pub const MAX_VISITS: u64 = 1 << 24;
/// Rows, if the plan does not say.
pub const DEFAULT_ROWS: u64 = 10_000;
/// Most rows that a plan may ask for: each takes some 100 bytes at least until the reply is sent.
pub const MAX_ROWS: u64 = 1 << 20;
/// Bytes of the result, if the plan does not say.
pub const DEFAULT_RESULT_BYTES: u64 = 4 << 20;
/// Most bytes of the result that a plan may ask for: one value may have as many.
pub const MAX_RESULT_BYTES: u64 = 64 << 20;
/// Keys that one step remembers, if the plan does not say.
pub const DEFAULT_REMEMBERED: u64 = 100_000;
/// Most keys that one step may remember: some 100 MB.
pub const MAX_REMEMBERED: u64 = 1 << 20;
/// Time of a run in ms, if the plan does not say: a caller waits for it.
pub const DEFAULT_TIME_MS: u64 = 1_000;
/// Longest time of a run in ms.
pub const MAX_TIME_MS: u64 = 60_000;

/// A remembered key counts once, and once more for each so many bytes: so the limit bounds memory,
/// whatever the keys' lengths.
pub const REMEMBERED_UNIT_BYTES: usize = 64;
/// Bytes that count for a row of the result, and for each of its columns, beside their texts.
pub const RESULT_PART_BYTES: u64 = 16;

/// Wants of one batch: READs of as many records fill a link, and a shard answers as many in one turn.
pub const BATCH_WANTS: usize = 64;
/// Visits that all wants of a batch may lead to; the last want may exceed it. It bounds the work
/// between two batches.
pub const BATCH_VISITS: usize = 4096;
/// Elements of one want for a list: a chunk of the paper's lists (Key-Value-Links 6.2, K5).
pub const LIST_ELEMENTS: u32 = 100;
/// Entries of one want for a range of an ordered tree: some leaves.
pub const RANGE_ENTRIES: u32 = 100;
/// Documents of one want for documents, at most: a step of a shard's search.
pub const DOCUMENTS_AT_ONCE: u32 = 100;
/// Objects of one want for objects, at most.
pub const OBJECTS_AT_ONCE: u32 = 256;
/// Least rows or objects that a run wants at once where a step needs few: some of them may be dropped.
pub const LEAST_AHEAD: usize = 16;
/// Rows that wait in front of one step.
pub const ROWS_AHEAD: usize = 64;
/// A run that has visited so much more than its result counts visits for its first waiting row only.
pub const VISITS_AHEAD: u64 = 4 * BATCH_VISITS as u64;
/// A run whose waiting rows hold more bytes does the same.
pub const BYTES_AHEAD: usize = 4 << 20;

const _: () = assert!(LIST_ELEMENTS as usize <= BATCH_VISITS);
const _: () = assert!(RANGE_ENTRIES as usize <= BATCH_VISITS);
const _: () = assert!(DOCUMENTS_AT_ONCE as usize <= BATCH_VISITS);
const _: () = assert!(OBJECTS_AT_ONCE as usize <= BATCH_VISITS);
const _: () = assert!(BATCH_WANTS <= ROWS_AHEAD);
const _: () = assert!(MAX_PREFIX_BYTES + 512 <= MAX_PLAN_KEY_BYTES);

//! Plans: one question over many keys, as data, and the state machine that runs it.
//!
//! A [`Plan`] starts from keys, a list, or a search in a tree of places, and takes each row through its
//! steps: follow a link, take each element of a list or each entry of a range of an ordered tree, walk
//! breadth first, test, get fields. It has a
//! text ([`text`]), a byte form ([`bytes`]), and bounds ([`limits`]).
//!
//! A [`Run`] is a pure state machine: it does no I/O, keeps no time and draws no random numbers. It
//! names a batch of [`Want`]s, is given the answers, and ends with an [`Outcome`]. Its driver fetches
//! them: a client by READs or by asking, a server from its own memory and from other shards.
//!
//! ```text
//!              wants: a batch                    rows, and what they cost, in order
//!   driver  <-------------------  Run:  start --> step --> step --> ... --> outcome
//!           ------------------->        each with a queue of waiting rows
//!              given, any order
//! ```
//!
//! # What the answer promises
//!
//! * **Order.** The rows come in the order in which a reader takes the plan depth first: all rows of
//!   the first start before those of the second, and so on at each step; within a WALK breadth first.
//! * **The same on every path.** The rows, the limit that was reached and the counts of [`Explain`]
//!   follow from the plan and the answers alone: not from the order of the answers in a batch, and not
//!   from what was fetched ahead. Only [`Limit::Time`] and [`Explain::batches`] depend on the driver.
//! * **While data change.** A row sees an item as it was at one moment during the run, so the columns of
//!   one item belong together. There is no one moment of all items: the run may read a link before a
//!   change and its target after it, so a target may be gone, or newer than the item that led to it. Two
//!   rows that come to the same item may see it at two moments, and so may a WALK that goes on from an
//!   item and the row that it handed on. A list is as it was at one moment within each
//!   [`limits::LIST_ELEMENTS`] elements; if elements move between two such parts, the run may meet one
//!   twice or not at all. An object of a tree is met at most once; one that moves during the search may
//!   be missing.
//! * **Bounds.** Depth and steps are bounded by the plan, visits, rows, bytes, remembered keys and time by
//!   its [`Limits`]. A run that reaches one ends with the rows before it, and says which. Limits count what
//!   the rows need; a run that reads ahead has fetched [`limits::VISITS_AHEAD`] visits and one batch more at
//!   most, and the objects of its window.
//!
//! # Example
//!
//! ```
//! use remora_plan::{Column, Given, Run, Value, Want, text};
//!
//! let words: Vec<&[u8]> = "FROM KEYS 1 user:7 GET name FOLLOW boss GET name"
//!     .split(' ').map(str::as_bytes).collect();
//! let mut run = Run::new(text::parse(&words).unwrap().plan, 0, 0);
//! while run.outcome().is_none() {
//!     // A driver fetches the batch; here each item has a name, and links to a boss.
//!     for at in 0..run.wants().len() {
//!         let Want::Item { place, .. } = &run.wants()[at] else { unreachable!() };
//!         let boss = Value::Link { key: (*b"user:1").into(), hint: None };
//!         let name = Value::Plain(place.key.clone());
//!         run.give(at, Given::Hash(vec![((*b"name").into(), name), ((*b"boss").into(), boss)]));
//!     }
//! }
//! let expected = [b"user:7", b"user:1"].map(|name| Column::Text((*name).into()));
//! assert_eq!(run.outcome().unwrap().rows, [expected]);
//! ```

#![forbid(unsafe_code)]

pub mod bytes;
mod condition;
pub mod limits;
mod outcome;
mod outcome_bytes;
mod plan;
mod run;
pub mod text;
mod want;

pub use outcome::{Column, Explain, Limit, Outcome, Skipped};
pub use outcome_bytes::{OutcomeReader, OutcomeWriter};
pub use plan::{
    BadPlan, Bytes, Comparison, Condition, Find, KeyRange, Limits, Objects, Plan, Range, Start,
    Step, Test,
};
pub use run::Run;
pub use want::{Area, Fields, Given, LinkAt, LinkPlace, Object, Place, Value, Want};

//! The client: one [`Client`] for each process, one [`Session`] of it for each
//! thread, which reads the server's memory itself or asks by message, and
//! tells with every result which it did.
//!
//! All sessions of a [`Client`] share its connection. Over shared memory each has
//! rings of its own, over TCP and RDMA they share one ring pair for each shard.
//! There is no thread behind it; whoever waits at shared rings serves the others
//! meanwhile.
//!
//! What it keeps true:
//! * a value that was read counts only if the record passed every check and
//!   the reading right still held when the READ had completed;
//! * absence is only ever the owner's word;
//! * a session sees its own writes: it reads from a shard only while none of
//!   its earlier writes there is unanswered;
//! * a request that times out fails alone while heartbeats come; its late reply
//!   is dropped by its id;
//! * a pointer, a session's own or one that all clients of the machine share,
//!   is a hint: the record that it leads to proves itself.

#![forbid(unsafe_code)]

mod admission;
mod api;
mod ask;
mod at_ring;
mod batch;
mod choose;
mod choosing;
mod clock;
mod combine;
mod connection;
mod data_buffers;
mod error;
mod gather;
mod hand_over;
mod hash;
mod in_flight;
mod inbox;
mod large;
mod late;
mod pointer_cache;
mod pointer_file;
mod pointer_table;
// Not inside of it: `models` compiles that file too.
#[cfg(test)]
#[path = "pointer_table/tests.rs"]
mod pointer_table_tests;
mod pointers;
mod read;
mod reads;
mod right;
mod ring_set;
mod session;
mod strings;
mod sync;
mod trees;
mod wait;

pub use admission::{Admission, Coordination};
pub use api::*;
pub use choose::{Explanation, Policy, Predictor, Way, Why, last_heartbeat, mean_of_heartbeats};
pub use clock::Clock;
pub use connection::{Client, MakeLink, Parts};
pub use data_buffers::DataBufferCounts;
pub use error::{ConnectError, Error};
pub use hash::{HashEvents, OpenHash};
pub use pointer_cache::Entry as CachedPointer;
pub use pointer_table::SharedPointers;
pub use remora_geometry::{Refine, Shape, ShapeError};
pub use remora_index::rtree::{Object, Query};
pub use remora_layout::rect::Predicate;
pub use remora_layout::rect::{BadRect, Rect};
pub use remora_layout::tree::{TreeInfo, TreeKind};
pub use remora_protocol::Expiry;
pub use remora_protocol::tree::{Fields, ObjectId, PutObject};
pub use session::Session;
pub use trees::{
    Issue, OpenTree, Place, RefinedCount, RefinedFound, TreeEvents, TreeFound, TreeRead,
    TreeSettings,
};

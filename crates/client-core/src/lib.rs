//! The core of the client: a connection to a server, and sessions on it, which read the server's
//! memory themselves or ask by message. Each result says which route served it. Applications use
//! the crate `remora-client`, which is built on this one.
//!
//! All sessions of a [`Client`] share its connection. Over shared memory each session has rings of
//! its own; over TCP and RDMA all sessions share one ring pair for each shard. The client has no
//! thread of its own; a thread that waits at shared rings serves the others meanwhile.
//!
//! ```text
//!   session       operations by name; followed: what following a cluster needs of it
//!   read, batch, trees           what each of them does, by either route
//!   elements: hash, set, sorted  the same for objects with named elements
//!   btree: ordered, sorted       the same for B+trees
//!   links         follows links, one by one or many at once
//!   plans         runs plans by READs, or asks for them
//!   router        ask, or read?          directory   tables and pointers
//!   asker         requests in flight     choose      what the routes cost
//!   endpoint      one session's end: frames out, replies in, READs, clock, read lease
//!   connection    what the sessions of a process share: ring sets, lanes, inboxes
//! ```
//! Each layer imports only those below it.
//!
//! Invariants of this crate:
//! * a value that was read counts only if the record passed every check and the read lease still
//!   held when the READ had completed;
//! * only the owner can say that a key is absent;
//! * a session sees its own writes: it reads from a shard only while none of its earlier writes
//!   there is unanswered;
//! * a request that times out fails alone while heartbeats arrive; the client drops its late reply
//!   by its id;
//! * a pointer, a session's own or one that all clients of the machine share, is a hint: the client
//!   validates the record that it leads to.

#![forbid(unsafe_code)]

mod admission;
mod asker;
mod batch;
mod btree;
mod choose;
mod client;
mod clock;
mod collection;
mod combine;
mod connection;
mod core;
mod counts;
mod data_buffers;
mod directory;
mod elements;
mod endpoint;
mod error;
mod followed;
mod found;
mod gathered;
mod hash;
mod in_flight;
mod in_step;
mod inbox;
mod lane;
mod large;
mod links;
mod list;
mod machine_share;
#[cfg(test)]
mod models;
mod options;
mod ordered;
mod path;
mod plans;
mod pointer_cache;
mod pointer_file;
mod pointer_table;
// Not inside that file: the crate `models` compiles it too.
#[cfg(test)]
#[path = "pointer_table/tests.rs"]
mod pointer_table_tests;
mod read;
mod read_lease;
mod replicated;
mod ring_set;
mod router;
mod session;
mod set;
mod sorted;
mod subscriber;
mod sync;
mod synced;
mod trees;

pub use admission::{Admission, ConcurrencyLimit};
pub use btree::{BtreeView, CachePolicy, OrderedCache, OrderedEvents, SharedCache};
pub use choose::{Explanation, Policy, Predictor, Route, Why, last_heartbeat, mean_of_heartbeats};
pub use client::Client;
pub use clock::Clock;
pub use collection::{
    CollectionEvents, FindTurn, IndexPlace, IndexRead, IndexSearch, KeyBounds, OpenCollection,
    OpenIndex,
};
pub use connection::{MakeLink, Parts};
pub use counts::{Counts, SendCounts};
pub use data_buffers::DataBufferCounts;
pub use error::{ConnectError, Error};
pub use found::{Each, Got};
pub use hash::{HashEvents, OpenHash};
pub use in_flight::Ticket;
pub use links::{
    Chased, EachChased, FieldValue, HashContent, HashFields, Link, LinkAt, LinkPlace,
    MAX_STALE_LINKS, Target,
};
pub use list::{ListEvents, ListItems, ListTaken, OpenList};
pub use options::{Options, PointerCacheKind, SetOptions};
pub use ordered::{OpenOrdered, OrderedEntries, OrderedFound, OrderedGot, OrderedValue};
pub use path::{Path, ServedBy};
pub use plans::PlanRun;
pub use pointer_cache::Entry as CachedPointer;
pub use pointer_table::SharedPointers;
pub use remora_fabric::detect::Wanted;
pub use remora_fabric::verbs::{Mtu, Packets};
pub use remora_fabric::{Address, ClientTlsSettings, Credentials, Transport, Wake};
pub use remora_geometry::{Refine, Shape, ShapeError};
pub use remora_index::btree::FatRootLimits;
pub use remora_index::rtree::{Object, Query};
pub use remora_layout::btree::{ChildInfo, InnerNode, KeyForm, LevelInfo, NodeInfo, OrderedInfo};
pub use remora_layout::database::Database;
pub use remora_layout::node::NodeRef;
pub use remora_layout::rect::Predicate;
pub use remora_layout::rect::{BadRect, Rect};
pub use remora_layout::tree::{TreeInfo, TreeKind};
pub use remora_protocol::Expiry;
pub use remora_protocol::list::Side;
pub use remora_protocol::ordered::{OrderedHold, OrderedSettings};
pub use remora_protocol::tree::{Fields, ObjectId, PutObject};
pub use session::Session;
pub use set::{AllMembers, OpenSet};
pub use sorted::{OpenSorted, SortedFound, SortedMember, SortedScore};
pub use subscriber::Subscriber;
pub use synced::SyncPoint;
pub use trees::{
    Issue, OpenTree, RefinedCount, RefinedFound, TreeEvents, TreeFound, TreeObject, TreeRead,
    TreeSettings,
};

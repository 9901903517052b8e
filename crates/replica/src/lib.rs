//! A shard's log, shipped to replicas and applied there (HydraDB 5.2, H33 to H39; RDMA_Mongo 4.4).
//!
//! ```text
//!   primary's shard                              replica
//!     Log --- LogSender --- WRITEs ---> ring --- LogReceiver --- entries ---> its shards
//!                 ^                                   |
//!                 +---- acknowledgement, credit ------+
//! ```
//! Both ends are state machines: frames and acknowledgements in, frames and entries out. The
//! server, and worlds from a seed, move the bytes.
//!
//! Invariants of this crate:
//! * a replica takes the entries of a log in order, each once, and throws no intact one away. As
//!   printed, HydraDB's secondary discards what follows a failed entry (5.2, H36); an entry that
//!   was acknowledged by its WRITE would be lost then;
//! * a replica gives out no entry behind the commit position that the primary has sent;
//! * the primary keeps what a replica has not received, within a bound; behind that the replica is
//!   *lost* and begins anew.

#![forbid(unsafe_code)]

mod feed;
mod follow;
mod in_sync;
mod lag;
mod receive;
mod send;

pub use feed::Feed;
pub use follow::{FollowEvent, Follower, PrimaryFacts};
pub use in_sync::{InSyncSet, Membership, RecordedSet, Standing};
pub use lag::{FreshAt, Freshness, Mark};
pub use receive::{FeedError, LogReceiver, Received};
pub use send::{AskFor, LogSender, Urgency, Violation};

//! Connections of clients that speak some [`Protocol`]: bytes in, replies out, in the order
//! of the requests.
//!
//! The crate is independent of protocol and shard. A protocol parses requests and writes replies
//! ([`Protocol`]). An [`Executor`] executes requests through a [`ShardPort`]: at once in the
//! thread's own shard, or as jobs for the shards that own the keys. A later reply waits in the
//! connection's [`Responder`] until all replies before it are written.
//!
//! ```text
//!   connections     slots, turns, and which connection is served next
//!        |
//!   connection      one stream: what was read, parsed ahead, paused or given up
//!     |     \
//!     |   executor, port      what a request does, and the shards that it needs
//!     |     /
//!   responder       replies in order, what is in flight, what is unsent
//!        |
//!   pending, many_keys, in_flight, output, job, key_batch, counts
//!        |
//!   protocol        what a protocol is
//! ```
//!
//! Invariants:
//! * replies leave in the order of their requests, whatever the shards answer first;
//! * a turn of a connection is bounded in requests, keys and bytes, both ways;
//! * the memory for a client that sends too fast or reads too slowly is bounded and counted;
//! * a connection sees its own writes: a key is read past the owner only while nothing of
//!   the connection is in flight that could change it (`in_flight`).
//!
//! It does no I/O, reads no clock and draws no random numbers: streams and time are handed
//! in, so that a simulator runs the same code.

#![forbid(unsafe_code)]

mod ahead;
mod connection;
mod connections;
mod counts;
mod executor;
mod in_flight;
mod input;
mod job;
mod key_batch;
mod many_keys;
mod output;
mod pending;
mod port;
mod protocol;
mod responder;
mod stream;

pub use connection::Connection;
pub use connections::{Connections, READ_BYTES};
pub use counts::{ConnectionCounts, Counter};
pub use executor::{Executor, News};
pub use in_flight::{Question, What, group};
pub use job::{
    Job, Joint, JointOrder, JointStep, Order, OwnedReply, PARKED, PartAnswer, PartOrder, PlanLook,
    Token, WaitFor, Wanted,
};
pub use key_batch::{
    Each, KeyBatch, KeyCommand, KeyReplies, KeyReply, PartRequest, REPLY_HEAD_BYTES, WantedBytes,
};
pub use many_keys::{Answers, Jobs, ManyKeys};
pub use pending::Waiting;
pub use port::{Here, ShardPort};
pub use protocol::{
    Dialect, LongReply, Parsed, ParsedRequest, Protocol, ReplyForm, ShardAnswer, Skipped,
};
pub use responder::Responder;
pub use stream::ByteStream;

#[cfg(test)]
mod tests;

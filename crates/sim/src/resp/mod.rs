//! RESP in a world: the production connections, executor and jobs of one server
//! thread, between simulated streams of bytes and the world's shards, and
//! clients that send pipelines.
//!
//! The optimistic reads of that thread look at what each word held meanwhile:
//! it is suspended in the middle of each, and the shards go on.

mod client;
mod jobs;
mod moves;
mod replies;
mod requests;
mod stream;
mod thread;
mod tree_moves;

pub use client::RespClient;
pub use jobs::ShardJobs;
pub use moves::MOVED_KEYS;
pub(crate) use stream::lock;
pub use thread::{BesideMemory, Resp, SimHost};

use std::ops::RangeInclusive;

/// What a seed draws of it.
#[derive(Clone, Copy, Debug)]
pub struct RespSwarm {
    /// Clients.
    pub clients: u32,
    /// Most requests of a client under way.
    pub most_under_way: u64,
    /// Weights of what they ask; one for each [`requests::Kind`].
    pub weights: [u64; requests::Kind::ALL.len()],
    /// Longest time that bytes are under way, ns.
    pub most_ns: u64,
    /// Bytes that a stream holds for a client that does not read.
    pub stream_bytes: usize,
    /// How long a client waits for a reply before it gives its connection up, ns.
    pub patience_ns: u64,
    /// Longest time that an optimistic read of one piece lasts, ns.
    pub read_ns: u64,
}

impl RespSwarm {
    /// With a client that moves hashes or trees, and none that flushes them away.
    pub fn with_moves(mut self) -> Self {
        self.clients = self.clients.max(1);
        let kinds = requests::Kind::ALL.iter().zip(&mut self.weights);
        kinds.filter(|(kind, _)| **kind == requests::Kind::FlushAll).for_each(|(_, of)| *of = 0);
        self
    }

    /// A draw.
    pub fn of(draw: &mut impl FnMut(RangeInclusive<u64>) -> u64) -> Self {
        let clients = if draw(0..=1) == 0 { 0 } else { draw(1..=3) as u32 };
        let weights = requests::Kind::ALL.map(|kind| draw(0..=kind.most_weight()));
        Self {
            clients,
            most_under_way: [1, 5, 20][draw(0..=2) as usize],
            weights,
            most_ns: [5_000, 500_000][draw(0..=1) as usize],
            stream_bytes: [64, 4_096, 1 << 20][draw(0..=2) as usize],
            patience_ns: [20_000_000, u64::MAX][draw(0..=1) as usize],
            read_ns: [500, 5_000, 200_000][draw(0..=2) as usize],
        }
    }
}

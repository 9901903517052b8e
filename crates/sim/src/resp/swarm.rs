//! A seed's choice of RESP clients.

use std::ops::RangeInclusive;

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// GET.
    Get,
    /// MGET.
    MGet,
    /// SET, some conditional, some with an expiry.
    Set,
    /// MSET.
    MSet,
    /// DEL of some keys.
    Del,
    /// INCRBY.
    IncrBy,
    /// EXISTS of some keys.
    Exists,
    /// PTTL.
    PTtl,
    /// PEXPIRE.
    PExpire,
    /// PING.
    Ping,
    /// FLUSHALL or FLUSHDB.
    FlushAll,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Get,
        Self::MGet,
        Self::Set,
        Self::MSet,
        Self::Del,
        Self::IncrBy,
        Self::Exists,
        Self::PTtl,
        Self::PExpire,
        Self::Ping,
        Self::FlushAll,
    ];

    /// Its largest weight.
    pub fn most_weight(self) -> u64 {
        match self {
            Self::Get => 600,
            Self::Set => 300,
            Self::FlushAll => 2,
            Self::PExpire | Self::Ping => 20,
            _ => 100,
        }
    }
}

/// A seed's choice of RESP.
#[derive(Clone, Copy, Debug)]
pub struct RespSwarm {
    /// Clients.
    pub clients: u32,
    /// Most requests of a client under way.
    pub most_under_way: u64,
    /// Weights of their requests; one for each `Kind`.
    pub weights: [u64; Kind::ALL.len()],
    /// Longest time that bytes are under way, ns.
    pub most_ns: u64,
    /// Bytes that a stream holds for a client that does not read.
    pub stream_bytes: usize,
    /// How long a client waits for a reply before it gives its connection up, ns.
    pub timeout_ns: u64,
    /// Longest time that an optimistic read of one piece lasts, ns.
    pub read_ns: u64,
}

impl RespSwarm {
    /// With a client that moves hashes or trees, and none that flushes them away.
    pub fn with_moves(mut self) -> Self {
        self.clients = self.clients.max(1);
        let kinds = Kind::ALL.iter().zip(&mut self.weights);
        kinds.filter(|(kind, _)| **kind == Kind::FlushAll).for_each(|(_, of)| *of = 0);
        self
    }

    /// A draw.
    pub fn of(draw: &mut impl FnMut(RangeInclusive<u64>) -> u64) -> Self {
        let clients = if draw(0..=1) == 0 { 0 } else { draw(1..=3) as u32 };
        let weights = Kind::ALL.map(|kind| draw(0..=kind.most_weight()));
        Self {
            clients,
            most_under_way: [1, 5, 20][draw(0..=2) as usize],
            weights,
            most_ns: [5_000, 500_000][draw(0..=1) as usize],
            stream_bytes: [64, 4_096, 1 << 20][draw(0..=2) as usize],
            timeout_ns: [20_000_000, u64::MAX][draw(0..=1) as usize],
            read_ns: [500, 5_000, 200_000][draw(0..=2) as usize],
        }
    }
}

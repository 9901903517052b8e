//! What can be measured: a session, a RESP connection, a map of this process.

mod local;
mod resp;
mod session;

pub use local::{KEY_BYTES, LocalTarget, VALUE_BYTES};
pub use resp::RespTarget;
pub use session::{SessionTarget, costs_of};

use std::ops::{AddAssign, Sub};

/// What a run cost on the wire, and how its operations were answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    /// Dependent trips.
    pub round_trips: u64,
    /// Bytes that crossed, both ways.
    pub bytes: u64,
    /// Operations that the server answered.
    pub asked: u64,
    /// Operations concluded by READs alone.
    pub read: u64,
    /// Lookups that found a usable cached pointer.
    pub hits: u64,
    /// READs that found a dead or another record.
    pub stale: u64,
    /// READs repeated because they were torn.
    pub retries: u64,
    /// Cached pointers whose lease had ended.
    pub lease_expired: u64,
    /// Operations asked because the reading right had lapsed.
    pub read_lease_lapsed: u64,
    /// Operations asked to renew a lease.
    pub renewals: u64,
    /// Operations asked because a write before them was unanswered.
    pub behind_writes: u64,
    /// Operations asked because READs did not decide.
    pub undecided: u64,
    /// Nodes of trees that crossed.
    pub nodes: u64,
}

impl Costs {
    /// Every field of both, put together by `combine`.
    fn zip(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            round_trips: combine(self.round_trips, other.round_trips),
            bytes: combine(self.bytes, other.bytes),
            asked: combine(self.asked, other.asked),
            read: combine(self.read, other.read),
            hits: combine(self.hits, other.hits),
            stale: combine(self.stale, other.stale),
            retries: combine(self.retries, other.retries),
            lease_expired: combine(self.lease_expired, other.lease_expired),
            read_lease_lapsed: combine(self.read_lease_lapsed, other.read_lease_lapsed),
            renewals: combine(self.renewals, other.renewals),
            behind_writes: combine(self.behind_writes, other.behind_writes),
            undecided: combine(self.undecided, other.undecided),
            nodes: combine(self.nodes, other.nodes),
        }
    }
}

impl Sub for Costs {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        self.zip(before, |after, before| after - before)
    }
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        *self = self.zip(other, |one, other| one + other);
    }
}

/// A request of a pipeline.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Asks for a key's value.
    Get(&'a [u8]),
    /// Sets a key.
    Set(&'a [u8], &'a [u8]),
}

/// One client's way to the records.
pub trait Target {
    /// Whether an operation is so short that reading the clock for each would
    /// be a good part of what is measured.
    const IS_SHORT: bool;

    /// Looks up one key; `see` is given its value.
    fn get(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()>;

    /// Sets one key.
    fn set(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()>;

    /// Looks up several keys at once; `see` is given each key's position and
    /// value, in any order.
    fn get_batch(
        &mut self,
        keys: &[&[u8]],
        see: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> anyhow::Result<()>;

    /// Sends a request, or gathers it for [`Target::flush`].
    fn send(&mut self, request: Request<'_>) -> anyhow::Result<()>;

    /// Sends what was gathered.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// Waits for the reply to the oldest request; `see` is given the value if
    /// it was a GET.
    fn receive(&mut self, is_get: bool, see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()>;

    /// How many of `depth` requests stay outstanding while replies are taken.
    fn kept_outstanding(depth: usize) -> usize;

    /// What has been spent since the target was opened.
    fn costs(&self) -> Costs;
}

//! The costs of operations.

use remora_client_core::{Counts, Session};
use std::ops::{AddAssign, Sub};

/// The cost of a run on the wire, and how its operations were answered.
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
    /// READs that found a dead or another record, through a cached pointer or a hint.
    pub stale: u64,
    /// READs repeated because they were torn.
    pub retries: u64,
    /// Cached pointers whose lease had ended.
    pub lease_expired: u64,
    /// Operations asked because the read lease had lapsed.
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

impl From<Counts> for Costs {
    fn from(counts: Counts) -> Self {
        Self {
            round_trips: counts.round_trips,
            bytes: counts.bytes,
            asked: counts.asked,
            read: counts.read,
            hits: counts.hits,
            stale: counts.stale + counts.stale_hints,
            retries: counts.retries,
            lease_expired: counts.lease_expired,
            read_lease_lapsed: counts.read_lease_lapsed,
            renewals: counts.renewals,
            behind_writes: counts.behind_writes,
            undecided: counts.undecided,
            nodes: counts.nodes,
        }
    }
}

/// The costs of a session so far.
pub fn costs_of(session: &Session) -> Costs {
    session.totals().into()
}

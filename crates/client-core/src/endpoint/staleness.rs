//! How old the results of a session's operations may be, if its server is a replica.
//!
//! Invariants:
//! * a READ is judged by what the server had said before the operation began: what it says later may
//!   be of a time after the READ;
//! * a reply is judged by what it says itself: the server read its lag after the request had come, so
//!   the age counts from before the request was sent;
//! * a result counts only if it may be no older than the application allows.

use super::Endpoint;
use crate::error::Error;
use crate::read_lease::{PRIMARY_NS, on_this_clock};
use remora_layout::lag::Lag;
use std::time::Duration;

/// What a session knows of the age of its present operation's results.
pub(crate) struct Staleness {
    /// The oldest that a result may be, ns.
    max_ns: u64,
    /// What the server shows was at least as fresh as at this time, when the operation began.
    basis_ns: u64,
    /// How old what the last READs found may be.
    read_ns: u64,
    /// The greatest age of the results so far.
    pub lag_ns: u64,
}

impl Staleness {
    /// Results may be this old, or of any age.
    pub fn new(max: Option<Duration>) -> Self {
        let max_ns = max.map(|max| u64::try_from(max.as_nanos()).unwrap_or(u64::MAX));
        Self { max_ns: max_ns.unwrap_or(u64::MAX), basis_ns: 0, read_ns: 0, lag_ns: 0 }
    }

    /// The error of a result that may be this old, if that is too old.
    #[inline(always)]
    pub fn check(&self, lag_ns: u64) -> Result<(), Error> {
        if lag_ns > self.max_ns { Err(too_stale(lag_ns)) } else { Ok(()) }
    }

    /// The results of READs, which the session believes, are results of the operation.
    #[inline(always)]
    pub fn conclude_reads(&mut self) {
        self.lag_ns = self.lag_ns.max(self.read_ns);
    }
}

#[cold]
fn too_stale(lag_ns: u64) -> Error {
    Error::TooStale { lag_ms: (lag_ns != u64::MAX).then(|| lag_ns.div_ceil(1_000_000)) }
}

impl Endpoint {
    /// An operation begins.
    #[inline(always)]
    pub fn begin_operation(&mut self) -> Result<(), Error> {
        if self.lease.fresh_ns() != PRIMARY_NS {
            // The newest heartbeat makes the operation's results as fresh as possible.
            self.now()?;
        }
        let basis_ns = self.lease.fresh_ns();
        (self.staleness.basis_ns, self.staleness.read_ns, self.staleness.lag_ns) = (basis_ns, 0, 0);
        Ok(())
    }

    /// Whether what READs have found counts at this time: the read lease holds, and it may not be
    /// older than the application allows.
    #[inline(always)]
    pub fn may_believe(&mut self, now_ns: u64) -> bool {
        self.lease.holds(now_ns)
            && (self.staleness.basis_ns == PRIMARY_NS || self.is_fresh_enough(now_ns))
    }

    #[cold]
    fn is_fresh_enough(&mut self, now_ns: u64) -> bool {
        let Staleness { basis_ns, max_ns, .. } = self.staleness;
        let age_ns = if basis_ns == 0 { u64::MAX } else { now_ns.saturating_sub(basis_ns).max(1) };
        self.staleness.read_ns = age_ns;
        age_ns <= max_ns
    }

    /// How old what a reply shows may be, ns, if the request was sent after `sent_ns`.
    #[inline(always)]
    pub fn learn_reply(&mut self, sent_ns: u64, lag: Lag) -> u64 {
        if lag.is_primary() { 0 } else { self.learn_replica_reply(sent_ns, lag) }
    }

    #[cold]
    fn learn_replica_reply(&mut self, sent_ns: u64, lag: Lag) -> u64 {
        let since_ns = self.connection.time.now_ns().saturating_sub(sent_ns);
        let lag_ns = since_ns.saturating_add(on_this_clock(lag)).max(1);
        self.staleness.lag_ns = self.staleness.lag_ns.max(lag_ns);
        lag_ns
    }
}

//! Costs of operations.

use remora_walk::remote::Tally;

/// Messages that the sessions of a process have put into the rings of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SendCounts {
    /// Frames.
    pub frames: u64,
    /// WRITEs with their wake-ups, each of one frame or several.
    pub doorbells: u64,
    /// Of these, the frames that a session handed over to another session's thread.
    pub handed_over: u64,
}

/// The cost of one operation, or of a whole session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Operations.
    pub operations: u64,
    /// Dependent trips over the fabric: a READ batch or a request with its reply.
    pub round_trips: u64,
    /// Bytes that crossed the fabric, frames and records with their headers.
    pub bytes: u64,
    /// Buckets and records that were fetched.
    pub nodes: u64,
    /// Operations that the server answered.
    pub asked: u64,
    /// Operations concluded by READs alone.
    pub read: u64,
    /// Lookups that found a pointer in the cache.
    pub hits: u64,
    /// READs through a cached pointer that found a dead or other record.
    pub stale: u64,
    /// Hints of links that did not lead to the record of the key that the link names.
    pub stale_hints: u64,
    /// READs repeated because they were torn, or led to a bucket that the key had left by a split.
    pub retries: u64,
    /// Cached pointers not used because their lease had ended.
    pub lease_expired: u64,
    /// Operations asked because the read lease had lapsed; and times that a search of a tree
    /// renewed it by a small request, to continue reading.
    pub read_lease_lapsed: u64,
    /// Operations asked to renew the lease of a pointer that could be read.
    pub renewals: u64,
    /// Operations asked because a write of the session to the same shard was
    /// unanswered.
    pub behind_writes: u64,
    /// Operations asked because READs did not decide: they found no record of the key, one that may
    /// have expired or is not durable yet, or too many torn ones.
    pub undecided: u64,
    /// How old what the operation found may be, ns: the value that a replica gave was the committed
    /// state of its primary at some time no longer ago than this. 0: the server is a primary.
    /// `u64::MAX`: not known, or hours. A sum has the greatest; the session's totals and their
    /// differences have that of the last operation.
    pub lag_ns: u64,
}

impl Counts {
    /// Adds another operation's counts.
    ///
    /// ```
    /// # use remora_client_core::Counts;
    /// let mut sum = Counts::default();
    /// let mut one = Counts::default();
    /// one.round_trips = 1;
    /// sum.add(&one);
    /// sum.add(&one);
    /// assert_eq!(sum.round_trips, 2);
    /// ```
    #[inline]
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.round_trips += other.round_trips;
        self.bytes += other.bytes;
        self.nodes += other.nodes;
        self.asked += other.asked;
        self.read += other.read;
        self.hits += other.hits;
        self.stale += other.stale;
        self.stale_hints += other.stale_hints;
        self.retries += other.retries;
        self.lease_expired += other.lease_expired;
        self.read_lease_lapsed += other.read_lease_lapsed;
        self.renewals += other.renewals;
        self.behind_writes += other.behind_writes;
        self.undecided += other.undecided;
        self.lag_ns = self.lag_ns.max(other.lag_ns);
    }

    /// The difference to `before`, an earlier reading of the same counts.
    ///
    /// ```
    /// # use remora_client_core::Counts;
    /// let before = Counts::default();
    /// let mut now = before;
    /// now.bytes += 128;
    /// assert_eq!(now.since(&before).bytes, 128);
    /// ```
    pub fn since(&self, before: &Self) -> Self {
        Self {
            operations: self.operations - before.operations,
            round_trips: self.round_trips - before.round_trips,
            bytes: self.bytes - before.bytes,
            nodes: self.nodes - before.nodes,
            asked: self.asked - before.asked,
            read: self.read - before.read,
            hits: self.hits - before.hits,
            stale: self.stale - before.stale,
            stale_hints: self.stale_hints - before.stale_hints,
            retries: self.retries - before.retries,
            lease_expired: self.lease_expired - before.lease_expired,
            read_lease_lapsed: self.read_lease_lapsed - before.read_lease_lapsed,
            renewals: self.renewals - before.renewals,
            behind_writes: self.behind_writes - before.behind_writes,
            undecided: self.undecided - before.undecided,
            lag_ns: self.lag_ns,
        }
    }
}

impl Tally for Counts {
    #[inline(always)]
    fn fetched(&mut self, round_trips: u64, nodes: u64, bytes: u64) {
        self.round_trips += round_trips;
        self.nodes += nodes;
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_differences_are_what_was_added() {
        let counts = |from: u64| Counts {
            operations: from,
            round_trips: from + 1,
            bytes: from + 2,
            nodes: from + 3,
            asked: from + 4,
            read: from + 5,
            hits: from + 6,
            stale: from + 7,
            retries: from + 8,
            lease_expired: from + 9,
            read_lease_lapsed: from + 10,
            renewals: from + 11,
            behind_writes: from + 12,
            undecided: from + 13,
            stale_hints: from + 14,
            lag_ns: from + 15,
        };
        let (before, more) = (counts(100), counts(7));
        let mut sum = before;
        sum.add(&more);
        assert_eq!((sum.operations, sum.bytes, sum.read_lease_lapsed), (107, 111, 127));
        assert_eq!(sum.lag_ns, 115, "the greatest");
        assert_eq!(sum.since(&before), Counts { lag_ns: 115, ..more });
        assert_eq!(sum.since(&more), before);
        assert_eq!(sum.since(&sum), Counts { lag_ns: 115, ..Counts::default() });
    }
}

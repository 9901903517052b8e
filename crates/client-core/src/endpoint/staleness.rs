//! How old the results of a session's operations may be, if its server is a replica.
//!
//! Invariants:
//! * a READ is judged by what the server had said before the operation began: what it says later may
//!   be of a time after the READ;
//! * a reply is judged by what it says itself: the server read its lag after the request had come, so
//!   the age counts from before the request was sent;
//! * a result counts only if it may be no older than the application allows.

use crate::error::Error;
use crate::read_lease::{PRIMARY_NS, UNKNOWN_NS, on_this_clock};
use remora_layout::lag::Lag;
use std::time::Duration;

/// What a session knows of the age of its present operation's results.
pub(crate) struct Staleness {
    /// The oldest that a result may be, ns.
    max_ns: u64,
    /// What the server shows was at least as fresh as at this time, when the operation began.
    basis_ns: i64,
    /// How old what the last READs found may be.
    read_ns: u64,
    /// The greatest age of the results so far.
    pub lag_ns: u64,
}

impl Staleness {
    /// Results may be this old, or of any age.
    pub fn new(max: Option<Duration>) -> Self {
        let max_ns = max.map(|max| u64::try_from(max.as_nanos()).unwrap_or(u64::MAX));
        Self { max_ns: max_ns.unwrap_or(u64::MAX), basis_ns: UNKNOWN_NS, read_ns: 0, lag_ns: 0 }
    }

    /// An operation begins. What the server shows is at least as fresh as at this time.
    #[inline(always)]
    pub fn begin(&mut self, basis_ns: i64) {
        (self.basis_ns, self.read_ns, self.lag_ns) = (basis_ns, 0, 0);
    }

    /// Whether results of READs may be believed at this time, as far as their age goes.
    #[inline(always)]
    pub fn allows_reads(&mut self, now_ns: u64) -> bool {
        self.basis_ns == PRIMARY_NS || self.is_fresh_enough(now_ns)
    }

    #[cold]
    fn is_fresh_enough(&mut self, now_ns: u64) -> bool {
        self.read_ns = match self.basis_ns {
            UNKNOWN_NS => u64::MAX,
            basis_ns => (now_ns as i64 - basis_ns).max(1) as u64,
        };
        self.read_ns <= self.max_ns
    }

    /// A replica says this of its lag in a reply, whose request was sent so long ago, at most.
    /// Returns how old what the reply shows may be.
    #[cold]
    pub fn learn_reply(&mut self, since_ns: u64, lag: Lag) -> u64 {
        let lag_ns = since_ns.saturating_add(on_this_clock(lag)).max(1);
        self.lag_ns = self.lag_ns.max(lag_ns);
        lag_ns
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_lease::ReadLease;
    use remora_arena::{Mapping, Words};
    use remora_layout::session::{HEARTBEAT_WORD, Heartbeat};

    const MS: u64 = 1_000_000;

    struct Fixture {
        lease: ReadLease,
        to_client: Words,
        beats: u64,
        staleness: Staleness,
    }

    fn fixture(max: Option<Duration>) -> Fixture {
        let [to_server, to_client] = [(); 2].map(|()| Words::new(Mapping::heap(8192)));
        let lease = ReadLease::new(to_server, to_client.view(), 4, 77);
        Fixture { lease, to_client, beats: 0, staleness: Staleness::new(max) }
    }

    impl Fixture {
        /// A heartbeat comes, and is seen.
        fn beat(&mut self, echoed_client_clock_ns: u64, lag: Lag) {
            self.beats += 1;
            let words = Heartbeat {
                sequence: self.beats,
                utilisation_ppm_plus_1: 1,
                wait_ns: 0,
                incarnation: 77,
                epoch: 1,
                topology: 0,
                server_unix_ms: 1,
                echoed_client_clock_ns,
                session: 4,
                lag,
            }
            .to_words();
            for (at, word) in words.into_iter().enumerate() {
                self.to_client.store(HEARTBEAT_WORD + at, word);
            }
            self.lease.refresh_now(echoed_client_clock_ns.max(MS)).unwrap();
        }

        /// READs of an operation that began before count at this time; how old they may be.
        fn reads(&mut self, now_ns: u64) -> Option<u64> {
            self.staleness.allows_reads(now_ns).then(|| {
                self.staleness.conclude_reads();
                self.staleness.lag_ns
            })
        }
    }

    #[test]
    fn a_read_is_as_old_as_the_last_heartbeat_before_it_says_and_older_by_the_time_since_its_clock()
    {
        let mut fixture = fixture(None);
        fixture.staleness.begin(fixture.lease.fresh_ns());
        assert_eq!(fixture.reads(5 * MS), Some(u64::MAX), "nothing is known");
        fixture.beat(10 * MS, Lag::of_ns(8 * MS));
        fixture.staleness.begin(fixture.lease.fresh_ns());
        // A quarter more for a clock that is slow.
        assert_eq!(fixture.reads(30 * MS), Some(20 * MS + 10 * MS));
        // It comes between the READ and its judgement: it may speak of a time after the READ.
        fixture.beat(31 * MS, Lag::of_ns(4 * MS));
        assert_eq!(fixture.reads(40 * MS), Some(30 * MS + 10 * MS));
        fixture.staleness.begin(fixture.lease.fresh_ns());
        assert_eq!(fixture.reads(40 * MS), Some(9 * MS + 5 * MS));
        // The replica's state is of before the client's clock began.
        fixture.beat(50 * MS, Lag::of_ns(400 * MS));
        fixture.staleness.begin(fixture.lease.fresh_ns());
        assert_eq!(fixture.reads(50 * MS), Some(500 * MS));
    }

    #[test]
    fn a_primary_has_no_lag_and_an_unknown_lag_ends_the_lease() {
        let mut fixture = fixture(Some(Duration::ZERO));
        fixture.beat(10 * MS, Lag::PRIMARY);
        fixture.staleness.begin(fixture.lease.fresh_ns());
        assert_eq!(fixture.reads(90 * MS), Some(0));
        assert!(fixture.lease.holds(90 * MS));
        fixture.beat(20 * MS, Lag::UNKNOWN);
        assert!(!fixture.lease.holds(20 * MS));
        fixture.lease.renew_by_reply(77, 30 * MS, Lag::UNKNOWN).unwrap();
        assert!(!fixture.lease.holds(30 * MS));
        fixture.staleness.begin(fixture.lease.fresh_ns());
        assert_eq!(fixture.reads(30 * MS), None);
        // It was a primary, and is a replica now; a word of before changes nothing.
        fixture.lease.renew_by_reply(77, 40 * MS, Lag::of_ns(4 * MS)).unwrap();
        fixture.lease.renew_by_reply(77, 35 * MS, Lag::PRIMARY).unwrap();
        assert_eq!(fixture.lease.fresh_ns(), 35 * MS as i64);
    }

    #[test]
    fn a_reply_counts_from_before_its_request_was_sent_and_too_old_is_an_error() {
        let mut staleness = Staleness::new(Some(Duration::from_millis(20)));
        staleness.begin(UNKNOWN_NS);
        let lag_ns = staleness.learn_reply(10 * MS, Lag::of_ns(8 * MS));
        assert_eq!((lag_ns, staleness.check(lag_ns)), (20 * MS, Ok(())));
        let lag_ns = staleness.learn_reply(11 * MS, Lag::of_ns(8 * MS));
        assert_eq!(staleness.check(lag_ns), Err(Error::TooStale { lag_ms: Some(21) }));
        assert_eq!(staleness.lag_ns, 21 * MS, "the oldest of the operation");
        assert_eq!(staleness.check(u64::MAX), Err(Error::TooStale { lag_ms: None }));
        assert_eq!(staleness.learn_reply(MS, Lag::UNKNOWN), u64::MAX);
        staleness.begin(UNKNOWN_NS);
        assert_eq!(staleness.lag_ns, 0);
    }
}

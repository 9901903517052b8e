//! The read lease: how long results of READs count as fresh.
//!
//! The client writes its own clock into its mailbox; each heartbeat echoes it, with the server's
//! incarnation and epoch. The lease lasts `READ_LEASE_MS`, less a margin for clock drift, from the
//! echoed value, on the client's clock. A READ counts only if the client sees its completion before
//! the lease ends. A reply to a request renews the lease in the same way, from the moment before
//! the client sent the request.
//!
//! With each clock that a heartbeat echoes, and with each reply, the server says how old what it
//! shows may be: a primary nothing, a replica its lag. The client makes of it the time on its own
//! clock as of which the server was fresh, at least. A server whose lag is not known renews no lease.
//!
//! A live server answers a clock with a heartbeat. A server that has not answered for
//! `SERVER_SILENT_MS` is silent.

use remora_arena::{ReadView, Words};
use remora_layout::lag::Lag;
use remora_layout::limits::{
    CLOCK_REFRESH_MS, HEARTBEAT_LOOK_US, READ_LEASE_MARGIN_MS, READ_LEASE_MS, READER_CLOCK_PERCENT,
    SERVER_SILENT_MS,
};
use remora_layout::session::{CLIENT_CLOCK_WORD, HEARTBEAT_WORD, Heartbeat};

const LEASE_NS: u64 = (READ_LEASE_MS - READ_LEASE_MARGIN_MS) * 1_000_000;
const REFRESH_NS: u64 = CLOCK_REFRESH_MS * 1_000_000;
const LOOK_NS: u64 = HEARTBEAT_LOOK_US * 1_000;
const SILENT_NS: u64 = SERVER_SILENT_MS * 1_000_000;
/// While the client's clock advances by one, the server's advances by at most one and this share of
/// one, 1 in 4: the limits derive this percentage.
const DRIFT_SHIFT: u32 = 2;
const _: () = assert!(READER_CLOCK_PERCENT == 100 >> DRIFT_SHIFT);

/// A primary is fresh at any time.
pub const PRIMARY_NS: i64 = i64::MAX;
/// It is not known as of when the server is fresh.
pub const UNKNOWN_NS: i64 = i64::MIN;

/// How long a lag on the server's clock lasts on the client's, at most.
#[cold]
pub fn on_this_clock(lag: Lag) -> u64 {
    lag.ns().saturating_add(lag.ns() >> DRIFT_SHIFT)
}

/// The lease of one session. All times are ns of the client's clock.
pub struct ReadLease {
    to_server: Words,
    to_client: ReadView,
    session: u64,
    incarnation: u64,
    /// How long the lease lasts from the echoed clock.
    term_ns: u64,
    until_ns: u64,
    clock_written_ns: u64,
    /// The first clock that the client wrote after it saw the last heartbeat; 0 if it wrote none.
    unanswered_ns: u64,
    looked_ns: u64,
    sequence: u64,
    /// The server's clock, and an upper bound of the client's clock when the server read it.
    server_unix_ms: u64,
    server_at_ns: u64,
    utilisation_ppm_plus_1: u32,
    wait_ns: u32,
    topology: u16,
    /// What the server shows is at least as fresh as at this time; see [`ReadLease::fresh_ns`].
    fresh_ns: i64,
    /// When the server said so, at the latest.
    fresh_told_ns: u64,
}

/// What a heartbeat says of the server's load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerLoad {
    /// The heartbeat's sequence.
    pub sequence: u64,
    /// Busy share of the server's shards, parts per million.
    pub utilisation_ppm: u32,
    /// How long a request waits before the server executes it, ns.
    pub wait_ns: u32,
}

/// The heartbeats come from another incarnation than the session began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherIncarnation;

impl ReadLease {
    /// No lease yet. `to_server` and `to_client` are the session's mailboxes.
    pub fn new(to_server: Words, to_client: ReadView, session: u64, incarnation: u64) -> Self {
        Self {
            to_server,
            to_client,
            session,
            incarnation,
            term_ns: LEASE_NS,
            until_ns: 0,
            clock_written_ns: 0,
            unanswered_ns: 0,
            looked_ns: 0,
            sequence: 0,
            server_unix_ms: 0,
            server_at_ns: 0,
            utilisation_ppm_plus_1: 0,
            wait_ns: 0,
            topology: 0,
            fresh_ns: UNKNOWN_NS,
            fresh_told_ns: 0,
        }
    }

    /// Whether a READ whose completion was seen at `now_ns` counts.
    #[inline(always)]
    pub fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    /// Whether the server has left a clock unanswered for too long, as of the last check for a
    /// heartbeat.
    pub fn is_silent(&self, now_ns: u64) -> bool {
        self.unanswered_ns != 0 && now_ns.saturating_sub(self.unanswered_ns) >= SILENT_NS
    }

    /// Checks for a heartbeat and writes the clock, if it is time to.
    #[inline(always)]
    pub fn refresh(&mut self, now_ns: u64) -> Result<(), OtherIncarnation> {
        if now_ns - self.looked_ns.min(now_ns) >= LOOK_NS {
            return self.refresh_now(now_ns);
        }
        Ok(())
    }

    /// Checks for a heartbeat and writes the clock, in this order: a heartbeat that has already
    /// arrived does not answer the clock that is written now.
    #[cold]
    pub fn refresh_now(&mut self, now_ns: u64) -> Result<(), OtherIncarnation> {
        self.looked_ns = now_ns;
        self.look(now_ns)?;
        if now_ns.saturating_sub(self.clock_written_ns) >= REFRESH_NS {
            self.clock_written_ns = now_ns;
            // 0 means "never written", and is echoed as such.
            let written_ns = now_ns.max(1);
            self.to_server.store_release(CLIENT_CLOCK_WORD, written_ns);
            if self.unanswered_ns == 0 {
                self.unanswered_ns = written_ns;
            }
        }
        Ok(())
    }

    fn look(&mut self, now_ns: u64) -> Result<(), OtherIncarnation> {
        // A heartbeat is consumed by its sequence, once.
        if self.to_client.load_acquire(HEARTBEAT_WORD) == self.sequence {
            return Ok(());
        }
        let mut bytes = [0u8; Heartbeat::WORDS * 8];
        self.to_client.copy_out(HEARTBEAT_WORD * 8, &mut bytes);
        let mut words = [0u64; Heartbeat::WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        }
        match Heartbeat::from_words(&words) {
            Some(beat) => self.take(&beat, now_ns),
            // Torn: the server is writing it; the next check finds it whole.
            None => Ok(()),
        }
    }

    fn take(&mut self, beat: &Heartbeat, now_ns: u64) -> Result<(), OtherIncarnation> {
        if beat.session != self.session || beat.sequence <= self.sequence {
            return Ok(());
        }
        if beat.incarnation != self.incarnation {
            return Err(OtherIncarnation);
        }
        self.sequence = beat.sequence;
        // Another session may have written an older clock over this one's, so
        // any heartbeat is an answer.
        self.unanswered_ns = 0;
        self.utilisation_ppm_plus_1 = beat.utilisation_ppm_plus_1;
        self.wait_ns = beat.wait_ns;
        self.topology = beat.topology;
        let echoed_ns = beat.echoed_client_clock_ns;
        if beat.lag.is_unknown() {
            self.end();
        } else if echoed_ns != 0 && echoed_ns <= now_ns {
            // A clock that was never written, or lies in the future, renews nothing.
            self.learn_lag(echoed_ns, beat.lag);
            self.until_ns = self.until_ns.max(echoed_ns + self.term_ns);
            // The announced time may fall: after an announced step that does not happen.
            if echoed_ns >= self.server_at_ns {
                self.server_unix_ms = beat.server_unix_ms;
                self.server_at_ns = echoed_ns;
            }
        }
        Ok(())
    }

    /// A reply of this incarnation has arrived for a request sent after `sent_ns`.
    #[inline]
    pub fn renew_by_reply(
        &mut self,
        incarnation: u64,
        sent_ns: u64,
        lag: Lag,
    ) -> Result<(), OtherIncarnation> {
        if incarnation != self.incarnation {
            return Err(OtherIncarnation);
        }
        if lag.is_unknown() {
            self.end();
            return Ok(());
        }
        self.learn_lag(sent_ns, lag);
        self.until_ns = self.until_ns.max(sent_ns + self.term_ns);
        Ok(())
    }

    /// The server shows nothing that counts, now.
    #[cold]
    fn end(&mut self) {
        (self.until_ns, self.fresh_ns) = (0, UNKNOWN_NS);
    }

    /// The server read its lag after this time of the client's clock.
    #[inline]
    fn learn_lag(&mut self, after_ns: u64, lag: Lag) {
        if after_ns < self.fresh_told_ns {
            return;
        }
        self.fresh_told_ns = after_ns;
        self.fresh_ns = match lag.is_primary() {
            true => PRIMARY_NS,
            // The clock may have begun after that time.
            false => after_ns as i64 - on_this_clock(lag) as i64,
        };
    }

    /// The time on the client's clock as of which what the server shows now and later is fresh, as
    /// far as the session knows: [`UNKNOWN_NS`] if it knows nothing, [`PRIMARY_NS`] of a primary.
    #[inline(always)]
    pub fn fresh_ns(&self) -> i64 {
        self.fresh_ns
    }

    /// Whether an expiry (Unix ms of the server, 0 for never) may have passed by `now_ns`: the
    /// server read the heartbeat's time after the echoed clock. It bounds the server's clock for
    /// one term: the server announces a step of that clock for as long before the step counts
    /// (decision 0028).
    #[inline(always)]
    pub fn may_have_expired(&self, expires_at_ms: u64, now_ns: u64) -> bool {
        if expires_at_ms == 0 {
            return false;
        }
        let since_ns = now_ns.saturating_sub(self.server_at_ns);
        let passed_ms = (since_ns + (since_ns >> DRIFT_SHIFT)) / 1_000_000;
        let bound_ms = self.server_unix_ms.saturating_add(passed_ms + 1);
        let is_bound = self.server_unix_ms != 0 && since_ns < self.term_ns;
        !is_bound || expires_at_ms <= bound_ms
    }

    /// The clock as it was last written; 0 before the first time.
    pub fn clock_written_ns(&self) -> u64 {
        self.clock_written_ns
    }

    /// The low 16 bits of the version of the topology that the server knows; 0 if it knows none.
    #[inline]
    pub fn topology(&self) -> u16 {
        self.topology
    }

    /// The server's load in the last heartbeat; `None` before the first one.
    pub fn load(&self) -> Option<ServerLoad> {
        let utilisation_ppm = self.utilisation_ppm_plus_1.checked_sub(1)?;
        Some(ServerLoad { sequence: self.sequence, utilisation_ppm, wait_ns: self.wait_ns })
    }
}

#[cfg(test)]
mod clocks;

#[cfg(test)]
mod tests {
    use super::*;
    use remora_arena::Mapping;
    use remora_layout::limits::CLOCK_DRIFT_PERCENT;

    struct Fixture {
        lease: ReadLease,
        to_server: Words,
        to_client: Words,
        beats: u64,
    }

    const MS: u64 = 1_000_000;

    fn fixture() -> Fixture {
        let to_server = Words::new(Mapping::heap(8192));
        let to_client = Words::new(Mapping::heap(8192));
        let lease = ReadLease::new(to_server.clone(), to_client.view(), 4, 77);
        Fixture { lease, to_server, to_client, beats: 0 }
    }

    impl Fixture {
        fn beat(&mut self, incarnation: u64, unix_ms: u64) {
            self.beat_for(4, incarnation, unix_ms);
        }

        fn beat_for(&mut self, session: u64, incarnation: u64, unix_ms: u64) {
            self.beats += 1;
            let words = Heartbeat {
                sequence: self.beats,
                utilisation_ppm_plus_1: 1 + self.beats as u32,
                wait_ns: 7,
                incarnation,
                epoch: 1,
                topology: 0,
                server_unix_ms: unix_ms,
                echoed_client_clock_ns: self.to_server.load(CLIENT_CLOCK_WORD),
                session,
                lag: Lag::PRIMARY,
            }
            .to_words();
            for (at, word) in words.into_iter().enumerate() {
                self.to_client.store(HEARTBEAT_WORD + at, word);
            }
        }
    }

    #[test]
    fn the_lease_counts_from_the_echoed_clock() {
        let mut fixture = fixture();
        assert!(!fixture.lease.holds(1));
        fixture.beat(77, 1_000);
        fixture.lease.refresh_now(5 * MS).unwrap();
        assert!(!fixture.lease.holds(5 * MS), "an unwritten clock gives nothing");
        // The server copies the clock of 5 ms; the beat is seen much later.
        fixture.beat(77, 1_000);
        fixture.lease.refresh_now(150 * MS).unwrap();
        assert!(fixture.lease.holds(5 * MS + LEASE_NS - 1));
        assert!(!fixture.lease.holds(5 * MS + LEASE_NS), "not from when it was seen");
    }

    #[test]
    fn a_heartbeat_is_consumed_once_and_only_of_this_incarnation() {
        let mut fixture = fixture();
        fixture.lease.refresh_now(5 * MS).unwrap();
        fixture.beat(77, 1_000);
        fixture.lease.refresh_now(6 * MS).unwrap();
        let until = fixture.lease.until_ns;
        fixture.lease.refresh_now(50 * MS).unwrap();
        assert_eq!(fixture.lease.until_ns, until, "the same beat renews nothing");
        fixture.beat(78, 1_000);
        assert_eq!(fixture.lease.refresh_now(60 * MS), Err(OtherIncarnation));
        assert_eq!(fixture.lease.renew_by_reply(78, 60 * MS, Lag::PRIMARY), Err(OtherIncarnation));
        assert_eq!(fixture.lease.until_ns, until);
    }

    #[test]
    fn it_looks_and_writes_its_clock_now_and_then() {
        let mut fixture = fixture();
        let start = 10 * REFRESH_NS;
        assert_eq!(fixture.lease.clock_written_ns(), 0);
        fixture.lease.refresh(start).unwrap();
        assert_eq!(fixture.lease.clock_written_ns(), start);
        assert_eq!(fixture.to_server.load(CLIENT_CLOCK_WORD), start);
        assert_eq!(fixture.lease.load(), None, "no beat has come");
        fixture.beat(77, 1_000);
        for early in [start - 1, start, start + LOOK_NS - 1] {
            fixture.lease.refresh(early).unwrap();
            assert!(!fixture.lease.holds(early), "it did not look");
        }
        fixture.lease.refresh(start + LOOK_NS).unwrap();
        assert!(fixture.lease.holds(start + LOOK_NS));
        let load = ServerLoad { sequence: 1, utilisation_ppm: 1, wait_ns: 7 };
        assert_eq!(fixture.lease.load(), Some(load));
        fixture.lease.refresh(start + REFRESH_NS - 1).unwrap();
        assert_eq!(fixture.lease.clock_written_ns(), start);
        fixture.lease.refresh(start + REFRESH_NS - 1 + LOOK_NS).unwrap();
        assert_eq!(fixture.lease.clock_written_ns(), start + REFRESH_NS - 1 + LOOK_NS);
        fixture.beat(78, 1_000);
        assert_eq!(fixture.lease.refresh(start + 2 * REFRESH_NS), Err(OtherIncarnation));
    }

    #[test]
    fn a_server_is_silent_that_leaves_a_clock_unanswered() {
        let mut fixture = fixture();
        assert!(!fixture.lease.is_silent(90 * SILENT_NS), "no clock was written");
        fixture.lease.refresh_now(5 * MS).unwrap();
        assert!(!fixture.lease.is_silent(5 * MS + SILENT_NS - 1));
        assert!(fixture.lease.is_silent(5 * MS + SILENT_NS));
        // Written again meanwhile: the first one counts.
        fixture.lease.refresh_now(9 * MS).unwrap();
        assert!(fixture.lease.is_silent(5 * MS + SILENT_NS));
        // The server answered long ago, and the session did not check: the present clock is
        // another.
        fixture.beat(77, 1_000);
        fixture.lease.refresh_now(8 * SILENT_NS).unwrap();
        assert!(
            !fixture.lease.is_silent(9 * SILENT_NS - 1) && fixture.lease.is_silent(9 * SILENT_NS)
        );
    }

    #[test]
    fn a_heartbeat_of_another_session_or_an_old_one_gives_nothing() {
        let mut fixture = fixture();
        fixture.lease.refresh_now(5 * MS).unwrap();
        fixture.beat_for(5, 78, 1_000);
        fixture.lease.refresh_now(6 * MS).unwrap();
        assert!(!fixture.lease.holds(6 * MS));
        fixture.beats = 8;
        fixture.beat(77, 1_000);
        fixture.lease.refresh_now(7 * MS).unwrap();
        let until = fixture.lease.until_ns;
        assert!(fixture.lease.holds(7 * MS));
        fixture.lease.refresh_now(7 * MS + REFRESH_NS).unwrap();
        fixture.beats = 3;
        fixture.beat(78, 1_000);
        fixture.lease.refresh_now(8 * MS + REFRESH_NS).unwrap();
        assert_eq!(fixture.lease.until_ns, until);
    }

    #[test]
    fn expiry_is_judged_by_an_upper_bound_of_the_servers_clock() {
        let mut fixture = fixture();
        assert!(fixture.lease.may_have_expired(u64::MAX >> 20, 0), "unknown: ask");
        fixture.lease.refresh_now(10 * MS).unwrap();
        fixture.beat(77, 50_000);
        fixture.lease.refresh_now(12 * MS).unwrap();
        // 50,000 was read when the client's clock showed at least 10 ms.
        assert!(!fixture.lease.may_have_expired(0, 20 * MS));
        // It may have been almost 50,001.
        assert!(fixture.lease.may_have_expired(50_001, 10 * MS));
        assert!(!fixture.lease.may_have_expired(50_002, 10 * MS));
        assert!(!fixture.lease.may_have_expired(50_020, 15 * MS));
        assert!(fixture.lease.may_have_expired(50_020, 29 * MS));
    }

    #[test]
    fn a_bound_of_the_servers_clock_lasts_as_long_as_a_lease_and_may_fall() {
        let mut fixture = fixture();
        fixture.lease.refresh_now(10 * MS).unwrap();
        // The server announces a step that does not happen.
        fixture.beat(77, 900_000);
        fixture.lease.refresh_now(12 * MS).unwrap();
        assert!(fixture.lease.may_have_expired(60_000, 12 * MS));
        fixture.beat(77, 50_000);
        fixture.lease.refresh_now(14 * MS).unwrap();
        assert!(!fixture.lease.may_have_expired(60_000, 14 * MS));
        // Replies renew the lease, and tell nothing of the clock.
        fixture.lease.renew_by_reply(77, 12 * MS + LEASE_NS, Lag::PRIMARY).unwrap();
        // The clock of 12 ms is what the second beat echoes.
        let end_ns = 12 * MS + LEASE_NS;
        assert!(!fixture.lease.may_have_expired(60_000, end_ns - 1));
        assert!(fixture.lease.holds(end_ns) && fixture.lease.may_have_expired(60_000, end_ns));
    }

    /// The extreme case: the slowest client and the fastest new incarnation. The model in `clocks`
    /// covers the cases in between.
    #[test]
    fn no_lease_outlasts_the_wait_of_a_restarted_server() {
        const SLOW: u64 = 100 - CLOCK_DRIFT_PERCENT;
        const FAST: u64 = 100 + CLOCK_DRIFT_PERCENT;
        let copied_ms = 5;
        let mut fixture = fixture();
        fixture.lease.refresh_now(copied_ms * MS * SLOW / 100).unwrap();
        fixture.beat(77, 1_000);
        // The server dies at once after it copied; the beat is seen late.
        fixture.lease.refresh_now(50 * MS).unwrap();
        let waited_ms = (READ_LEASE_MS + READ_LEASE_MARGIN_MS) * 100 / FAST;
        let first_write_ms = copied_ms + waited_ms;
        assert!(fixture.lease.holds((first_write_ms * SLOW / 100 - 1) * MS), "it is used up");
        assert!(!fixture.lease.holds(first_write_ms * MS * SLOW / 100));
    }
}

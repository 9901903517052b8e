//! The lease of a primary: until when it may acknowledge changes and echo clients' clocks.
//!
//! ```text
//!   primary                              each other member of the recorded in-sync set
//!     clock 5 ---- asks, epoch 7 ---->     has not withdrawn the ring of epoch 7
//!     <---- confirms, epoch 7, clock 5 ----
//!   all of them have confirmed clock 5 or a later one: the lease lasts until 5 + term
//! ```
//! The members that could be promoted are those that confirm it. So a member that withdraws its ring
//! ends the lease by that, wherever the coordinator is, and no renewal costs the coordinator
//! anything. A new primary was such a member: it waits for [`FENCE_WAIT_NS`], counted
//! by a [`Stopwatch`] from its own withdrawal.
//!
//! Invariants:
//! * the lease counts from the clock that the primary had read *before* it asked, never from when the
//!   answer came;
//! * two clocks are never compared. Only their rates must agree, within
//!   [`CLOCK_DRIFT_PERCENT`](remora_layout::limits::CLOCK_DRIFT_PERCENT): the term is shorter by a
//!   margin, and the wait longer;
//! * a clock that goes back ends the lease, and what was asked before that confirms nothing. A clock
//!   that jumps forward ends it early, and shortens no wait.
//!
//! What holds is checked in this order, and a thread that is paused in between does no harm:
//!
//! * a change is *replicated, then the lease checked, then acknowledged*;
//! * for a read *the lease is checked, then the read carried out*, by the thread that owns the shard, and
//!   answered once all that it has seen is acknowledged. Nothing changes the shard in between, so the
//!   read gets what was there when the lease was checked: no other server had acknowledged anything by then.
//!   That moment is between the request and the reply, however late the reply is;
//! * a client's clock is *taken, then the lease checked, then echoed*.
//!
//! Threads that serve compare their clock with a number that one thread writes. It is never further away
//! than [`LEASE_TERM_NS`]: that thread may stand still while another member is promoted.

use crate::topology::Instance;
use remora_layout::limits::{
    FENCE_TICK_MAX_MS, PRIMARY_LEASE_MARGIN_MS, PRIMARY_LEASE_MS, READ_LEASE_MARGIN_MS,
    READ_LEASE_MS,
};

const NS_PER_MS: u64 = 1_000_000;
/// How long a lease lasts on the primary's clock, ns.
pub const LEASE_TERM_NS: u64 = (PRIMARY_LEASE_MS - PRIMARY_LEASE_MARGIN_MS) * NS_PER_MS;
/// How long the clients' read leases last on the clock of another server, ns.
pub const READERS_WAIT_NS: u64 = (READ_LEASE_MS + READ_LEASE_MARGIN_MS) * NS_PER_MS;
/// How long a new primary waits behind its own withdrawal, ns: for the old primary's lease, and for
/// the read leases that this one has renewed in its last moment.
pub const FENCE_WAIT_NS: u64 =
    (PRIMARY_LEASE_MS + PRIMARY_LEASE_MARGIN_MS) * NS_PER_MS + READERS_WAIT_NS;
const TICK_MAX_NS: u64 = FENCE_TICK_MAX_MS * NS_PER_MS;

/// What a primary asks a member, and what that one sends back as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseAsk {
    /// The epoch of the primary.
    pub epoch: u64,
    /// Grows whenever the primary's clock goes back.
    pub round: u32,
    /// The primary's clock, ns, read before it asked.
    pub clock_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Grantor {
    instance: Instance,
    /// Whether the lease needs its word.
    is_needed: bool,
    /// The greatest clock that it has confirmed.
    confirmed_ns: Option<u64>,
}

impl Grantor {
    fn until_ns(&self) -> u64 {
        self.confirmed_ns.map_or(0, |at| at.saturating_add(LEASE_TERM_NS))
    }
}

/// See the module's text. All times are ns of the primary's monotonic clock.
#[derive(Clone, Debug)]
pub struct PrimaryLease {
    epoch: u64,
    round: u32,
    grantors: Vec<Grantor>,
    /// The greatest clock that was seen.
    latest_ns: u64,
}

impl PrimaryLease {
    /// The lease of this epoch, which no member has confirmed.
    pub fn new(epoch: u64, now_ns: u64) -> Self {
        Self { epoch, round: 0, grantors: Vec::new(), latest_ns: now_ns }
    }

    /// The members that are asked, each with whether the lease needs its word: it needs that of all
    /// that any topology names as in sync that is recorded, or may be. The others are about to
    /// become such. Without any that is needed the lease lasts: no other member can be promoted.
    pub fn set_grantors(&mut self, asked: impl IntoIterator<Item = (Instance, bool)>) {
        let confirmed = |instance| {
            let before = self.grantors.iter().find(|of| of.instance == instance);
            before.and_then(|of| of.confirmed_ns)
        };
        let grantor = |(instance, is_needed)| {
            let confirmed_ns = confirmed(instance);
            Grantor { instance, is_needed, confirmed_ns }
        };
        self.grantors = asked.into_iter().map(grantor).collect();
    }

    /// All that are asked.
    pub fn asked(&self) -> impl Iterator<Item = Instance> + '_ {
        self.grantors.iter().map(|of| of.instance)
    }

    /// What to ask each member, by this clock.
    pub fn ask(&mut self, now_ns: u64) -> LeaseAsk {
        self.see(now_ns);
        LeaseAsk { epoch: self.epoch, round: self.round, clock_ns: now_ns }
    }

    /// A member has sent this back, as it had not withdrawn the ring of that epoch.
    pub fn confirm(&mut self, from: Instance, ask: LeaseAsk, now_ns: u64) {
        self.see(now_ns);
        if ask.epoch != self.epoch || ask.round != self.round || ask.clock_ns > self.latest_ns {
            return;
        }
        if let Some(of) = self.grantors.iter_mut().find(|of| of.instance == from) {
            of.confirmed_ns = of.confirmed_ns.max(Some(ask.clock_ns));
        }
    }

    /// Whether it holds. A clock that has gone back ends it.
    pub fn holds(&mut self, now_ns: u64) -> bool {
        self.see(now_ns);
        now_ns < self.until_ns()
    }

    /// Until when it lasts, as far as is known: `u64::MAX` if it needs no word, 0 without a
    /// word that it needs. It is of the latest clock that this lease was called with.
    pub fn until_ns(&self) -> u64 {
        let needed = self.grantors.iter().filter(|of| of.is_needed);
        needed.map(Grantor::until_ns).min().unwrap_or(u64::MAX)
    }

    /// Whether the word of a member is new enough at this time.
    pub fn is_confirmed_by(&self, instance: Instance, now_ns: u64) -> bool {
        let of = self.grantors.iter().find(|of| of.instance == instance);
        of.is_some_and(|of| now_ns < of.until_ns())
    }

    fn see(&mut self, now_ns: u64) {
        if now_ns < self.latest_ns {
            self.round += 1;
            self.grantors.iter_mut().for_each(|of| of.confirmed_ns = None);
        }
        self.latest_ns = now_ns;
    }
}

/// Time that has passed for certain, ns: what passes between ticks, and of a long time between two
/// ticks only [`FENCE_TICK_MAX_MS`]. A clock that jumps forward, or a process that stood still, adds
/// no more than that; a clock that goes back takes nothing away.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    passed_ns: u64,
    ticked_ns: u64,
}

impl Stopwatch {
    /// It begins at this time.
    pub const fn begin(now_ns: u64) -> Self {
        Self { passed_ns: 0, ticked_ns: now_ns }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64) {
        let step_ns = now_ns.saturating_sub(self.ticked_ns).min(TICK_MAX_NS);
        self.passed_ns = self.passed_ns.saturating_add(step_ns);
        self.ticked_ns = now_ns;
    }

    /// Whether so much has passed.
    pub const fn has_passed(&self, ns: u64) -> bool {
        self.passed_ns >= ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::MemberId;
    use remora_layout::limits::CLOCK_DRIFT_PERCENT;

    const MS: u64 = NS_PER_MS;
    const START: u64 = 5_000 * MS;

    fn replica(number: u64) -> Instance {
        Instance { member: MemberId(number), incarnation: 1 }
    }

    fn needs(numbers: &[u64]) -> Vec<(Instance, bool)> {
        numbers.iter().map(|&number| (replica(number), true)).collect()
    }

    fn lease(grantors: &[u64]) -> PrimaryLease {
        let mut lease = PrimaryLease::new(7, START);
        lease.set_grantors(needs(grantors));
        lease
    }

    #[test]
    fn it_counts_from_the_clock_that_was_asked_with() {
        let mut lease = lease(&[1]);
        assert!(!lease.holds(START), "nobody has confirmed it");
        let ask = lease.ask(START);
        lease.confirm(replica(1), ask, START + 60 * MS);
        assert!(lease.holds(START + LEASE_TERM_NS - 1));
        assert!(!lease.holds(START + LEASE_TERM_NS), "not from when the answer came");
        // An older answer comes late.
        let newer = lease.ask(START + 200 * MS);
        lease.confirm(replica(1), newer, START + 210 * MS);
        lease.confirm(replica(1), ask, START + 220 * MS);
        assert_eq!(lease.until_ns(), START + 200 * MS + LEASE_TERM_NS);
    }

    #[test]
    fn all_members_have_to_confirm_it() {
        let mut lease = lease(&[1, 2]);
        let ask = lease.ask(START);
        lease.confirm(replica(1), ask, START + MS);
        lease.confirm(replica(3), ask, START + MS);
        assert!(!lease.holds(START + MS));
        assert!(lease.is_confirmed_by(replica(1), START + MS));
        assert!(!lease.is_confirmed_by(replica(2), START + MS));
        lease.confirm(replica(2), ask, START + 2 * MS);
        assert!(lease.holds(START + 2 * MS));
        // A third may be promoted from now on.
        lease.set_grantors(needs(&[1, 2, 3]));
        assert!(!lease.holds(START + 3 * MS));
        lease.set_grantors(needs(&[1, 2]));
        assert!(lease.holds(START + 4 * MS), "what they had confirmed counts");
        // One that is asked, and not needed yet.
        lease.set_grantors([(replica(1), true), (replica(4), false)]);
        assert!(lease.holds(START + 4 * MS) && lease.asked().eq([replica(1), replica(4)]));
        lease.set_grantors(needs(&[]));
        assert!(lease.holds(u64::MAX - 1), "nobody else can be promoted");
    }

    #[test]
    fn another_epoch_or_a_clock_of_the_future_confirms_nothing() {
        let mut lease = lease(&[1]);
        let ask = lease.ask(START);
        lease.confirm(replica(1), LeaseAsk { epoch: 6, ..ask }, START + MS);
        lease.confirm(replica(1), LeaseAsk { epoch: 8, ..ask }, START + MS);
        lease.confirm(replica(1), LeaseAsk { clock_ns: START + 9 * MS, ..ask }, START + MS);
        assert!(!lease.holds(START + MS));
    }

    #[test]
    fn a_clock_that_goes_back_ends_it_and_what_was_asked_before() {
        let mut lease = lease(&[1]);
        let before = lease.ask(START + 900 * MS);
        lease.confirm(replica(1), before, START + 901 * MS);
        assert!(lease.holds(START + 902 * MS));
        assert!(!lease.holds(START), "by its number it would last for a second");
        lease.confirm(replica(1), before, START + 901 * MS);
        assert!(!lease.holds(START + 902 * MS), "nobody knows how long ago it was asked");
        let after = lease.ask(START + 903 * MS);
        lease.confirm(replica(1), after, START + 904 * MS);
        assert!(lease.holds(START + 905 * MS));
    }

    #[test]
    fn a_jump_forward_ends_the_lease_and_shortens_no_wait() {
        let mut lease = lease(&[1]);
        let ask = lease.ask(START);
        lease.confirm(replica(1), ask, START + MS);
        assert!(!lease.holds(START + 3_600_000 * MS));
        let mut wait = Stopwatch::begin(START);
        wait.tick(START + 3_600_000 * MS);
        assert!(!wait.has_passed(TICK_MAX_NS + 1));
        wait.tick(START);
        assert!(!wait.has_passed(TICK_MAX_NS + 1), "back again");
        for tick in 1..=FENCE_WAIT_NS / MS {
            wait.tick(START + tick * MS);
        }
        assert!(wait.has_passed(FENCE_WAIT_NS));
    }

    /// The slowest clock at the old primary and its reader, the fastest at the new one.
    #[test]
    fn no_lease_outlasts_the_wait() {
        const SLOW: u64 = 100 - CLOCK_DRIFT_PERCENT;
        const FAST: u64 = 100 + CLOCK_DRIFT_PERCENT;
        let lasts_ns = LEASE_TERM_NS * 100 / SLOW;
        let readers_ns = (READ_LEASE_MS - READ_LEASE_MARGIN_MS) * MS * 100 / SLOW;
        assert!(lasts_ns + readers_ns <= FENCE_WAIT_NS * 100 / FAST + 2);
    }
}

//! What clients may read at this server, and how old that may be.
//!
//! Invariants:
//! * one word says all, so that the threads that answer read it alone: a primary's costs one load;
//! * the clock of a replica is that of its primary, as the primary last said it, and goes on at the
//!   rate of its own: clients know it. It is never ahead, but for the drift of two clocks since then;
//! * the shards of a replica judge expiries by an earlier time: the primary's when it had committed no
//!   more than what the replica has, but at most `REPLICA_EXPIRY_MS` before the clock;
//! * a time of freshness is stored after what it promises is applied, and is visible with it;
//! * a primary of a cluster shows nothing once its lease has ended, whichever thread notices it first;
//! * while a replica shows nothing, no clock is echoed and no reply renews a read lease. Before its
//!   data change in a way that no primary has committed, it waits until all leases have lapsed.

use crate::clock::MonotonicClock;
use remora_layout::lag::Lag;
use remora_layout::limits::{
    PRIMARY_TIME_MS, READ_LEASE_MARGIN_MS, READ_LEASE_MS, REPLICA_EXPIRY_MS,
};
use remora_protocol::message::Status;
use remora_replica::FreshAt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Whether replicas answer reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReplicaReads {
    /// They refuse them.
    #[default]
    None,
    /// They answer them, and say how old the answers may be.
    Stale,
}

impl ReplicaReads {
    /// The setting's value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Stale => "stale",
        }
    }
}

/// Values of the word: a primary, a replica that answers no reads, one whose data are not whole, and a
/// primary of a cluster, for as long as its lease lasts.
const PRIMARY: u64 = 0;
const REFUSES: u64 = 1;
const HIDDEN: u64 = 2;
const LEASED: u64 = 3;
/// Greater ones: this, and the time of its clock in ns as of which the replica is fresh.
const FRESH: u64 = 4;

/// How long read leases may last after the last one was renewed.
const LEASES_LAPSE: Duration = Duration::from_millis(READ_LEASE_MS + READ_LEASE_MARGIN_MS);

/// See the module's text.
#[derive(Debug)]
pub struct ReplicaView {
    clock: MonotonicClock,
    reads: ReplicaReads,
    word: AtomicU64,
    /// The time as of which a replica is fresh, ns of its clock, whether it shows that or not; 0
    /// if it is not known.
    fresh_ns: AtomicU64,
    /// The time by which the shards of a replica judge expiries, Unix ms; the greatest number at a
    /// primary.
    judging_ms: AtomicU64,
    /// By how much the primary's clock, Unix ms, was at least ahead of this server's monotonic clock,
    /// ms; and when that was found, ms of the latter plus 1, 0 for never.
    ahead_ms: AtomicI64,
    ahead_at_ms: AtomicU64,
    /// Until when the lease of a primary of a cluster lasts, ns of its clock.
    leased_ns: AtomicU64,
    /// Whether such a primary renews read leases, and whether it takes changes.
    echoes: AtomicBool,
    changes: AtomicBool,
    /// The last time at which readers may have been answered, ns of its clock; 0 for never.
    shown_ns: AtomicU64,
}

impl ReplicaView {
    /// Of a primary, or of a replica that has nothing yet.
    pub fn new(clock: MonotonicClock, reads: ReplicaReads, is_replica: bool) -> Self {
        let word = match (is_replica, reads) {
            (false, _) => PRIMARY,
            (true, ReplicaReads::None) => REFUSES,
            (true, ReplicaReads::Stale) => HIDDEN,
        };
        Self {
            clock,
            reads,
            word: word.into(),
            fresh_ns: 0.into(),
            judging_ms: u64::MAX.into(),
            ahead_ms: 0.into(),
            ahead_at_ms: 0.into(),
            leased_ns: 0.into(),
            echoes: true.into(),
            changes: true.into(),
            shown_ns: 0.into(),
        }
    }

    /// Of a server that begins, by the machine's clock.
    pub fn begin(reads: ReplicaReads, is_replica: bool) -> Self {
        Self::new(MonotonicClock::Boottime, reads, is_replica)
    }

    /// Of a server that is a primary for good.
    pub fn of_primary() -> Arc<Self> {
        Arc::new(Self::new(MonotonicClock::Boottime, ReplicaReads::None, false))
    }

    /// The setting.
    pub fn reads(&self) -> ReplicaReads {
        self.reads
    }

    /// The monotonic clock, ns; never 0.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// The server is a primary from now on.
    pub fn be_primary(&self) {
        self.fresh_ns.store(0, Ordering::Relaxed);
        self.judging_ms.store(u64::MAX, Ordering::Relaxed);
        self.word.store(PRIMARY, Ordering::SeqCst);
    }

    /// The server is a primary of a cluster from now on, and its lease lasts until this time of
    /// [`ReplicaView::now_ns`], later or earlier than before.
    pub fn lease(&self, until_ns: u64) {
        self.leased_ns.store(until_ns, Ordering::SeqCst);
        self.fresh_ns.store(0, Ordering::Relaxed);
        self.judging_ms.store(u64::MAX, Ordering::Relaxed);
        self.word.store(LEASED, Ordering::SeqCst);
    }

    /// The lease of this server is over for good: it leads no more, or under a later epoch.
    pub fn end_lease(&self) {
        self.leased_ns.store(0, Ordering::SeqCst);
    }

    /// Whether a primary of a cluster echoes clocks and renews read leases, while it has its own: not
    /// when it is about to hand its epoch over.
    pub fn echo(&self, echoes: bool) {
        self.echoes.store(echoes, Ordering::SeqCst);
    }

    /// Whether a primary of a cluster takes changes, while it has its lease: not when it hands its epoch
    /// over, and waits for those in flight.
    pub fn take_changes(&self, takes: bool) {
        self.changes.store(takes, Ordering::SeqCst);
    }

    /// Whether a primary of a cluster refuses changes for now. What comes through nevertheless, as the
    /// lease ends a moment later, waits to be acknowledged.
    #[inline]
    pub fn refuses_changes(&self) -> bool {
        self.word.load(Ordering::Acquire) == LEASED
            && !(self.has_lease() && self.changes.load(Ordering::SeqCst))
    }

    /// Whether a primary may acknowledge changes and answer reads now: it has its lease, or needs none.
    #[inline]
    pub fn has_lease(&self) -> bool {
        match self.word.load(Ordering::Acquire) {
            LEASED => self.now_ns() < self.leased_ns.load(Ordering::SeqCst),
            _ => true,
        }
    }

    /// Whether this is a primary of a cluster that has its lease.
    pub fn leads_now(&self) -> bool {
        self.word.load(Ordering::Acquire) == LEASED && self.has_lease()
    }

    /// The replica is as fresh as at this time, or it is not known how fresh it is. What `fresh`
    /// promises is applied.
    pub fn show(&self, fresh: Option<FreshAt>) {
        if let Some(fresh) = fresh {
            self.judging_ms.store(fresh.time_ms, Ordering::Relaxed);
        }
        let fresh_ns = fresh.map(|fresh| fresh.clock_ns);
        self.fresh_ns.store(fresh_ns.unwrap_or(0), Ordering::Relaxed);
        let word = match (self.reads, fresh_ns) {
            (ReplicaReads::None, _) => REFUSES,
            (ReplicaReads::Stale, None) => HIDDEN,
            (ReplicaReads::Stale, Some(fresh_ns)) => FRESH + fresh_ns,
        };
        let before = self.word.swap(word, Ordering::SeqCst);
        self.leased_ns.store(0, Ordering::SeqCst);
        if !matches!(before, REFUSES | HIDDEN) {
            // Read after the swap: no reader is answered later.
            self.shown_ns.store(self.now_ns(), Ordering::Relaxed);
        }
    }

    /// The replica shows nothing, until [`ReplicaView::show`]. Returns how long to wait before its
    /// data may change in a way that no primary has committed.
    pub fn hide(&self) -> Duration {
        self.show(None);
        match self.shown_ns.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            shown_ns => LEASES_LAPSE.saturating_sub(Duration::from_nanos(self.now_ns() - shown_ns)),
        }
    }

    /// The clock of the primary showed this before now, Unix ms. One thread says so.
    pub fn learn_time(&self, time_ms: u64) {
        let now_ms = self.now_ns() / 1_000_000;
        let ahead_ms = time_ms as i64 - now_ms as i64;
        let (before_ms, at_ms) =
            (self.ahead_ms.load(Ordering::Relaxed), self.ahead_at_ms.load(Ordering::Relaxed));
        if at_ms == 0 || ahead_ms >= before_ms || now_ms + 1 - at_ms > PRIMARY_TIME_MS {
            self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
            self.ahead_at_ms.store(now_ms + 1, Ordering::Release);
        }
    }

    /// The time by which a shard judges expiries, Unix ms, while the server's clock shows `unix_ms`.
    #[inline]
    pub fn judging_ms(&self, unix_ms: u64) -> u64 {
        let least_ms = unix_ms.saturating_sub(REPLICA_EXPIRY_MS);
        self.judging_ms.load(Ordering::Relaxed).clamp(least_ms, unix_ms)
    }

    /// What the clock of a replica is to show, Unix ms: that of its primary, at the least. `None` if
    /// it has said nothing yet.
    pub fn primary_unix_ms(&self) -> Option<u64> {
        if self.ahead_at_ms.load(Ordering::Acquire) == 0 {
            return None;
        }
        let now_ms = self.now_ns() / 1_000_000;
        Some(now_ms.saturating_add_signed(self.ahead_ms.load(Ordering::Relaxed)))
    }

    /// How old what a reader gets may be. It reads the clock now: for a reply, after the request has
    /// come and before the first read for it.
    #[inline]
    pub fn lag(&self) -> Lag {
        match self.word.load(Ordering::Acquire) {
            PRIMARY => Lag::PRIMARY,
            word => self.lag_of(word),
        }
    }

    #[cold]
    fn lag_of(&self, word: u64) -> Lag {
        match word {
            REFUSES | HIDDEN => Lag::UNKNOWN,
            LEASED if self.has_lease() && self.echoes.load(Ordering::SeqCst) => Lag::PRIMARY,
            LEASED => Lag::UNKNOWN,
            fresh => Lag::of_ns(self.now_ns().saturating_sub(fresh - FRESH)),
        }
    }

    /// Why a read is refused; `None` if it is not.
    #[inline]
    pub fn refusal(&self) -> Option<Status> {
        self.refusal_of(self.word.load(Ordering::Acquire))
    }

    #[inline]
    fn refusal_of(&self, word: u64) -> Option<Status> {
        match word {
            REFUSES => Some(Status::NoReads),
            HIDDEN => Some(Status::Copying),
            LEASED if !self.has_lease() => Some(Status::Fenced),
            _ => None,
        }
    }

    /// Whether the server is a replica.
    #[inline]
    pub fn is_replica(&self) -> bool {
        !matches!(self.word.load(Ordering::Relaxed), PRIMARY | LEASED)
    }

    /// The lag, us, whether readers are answered or not; `None` of a primary, and while it is not
    /// known.
    pub fn lag_us(&self) -> Option<u64> {
        let fresh_ns = self.fresh_ns.load(Ordering::Acquire);
        (fresh_ns != 0).then(|| self.now_ns().saturating_sub(fresh_ns).div_ceil(1_000))
    }
}

/// What the thread of one shard answers by: the freshness that it saw when its turn began, before it
/// read the time by which it judges expiries. A later one would promise more than what it judges by.
#[derive(Debug)]
pub struct TurnView {
    of: Arc<ReplicaView>,
    seen: AtomicU64,
}

impl TurnView {
    /// No turn has begun.
    pub fn new(of: Arc<ReplicaView>) -> Self {
        let seen = of.word.load(Ordering::Acquire).into();
        Self { of, seen }
    }

    /// Of a server that is a primary for good.
    pub fn of_primary() -> Arc<Self> {
        Arc::new(Self::new(ReplicaView::of_primary()))
    }

    /// A turn begins; its clock is read after this.
    #[inline]
    pub fn begin_turn(&self) {
        let word = self.of.word.load(Ordering::Acquire);
        if word != self.seen.load(Ordering::Relaxed) {
            self.seen.store(word, Ordering::Relaxed);
        }
    }

    /// How old what a reader gets in this turn may be. It reads the clock now, as
    /// [`ReplicaView::lag`] does.
    #[inline]
    pub fn lag(&self) -> Lag {
        match self.seen.load(Ordering::Relaxed) {
            PRIMARY => Lag::PRIMARY,
            seen => self.lag_seen(seen),
        }
    }

    #[cold]
    fn lag_seen(&self, seen: u64) -> Lag {
        let word = self.of.word.load(Ordering::Acquire);
        match (seen >= FRESH, word >= FRESH) {
            (true, true) => self.of.lag_of(seen.min(word)),
            // It was promoted meanwhile, or shows nothing: a reader gets what it saw as a replica.
            (true, false) => self.of.lag_of(seen),
            (false, true) => Lag::UNKNOWN,
            (false, false) => self.of.lag_of(word),
        }
    }

    /// Why a read is refused; `None` if it is not.
    #[inline]
    pub fn refusal(&self) -> Option<Status> {
        match self.of.word.load(Ordering::Acquire) {
            PRIMARY => None,
            word => self.of.refusal_of(word).or_else(|| self.refusal_seen()),
        }
    }

    #[cold]
    fn refusal_seen(&self) -> Option<Status> {
        self.of.refusal_of(self.seen.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> MonotonicClock {
        MonotonicClock::Boottime
    }

    fn fresh(view: &ReplicaView) -> FreshAt {
        FreshAt { clock_ns: view.now_ns(), time_ms: 1_000 }
    }

    #[test]
    fn a_turn_promises_no_more_than_what_it_judges_by() {
        let view = Arc::new(ReplicaView::new(clock(), ReplicaReads::Stale, true));
        let turn = TurnView::new(Arc::clone(&view));
        assert_eq!((turn.lag(), view.judging_ms(5_000)), (Lag::UNKNOWN, 5_000));
        view.show(Some(fresh(&view)));
        assert_eq!(turn.lag(), Lag::UNKNOWN, "its time was read before");
        assert_eq!(turn.refusal(), Some(Status::Copying));
        turn.begin_turn();
        assert_eq!((turn.refusal(), view.judging_ms(5_000)), (None, 1_000));
        std::thread::sleep(Duration::from_millis(20));
        view.show(Some(FreshAt { time_ms: 1_020, ..fresh(&view) }));
        assert!(turn.lag().ns() >= 20_000_000 && view.lag().ns() < turn.lag().ns());
        turn.begin_turn();
        assert!(turn.lag().ns() < 20_000_000);
        assert_eq!((view.judging_ms(5_000), view.judging_ms(900)), (1_020, 900));
        let late_ms = 7_000 + REPLICA_EXPIRY_MS;
        assert_eq!(view.judging_ms(late_ms), 7_000, "it has heard nothing for long");
        view.show(None);
        assert_eq!(turn.refusal(), Some(Status::Copying));
        view.lease(view.now_ns() + 10_000_000_000);
        assert!(turn.lag() != Lag::PRIMARY, "it began as a replica's");
        turn.begin_turn();
        assert_eq!((turn.lag(), turn.refusal()), (Lag::PRIMARY, None));
        assert_eq!(view.judging_ms(5_000), 5_000);
    }

    #[test]
    fn a_primary_has_no_lag_and_refuses_nothing() {
        let view = ReplicaView::new(clock(), ReplicaReads::None, false);
        assert_eq!((view.lag(), view.refusal(), view.lag_us()), (Lag::PRIMARY, None, None));
    }

    #[test]
    fn a_primary_without_its_lease_answers_nothing_and_renews_no_read_lease() {
        let view = ReplicaView::new(clock(), ReplicaReads::None, true);
        view.lease(view.now_ns() + 20_000_000);
        assert_eq!((view.lag(), view.refusal(), view.is_replica()), (Lag::PRIMARY, None, false));
        assert!(view.has_lease() && !view.refuses_changes());
        view.take_changes(false);
        assert!(view.refuses_changes() && view.refusal().is_none(), "it hands over");
        view.take_changes(true);
        std::thread::sleep(Duration::from_millis(25));
        let fenced = (Lag::UNKNOWN, Some(Status::Fenced), false);
        assert_eq!((view.lag(), view.refusal(), view.has_lease()), fenced);
        assert!(view.refuses_changes());
        view.lease(view.now_ns() + 10_000_000_000);
        assert_eq!((view.lag(), view.refusal()), (Lag::PRIMARY, None));
        view.echo(false);
        assert_eq!((view.lag(), view.refusal()), (Lag::UNKNOWN, None), "it ends read leases");
        view.echo(true);
        view.end_lease();
        assert_eq!(view.refusal(), Some(Status::Fenced));
        view.show(None);
        assert_eq!((view.refusal(), view.is_replica()), (Some(Status::NoReads), true));
        assert!(!view.refuses_changes(), "a replica refuses them by its role");
    }

    #[test]
    fn the_lag_grows_until_the_replica_is_fresher() {
        let view = ReplicaView::new(clock(), ReplicaReads::Stale, true);
        assert_eq!((view.lag(), view.refusal()), (Lag::UNKNOWN, Some(Status::Copying)));
        view.show(Some(fresh(&view)));
        std::thread::sleep(Duration::from_millis(20));
        assert!(view.lag().ns() >= 20_000_000 && view.lag_us() >= Some(20_000));
        assert_eq!(view.refusal(), None);
        let is_waited_for = |view: &ReplicaView| {
            let wait = view.hide();
            wait <= LEASES_LAPSE && wait > LEASES_LAPSE / 2
        };
        assert!(is_waited_for(&view), "somebody may still read");
        assert!(is_waited_for(&view), "it was shown a moment ago");
        std::thread::sleep(LEASES_LAPSE);
        assert_eq!(view.hide(), Duration::ZERO);
        view.be_primary();
        assert_eq!(view.lag(), Lag::PRIMARY);
        assert!(is_waited_for(&view), "the clients of the primary that it was");
    }

    #[test]
    fn the_time_of_the_primary_goes_on_and_a_late_word_of_it_changes_nothing() {
        let view = ReplicaView::new(clock(), ReplicaReads::Stale, true);
        assert_eq!(view.primary_unix_ms(), None);
        view.learn_time(5_000_000);
        view.learn_time(4_000_000);
        std::thread::sleep(Duration::from_millis(30));
        let shown_ms = view.primary_unix_ms().unwrap();
        assert!((5_000_030..5_900_000).contains(&shown_ms), "{shown_ms}");
        // The primary's clock was slewed back meanwhile.
        std::thread::sleep(Duration::from_millis(PRIMARY_TIME_MS + 10));
        view.learn_time(5_000_900);
        assert!(view.primary_unix_ms() < Some(5_001_000 + 100_000));
    }

    #[test]
    fn a_replica_that_answers_no_reads_renews_no_lease_and_knows_its_lag() {
        let view = ReplicaView::new(clock(), ReplicaReads::None, true);
        view.show(Some(fresh(&view)));
        assert_eq!((view.lag(), view.refusal()), (Lag::UNKNOWN, Some(Status::NoReads)));
        assert!(view.lag_us().is_some());
        assert_eq!(view.hide(), Duration::ZERO, "nobody reads there");
    }
}

//! How many threads of a machine may walk trees at a time by READs (Catfish
//! 4.4, C24).
//!
//! A machine's network card serves one READ after the other. Beyond some number of concurrently
//! walking threads, more threads do not read more; each only waits longer (C25). A thread that is
//! not admitted waits here instead, and does not slow the admitted ones down. The paper uses three,
//! found by experiment. Here the limit adapts, as TCP Vegas adapts its window (Brakmo and Peterson,
//! 1995): the ratio of a READ's present time to its best time gives the number of threads that
//! queue at the card, and the limit keeps that number between [`FEWEST_QUEUED`] and
//! [`MOST_QUEUED`].
//!
//! Clients of one machine that share a table of pointers also share the card through it
//! ([`MachineShare`]). If the limit is given, each client gets its part of it, at least one; if
//! each client finds its own limit, all of them together let as many threads queue as one client
//! would alone.

use crate::machine_share::MachineShare;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How the threads of a client machine share its network card. Over shared memory there is nothing
/// to share: no walk waits there.
#[derive(Clone, Debug, Default)]
pub enum ConcurrencyLimit {
    /// Every thread walks at any time.
    Off,
    /// At most as many walk at a time as the network serves without queueing;
    /// the sessions of a [`Client`](crate::Client) find the number.
    #[default]
    Auto,
    /// At most so many of the sessions of a client walk at a time, at least 1; if the machine's
    /// clients share their pointers, the number is for all of them.
    AtMost(usize),
    /// Shares the limit with other clients of the process.
    With(Arc<Admission>),
}

impl ConcurrencyLimit {
    /// The admission of one client's sessions.
    pub(crate) fn admission(&self) -> Option<Arc<Admission>> {
        match self {
            Self::Off => None,
            Self::Auto => Some(Arc::new(Admission::auto())),
            Self::AtMost(most) => Some(Arc::new(Admission::at_most(*most))),
            Self::With(admission) => Some(Arc::clone(admission)),
        }
    }
}

/// If fewer walks than this queue at the card, the limit rises by one.
const FEWEST_QUEUED: f64 = 0.5;
/// If more walks than this queue, the limit falls by one.
const MOST_QUEUED: f64 = 1.5;
/// Walks between two adjustments of the limit, for each admitted walk.
const WALKS_PER_LOOK: u32 = 4;
/// Adjustments after which the best time is measured again: networks change, and a time measured
/// while walks queued is not the best.
const LOOKS_PER_BEST: u32 = 128;
/// By how much the limit falls for that measurement.
const FEW: usize = 4;
/// Longest wait before a thread checks again whether it may enter.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Admits walks.
#[derive(Debug)]
pub struct Admission {
    state: Mutex<State>,
    freed: Condvar,
}

/// An admitted walk; dropping it leaves the admission.
pub(crate) struct Admitted<'a> {
    admission: &'a Admission,
    /// Mean time of its round trips; 0 if it made none.
    pub round_trip_ns: u64,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.admission.leave(self.round_trip_ns);
    }
}

#[derive(Debug)]
struct State {
    limit: usize,
    walking: usize,
    waiting: usize,
    /// `None` if the limit was given.
    vegas: Option<Vegas>,
    /// Where the clients of the machine announce that they walk.
    machine: Option<MachineShare>,
    /// Number of clients of the machine that walk, this one included.
    clients: usize,
}

impl Admission {
    /// An admission that finds its limit.
    pub fn auto() -> Self {
        Self::new(2, Some(Vegas::default()))
    }

    /// At most so many at a time, at least 1.
    pub fn at_most(most: usize) -> Self {
        Self::new(most.max(1), None)
    }

    fn new(limit: usize, vegas: Option<Vegas>) -> Self {
        let state = State { limit, walking: 0, waiting: 0, vegas, machine: None, clients: 1 };
        Self { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// This client shares the card with the machine's other clients. Clients of a process that use
    /// one admission count as one client.
    pub(crate) fn share(&self, machine: MachineShare) {
        self.lock().machine.get_or_insert(machine);
    }

    /// How many may walk at a time now.
    pub fn limit(&self) -> usize {
        self.lock().most()
    }

    /// Admits a walk, if it need not wait.
    pub(crate) fn try_enter(&self, now_ns: u64) -> Option<Admitted<'_>> {
        self.lock().enter(now_ns).then(|| Admitted { admission: self, round_trip_ns: 0 })
    }

    /// Admits a walk once it may enter; the thread sleeps meanwhile.
    pub(crate) fn enter(&self, now_ns: impl Fn() -> u64) -> Admitted<'_> {
        let mut state = self.lock();
        // Bounded by the walks before it, each of which has a bound.
        while !state.enter(now_ns()) {
            state.waiting += 1;
            let waited = self.freed.wait_timeout(state, LOOK_AGAIN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
        Admitted { admission: self, round_trip_ns: 0 }
    }

    fn leave(&self, round_trip_ns: u64) {
        let mut state = self.lock();
        state.walking -= 1;
        let State { vegas, limit, clients, .. } = &mut *state;
        if round_trip_ns > 0
            && let Some(vegas) = vegas
        {
            *limit = vegas.limit(round_trip_ns as f64, *limit, *clients);
        }
        let is_awaited = state.waiting > 0 && state.walking < state.most();
        drop(state);
        if is_awaited {
            self.freed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, now_ns: u64) -> bool {
        if let Some(machine) = &mut self.machine {
            self.clients = machine.clients(now_ns);
        }
        let is_admitted = self.walking < self.most();
        if let Some(vegas) = &mut self.vegas {
            vegas.is_wanted |= !is_admitted;
        }
        self.walking += is_admitted as usize;
        is_admitted
    }
}

impl State {
    /// How many walks may run: a given limit is for the whole machine.
    fn most(&self) -> usize {
        if self.vegas.is_some() { self.limit } else { (self.limit / self.clients).max(1) }
    }
}

/// The measurements that adapt the limit.
#[derive(Debug, Default)]
struct Vegas {
    /// The mean time when few walked, ns; 0 before the first measurement.
    best_ns: f64,
    sum_ns: f64,
    walks: u32,
    looks: u32,
    /// A walk was not admitted since the last adjustment.
    is_wanted: bool,
    /// The limit to restore after a measurement of the best time, with few walks.
    back_to: Option<usize>,
}

impl Vegas {
    /// The limit after one more walk, whose round trips took so long, while so many clients of the
    /// machine walk.
    fn limit(&mut self, round_trip_ns: f64, limit: usize, clients: usize) -> usize {
        self.sum_ns += round_trip_ns;
        self.walks += 1;
        if self.walks < WALKS_PER_LOOK * limit as u32 {
            return limit;
        }
        let mean_ns = self.sum_ns / self.walks as f64;
        (self.sum_ns, self.walks) = (0.0, 0);
        self.looks = self.looks.wrapping_add(1);
        let is_wanted = std::mem::take(&mut self.is_wanted);
        match self.looks % LOOKS_PER_BEST {
            // Walks from before the limit fell may still be in flight in the first interval.
            0 => {
                self.back_to = Some(limit);
                return (limit / FEW).max(1);
            }
            1 if self.back_to.is_some() => return limit,
            2 if let Some(back_to) = self.back_to.take() => {
                self.best_ns = mean_ns;
                return back_to;
            }
            _ => {}
        }
        if self.best_ns == 0.0 || mean_ns < self.best_ns {
            self.best_ns = mean_ns;
        }
        // Over all clients: the estimate assumes that the others are like this one.
        let queued = (limit * clients) as f64 * (1.0 - self.best_ns / mean_ns);
        if queued > MOST_QUEUED {
            (limit - 1).max(1)
        } else if queued < FEWEST_QUEUED && is_wanted {
            limit + 1
        } else {
            limit
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_arena::{Mapping, Words};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A card that serves one READ in `stage_ns`; a READ takes `base_ns` alone.
    fn round_trip_ns(walking: usize, base_ns: f64, stage_ns: f64) -> u64 {
        base_ns.max(walking as f64 * stage_ns) as u64
    }

    /// Lets as many walks run as the limit admits, again and again; returns the final limit.
    fn settle(admission: &Admission, base_ns: f64, stage_ns: f64) -> usize {
        for _ in 0..40_000 {
            let limit = admission.limit();
            let mut walks: Vec<_> = std::iter::from_fn(|| admission.try_enter(0)).collect();
            assert_eq!(walks.len(), limit);
            walks
                .iter_mut()
                .for_each(|walk| walk.round_trip_ns = round_trip_ns(limit, base_ns, stage_ns));
        }
        admission.limit()
    }

    #[test]
    fn the_limit_finds_the_number_that_keeps_the_card_busy() {
        for (base_ns, stage_ns, enough) in [(6_000.0, 2_000.0, 3), (20_000.0, 1_000.0, 20)] {
            let limit = settle(&Admission::auto(), base_ns, stage_ns);
            assert!((enough..=enough + 2).contains(&limit), "{limit}, and {enough} are enough");
        }
    }

    #[test]
    fn the_limit_falls_when_the_card_becomes_slower() {
        let admission = Admission::auto();
        let [fast, slow] =
            [1_000.0, 5_000.0].map(|stage_ns| settle(&admission, 20_000.0, stage_ns));
        assert!(fast >= 20 && slow <= 7, "{fast}, then {slow}");
    }

    fn shared(admission: Admission, words: &Words, number: u64) -> Admission {
        admission.share(MachineShare::new(words.clone(), number));
        admission
    }

    /// As many as may walk at this time, ms.
    fn walks(admission: &Admission, ms: u64) -> Vec<Admitted<'_>> {
        std::iter::from_fn(|| admission.try_enter(ms * 1_000_000)).collect()
    }

    #[test]
    fn processes_of_a_machine_share_the_number_that_is_given() {
        let words = Words::new(Mapping::heap(4096));
        let clients = [1, 2].map(|number| shared(Admission::at_most(4), &words, number));
        let [one, other] = &clients;
        assert_eq!(walks(one, 1_000).len(), 4, "it is alone");
        for ms in [1_010, 1_020, 1_030] {
            let held = [walks(other, ms), walks(one, ms)];
            assert_eq!(held.each_ref().map(Vec::len), [2, 2], "{ms}");
        }
        // The other one is killed while it walks: it is forgotten.
        std::mem::forget(walks(other, 1_040));
        assert_eq!(walks(one, 1_050).len(), 2);
        assert_eq!(walks(one, 1_200).len(), 4);
        // More processes than the number: each has its turn.
        let many: Vec<_> =
            (3..9).map(|number| shared(Admission::at_most(4), &words, number)).collect();
        let at = |ms| many.iter().map(|one| walks(one, ms).len()).collect::<Vec<_>>();
        assert_ne!(at(1_300), [0; 6]);
        assert_eq!(at(1_310), [1; 6]);
    }

    #[test]
    fn processes_of_a_machine_let_as_many_wait_as_one_would() {
        let in_all = |is_shared: bool| {
            let words = Words::new(Mapping::heap(4096));
            let clients: Vec<_> = (0..4)
                .map(|number| match is_shared {
                    true => shared(Admission::auto(), &words, number),
                    false => Admission::auto(),
                })
                .collect();
            let mut mean = 0.0;
            for turn in 0..40_000u64 {
                let mut held: Vec<_> =
                    clients.iter().map(|client| walks(client, 1_000 + turn)).collect();
                let walking = held.iter().map(Vec::len).sum();
                mean += walking as f64 / 40_000.0;
                let took_ns = round_trip_ns(walking, 20_000.0, 1_000.0);
                held.iter_mut().flatten().for_each(|walk| walk.round_trip_ns = took_ns);
            }
            mean
        };
        let (shared, apart) = (in_all(true), in_all(false));
        // Twenty keep the card busy.
        assert!(shared < apart - 1.0 && (19.0..24.0).contains(&shared), "{shared}, {apart}");
    }

    #[test]
    fn a_walk_that_ends_by_a_panic_has_left() {
        let admission = Admission::at_most(1);
        let walk = || {
            let _walk = admission.enter(|| 0);
            assert!(admission.try_enter(0).is_none());
            panic!("in the middle of a walk");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(walk)).is_err());
        assert!(admission.try_enter(0).is_some());
    }

    #[test]
    fn no_more_walk_than_may_and_each_gets_its_turn() {
        let admission = Admission::at_most(2);
        let [walking, most, walks] = [const { AtomicUsize::new(0) }; 3];
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let _walk = admission.enter(|| 0);
                        let now = walking.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        walks.fetch_add(1, Ordering::SeqCst);
                        walking.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(walks.into_inner(), 3_000);
        assert!((1..=2).contains(&most.into_inner()));
        assert_eq!(admission.limit(), 2, "a given limit stays");
    }
}

//! Virtual time, and the scheduled events.

use super::random::Random;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How a world behaves. Times are in virtual nanoseconds.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// All that happens depends on it.
    pub seed: u64,
    /// From a post to the beginning of the operation's effect.
    pub request_ns: RangeInclusive<u64>,
    /// How long the effect lasts: the interval in which a READ looks.
    pub effect_ns: RangeInclusive<u64>,
    /// From the end of the effect to the completion.
    pub answer_ns: RangeInclusive<u64>,
    /// Operations in a million whose words take effect each at its own time;
    /// the others take effect at one instant of their interval.
    pub tear_ppm: u32,
    /// Operations in a million with which their link is lost, before or after
    /// they took effect.
    pub loss_ppm: u32,
    /// Operations in a million that are held up on their way, and with them
    /// what follows them on their link.
    pub stall_ppm: u32,
    /// How long at most.
    pub stall_ns: u64,
}

impl Default for SimOptions {
    /// About a fast network; every operation tears, none is lost.
    fn default() -> Self {
        Self {
            seed: 1,
            request_ns: 500..=3_000,
            effect_ns: 50..=2_000,
            answer_ns: 500..=3_000,
            tear_ppm: 1_000_000,
            loss_ppm: 0,
            stall_ppm: 0,
            stall_ns: 0,
        }
    }
}

/// The fate of one operation. Times are in virtual nanoseconds.
pub(super) struct Plan {
    pub request: u64,
    pub effect: u64,
    pub answer: u64,
    pub torn: bool,
    /// With it the link is lost: before its effect, or after.
    pub lost: bool,
    pub before: bool,
}

type Event = Box<dyn FnOnce() + Send>;

/// Names a scheduled event: its time and its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Scheduled {
    time_ns: u64,
    number: u64,
}

/// Runs code that waits in the middle of its work, as clients do.
pub trait Tasks: Send + Sync {
    /// The task that runs now, if one does.
    fn current(&self) -> Option<u64>;
    /// Suspends it until it is woken.
    fn suspend(&self);
    /// Lets a suspended task run on. Not from within a task.
    fn resume(&self, task: u64);
}

/// A world runs in one thread. It is made of locks all the same, so that links
/// may stand where those of real transports do, which change threads.
struct State {
    options: SimOptions,
    now_ns: AtomicU64,
    random: Mutex<Random>,
    /// By time, then in the order in which they were scheduled.
    events: Mutex<BTreeMap<Scheduled, Event>>,
    scheduled: AtomicU64,
    /// No link is lost and none stalls any more.
    is_calm: AtomicBool,
    lost: AtomicU64,
    stalled: AtomicU64,
    tasks: OnceLock<Box<dyn Tasks>>,
}

/// Locks. Nothing is left half done by a panic: the world ends with it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle on a simulated world. Cheap to clone.
#[derive(Clone)]
pub struct SimWorld(Arc<State>);

impl SimWorld {
    /// A world at time 0.
    pub fn new(options: SimOptions) -> Self {
        let random = Mutex::new(Random::new(options.seed));
        Self(Arc::new(State {
            options,
            now_ns: AtomicU64::new(0),
            random,
            events: Mutex::default(),
            scheduled: AtomicU64::new(0),
            is_calm: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            tasks: OnceLock::new(),
        }))
    }

    /// Sets the runner of the world's tasks. Call it once, before any of them runs.
    pub fn run_tasks_by(&self, tasks: impl Tasks + 'static) {
        let is_first = self.0.tasks.set(Box::new(tasks)).is_ok();
        assert!(is_first, "tasks are run by one");
    }

    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.0.now_ns.load(Ordering::Relaxed)
    }

    /// How it behaves.
    pub fn options(&self) -> &SimOptions {
        &self.0.options
    }

    /// Draws from the world's generator. Not from within itself.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut lock(&self.0.random))
    }

    /// From now on no link is lost and none stalls.
    pub fn calm(&self) {
        self.0.is_calm.store(true, Ordering::Relaxed);
    }

    /// Operations that were to lose their link so far.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Operations that were held up so far.
    pub fn stalled(&self) -> u64 {
        self.0.stalled.load(Ordering::Relaxed)
    }

    /// Draws the fate of an operation.
    pub(super) fn plan(&self) -> Plan {
        let State { options, is_calm, lost, stalled, .. } = &*self.0;
        let is_calm = is_calm.load(Ordering::Relaxed);
        self.draw(|random| {
            let mut plan = Plan {
                request: random.within(&options.request_ns),
                effect: random.within(&options.effect_ns),
                answer: random.within(&options.answer_ns),
                torn: random.happens(options.tear_ppm),
                lost: random.happens(options.loss_ppm) && !is_calm,
                before: random.below(2) == 0,
            };
            lost.fetch_add(plan.lost as u64, Ordering::Relaxed);
            if random.happens(options.stall_ppm) && !is_calm {
                plan.request += random.below(options.stall_ns + 1);
                stalled.fetch_add(1, Ordering::Relaxed);
            }
            plan
        })
    }

    /// Lets something happen after so long.
    pub fn schedule(&self, delay_ns: u64, event: impl FnOnce() + Send + 'static) -> Scheduled {
        self.schedule_at(self.now_ns() + delay_ns, event)
    }

    /// Lets something happen at a time that is not past.
    pub fn schedule_at(&self, time_ns: u64, event: impl FnOnce() + Send + 'static) -> Scheduled {
        assert!(time_ns >= self.now_ns(), "the past does not change");
        let number = self.0.scheduled.fetch_add(1, Ordering::Relaxed);
        let scheduled = Scheduled { time_ns, number };
        lock(&self.0.events).insert(scheduled, Box::new(event));
        scheduled
    }

    /// Lets it not happen, if it has not happened yet.
    pub fn cancel(&self, scheduled: Scheduled) {
        lock(&self.0.events).remove(&scheduled);
    }

    /// Lets the next event happen if it is due at `until_ns` at the latest.
    pub fn step(&self, until_ns: u64) -> bool {
        let event = {
            let mut events = lock(&self.0.events);
            match events.first_entry() {
                Some(entry) if entry.key().time_ns <= until_ns => {
                    self.0.now_ns.store(entry.key().time_ns, Ordering::Relaxed);
                    entry.remove()
                }
                _ => return false,
            }
        };
        event();
        true
    }

    /// Nothing that was scheduled happens any more: the world is at its end.
    pub fn forget_all(&self) {
        let events = std::mem::take(&mut *lock(&self.0.events));
        drop(events);
    }

    /// Lets time pass, with all events until then.
    pub fn advance(&self, ns: u64) {
        let until = self.now_ns() + ns;
        // Bounded by the events of that time.
        while self.step(until) {}
        self.0.now_ns.store(until, Ordering::Relaxed);
    }

    /// The task that runs now, if one does.
    pub fn current_task(&self) -> Option<u64> {
        self.0.tasks.get()?.current()
    }

    /// Suspends the task that runs now until it is woken or the time has come.
    pub fn suspend_until(&self, task: u64, until_ns: u64) {
        let tasks = self.0.tasks.get().expect("a task runs");
        let timer = (until_ns < u64::MAX).then(|| {
            let until_ns = until_ns.max(self.now_ns());
            let world = self.clone();
            self.schedule_at(until_ns, move || world.resume(task))
        });
        tasks.suspend();
        if let Some(timer) = timer {
            self.cancel(timer);
        }
    }

    /// Lets a task run on that waits, if it still does, after what happens now.
    pub fn wake(&self, waiting: &Mutex<Option<u64>>) {
        if let Some(task) = lock(waiting).take() {
            let world = self.clone();
            self.schedule(0, move || world.resume(task));
        }
    }

    fn resume(&self, task: u64) {
        self.0.tasks.get().expect("a task was suspended").resume(task);
    }
}

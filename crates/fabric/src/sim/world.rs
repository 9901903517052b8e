//! Virtual time, and what is to happen at which time.

use super::random::Random;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

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
        }
    }
}

type Event = Box<dyn FnOnce()>;

struct State {
    options: SimOptions,
    now_ns: Cell<u64>,
    random: RefCell<Random>,
    /// By time, then in the order in which they were scheduled.
    events: RefCell<BTreeMap<(u64, u64), Event>>,
    scheduled: Cell<u64>,
}

/// A handle on a simulated world. Cheap to clone.
#[derive(Clone)]
pub struct SimWorld(Rc<State>);

impl SimWorld {
    /// A world at time 0.
    pub fn new(options: SimOptions) -> Self {
        let random = RefCell::new(Random::new(options.seed));
        Self(Rc::new(State {
            options,
            now_ns: Cell::new(0),
            random,
            events: RefCell::new(BTreeMap::new()),
            scheduled: Cell::new(0),
        }))
    }

    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.0.now_ns.get()
    }

    /// How it behaves.
    pub fn options(&self) -> &SimOptions {
        &self.0.options
    }

    /// Draws from the world's generator. Not from within itself.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut self.0.random.borrow_mut())
    }

    /// Lets something happen after so long.
    pub fn schedule(&self, delay_ns: u64, event: impl FnOnce() + 'static) {
        self.schedule_at(self.now_ns() + delay_ns, event);
    }

    /// Lets something happen at a time that is not past.
    pub(super) fn schedule_at(&self, time_ns: u64, event: impl FnOnce() + 'static) {
        assert!(time_ns >= self.now_ns(), "the past does not change");
        let number = self.0.scheduled.get();
        self.0.scheduled.set(number + 1);
        self.0.events.borrow_mut().insert((time_ns, number), Box::new(event));
    }

    /// Lets the next event happen if it is due at `until_ns` at the latest.
    pub fn step(&self, until_ns: u64) -> bool {
        let event = {
            let mut events = self.0.events.borrow_mut();
            match events.first_entry() {
                Some(entry) if entry.key().0 <= until_ns => {
                    self.0.now_ns.set(entry.key().0);
                    entry.remove()
                }
                _ => return false,
            }
        };
        event();
        true
    }

    /// Lets time pass, and all that happens meanwhile.
    pub fn advance(&self, ns: u64) {
        let until = self.now_ns() + ns;
        // Bounded by the events of that time.
        while self.step(until) {}
        self.0.now_ns.set(until);
    }
}

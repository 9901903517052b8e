//! The server's clock in a world: the production clock over the machine's own,
//! which drifts, and a wall clock that faults set.

use crate::clock::HostClock;
use remora_engine::Now;
use remora_fabric::sim::SimWorld;
use remora_protocol::{ClockFollower, ServerClock};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const MS: u64 = 1_000_000;
/// Unix ms when a world begins.
const BEGAN_MS: u64 = 1_700_000_000_000;

/// All readers of the clock share it.
#[derive(Clone)]
pub struct NodeTime(Rc<Inner>);

struct Inner {
    world: SimWorld,
    monotonic: HostClock,
    clock: ServerClock,
    follower: RefCell<ClockFollower>,
    /// Total change of the wall clock, ms.
    wall_set_ms: Cell<i64>,
    /// The clock's Unix ms, with the virtual ns: before and after each look at the wall clock.
    /// Between two of them it runs evenly.
    shown: RefCell<Vec<(u64, u64)>>,
}

impl NodeTime {
    /// The clock of a machine with this drift.
    pub fn new(world: &SimWorld, gains_ppm: i64) -> Self {
        Self(Rc::new(Inner {
            world: world.clone(),
            monotonic: HostClock::new(world, 0, gains_ppm),
            clock: ServerClock::starting_at(BEGAN_MS),
            follower: RefCell::default(),
            wall_set_ms: Cell::new(0),
            shown: RefCell::new(vec![(0, BEGAN_MS)]),
        }))
    }

    /// The machine's own clock, ns; never set.
    pub fn monotonic_ns(&self) -> u64 {
        self.0.monotonic.now_ns()
    }

    /// When the machine's own clock shows this, virtual ns.
    pub fn virtual_ns_of_monotonic(&self, ns: u64) -> u64 {
        self.0.monotonic.virtual_ns(ns)
    }

    /// The server's clock, Unix ms.
    pub fn unix_ms(&self) -> u64 {
        self.0.clock.unix_ms(self.monotonic_ns() / MS)
    }

    /// The clock's time for heartbeats.
    pub fn told_unix_ms(&self) -> u64 {
        self.0.clock.told_unix_ms(self.monotonic_ns() / MS)
    }

    /// The time for an incarnation that began then, by the machine's own clock.
    pub fn now(&self, began_ns: u64) -> Now {
        let since_ns = self.monotonic_ns() - began_ns;
        Now { unix_ms: self.unix_ms(), since_start_s: since_ns / (1_000 * MS) }
    }

    /// Sets the wall clock.
    pub fn set_wall(&self, by_ms: i64) {
        self.0.wall_set_ms.set(self.0.wall_set_ms.get() + by_ms);
    }

    /// Compares the clock with the wall clock.
    pub fn follow(&self) {
        let inner = &self.0;
        let since_ms = self.monotonic_ns() / MS;
        let wall_ms = (BEGAN_MS + since_ms).saturating_add_signed(inner.wall_set_ms.get());
        self.note();
        inner.follower.borrow_mut().follow(&inner.clock, since_ms, wall_ms);
        self.note();
    }

    fn note(&self) {
        self.0.shown.borrow_mut().push((self.0.world.now_ns(), self.unix_ms()));
    }

    /// The first virtual ns at which it shows this time: known for the past, and predicted for the
    /// future as if no clock were set.
    pub fn virtual_ns(&self, unix_ms: u64) -> u64 {
        let shown = self.0.shown.borrow();
        let next = shown.partition_point(|&(_, shown_ms)| shown_ms < unix_ms);
        let Some(&(before_ns, before_ms)) = next.checked_sub(1).map(|before| &shown[before]) else {
            return 0;
        };
        let of_monotonic = |ms| self.virtual_ns_of_monotonic(ms * MS);
        let from_ns = before_ns + of_monotonic(unix_ms - before_ms);
        shown.get(next).map_or(from_ns, |&(by_ns, _)| from_ns.min(by_ns))
    }
}

//! The pauses of an operation that begins again: they grow, chance shortens them, and they end with
//! the operation's time.

use remora_layout::limits::{CLUSTER_FIRST_PAUSE_MS, CLUSTER_PAUSE_MAX_MS};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(CLUSTER_FIRST_PAUSE_MS);
const LONGEST: Duration = Duration::from_millis(CLUSTER_PAUSE_MAX_MS);

/// See the module's text.
pub(super) struct Pause {
    until: Instant,
    next: Duration,
}

impl Pause {
    /// Of an operation that has so much time, from `now`.
    pub fn new(now: Instant, time: Duration) -> Self {
        Self { until: now + time, next: FIRST }
    }

    /// The time that is left; `None` if it is up.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        self.until.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// Sleeps, between half of the grown pause and all of it.
    pub fn sleep(&mut self) {
        let random = RandomState::new().build_hasher().finish() as u32;
        let pause =
            self.next / 2 + (self.next / 2).mul_f64(f64::from(random) / f64::from(u32::MAX));
        self.next = (self.next * 2).min(LONGEST);
        std::thread::sleep(pause.min(self.left(Instant::now()).unwrap_or_default()));
    }
}

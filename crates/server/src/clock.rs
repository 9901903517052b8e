//! The server's clock.

use remora_engine::Now;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Unix time that never goes back: wall clock at the start, monotonic clock
/// from then on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    unix_ms_at_start: u64,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), unix_ms_at_start: unix.as_millis() as u64 }
    }

    /// The time, read once for as many commands as are executed together.
    pub fn now(&self) -> Now {
        self.at(Instant::now())
    }

    /// The time at an instant already read.
    pub fn at(&self, instant: Instant) -> Now {
        let since = instant.duration_since(self.start).as_millis() as u64;
        Now { unix_ms: self.unix_ms_at_start + since, since_start_s: since / 1000 }
    }

    /// When the clock was started.
    pub fn started(&self) -> Instant {
        self.start
    }
}

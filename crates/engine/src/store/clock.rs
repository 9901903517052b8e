//! Time, as a shard knows it; and idle limits: what a client has begun and does not go
//! on with is abandoned.
//!
//! What it keeps true: only seconds count in which the shard ticked. A shard
//! that was held up, or a machine that slept, does not take it for the silence
//! of clients that it did not listen to.

/// The time at which a command is executed, read once for many commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// The server's clock, Unix ms; never goes back while the server lives.
    pub unix_ms: u64,
    /// Seconds since the server started, for leases.
    pub since_start_s: u64,
}

/// The seconds in which a shard has ticked: the clock of idle limits.
#[derive(Default)]
pub(crate) struct TickedSeconds {
    counted: u64,
    last_s: u64,
}

impl TickedSeconds {
    /// Counts the present second, unless it is counted already.
    pub fn count(&mut self, now: Now) {
        if now.since_start_s > self.last_s {
            (self.counted, self.last_s) = (self.counted + 1, now.since_start_s);
        }
    }

    /// How many there were.
    pub fn get(&self) -> u64 {
        self.counted
    }
}

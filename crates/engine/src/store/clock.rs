//! The shard's time, and idle limits: the shard abandons an operation that its client has begun and
//! does not continue.
//!
//! Invariant: only seconds in which the shard ticked count. After a pause of the shard, or of the
//! machine, the shard does not take its own pause for the clients' silence.

/// The time at which a command is executed, read once for many commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// The server's clock, Unix ms; monotonic while the server lives.
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

//! Idle limits: what a client has begun and does not go on with is abandoned.
//!
//! What it keeps true: only seconds count in which the shard ticked. A shard
//! that was held up, or a machine that slept, does not take it for the silence
//! of clients that it did not listen to.

use super::{Now, Store};
use remora_arena::Journal;

/// The seconds in which a shard has ticked.
#[derive(Default)]
pub(super) struct Seconds {
    counted: u64,
    last_s: u64,
}

impl Seconds {
    /// Counts the present second, unless it is counted already.
    pub fn count(&mut self, now: Now) {
        if now.since_start_s > self.last_s {
            (self.counted, self.last_s) = (self.counted + 1, now.since_start_s);
        }
    }
}

impl<J: Journal> Store<J> {
    /// Seconds in which the shard has ticked: the clock of idle limits.
    pub(crate) fn ticked_s(&self) -> u64 {
        self.seconds.counted
    }

    /// Whether an upload is stalled whose last piece came at this time of
    /// [`Store::ticked_s`].
    pub(crate) fn has_stalled(&self, last_piece_s: u64) -> bool {
        self.ticked_s() - last_piece_s > self.options.upload_idle_s
    }
}

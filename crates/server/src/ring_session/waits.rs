//! What a ring session keeps of its requests that wait.

use remora_engine::WaiterName;
use remora_protocol::Claim;

/// A request that waits.
pub(super) struct RingWait {
    /// Its id.
    pub(super) id: u32,
    pub(super) claim: Claim,
    pub(super) name: WaiterName,
    /// Unix ms; 0 for none.
    pub(super) until_ms: u64,
}

/// The waits of one client at one shard.
#[derive(Default)]
pub(super) struct RingWaits {
    pub(super) waits: Vec<RingWait>,
    /// Deadlines that have come, and those that have gone, since they were taken: Unix ms, and the
    /// request's id.
    pub(super) deadlines: Vec<(Deadline, u64, u32)>,
    /// The client's place at the shard.
    pub(super) place: usize,
}

/// What happens to a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// It is to be watched.
    Begins,
    /// It is not.
    Ends,
}

impl RingWaits {
    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    pub(super) fn remove(&mut self, at: usize) -> RingWait {
        let wait = self.waits.swap_remove(at);
        if wait.until_ms > 0 {
            self.deadlines.push((Deadline::Ends, wait.until_ms, wait.id));
        }
        wait
    }
}

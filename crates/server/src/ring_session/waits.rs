//! What a ring session keeps of its requests that wait.

use remora_engine::WaiterName;
use remora_layout::limits::{MAX_ENDED_WAIT_BYTES, WAITER_BYTES};
use remora_protocol::Claim;
use std::collections::VecDeque;

/// A request that waits.
pub(super) struct RingWait {
    /// Its id.
    pub(super) id: u32,
    pub(super) claim: Claim,
    pub(super) place: WaitPlace,
}

/// Where a request waits.
pub(super) enum WaitPlace {
    /// At this shard, which keeps it by this name, until this time: Unix ms; 0 for without end.
    Here(WaiterName, u64),
    /// At the shards of its keys, with commands of so many bytes. The shard's thread drives it, and keeps
    /// its time.
    OverShards(usize),
}

/// What the shard's thread is to do for a client's requests that wait over shards.
pub enum WaitOrder {
    /// A request begins.
    Begin {
        /// Its id.
        id: u32,
        /// The session takes it to end the wait.
        claim: Claim,
        /// The encoded command for each key.
        commands: Vec<Box<[u8]>>,
        /// Until when it waits: Unix ms; 0 for without end.
        until_ms: u64,
    },
    /// The client takes no answer any more to the request with this id.
    End(u32),
}

/// The waits of one client at one shard.
#[derive(Default)]
pub(super) struct RingWaits {
    pub(super) waits: Vec<RingWait>,
    /// Those of them that wait over shards.
    over_shards: usize,
    /// Those that have ended, and that a shard may have yet: their claims, and the bytes of their commands.
    ended: VecDeque<(Claim, usize)>,
    ended_bytes: usize,
    /// Deadlines that have come, and those that have gone, since they were taken: Unix ms, and the
    /// request's id.
    pub(super) deadlines: Vec<(Deadline, u64, u32)>,
    /// Orders since they were taken.
    pub(super) orders: Vec<WaitOrder>,
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

    /// Those that wait at this shard alone.
    pub(super) fn here(&self) -> usize {
        self.waits.len() - self.over_shards
    }

    /// The first of those that wait at this shard alone.
    pub(super) fn first_here(&self) -> Option<usize> {
        self.waits.iter().position(|wait| matches!(wait.place, WaitPlace::Here(..)))
    }

    /// Whether another request may wait over shards: those that have ended are bounded, which a client may
    /// begin and end faster than the shards let go of them.
    pub(super) fn may_begin(&mut self) -> bool {
        while let Some((claim, bytes)) = self.ended.front()
            && !claim.is_shared()
        {
            self.ended_bytes -= bytes;
            self.ended.pop_front();
        }
        if self.ended_bytes >= MAX_ENDED_WAIT_BYTES {
            self.ended.retain(|(claim, _)| claim.is_shared());
            self.ended_bytes = self.ended.iter().map(|(_, bytes)| bytes).sum();
        }
        self.ended_bytes < MAX_ENDED_WAIT_BYTES
    }

    pub(super) fn push(&mut self, wait: RingWait) {
        match wait.place {
            WaitPlace::Here(_, 0) => {}
            WaitPlace::Here(_, until_ms) => {
                self.deadlines.push((Deadline::Begins, until_ms, wait.id));
            }
            WaitPlace::OverShards(_) => self.over_shards += 1,
        }
        self.waits.push(wait);
    }

    pub(super) fn remove(&mut self, at: usize) -> RingWait {
        let wait = self.waits.swap_remove(at);
        match wait.place {
            WaitPlace::Here(_, 0) => {}
            WaitPlace::Here(_, until_ms) => {
                self.deadlines.push((Deadline::Ends, until_ms, wait.id));
            }
            WaitPlace::OverShards(bytes) => {
                self.over_shards -= 1;
                self.ended.push_back((wait.claim.clone(), bytes + WAITER_BYTES));
                self.ended_bytes += bytes + WAITER_BYTES;
                self.orders.push(WaitOrder::End(wait.id));
            }
        }
        wait
    }
}

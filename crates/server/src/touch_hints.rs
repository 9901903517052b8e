//! Hints to a shard: records that other threads of the server have read without asking it. Only
//! eviction uses them, so they are kept only if the server evicts; if there are too many the
//! earliest are lost.

use crossbeam_queue::ArrayQueue;
use remora_engine::Eviction;
use remora_engine::evict::Id;
use remora_layout::limits::TOUCH_HINTS;
use remora_layout::pointer::RemotePointer;

/// A queue that never blocks and never wakes anybody.
pub struct TouchHints {
    queue: Option<ArrayQueue<Id>>,
}

impl TouchHints {
    /// A queue, where this policy listens.
    pub fn new(eviction: Eviction) -> Self {
        let queue = (eviction != Eviction::None).then(|| ArrayQueue::new(TOUCH_HINTS));
        Self { queue }
    }

    /// A record was read.
    pub fn push(&self, pointer: RemotePointer) {
        if let Some(queue) = &self.queue {
            queue.force_push(Id { slot: pointer.slot, generation: pointer.generation });
        }
    }

    /// The earliest hint that is still there.
    pub fn pop(&self) -> Option<Id> {
        self.queue.as_ref()?.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(slot: u32) -> RemotePointer {
        RemotePointer { region: 0, slot, length: 64, generation: 1 }
    }

    #[test]
    fn the_latest_hints_stay_and_without_eviction_none_do() {
        let hints = TouchHints::new(Eviction::S3Fifo);
        (0..TOUCH_HINTS as u32 + 10).for_each(|slot| hints.push(pointer(slot)));
        let kept: Vec<u32> = std::iter::from_fn(|| hints.pop()).map(|id| id.slot).collect();
        assert_eq!(kept, (10..TOUCH_HINTS as u32 + 10).collect::<Vec<_>>());
        let deaf = TouchHints::new(Eviction::None);
        deaf.push(pointer(1));
        assert_eq!(deaf.pop(), None);
    }
}

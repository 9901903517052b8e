//! A link that stores at once into memory of this process.

use remora_arena::Words;
use remora_fabric::{Completion, Link, LinkError, Transport, Waited, Work};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A link that carries WRITEs alone. One that does not lie in its region is a
/// bug of the end that posts it.
pub struct Direct {
    regions: Vec<Words>,
    completions: VecDeque<Completion>,
    lost: Arc<AtomicBool>,
}

impl Direct {
    /// A link to these regions; it is lost once `lost` says so.
    pub fn new(regions: Vec<Words>, lost: Arc<AtomicBool>) -> Self {
        Self { regions, completions: VecDeque::new(), lost }
    }
}

impl Link for Direct {
    fn transport(&self) -> Transport {
        Transport::Sim
    }

    fn reads_cost_peer_cpu(&self) -> bool {
        false
    }

    fn post(&mut self, batch: &[Work<'_>]) {
        for work in batch {
            let Work::Write { id, to, bytes, .. } = *work else { panic!("a READ of a mailbox") };
            let result = self.failure().map_or(Ok(()), Err);
            if result.is_ok() {
                let words = &self.regions[to.region as usize];
                let offset = words.check(to.offset, bytes.len()).expect("a WRITE outside");
                words.copy_in(offset, bytes);
            }
            self.completions.push_back(Completion { id, result });
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    fn wait(&mut self, _: Option<Duration>) -> Waited {
        panic!("nobody waits on this link")
    }

    fn landed(&self, _: usize, _: usize) -> &[u8] {
        panic!("nothing is READ")
    }

    fn reserve_landing(&mut self, _: usize) {}

    fn failure(&self) -> Option<LinkError> {
        self.lost.load(Ordering::Relaxed).then_some(LinkError::Disconnected)
    }

    fn has_completed(&self) -> bool {
        !self.completions.is_empty()
    }
}

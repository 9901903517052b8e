//! A simulated server's work for client processes.

use super::Node;
use super::ring_clients::{NodeRings, Process};
use crate::counts::RunCounts;
use std::sync::{Arc, Mutex};

impl Node {
    /// Grants a session over shared memory to a process with this many ring sets, or one over a
    /// network to a process with one.
    ///
    /// # Panics
    /// The server is down.
    pub fn connect_process(&mut self, ring_sets: usize, is_remote: bool) -> Process {
        assert!(!is_remote || ring_sets == 1, "over a network there is one ring set");
        let incarnation = self.incarnation.as_mut().expect("it is up");
        self.sessions += 1;
        let seed = self.world.draw(|random| random.number());
        let arenas = incarnation.shards.iter().map(|shard| shard.owner().view().clone()).collect();
        let shards = incarnation.shards.len();
        let rings = incarnation.rings.get_or_insert_with(|| NodeRings::new(&self.world, shards));
        rings.connect((incarnation.number, self.sessions, seed), &arenas, (ring_sets, is_remote))
    }

    /// A thread of such a process sleeps until it is signalled.
    pub fn thread_sleeps(&mut self, of: &Process, set: usize, task: Arc<Mutex<Option<u64>>>) {
        if let Some(rings) =
            self.incarnation.as_mut().and_then(|incarnation| incarnation.rings.as_mut())
        {
            rings.sleeps(of, set, task);
        }
    }

    /// A process over a network has sent something to these shards.
    pub fn received(&self, of: &Process, shards: &[usize]) {
        let rings = self.incarnation.as_ref().and_then(|incarnation| incarnation.rings.as_ref());
        if let (Some(rings), Some(marks)) = (rings, &of.marks) {
            rings.receive(&self.world, marks, shards);
        }
    }

    /// Such a thread had to signal so often.
    pub fn signalled(&mut self, signals: u64) {
        if let Some(rings) =
            self.incarnation.as_mut().and_then(|incarnation| incarnation.rings.as_mut())
        {
            rings.counts.signals += signals;
            self.world.wake(&rings.waiting);
        }
    }

    /// This incarnation's counters of such processes.
    pub fn ring_counts(&self) -> RunCounts {
        let rings = self.incarnation.as_ref().and_then(|incarnation| incarnation.rings.as_ref());
        rings.map_or_else(RunCounts::default, |rings| RunCounts {
            parked: rings.parked() as u64,
            ..rings.counts
        })
    }
}

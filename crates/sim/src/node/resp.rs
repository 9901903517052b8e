//! The RESP connections' interface to a simulated server.

use super::Node;
use crate::resp::{BesideMemory, ShardJobs, SimHost};
use remora_engine::{Now, Shard};
use remora_fabric::sim::SimJournal;
use remora_layout::slot::SlotTable;
use remora_server::large_jobs::LargeJobs;
use std::cell::RefCell;
use std::rc::Rc;

impl Node {
    /// The state of the present incarnation for the RESP connections of each shard's thread; each
    /// read takes this long.
    pub fn resp_hosts(node: &Rc<RefCell<Self>>, read_ns: u64) -> Vec<SimHost> {
        let this = node.borrow();
        let Some(incarnation) = &this.incarnation else { return Vec::new() };
        let host = |home: usize| {
            let shards =
                incarnation.shards.iter().zip(&incarnation.journals).map(|(shard, journal)| {
                    let words = shard.owner().view().clone();
                    BesideMemory::new(&this.world, words, journal.clone(), read_ns)
                });
            let slots = Box::new(SlotTable::even(this.options.shards));
            let of_incarnation = (Rc::clone(node), incarnation.number);
            let hash_seed = this.options.shard.hash_seed;
            let thread = (incarnation.jobs[home].mailboxes(), incarnation.jobs[home].counts());
            let time = this.time.clone();
            SimHost::new(of_incarnation, home, time, (hash_seed, slots), shards.collect(), thread)
        };
        (0..this.options.shards).map(host).collect()
    }

    /// Lets a shard of an incarnation do something at once, as its thread would. `None` if
    /// that incarnation is over.
    pub fn with_shard<R>(
        &mut self,
        (incarnation, shard): (u64, usize),
        act: impl FnOnce(&mut Shard<SimJournal>, &mut LargeJobs, Now) -> R,
    ) -> Option<R> {
        let incarnation = self.incarnation.as_mut().filter(|now| now.number == incarnation)?;
        let now = self.time.now(incarnation.began_ns);
        let (of, jobs) = (&mut incarnation.shards[shard], &mut incarnation.jobs[shard]);
        let done = act(of, jobs.large(), now);
        if of.has_waiters_due() {
            jobs.wake();
        }
        self.note_removed();
        Some(done)
    }

    /// Whether the request of a RESP connection of an incarnation waits at all of its shards.
    pub fn has_parked(&self, (incarnation, serial): (u64, u64)) -> bool {
        let present = self.incarnation.as_ref().filter(|now| now.number == incarnation);
        present.is_some_and(|now| now.jobs.iter().any(|jobs| jobs.has_parked(serial)))
    }

    /// What each shard's thread does when it becomes a replica, about requests that wait.
    pub fn give_up_waiting(&mut self) {
        let Some(incarnation) = &mut self.incarnation else { return };
        for (jobs, shard) in incarnation.jobs.iter_mut().zip(&mut incarnation.shards) {
            jobs.large().give_up_waiting(shard);
            jobs.wake();
        }
    }

    /// Lets the thread of a shard of an incarnation do something about its jobs. `None` if
    /// that incarnation is over.
    pub fn with_jobs<R>(
        &mut self,
        (incarnation, shard): (u64, usize),
        act: impl FnOnce(&mut ShardJobs) -> R,
    ) -> Option<R> {
        let incarnation = self.incarnation.as_mut().filter(|now| now.number == incarnation)?;
        Some(act(&mut incarnation.jobs[shard]))
    }
}

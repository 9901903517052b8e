//! A simulated server as the primary of replicas: what it sends them, and what it takes for
//! replicated; and the incarnation that was a replica before.

use super::session::is_lost;
use super::{Incarnation, Node, NodeOptions, NodeTime};
use crate::disk::Disk;
use remora_engine::{Now, Shard, ShardOptions};
use remora_fabric::sim::SimJournal;
use std::sync::atomic::Ordering;

const MS: u64 = 1_000_000;

impl Node {
    /// Its clock.
    pub fn time(&self) -> &NodeTime {
        &self.time
    }

    /// How it is made.
    pub fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// The next incarnation begins with nothing, and with another log.
    pub fn forget_log(&mut self) {
        self.options.shard.epoch += 1;
        self.options.shard.log_secret += 1;
    }

    /// By shard, the last entry of the incarnation before that the disk has kept; none without a disk,
    /// and at the first start.
    pub fn kept(&self) -> &[u64] {
        self.disk.as_ref().map_or(&[], Disk::kept)
    }

    /// A number that no incarnation has had.
    pub fn new_number(&mut self) -> u64 {
        self.incarnations += 1;
        self.incarnations
    }

    /// The number of the present incarnation; `None` while it is down.
    pub fn present(&self) -> Option<u64> {
        self.incarnation.as_ref().map(|incarnation| incarnation.number)
    }

    /// The shards of the present incarnation; none while it is down.
    pub fn shards(&self) -> &[Shard<SimJournal>] {
        self.incarnation.as_ref().map_or(&[], |incarnation| &incarnation.shards)
    }

    /// The process at the other end of a session has died: its memory is gone.
    pub fn cut(&mut self, session: u64) {
        let sessions = self.incarnation.iter().flat_map(|incarnation| &incarnation.sessions);
        sessions.filter(|of| of.number == session).for_each(|of| of.cut());
    }

    /// A replica becomes this server: its shards, under an epoch and with logs of their own. It has
    /// begun nothing that it would have to end. `process`: its number, and when it began.
    ///
    /// # Panics
    /// An incarnation is there, or the replica has applied an entry of a later epoch.
    pub fn take_over(
        &mut self,
        process: (u64, u64),
        mut shards: Vec<Shard<SimJournal>>,
        journals: Vec<SimJournal>,
    ) {
        assert!(self.incarnation.is_none());
        self.options.shard.epoch += 1;
        self.options.shard.log_secret += 1;
        self.options.shards = shards.len();
        let ShardOptions { epoch, log_secret, .. } = self.options.shard;
        for shard in &mut shards {
            shard.promote(epoch, log_secret).expect("the epoch is a new one");
        }
        self.begin_incarnation(process, shards, journals);
    }

    /// The checker reads what is new in the logs.
    pub(super) fn show_logs(&self) {
        if let (Some(oracle), Some(incarnation)) = (&self.oracle, &self.incarnation) {
            oracle.borrow_mut().look(incarnation.number, &incarnation.shards);
        }
    }
}

impl Incarnation {
    /// Sends each replica what is new in the logs of the shards that are free, and tells the shards
    /// what is replicated. Whether there was anything to do.
    pub(super) fn feed(&mut self, (now, now_ns): (Now, u64), is_free: &[bool]) -> bool {
        let mut worked = false;
        for session in &mut self.sessions {
            let rings = session.rings.iter_mut().zip(&mut self.shards).zip(is_free);
            for ((ring, shard), _) in rings.filter(|((ring, _), free)| **free && ring.is_replica())
            {
                match ring.feed_some(shard, now) {
                    Ok(more) => worked |= more,
                    Err(error) => {
                        self.violations.extend(Some(error).filter(|of| !is_lost(of)));
                        session.violated.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        let of_shards = self.acknowledging.iter_mut().zip(&mut self.shards).enumerate();
        for (at, (acknowledging, shard)) in of_shards.filter(|(at, _)| is_free[*at]) {
            let positions = self.sessions.iter().filter_map(|of| of.rings[at].replica_positions());
            worked |= acknowledging.look(shard, positions, (now_ns / MS, true));
        }
        worked
    }

    /// Whether entries are on their way to replicas.
    pub(super) fn feeds(&self) -> bool {
        let mut rings = self.sessions.iter().flat_map(|session| &session.rings);
        rings.any(|ring| ring.is_replica())
            && self.acknowledging.iter().any(|acknowledging| acknowledging.wants_ticks())
    }
}

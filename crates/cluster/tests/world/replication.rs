//! A log of one shard that is shipped to replicas, as simple as the real one's promises allow.
//!
//! ```text
//!   replica                        primary
//!      ---- Follow, its log's shape -->
//!      <--- GoesOn, or Copy -----------
//!      <=== Append ====================   a WRITE: it lands although the process stands still,
//!      ==== Stored ===================>   unless the ring is withdrawn; nobody is asked
//! ```

use super::tail::{EpochStart, LogShape, Reconciliation, reconcile};
use crate::world::oracle::Entry;
use remora_cluster::ReplicaStanding;
use remora_cluster::message::Position;
use remora_cluster::topology::Instance;
use std::collections::BTreeMap;

/// A replica that has not stored an entry for so long lags, ms.
const LAGS_MS: u64 = 400;
/// What was sent is sent again after so long without an answer, ms.
const AGAIN_MS: u64 = 40;

/// What crosses the network for replication.
#[derive(Clone, Debug)]
pub enum Shipped {
    Follow { epoch: u64, link: u64, applied: u64, shape: LogShape },
    GoesOn { link: u64, shared: u64 },
    Copy { link: u64, log: Vec<Entry>, commit: u64 },
    Append { link: u64, before: u64, entries: Vec<Entry>, commit: u64 },
    Stored { link: u64, last: u64 },
}

/// The ring that a primary writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ring {
    pub primary: Instance,
    pub epoch: u64,
    pub link: u64,
}

/// What lies in the memory of one server.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// All that was received, also what lies in the ring.
    pub log: Vec<Entry>,
    /// Entries that are in the data.
    pub applied: u64,
    /// Entries that readers may see.
    pub commit: u64,
    /// There is a part of a copy only.
    pub is_part: bool,
    pub ring: Option<Ring>,
    /// The member leads, and takes nothing out of its ring any more.
    pub is_ring_left: bool,
    /// Entries that the disk has for certain: a prefix of what is applied.
    pub synced: u64,
    /// Entries of a copy: without all of them the disk has a part only.
    pub copied: u64,
    /// Entries that a new primary found. What of them its disk does not have yet may have been acknowledged.
    pub found: u64,
}

impl Memory {
    pub fn last(&self) -> u64 {
        self.log.len() as u64
    }

    pub fn visible(&self) -> &[Entry] {
        &self.log[..self.commit as usize]
    }

    /// What reads are answered with. They wait as long as something found is not as durable as it has to be.
    pub fn shown(&self) -> Option<&[Entry]> {
        (self.commit >= self.found).then(|| self.visible())
    }

    pub fn positions(&self) -> Option<Vec<Position>> {
        let epoch = self.log.last().map_or(0, |of| of.epoch);
        (!self.is_part)
            .then(|| vec![Position { epoch, sequence: self.last(), applied: self.applied }])
    }

    pub fn shape(&self) -> LogShape {
        let mut epochs: Vec<EpochStart> = Vec::new();
        for (at, entry) in self.log.iter().enumerate() {
            if epochs.last().is_none_or(|of| of.epoch != entry.epoch) {
                epochs.push(EpochStart { epoch: entry.epoch, first: at as u64 + 1 });
            }
        }
        LogShape { epochs, last: self.last() }
    }

    /// A WRITE arrives. The last entry that is stored, if the ring is that of this link.
    pub fn write(
        &mut self,
        from: Instance,
        (link, before): (u64, u64),
        entries: &[Entry],
    ) -> Option<u64> {
        let ring = self.ring.filter(|ring| (ring.primary, ring.link) == (from, link))?;
        if self.is_ring_left {
            // It lies in memory, where nobody looks.
            return Some(before + entries.len() as u64);
        }
        if before > self.last() {
            return None;
        }
        let known = (self.last() - before) as usize;
        if let Some(new) = entries.get(known..) {
            assert!(entries.iter().all(|of| of.epoch <= ring.epoch));
            self.log.extend_from_slice(new);
        }
        Some(self.last())
    }

    /// What a process finds on the disk after a restart, of which `beyond` entries were not synced.
    pub fn restarted(&self, beyond: u64) -> Self {
        let kept = (self.synced + beyond).min(self.applied);
        let is_part = self.is_part || kept < self.copied;
        let log = self.log[..kept as usize].to_vec();
        Self { log, applied: kept, synced: kept, copied: self.copied, is_part, ..Self::default() }
    }

    /// The primary has told its commit position.
    pub fn commit_up_to(&mut self, commit: u64) {
        self.commit = self.commit.max(commit.min(self.last()));
        self.applied = self.applied.max(self.commit);
    }

    /// The primary answers: the log goes on behind this entry.
    pub fn go_on(&mut self, ring: Ring, shared: u64) {
        assert!(shared >= self.applied, "what was applied cannot be cut");
        self.log.truncate(shared as usize);
        (self.ring, self.is_ring_left) = (Some(ring), false);
    }

    /// A copy has come whole.
    pub fn copied(&mut self, ring: Ring, log: Vec<Entry>, commit: u64) {
        let applied = log.len() as u64;
        let (ring, copied) = (Some(ring), applied);
        *self = Self { log, applied, commit, ring, copied, ..Self::default() };
    }
}

/// A replica, as its primary sees it.
#[derive(Clone, Copy, Debug)]
struct Link {
    number: u64,
    stored: u64,
    sent: u64,
    sent_commit: u64,
    /// When it last stored something, or had stored all.
    moved_ms: u64,
    sent_ms: u64,
    told: Option<ReplicaStanding>,
}

/// The replicas of a primary.
#[derive(Default)]
pub struct Links(BTreeMap<Instance, Link>);

impl Links {
    /// A replica asks for the log. What it gets.
    pub fn follow(
        &mut self,
        from: Instance,
        (number, applied): (u64, u64),
        shape: &LogShape,
        (memory, now_ms): (&Memory, u64),
    ) -> Option<Shipped> {
        if self.0.get(&from).is_some_and(|link| link.number >= number) {
            return None;
        }
        let (stored, answer) = match reconcile(shape, applied, &memory.shape()) {
            Reconciliation::GoesOn(shared) => (shared, Shipped::GoesOn { link: number, shared }),
            Reconciliation::Copies => {
                let (log, commit) = (memory.log.clone(), memory.commit);
                (0, Shipped::Copy { link: number, log, commit })
            }
        };
        let sent = if matches!(answer, Shipped::Copy { .. }) { memory.last() } else { stored };
        let (moved_ms, sent_ms) = (now_ms, now_ms);
        let link = Link { number, stored, sent, sent_commit: 0, moved_ms, sent_ms, told: None };
        self.0.insert(from, link);
        Some(answer)
    }

    pub fn stored(&mut self, from: Instance, (number, last): (u64, u64), now_ms: u64) {
        if let Some(link) = self.0.get_mut(&from)
            && link.number == number
            && last > link.stored
        {
            (link.stored, link.moved_ms) = (last, now_ms);
            link.sent = link.sent.max(last);
        }
    }

    /// What is sent now.
    pub fn ship(&mut self, memory: &Memory, now_ms: u64) -> Vec<(Instance, Shipped)> {
        let mut shipped = Vec::new();
        for (to, link) in &mut self.0 {
            if link.stored == link.sent {
                link.sent_ms = now_ms;
            } else if now_ms >= link.sent_ms + AGAIN_MS {
                (link.sent, link.sent_ms) = (link.stored, now_ms);
            }
            if link.sent < memory.last() || link.sent_commit < memory.commit {
                let entries = memory.log[link.sent as usize..].to_vec();
                let (link_number, before) = (link.number, link.sent);
                let commit = memory.commit;
                shipped.push((*to, Shipped::Append { link: link_number, before, entries, commit }));
                (link.sent, link.sent_commit) = (memory.last(), commit);
            }
        }
        shipped
    }

    /// Whether this replica has stored the entry.
    pub fn has_stored(&self, of: Instance) -> u64 {
        self.0.get(&of).map_or(0, |link| link.stored)
    }

    /// How replicas stand, as far as that has changed. `waited_for`: acknowledgements wait for them.
    pub fn standings(
        &mut self,
        memory: &Memory,
        waited_for: &[Instance],
        now_ms: u64,
    ) -> Vec<(Instance, ReplicaStanding)> {
        let mut told = Vec::new();
        for (of, link) in &mut self.0 {
            if link.stored == memory.last() {
                link.moved_ms = now_ms;
            }
            let lags = now_ms > link.moved_ms + LAGS_MS;
            let is_waited_for = waited_for.contains(of);
            let standing = match link.told {
                _ if lags => ReplicaStanding::Behind,
                // Only of one that acknowledgements wait for.
                _ if is_waited_for && link.stored >= memory.commit => ReplicaStanding::InSync,
                Some(ReplicaStanding::InSync) if is_waited_for => ReplicaStanding::InSync,
                _ if link.stored + 8 >= memory.last() => ReplicaStanding::Joining,
                _ => ReplicaStanding::Behind,
            };
            if link.told != Some(standing) {
                link.told = Some(standing);
                told.push((*of, standing));
            }
        }
        told
    }

    /// A replica that acknowledgements no longer wait for is told of anew.
    pub fn forget_standing(&mut self, waited_for: &[Instance]) {
        for (of, link) in &mut self.0 {
            if !waited_for.contains(of) {
                link.told = None;
            }
        }
    }

    pub fn has(&self, of: Instance) -> bool {
        self.0.contains_key(&of)
    }
}

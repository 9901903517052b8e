//! How far the changes of a shard are as durable as configured: kept by the disk, and stored by the
//! replicas of the in-sync set. Replies wait for both.
//!
//! Invariant: with `min_replicas` no change is acknowledged before it lies in the memory of every
//! member of the set, and the set has so many members. The caller looks at the end of each turn in
//! which replicas may have stored something, and ticks the shard while that is not all.

use crate::ring_session::ReplicaPositions;
use remora_arena::Journal;
use remora_engine::Shard;
use remora_replica::InSyncSet;

/// See the module's text.
pub struct Acknowledging {
    /// The disk has the entries up to this one; without a limit if no reply waits for it.
    kept: u64,
    set: InSyncSet,
    asks_replicas: bool,
    /// What the replicas had at the last look.
    replicas: Vec<ReplicaPositions>,
}

impl Acknowledging {
    /// For a shard whose changes so far are as durable as configured. `awaits_disk`: replies wait
    /// for what [`Acknowledging::set_kept`] says.
    pub fn new<J: Journal>(shard: &mut Shard<J>, min_replicas: usize, awaits_disk: bool) -> Self {
        let kept = if awaits_disk { shard.durable_sequence() } else { u64::MAX };
        let set = InSyncSet::new(min_replicas, shard.last_sequence());
        let of = Self { kept, set, asks_replicas: min_replicas > 0, replicas: Vec::new() };
        of.tell(shard);
        of
    }

    /// The disk has the entries up to this one.
    pub fn set_kept<J: Journal>(&mut self, shard: &mut Shard<J>, kept: u64) {
        if self.kept != u64::MAX {
            self.kept = self.kept.max(kept);
            self.tell(shard);
        }
    }

    /// Looks at what the replicas have stored. Whether more has become durable: replies that wait
    /// for it may leave.
    pub fn look<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        replicas: impl Iterator<Item = ReplicaPositions>,
        now_ms: u64,
    ) -> bool {
        self.replicas.clear();
        self.replicas.extend(replicas);
        let following = || self.replicas.iter().filter_map(|of| Some((of.session, of.stored?)));
        self.set.retain(|session| following().any(|(of, _)| of == session));
        following().for_each(|(session, stored)| self.set.stored(session, stored));
        if shard.is_applying() {
            // The primary of this shard has acknowledged what it applies.
            self.set.begin_at(shard.last_sequence());
        }
        self.set.tick(shard.last_sequence(), now_ms);
        let before = shard.durable_sequence();
        self.tell(shard);
        shard.durable_sequence() > before
    }

    /// Whether a look may find something although no replica is connected.
    #[inline]
    pub fn is_awake(&self) -> bool {
        self.asks_replicas || self.set.followers() > 0
    }

    /// Whether time may change something.
    #[inline]
    pub fn wants_ticks(&self) -> bool {
        self.set.wants_ticks()
    }

    /// The in-sync set.
    pub fn set(&self) -> &InSyncSet {
        &self.set
    }

    /// Replicas that have this entry on their disks.
    pub fn count_durable(&self, sequence: u64) -> usize {
        self.replicas.iter().filter(|of| of.durable >= sequence).count()
    }

    fn tell<J: Journal>(&self, shard: &mut Shard<J>) {
        shard.set_durable(self.kept.min(self.set.replicated()));
        shard.set_has_replicas(self.set.may_change());
    }
}

//! How far the changes of a shard are as durable as configured: kept by the disk, and stored by the
//! replicas of the in-sync set. Replies wait for both.
//!
//! Invariant: with `min_replicas` no change is acknowledged before it lies in the memory of every
//! member of the set, and the set has so many members. The caller looks at the end of each turn in
//! which replicas may have stored something, and ticks the shard while that is not all.
//!
//! A replica that has come back counts once, by its newest session.

use crate::ring_session::ReplicaPositions;
use remora_arena::Journal;
use remora_engine::{ReplicaMarks, Shard};
use remora_layout::limits::MAX_COUNTED_REPLICAS;
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
            // A position beyond the end of the log says nothing of the entries that come.
            self.kept = self.kept.max(kept.min(shard.last_sequence()));
            self.tell(shard);
        }
    }

    /// Looks at what the replicas have stored, at this time of a monotonic clock. Whether more has
    /// become durable: replies that wait for it may leave.
    pub fn look<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        replicas: impl Iterator<Item = ReplicaPositions>,
        now_ms: u64,
    ) -> bool {
        self.replicas.clear();
        self.replicas.extend(replicas.take(MAX_COUNTED_REPLICAS));
        keep_newest(&mut self.replicas);
        let following = || self.replicas.iter().filter_map(|of| Some((of.session, of.stored?)));
        self.set.retain(|session| following().any(|(of, _)| of == session));
        following().for_each(|(session, stored)| self.set.stored(session, stored));
        shard.set_replicas(
            self.replicas
                .iter()
                .filter_map(|of| Some(ReplicaMarks { stored: of.stored?, durable: of.durable })),
        );
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

    fn tell<J: Journal>(&self, shard: &mut Shard<J>) {
        shard.set_durable(self.kept.min(self.set.replicated()));
        shard.set_has_replicas(self.set.may_change());
    }
}

/// Leaves out the former sessions of a replica that has another one.
fn keep_newest(replicas: &mut Vec<ReplicaPositions>) {
    for at in (0..replicas.len()).rev() {
        let of = replicas[at];
        let is_former = |other: &ReplicaPositions| {
            of.replica != 0 && other.replica == of.replica && other.session > of.session
        };
        if replicas.iter().any(is_former) {
            replicas.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peer;
    use crate::ring_session::{FeedCounts, ReplicaState};
    use remora_arena::{NoJournal, Owner};
    use remora_engine::{Durability, Now, ShardOptions};
    use remora_layout::limits::IN_SYNC_LOOK_MS;
    use remora_protocol::{Command, Condition, Expiry};

    fn positions(session: u64, replica: u32, stored: u64) -> ReplicaPositions {
        let (peer, state) = (Peer::Local, ReplicaState::Follows);
        let (port, durable, applied) = (0, 0, 0);
        let stored = Some(stored);
        let counts = FeedCounts::default();
        ReplicaPositions { session, replica, peer, port, stored, durable, applied, state, counts }
    }

    fn shard() -> Shard<NoJournal> {
        let options = ShardOptions { durability: Durability::Told, ..ShardOptions::default() };
        Shard::new(Owner::heap(8 << 20, NoJournal), options)
    }

    fn set(shard: &mut Shard<NoJournal>) {
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let set = Command::Set { key: b"key", value: b"1", condition, expiry, get: false };
        let hash = shard.hash(b"key");
        shard.execute(&set, hash, Now::default());
    }

    #[test]
    fn both_the_disk_and_the_replicas_are_waited_for() {
        let mut shard = shard();
        let mut of = Acknowledging::new(&mut shard, 1, true);
        of.look(&mut shard, [positions(1, 7, 0)].into_iter(), 1000);
        for _ in 0..3 {
            set(&mut shard);
        }
        assert!(!of.look(&mut shard, [positions(1, 7, 2)].into_iter(), 1001));
        assert_eq!(shard.durable_sequence(), 0, "the disk has nothing");
        of.set_kept(&mut shard, 1);
        assert_eq!(shard.durable_sequence(), 1);
        of.set_kept(&mut shard, 3);
        assert_eq!(shard.durable_sequence(), 2, "the replica lacks one");
        assert!(of.look(&mut shard, [positions(1, 7, 3)].into_iter(), 1002));
        assert_eq!(shard.durable_sequence(), 3);
    }

    #[test]
    fn a_replica_with_two_sessions_counts_once() {
        let mut shard = shard();
        let mut of = Acknowledging::new(&mut shard, 2, false);
        // The session before has not ended yet; both have stored all.
        let twice = [positions(1, 7, 0), positions(2, 7, 0)];
        of.look(&mut shard, twice.into_iter(), 1000);
        of.look(&mut shard, twice.into_iter(), 1000 + IN_SYNC_LOOK_MS);
        assert_eq!(
            (of.set().members(), of.set().may_change(), shard.count_stored(0)),
            (1, false, 1)
        );
        of.look(&mut shard, twice.into_iter().chain([positions(3, 8, 0)]), 1100);
        assert_eq!((of.set().members(), of.set().may_change()), (2, true));
    }
}

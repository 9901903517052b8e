//! How far the changes of a shard are as durable as configured: kept by the disk, and stored by the
//! replicas of the in-sync set. Replies wait for both.
//!
//! Invariant: with `min_replicas` no change is acknowledged before it lies in the memory of every
//! member of the set, and the set has so many members. The caller looks at the end of each turn in
//! which replicas may have stored something, and ticks the shard while that is not all.
//!
//! A replica that has come back counts once, by its newest session.

use crate::joint_gate::JointGate;
use crate::ring_session::ReplicaPositions;
use remora_arena::Journal;
use remora_engine::{ReplicaMarks, Shard};
use remora_layout::limits::MAX_COUNTED_REPLICAS;
use remora_replica::{InSyncSet, Membership, Standing};
use std::sync::Arc;

/// See the module's text.
pub struct Acknowledging {
    /// The disk has the entries up to this one; without a limit if no reply waits for it.
    kept: u64,
    set: InSyncSet,
    /// Parts of changes of two shards; `None` if the server has one.
    gate: Option<JointGate>,
    asks_replicas: bool,
    /// What the replicas had at the last look.
    replicas: Vec<ReplicaPositions>,
    /// What the thread of the cluster has said.
    requirement: Arc<Requirement>,
}

/// What acknowledgements of a server of a cluster need, as the thread of the cluster says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Requirement {
    /// Grows with each; 0 before the first.
    pub number: u64,
    /// Who has to have stored a change.
    pub membership: Membership,
    /// How many of the members there have to be.
    pub min_replicas: usize,
    /// Whether changes are taken. Those that were are acknowledged.
    pub takes_changes: bool,
}

/// What a shard of a server of a cluster says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShardReport {
    /// The number of the requirement that the shard goes by.
    pub requirement: u64,
    /// The key of its log.
    pub key: u64,
    /// The epoch of its log, the last entry of that, and the last one that is acknowledged.
    pub epoch: u64,
    /// See [`ShardReport::epoch`].
    pub last: u64,
    /// See [`ShardReport::epoch`].
    pub durable: u64,
    /// Where each replica stands, by the incarnation of its process.
    pub standings: Vec<(u64, Standing)>,
}

impl Acknowledging {
    /// For a shard whose changes so far are as durable as configured. `awaits_disk`: replies wait
    /// for what [`Acknowledging::set_kept`] says. `is_clustered`: they wait for those replicas that
    /// [`Acknowledging::require`] names, and for all until it does.
    pub fn new<J: Journal>(
        shard: &mut Shard<J>,
        (min_replicas, is_clustered): (usize, bool),
        awaits_disk: bool,
    ) -> Self {
        let kept = if awaits_disk { shard.durable_sequence() } else { u64::MAX };
        let mut set = InSyncSet::new(min_replicas, shard.last_sequence());
        let membership = match is_clustered {
            true => Membership::Unknown,
            false => Membership::KeepsUp,
        };
        set.require(membership.clone(), min_replicas);
        let takes_changes = true;
        let requirement =
            Arc::new(Requirement { number: 0, membership, min_replicas, takes_changes });
        let asks_replicas = min_replicas > 0 || is_clustered;
        let (gate, replicas) = (None, Vec::new());
        let mut of = Self { kept, set, gate, asks_replicas, replicas, requirement };
        of.tell(shard);
        of
    }

    /// What an acknowledgement needs from now on, in a cluster.
    pub fn require<J: Journal>(&mut self, shard: &mut Shard<J>, requirement: Arc<Requirement>) {
        self.set.require(requirement.membership.clone(), requirement.min_replicas);
        self.requirement = requirement;
        self.tell(shard);
    }

    /// What the thread of the cluster wants to know.
    pub fn report<J: Journal>(&self, shard: &Shard<J>, report: &mut ShardReport) {
        report.requirement = self.requirement.number;
        report.key = shard.log().key().to_word();
        report.epoch = shard.log().epoch();
        report.last = shard.last_sequence();
        report.durable = shard.durable_sequence();
        report.standings.clear();
        report.standings.extend(self.set.standings());
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
    /// become durable: replies that wait for it may leave. Nothing has, at a primary of a cluster that
    /// may not acknowledge now.
    pub fn look<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        replicas: impl Iterator<Item = ReplicaPositions>,
        (now_ms, may_acknowledge): (u64, bool),
    ) -> bool {
        self.replicas.clear();
        self.replicas.extend(replicas.take(MAX_COUNTED_REPLICAS));
        keep_newest(&mut self.replicas);
        let following = || {
            let with_log = self.replicas.iter().filter_map(|of| Some((of, of.stored?)));
            with_log.map(|(of, stored)| ((of.session, of.replica), stored))
        };
        self.set.retain(|session| following().any(|((of, _), _)| of == session));
        following().for_each(|(of, stored)| self.set.stored(of, stored));
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
        if !may_acknowledge {
            // A primary without its lease: another one may lead. It knows all the same who has what.
            shard.set_has_replicas(false);
            return false;
        }
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

    /// Changes of two shards pass this gate.
    pub fn passes(&mut self, gate: JointGate) {
        self.gate = Some(gate);
    }

    /// See [`Acknowledging::passes`].
    pub fn gate(&mut self) -> Option<&mut JointGate> {
        self.gate.as_mut()
    }

    /// Whether a change waits for its part at another shard.
    pub fn waits_for_parts(&self) -> bool {
        self.gate.as_ref().is_some_and(JointGate::waits)
    }

    /// The other shard's part may be durable. Whether more has become durable here.
    pub fn look_at_parts<J: Journal>(&mut self, shard: &mut Shard<J>) -> bool {
        let before = shard.durable_sequence();
        self.tell(shard);
        shard.durable_sequence() > before
    }

    fn tell<J: Journal>(&mut self, shard: &mut Shard<J>) {
        let reached = self.kept.min(self.set.replicated()).min(shard.last_sequence());
        let gate = self.gate.as_mut().filter(|_| !shard.is_applying());
        shard.set_durable(gate.map_or(reached, |gate| gate.pass(reached)));
        shard.set_has_replicas(self.requirement.takes_changes && self.set.may_change());
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

    fn positions(session: u64, replica: u64, stored: u64) -> ReplicaPositions {
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
        let mut of = Acknowledging::new(&mut shard, (1, false), true);
        of.look(&mut shard, [positions(1, 7, 0)].into_iter(), (1000, true));
        for _ in 0..3 {
            set(&mut shard);
        }
        assert!(!of.look(&mut shard, [positions(1, 7, 2)].into_iter(), (1001, true)));
        assert_eq!(shard.durable_sequence(), 0, "the disk has nothing");
        of.set_kept(&mut shard, 1);
        assert_eq!(shard.durable_sequence(), 1);
        of.set_kept(&mut shard, 3);
        assert_eq!(shard.durable_sequence(), 2, "the replica lacks one");
        assert!(of.look(&mut shard, [positions(1, 7, 3)].into_iter(), (1002, true)));
        assert_eq!(shard.durable_sequence(), 3);
    }

    #[test]
    fn a_replica_with_two_sessions_counts_once() {
        let mut shard = shard();
        let mut of = Acknowledging::new(&mut shard, (2, false), false);
        // The session before has not ended yet; both have stored all.
        let twice = [positions(1, 7, 0), positions(2, 7, 0)];
        of.look(&mut shard, twice.into_iter(), (1000, true));
        of.look(&mut shard, twice.into_iter(), (1000 + IN_SYNC_LOOK_MS, true));
        assert_eq!(
            (of.set().members(), of.set().may_change(), shard.count_stored(0)),
            (1, false, 1)
        );
        of.look(&mut shard, twice.into_iter().chain([positions(3, 8, 0)]), (1100, true));
        assert_eq!((of.set().members(), of.set().may_change()), (2, true));
    }
}

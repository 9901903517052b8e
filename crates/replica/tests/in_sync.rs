//! The in-sync set against an oracle that knows what lies in the memory of each replica.

use remora_layout::limits::{IN_SYNC_LOOK_MS, IN_SYNC_STALL_MS, IN_SYNC_TIMEOUT_MS};
use remora_replica::{InSyncSet, Membership, RecordedSet, Standing};
use remora_testing::Random;
use std::collections::BTreeMap;

/// What is true, whatever the set believes.
#[derive(Default)]
struct Oracle {
    /// By session, the entries that lie in the memory of the replica.
    memories: BTreeMap<u64, u64>,
    /// By sequence, when the entry was appended; from 1 on.
    appended_ms: Vec<u64>,
    /// Acknowledged so far.
    acknowledged: u64,
}

struct World {
    set: InSyncSet,
    oracle: Oracle,
    min_replicas: usize,
    now_ms: u64,
    sessions: u64,
    random: Random,
    left: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let min_replicas = random.within(1..4);
        let set = InSyncSet::new(min_replicas, 0);
        let oracle = Oracle::default();
        Self { set, oracle, min_replicas, now_ms: 10_000, sessions: 0, random, left: 0 }
    }

    fn last(&self) -> u64 {
        self.oracle.appended_ms.len() as u64
    }

    fn members(&self) -> Vec<u64> {
        let is_member = |of: &u64| self.set.standing(*of) == Some(Standing::InSync);
        self.oracle.memories.keys().copied().filter(is_member).collect()
    }

    /// The set looks, and what it says is compared with what is true.
    fn tick(&mut self) {
        let before = self.members();
        let moved = self.set.tick(self.last(), self.now_ms);
        let (members, replicated) = (self.members(), self.set.replicated());
        assert_eq!(moved, replicated > self.oracle.acknowledged);
        assert!(replicated >= self.oracle.acknowledged, "it never goes back");
        assert!(replicated <= self.last());
        if moved {
            assert!(members.len() >= self.min_replicas, "nothing without enough members");
        }
        self.oracle.acknowledged = replicated;
        for member in &members {
            let memory = self.oracle.memories[member];
            assert!(memory >= replicated, "member {member} has {memory} of {replicated}");
            let missing = self.oracle.appended_ms.get(memory as usize);
            let slack = IN_SYNC_TIMEOUT_MS + 2 * IN_SYNC_LOOK_MS + IN_SYNC_STALL_MS;
            assert!(missing.is_none_or(|at| self.now_ms <= at + slack), "a laggard is a member");
        }
        for gone in before.iter().filter(|of| !members.contains(of)) {
            // A laggard: who has lost something was no member by then.
            let memory = self.oracle.memories[gone];
            let missing = self.oracle.appended_ms.get(memory as usize);
            let lacks = missing.is_some_and(|at| self.now_ms >= at + IN_SYNC_TIMEOUT_MS);
            assert!(lacks, "{gone} has left, and lacks nothing old");
            self.left += 1;
        }
        assert_eq!(self.set.may_change(), members.len() >= self.min_replicas);
        assert_eq!(self.set.members(), members.len());
        let has_it = |of: &&u64| **of >= replicated;
        let stored = self.oracle.memories.values().filter(has_it).count();
        assert_eq!(self.set.count_stored(replicated), stored);
    }

    /// A WRITE has completed: up to that entry the memory has them all.
    fn store(&mut self, session: u64, sequence: u64) {
        self.oracle.memories.insert(session, sequence);
        self.set.stored((session, session), sequence);
    }

    fn some_session(&mut self) -> Option<u64> {
        let sessions: Vec<u64> = self.oracle.memories.keys().copied().collect();
        (!sessions.is_empty()).then(|| sessions[self.random.below(sessions.len())])
    }

    /// One replica of six stores nothing for long.
    fn is_slow(&self, session: u64) -> bool {
        session.is_multiple_of(6) && !(self.now_ms / 4000).is_multiple_of(2)
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0 if self.oracle.memories.len() < 5 => {
                self.sessions += 1;
                let begins = self.random.below(self.last() + 1);
                self.store(self.sessions, begins);
            }
            1 if self.random.one_in(8) => {
                if let Some(session) = self.some_session() {
                    self.oracle.memories.remove(&session);
                    match self.random.one_in(2) {
                        true => self.set.leave(session),
                        false => self.set.retain(|of| of != session),
                    }
                }
            }
            1 if self.random.one_in(4) => {
                // It has lost what it had, and its session goes on.
                if let Some(session) = self.some_session() {
                    let less = self.random.below(self.oracle.memories[&session] + 1);
                    self.oracle.memories.remove(&session);
                    self.store(session, less);
                }
            }
            2..7 => self.oracle.appended_ms.push(self.now_ms),
            7..14 => {
                if let Some(session) = self.some_session()
                    && !self.is_slow(session)
                {
                    let from = self.oracle.memories[&session];
                    let more = self.random.below(self.last() - from + 1);
                    let all = self.random.one_in(2);
                    self.store(session, if all { self.last() } else { from + more });
                }
            }
            _ => {
                self.now_ms += self.random.below(60u64);
                self.tick();
            }
        }
    }

    /// All replicas keep up again.
    fn settle(&mut self) {
        while self.oracle.memories.len() < self.min_replicas {
            self.sessions += 1;
            self.store(self.sessions, 0);
        }
        for _ in 0..2 {
            let sessions: Vec<u64> = self.oracle.memories.keys().copied().collect();
            sessions.into_iter().for_each(|of| self.store(of, self.last()));
            self.now_ms += IN_SYNC_LOOK_MS;
            self.tick();
        }
        assert_eq!(self.set.replicated(), self.last());
        assert_eq!(self.members().len(), self.oracle.memories.len(), "all are members again");
        assert!(!self.set.wants_ticks());
    }
}

#[test]
fn every_member_has_every_acknowledged_entry_whoever_lags_leaves_or_comes_back() {
    let (mut left, mut acknowledged) = (0, 0);
    for seed in 0..300 {
        let mut world = World::new(seed);
        for _ in 0..3 {
            (0..1500).for_each(|_| world.step());
            acknowledged += world.oracle.acknowledged;
            world.settle();
        }
        left += world.left;
        assert!(world.set.laggards() <= world.left);
    }
    assert!(left > 300 && acknowledged > 100_000, "{left} left, {acknowledged} acknowledged");
}

/// A set of one that is asked for, and two replicas that have stored ten entries.
fn pair() -> InSyncSet {
    let mut set = InSyncSet::new(1, 0);
    set.stored((1, 1), 10);
    set.stored((2, 2), 10);
    set.tick(10, 1000);
    assert_eq!((set.members(), set.replicated()), (2, 10));
    set
}

#[test]
fn a_laggard_holds_an_entry_up_for_the_timeout_and_no_longer() {
    let mut set = pair();
    set.stored((1, 1), 11);
    let mut now_ms = 1001;
    while set.replicated() == 10 {
        assert_eq!(set.members(), 2, "{now_ms}");
        now_ms += 10;
        set.tick(11, now_ms);
    }
    let took = now_ms - 1001;
    let most = IN_SYNC_TIMEOUT_MS + IN_SYNC_LOOK_MS + 10;
    assert!((IN_SYNC_TIMEOUT_MS..=most).contains(&took), "{took} ms");
    assert_eq!((set.members(), set.replicated(), set.laggards()), (1, 11, 1));
    assert_eq!(set.standing(2), Some(Standing::Behind));
    // It is back by itself, once it has stored all.
    set.stored((2, 2), 11);
    set.tick(11, now_ms + 1);
    assert_eq!((set.members(), set.standing(2)), (2, Some(Standing::InSync)));
}

#[test]
fn a_replica_comes_back_under_load_although_it_never_has_the_very_last_entry() {
    let mut set = pair();
    let (mut last, mut now_ms) = (10, 1000);
    let mut went = |set: &mut InSyncSet, lag: u64, until_ms: u64| {
        while now_ms < until_ms {
            (last, now_ms) = (last + 100, now_ms + 10);
            set.stored((1, 1), last);
            set.stored((2, 2), last.saturating_sub(lag).max(10));
            set.tick(last, now_ms);
        }
    };
    went(&mut set, u64::MAX, 3000);
    assert_eq!(set.standing(2), Some(Standing::Behind));
    // 200 entries are 20 ms: it keeps up, and never has the last ones.
    went(&mut set, 200, 3100);
    assert_eq!(set.standing(2), Some(Standing::InSync));
    assert_eq!(set.members(), 2);
}

#[test]
fn nothing_is_acknowledged_while_a_joining_replica_lacks_what_is() {
    let mut set = pair();
    set.leave(2);
    set.stored((1, 1), 20);
    assert!(set.tick(20, 1010));
    // It has what there was a look ago, and lacks some of what is replicated.
    set.stored((2, 2), 15);
    set.stored((1, 1), 30);
    assert!(!set.tick(30, 1020));
    assert_eq!((set.standing(2), set.replicated()), (Some(Standing::Joining), 20));
    set.stored((2, 2), 25);
    assert!(set.tick(30, 1021));
    assert_eq!((set.standing(2), set.replicated()), (Some(Standing::InSync), 25));
}

#[test]
fn too_few_members_take_no_changes_and_what_is_pending_waits_for_their_return() {
    let mut set = InSyncSet::new(2, 0);
    assert!(!set.may_change());
    set.stored((1, 1), 0);
    set.tick(0, 1000);
    assert_eq!((set.may_change(), set.replicated()), (false, 0));
    set.stored((2, 2), 0);
    set.tick(0, 1001);
    assert!(set.may_change());
    set.leave(2);
    set.stored((1, 1), 5);
    assert!(!set.tick(5, 1002));
    assert_eq!((set.may_change(), set.replicated()), (false, 0));
    set.stored((3, 3), 5);
    assert!(set.tick(5, 1003));
    assert_eq!(set.replicated(), 5);
}

#[test]
fn a_shard_that_stood_still_does_not_take_its_replicas_for_laggards() {
    let mut set = pair();
    set.stored((1, 1), 11);
    set.tick(11, 1010);
    // The process was stopped for a minute: what the replicas said meanwhile is not taken yet.
    set.tick(11, 61_010);
    assert_eq!(set.members(), 2);
    set.stored((2, 2), 11);
    assert!(set.tick(11, 61_011));
    assert_eq!((set.members(), set.replicated()), (2, 11));
}

#[test]
fn a_shard_that_is_always_late_gives_a_laggard_up_too() {
    let mut set = pair();
    set.stored((1, 1), 11);
    let mut now_ms = 1010;
    while set.members() == 2 {
        now_ms += 2 * IN_SYNC_STALL_MS;
        set.tick(11, now_ms);
        assert!(now_ms < 1010 + IN_SYNC_TIMEOUT_MS + 6 * IN_SYNC_STALL_MS, "{now_ms}");
    }
    assert_eq!(set.replicated(), 11);
}

#[test]
fn without_a_minimum_there_is_no_limit() {
    let mut set = InSyncSet::new(0, 0);
    assert_eq!((set.replicated(), set.may_change()), (u64::MAX, true));
    set.stored((1, 1), 3);
    set.tick(7, 1000);
    assert_eq!((set.replicated(), set.count_stored(3), set.count_stored(4)), (u64::MAX, 1, 0));
}

fn recorded(members: &[u64], proposed: &[u64]) -> Membership {
    Membership::Recorded(RecordedSet { members: members.into(), proposed: proposed.into() })
}

/// A replica of the record may become primary at any time: it is waited for until the record is
/// without it, and one that keeps up counts once it is recorded.
#[test]
fn a_recorded_set_is_waited_for_until_the_record_changes() {
    let mut set = InSyncSet::new(1, 10);
    set.require(Membership::Unknown, 1);
    set.stored((1, 1), 10);
    set.tick(10, 1000);
    set.tick(10, 1000 + IN_SYNC_LOOK_MS);
    assert_eq!(set.standing(1), Some(Standing::InSync));
    assert_eq!(set.standings().next(), Some((1, Standing::Joining)), "nothing waits for it");
    assert_eq!((set.may_change(), set.members()), (false, 0), "nobody has said who counts");
    set.require(recorded(&[], &[1]), 1);
    set.tick(10, 1100);
    assert_eq!(set.standings().next(), Some((1, Standing::InSync)));
    assert!(!set.may_change(), "it is not recorded yet");
    set.require(recorded(&[1], &[]), 1);
    set.stored((1, 1), 11);
    assert!(set.tick(11, 1200) && set.may_change());
    assert_eq!(set.replicated(), 11);
    // It lags, and later it is gone.
    for now_ms in (1200..1200 + 3 * IN_SYNC_TIMEOUT_MS).step_by(IN_SYNC_LOOK_MS as usize) {
        assert!(!set.tick(12, now_ms));
    }
    assert_eq!(set.standing(1), Some(Standing::Behind));
    set.leave(1);
    set.stored((2, 2), 12);
    for now_ms in (5000..5200).step_by(IN_SYNC_LOOK_MS as usize) {
        assert!(!set.tick(12, now_ms), "a new one does not take its place");
    }
    assert_eq!(set.replicated(), 11);
    set.require(recorded(&[2], &[]), 1);
    assert!(set.tick(12, 5300));
    assert_eq!(set.replicated(), 12);
}

#[test]
fn a_primary_that_is_alone_by_its_record_acknowledges_by_itself() {
    let mut set = InSyncSet::new(0, 10);
    set.require(Membership::Unknown, 0);
    assert!(!set.tick(11, 1000) && !set.may_change());
    assert_eq!(set.replicated(), 10);
    set.require(recorded(&[], &[]), 0);
    assert!(set.tick(11, 1010) && set.may_change());
    set.require(recorded(&[1], &[]), 0);
    assert!(!set.tick(12, 1020), "the record has a replica, which does not follow");
    assert_eq!(set.replicated(), 11);
}

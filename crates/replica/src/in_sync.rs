//! The in-sync set of one shard: the replicas that have every acknowledged entry.
//!
//! ```text
//!                 keeps up, and has stored what is replicated
//!             .------------------------------------------------.
//!             |                                                v
//!   join -> Behind --- keeps up ---> Joining --- has stored --> InSync
//!             ^                         |    what is replicated    |
//!             '----- has not stored an entry for the timeout -----'
//! ```
//! An entry is *replicated* once every member has stored it, and there are enough members. A replica
//! that is joining holds that position up, as members do, and does not count as one.
//!
//! Invariants:
//! * every member has stored every replicated entry: a replica becomes a member only then, and the
//!   position moves only to what all members have stored;
//! * the position never goes back;
//! * no replica holds it up for longer than [`IN_SYNC_TIMEOUT_MS`] and two looks, and
//!   [`IN_SYNC_STALL_MS`] more if the shard itself stood still.
//!
//! Without a coordinator the set is of this shard and of this incarnation of it: no other server knows it,
//! and nothing decides by it which replica becomes a primary. In a cluster it is recorded
//! ([`Membership::Recorded`]): a replica of the record may become primary, so the position waits for each
//! of them, whether it lags or is gone, until the record is without it; and only they count as members.

use remora_layout::limits::{IN_SYNC_LOOK_MS, IN_SYNC_STALL_MS, IN_SYNC_TIMEOUT_MS};
use std::collections::VecDeque;

/// Where a replica stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It lags, and nothing waits for it.
    Behind,
    /// It keeps up, and lacks some of what is replicated: that does not grow until it has it.
    Joining,
    /// It has every replicated entry: a member.
    InSync,
}

/// Who is in the set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Membership {
    /// The replicas that keep up: there is no coordinator.
    #[default]
    KeepsUp,
    /// The coordinator has not said: nothing is replicated, and no change is taken.
    Unknown,
    /// What it has recorded.
    Recorded(RecordedSet),
}

/// A recorded in-sync set, by the incarnations of the replicas' processes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordedSet {
    /// The members.
    pub members: Vec<u64>,
    /// Those that are about to be recorded, or may have been: they are waited for as members are, and
    /// do not count.
    pub proposed: Vec<u64>,
}

impl RecordedSet {
    fn waits_for(&self, replica: u64) -> bool {
        self.members.contains(&replica) || self.proposed.contains(&replica)
    }
}

/// A replica that follows the log.
#[derive(Clone, Copy, Debug)]
struct ReplicaState {
    session: u64,
    /// The incarnation of its process.
    replica: u64,
    /// The last entry that it has stored.
    stored: u64,
    standing: Standing,
}

/// The log's end as it was at some time.
#[derive(Clone, Copy)]
struct Look {
    at_ms: u64,
    last: u64,
}

/// See the module's text.
pub struct InSyncSet {
    min_replicas: usize,
    membership: Membership,
    followers: Vec<ReplicaState>,
    /// The last entry of the log.
    last: u64,
    replicated: u64,
    /// The log's end of late, oldest first: one look each [`IN_SYNC_LOOK_MS`], none much older than
    /// the timeout.
    looks: VecDeque<Look>,
    /// The log's end at the newest look that was forgotten.
    looked: u64,
    ticked_ms: u64,
    /// No replica leaves before this.
    lenient_until_ms: u64,
    /// Members that left because they lagged.
    laggards: u64,
}

impl InSyncSet {
    /// Without replicas. The entries up to `last` count as replicated.
    pub fn new(min_replicas: usize, last: u64) -> Self {
        Self {
            min_replicas,
            membership: Membership::default(),
            followers: Vec::new(),
            last,
            replicated: last,
            looks: VecDeque::new(),
            looked: last,
            ticked_ms: 0,
            lenient_until_ms: 0,
            laggards: 0,
        }
    }

    /// Who is in the set from now on, and how many of them there have to be.
    pub fn require(&mut self, membership: Membership, min_replicas: usize) {
        (self.membership, self.min_replicas) = (membership, min_replicas);
    }

    /// Where each replica that follows stands, by the number of its process. In a cluster one that
    /// is not waited for, whatever it stores, is no member: it is joining at most.
    pub fn standings(&self) -> impl Iterator<Item = (u64, Standing)> {
        let is_waited_for = |replica| match &self.membership {
            Membership::KeepsUp => true,
            Membership::Unknown => false,
            Membership::Recorded(of) => of.waits_for(replica),
        };
        self.followers.iter().map(move |of| match of.standing {
            Standing::InSync if !is_waited_for(of.replica) => (of.replica, Standing::Joining),
            standing => (of.replica, standing),
        })
    }

    /// The replica of this session, with this number of its process, follows the log, and has stored the
    /// entries up to this one. One that has less than before has begun anew.
    pub fn stored(&mut self, (session, replica): (u64, u64), sequence: u64) {
        match self.followers.iter_mut().find(|of| of.session == session) {
            Some(of) if sequence < of.stored => {
                (of.stored, of.standing) = (sequence, Standing::Behind);
            }
            Some(of) => of.stored = sequence,
            None => {
                let standing = Standing::Behind;
                let of = ReplicaState { session, replica, stored: sequence, standing };
                self.followers.push(of);
            }
        }
    }

    /// The replica of this session does not follow any more.
    pub fn leave(&mut self, session: u64) {
        self.followers.retain(|of| of.session != session);
    }

    /// Only these sessions still follow.
    pub fn retain(&mut self, follows: impl Fn(u64) -> bool) {
        self.followers.retain(|of| follows(of.session));
    }

    /// Looks at what was stored, at this time of a monotonic clock, with the log ending so. Whether the
    /// replicated position has moved. The caller first passes on what it knows of every replica: one
    /// whose word was not taken yet is not to be taken for a laggard.
    pub fn tick(&mut self, last: u64, now_ms: u64) -> bool {
        self.last = self.last.max(last);
        let stood_still = now_ms.saturating_sub(self.ticked_ms) > IN_SYNC_STALL_MS;
        if stood_still && now_ms >= self.lenient_until_ms + IN_SYNC_TIMEOUT_MS {
            // It was the shard that did not look: its replicas had no chance to be seen. A shard that
            // is always late is lenient only now and then.
            self.lenient_until_ms = now_ms + IN_SYNC_STALL_MS;
        }
        self.ticked_ms = self.ticked_ms.max(now_ms);
        self.leave_laggards();
        self.admit();
        self.look();
        self.advance()
    }

    fn leave_laggards(&mut self) {
        while self.ticked_ms >= self.lenient_until_ms
            && let Some(&Look { at_ms, last }) = self.looks.front()
            && at_ms + IN_SYNC_TIMEOUT_MS <= self.ticked_ms
        {
            self.looks.pop_front();
            self.looked = last;
            for of in &mut self.followers {
                if of.stored < last && of.standing != Standing::Behind {
                    self.laggards += u64::from(of.standing == Standing::InSync);
                    of.standing = Standing::Behind;
                }
            }
        }
    }

    /// Lets in those that keep up: they have stored what there was a look ago.
    fn admit(&mut self) {
        let (now_ms, replicated) = (self.ticked_ms, self.replicated);
        let before = |look: &&Look| look.at_ms + IN_SYNC_LOOK_MS <= now_ms;
        let a_look_ago = self.looks.iter().rev().find(before).map_or(self.looked, |of| of.last);
        for of in &mut self.followers {
            of.standing = match of.standing {
                Standing::InSync => Standing::InSync,
                Standing::Behind if of.stored < a_look_ago => Standing::Behind,
                Standing::Behind | Standing::Joining if of.stored < replicated => Standing::Joining,
                Standing::Behind | Standing::Joining => Standing::InSync,
            };
        }
    }

    /// Notes the log's end, now and then.
    fn look(&mut self) {
        let newest = self.looks.back().copied();
        let is_due = newest.is_none_or(|of| of.at_ms + IN_SYNC_LOOK_MS <= self.ticked_ms);
        if is_due && self.last > newest.map_or(self.looked, |of| of.last) {
            self.looks.push_back(Look { at_ms: self.ticked_ms, last: self.last });
        }
    }

    fn advance(&mut self) -> bool {
        if !self.may_change() {
            return false;
        }
        let waited_for = |of: &&ReplicaState| {
            of.standing != Standing::Behind || self.waits_for_recorded(of.replica)
        };
        let stored = self.followers.iter().filter(waited_for).map(|of| of.stored).min();
        let stored = match &self.membership {
            Membership::KeepsUp => stored,
            // A primary alone, as its record says, has all of itself.
            Membership::Recorded(_) if self.has_each_recorded() => stored.or(Some(self.last)),
            Membership::Recorded(_) | Membership::Unknown => None,
        };
        let Some(stored) = stored else { return false };
        let before = self.replicated;
        self.replicated = before.max(stored.min(self.last));
        self.replicated > before
    }

    fn waits_for_recorded(&self, replica: u64) -> bool {
        matches!(&self.membership, Membership::Recorded(of) if of.waits_for(replica))
    }

    /// Whether each replica of the record follows.
    fn has_each_recorded(&self) -> bool {
        let Membership::Recorded(of) = &self.membership else { return false };
        let follows = |replica: &u64| self.followers.iter().any(|of| of.replica == *replica);
        of.members.iter().chain(&of.proposed).all(follows)
    }

    /// The last entry that is replicated; without a limit if no replica is asked for.
    pub fn replicated(&self) -> u64 {
        match self.membership {
            Membership::KeepsUp if self.min_replicas == 0 => u64::MAX,
            _ => self.replicated,
        }
    }

    /// Whether changes may be taken: there are enough members.
    pub fn may_change(&self) -> bool {
        self.membership != Membership::Unknown && self.members() >= self.min_replicas
    }

    /// Members of the set.
    pub fn members(&self) -> usize {
        let counts = |of: &&ReplicaState| match &self.membership {
            Membership::KeepsUp => true,
            Membership::Unknown => false,
            Membership::Recorded(recorded) => recorded.members.contains(&of.replica),
        };
        let in_sync = |of: &&ReplicaState| of.standing == Standing::InSync;
        self.followers.iter().filter(in_sync).filter(counts).count()
    }

    /// Replicas that follow the log.
    pub fn followers(&self) -> usize {
        self.followers.len()
    }

    /// How the replica of this session stands.
    pub fn standing(&self, session: u64) -> Option<Standing> {
        let of = self.followers.iter().find(|of| of.session == session);
        of.map(|of| of.standing)
    }

    /// Replicas that have stored this entry, members or not.
    pub fn count_stored(&self, sequence: u64) -> usize {
        self.followers.iter().filter(|of| of.stored >= sequence).count()
    }

    /// Members that left because they lagged.
    pub fn laggards(&self) -> u64 {
        self.laggards
    }

    /// Whether time may change it: some replica has not stored all. The caller ticks it then.
    #[inline]
    pub fn wants_ticks(&self) -> bool {
        self.followers.iter().any(|of| of.stored < self.last || of.standing != Standing::InSync)
    }

    /// The log ends so, and all of it counts as replicated: the shard is a replica itself, and its
    /// primary has acknowledged it.
    pub fn begin_at(&mut self, last: u64) {
        self.last = self.last.max(last);
        self.replicated = self.replicated.max(last);
    }
}

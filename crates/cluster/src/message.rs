//! What members of a cluster send each other for failover. The server carries it; each message may be
//! lost, late, repeated or overtaken, and nothing is promised of it but that it is not changed.
//!
//! ```text
//!   watcher                   member of the in-sync set            primary
//!      ------ Withdraw ------------->
//!      <----- Withdrawn -------------
//!      ------ Begun ---------------->  (it leads)
//!      ------ HandOver ------------------------------------------->
//!      <----- Released --------------------------------------------
//!                                       <------- AskLease ---------
//!                                       -------- ConfirmLease ---->
//! ```

use crate::lease::LeaseAsk;
use crate::led_epoch::LedEpoch;
use crate::topology::GroupId;

/// How far the log of one shard is at a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position {
    /// The epoch of the last entry.
    pub epoch: u64,
    /// Its sequence; 0 before the first.
    pub sequence: u64,
    /// The last entry that is in the data of the member, and cannot be cut any more. At a replica that
    /// is mostly the commit position, at a primary the last entry.
    pub applied: u64,
}

/// One message. Its sender and its receiver are instances: one for another process of a member is
/// dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// From the watcher: take part in no epoch of the group below this one. It is one more than that
    /// which the topology of this version has.
    Withdraw {
        /// The group.
        group: GroupId,
        /// The epoch that is to begin.
        epoch: u64,
        /// The version of the topology by which the watcher asks.
        version: u64,
    },
    /// To the watcher: the sender has withdrawn the ring of every epoch below, and its log of each
    /// shard ends so.
    Withdrawn {
        /// The group.
        group: GroupId,
        /// The epoch that is to begin.
        epoch: u64,
        /// By shard.
        positions: Vec<Position>,
        /// What its directory says of the last epoch that a process of its server has led.
        led: Option<LedEpoch>,
    },
    /// From the watcher, to the primary of this epoch: give it up without a loss.
    HandOver {
        /// The group.
        group: GroupId,
        /// The epoch that is to end.
        epoch: u64,
    },
    /// To the watcher: the sender leads this epoch no more, nothing waits to be acknowledged, and no
    /// read lease of its clients lasts. It will not lead it again.
    Released {
        /// The group.
        group: GroupId,
        /// The epoch that it has led.
        epoch: u64,
        /// By shard.
        positions: Vec<Position>,
    },
    /// From the watcher, to a new primary: the epoch is recorded.
    Begun {
        /// The group.
        group: GroupId,
        /// The epoch that has begun.
        epoch: u64,
        /// The primary of the epoch before has released it: there is nothing to wait out.
        is_released: bool,
    },
    /// From the primary to those that could be promoted.
    AskLease(LeaseAsk),
    /// To the primary: the sender had not withdrawn the ring of that epoch.
    ConfirmLease(LeaseAsk),
}

/// Which of two logs of a group is further: by the epoch of the last entry of any shard, then by the
/// entries of all shards. Every log of the recorded in-sync set has each acknowledged entry; the
/// furthest also keeps what may have been.
pub fn rank(positions: &[Position]) -> (u64, u128) {
    let epoch = positions.iter().map(|of| of.epoch).max().unwrap_or(0);
    (epoch, positions.iter().map(|of| u128::from(of.sequence)).sum())
}

/// Whether a member can follow another one without a copy, by how their logs end: it has applied
/// nothing that the other has not received.
pub fn can_follow(replica: &[Position], primary: &[Position]) -> bool {
    let mut pairs = replica.iter().zip(primary);
    replica.len() == primary.len() && pairs.all(|(own, its)| own.applied <= its.sequence)
}

//! How far this server and the replicas that follow it are with the log.

use crate::shared::Shared;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Sums of sequences over all shards.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Offsets {
    /// What this server has of its own log, or has applied of its primary's.
    pub own: u64,
    /// At a primary, what each replica has applied, by incarnation.
    pub replicas: BTreeMap<u64, u64>,
}

impl Offsets {
    /// Some milliseconds old at most.
    pub fn of(shared: &Shared) -> Self {
        if let Some(following) = shared.roles.following() {
            let own = following.applied_total.load(Ordering::Relaxed);
            return Self { own, replicas: BTreeMap::new() };
        }
        Self {
            own: shared.shards.iter().map(|shard| shard.stats().last_sequence).sum(),
            replicas: applied(shared.shards.iter().map(|shard| {
                let positions = shard.replicas().into_iter();
                positions.map(|of| (of.session, of.replica, of.applied)).collect()
            })),
        }
    }
}

/// What each replica has applied of all shards, by the sessions at each shard: a session, its replica, and what
/// it has applied. A replica that has come back has two sessions until the first ends: the later one counts.
fn applied(shards: impl Iterator<Item = Vec<(u64, u64, u64)>>) -> BTreeMap<u64, u64> {
    let mut sums = BTreeMap::new();
    for mut of_shard in shards {
        of_shard.sort_by_key(|(session, ..)| *session);
        let last: BTreeMap<u64, u64> =
            of_shard.into_iter().map(|(_, replica, applied)| (replica, applied)).collect();
        for (replica, applied) in last {
            *sums.entry(replica).or_default() += applied;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_session_of_a_replica_counts_in_each_shard() {
        let first = vec![(9, 7, 3), (4, 7, 50), (5, 8, 20)];
        let second = vec![(4, 7, 60), (5, 8, 30)];
        let sums = applied([first, second].into_iter());
        assert_eq!(sums, BTreeMap::from([(7, 63), (8, 50)]));
    }
}

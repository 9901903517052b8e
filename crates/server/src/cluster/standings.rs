//! How the replicas of a primary stand, by the word of all its shards.

use crate::acknowledging::ShardReport;
use remora_cluster::ReplicaStanding;
use remora_cluster::topology::Instance;
use remora_replica::Standing;

/// How a replica stands: the least of what the shards say. That it is in sync counts only from shards that
/// go by this requirement, as only they wait for it.
pub fn standing_of(
    reports: &[ShardReport],
    requirement: u64,
    instance: Instance,
) -> ReplicaStanding {
    let of_shard = |report: &ShardReport| {
        let standing =
            report.standings.iter().find(|(of, _)| *of == instance.incarnation).map(|(_, of)| *of);
        match standing {
            None | Some(Standing::Behind) => 0,
            Some(Standing::InSync) if report.requirement == requirement => 2,
            Some(Standing::Joining | Standing::InSync) => 1,
        }
    };
    match reports.iter().map(of_shard).min() {
        None | Some(0) => ReplicaStanding::Behind,
        Some(2) => ReplicaStanding::InSync,
        Some(_) => ReplicaStanding::Joining,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_cluster::topology::MemberId;

    /// As its upper half says, it could be taken for the same process.
    const OTHER: u64 = 7 << 32 | 3;
    const ONE: Instance = Instance { member: MemberId(1), incarnation: 7 << 32 | 1 };

    fn report(requirement: u64, standing: Option<Standing>) -> ShardReport {
        let standings = standing.map(|of| (ONE.incarnation, of)).into_iter();
        let standings = standings.chain([(OTHER, Standing::InSync)]);
        ShardReport { requirement, standings: standings.collect(), ..ShardReport::default() }
    }

    #[test]
    fn the_shard_that_is_least_content_decides() {
        let in_sync = || report(3, Some(Standing::InSync));
        let of = |other| standing_of(&[in_sync(), other], 3, ONE);
        assert_eq!(of(in_sync()), ReplicaStanding::InSync);
        assert_eq!(of(report(3, Some(Standing::Joining))), ReplicaStanding::Joining);
        assert_eq!(of(report(3, Some(Standing::Behind))), ReplicaStanding::Behind);
        assert_eq!(
            of(report(3, None)),
            ReplicaStanding::Behind,
            "another replica counts for itself"
        );
        let before = report(2, Some(Standing::InSync));
        assert_eq!(of(before), ReplicaStanding::Joining, "it may not wait for it yet");
    }
}

//! Where a replica with a disk goes on after a restart.
//!
//! Invariant: a log goes on from the entry that the shard which is furthest behind has applied. Those
//! that are further pass over what they have. A log goes on only if all shards with keys of it know
//! their place in it; else it is copied.

use remora_engine::FollowedLog;
use remora_replica::Follower;

/// By shard, the logs that it has followed.
#[derive(Default)]
pub struct Resume(Vec<Vec<FollowedLog>>);

/// One log of the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ResumePoint {
    /// Its key, the last entry that all shards have, its epoch, and the last that one has.
    At { key: u64, least: (u64, u64), most: u64 },
    /// Its key. No whole copy of it is there.
    Interrupted { key: u64 },
}

impl Resume {
    /// Of the shards, by number.
    pub fn of(shards: Vec<Vec<FollowedLog>>) -> Self {
        Self(shards)
    }

    /// Whether no shard has followed anything.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// How many logs the primary had; 0 if there was none.
    pub fn logs(&self) -> usize {
        self.0.iter().flatten().map(|of| usize::from(of.logs)).max().unwrap_or(0)
    }

    /// Whether the shards have all of a primary, and not a part of a copy.
    pub fn is_whole(&self) -> bool {
        (0..self.logs()).all(|log| matches!(self.place(log), Some(ResumePoint::At { .. })))
    }

    /// Shard, log, and the last entry of it that the shard has applied.
    pub fn positions(&self) -> impl Iterator<Item = (usize, usize, u64)> {
        self.0.iter().enumerate().flat_map(|(shard, logs)| {
            let at = move |of: &FollowedLog| Some((shard, of.log.into(), of.position?.0));
            logs.iter().filter_map(at)
        })
    }

    /// What takes the messages of each log of the primary.
    pub fn followers(&self) -> Vec<Follower> {
        let follower = |log| match self.place(log) {
            Some(ResumePoint::At { key, least, most }) => Follower::resumed(key, least, most),
            Some(ResumePoint::Interrupted { key }) => Follower::interrupted(key),
            None => Follower::default(),
        };
        (0..self.logs()).map(follower).collect()
    }

    fn place(&self, log: usize) -> Option<ResumePoint> {
        let logs = self.logs();
        let is_it = |of: &&FollowedLog| usize::from(of.log) == log && usize::from(of.logs) == logs;
        let known: Vec<Option<&FollowedLog>> = match logs == self.0.len() {
            true => vec![self.0[log].iter().find(is_it)],
            false => self.0.iter().map(|of| of.iter().find(is_it)).collect(),
        };
        // Without a key it was to be copied, and nothing of it had come.
        let key = known.iter().flatten().map(|of| of.key).find(|&key| key != 0)?;
        let is_of_it = |of: &&FollowedLog| of.key == key;
        let places: Option<Vec<(u64, u64)>> =
            known.iter().map(|of| of.filter(is_of_it).and_then(|of| of.position)).collect();
        let Some(places) = places else { return Some(ResumePoint::Interrupted { key }) };
        // Of several epochs of one log the numbers say nothing.
        let epoch = places.first()?.1;
        if places.iter().any(|of| of.1 != epoch) {
            return Some(ResumePoint::Interrupted { key });
        }
        let of = || places.iter().map(|of| of.0);
        Some(ResumePoint::At { key, least: (of().min()?, epoch), most: of().max()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(log: u16, logs: u16, sequence: u64) -> FollowedLog {
        FollowedLog { log, logs, key: 7, position: Some((sequence, 2)) }
    }

    #[test]
    fn as_many_shards_go_on_each_from_its_own_place() {
        let resume = Resume::of(vec![vec![at(0, 2, 10)], vec![at(1, 2, 20)]]);
        assert!(resume.is_whole() && !resume.is_empty());
        assert_eq!(resume.place(1), Some(ResumePoint::At { key: 7, least: (20, 2), most: 20 }));
        assert_eq!(resume.positions().collect::<Vec<_>>(), [(0, 0, 10), (1, 1, 20)]);
    }

    #[test]
    fn other_shards_go_on_from_the_one_that_is_furthest_behind() {
        let resume = Resume::of(vec![vec![at(0, 1, 10)], vec![at(0, 1, 8)], vec![at(0, 1, 12)]]);
        assert_eq!(resume.place(0), Some(ResumePoint::At { key: 7, least: (8, 2), most: 12 }));
    }

    #[test]
    fn a_log_that_one_shard_does_not_know_is_copied() {
        let copying = FollowedLog { position: None, ..at(0, 1, 0) };
        let cleared = FollowedLog { logs: 1, ..FollowedLog::default() };
        for other in
            [vec![], vec![copying], vec![cleared], vec![FollowedLog { key: 8, ..at(0, 1, 10) }]]
        {
            let resume = Resume::of(vec![vec![at(0, 1, 10)], other]);
            assert_eq!(resume.place(0), Some(ResumePoint::Interrupted { key: 7 }));
            assert!(!resume.is_whole());
        }
        let not_begun = Resume::of(vec![vec![cleared], vec![]]);
        assert!(!not_begun.is_whole() && !not_begun.is_empty());
        assert_eq!((not_begun.place(0), not_begun.followers().len()), (None, 1));
        let one_of_two = Resume::of(vec![vec![at(0, 2, 10)], vec![]]);
        assert!(!one_of_two.is_whole() && one_of_two.place(1).is_none());
    }
}

//! The logs of a primary that a shard follows, and how far its state is of them. A shard of a replica
//! with a disk writes that into its own log, and finds it there after a restart.
//!
//! After a restart with another number of shards this shard has keys of several shards of before,
//! which may not have come equally far. Then there is no one position of a log: a copy is to be made.
//!
//! Invariant: there is a position only if all keys that the shard has of the log are as the log had
//! left them there. While a copy is under way there is none.

use remora_protocol::applied::LogPosition;
use std::collections::BTreeMap;
use std::ops::Range;

/// A log of a primary, as a shard follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FollowedLog {
    /// The number of the log.
    pub log: u16,
    /// How many logs the primary has.
    pub logs: u16,
    /// The key of the log.
    pub key: u64,
    /// The sequence and the epoch of the last entry of the log that the shard's state has; none
    /// without a whole copy.
    pub position: Option<(u64, u64)>,
}

impl FollowedLog {
    /// The log, and no entry of it.
    pub fn of(position: &LogPosition) -> Self {
        let LogPosition { log, logs, key, .. } = *position;
        Self { log, logs, key, position: None }
    }

    /// The place of an entry in it.
    pub fn at(&self, (sequence, epoch): (u64, u64)) -> LogPosition {
        LogPosition { log: self.log, logs: self.logs, key: self.key, sequence, epoch }
    }
}

/// Who has written a log of this server: how many shards it had then, and the number of this shard
/// if that is the same today.
type Writers = (usize, Option<u16>);

/// See the module's text.
#[derive(Default)]
pub(super) struct Followed {
    writers: Writers,
    /// By log, and by shard that has written this.
    logs: BTreeMap<u16, BTreeMap<u16, FollowedLog>>,
    /// The shard follows them now.
    pub is_live: bool,
    /// What is applied is logged here.
    pub is_kept: bool,
    /// The log of the next entries.
    pub next: Option<FollowedLog>,
    /// By log, the last of its entries whose place is logged here.
    pub logged: BTreeMap<u16, u64>,
    /// The shard carries out what such a shard has logged before a restart.
    pub recovers: Option<u16>,
}

/// The shards that have keys of a log.
fn writers_of((shards, own): Writers, (log, logs): (u16, u16)) -> Range<u16> {
    let all = match shards == usize::from(logs) {
        true => log..log + 1,
        false => 0..shards as u16,
    };
    match own {
        None => all,
        Some(own) if all.contains(&own) => own..own + 1,
        Some(_) => 0..0,
    }
}

impl Followed {
    /// What comes next was written by that many shards, or will be. `own` is the number of this
    /// shard if as many are here.
    pub fn begin_incarnation(&mut self, writers: Writers) {
        if writers == self.writers {
            return;
        }
        let before = std::mem::replace(&mut self.writers, writers);
        for (&log, of) in &mut self.logs {
            let Some(&first) = of.values().next() else { continue };
            let all = writers_of(before, (log, first.logs));
            let are_equal = all.clone().all(|writer| of.get(&writer) == Some(&first));
            let position = first.position.filter(|_| are_equal && !all.is_empty());
            let next = FollowedLog { position, ..first };
            *of = writers_of(writers, (log, first.logs)).map(|writer| (writer, next)).collect();
        }
        self.logs.retain(|_, of| !of.is_empty());
    }

    /// A shard's state is as this says.
    pub fn note(&mut self, writer: u16, of: FollowedLog) {
        // Another primary, or the same with another number of shards: its logs have the keys of these.
        // One without a key was to be copied, and is.
        let stays = |before: &FollowedLog| before.logs == of.logs && before.key != 0;
        self.logs.retain(|_, all| {
            all.retain(|&by, before| by != writer || stays(before));
            !all.is_empty()
        });
        self.logs.entry(of.log).or_default().insert(writer, of);
    }

    /// The shard follows nothing.
    pub fn forget(&mut self, writer: u16) {
        self.logs.retain(|_, all| {
            all.remove(&writer);
            !all.is_empty()
        });
    }

    /// The logs. Those of a present incarnation have one position at most.
    pub fn logs(&self) -> impl Iterator<Item = FollowedLog> {
        self.logs.values().filter_map(|of| of.values().next().copied())
    }

    /// What is known of a log.
    pub fn log(&self, log: u16) -> Option<FollowedLog> {
        self.logs.get(&log).and_then(|of| of.values().next().copied())
    }

    /// How many shards this server has.
    pub fn shards(&self) -> usize {
        self.writers.0
    }

    /// The number of this shard.
    pub fn own(&self) -> u16 {
        self.writers.1.unwrap_or(0)
    }

    /// Whether a copy is under way, or was interrupted.
    pub fn is_copying(&self) -> bool {
        self.logs().any(|of| of.position.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: LogPosition = LogPosition { log: 0, logs: 2, key: 5, sequence: 0, epoch: 0 };

    fn at(log: u16, sequence: u64) -> FollowedLog {
        FollowedLog { log, position: Some((sequence, 1)), ..FollowedLog::of(&TWO) }
    }

    fn positions(of: &Followed) -> Vec<(u16, Option<u64>)> {
        of.logs().map(|of| (of.log, of.position.map(|position| position.0))).collect()
    }

    #[test]
    fn as_many_shards_go_on_where_they_were() {
        let mut followed = Followed::default();
        followed.begin_incarnation((2, Some(1)));
        followed.note(1, at(1, 40));
        followed.begin_incarnation((2, Some(1)));
        assert_eq!(positions(&followed), [(1, Some(40))]);
    }

    #[test]
    fn other_shards_go_on_only_from_one_position() {
        for (second, expected) in [(40, Some(40)), (41, None)] {
            let mut followed = Followed::default();
            followed.begin_incarnation((3, None));
            for (writer, sequence) in [(0, 40), (1, second), (2, 40)] {
                followed.note(writer, at(1, sequence));
            }
            followed.begin_incarnation((1, Some(0)));
            assert_eq!(positions(&followed), [(1, expected)]);
            assert_eq!(followed.is_copying(), expected.is_none());
        }
    }

    #[test]
    fn a_shard_that_has_said_nothing_has_no_position() {
        let mut followed = Followed::default();
        followed.begin_incarnation((3, None));
        followed.note(0, at(1, 40));
        followed.begin_incarnation((1, Some(0)));
        assert_eq!(positions(&followed), [(1, None)]);
    }

    #[test]
    fn a_primary_with_other_shards_takes_the_place_of_the_one_before() {
        let mut followed = Followed::default();
        followed.begin_incarnation((3, Some(2)));
        followed.note(2, at(0, 40));
        followed.note(2, at(1, 41));
        followed.note(2, FollowedLog { logs: 4, log: 3, key: 5, position: None });
        assert_eq!(positions(&followed), [(3, None)]);
        followed.forget(2);
        assert_eq!(positions(&followed), []);
    }

    #[test]
    fn what_was_to_be_copied_is_forgotten_once_a_copy_begins() {
        let mut followed = Followed::default();
        followed.begin_incarnation((2, Some(1)));
        followed.note(1, FollowedLog { logs: 2, ..FollowedLog::default() });
        assert!(followed.is_copying());
        followed.note(1, FollowedLog { position: None, ..at(1, 0) });
        assert!(followed.is_copying());
        followed.note(1, at(1, 7));
        assert_eq!(positions(&followed), [(1, Some(7))]);
        assert!(!followed.is_copying());
    }

    #[test]
    fn a_shard_leaves_the_logs_of_which_it_has_no_keys() {
        let mut followed = Followed::default();
        followed.begin_incarnation((3, None));
        for writer in 0..3 {
            followed.note(writer, at(0, 40));
            followed.note(writer, at(1, 50));
        }
        followed.begin_incarnation((2, Some(1)));
        assert_eq!(positions(&followed), [(1, Some(50))]);
    }
}

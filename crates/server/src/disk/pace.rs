//! When the next group of the log begins.
//!
//! The clients whose replies a group releases send their next changes a moment later. A group that
//! begins at once has only those changes that came during the one before it: the clients fall into
//! two halves, and each group is of one half, or of less if it takes no time. So a group waits until
//! as many changes have come as the last one has released, beside those that wait already.
//!
//! Invariants: it waits for half the time that the last one took, or for as long as a shard takes
//! for so many requests, if that is longer: clients that need more time would not keep the shard
//! busy anyway. If the changes do not come in that time the next groups do not wait: after each such
//! failure in a row twice as many, up to [`MOST_SKIPS`].

use std::time::Duration;

/// What a client and a shard take for a request that comes alone.
const REQUEST: Duration = Duration::from_micros(8);
/// Most groups that begin at once after the wait before them has failed.
const MOST_SKIPS: u32 = 256;

/// See the module's text. Times are counted from any moment.
#[derive(Debug)]
pub struct GroupPace {
    /// Longest time that a group waits.
    most: Duration,
    /// The next group waits until there are so many changes, or until then.
    expected: Option<(u64, Duration)>,
    /// Groups that do not wait, from now on, and after the next failure.
    skips: u32,
    next_skips: u32,
}

impl GroupPace {
    /// For groups that wait no longer than this.
    pub fn new(most: Duration) -> Self {
        Self { most, expected: None, skips: 0, next_skips: 0 }
    }

    /// A group has ended that took so long. So many of its changes may be acknowledged, as the caller
    /// does after this, while so many others wait already.
    pub fn ended(&mut self, now: Duration, took: Duration, (released, waiting): (u64, u64)) {
        if self.skips > 0 {
            self.skips -= 1;
            self.expected = None;
            return;
        }
        let expected = released + waiting;
        let of_requests = REQUEST.saturating_mul(expected.min(1 << 20) as u32);
        self.expected = Some((expected, now + of_requests.max(took / 2).min(self.most)));
    }

    /// Whether a group may begin while there are so many changes.
    pub fn may_begin(&mut self, now: Duration, changes: u64) -> bool {
        let Some((expected, until)) = self.expected else { return true };
        if changes < expected && now < until {
            return false;
        }
        self.expected = None;
        if changes >= expected {
            self.next_skips = 0;
        } else {
            self.next_skips = (2 * self.next_skips).clamp(1, MOST_SKIPS);
            self.skips = self.next_skips;
        }
        true
    }

    /// How long the next group waits yet, and until there are how many changes; `None` if it does
    /// not wait.
    pub fn waits_for(&self, now: Duration) -> Option<(Duration, u64)> {
        self.expected.map(|(changes, until)| (until.saturating_sub(now), changes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);
    const SYNC: Duration = Duration::from_millis(2);
    const MOST: Duration = Duration::from_millis(5);

    #[test]
    fn it_waits_for_the_clients_that_were_answered() {
        let mut pace = GroupPace::new(MOST);
        assert!(pace.may_begin(Duration::ZERO, 1), "nothing was answered yet");
        // 31 changes came during the sync of 33.
        pace.ended(SYNC, SYNC, (33, 31));
        assert!(!pace.may_begin(SYNC, 31));
        assert_eq!(pace.waits_for(SYNC + 100 * US), Some((900 * US, 64)));
        assert!(!pace.may_begin(SYNC + 100 * US, 63));
        assert!(pace.may_begin(SYNC + 200 * US, 64));
        assert_eq!(pace.waits_for(SYNC + 200 * US), None);
        // One client alone never waits.
        pace.ended(3 * SYNC, SYNC, (1, 0));
        assert!(!pace.may_begin(3 * SYNC, 0) && pace.may_begin(3 * SYNC, 1));
    }

    /// Some of those that were answered are back before the thread looks: they are not expected twice.
    #[test]
    fn clients_that_are_back_at_once_are_not_expected_again() {
        let mut pace = GroupPace::new(MOST);
        pace.ended(SYNC, SYNC, (1000, 0));
        assert!(!pace.may_begin(SYNC + US, 400));
        assert!(pace.may_begin(SYNC + 2 * US, 1000));
    }

    #[test]
    fn it_stops_waiting_for_clients_that_do_not_come_and_tries_again() {
        // None of them comes, or all but one.
        for come in [1, 9] {
            let (mut pace, mut now, mut waits) = (GroupPace::new(MOST), Duration::ZERO, 0);
            for _ in 0..10_000 {
                now += SYNC;
                pace.ended(now, SYNC, (9, 1));
                if !pace.may_begin(now, come) {
                    waits += 1;
                    assert!(!pace.may_begin(now + SYNC / 2 - US, come));
                    now += SYNC / 2;
                    assert!(pace.may_begin(now, come));
                }
            }
            assert!((40..60).contains(&waits), "{waits}");
            // They come again.
            for _ in 0..MOST_SKIPS + 2 {
                pace.ended(now, SYNC, (9, 1));
                let _ = pace.may_begin(now, 1);
                assert!(pace.may_begin(now, 10));
            }
            pace.ended(now, SYNC, (9, 1));
            assert!(!pace.may_begin(now, 1));
        }
    }

    #[test]
    fn a_wait_is_bounded() {
        let mut pace = GroupPace::new(MOST);
        pace.ended(Duration::ZERO, Duration::from_secs(9), (9, 1));
        assert!(!pace.may_begin(Duration::ZERO, 1) && pace.may_begin(MOST, 1));
    }

    #[test]
    fn where_a_group_takes_no_time_few_clients_do_not_wait_for_each_other() {
        let mut pace = GroupPace::new(MOST);
        pace.ended(SYNC, US, (1, 1));
        assert!(!pace.may_begin(SYNC, 1) && pace.may_begin(SYNC + 16 * US, 1));
        pace = GroupPace::new(MOST);
        pace.ended(SYNC, US, (32, 32));
        assert!(!pace.may_begin(SYNC, 32) && !pace.may_begin(SYNC + 500 * US, 63));
        assert!(pace.may_begin(SYNC + 501 * US, 64));
    }
}

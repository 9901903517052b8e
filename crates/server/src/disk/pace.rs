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
    /// Changes that the last group has released, if the next one is to wait for as many.
    released: Option<u64>,
    /// When the last one ended, and how long it took.
    ended: (Duration, Duration),
    /// The next one waits until there are so many changes, or until then.
    expected: Option<(u64, Duration)>,
    /// Groups that do not wait, from now on, and after the next failure.
    skips: u32,
    next_skips: u32,
}

impl GroupPace {
    /// For groups that wait no longer than this.
    pub fn new(most: Duration) -> Self {
        let ended = (Duration::ZERO, Duration::ZERO);
        Self { most, released: None, ended, expected: None, skips: 0, next_skips: 0 }
    }

    /// A group has ended that took so long, and so many of its changes may be acknowledged.
    pub fn ended(&mut self, now: Duration, took: Duration, changes: u64) {
        self.expected = None;
        if self.skips > 0 {
            self.skips -= 1;
            self.released = None;
            return;
        }
        self.released = Some(changes);
        self.ended = (now, took);
    }

    /// Whether a group may begin while there are so many changes.
    pub fn may_begin(&mut self, now: Duration, changes: u64) -> bool {
        let Some(released) = self.released else { return true };
        let (expected, until) = *self.expected.get_or_insert_with(|| {
            let expected = released + changes;
            let of_requests = REQUEST.saturating_mul(expected.min(1 << 20) as u32);
            let (ended, took) = self.ended;
            (expected, ended + of_requests.max(took / 2).min(self.most))
        });
        if changes < expected && now < until {
            return false;
        }
        self.released = None;
        // Some clients may have gone, or pause.
        if changes * 4 >= expected * 3 {
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
        self.released?;
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
        pace.ended(SYNC, SYNC, 33);
        assert!(!pace.may_begin(SYNC, 31));
        assert_eq!(pace.waits_for(SYNC + 100 * US), Some((900 * US, 64)));
        assert!(!pace.may_begin(SYNC + 100 * US, 63));
        assert!(pace.may_begin(SYNC + 200 * US, 64));
        assert_eq!(pace.waits_for(SYNC + 200 * US), None);
        // One client alone never waits.
        pace.ended(3 * SYNC, SYNC, 1);
        assert!(!pace.may_begin(3 * SYNC, 0) && pace.may_begin(3 * SYNC, 1));
    }

    #[test]
    fn it_stops_waiting_for_clients_that_do_not_come_and_tries_again() {
        let (mut pace, mut now, mut waits) = (GroupPace::new(MOST), Duration::ZERO, 0);
        for _ in 0..10_000 {
            now += SYNC;
            pace.ended(now, SYNC, 9);
            if !pace.may_begin(now, 1) {
                waits += 1;
                assert!(!pace.may_begin(now + SYNC / 2 - US, 1));
                now += SYNC / 2;
                assert!(pace.may_begin(now, 1));
            }
        }
        assert!((40..60).contains(&waits), "{waits}");
        // They come again.
        for _ in 0..MOST_SKIPS + 2 {
            pace.ended(now, SYNC, 9);
            let _ = pace.may_begin(now, 1);
            assert!(pace.may_begin(now, 10));
        }
        pace.ended(now, SYNC, 9);
        assert!(!pace.may_begin(now, 1));
    }

    #[test]
    fn a_wait_is_bounded() {
        let mut pace = GroupPace::new(MOST);
        pace.ended(Duration::ZERO, Duration::from_secs(9), 9);
        assert!(!pace.may_begin(Duration::ZERO, 1) && pace.may_begin(MOST, 1));
    }

    #[test]
    fn where_a_group_takes_no_time_few_clients_do_not_wait_for_each_other() {
        let mut pace = GroupPace::new(MOST);
        pace.ended(SYNC, US, 1);
        assert!(!pace.may_begin(SYNC, 1) && pace.may_begin(SYNC + 16 * US, 1));
        pace = GroupPace::new(MOST);
        pace.ended(SYNC, US, 32);
        assert!(!pace.may_begin(SYNC, 32) && !pace.may_begin(SYNC + 500 * US, 63));
        assert!(pace.may_begin(SYNC + 501 * US, 64));
    }
}

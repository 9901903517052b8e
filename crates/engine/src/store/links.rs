//! How a shard comes to hints of links, and how often it mends them.

use super::clock::Now;
use remora_layout::hash::KeyHash;
use remora_layout::limits::LINK_MENDS_PER_SECOND;

/// Finds the record of a key of another shard: its hint, or 0. It is called while the shard changes, so it
/// must not ask this shard.
pub type FindElsewhere = Box<dyn Fn(&[u8], KeyHash) -> u64 + Send>;

/// How hints come, and how often they are mended.
#[derive(Default)]
pub(crate) struct Links {
    pub(super) find_elsewhere: Option<FindElsewhere>,
    /// The present second, and mends in it.
    second: u64,
    in_second: u64,
}

impl Links {
    /// Whether one more hint may be looked at now, to mend it.
    pub(super) fn may_mend(&mut self, now: Now) -> bool {
        if self.second != now.since_start_s {
            (self.second, self.in_second) = (now.since_start_s, 0);
        }
        let may = self.in_second < LINK_MENDS_PER_SECOND;
        self.in_second += u64::from(may);
        may
    }
}

//! The default number of shards of a server: a pure function of the process's resources.
//!
//! A shard's thread is at work whenever its clients are, so more threads than physical cores bring
//! no gain: hardware threads of one core share its units, and a thread that waits for its turn
//! delays every request to its data. Some cores stay free for other work: the kernel's network
//! work, the control thread, the acceptor, and clients of this machine. Of two cores one stays
//! free: two shards would forward half of all writes to each other and take turns with their
//! clients. And a shard with too little memory refuses values that one with all of the memory would
//! take.

use crate::size::Size;
use remora_layout::limits::{CORES_PER_SPARE, DEFAULT_SHARD_BYTES, MAX_SHARDS};
use std::fmt;

/// The resources of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resources {
    /// Physical cores among the CPUs of its affinity.
    pub cores: usize,
    /// CPUs that affinity and the quota of its control group come to, rounded
    /// down.
    pub quota: usize,
    /// Bytes of all arenas.
    pub memory_bytes: u64,
}

impl Resources {
    /// The resources of this process, with arenas of this many bytes.
    pub fn of_this_process(memory_bytes: u64) -> Self {
        let quota = std::thread::available_parallelism().map_or(1, usize::from);
        Self { cores: remora_server::Cores::of_this_process().physical(), quota, memory_bytes }
    }
}

/// A number of shards and its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByRule {
    /// 1 to [`MAX_SHARDS`].
    pub shards: usize,
    resources: Resources,
}

impl ByRule {
    /// The rule.
    pub fn of(resources: Resources) -> Self {
        let cores = resources.cores.min(resources.quota).max(1);
        let by_cores = cores - cores.div_ceil(CORES_PER_SPARE);
        let by_memory = usize::try_from(resources.memory_bytes / DEFAULT_SHARD_BYTES);
        let shards = by_cores.min(by_memory.unwrap_or(MAX_SHARDS)).clamp(1, MAX_SHARDS);
        Self { shards, resources }
    }
}

impl fmt::Display for ByRule {
    /// The reason for the number.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resources { cores, quota, memory_bytes } = self.resources;
        write!(out, "by {cores} core(s)")?;
        if quota < cores {
            write!(out, ", a quota of {quota}")?;
        }
        let without_memory = Self::of(Resources { memory_bytes: u64::MAX, ..self.resources });
        if self.shards < without_memory.shards {
            let each = Size(DEFAULT_SHARD_BYTES);
            write!(out, ", and {} of memory, of which each gets {each}", Size(memory_bytes))?;
        }
        Ok(())
    }
}

/// The rule's number for this process; `u64::MAX` where memory is given as the
/// shards need it.
pub fn default_shards(memory_bytes: u64) -> usize {
    ByRule::of(Resources::of_this_process(memory_bytes)).shards
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn shards(cores: usize, quota: usize, memory_bytes: u64) -> usize {
        ByRule::of(Resources { cores, quota, memory_bytes }).shards
    }

    #[test]
    fn some_cores_stay_free() {
        let of = |cores| shards(cores, 2 * cores, u64::MAX);
        assert_eq!([1, 2, 3, 4, 8].map(of), [1, 1, 2, 3, 7]);
        assert_eq!([9, 16, 32, 64, 72].map(of), [7, 14, 28, 56, 63]);
        assert_eq!([74, 128, 100_000].map(of), [64, 64, 64]);
        assert_eq!(of(0), 1, "nothing is known of the machine");
        assert!((1..200).all(|cores| of(cores) <= of(cores + 1)), "more cores, no fewer shards");
    }

    #[test]
    fn a_quota_counts_as_cores() {
        assert_eq!(shards(64, 4, u64::MAX), 3);
        assert_eq!(shards(64, 1, u64::MAX), 1);
        // Hardware threads are no cores.
        assert_eq!(shards(4, 8, u64::MAX), 3);
    }

    #[test]
    fn each_has_room_for_the_largest_value_twice() {
        assert_eq!(shards(16, 16, GIB), 8);
        assert_eq!(shards(16, 16, 2 * GIB), 14);
        assert_eq!(shards(16, 16, 255 << 20), 1);
        assert_eq!(shards(16, 16, 1), 1);
    }

    #[test]
    fn the_reason_is_told() {
        let told = |cores, quota, memory_bytes| {
            ByRule::of(Resources { cores, quota, memory_bytes }).to_string()
        };
        assert_eq!(told(2, 2, GIB), "by 2 core(s)");
        assert_eq!(told(8, 3, GIB), "by 8 core(s), a quota of 3");
        assert_eq!(
            told(16, 16, GIB),
            "by 16 core(s), and 1GiB of memory, of which each gets 128MiB"
        );
    }
}

//! Whether a replica has memory for all that its primary may ever have.
//!
//! Each shard of the primary has an arena, and the two servers divide the same slots evenly among
//! their shards. A shard of the replica may get all keys of each shard of the primary with which it
//! shares slots. So it needs as much memory as these have together: then no distribution of keys
//! makes it hold more bytes than it has memory. With as many shards, or a divisor, that is the
//! primary's `max_memory` again. Records may still find no place between others: a reserve helps, by
//! measurement and not by proof.

use crate::config::Config;
use remora_layout::limits::MAX_SHARDS;
use remora_layout::slot::{SLOTS, SlotTable};
use std::collections::BTreeSet;

/// What a server has for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Shards.
    pub shards: usize,
    /// Bytes of the arena of each.
    pub arena_bytes: u64,
}

impl Memory {
    /// Of a server with these settings.
    pub fn of(config: &Config) -> Self {
        let shards = config.shards;
        Self { shards, arena_bytes: (config.max_memory_bytes / shards as u64) & !4095 }
    }
}

/// Shards of the primary that share slots with one shard of the replica, at most.
fn most_shared(own: usize, primary: usize) -> u64 {
    let (own, primary) = (SlotTable::even(own), SlotTable::even(primary));
    let mut shared = vec![BTreeSet::new(); own.shards()];
    for slot in 0..SLOTS as u16 {
        shared[own.shard_of_slot(slot)].insert(primary.shard_of_slot(slot));
    }
    shared.iter().map(BTreeSet::len).max().unwrap_or(1) as u64
}

/// Whether a replica with this memory may follow a primary with so many shards of so many bytes.
///
/// # Errors
/// It may not: why, and how much it needs.
pub(super) fn check(own: Memory, (shards, arena_bytes): (u32, u64)) -> Result<(), String> {
    let shared = most_shared(own.shards, (shards as usize).clamp(1, MAX_SHARDS));
    let needs = shared.saturating_mul(arena_bytes);
    if own.arena_bytes >= needs {
        return Ok(());
    }
    let (own_shards, total) = (own.shards, needs.saturating_mul(own.shards as u64));
    Err(format!(
        "this replica has too little memory: with {own_shards} shards it needs max_memory = {total} bytes for a primary with {shards} shards of {arena_bytes} bytes, so that all that the primary can have fits"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_share_slots_are_counted() {
        for (own, primary, most) in [
            (1, 1, 1),
            (2, 2, 1),
            (1, 4, 4),
            (2, 4, 2),
            (4, 2, 1),
            (3, 2, 2),
            (2, 3, 2),
            (64, 1, 1),
        ] {
            assert_eq!(most_shared(own, primary), most, "{own} of {primary}");
        }
    }

    #[test]
    fn a_replica_needs_what_its_primary_may_have() {
        let own = |shards, arena_bytes| Memory { shards, arena_bytes };
        assert_eq!(check(own(2, 100), (2, 100)), Ok(()));
        assert_eq!(check(own(1, 200), (2, 100)), Ok(()));
        assert_eq!(
            check(own(4, 100), (2, 100)),
            Ok(()),
            "all keys may be in a quarter of the slots"
        );
        for (own, needed) in
            [(own(2, 99), 200), (own(1, 199), 200), (own(4, 50), 400), (own(3, 100), 600)]
        {
            let refused = check(own, (2, 100)).unwrap_err();
            assert!(refused.contains(&format!("max_memory = {needed} bytes")), "{refused}");
        }
    }
}

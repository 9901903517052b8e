//! Where other shards' keys lie: hints of links that lead to another shard's memory.

use crate::shared::Shared;
use remora_engine::FindElsewhere;
use remora_index::hash::{TableRef, find_locally};
use remora_layout::bucket::BucketSlot;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::record::Guardian;
use std::cell::RefCell;

/// Looks for keys in the memory of the other shards of this process, for the shard of this number.
pub fn find_elsewhere(shared: &Shared, number: usize) -> FindElsewhere {
    let views: Vec<_> = shared.shards.iter().map(|shard| shard.view.clone()).collect();
    let tables = views.iter().map(|view| TableRef::of(view).expect("the shard wrote this page"));
    let state = RefCell::new((tables.collect::<Vec<_>>(), Vec::new()));
    let slots = shared.slots.clone();
    Box::new(move |key, hash: KeyHash| {
        let shard = slots.shard_of(key);
        if shard == number {
            return 0;
        }
        let (tables, record) = &mut *state.borrow_mut();
        let (view, table) = (&views[shard], &mut tables[shard]);
        let Ok(found) = find_locally(view, table, key, hash, Kind::ANY, record) else { return 0 };
        let guardian = record.first_chunk().map(|word| u64::from_le_bytes(*word));
        let Some(guardian) = guardian.and_then(Guardian::from_word) else { return 0 };
        let slot = BucketSlot {
            slot: found.pointer.slot,
            class: guardian.class,
            generation_low: guardian.generation as u8,
            signature: hash.signature(),
        };
        slot.to_word()
    })
}

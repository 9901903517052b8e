//! Whether every byte of the arena is where the books say.

use super::Store;
use remora_arena::{BUCKET_CLASS, Journal, class_bytes, kind_of, slot_of, state_in};
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::record::State;
use std::collections::BTreeMap;

/// Compares what is reachable from the table, and the bytes that types report for their objects'
/// `parts`, with what the allocator has given out: no slot has two owners, none is lost, none holds
/// another key's record, or a part.
///
/// # Errors
/// A description of the first mismatch.
pub(crate) fn audit<J: Journal>(store: &Store<J>, parts: u64) -> Result<(), String> {
    let mut hands: BTreeMap<u64, u64> = BTreeMap::new();
    let mut found = Vec::new();
    for bucket in 0..store.table.buckets() {
        for (_, word) in store.table.places(&store.owner, bucket) {
            let slot = slot_of(&store.owner, word.slot);
            if store.table.bucket(store.hash_in(word.slot)) != bucket {
                return Err(format!("bucket {bucket} leads to another bucket's key: {slot:?}"));
            }
            if kind_of(&store.owner, word.slot).is_part() {
                return Err(format!("bucket {bucket} leads to a part: {slot:?}"));
            }
            let is_withheld = store.lag.withholds(word.slot);
            let expected = match store.ask_only.holds(word.slot) {
                true => State::AskOnly,
                false if is_withheld => State::Pending,
                false => State::Live,
            };
            if state_in(&store.owner, word.slot) != expected {
                return Err(format!("a reachable record is not {expected:?}: {slot:?}"));
            }
            let from = word.slot as u64 * SLOT_UNIT_BYTES as u64;
            if hands.insert(from, from + store.slots.bytes_of(slot)).is_some() {
                return Err(format!("two keys have one slot: {slot:?}"));
            }
            found.push(slot);
        }
    }
    if let Some((one, two)) = hands.iter().zip(hands.iter().skip(1)).find(|(a, b)| a.1 > b.0) {
        return Err(format!("slots overlap: {one:?} and {two:?}"));
    }
    let records: u64 = hands.iter().map(|(from, to)| to - from).sum();
    let buckets = store.table.overflow_buckets() * class_bytes(BUCKET_CLASS) as u64;
    let pinned: u64 = store.pins.waiting().map(|slot| store.slots.bytes_of(slot)).sum();
    let graves: u64 = store.graves.iter().map(|grave| store.slots.bytes_of(grave.root)).sum();
    let expected = records + buckets + pinned + graves + parts + store.moves.bytes(&store.slots);
    let stats = store.slots.stats();
    let keys = found.len() as u64;
    if stats.used_bytes != expected || keys != store.stats.keys {
        return Err(format!(
            "{keys} records of {records} bytes and {buckets} bytes of overflow buckets can be \
             reached, objects have {parts} bytes beside; the books say: {} keys, {stats:?}",
            store.stats.keys
        ));
    }
    if stats.total_bytes() != store.slots.range_bytes() {
        return Err(format!("of {} bytes: {stats:?}", store.slots.range_bytes()));
    }
    store.evictor.audit(&store.owner, &found, store.has_graves())
}

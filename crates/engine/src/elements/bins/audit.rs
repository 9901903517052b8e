//! What is known of objects' members is compared with their parts.

use super::packing::Packing;
use crate::store::Store;
use remora_arena::{Journal, state_in};
use remora_index::hash::{record_key, record_value};
use remora_layout::bins::{bin_name, is_bin};
use remora_layout::limits::WHOLE_ITEM_BYTES;
use remora_layout::record::State;
use std::collections::BTreeSet;

/// Compares all objects of a type with their parts. Bytes of the slots of these.
///
/// # Errors
/// A description of the first mismatch.
pub(crate) fn audit<P: Packing, J: Journal>(store: &Store<J>) -> Result<u64, String> {
    // The parts of a dead one are released in turns.
    let live = |root: &u32| state_in(&store.owner, *root) != State::Dead;
    let roots = store.parts.roots(P::PART_KIND).map(|root| root.slot);
    roots.filter(live).try_for_each(|root| audit_one::<P, J>(store, root))?;
    store.parts.audit(&store.owner, &store.slots, P::PART_KIND)
}

fn audit_one<P: Packing, J: Journal>(store: &Store<J>, root: u32) -> Result<(), String> {
    let parts = store.parts.of(root);
    let bins = parts.bins();
    let (mut binned, mut own, mut spilled, mut error) = (0, 0, 0, None);
    for slot in (0..parts.buckets()).flat_map(|at| parts.in_bucket(&store.owner, at)) {
        let name = record_key(&store.owner, slot);
        let value = record_value(&store.owner, slot);
        if !is_bin(name) {
            own += 1;
            spilled += u64::from(name.len() <= 1 + WHOLE_ITEM_BYTES);
            continue;
        }
        let mut members = BTreeSet::new();
        P::each(value, |member, _| {
            let bin = bins.bin_of(parts.hash(member));
            if name != bin_name(bin) || !members.insert(member.to_vec()) {
                error = Some(format!("a member stands in another bin, or twice: root {root}"));
            }
        });
        if members.is_empty() {
            error = Some(format!("an empty bin has a part: root {root}"));
        }
        binned += members.len() as u64;
    }
    if (binned, own, spilled) != (bins.binned, bins.own, bins.spilled) {
        error = Some(format!("an object's members are not those of the books: root {root}"));
    }
    error.map_or(Ok(()), Err)
}

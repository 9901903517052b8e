//! Members are looked up.

use super::packing::Packing;
use crate::store::{Found, Parts, Store};
use remora_arena::{Journal, Owner};
use remora_index::hash::record_value;
use remora_layout::bins::{OWN, bin_name};
use remora_layout::limits::{SLOT_UNIT_BYTES, WHOLE_ITEM_BYTES};

/// Members that are looked up together: what leads to them is fetched from memory side by side.
pub(crate) const LOOKUPS: usize = 16;

/// Cache lines of a bin that are fetched at once: its header, and half a dozen members.
const BIN_LINES: usize = 4;

/// The name of the part of a member of its own.
pub(crate) fn own_name(member: &[u8]) -> Vec<u8> {
    [&[OWN], member].concat()
}

/// The part that holds a member.
pub(crate) fn find<P: Packing, J: Journal>(
    store: &Store<J>,
    root: u32,
    member: &[u8],
) -> Option<Found> {
    let parts = store.parts.of(root);
    let bin = parts.bins().bin_of(parts.hash(member));
    if let Some(slot) = parts.numbered(bin)
        && P::find(record_value(&store.owner, slot), member).is_some()
    {
        return parts.in_slot(&store.owner, parts.hash(&bin_name(bin)), slot);
    }
    let may_be_own = member.len() > WHOLE_ITEM_BYTES || parts.bins().spilled > 0;
    may_be_own.then(|| parts.find(&store.owner, &own_name(member))).flatten()
}

/// The payload of a member, if that is there.
pub(crate) fn get<P: Packing, J: Journal>(
    store: &Store<J>,
    root: u32,
    member: &[u8],
) -> Option<P::Payload> {
    let parts = store.parts.of(root);
    let bin = parts.numbered(parts.bins().bin_of(parts.hash(member)));
    get_near::<P, J>((parts, &store.owner), member, bin)
}

/// Whether a member is there.
pub(crate) fn has<P: Packing, J: Journal>(store: &Store<J>, root: u32, member: &[u8]) -> bool {
    get::<P, J>(store, root, member).is_some()
}

/// The payload of a member that is a part of its own.
pub(super) fn get_own<P: Packing, J: Journal>(
    (parts, owner): (&Parts, &Owner<J>),
    member: &[u8],
) -> Option<P::Payload> {
    let found = parts.find(owner, &own_name(member))?;
    Some(P::payload_of(record_value(owner, found.slot.slot)))
}

/// The payload of a member whose bin is in this slot.
fn get_near<P: Packing, J: Journal>(
    (parts, owner): (&Parts, &Owner<J>),
    member: &[u8],
    bin: Option<u32>,
) -> Option<P::Payload> {
    let is_short = member.len() <= WHOLE_ITEM_BYTES;
    if is_short
        && let Some(slot) = bin
        && let Some(payload) = P::find(record_value(owner, slot), member)
    {
        return Some(payload);
    }
    let may_be_own = !is_short || parts.bins().spilled > 0;
    may_be_own.then(|| get_own::<P, J>((parts, owner), member)).flatten()
}

/// Looks up to [`LOOKUPS`] members up, and leaves those that `keeps` says. Each has something beside
/// it, which `keeps` may change.
pub(crate) fn look_up<P: Packing, J: Journal, T>(
    (parts, owner): (&Parts, &Owner<J>),
    members: &mut Vec<(&[u8], T)>,
    mut keeps: impl FnMut(&mut T, Option<P::Payload>) -> bool,
) {
    let mut bins = [None; LOOKUPS];
    for ((member, _), bin) in members.iter().zip(&mut bins) {
        *bin = parts.numbered(parts.bins().bin_of(parts.hash(member)));
        let lines = bin.map_or(0..0, |_| 0..BIN_LINES);
        let at = bin.unwrap_or_default() as usize * SLOT_UNIT_BYTES;
        lines.for_each(|line| owner.prefetch(at + 64 * line));
    }
    let mut bins = bins.iter();
    members.retain_mut(|(member, beside)| {
        let bin = bins.next().expect("one for each member");
        keeps(beside, get_near::<P, J>((parts, owner), member, *bin))
    });
}

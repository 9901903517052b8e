//! Steps of a scan.

use super::packing::Packing;
use crate::elements::kept::{Elements, Held, packed_of};
use crate::elements::reading::ScanOptions;
use crate::store::Store;
use remora_arena::Journal;
use remora_index::hash::{record_field, record_key};
use remora_layout::bins::is_bin;
use remora_protocol::Items;
use remora_protocol::elements::Told;

/// Lowest bit of a cursor: of a bucket of members of their own, behind all bins.
const OWN: u64 = 1;

/// One step of a scan: appends members, and gives the next cursor. A cursor is twice a bin's number;
/// behind the bins twice a bucket's, and [`OWN`]. Splits move members only to later bins, and no bin
/// or bucket is removed.
pub(crate) fn scan<P: Packing, J: Journal>(
    store: &Store<J>,
    held: Option<Held>,
    (cursor, options): (u64, Items<'_>),
    list: &mut Vec<u8>,
) -> u64 {
    let mut looks = ScanOptions::new(options);
    match held {
        None => 0,
        Some(Held::Whole(found)) => {
            P::of_whole(packed_of(store, found), |member, payload| {
                looks.look::<P>(Told::Both, (member, payload), list);
            });
            0
        }
        Some(Held::Parts(root)) => {
            scan_parts::<P, J>((store, root.slot.slot), cursor, (&mut looks, list))
        }
    }
}

fn scan_parts<P: Packing, J: Journal>(
    (store, root): (&Store<J>, u32),
    cursor: u64,
    (looks, list): (&mut ScanOptions, &mut Vec<u8>),
) -> u64 {
    let parts = store.parts.of(root);
    let bins = parts.bins();
    let (count, mut looked, mut steps, mut is_full) = (looks.count, 0, 0, false);
    let mut at = cursor;
    while looked < count && steps < 10 * count && !is_full {
        steps += 1;
        let (is_own, place) = (at & OWN != 0, at >> 1);
        let end = match is_own {
            true => parts.buckets(),
            false => bins.count(),
        };
        if place >= end {
            if is_own || !bins.has_own() {
                return 0;
            }
            at = OWN;
            continue;
        }
        let slots = match is_own {
            true => parts.in_bucket(&store.owner, place),
            false => parts.numbered(place as u32).into_iter().collect(),
        };
        for slot in slots {
            let name = record_key(&store.owner, slot);
            if is_own && is_bin(name) {
                continue;
            }
            P::of_part(name, record_field(&store.owner, slot), |member, payload| {
                is_full |= looks.look::<P>(Told::Both, (member, payload), list);
                looked += 1;
            });
        }
        at += 2;
    }
    at
}

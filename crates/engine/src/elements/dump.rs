//! A large object on its way to another key: a piece has some of its parts.

use crate::store::Store;
use remora_arena::Journal;
use remora_index::hash::{record_field, record_key};
use remora_layout::limits::{DUMP_PIECE_BYTES, DUMP_PIECE_PARTS};
use remora_layout::packed::Field;
use remora_layout::table::SCAN_END;

/// Appends some parts of an object, by `write`, in the order of a scan from the place `at` on; that
/// is [`SCAN_END`] once there are no more. A part that is there from the first step to the last is
/// written, however the table grows meanwhile.
pub(crate) fn dump_parts<J: Journal>(
    store: &Store<J>,
    root: u32,
    at: &mut u64,
    piece: &mut Vec<u8>,
    write: impl Fn(&[u8], Field<'_>, &mut Vec<u8>),
) {
    let parts = store.parts.of(root);
    let mut visited = 0;
    while *at < SCAN_END && visited < DUMP_PIECE_PARTS && piece.len() < DUMP_PIECE_BYTES {
        let (bucket, mut next) = parts.at_scan_place(*at as u32);
        let slots = parts.in_bucket(&store.owner, bucket).into_iter();
        let placed = slots.map(|slot| (parts.scan_place(&store.owner, slot), slot));
        let mut some: Vec<(u64, u32)> = placed.filter(|(place, _)| place >= &*at).collect();
        some.sort_unstable();
        visited += 1 + some.len();
        let mut last = None;
        for (place, slot) in some {
            if piece.len() >= DUMP_PIECE_BYTES && last != Some(place) {
                next = place;
                break;
            }
            write(record_key(&store.owner, slot), record_field(&store.owner, slot), piece);
            last = Some(place);
        }
        *at = next;
    }
}

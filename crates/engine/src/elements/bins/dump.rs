//! A large object on its way to another key: a piece is a list of members.

use super::packing::Packing;
use crate::elements::dump::dump_parts;
use crate::elements::kept::Elements;
use crate::store::{DumpAt, Store};
use crate::types::object::resume;
use remora_arena::Journal;
use remora_index::hash::record_value;
use remora_layout::bins::is_bin;
use remora_layout::limits::{BIN_MEMBERS, DUMP_PIECE_BYTES, DUMP_PIECE_PARTS};
use remora_layout::table::SCAN_END;
use remora_protocol::elements::Told;

/// How far a dump has come: first the bins, then the members of their own. A split moves members
/// only within the range of places of its bin, and none becomes a part of its own.
#[derive(Default)]
struct At {
    bins: u64,
    own: u64,
}

/// Appends some members. A member that is there from the first step to the last is written, however
/// the object grows meanwhile; true at the end ([`crate::types::object::Type::dump`]).
pub(crate) fn dump<P: Packing, J: Journal>(
    store: &Store<J>,
    root: u32,
    dump_at: &mut DumpAt,
    piece: &mut Vec<u8>,
) -> bool {
    let mut at: Box<At> = resume(dump_at);
    let parts = store.parts.of(root);
    let mut visited = 0;
    // A bin goes whole.
    let most = DUMP_PIECE_PARTS - 2 * BIN_MEMBERS as usize;
    while at.bins < SCAN_END && visited <= most && piece.len() < DUMP_PIECE_BYTES {
        let (bin, next) = parts.bins().shape.at_scan_place(at.bins as u32);
        if let Some(slot) = parts.numbered(bin as u32) {
            P::each(record_value(&store.owner, slot), |member, payload| {
                P::push_told(piece, member, payload);
                visited += 1;
            });
        }
        visited += 1;
        at.bins = next;
    }
    if at.bins == SCAN_END && !parts.bins().has_own() {
        at.own = SCAN_END;
    }
    if at.bins == SCAN_END && visited == 0 {
        dump_parts(store, root, &mut at.own, piece, |name, value, piece| {
            if !is_bin(name) {
                P::of_part(name, value, |member, payload| {
                    P::tell(Told::Both, member, payload, piece);
                });
            }
        });
    }
    let ended = at.own == SCAN_END;
    *dump_at = Some(at);
    ended
}

//! A large hash on its way to another key: a piece is a list of names and values, in
//! turn.

use super::change::{fields_of, set_parts};
use super::held::Fields;
use crate::elements::{dump_parts, new_parts};
use crate::store::{DumpAt, Store};
use crate::types::object::{DumpedPart, On, resume};
use remora_arena::{ArenaFull, Journal, Slot};
use remora_layout::packed;
use remora_layout::table::SCAN_END;
use remora_protocol::hash::HashCommand;
use remora_protocol::message::Status;
use remora_protocol::{Items, Request};

/// Appends some fields of the hash in the order of a scan; true once there are no more. A field that
/// is there from the first step to the last is written, however the table grows meanwhile.
pub(super) fn dump<J: Journal>(
    store: &Store<J>,
    root: u32,
    dump_at: &mut DumpAt,
    piece: &mut Vec<u8>,
) -> bool {
    // A place in the order of a scan.
    let mut at: Box<u64> = resume(dump_at);
    dump_parts(store, root, &mut at, piece, |name, value, piece| {
        Items::push(piece, name);
        Items::push_field(piece, value);
    });
    let ended = *at == SCAN_END;
    *dump_at = Some(at);
    ended
}

pub(super) fn begin_load<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Result<Slot, Status> {
    let made = new_parts::<Fields, J>(store, (on.key, on.hash), 0, on.now);
    made.map_err(|ArenaFull { .. }| Status::OutOfMemory)
}

/// Sets the fields of a piece.
pub(super) fn load<J: Journal>(
    store: &mut Store<J>,
    on: On<'_>,
    root: u32,
    piece: &[u8],
) -> Result<(), Status> {
    let fields = fields_of(piece).ok_or(Status::Malformed)?;
    set_parts(store, (on, root), &fields, None)
        .map(drop)
        .map_err(|ArenaFull { .. }| Status::OutOfMemory)
}

/// The requests that set the fields of a part.
pub(super) fn requests(part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) {
    let mut packed_list = Vec::new();
    let list = match part {
        DumpedPart::Head(_) => return,
        DumpedPart::Piece(piece) => piece,
        DumpedPart::Whole(value) => {
            for (name, field) in packed::fields(value) {
                Items::push(&mut packed_list, name);
                Items::push_field(&mut packed_list, field);
            }
            &packed_list
        }
    };
    if let Some(pairs) = Items::parse(list).filter(|_| !list.is_empty()) {
        each(HashCommand::Set { pairs }.request());
    }
}

//! A large hash on its way to another key: a piece is a list of names and values, in
//! turn.

use super::change::{fields_of, set_parts};
use crate::store::{DumpAt, Store};
use crate::types::object::{On, resume};
use remora_arena::{ArenaFull, Journal, Slot};
use remora_index::hash::{record_key, record_value};
use remora_layout::kind::Kind;
use remora_layout::limits::{DUMP_PIECE_BYTES, DUMP_PIECE_PARTS};
use remora_protocol::Items;
use remora_protocol::message::Status;

/// A bucket, and how many of its fields are written.
type At = (u64, usize);

/// Appends some fields of the hash; true once there are no more.
pub(super) fn dump<J: Journal>(
    store: &Store<J>,
    root: u32,
    dump_at: &mut DumpAt,
    piece: &mut Vec<u8>,
) -> bool {
    let parts = store.parts.of(root);
    let mut at: Box<At> = resume(dump_at);
    for _ in 0..DUMP_PIECE_PARTS {
        let (bucket, written) = *at;
        if bucket == parts.buckets() {
            return true;
        }
        if piece.len() >= DUMP_PIECE_BYTES {
            break;
        }
        *at = match parts.in_bucket(&store.owner, bucket).get(written) {
            Some(&slot) => {
                Items::push(piece, record_key(&store.owner, slot));
                Items::push(piece, record_value(&store.owner, slot));
                (bucket, written + 1)
            }
            None => (bucket + 1, 0),
        };
    }
    let ended = at.0 == parts.buckets();
    *dump_at = Some(at);
    ended
}

pub(super) fn begin_load<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Result<Slot, Status> {
    let made = store.new_parts((on.key, on.hash), (Kind::HASH, Kind::HASH_FIELD), 0, on.now);
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

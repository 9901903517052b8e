//! A tree on its way to another key: a piece is a list of keys, as users write them, and values.

use super::entry::field_of;
use super::trees::OrderedTrees;
use crate::store::{DumpAt, Store};
use crate::types::object::{DumpedPart, On, resume};
use crate::types::tree_range::{OwnFrom, range_some};
use remora_arena::{Journal, Slot};
use remora_index::btree::Direction;
use remora_layout::limits::{DUMP_PIECE_PARTS, RANGE_TURN_BYTES};
use remora_layout::packed::Field;
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedSettings};
use remora_protocol::{Items, Request};
use std::ops::Bound;

/// Hands over the entries of a piece; whether it was one.
fn each_entry<E>(
    piece: &[u8],
    mut each: impl FnMut(&[u8], Field<'_>) -> Result<(), E>,
) -> Result<bool, E> {
    let Some(items) = Items::parse(piece) else { return Ok(false) };
    let mut fields = items.fields();
    while let Some(key) = fields.next() {
        let (Some(key), Some(Some(value))) = (key, fields.next()) else { return Ok(false) };
        each(key.value, value)?;
    }
    Ok(true)
}

impl OrderedTrees {
    /// Appends some entries of a tree; true once there are no more. They come in order, so that one
    /// that is there all the time is met.
    pub(super) fn dump_entries<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        dump_at: &mut DumpAt,
        piece: &mut Vec<u8>,
    ) -> bool {
        let named = self.named(root);
        let mut from: Box<OwnFrom> = resume(dump_at);
        let bounds = (&mut from.0, &mut Bound::Unbounded, Direction::Ascending);
        let begins = piece.len();
        let some = range_some(store, &named.tree, bounds, DUMP_PIECE_PARTS, |key, value| {
            let at = piece.len();
            named.keys_are().with_text(key, |key| Items::push(piece, key));
            Items::push_field(piece, field_of(store, value));
            piece.len() - at
        });
        *dump_at = Some(from);
        some < DUMP_PIECE_PARTS && piece.len() - begins < RANGE_TURN_BYTES
    }

    pub(super) fn begin_load_tree<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        head: &[u8],
    ) -> Result<Slot, Status> {
        self.new_tree(store, on, OrderedSettings::parse(head)?)
    }

    /// Sets the entries of a piece.
    pub(super) fn load_entries<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: (On<'_>, u32),
        piece: &[u8],
    ) -> Result<(), Status> {
        let all = each_entry(piece, |key, value| {
            let (planned, _) = self.plan_set(store, on, (key, value))?;
            // Its entry comes next.
            self.publish_as(store, on, planned, 1);
            Ok(())
        });
        if all? { Ok(()) } else { Err(Status::Malformed) }
    }
}

/// The requests that make a tree and set its keys; false for a part that trees do not have.
pub(super) fn requests(part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
    match part {
        DumpedPart::Whole(_) => false,
        DumpedPart::Head(head) => match OrderedSettings::parse(head) {
            Ok(settings) => {
                each(OrderedCommand::Create(settings).request());
                true
            }
            Err(_) => false,
        },
        DumpedPart::Piece(piece) => {
            let all = each_entry(piece, |key, value| {
                each(OrderedCommand::Set { key, value }.request());
                Ok::<_, Status>(())
            });
            all == Ok(true)
        }
    }
}

//! A large set on its way to another key: a piece is a list of members.

use super::bins::{Bins, Members, is_bin};
use super::held::Sets;
use crate::elements::{Elements, dump_parts, new_parts};
use crate::store::{DumpAt, Store};
use crate::types::object::{DumpedPart, On, resume};
use remora_arena::{ArenaFull, Journal, Slot};
use remora_index::hash::record_value;
use remora_layout::limits::{DUMP_PIECE_BYTES, DUMP_PIECE_PARTS, SET_BIN_MEMBERS};
use remora_layout::packed::Field;
use remora_layout::table::SCAN_END;
use remora_protocol::message::Status;
use remora_protocol::set::{SetCommand, each_member};
use remora_protocol::{Items, Request};
use std::collections::BTreeSet;

/// How far a dump has come: first the bins, then the members of their own. A split moves members
/// only within the range of places of its bin, and none becomes a part of its own.
#[derive(Default)]
struct At {
    bins: u64,
    own: u64,
}

/// Appends some members of the set. A member that is there from the first step to the last is
/// written, however the set grows meanwhile.
pub(super) fn dump<J: Journal>(
    store: &Store<J>,
    (root, bins): (u32, &Bins),
    dump_at: &mut DumpAt,
    piece: &mut Vec<u8>,
) -> bool {
    let mut at: Box<At> = resume(dump_at);
    let mut visited = 0;
    let push = |name: &[u8], value: Field<'_>, piece: &mut Vec<u8>| {
        Members::of_part(name, value, |member, _| Items::push(piece, member));
    };
    // A bin goes whole.
    let most = DUMP_PIECE_PARTS - 2 * SET_BIN_MEMBERS as usize;
    while at.bins < SCAN_END && visited <= most && piece.len() < DUMP_PIECE_BYTES {
        let (bin, next) = bins.at_scan_place(at.bins as u32);
        if let Some(slot) = Bins::bin(store, root, bin) {
            each_member(record_value(&store.owner, slot), |member| {
                Items::push(piece, member);
                visited += 1;
            });
        }
        visited += 1;
        at.bins = next;
    }
    if at.bins == SCAN_END && !bins.has_own() {
        at.own = SCAN_END;
    }
    if at.bins == SCAN_END && visited == 0 {
        dump_parts(store, root, &mut at.own, piece, |name, value, piece| {
            if !is_bin(name) {
                push(name, value, piece);
            }
        });
    }
    let ended = at.own == SCAN_END;
    *dump_at = Some(at);
    ended
}

impl Sets {
    pub(super) fn make_empty<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
    ) -> Result<Slot, Status> {
        let made = new_parts::<Members, J>(store, (on.key, on.hash), 0, on.now);
        let root = made.map_err(|ArenaFull { .. }| Status::OutOfMemory)?;
        self.bins.insert(root.slot, Bins::default());
        Ok(root)
    }

    /// Adds the members of a piece.
    pub(super) fn add_piece<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        let members = Items::parse(piece).ok_or(Status::Malformed)?;
        let members: Option<BTreeSet<&[u8]>> = members.iter().collect();
        let members = members.ok_or(Status::Malformed)?;
        let bins = self.bins.get_mut(&root).ok_or(Status::Malformed)?;
        bins.add((store, root), members.into_iter(), None, on.now)
            .map(drop)
            .map_err(|ArenaFull { .. }| Status::OutOfMemory)
    }
}

/// The requests that add the members of a part.
pub(super) fn requests(part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) {
    let mut packed_list = Vec::new();
    let list = match part {
        DumpedPart::Head(_) => return,
        DumpedPart::Piece(piece) => piece,
        DumpedPart::Whole(value) => {
            each_member(value, |member| Items::push(&mut packed_list, member));
            &packed_list
        }
    };
    if let Some(members) = Items::parse(list).filter(|_| !list.is_empty()) {
        each(SetCommand::Add { members }.request());
    }
}

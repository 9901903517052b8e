//! A large set is filled from pieces, which are lists of members.

use super::held::Sets;
use super::members::Members;
use crate::elements::{bins, new_parts};
use crate::store::Store;
use crate::types::object::{DumpedPart, On};
use remora_arena::{ArenaFull, Journal, Slot};
use remora_protocol::message::Status;
use remora_protocol::set::{SetCommand, each_member};
use remora_protocol::{Items, Request};
use std::collections::BTreeSet;

impl Sets {
    pub(super) fn make_empty<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Result<Slot, Status> {
        let made = new_parts::<Members, J>(store, (on.key, on.hash), 0, on.now);
        made.map_err(|ArenaFull { .. }| Status::OutOfMemory)
    }

    /// Adds the members of a piece.
    pub(super) fn add_piece<J: Journal>(
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        let members = Items::parse(piece).ok_or(Status::Malformed)?;
        let members: Option<BTreeSet<&[u8]>> = members.iter().collect();
        let members = members.ok_or(Status::Malformed)?.into_iter().map(|member| (member, ()));
        let none = std::iter::empty();
        let planned = bins::plan::<Members, J>((store, root), members, none, on.now);
        let planned = planned.map_err(|ArenaFull { .. }| Status::OutOfMemory)?;
        planned.make(store, None, on.now);
        Ok(())
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

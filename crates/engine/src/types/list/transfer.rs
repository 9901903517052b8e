//! A list of chunks on its way to another key, or into a snapshot: a piece is the index of its first
//! element, and elements.
//!
//! Invariant: what a dump has given is always the first elements of the list as it is now: a change
//! moves the place at which the dump continues. So a list that a snapshot fills is the beginning of
//! the list: what is pushed at its end there comes with a later piece, and is left out until then.

use super::dumps::{Dumping, lock};
use super::entries::entry_for;
use super::held::Lists;
use crate::store::{DumpAt, Store};
use crate::types::object::{DumpedPart, On};
use remora_arena::{ArenaFull, Journal};
use remora_index::chain::{End, Run, lengths_of_entries};
use remora_layout::chain::{TextBuffer, entries};
use remora_layout::limits::{DUMP_PIECE_BYTES, DUMP_PIECE_PARTS};
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::{Items, Request};
use std::sync::{Arc, Mutex};

/// Bytes before the elements of a piece.
const INDEX_BYTES: usize = 8;

/// Bytes of a piece at most, whatever was added since the last one.
const ADDED_BYTES: usize = 16 << 20;

impl Lists {
    /// Appends the next elements of a list; true once there are no more.
    pub(super) fn dump_some<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        dump_at: &mut DumpAt,
        piece: &mut Vec<u8>,
    ) -> bool {
        let listed = self.listed(root);
        let at = dump_at.take().and_then(|at| at.downcast::<Arc<Mutex<Dumping>>>().ok());
        let dumping = at.map_or_else(|| listed.dumps.begin(), |at| *at);
        let mut state = lock(&dumping);
        // What was added at the end meanwhile comes on top: so the dump ends.
        let least = 1 + std::mem::take(&mut state.added);
        let most = least + DUMP_PIECE_PARTS as u64;
        let is_enough = |count: u64, bytes: usize| match count < least {
            true => bytes >= ADDED_BYTES,
            false => count == most || bytes >= DUMP_PIECE_BYTES,
        };
        let (chain, mut buffer) = (&listed.chain, TextBuffer::default());
        let found = chain.directory().find(state.given);
        if found.is_some() {
            piece.extend_from_slice(&state.given.to_le_bytes());
        }
        let (mut at, mut skip) = found.map_or((None, 0), |(at, number)| (Some(at), number));
        let first = state.given;
        while let Some(here) = at.filter(|_| !is_enough(state.given - first, piece.len())) {
            for entry in entries(chain.entries(&store.owner, here)).skip(skip) {
                if is_enough(state.given - first, piece.len()) {
                    break;
                }
                Items::push_field(piece, entry.field(&mut buffer));
                state.given += 1;
            }
            skip = 0;
            at = chain.directory().next(here);
        }
        let ended = state.given == chain.length();
        drop(state);
        *dump_at = Some(Box::new(dumping));
        ended
    }

    /// Adds the elements of a piece that are not there yet.
    pub(super) fn load_some<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        if piece.is_empty() {
            return Ok(());
        }
        let (index, list) = piece.split_first_chunk::<INDEX_BYTES>().ok_or(Status::Malformed)?;
        let items = Items::parse(list).ok_or(Status::Malformed)?;
        let length = self.listed(root).chain.length();
        let Some(there) = length.checked_sub(u64::from_le_bytes(*index)) else {
            return Err(Status::Malformed);
        };
        let mut bytes = Vec::new();
        for item in items.fields().skip(there as usize) {
            entry_for(store, on, item.ok_or(Status::Malformed)?).push(&mut bytes);
        }
        let mut lengths = Vec::new();
        lengths_of_entries(&bytes, &mut lengths);
        let run = Run { bytes: &bytes, lengths: &lengths };
        let planned = self.plan_push(store, (on, root), (End::Back, run));
        let (plan, new) = planned.map_err(|ArenaFull { .. }| Status::OutOfMemory)?;
        self.push_planned(store, (on, root), (End::Back, run), (&plan, &new));
        Ok(())
    }
}

/// The requests that add the elements of a part; false for a part that lists do not have.
pub(super) fn requests(part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
    let mut packed_list = Vec::new();
    let list = match part {
        DumpedPart::Head(_) => return true,
        DumpedPart::Piece(piece) => match piece.split_first_chunk::<INDEX_BYTES>() {
            Some((_, list)) => list,
            None => return piece.is_empty(),
        },
        DumpedPart::Whole(value) => {
            let mut buffer = TextBuffer::default();
            for entry in entries(value) {
                Items::push_field(&mut packed_list, entry.field(&mut buffer));
            }
            &packed_list
        }
    };
    if let Some(items) = Items::parse(list).filter(|_| !list.is_empty()) {
        each(ListCommand::Push { side: Side::Right, if_there: false, items }.request());
    }
    true
}

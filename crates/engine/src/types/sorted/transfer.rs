//! A large set on its way to another key: a piece is a list of members with scores.

use super::changes::{Changes, Put};
use super::held::SortedSets;
use super::packing::Scores;
use crate::elements::{bins, new_parts};
use crate::store::Store;
use crate::types::object::{DumpedPart, On};
use remora_arena::{ArenaFull, Journal, Slot};
use remora_protocol::Request;
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand, SortedRange, SortedRead, When};
use std::collections::BTreeMap;

impl SortedSets {
    pub(super) fn make_empty<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
    ) -> Result<Slot, Status> {
        let full = |ArenaFull { .. }| Status::OutOfMemory;
        let root = new_parts::<Scores, J>(store, (on.key, on.hash), 0, on.now).map_err(full)?;
        match self.begin_large_set(store, root.slot, on.now) {
            Ok(large) => {
                self.large.insert(large);
                Ok(root)
            }
            Err(error) => {
                store.forget_parts(root.slot, on.now);
                store.give_back(root, on.now);
                Err(full(error))
            }
        }
    }

    /// Gives the members of a piece their scores.
    pub(super) fn add_piece<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        piece: &[u8],
    ) -> Result<(), Status> {
        let members = Scored::parse(piece).ok_or(Status::Malformed)?;
        self.large.get(root).ok_or(Status::Malformed)?;
        let last: BTreeMap<&[u8], f64> =
            members.iter().map(|(score, member)| (member, score)).collect();
        let puts = last.into_iter().map(|(member, new)| Put {
            member,
            old: bins::get::<Scores, J>(store, root, member),
            new,
        });
        let puts = puts.filter(|put| put.old != Some(put.new));
        // Most pieces have members that are not there yet.
        let (new, others): (Vec<Put<'_>>, Vec<_>) = puts.partition(|put| put.old.is_none());
        for put in others {
            self.change_unlogged(store, (root, on.now), Changes { puts: &[put], gone: &[] })?;
        }
        self.put_unlogged(store, (root, on.now), &new)
    }
}

/// The read of the members at some places.
pub(super) fn listing(start: i64, stop: i64) -> Request<'static> {
    let read = SortedRead::of(SortedRange::Index { start, stop });
    SortedCommand::Range(read).request()
}

/// The requests that add the members of a part.
pub(super) fn requests(part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
    let mut list = Vec::new();
    match part {
        DumpedPart::Head(_) => return true,
        DumpedPart::Piece(piece) => list.extend_from_slice(piece),
        DumpedPart::Whole(packed) => {
            let items = remora_layout::packed_scores::items(packed);
            items.for_each(|(score, member)| Scored::push(&mut list, score, member));
        }
    }
    if let Some(members) = Scored::parse(&list).filter(|members| !members.is_empty()) {
        each(
            SortedCommand::Add { when: When::default(), counts_changed: false, members }.request(),
        );
    }
    true
}

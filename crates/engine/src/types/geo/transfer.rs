//! A GEO key on its way to another key: a piece is a list of members with scores.

use super::keys::GeoKeys;
use super::set::{GeoSet, member_in, score_in};
use crate::store::{DumpAt, Store};
use crate::types::arena::arena_at;
use crate::types::object::{DumpedPart, On, resume};
use remora_arena::{Journal, Slot};
use remora_index::HashSweep;
use remora_layout::kind::Kind;
use remora_layout::limits::{DUMP_PIECE_BYTES, DUMP_PIECE_PARTS};
use remora_layout::tree::TREE_HEADER_BYTES;
use remora_protocol::geo::{GeoCommand, Member, Members};
use remora_protocol::message::Status;
use remora_protocol::{Condition, Request};

impl GeoKeys {
    /// Appends some members of the key; true once there are no more.
    pub(super) fn dump_members<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        dump_at: &mut DumpAt,
        piece: &mut Vec<u8>,
    ) -> bool {
        let set = &self.by_root[&root];
        let mut at: Box<HashSweep> = resume(dump_at);
        let (mut written, mut ended) = (0, false);
        while !ended && written < DUMP_PIECE_PARTS && piece.len() < DUMP_PIECE_BYTES {
            ended = !set.sweep_some(&mut at, |slot| {
                let (member, score) = (member_in(&store.owner, slot), score_in(&store.owner, slot));
                Members::push(piece, &Member { score, distance: 0.0, member });
                written += 1;
            });
        }
        *dump_at = Some(at);
        ended
    }

    pub(super) fn begin_load_members<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
    ) -> Result<Slot, Status> {
        let root = store.new_root((on.key, on.hash), Kind::GEO, TREE_HEADER_BYTES, 0, on.now);
        let root = root.map_err(|_| Status::OutOfMemory)?;
        self.by_root.insert(root.slot, GeoSet::new(root, store.options.record_secret));
        self.touched.push(root.slot);
        Ok(root)
    }

    /// Adds the members of a piece that are not there.
    pub(super) fn load_members<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        piece: &[u8],
    ) -> Result<(), Status> {
        let places = Members::parse(piece).ok_or(Status::Malformed)?;
        self.touched.push(root);
        for place in places.iter() {
            if self.by_root[&root].find(&store.owner, place.member).is_some() {
                continue;
            }
            let slot = self.plan_member(store, (on, root), &place)?;
            // Its entry comes next.
            let changed_at = store.last_sequence() + 1;
            let set = self.by_root.get_mut(&root).expect("a root record has its set");
            if let Some(tree) = &mut set.tree {
                tree.publish(&mut arena_at(store, changed_at));
            }
            self.insert_member(store, root, (place.member, slot));
            self.plant_tree(store, root, changed_at);
        }
        Ok(())
    }
}

/// The requests that add the members of a part; false for a part that GEO keys do not have.
pub(super) fn requests(part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
    let piece = match part {
        DumpedPart::Whole(_) => return false,
        DumpedPart::Head(_) => return true,
        DumpedPart::Piece(piece) => piece,
    };
    if let Some(places) = Members::parse(piece).filter(|_| !piece.is_empty()) {
        let condition = Condition::Always;
        each(GeoCommand::Add { condition, tell_changed: false, places }.request());
    }
    true
}

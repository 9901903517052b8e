//! A tree of places on its way to another key: a piece is a list of puts, each with
//! all that the object has.

use super::named::Named;
use super::record::{carried_in, expires_at_ms};
use super::trees::Trees;
use crate::store::{DumpAt, Store};
use crate::types::object::{DumpedPart, On, resume};
use remora_arena::{Journal, Slot};
use remora_geometry::Wkb;
use remora_index::HashSweep;
use remora_index::rtree::Object;
use remora_layout::limits::{DUMP_PIECE_BYTES, DUMP_PIECE_PARTS};
use remora_layout::object::is_surrogate;
use remora_protocol::message::Status;
use remora_protocol::tree::{Fields, ObjectId, PutObject, TreeCommand, TreeSettings};
use remora_protocol::{Expiry, Request};

/// Where a dump continues. It goes through the objects with integers as words first, then through
/// those with surrogates. So it meets an object that gets a surrogate meanwhile in the second part,
/// if not in the first; no object loses its surrogate while it lives.
#[derive(Default)]
struct At {
    integers: HashSweep,
    surrogates: HashSweep,
    has_passed_integers: bool,
}

impl Trees {
    /// Appends a tree's settings.
    pub(super) fn dump_settings(&self, root: u32, head: &mut Vec<u8>) {
        let header = self.named(root).tree.header();
        let (kind, capacity, bounds) = (header.kind, header.capacity as usize, header.bounds);
        TreeSettings { kind, capacity, bounds }.write(head);
    }

    /// Appends some objects of the tree; true once there are no more.
    pub(super) fn dump_objects<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        dump_at: &mut DumpAt,
        piece: &mut Vec<u8>,
    ) -> bool {
        let named = self.named(root);
        let mut at: Box<At> = resume(dump_at);
        let (mut visited, mut ended) = (0, false);
        while !ended && visited < DUMP_PIECE_PARTS && piece.len() < DUMP_PIECE_BYTES {
            visited += 1;
            if at.has_passed_integers {
                ended = !named.sweep_surrogates(store, &mut at.surrogates, |object| {
                    dump_object(store, named, object, piece);
                });
                continue;
            }
            let has_more = named.tree.sweep_some(&store.owner, &mut at.integers, |object| {
                if !is_surrogate(object.word) {
                    dump_object(store, named, object, piece);
                }
            });
            at.has_passed_integers = !has_more;
        }
        *dump_at = Some(at);
        ended
    }

    pub(super) fn begin_load_tree<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        head: &[u8],
    ) -> Result<Slot, Status> {
        let settings = TreeSettings::parse(head)?;
        let (root, tree) = self.new_tree(store, on, settings)?;
        self.keep_tree(store, root, tree);
        Ok(root)
    }

    /// Puts the objects of a piece.
    pub(super) fn load_objects<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        mut piece: &[u8],
    ) -> Result<(), Status> {
        self.touch(root);
        while !piece.is_empty() {
            let (put, rest) = PutObject::split(piece)?;
            let known = self.named(root).surrogate_record(store, put.id);
            let planned = self.plan_object(store, (on, root), &put, known)?;
            // Its entry comes next.
            let changed_at = store.last_sequence() + 1;
            self.publish_object(store, (on, root), &put, (planned, changed_at));
            piece = rest;
        }
        Ok(())
    }
}

/// Appends an object with all that it has.
fn dump_object<J: Journal>(store: &Store<J>, named: &Named, object: &Object, piece: &mut Vec<u8>) {
    let slot = named.record(store, object.word);
    let payload = slot.map(|slot| carried_in(store, slot)).unwrap_or_default();
    let some = |bytes| Some(bytes).filter(|bytes: &&[u8]| !bytes.is_empty());
    let id = match is_surrogate(object.word) {
        true => ObjectId::of_text(payload.id),
        false => ObjectId::Number(object.word),
    };
    let put = PutObject {
        id,
        rect: object.rect,
        data: some(payload.data),
        geometry: some(payload.geometry).map(|wkb| Wkb::known(wkb, object.rect)),
        fields: some(payload.fields).and_then(Fields::parse),
        expiry: match slot.map_or(0, |slot| expires_at_ms(store, slot)) {
            0 => Expiry::Keep,
            at_ms => Expiry::At(at_ms),
        },
    };
    put.push(piece);
}

/// The requests that make a tree and put its objects; false for a part that trees do not have.
pub(super) fn requests(part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
    match part {
        DumpedPart::Whole(_) => false,
        DumpedPart::Head(head) => match TreeSettings::parse(head) {
            Ok(settings) => {
                each(TreeCommand::Create(settings).request());
                true
            }
            Err(_) => false,
        },
        DumpedPart::Piece(mut piece) => {
            while let Ok((put, rest)) = PutObject::split(piece) {
                each(TreeCommand::Put(put).request());
                piece = rest;
            }
            piece.is_empty()
        }
    }
}

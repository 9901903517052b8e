//! One of the objects that are combined, or the members that were found before.

use super::form::Form;
use super::reader::{Join, MemberReader};
use crate::elements::kept::{Held, packed_of};
use crate::store::{PartsRead, Store};
use crate::types::object::On;
use remora_arena::{Journal, Slot, slot_of};
use remora_layout::limits::PARTS_TURN_BYTES;
use remora_protocol::elements::Combination;
use remora_protocol::message::Status;

/// See the module's text.
pub(super) struct Source {
    /// Its members, as far as they are not read yet.
    pub left: Left,
    /// How many it had.
    pub members: u64,
    /// The weights of its scores, one for each time that it is named.
    pub weights: Vec<f64>,
    /// Where its members are looked up.
    lookup: Lookup,
    /// How: the place of its type among those that can be read.
    reader: usize,
}

pub(super) enum Left {
    /// A list, and where it goes on.
    Made(Vec<u8>, usize),
    /// The read of a large object.
    Parts(PartsRead),
}

enum Lookup {
    /// The value of a small object's record.
    Packed(Vec<u8>),
    /// A large object's root record, and the number of changes when the read began.
    Parts(Slot, u64),
    /// Nowhere: these were found before.
    None,
}

/// The object of a key, and the place of its type among those that can be read.
///
/// # Errors
/// The key is of another type.
fn find<J: Journal, S>(
    store: &mut Store<J>,
    on: On<'_>,
    readers: &[MemberReader<J, S>],
) -> Result<Option<(Held, usize)>, Status> {
    let Some(found) = store.lookup(on.key, on.hash, on.now) else { return Ok(None) };
    let kind = store.kind(found);
    let reader = readers.iter().position(|of| of.kind == kind.of_type());
    let reader = reader.ok_or(Status::WrongType)?;
    store.evictor.note_touched(found);
    let held = if kind.is_root() { Held::Parts(found) } else { Held::Whole(found) };
    Ok(Some((held, reader)))
}

impl Left {
    /// Appends some of the members to a list; true at the end.
    pub fn read<F: Form, J: Journal>(
        &mut self,
        store: &Store<J>,
        list: &mut Vec<u8>,
    ) -> Result<bool, Status> {
        match self {
            Self::Made(all, at) => {
                if *at == 0 && all.len() <= PARTS_TURN_BYTES {
                    list.extend_from_slice(all);
                    *at = all.len();
                }
                let to = at.saturating_add(PARTS_TURN_BYTES);
                while *at < all.len().min(to) {
                    let (member, score, rest) = F::split(&all[*at..]).ok_or(Status::Malformed)?;
                    F::push(list, member, score);
                    *at = all.len() - rest.len();
                }
                Ok(*at == all.len())
            }
            Self::Parts(read) => store.parts.read_more(&store.owner, read, list, PARTS_TURN_BYTES),
        }
    }
}

impl Source {
    /// Members that were found before, or none.
    pub fn made<F: Form>(list: Vec<u8>) -> Self {
        let members = F::members(&list).count() as u64;
        let (left, weights) = (Left::Made(list, 0), vec![1.0]);
        Self { left, members, weights, lookup: Lookup::None, reader: 0 }
    }

    /// The object of a key, and its weights.
    ///
    /// # Errors
    /// The key is of another type.
    pub fn of<F: Form, J: Journal>(
        store: &mut Store<J>,
        (on, weights): (On<'_>, Vec<f64>),
        readers: &[MemberReader<J, F::Score>],
    ) -> Result<Self, Status> {
        let Some((held, reader)) = find(store, on, readers)? else {
            let lookup = Lookup::Packed(Vec::new());
            return Ok(Self { weights, lookup, ..Self::made::<F>(Vec::new()) });
        };
        let of = &readers[reader];
        Ok(match held {
            Held::Whole(found) => {
                let packed = packed_of(store, found).to_vec();
                // About: the head of a member has three bytes more there.
                let mut list = Vec::with_capacity(packed.len() + packed.len() / 2);
                (of.push_whole)(&packed, &mut list);
                let lookup = Lookup::Packed(packed);
                Self { weights, lookup, reader, ..Self::made::<F>(list) }
            }
            Held::Parts(root) => {
                let slot = slot_of(&store.owner, root.slot.slot);
                let bins = *store.parts.of(slot.slot).bins();
                let left = Left::Parts(store.parts.begin_read(slot.slot, of.push_part));
                let lookup = Lookup::Parts(slot, bins.changes);
                Self { left, members: bins.members(), weights, lookup, reader }
            }
        })
    }

    /// Bytes that were copied for it.
    pub fn copied_bytes(&self) -> usize {
        let list = if let Left::Made(list, _) = &self.left { list.len() } else { 0 };
        let packed = if let Lookup::Packed(packed) = &self.lookup { packed.len() } else { 0 };
        list + packed
    }

    /// Whether lookups find what was there when the read began.
    pub fn is_unchanged<J: Journal>(&self, store: &Store<J>) -> bool {
        let Lookup::Parts(root, changes) = self.lookup else { return true };
        store.is_live(root) && store.parts.of(root.slot).bins().changes == changes
    }

    /// Leaves of some members those that it has, with their scores joined to its own, or those that
    /// it does not have.
    pub fn keep<F: Form, J: Journal>(
        &self,
        (store, readers): (&Store<J>, &[MemberReader<J, F::Score>]),
        members: &mut Vec<(&[u8], F::Score)>,
        join: &Join<'_>,
    ) {
        let of = &readers[self.reader];
        let wanted = join.how == Combination::Inter;
        match &self.lookup {
            Lookup::Packed(packed) => members.retain_mut(|(member, so_far)| {
                let found = (of.find_in_whole)(packed, member);
                if let Some(score) = found {
                    *so_far = F::join(Some(*so_far), score, join);
                }
                found.is_some() == wanted
            }),
            Lookup::Parts(root, _) => {
                (of.look_up)((store.parts.of(root.slot), &store.owner), members, join);
            }
            Lookup::None => members.retain(|_| !wanted),
        }
    }
}

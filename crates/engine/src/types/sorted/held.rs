//! A sorted set that was found, whole in its record or large, and the questions that both answer.

use super::large::Large;
use super::packing::Scores;
use super::places::AllPlaces;
use super::readers::Reads;
use crate::elements::bins::{self, Buffers};
use crate::elements::{self, Held, packed_of};
use crate::store::{Found, Store};
use crate::types::object::On;
use crate::types::tree_table::TreeTable;
use remora_arena::{Journal, slot_of};
use remora_layout::packed_scores;
use remora_layout::part::root_word;
use remora_protocol::message::Status;
use remora_protocol::{Items, Reply};

/// The sorted sets of one shard.
#[derive(Default)]
pub(crate) struct SortedSets {
    /// The large ones.
    pub(super) large: TreeTable<Large>,
    /// Ranges that are read in turns.
    pub(super) reads: Reads,
    /// Positions of those that were searched for them.
    pub(super) places: AllPlaces,
    /// Buffer for a changed set, or a reply's value.
    pub(super) scratch: Vec<u8>,
    /// Buffers for bins.
    pub(super) buffers: Buffers,
    /// How many random numbers were drawn.
    pub(super) drawn: u64,
}

/// Appends a score as a reply has it.
pub(super) fn push_score(score: f64, value: &mut Vec<u8>) {
    value.extend_from_slice(&score.to_le_bytes());
}

impl SortedSets {
    /// The sorted set of a key; none if there is no such key.
    pub(super) fn find<J: Journal>(
        store: &mut Store<J>,
        on: On<'_>,
    ) -> Result<Option<Held>, Status> {
        elements::find::<Scores, J>(store, on)
    }

    /// What is known of a large set.
    pub(super) fn large_of(&self, root: Found) -> &Large {
        self.large.named(root.slot.slot)
    }

    /// The score of a member.
    pub(super) fn score<J: Journal>(
        &self,
        store: &Store<J>,
        held: Held,
        member: &[u8],
    ) -> Option<f64> {
        match held {
            Held::Whole(found) => packed_scores::find(packed_of(store, found), member),
            Held::Parts(root) => self.large_of(root).score(store, member),
        }
    }

    /// Members of a set.
    pub(super) fn length<J: Journal>(&self, store: &Store<J>, held: Held) -> u64 {
        match held {
            Held::Whole(found) => packed_scores::count(packed_of(store, found)) as u64,
            Held::Parts(root) => self.large_of(root).tree.keys(),
        }
    }

    /// The score of a member, with a pointer to the record that says so, and a lease.
    pub(super) fn tell_score<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        member: &[u8],
    ) -> Reply<'_> {
        let Some(held) = held else { return Reply::status(Status::NotFound) };
        let (score, record, root) = match held {
            Held::Whole(found) => (self.score(store, held, member), Some(found), 0),
            Held::Parts(root) => {
                let at = slot_of(&store.owner, root.slot.slot);
                let large = self.large_of(root);
                let record = bins::find::<Scores, J>(store, at.slot, member);
                (large.score(store, member), record, root_word(at.slot, at.generation) as i64)
            }
        };
        let status = if score.is_some() { Status::Ok } else { Status::NotFound };
        self.scratch.clear();
        if let Some(score) = score {
            push_score(score, &mut self.scratch);
        }
        let value = Some(&self.scratch[..]).filter(|_| score.is_some());
        let Some(record) = record else { return Reply { value, ..Reply::status(status) } };
        let lease_ms = store.extend_lease(record, on.now);
        let pointer = store.pointer(record.slot.slot);
        Reply { number: root, value, pointer, lease_ms, ..Reply::status(status) }
    }

    /// The scores of several members, NaN for those that are not there.
    pub(super) fn tell_scores<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        members: Items<'_>,
    ) -> Reply<'_> {
        let mut value = std::mem::take(&mut self.scratch);
        value.clear();
        for member in members.iter().flatten() {
            let score = held.and_then(|held| self.score(store, held, member));
            push_score(score.unwrap_or(f64::NAN), &mut value);
        }
        self.scratch = value;
        Reply { value: Some(&self.scratch), ..Reply::number(held.is_some().into()) }
    }

    /// The number of members before one, and its score.
    pub(super) fn rank<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        (member, is_reverse): (&[u8], bool),
    ) -> Reply<'_> {
        let found = held.and_then(|held| Some((held, self.score(store, held, member)?)));
        let Some((held, score)) = found else { return Reply::status(Status::NotFound) };
        let (rank, members) = match held {
            Held::Whole(found) => {
                let packed = packed_of(store, found);
                let rank = packed_scores::items(packed).position(|(_, of)| of == member);
                (rank.unwrap_or_default() as u64, packed_scores::count(packed) as u64)
            }
            Held::Parts(root) => {
                let large = self.large_of(root);
                let key = large.key(store, (score, member));
                (large.tree.rank(&store.owner, &key), large.tree.keys())
            }
        };
        self.scratch.clear();
        push_score(score, &mut self.scratch);
        let rank = if is_reverse { members - 1 - rank } else { rank };
        Reply { value: Some(&self.scratch), ..Reply::number(rank as i64) }
    }
}

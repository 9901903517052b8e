//! Keys of the B+tree of a large sorted set, and what they say of members
//! ([`remora_layout::sorted`]).

use super::large::Large;
use super::packing::Scores;
use crate::elements::bins::{self, own_name};
use crate::store::{Parts, Store};
use remora_arena::Journal;
use remora_index::hash::record_key;
use remora_layout::bins::OWN;
use remora_layout::hash::{KeyHash, checksum};
use remora_layout::packed_scores::SCORE_BYTES;
use remora_layout::sorted::{
    KeyMember, SORTED_KEY_BYTES, SORTED_MARK_BYTES, push_sorted_key, split_sorted_key,
};
use remora_protocol::sorted::Scored;

/// What tells long members apart in keys: the hash by which a member's part is found, and another one.
fn mark(parts: &Parts, secret: u64, member: &[u8]) -> [u8; SORTED_MARK_BYTES] {
    let mut mark = [0; SORTED_MARK_BYTES];
    let (first, second) = mark.split_at_mut(SORTED_MARK_BYTES / 2);
    first.copy_from_slice(&parts.hash(&own_name(member)).0.to_be_bytes());
    second.copy_from_slice(&checksum(member, secret).to_be_bytes());
    mark
}

impl Large {
    /// The key of a member with this score.
    pub(super) fn key<J: Journal>(&self, store: &Store<J>, of: (f64, &[u8])) -> Vec<u8> {
        let mut key = Vec::with_capacity(SORTED_KEY_BYTES.min(SCORE_BYTES + of.1.len()));
        self.push_key(store, of, &mut key);
        key
    }

    /// Appends it.
    pub(super) fn push_key<J: Journal>(
        &self,
        store: &Store<J>,
        (score, member): (f64, &[u8]),
        key: &mut Vec<u8>,
    ) {
        let secret = store.options.record_secret;
        push_sorted_key(key, (score, member), || {
            mark(store.parts.of(self.root.slot), secret, member)
        });
    }

    /// Hands over the score and the member of a key of the tree.
    pub(super) fn with_member<J: Journal, R>(
        &self,
        store: &Store<J>,
        key: &[u8],
        told: impl FnOnce(f64, &[u8]) -> R,
    ) -> R {
        let (score, member) = split_sorted_key(key).expect("the owner's own");
        let member = match member {
            KeyMember::Whole(member) => member,
            KeyMember::Mark(mark) => self.marked(store, mark),
        };
        if score == 0.0 && self.negative_zeros > 0 {
            let kept = bins::get::<Scores, J>(store, self.root.slot, member);
            return told(kept.expect("each key has its member"), member);
        }
        told(score, member)
    }

    /// Appends the entry of a key as replies have it.
    pub(super) fn push_entry<J: Journal>(&self, store: &Store<J>, key: &[u8], list: &mut Vec<u8>) {
        self.with_member(store, key, |score, member| Scored::push(list, score, member));
    }

    /// The long member with this mark.
    fn marked<'s, J: Journal>(
        &self,
        store: &'s Store<J>,
        wanted: [u8; SORTED_MARK_BYTES],
    ) -> &'s [u8] {
        let parts = store.parts.of(self.root.slot);
        let hash = wanted.first_chunk().copied().map_or(0, u64::from_be_bytes);
        let chain = parts.with_hash(&store.owner, KeyHash(hash));
        let names = chain.into_iter().map(|slot| record_key(&store.owner, slot));
        let mut members = names.filter_map(|name| name.strip_prefix(&[OWN]));
        let secret = store.options.record_secret;
        let found = members.find(|member| mark(parts, secret, member) == wanted);
        found.expect("a key of a long member has its part")
    }

    /// The score of a member.
    pub(super) fn score<J: Journal>(&self, store: &Store<J>, member: &[u8]) -> Option<f64> {
        bins::get::<Scores, J>(store, self.root.slot, member)
    }
}

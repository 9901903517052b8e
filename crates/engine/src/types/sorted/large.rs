//! A large sorted set: its B+tree, and its state beside the arena.

use super::changes::{Changes, Put};
use super::readers::Readers;
use crate::store::Store;
use crate::types::arena::arena_at;
use crate::types::tree_table::HasTree;
use remora_arena::{Journal, Slot};
use remora_index::btree::{Change, Tree, TreeError};
use remora_layout::btree::{Value, ValueKind};
use remora_protocol::sorted::Scored;

/// A large set, and its state beside the arena.
pub(super) struct Large {
    pub root: Slot,
    pub tree: Tree,
    /// Members whose score is -0: their keys say 0.
    pub negative_zeros: u64,
    /// Ranges that are being read in turns.
    pub readers: Readers,
}

impl HasTree for Large {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    fn root(&self) -> Slot {
        self.root
    }
}

/// What keys have beside them.
pub(super) const NOTHING: Value<'static> = Value { kind: ValueKind::Bytes, bytes: &[] };

pub(super) fn is_negative_zero(score: f64) -> bool {
    score == 0.0 && score.is_sign_negative()
}

impl Large {
    /// Notes for reads in turns what is at a key before that changes.
    fn note(&mut self, key: &[u8], was: Option<(f64, &[u8])>) {
        if self.readers.is_empty() {
            return;
        }
        let entry = was.map(|(score, member)| {
            let mut entry = Vec::new();
            Scored::push(&mut entry, score, member);
            entry
        });
        self.readers.note(key, entry.as_deref());
    }

    fn count_zeros(&mut self, old: Option<f64>, new: Option<f64>) {
        let is_one = |score: Option<f64>| u64::from(score.is_some_and(is_negative_zero));
        self.negative_zeros = self.negative_zeros + is_one(new) - is_one(old);
    }

    /// Plans the key of a member that gets a score.
    pub(super) fn plan_key<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        put: &Put<'_>,
        changed_at: u64,
    ) -> Result<Change, TreeError> {
        let key = self.key(store, (put.new, put.member));
        let old_key = put.old.map(|old| self.key(store, (old, put.member)));
        let arena = &mut arena_at(store, changed_at);
        match old_key {
            None => self.tree.plan_set(arena, &key, NOTHING).map(|(change, _)| change),
            Some(old_key) => self.tree.plan_move(arena, &old_key, &key, NOTHING),
        }
    }

    /// Publishes what [`Large::plan_key`] has planned last.
    pub(super) fn publish_key<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (put, change): (&Put<'_>, Change),
        changed_at: u64,
    ) {
        if !self.readers.is_empty() {
            self.note(&self.key(store, (put.new, put.member)), None);
            if let Some(old) = put.old {
                self.note(&self.key(store, (old, put.member)), Some((old, put.member)));
            }
        }
        self.tree.publish(&mut arena_at(store, changed_at), change);
        self.count_zeros(put.old, Some(put.new));
    }

    /// Publishes the keys of a change, under this sequence.
    pub(super) fn publish<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (Changes { puts, gone }, planned): (Changes<'_, '_>, PlannedKeys),
        changed_at: u64,
    ) {
        match (planned, puts) {
            (PlannedKeys::One(change), [put]) => self.publish_key(store, (put, change), changed_at),
            _ => {
                for put in puts {
                    let change = self.plan_key(store, put, changed_at);
                    let change = change.expect("its nodes are reserved");
                    self.publish_key(store, (put, change), changed_at);
                }
            }
        }
        let mut key = Vec::new();
        for &(score, member) in gone {
            key.clear();
            self.push_key(store, (score, member), &mut key);
            self.note(&key, Some((score, member)));
            let arena = &mut arena_at(store, changed_at);
            let change = self.tree.plan_delete(arena, &key);
            self.tree.publish(arena, change.expect("each member has its key"));
            self.count_zeros(Some(score), None);
        }
    }
}

/// How the tree is prepared for a change.
pub(super) enum PlannedKeys {
    /// One key is planned.
    One(Change),
    /// There are nodes for all that come.
    Reserved,
}

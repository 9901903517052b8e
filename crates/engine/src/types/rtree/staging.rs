//! Staged objects: the shard keeps the objects from which a tree is to be built on the heap, as
//! they arrive and while it builds the tree.
//!
//! Invariant: arena and staged objects together stay within the shard's memory. The shard sets free
//! pages of the arena aside, as many bytes as the list of objects takes with its room to grow, and
//! gives them out only after the objects are gone. If keys may be evicted, they make room for
//! staged objects. A stage to which nothing was added for [`STAGE_IDLE_S`] is dropped. The content
//! of a long stage is freed in turns.

use super::stage::Stage;
use super::trees::Trees;
use crate::store::Store;
use crate::types::arena::logged_arena;
use crate::types::object::On;
use remora_arena::{Journal, Slot, database_of};
use remora_index::hash::record_key;
use remora_layout::limits::STAGE_IDLE_S;
use remora_layout::node::Entry;
use remora_protocol::message::Status;
use remora_protocol::tree::{Objects, TreeCommand};
use remora_protocol::{Command, Reply};

impl Trees {
    pub(super) fn stage<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        (load, first): (u64, bool),
        objects: Objects<'_>,
        entry: &Command<'_>,
    ) -> Reply<'static> {
        // The staged objects may have been dropped because the tree has objects.
        let is_end = store.is_applying && first && objects.len() == 0;
        if self.named(root).tree.objects() > 0 && !is_end {
            self.drop_stage(store, root);
            return Reply::status(Status::NotEmpty);
        }
        if objects.iter().any(|(_, rect)| rect.checked().is_err()) {
            return Reply::status(Status::BadRectangle);
        }
        let mut stage = if first {
            self.drop_stage(store, root);
            Stage::new(load)
        } else {
            let grows = |stage: &mut Stage| stage.is_of(load) && !stage.build.has_begun();
            let Some(stage) = self.named_mut(root).stage.take_if(grows) else {
                return Reply::status(Status::OtherLoad);
            };
            stage
        };
        let has_room = stage.make_room(store, objects.len(), on.now);
        if !has_room {
            self.refuse_stage(store, root, (stage, Status::OutOfMemory));
            return Reply::status(Status::OutOfMemory);
        }
        stage.last_s = store.ticked.get();
        stage.is_logged |= objects.len() > 0;
        let entries = objects.iter().map(|(word, rect)| Entry { rect, word });
        store.commit(on.hash.database(), entry, |_| stage.build.extend(entries));
        if stage.len() > 0 {
            store.making_room.held.insert(root);
        }
        let staged = stage.len();
        self.named_mut(root).stage = Some(stage);
        Reply::number(staged as i64)
    }

    /// Drops the staged objects of a tree.
    pub(super) fn drop_stage<J: Journal>(&mut self, store: &mut Store<J>, root: u32) {
        let named = self.by_root.get_mut(&root);
        if let Some(stage) = named.and_then(|named| named.stage.take()) {
            self.unstage(store, root, stage);
        }
    }

    /// Handles a lack of memory: drops the staged objects, unless the same objects come again, once
    /// there is memory, or from the log that is applied.
    pub(super) fn refuse_stage<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        (stage, status): (Stage, Status),
    ) {
        let comes_again = status == Status::OutOfMemory && store.making_room.tries_again;
        if store.is_applying || comes_again {
            self.named_mut(root).stage = Some(stage);
        } else {
            self.unstage(store, root, stage);
        }
    }

    /// Gives up the staged objects of a tree. In the log this is a load that begins and has no
    /// objects.
    pub(super) fn unstage<J: Journal>(&mut self, store: &mut Store<J>, root: u32, stage: Stage) {
        let is_told = !store.is_applying && store.is_live(self.named(root).root);
        if stage.is_logged && is_told {
            let key = record_key(&store.owner, root).to_vec();
            let objects = Objects::parse(&[]).expect("none are a list");
            let none = TreeCommand::Stage { load: stage.load, first: true, objects };
            let request =
                none.checked().map(TreeCommand::request).expect("nothing in it can be refused");
            let database = database_of(&store.owner, root);
            store.commit(database, &Command::Of { key: &key, request }, |_| {});
        }
        self.end_stage(store, self.named(root).root, stage);
    }

    /// Frees a stage's content: at once, or in turns if it is large. A tree that was built keeps
    /// its nodes.
    pub(super) fn end_stage<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: Slot,
        mut stage: Stage,
    ) {
        self.touch(root.slot);
        store.making_room.held.remove(&root.slot);
        if !self.clear_stage(store, root, &mut stage) {
            self.ended_stages.push((root, stage));
        }
    }

    /// Continues to free the content of ended stages.
    pub(super) fn clear_stages<J: Journal>(&mut self, store: &mut Store<J>) {
        if let Some((root, mut stage)) = self.ended_stages.pop()
            && !self.clear_stage(store, root, &mut stage)
        {
            self.ended_stages.push((root, stage));
        }
    }

    /// Frees a part of a stage's content. Returns true once nothing is left.
    fn clear_stage<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: Slot,
        stage: &mut Stage,
    ) -> bool {
        // The content of a removed tree is freed with its pages.
        let named = self.by_root.get_mut(&root.slot).filter(|named| named.root == root);
        let no_nodes = match named.filter(|_| store.is_live(root)) {
            Some(named) => named.tree.unbuild_some(&mut logged_arena(store), &mut stage.build),
            None => true,
        };
        if !stage.build.clear_some() || !no_nodes {
            return false;
        }
        store.give_aside(&mut stage.aside);
        true
    }

    /// Drops stages that nothing was added to for too long: once a second, where one takes memory or
    /// a snapshot may wait for one that takes none.
    pub(super) fn drop_idle_stages<J: Journal>(&mut self, store: &mut Store<J>) {
        let ticked_s = store.ticked.get();
        let matters = store.cover.aside_bytes() > 0 || store.snapshot.is_some();
        if !matters || ticked_s == self.stages_looked_at_s {
            return;
        }
        self.stages_looked_at_s = ticked_s;
        let is_idle = |stage: &mut Stage| ticked_s - stage.last_s > STAGE_IDLE_S;
        let all = self.by_root.iter_mut();
        let idle: Vec<(u32, Stage)> =
            all.filter_map(|(&root, named)| Some((root, named.stage.take_if(is_idle)?))).collect();
        store.stats.stages_abandoned += idle.len() as u64;
        idle.into_iter().for_each(|(root, stage)| self.unstage(store, root, stage));
    }

    /// Whether the books of staged objects are right.
    pub(super) fn audit_stages<J: Journal>(&self, store: &Store<J>) -> Result<(), String> {
        let staged = || self.by_root.values().filter_map(|named| named.stage.as_ref());
        let stages = || staged().chain(self.ended_stages.iter().map(|(_, stage)| stage));
        let total: u64 = stages().map(Stage::bytes).sum();
        let is_covered = stages().all(|stage| stage.build.heap_bytes() <= stage.bytes());
        let total = total + store.cover.requests_bytes;
        if total == store.cover.aside_bytes() && is_covered {
            return Ok(());
        }
        Err(format!("{total} bytes are set aside; the books say {}", store.cover.aside_bytes()))
    }
}

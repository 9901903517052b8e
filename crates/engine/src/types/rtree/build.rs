//! Building a tree of many objects at once, which were staged before: step by step,
//! as its client asks for them. The last step is the change; the log has it alone.

use super::stage::Stage;
use super::trees::{Trees, refusal};
use crate::store::Store;
use crate::types::arena::planned_arena;
use crate::types::object::On;
use remora_arena::Journal;
use remora_index::rtree::TreeError;
use remora_layout::limits::BUILD_TURN_WORK;
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};

impl Trees {
    /// The next step. `InPieces`: it has not been the last.
    pub(super) fn build_tree<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        load: u64,
        entry: &Command<'_>,
    ) -> Reply<'static> {
        if self.named(root).tree.objects() > 0 {
            self.drop_stage(store, root);
            return Reply::status(Status::NotEmpty);
        }
        let Some(mut stage) = self.named_mut(root).stage.take_if(|stage| stage.is_of(load)) else {
            return Reply::status(Status::OtherLoad);
        };
        stage.touch(store.ticked.get());
        // The log's entry brings all of it.
        let work = if store.is_applying { usize::MAX } else { BUILD_TURN_WORK };
        let built = self.build_step(store, (on, root), &mut stage, work);
        match built {
            Ok(true) => {
                let at = self.named(root).root;
                store.commit(on.hash.database(), entry, |store| self.publish(store, root));
                self.end_stage(store, at, stage);
                Reply::number(self.named(root).tree.objects() as i64)
            }
            Ok(false) => {
                self.named_mut(root).stage = Some(stage);
                Reply::status(Status::InPieces)
            }
            Err(status) => {
                self.refuse_stage(store, root, (stage, status));
                Reply::status(status)
            }
        }
    }

    /// Does this much work; makes room if keys may be evicted.
    fn build_step<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        stage: &mut Stage,
        work: usize,
    ) -> Result<bool, Status> {
        let named = self.by_root.get_mut(&root).expect("a root record has its tree");
        let before = (named.tree.objects(), named.tree.bytes());
        // Bounded: each turn has made room for some nodes.
        let built = loop {
            match named.tree.build_some(&mut planned_arena(store), &mut stage.build, work) {
                Err(TreeError::Full(_))
                    if store.make_free(named.tree.wanted_run_bytes(), on.now) => {}
                built => break built,
            }
        };
        self.totals.update(before, &named.tree);
        let heap_bytes = stage.build.heap_bytes();
        match built {
            Ok(false) if !store.set_aside(&mut stage.aside, heap_bytes, on.now) => {
                Err(Status::OutOfMemory)
            }
            built => built.map_err(refusal),
        }
    }
}

//! Making a tree, and changing what is at one key.

use super::accesses::Accesses;
use super::edit::{self, Edit};
use super::image::{Entry, Image};
use super::mending::Mending;
use super::pins::Pins;
use super::plan::{Plan, WriteSet, store_header, store_new};
use super::shapes::Shapes;
use super::tree::{Options, Tree, TreeError};
use crate::pool::{Arena, Pool, set_state};
use remora_arena::Journal;
use remora_layout::btree::{OrderedHeader, Value};
use remora_layout::node::{Home, NodeRef};
use remora_layout::record::State;

/// A change that is planned, and whose memory is taken: it is to be published next.
#[must_use = "the memory that it has taken is lost"]
pub struct Change {
    work: Work,
    /// Keys in the tree with it.
    keys: u64,
}

/// What is to be written.
enum Work {
    Edit(Edit),
    Set(WriteSet),
}

/// Many trees stay small: the first run holds the root alone.
const FIRST_RUN_NODES: usize = 1;

impl Tree {
    /// An empty tree, whose header is to lie at `at`:
    /// [`remora_layout::btree::ORDERED_ROOT_BYTES`] that are the caller's, under a generation never
    /// used there before. Readers that know the place can read it when this returns.
    ///
    /// # Errors
    /// No memory for its first node, or settings beyond the limits.
    pub fn create<J: Journal>(
        arena: &mut Arena<'_, J>,
        home: Home,
        at: NodeRef,
        options: Options,
    ) -> Result<Self, TreeError> {
        let options = options.checked()?;
        let mut pool = Pool::new(options.node_bytes, FIRST_RUN_NODES);
        let root = pool.take(arena)?;
        let header = OrderedHeader {
            fan_out: options.fan_out as u16,
            height: 1,
            keys: options.keys,
            node_bytes: options.node_bytes as u32,
            root,
        };
        let (pins, mending) = (Pins::default(), Mending::default());
        let accesses = Accesses::default();
        let (scratch, path) = (Vec::new(), Vec::new());
        let mut tree = Self {
            home,
            at,
            header,
            pool,
            options,
            keys: 0,
            scratch,
            path,
            pins,
            mending,
            accesses,
            shapes: Shapes::of_leaf(),
        };
        store_new(&mut tree, arena, root, &Image::default());
        store_header(arena.owner, home, at, &header, true);
        set_state(arena.owner, at, State::Live);
        tree.scratch = Vec::new();
        Ok(tree)
    }

    /// Gives a key a value. True if the key is new.
    ///
    /// # Errors
    /// The key or the value does not fit, or there is no memory; nothing has changed.
    pub fn set<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        key: &[u8],
        value: Value<'_>,
    ) -> Result<bool, TreeError> {
        let (change, is_new) = self.plan_set(arena, key, value)?;
        self.publish(arena, change);
        Ok(is_new)
    }

    /// The same, to be published next. True if the key is new.
    ///
    /// # Errors
    /// As [`Tree::set`].
    pub fn plan_set<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        key: &[u8],
        value: Value<'_>,
    ) -> Result<(Change, bool), TreeError> {
        self.options.check_key(key)?;
        self.options.check_value(value)?;
        let found = edit::find(self, arena.owner, key);
        let is_new = found.position.is_err();
        let keys = self.keys + u64::from(is_new);
        if let Some(edit) = edit::set(self, arena, &found, edit::entry(key, value))? {
            return Ok((Change { work: Work::Edit(edit), keys }, is_new));
        }
        let mut plan = Plan::at(self, arena.owner, key);
        let entry = Entry::of_value(key, value);
        match plan.position {
            Ok(index) => plan.image.entries[index] = entry,
            Err(index) => plan.image.entries.insert(index, entry),
        }
        let work = Work::Set(plan.complete(self, arena)?);
        Ok((Change { work, keys }, is_new))
    }

    /// Removes a key. True if it was there.
    ///
    /// It never needs memory, and so never fails for lack of it.
    pub fn delete<J: Journal>(&mut self, arena: &mut Arena<'_, J>, key: &[u8]) -> bool {
        let Some(change) = self.plan_delete(arena, key) else { return false };
        self.publish(arena, change);
        true
    }

    /// The same, to be published next; `None` if the key is not there.
    pub fn plan_delete<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        key: &[u8],
    ) -> Option<Change> {
        self.options.check_key(key).ok()?;
        let found = edit::find(self, arena.owner, key);
        let (index, keys) = (found.position.ok()?, self.keys - 1);
        if let Some(edit) = edit::remove(self, arena.owner, &found, index) {
            return Some(Change { work: Work::Edit(edit), keys });
        }
        let mut plan = Plan::at(self, arena.owner, key);
        plan.image.entries.remove(index);
        let set = plan.complete(self, arena).expect("a node with less in it is not divided");
        Some(Change { work: Work::Set(set), keys })
    }

    /// Lets a change be seen that was planned last.
    pub fn publish<J: Journal>(&mut self, arena: &mut Arena<'_, J>, change: Change) {
        match change.work {
            Work::Edit(edit) => edit.publish(self, arena, change.keys.wrapping_sub(self.keys)),
            Work::Set(set) => set.publish(self, arena),
        }
        self.keys = change.keys;
    }
}

//! Making a tree, and changing what is at one key.

use super::accesses::Accesses;
use super::edit::{self, Edit, Found};
use super::image::{Entry, Image};
use super::mending::Mending;
use super::pins::Pins;
use super::plan::{Plan, WriteSet, store_header, store_new};
use super::shapes::Shapes;
use super::tree::{Options, Tree, TreeError};
use crate::pool::{Arena, Pool, set_state};
use remora_arena::Journal;
use remora_layout::btree::{MoveMark, OrderedHeader, Value};
use remora_layout::node::{Home, NodeRef};
use remora_layout::record::State;

/// A change that is planned, and whose memory is taken: it is to be published next.
#[must_use = "the memory that it has taken is lost"]
pub struct Change {
    pub(super) work: Work,
    /// Keys in the tree with it.
    pub(super) keys: u64,
    pub(super) moving: Moving,
}

/// What a change moves.
pub(super) enum Moving {
    Nothing,
    /// An entry within a leaf.
    Within {
        is_counted: bool,
    },
    /// An entry out of this leaf: its work is to bring it into another one.
    OutOf(Found),
}

/// What is to be written.
pub(super) enum Work {
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
            moves: 0,
        };
        let (pins, mending) = (Pins::default(), Mending::default());
        let accesses = Accesses::default();
        let (path, path_from) = (Vec::new(), Vec::new());
        let mut tree = Self {
            home,
            at,
            header,
            pool,
            options,
            keys: 0,
            scratch: Vec::new(),
            path,
            path_from,
            leaving: None,
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
        let work = self.plan_entry(arena, &found, (key, value), None)?;
        Ok((Change { work, keys, moving: Moving::Nothing }, is_new))
    }

    /// Plans that a leaf has an entry; a counted move leaves its mark.
    pub(super) fn plan_entry<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        found: &Found,
        (key, value): (&[u8], Value<'_>),
        mark: Option<MoveMark>,
    ) -> Result<Work, TreeError> {
        if let Some(edit) = edit::set(self, arena, found, edit::entry(key, value))? {
            return Ok(Work::Edit(edit));
        }
        let mut plan = Plan::of(self, arena.owner, (self.path.clone(), found.at));
        plan.position = found.position;
        plan.image.mark = mark.unwrap_or(plan.image.mark);
        let entry = Entry::of_value(key, value);
        match plan.position {
            Ok(index) => plan.image.entries[index] = entry,
            Err(index) => plan.image.entries.insert(index, entry),
        }
        Ok(Work::Set(plan.complete(self, arena)?))
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
        let work = self.plan_removal(arena, &found, index, None);
        Some(Change { work, keys, moving: Moving::Nothing })
    }

    /// Plans that the entry at an index leaves its leaf.
    pub(super) fn plan_removal<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        found: &Found,
        index: usize,
        mark: Option<MoveMark>,
    ) -> Work {
        if let Some(edit) = edit::remove(self, arena.owner, found, index) {
            return Work::Edit(edit);
        }
        let mut plan = Plan::of(self, arena.owner, (self.path.clone(), found.at));
        plan.image.mark = mark.unwrap_or(plan.image.mark);
        plan.image.entries.remove(index);
        Work::Set(plan.complete(self, arena).expect("a node with less in it is not divided"))
    }

    /// Lets a change be seen that was planned last.
    pub fn publish<J: Journal>(&mut self, arena: &mut Arena<'_, J>, change: Change) {
        let Change { work, keys, moving } = change;
        match moving {
            Moving::Nothing => self.write(arena, work, keys.wrapping_sub(self.keys), None),
            Moving::Within { is_counted } => {
                self.write(arena, work, 0, is_counted.then(|| self.next_mark()));
                if is_counted {
                    self.count_move(arena);
                }
            }
            Moving::OutOf(leaving) => self.move_between(arena, work, leaving),
        }
        self.keys = keys;
    }

    /// Writes what is planned; the tree has so many keys more, wrapping.
    pub(super) fn write<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        work: Work,
        more: u64,
        mark: Option<MoveMark>,
    ) {
        match work {
            Work::Edit(edit) => edit.publish(self, arena, more, mark),
            Work::Set(set) => set.publish(self, arena),
        }
    }
}

//! An entry moves from one key to another: what a change of its order is, if the key holds what it is
//! ordered by.
//!
//! A move within one leaf is one store of it. Else three steps follow each other:
//!
//! 1. The leaf that the entry leaves is torn: readers try again.
//! 2. The entry comes into the other leaf, as an insertion brings it.
//! 3. It leaves the first one, as a deletion removes it; this leaf is whole again.
//!
//! So readers find the entry under one key at least, and no reader finds the old key once another one has
//! found the new one.
//!
//! A scan reads leaves at several moments. It may have read the one leaf before the move, and the other
//! one after it: so it would miss the entry, or show it twice. Both leaves get a mark with a number, and
//! the tree's header gets this number last; a scan that began under a smaller one begins anew at such a
//! leaf (`scan`). A move within one leaf needs this only if keys of several leaves came together in it
//! since the last mark: a scan may have read one of these.

use super::change::{Change, Moving, Work};
use super::edit::{self, Edit, Found};
use super::image::Entry;
use super::plan::{Plan, set_torn, store_header};
use super::tree::{Tree, TreeError};
use crate::pool::Arena;
use remora_arena::{Journal, Owner};
use remora_layout::btree::{MoveMark, Value};
use remora_layout::limits::MAX_ORDERED_KEY_BYTES;

impl Tree {
    /// Plans that an entry moves from one key to another, to be published next. At each moment readers
    /// find it under one of the keys at least; no reader finds the old key once another one has found
    /// the new one; and a scan shows it once.
    ///
    /// # Errors
    /// The new key or the value does not fit, or there is no memory; nothing has changed.
    ///
    /// # Panics
    /// The old key is not there, or the new one is.
    ///
    /// ```
    /// # use remora_arena::{NoJournal, Owner, Slots};
    /// # use remora_index::btree::{Arena, Options, Tree};
    /// # use remora_layout::btree::{KeyForm, ORDERED_ROOT_BYTES, Value};
    /// # use remora_layout::{limits::PAGE_BYTES, node::{Home, NodeRef}};
    /// # let mut owner = Owner::heap(1 << 20, NoJournal);
    /// # let mut slots = Slots::new(PAGE_BYTES, 1 << 20);
    /// # let slot = slots.allocate(&mut owner, ORDERED_ROOT_BYTES, 0)?;
    /// # let at = NodeRef { slot: slot.slot, generation: slot.generation };
    /// # let mut arena = Arena { owner: &mut owner, slots: &mut slots, changed_at: 0 };
    /// # let home = Home { region: 0, secret: 7 };
    /// let options = Options::of(KeyForm::Bytes, 64, 64, 0);
    /// let mut tree = Tree::create(&mut arena, home, at, options)?;
    /// tree.set(&mut arena, b"10 member", Value::of(b""))?;
    /// let change = tree.plan_move(&mut arena, b"10 member", b"25 member", Value::of(b""))?;
    /// tree.publish(&mut arena, change);
    /// assert_eq!(tree.get(arena.owner, b"10 member"), None);
    /// assert_eq!(tree.get(arena.owner, b"25 member"), Some(Value::of(b"")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan_move<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        from: &[u8],
        to: &[u8],
        value: Value<'_>,
    ) -> Result<Change, TreeError> {
        self.options.check_key(to)?;
        self.options.check_value(value)?;
        let leaving = edit::find(self, arena.owner, from);
        assert!(leaving.position.is_ok(), "an entry moves that is not there");
        if self.node(arena.owner, leaving.at).place_of(to).is_eq() {
            return self.plan_within(arena, &leaving, (to, value));
        }
        std::mem::swap(&mut self.path, &mut self.path_from);
        let found = edit::find(self, arena.owner, to);
        assert!(found.position.is_err(), "an entry moves to a key that is there");
        let work = self.plan_entry(arena, &found, (to, value), Some(self.next_mark()))?;
        Ok(Change { work, keys: self.keys, moving: Moving::OutOf(leaving) })
    }

    /// The same within one leaf, which is stored once.
    fn plan_within<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        found: &Found,
        (to, value): (&[u8], Value<'_>),
    ) -> Result<Change, TreeError> {
        let node = self.node(arena.owner, found.at);
        let (Ok(index), Err(next)) = (found.position, node.position(to)) else {
            panic!("an entry moves to a key that is there");
        };
        if node.value(index) == Some(value)
            && let Some(used) = node.with_moved(index, next, to, self.node_scratch())
        {
            let is_counted = node.move_mark().is_joined;
            let work = Work::Edit(Edit::Leaf(found.at, used));
            return Ok(Change { work, keys: self.keys, moving: Moving::Within { is_counted } });
        }
        let mut plan = Plan::of(self, arena.owner, (self.path.clone(), found.at));
        plan.image.mark = self.next_mark();
        let next = next - usize::from(index < next);
        plan.image.entries.remove(index);
        plan.image.entries.insert(next, Entry::of_value(to, value));
        plan.position = Err(next);
        let work = Work::Set(plan.complete(self, arena)?);
        Ok(Change { work, keys: self.keys, moving: Moving::Within { is_counted: true } })
    }

    /// The mark of the leaves of the next move that is counted.
    pub(super) fn next_mark(&self) -> MoveMark {
        MoveMark { moved_at: self.header.moves + 1, is_joined: false }
    }

    /// Brings an entry into a leaf, then removes it from the other one, which is torn meanwhile.
    pub(super) fn move_between<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        work: Work,
        mut leaving: Found,
    ) {
        let mark = Some(self.next_mark());
        // Nodes that come between others change the way to the leaf.
        let key = match work {
            Work::Edit(Edit::Leaf(..)) => None,
            _ => Some(self.key_of(arena.owner, &leaving)),
        };
        set_torn(arena.owner, leaving.at);
        self.leaving = Some(leaving.at);
        self.write(arena, work, 1, mark);
        self.leaving = None;
        match key {
            Some(key) => leaving = edit::find(self, arena.owner, &key),
            None => std::mem::swap(&mut self.path, &mut self.path_from),
        }
        let index = leaving.position.expect("the entry is still there");
        let removal = self.plan_removal(arena, &leaving, index, mark);
        self.write(arena, removal, u64::MAX, mark);
        self.count_move(arena);
    }

    /// The key that was found.
    fn key_of<J: Journal>(&self, owner: &Owner<J>, found: &Found) -> Vec<u8> {
        let (node, mut key) = (self.node(owner, found.at), [0; MAX_ORDERED_KEY_BYTES]);
        let index = found.position.expect("the key is there");
        node.key(index, &mut key).expect("the owner's own").to_vec()
    }

    /// Lets scans begin that need not know of the move any more: the last step of a counted one.
    pub(super) fn count_move<J: Journal>(&mut self, arena: &mut Arena<'_, J>) {
        self.header.moves += 1;
        store_header(arena.owner, self.home, self.at, &self.header, false);
    }
}

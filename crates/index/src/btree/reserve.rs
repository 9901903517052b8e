//! Memory for several changes at once, so that they are planned as one.

use super::tree::{Options, Tree, TreeError};
use crate::pool::Arena;
use remora_arena::{Journal, Owner};
use remora_layout::btree::{ENTRY_HEAD_BYTES, ORDERED_HEADER_BYTES, leaf_value_bytes, room_bytes};
use remora_layout::limits::{MAX_ORDERED_KEY_BYTES, MAX_TREE_HEIGHT, WORD_BYTES};
use remora_layout::node::NodeRef;
use std::collections::BTreeMap;

impl Tree {
    /// Takes memory, so that insertions, moves or new values at these keys do not fail for lack of it, made
    /// one after the other. Nodes that they do not need are used by later changes. No address is held
    /// meanwhile ([`Tree::hold`]): a node that is held is divided into two new ones.
    ///
    /// Keys whose leaves have room take no memory. One change alone needs no reserve: its plan takes what
    /// its path needs.
    ///
    /// # Errors
    /// There is no memory for so many.
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
    /// let mut tree = Tree::create(&mut arena, home, at, Options::of(KeyForm::Bytes, 64, 64, 0))?;
    /// let members = [b"10 one", b"12 two", b"17 six"];
    /// tree.reserve(&mut arena, members)?;
    /// for member in members {
    ///     tree.set(&mut arena, member, Value::of(b"")).expect("memory is reserved");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<(), TreeError> {
        let nodes = self.nodes_for(arena.owner, keys, false);
        Ok(self.pool.reserve(arena, nodes)?)
    }

    /// The same for insertions and new values alone, before which no key goes: nodes are not joined, so that
    /// separators are no longer than the keys that lie in the divided nodes now. If most keys are much shorter than
    /// they may be, this takes much less.
    ///
    /// # Errors
    /// As of [`Tree::reserve`].
    pub fn reserve_insertions<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<(), TreeError> {
        let nodes = self.nodes_for(arena.owner, keys, true);
        Ok(self.pool.reserve(arena, nodes)?)
    }

    /// Nodes that entries with these keys take at most: each divides one node of a level at most, and none
    /// that has room for all that come to it.
    fn nodes_for<J: Journal>(
        &self,
        owner: &Owner<J>,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
        only_inserts: bool,
    ) -> usize {
        let value = leaf_value_bytes(self.options.value_bytes);
        let mut level = BTreeMap::<Vec<NodeRef>, Load>::new();
        for key in keys {
            let mut path = Vec::new();
            let leaf = self.descend(owner, key.as_ref(), |at, _| path.push(at));
            path.push(leaf);
            let bytes = key.as_ref().len();
            level.entry(path).or_default().add(1, ENTRY_HEAD_BYTES + bytes + value, bytes);
        }
        let mut nodes = 0;
        // Bounded: each level is nearer to the root.
        while !level.is_empty() {
            let mut above = BTreeMap::<Vec<NodeRef>, Load>::new();
            for (mut path, load) in level {
                let Some(at) = path.pop().filter(|at| !self.has_room(owner, *at, load)) else {
                    continue;
                };
                nodes += load.entries;
                let longest = match only_inserts {
                    true => load.longest.max(self.longest_key(owner, at)),
                    false => self.options.key_bytes,
                };
                if at == self.header.root {
                    nodes += self.nodes_above_root(load.entries, longest);
                } else {
                    let bytes = load.entries * (ENTRY_HEAD_BYTES + longest);
                    above.entry(path).or_default().add(load.entries, bytes, longest);
                }
            }
            level = above;
        }
        nodes
    }

    /// Nodes above the root, if that is divided so often: each new root has two entries first, and is
    /// divided after it has filled up.
    fn nodes_above_root(&self, divisions: usize, longest: usize) -> usize {
        let room = self.least_entries(ORDERED_HEADER_BYTES, longest).min(self.options.fan_out);
        let full = (divisions - 1) / room.saturating_sub(1).max(1);
        let full = full.min(usize::from(MAX_TREE_HEIGHT - self.header.height));
        1 + full * (divisions + 1)
    }

    /// Whether a node is not divided by what comes to it.
    fn has_room<J: Journal>(&self, owner: &Owner<J>, at: NodeRef, load: Load) -> bool {
        let (node, options) = (self.node(owner, at), &self.options);
        // The payloads of a leaf may take another form, with a word more for each.
        let more = if node.is_leaf() { node.entries() * WORD_BYTES } else { 0 };
        let bytes = node.used_bytes() + more + load.bytes + PADDING_BYTES;
        node.entries() + load.entries <= options.fan_out
            && bytes <= room_bytes(options.node_bytes, node.is_leaf(), options.fan_out)
    }

    /// Entries for which an inner node has room that uses so many bytes, if their keys are so long.
    fn least_entries(&self, used: usize, longest: usize) -> usize {
        let Options { node_bytes, fan_out, .. } = self.options;
        let room = room_bytes(node_bytes, false, fan_out);
        room.saturating_sub(used + PADDING_BYTES) / (ENTRY_HEAD_BYTES + longest)
    }

    /// Bytes of the longest key in a node.
    fn longest_key<J: Journal>(&self, owner: &Owner<J>, at: NodeRef) -> usize {
        let (node, mut key) = (self.node(owner, at), [0; MAX_ORDERED_KEY_BYTES]);
        let bytes = |index| node.key(index, &mut key).map_or(0, <[u8]>::len);
        (0..node.entries()).map(bytes).max().unwrap_or(0)
    }
}

/// What comes to a node.
#[derive(Clone, Copy, Default)]
struct Load {
    entries: usize,
    bytes: usize,
    /// The longest key of these.
    longest: usize,
}

impl Load {
    fn add(&mut self, entries: usize, bytes: usize, longest: usize) {
        (self.entries, self.bytes) = (self.entries + entries, self.bytes + bytes);
        self.longest = self.longest.max(longest);
    }
}

/// What the parts of a node take more to whole words, at most.
const PADDING_BYTES: usize = 3 * WORD_BYTES;

#[cfg(test)]
mod tests {
    use super::super::{Arena, Options, Tree};
    use remora_arena::{NoJournal, Owner, Slots};
    use remora_layout::btree::{KeyForm, ORDERED_ROOT_BYTES, Value};
    use remora_layout::limits::PAGE_BYTES;
    use remora_layout::node::{Home, NodeRef};
    use remora_testing::Random;

    #[test]
    fn insertions_take_no_more_nodes_than_are_reserved_for_them_and_some_take_all() {
        let (mut random, mut roots) = (Random::new(6), 0);
        for (fan_out, longest, only_inserts) in
            [(4, 9, false), (4, 256, false), (16, 256, false), (4, 256, true), (16, 1024, true)]
        {
            let mut owner = Owner::heap(64 << 20, NoJournal);
            let mut slots = Slots::new(PAGE_BYTES, 64 << 20);
            let slot = slots.allocate(&mut owner, ORDERED_ROOT_BYTES, 0).unwrap();
            let at = NodeRef { slot: slot.slot, generation: slot.generation };
            let mut arena = Arena { owner: &mut owner, slots: &mut slots, changed_at: 0 };
            let home = Home { region: 0, secret: 7 };
            let options = Options::of(KeyForm::Bytes, fan_out, longest, 0);
            let mut tree = Tree::create(&mut arena, home, at, options).unwrap();
            let (mut all, mut reserved, mut needed) = (0, 0, 0);
            for _ in 0..800 {
                let entries = random.pick(&[1, 1, 1, 2, 7, 30]);
                let keys: Vec<Vec<u8>> = (0..entries)
                    .map(|_| {
                        let usual = if only_inserts { random.below(40) as usize } else { 9 };
                        let is_long = random.one_in(if only_inserts { 12 } else { 2 });
                        random.bytes(if is_long { longest } else { usual })
                    })
                    .collect();
                let most = tree.nodes_for(arena.owner, &keys, only_inserts);
                let nodes = tree.nodes();
                let height = tree.header().height;
                for key in &keys {
                    tree.set(&mut arena, key, Value::of(b"")).unwrap();
                }
                let taken = (tree.nodes() - nodes) as usize;
                assert!(taken <= most, "{entries} entries take {taken} of {most} nodes");
                let grew = tree.header().height > height;
                all += usize::from(taken > 0 && taken == most);
                roots += usize::from(grew && taken == most);
                // Keys of one leaf each: few of them are divided.
                reserved += if entries == 1 { most } else { 0 };
                needed += if entries == 1 { taken } else { 0 };
            }
            assert!(all > 20, "{fan_out}, {longest}: {all}");
            assert!(reserved <= 4 * needed, "{reserved} reserved, {needed} needed");
        }
        assert!(roots > 0, "no new root takes all");
    }

    /// Moves join leaves too, which later entries of the same change divide again.
    #[test]
    fn moves_take_no_more_nodes_than_are_reserved_for_them() {
        let mut random = Random::new(7);
        let (mut joined, mut all) = (0, 0);
        for (fan_out, longest) in [(4, 9), (4, 256), (5, 256), (16, 256)] {
            let mut owner = Owner::heap(64 << 20, NoJournal);
            let mut slots = Slots::new(PAGE_BYTES, 64 << 20);
            let slot = slots.allocate(&mut owner, ORDERED_ROOT_BYTES, 0).unwrap();
            let at = NodeRef { slot: slot.slot, generation: slot.generation };
            let mut arena = Arena { owner: &mut owner, slots: &mut slots, changed_at: 0 };
            let home = Home { region: 0, secret: 7 };
            let options = Options::of(KeyForm::Bytes, fan_out, longest, 0);
            let mut tree = Tree::create(&mut arena, home, at, options).unwrap();
            let draw = |random: &mut Random| {
                let bytes = random.pick(&[9, 9, longest, longest - 3]);
                // Few beginnings: separators are long.
                let mut key = vec![random.below(3) as u8; bytes / 2];
                key.extend(random.bytes(bytes - bytes / 2));
                key
            };
            let mut there: Vec<Vec<u8>> = Vec::new();
            for step in 0..3_000 {
                let grows = (step / 300) % 2 == 0;
                let moves = random.below(8) as usize;
                let mut changes: Vec<(Option<Vec<u8>>, Vec<u8>)> = Vec::new();
                for _ in 0..moves.min(there.len()) {
                    let from = there.swap_remove(random.below(there.len() as u64) as usize);
                    changes.push((Some(from), draw(&mut random)));
                }
                for _ in 0..if grows { random.below(4) } else { 0 } {
                    changes.push((None, draw(&mut random)));
                }
                let (most, nodes) = (
                    tree.nodes_for(arena.owner, changes.iter().map(|of| &of.1), false),
                    tree.nodes(),
                );
                let mut taken = 0;
                for (from, to) in &changes {
                    let before = tree.nodes();
                    match from {
                        Some(from) => {
                            let moved =
                                tree.plan_move(&mut arena, from, to, Value::of(b"")).unwrap();
                            tree.publish(&mut arena, moved);
                        }
                        None => _ = tree.set(&mut arena, to, Value::of(b"")).unwrap(),
                    }
                    joined += usize::from(tree.nodes() < before);
                    taken = taken.max(tree.nodes() as i64 - nodes as i64);
                }
                all += usize::from(most > 0 && taken == most as i64);
                assert!(
                    taken <= most as i64,
                    "fan-out {fan_out}, {longest}, step {step}: {taken} of {most}"
                );
                there.extend(changes.into_iter().map(|of| of.1));
                for _ in 0..if grows { 0 } else { random.below(4).min(there.len() as u64) } {
                    let gone = there.swap_remove(random.below(there.len() as u64) as usize);
                    let change = tree.plan_delete(&mut arena, &gone).unwrap();
                    tree.publish(&mut arena, change);
                }
            }
        }
        assert!(joined > 100 && all > 100, "{joined}, {all}");
    }
}

//! The usual changes, made from the bytes of the nodes that they touch: an entry of a leaf that
//! stays within its bounds, and a leaf that is divided below a parent that has room. `plan` makes
//! all others.
//!
//! They are published in the order of the module's text, as the others are.

use super::image::{items_at_share, separator};
use super::plan::{ASCENDING, HALF, are_few, are_few_bytes, store_new_bytes, store_over_bytes};
use super::tree::Tree;
use crate::pool::Arena;
use remora_arena::{ArenaFull, Journal, Owner};
use remora_layout::btree::{
    Content, Item, MoveMark, ORDERED_HEADER_BYTES, OrderedNode, Ownership, Payload, Splice, Value,
    encode, encoded_bytes, item_bytes, prefix_bytes, room_bytes, set_move_mark,
};
use remora_layout::limits::{MAX_ORDERED_KEY_BYTES, WORD_BYTES};
use remora_layout::node::{NodeRef, word};

/// The leaf of a key. The tree keeps the path to it.
pub(super) struct Found {
    pub at: NodeRef,
    /// Where the key is in the leaf, or belongs.
    pub position: Result<usize, usize>,
}

/// A change that is planned.
pub(super) enum Edit {
    /// The tree's scratch has the leaf, of so many bytes.
    Leaf(NodeRef, usize),
    /// A leaf becomes two.
    Division(Box<Division>),
}

/// The nodes of a division: places and bytes.
pub(super) struct Division {
    left: (NodeRef, Vec<u8>),
    right: (NodeRef, Vec<u8>),
    parent: (NodeRef, Vec<u8>),
    /// The entry of the left leaf in its parent, and how many children that had.
    index: usize,
    children: usize,
    /// Keys of left and right leaf.
    keys: [u64; 2],
}

/// Finds the leaf of a key, and fetches what its change will touch.
pub(super) fn find<J: Journal>(tree: &mut Tree, owner: &Owner<J>, key: &[u8]) -> Found {
    let mut path = std::mem::take(&mut tree.path);
    path.clear();
    let at = tree.descend(owner, key, |at, index| {
        owner.prefetch(tree.count_word(at, index) * WORD_BYTES);
        path.push((at, index));
    });
    tree.path = path;
    Found { at, position: tree.node(owner, at).position(key) }
}

/// Plans to give a key a value; `None` if it is not one of the usual changes.
pub(super) fn set<J: Journal>(
    tree: &mut Tree,
    arena: &mut Arena<'_, J>,
    found: &Found,
    item: Item<'_>,
) -> Result<Option<Edit>, ArenaFull> {
    let node = tree.node(arena.owner, found.at);
    match found.position {
        Ok(index) => {
            let splice = Splice::Replace(item.payload);
            let Some(used) = node.spliced(index, splice, tree.node_scratch()) else {
                return Ok(None);
            };
            let is_alone = used >= node.used_bytes()
                || !may_join(tree, arena.owner, &node, (node.entries(), used));
            Ok(is_alone.then_some(Edit::Leaf(found.at, used)))
        }
        Err(index) => {
            if node.entries() < tree.options.fan_out {
                let used = node.spliced(index, Splice::Insert(item), tree.node_scratch());
                if used.is_some() || !node.takes(item.payload) {
                    return Ok(used.map(|used| Edit::Leaf(found.at, used)));
                }
            }
            divide(tree, arena, found.at, index, item)
        }
    }
}

/// Plans to remove the key at an index of its leaf; `None` if it is not one of the usual changes.
pub(super) fn remove<J: Journal>(
    tree: &mut Tree,
    owner: &Owner<J>,
    found: &Found,
    index: usize,
) -> Option<Edit> {
    let node = tree.node(owner, found.at);
    let used = node.spliced(index, Splice::Remove, tree.node_scratch())?;
    let is_alone = !may_join(tree, owner, &node, (node.entries() - 1, used));
    is_alone.then_some(Edit::Leaf(found.at, used))
}

/// Whether a leaf that has so many entries now, and takes so many bytes, may become one with a neighbour:
/// the entries of both are few enough, and may fit one leaf.
fn may_join<J: Journal>(
    tree: &Tree,
    owner: &Owner<J>,
    leaf: &OrderedNode<'_>,
    (entries, used): (usize, usize),
) -> bool {
    let Some(&(parent, index)) = tree.path.last() else { return false };
    let (parent, room) = (tree.node(owner, parent), tree.room());
    // Together they have one header, a common prefix that is no longer, and less padding.
    let fit = |other: &OrderedNode<'_>| {
        let both = leaf.entry_bytes(used) + other.entry_bytes(other.used_bytes());
        let bytes = (ORDERED_HEADER_BYTES + both).saturating_sub(4 * WORD_BYTES);
        are_few_bytes((bytes, true), entries.min(other.entries()), &room)
    };
    let neighbours = [index.checked_add(1), index.checked_sub(1)];
    let mut places = neighbours.into_iter().flatten().filter_map(|index| parent.child(index));
    places.any(|at| {
        let other = tree.node(owner, at);
        are_few(entries, other.entries(), &room) && fit(&other)
    })
}

/// The entries of a full leaf and one more.
struct Entries {
    /// Their keys, one behind the other.
    keys: Vec<u8>,
    ends: Vec<usize>,
}

impl Entries {
    fn of(node: &OrderedNode<'_>) -> Self {
        let mut all = Self { keys: Vec::new(), ends: Vec::with_capacity(node.entries()) };
        let mut key = [0; MAX_ORDERED_KEY_BYTES];
        for index in 0..node.entries() {
            all.keys.extend_from_slice(node.key(index, &mut key).expect("the owner's own"));
            all.ends.push(all.keys.len());
        }
        all
    }

    fn items<'i>(&'i self, node: &OrderedNode<'i>, new: (usize, Item<'i>)) -> Vec<Item<'i>> {
        let mut items = Vec::with_capacity(self.ends.len() + 1);
        let mut from = 0;
        for (index, &end) in self.ends.iter().enumerate() {
            let value = node.value(index).expect("the owner's own");
            items.push(Item { key: &self.keys[from..end], payload: Payload::Value(value) });
            from = end;
        }
        items.insert(new.0, new.1);
        items
    }
}

/// Plans the division of a full leaf; `None` if its parent has no room, or others hold its address.
fn divide<J: Journal>(
    tree: &mut Tree,
    arena: &mut Arena<'_, J>,
    at: NodeRef,
    index: usize,
    item: Item<'_>,
) -> Result<Option<Edit>, ArenaFull> {
    let Some(&(parent, _)) = tree.path.last() else { return Ok(None) };
    let is_full = tree.node(arena.owner, parent).entries() >= tree.options.fan_out;
    if is_full || tree.pins.holds(at) {
        return Ok(None);
    }
    let right = tree.pool.take(arena)?;
    let division = divided(tree, arena, (at, right), (index, item));
    if division.is_none() {
        tree.pool.give(arena, right);
    }
    Ok(division.map(|division| Edit::Division(Box::new(division))))
}

fn divided<J: Journal>(
    tree: &Tree,
    arena: &Arena<'_, J>,
    (at, right): (NodeRef, NodeRef),
    (index, item): (usize, Item<'_>),
) -> Option<Division> {
    let keys = tree.options.keys;
    let node = tree.node(arena.owner, at);
    let entries = Entries::of(&node);
    let items = entries.items(&node, (index, item));
    let is_last = node.right().is_none() && index + 1 == items.len();
    let share = if is_last { ASCENDING } else { HALF };
    let prefix = prefix_bytes(keys, node.low(), node.high());
    let bytes = |item: &Item<'_>| item_bytes(keys, prefix, item);
    let (first, second) = items.split_at(items_at_share(items.iter().map(bytes), share));
    let separator = separator(keys, first[first.len() - 1].key, second[0].key);
    let whole = Content {
        level: 0,
        is_deep: false,
        keys,
        low: node.low(),
        high: node.high(),
        right: node.right().unwrap_or_default(),
        items: &items,
    };
    let left = Content { high: Some(separator), right, items: first, ..whole };
    let behind = Content { low: separator, items: second, ..whole };
    let (parent, index) = *tree.path.last()?;
    let above = tree.node(arena.owner, parent);
    let new = Item { key: separator, payload: Payload::Child(right) };
    let mut parent_bytes =
        vec![0; room_bytes(tree.options.node_bytes, false, tree.options.fan_out)];
    let used = above.spliced(index + 1, Splice::Insert(new), &mut parent_bytes)?;
    parent_bytes.truncate(used);
    let mark = node.move_mark();
    Some(Division {
        left: (at, leaf_bytes(tree, arena, at, (&left, mark))?),
        right: (right, leaf_bytes(tree, arena, right, (&behind, mark))?),
        parent: (parent, parent_bytes),
        index,
        children: above.entries(),
        keys: [first.len() as u64, second.len() as u64],
    })
}

/// A leaf's bytes; `None` if they do not fit.
fn leaf_bytes<J: Journal>(
    tree: &Tree,
    arena: &Arena<'_, J>,
    at: NodeRef,
    (content, mark): (&Content<'_>, MoveMark),
) -> Option<Vec<u8>> {
    let used = encoded_bytes(content);
    if used > tree.options.node_bytes || content.items.len() > tree.options.fan_out {
        return None;
    }
    let mut bytes = vec![0; used];
    encode(content, Ownership { at, tree: tree.at, changed_at: arena.changed_at }, &mut bytes);
    set_move_mark(&mut bytes, mark);
    Some(bytes)
}

/// Sets the sequence of the change, which is known when it is published.
fn set_changed_at(bytes: &mut [u8], changed_at: u64) {
    let at = word::CHANGED_AT * WORD_BYTES;
    bytes[at..at + WORD_BYTES].copy_from_slice(&changed_at.to_le_bytes());
}

impl Edit {
    /// The bytes of the leaves that it stores.
    fn leaves<'e>(&'e mut self, scratch: &'e mut [u8]) -> impl Iterator<Item = &'e mut [u8]> {
        let (one, other) = match self {
            Self::Leaf(_, used) => (&mut scratch[..*used], None),
            Self::Division(of) => (&mut of.left.1[..], Some(&mut of.right.1[..])),
        };
        std::iter::once(one).chain(other)
    }

    /// Publishes it; the tree has so many keys more, wrapping. A counted move leaves its mark.
    pub fn publish<J: Journal>(
        mut self,
        tree: &mut Tree,
        arena: &mut Arena<'_, J>,
        more: u64,
        mark: Option<MoveMark>,
    ) {
        if let Some(mark) = mark {
            self.leaves(&mut tree.scratch).for_each(|leaf| set_move_mark(leaf, mark));
        }
        let path = match self {
            Self::Leaf(at, used) => {
                let bytes = &mut tree.scratch[..used];
                set_changed_at(bytes, arena.changed_at);
                store_over_bytes(arena.owner, tree.home, at, bytes);
                &tree.path[..]
            }
            Self::Division(mut division) => {
                let parent = tree.node(arena.owner, division.parent.0);
                let (level, is_deep) = (parent.level(), parent.is_deep());
                tree.shapes.divided(level, is_deep);
                division.publish(tree, arena);
                &tree.path[..tree.path.len() - 1]
            }
        };
        if more == 0 {
            return;
        }
        for &(at, index) in path {
            let word = tree.count_word(at, index);
            let count = arena.owner.word(word).wrapping_add(more);
            arena.owner.store(word, count);
        }
    }
}

impl Division {
    /// All but the counts above the parent.
    fn publish<J: Journal>(&mut self, tree: &Tree, arena: &mut Arena<'_, J>) {
        let Self { left, right, parent, index, children, keys } = self;
        for (_, bytes) in [&mut *left, &mut *right, &mut *parent] {
            set_changed_at(bytes, arena.changed_at);
        }
        let owner = &mut *arena.owner;
        store_new_bytes(owner, tree.home, right.0, &right.1);
        owner.release();
        store_over_bytes(owner, tree.home, left.0, &left.1);
        store_over_bytes(owner, tree.home, parent.0, &parent.1);
        let word = |index: usize| tree.count_word(parent.0, index);
        for at in (*index + 1..*children).rev() {
            let count = owner.word(word(at));
            owner.store(word(at + 1), count);
        }
        owner.store(word(*index), keys[0]);
        owner.store(word(*index + 1), keys[1]);
    }
}

/// An entry of a leaf.
pub(super) fn entry<'i>(key: &'i [u8], value: Value<'i>) -> Item<'i> {
    Item { key, payload: Payload::Value(value) }
}

//! One change: computed on images of the nodes that it touches, then published in the order of the
//! module's text.

use super::image::{Entry, Image, Owned, Room};
use super::tree::Tree;
use crate::pool::{self, Arena, begin_new, finish, set_state, word_of};
use remora_arena::{ArenaFull, Journal, Owner};
use remora_layout::btree::{
    ORDERED_HEADER_BYTES, ORDERED_ROOT_BYTES, OrderedHeader, Ownership, encode, room_bytes,
};
use remora_layout::limits::WORD_BYTES;
use remora_layout::node::{CheckedPart, Home, NODE_CHECKED_FROM, NodeRef, word};
use remora_layout::record::State;
use zerocopy::IntoBytes;

/// Share of its bytes, of 100, that a node keeps when it is divided.
pub(super) const HALF: usize = 50;
/// The same, of the last node of a level when its new entry is the last: ascending keys leave full
/// nodes behind.
pub(super) const ASCENDING: usize = 90;
/// Two neighbours become one node if they fill it to this share of 100 at most: the next insertions
/// do not divide it again.
const JOINED: usize = 75;
/// A node with this part of the fan-out or less joins a neighbour wherever both fit one node.
const FEW: usize = 8;

/// A change of one leaf, and what follows from it.
pub(super) struct Plan {
    /// Inner nodes from the root down, and the index of the child.
    path: Vec<(NodeRef, usize)>,
    at: NodeRef,
    /// The leaf.
    pub leaf: Image,
    /// Where its key is in the leaf, or belongs.
    pub position: Result<usize, usize>,
    before: Before,
}

/// What a node was before its change.
#[derive(Clone, Copy)]
struct Before {
    bytes: usize,
    entries: usize,
}

impl Before {
    fn of(image: &Image, room: &Room) -> Self {
        Self { bytes: image.bytes(room.keys), entries: image.entries.len() }
    }
}

/// The nodes that a change touches.
#[derive(Default)]
pub(super) struct WriteSet {
    new: Vec<(NodeRef, Image)>,
    /// From the leaf up.
    changed: Vec<(NodeRef, Image)>,
    freed: Vec<NodeRef>,
    /// Counts of children in nodes that do not change else.
    counts: Vec<(usize, u64)>,
    root: Option<(NodeRef, u8)>,
}

/// What a node's parent has to know.
enum Upwards {
    /// The child has so many keys now.
    Count(u64),
    /// The child has so many keys, and a new right neighbour.
    Divided(u64, Entry),
    /// The child of this index has so many keys, and its right neighbour is freed.
    Joined(usize, u64),
}

impl Plan {
    /// A change of the leaf of a key.
    pub fn at<J: Journal>(tree: &Tree, owner: &Owner<J>, key: &[u8]) -> Self {
        let mut path = Vec::with_capacity(tree.header.height as usize);
        let mut at = tree.header.root;
        for _ in 1..tree.header.height {
            let node = tree.node(owner, at);
            let index = node.child_index(key);
            path.push((at, index));
            at = node.child(index).expect("an inner node has children");
        }
        let position = tree.node(owner, at).position(key);
        let leaf = tree.image(owner, at);
        let before = Before::of(&leaf, &tree.room());
        Self { path, at, leaf, position, before }
    }

    /// Plans what follows from the change of the leaf, and takes the memory for it.
    pub fn complete<J: Journal>(
        mut self,
        tree: &mut Tree,
        arena: &mut Arena<'_, J>,
    ) -> Result<WriteSet, ArenaFull> {
        let mut set = WriteSet::default();
        match self.compute(tree, arena, &mut set) {
            Ok(()) => Ok(set),
            Err(full) => {
                for (at, _) in set.new {
                    tree.pool.give(arena, at);
                }
                Err(full)
            }
        }
    }

    fn compute<J: Journal>(
        &mut self,
        tree: &mut Tree,
        arena: &mut Arena<'_, J>,
        set: &mut WriteSet,
    ) -> Result<(), ArenaFull> {
        let room = tree.room();
        let (mut at, mut image) = (self.at, std::mem::take(&mut self.leaf));
        let (mut before, mut position) = (self.before, self.position.unwrap_or_else(|next| next));
        loop {
            let parent = self.path.pop();
            let upwards = if !image.fits(&room) {
                divide(tree, arena, set, (at, image), position)?
            } else {
                join(tree, arena.owner, set, (at, image), before, parent)
            };
            let Some((parent, index)) = parent else {
                return grow(tree, arena, set, at, upwards);
            };
            if let Upwards::Count(count) = upwards {
                self.path.push((parent, index));
                self.keep_counts(tree, arena.owner, set, count);
                return Ok(());
            }
            (at, image) = (parent, tree.image(arena.owner, parent));
            before = Before::of(&image, &room);
            position = apply(&mut image, index, upwards);
            if self.path.is_empty() && image.entries.len() == 1 {
                let Owned::Child(child, _) = image.entries[0].payload else {
                    unreachable!("the image of an inner node has children")
                };
                set.freed.push(at);
                set.root = Some((child, image.level));
                return Ok(());
            }
        }
    }

    /// From here up only counts change; the last node of the path has the child with the new count.
    fn keep_counts<J: Journal>(
        &self,
        tree: &Tree,
        owner: &Owner<J>,
        set: &mut WriteSet,
        count: u64,
    ) {
        let Some(&(at, index)) = self.path.last() else { return };
        let before = owner.word(tree.count_word(at, index));
        for &(at, index) in &self.path {
            let word = tree.count_word(at, index);
            set.counts.push((word, owner.word(word).wrapping_add(count).wrapping_sub(before)));
        }
    }
}

/// Divides a node that is too full.
fn divide<J: Journal>(
    tree: &mut Tree,
    arena: &mut Arena<'_, J>,
    set: &mut WriteSet,
    (at, image): (NodeRef, Image),
    position: usize,
) -> Result<Upwards, ArenaFull> {
    let ascends = image.right.slot == 0 && position + 1 == image.entries.len();
    let share = if ascends { ASCENDING } else { HALF };
    let right = tree.pool.take(arena)?;
    let (left, behind) = image.divided(&tree.room(), share, right);
    let payload = Owned::Child(right, behind.count());
    let entry = Entry { key: behind.low.clone(), payload };
    let count = left.count();
    set.changed.push((at, left));
    set.new.push((right, behind));
    Ok(Upwards::Divided(count, entry))
}

/// Joins a node that has become smaller with a neighbour, if both fit one node.
fn join<J: Journal>(
    tree: &Tree,
    owner: &Owner<J>,
    set: &mut WriteSet,
    (at, image): (NodeRef, Image),
    before: Before,
    parent: Option<(NodeRef, usize)>,
) -> Upwards {
    let room = tree.room();
    let now = Before::of(&image, &room);
    if let Some((parent, index)) = parent
        && (now.bytes < before.bytes || now.entries < before.entries)
    {
        let node = tree.node(owner, parent);
        // The one behind it first, then the one before it.
        for left in [Some(index), index.checked_sub(1)].into_iter().flatten() {
            let (Some(first), Some(second)) = (node.child(left), node.child(left + 1)) else {
                continue;
            };
            let neighbour = if left == index { second } else { first };
            let others = tree.node(owner, neighbour).entries();
            if !are_few(now.entries, others, &room) {
                continue;
            }
            let other = tree.image(owner, neighbour);
            let joined = if left == index {
                image.clone().joined(other)
            } else {
                other.joined(image.clone())
            };
            if has_room(&joined, now.entries.min(others), &room) {
                let count = joined.count();
                set.changed.push((first, joined));
                set.freed.push(second);
                return Upwards::Joined(left, count);
            }
        }
    }
    let count = image.count();
    set.changed.push((at, image));
    Upwards::Count(count)
}

/// Whether a node of so many entries joins a neighbour wherever both fit.
fn is_small(entries: usize, room: &Room) -> bool {
    entries <= (room.fan_out / FEW).max(1)
}

/// Whether two nodes have few enough entries for one.
pub(super) fn are_few(one: usize, other: usize, room: &Room) -> bool {
    let both = one + other;
    both * 100 <= room.fan_out * JOINED || (is_small(one.min(other), room) && both <= room.fan_out)
}

/// Whether two joined nodes, the smaller one of which had `fewest` entries, take few enough bytes.
fn has_room(joined: &Image, fewest: usize, room: &Room) -> bool {
    let bytes = joined.bytes(room.keys);
    let most = room_bytes(room.node_bytes, joined.level, room.fan_out);
    bytes * 100 <= most * JOINED || (is_small(fewest, room) && bytes <= most)
}

/// Changes the image of a parent; gives the index of the entry that came or changed.
fn apply(image: &mut Image, index: usize, upwards: Upwards) -> usize {
    let mut set_count = |index: usize, count| {
        if let Owned::Child(_, keys) = &mut image.entries[index].payload {
            *keys = count;
        }
    };
    match upwards {
        Upwards::Count(count) => {
            set_count(index, count);
            index
        }
        Upwards::Divided(count, entry) => {
            set_count(index, count);
            image.entries.insert(index + 1, entry);
            index + 1
        }
        Upwards::Joined(left, count) => {
            set_count(left, count);
            image.entries.remove(left + 1);
            left
        }
    }
}

/// A new root above one that was divided.
fn grow<J: Journal>(
    tree: &mut Tree,
    arena: &mut Arena<'_, J>,
    set: &mut WriteSet,
    at: NodeRef,
    upwards: Upwards,
) -> Result<(), ArenaFull> {
    let Upwards::Divided(count, entry) = upwards else { return Ok(()) };
    let root = tree.pool.take(arena)?;
    let height = tree.header.height;
    let first = Entry { key: Vec::new(), payload: Owned::Child(at, count) };
    let image = Image { level: height, entries: vec![first, entry], ..Image::default() };
    set.new.push((root, image));
    set.root = Some((root, height + 1));
    Ok(())
}

impl WriteSet {
    /// The module's text, step by step.
    pub fn publish<J: Journal>(self, tree: &mut Tree, arena: &mut Arena<'_, J>) {
        for (at, image) in &self.new {
            store_new(tree, arena, *at, image);
        }
        for &at in &self.freed {
            set_state(arena.owner, at, State::Dead);
        }
        arena.owner.release();
        for (at, image) in &self.changed {
            store_over(tree, arena, *at, image);
        }
        for (word, count) in self.counts {
            arena.owner.store(word, count);
        }
        if let Some((root, height)) = self.root {
            tree.header = OrderedHeader { root, height, ..tree.header };
            store_header(arena.owner, tree.home, tree.at, &tree.header, false);
        }
        for at in self.freed {
            tree.pool.give(arena, at);
        }
    }
}

/// Encodes an image into the tree's scratch; gives the used bytes.
fn encode_into<J: Journal>(
    tree: &mut Tree,
    arena: &Arena<'_, J>,
    at: NodeRef,
    image: &Image,
) -> usize {
    let ownership = Ownership { at, tree: tree.at, changed_at: arena.changed_at };
    let scratch = &mut tree.scratch[..];
    image.with_content(tree.options.keys, |content| encode(content, ownership, scratch))
}

/// Stores the counts of an inner node, which no other thread reads.
fn store_counts<J: Journal>(tree: &Tree, owner: &mut Owner<J>, at: NodeRef, image: &Image) {
    for (index, entry) in image.entries.iter().enumerate() {
        if let Owned::Child(_, count) = entry.payload {
            owner.store(tree.count_word(at, index), count);
        }
    }
}

/// Writes a whole node into a place just taken, and makes it live.
pub(super) fn store_new<J: Journal>(
    tree: &mut Tree,
    arena: &mut Arena<'_, J>,
    at: NodeRef,
    image: &Image,
) {
    let used = encode_into(tree, arena, at, image);
    store_counts(tree, arena.owner, at, image);
    store_new_bytes(arena.owner, tree.home, at, &tree.scratch[..used]);
}

/// The same, of its encoded bytes; without counts, which no other thread reads.
pub(super) fn store_new_bytes<J: Journal>(
    owner: &mut Owner<J>,
    home: Home,
    at: NodeRef,
    bytes: &[u8],
) {
    let version = begin_new(owner, at);
    owner.store_bytes(at.offset() + NODE_CHECKED_FROM, &bytes[NODE_CHECKED_FROM..]);
    finish(owner, home, CheckedPart::OrderedNode, at, bytes.len(), version + 1);
    set_state(owner, at, State::Live);
}

/// Changes a node while walks may read it: the words that differ.
fn store_over<J: Journal>(tree: &mut Tree, arena: &mut Arena<'_, J>, at: NodeRef, image: &Image) {
    let used = encode_into(tree, arena, at, image);
    store_over_bytes(arena.owner, tree.home, at, &tree.scratch[..used]);
    store_counts(tree, arena.owner, at, image);
}

/// Stores those words of a node's fixed part that differ.
fn store_header_words<J: Journal>(owner: &mut Owner<J>, at: NodeRef, bytes: &[u8]) {
    let words = bytes[..ORDERED_HEADER_BYTES].as_chunks::<WORD_BYTES>().0;
    for (index, bytes) in words.iter().enumerate().skip(word::SHAPE) {
        let (index, value) = (word_of(at, index), u64::from_le_bytes(*bytes));
        if owner.word(index) != value {
            owner.store(index, value);
        }
    }
}

/// The same, of its encoded bytes and without counts.
pub(super) fn store_over_bytes<J: Journal>(
    owner: &mut Owner<J>,
    home: Home,
    at: NodeRef,
    bytes: &[u8],
) {
    let version = owner.word(word_of(at, word::VERSION)) | 1;
    owner.store(word_of(at, word::VERSION), version);
    owner.release();
    store_header_words(owner, at, bytes);
    let behind = at.offset() + ORDERED_HEADER_BYTES;
    let new = &bytes[ORDERED_HEADER_BYTES..];
    let old = owner.slice(behind, new.len()).as_chunks::<WORD_BYTES>().0;
    let mut pairs = new.as_chunks::<WORD_BYTES>().0.iter().zip(old);
    let differ = |(new, old): (&[u8; WORD_BYTES], &[u8; WORD_BYTES])| new != old;
    if let Some(first) = pairs.position(differ) {
        // From the first word that differs to the last one.
        let last = pairs.rposition(differ).map_or(first, |last| first + 1 + last);
        let changed = first * WORD_BYTES..(last + 1) * WORD_BYTES;
        owner.store_bytes(behind + changed.start, &new[changed]);
    }
    finish(owner, home, CheckedPart::OrderedNode, at, bytes.len(), version + 1);
}

/// Writes a tree's header, the first time or over an older one.
pub(super) fn store_header<J: Journal>(
    owner: &mut Owner<J>,
    home: Home,
    at: NodeRef,
    header: &OrderedHeader,
    is_new: bool,
) {
    let part = (CheckedPart::OrderedHeader, ORDERED_ROOT_BYTES);
    pool::store_header(owner, home, part, (at, header.to_words().as_bytes()), is_new);
}

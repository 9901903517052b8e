//! One change: computed on images of the nodes that it touches, then published in the order of the
//! module's text.

use super::image::{Entry, Image, Owned, Room};
use super::tree::Tree;
use crate::pool::{self, Arena, begin_new, finish, set_state, word_of};
use remora_arena::{ArenaFull, Journal, Owner};
use remora_layout::btree::{
    ORDERED_HEADER_BYTES, ORDERED_ROOT_BYTES, OrderedHeader, Ownership, encode, room_bytes,
    set_move_mark,
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

/// A change of one node, and what follows from it.
pub(super) struct Plan {
    /// Inner nodes from the root down, and the index of the child.
    pub path: Vec<(NodeRef, usize)>,
    pub at: NodeRef,
    /// The node.
    pub image: Image,
    /// Where its key is in the node, or belongs.
    pub position: Result<usize, usize>,
    pub before: Before,
}

/// What a node was before its change.
#[derive(Clone, Copy)]
pub(super) struct Before {
    bytes: usize,
    entries: usize,
}

impl Before {
    /// It was larger than it is: it may join a neighbour.
    pub const LARGER: Self = Self { bytes: usize::MAX, entries: usize::MAX };

    fn of(image: &Image, room: &Room) -> Self {
        Self { bytes: image.bytes(room.keys), entries: image.entries.len() }
    }
}

/// The nodes that a change touches.
#[derive(Default)]
pub(super) struct WriteSet {
    pub new: Vec<(NodeRef, Image)>,
    /// From the leaf up.
    pub changed: Vec<(NodeRef, Image)>,
    pub freed: Vec<NodeRef>,
    /// Counts of children in nodes that do not change else.
    pub counts: Vec<(usize, u64)>,
    pub root: Option<(NodeRef, u8)>,
    /// Nodes that others were joined to, and the first one below each of these: they have new
    /// neighbours.
    pub seams: Vec<NodeRef>,
    /// A part becomes deeper, or has more deep nodes.
    pub deepens: bool,
}

/// What a node's parent has to know.
pub(super) enum Upwards {
    /// The child has so many keys now.
    Count(u64),
    /// The child has so many keys, and a new right neighbour.
    Divided(u64, Entry),
    /// The child of this index has so many keys, and its right neighbour is freed.
    Joined(usize, u64),
}

impl Plan {
    /// A change of a node at the end of a path.
    pub fn of<J: Journal>(
        tree: &Tree,
        owner: &Owner<J>,
        (path, at): (Vec<(NodeRef, usize)>, NodeRef),
    ) -> Self {
        let image = tree.image(owner, at);
        let before = Before::of(&image, &tree.room());
        Self { path, at, image, position: Ok(0), before }
    }

    /// Plans what follows from the change of the node, and takes the memory for it.
    pub fn complete<J: Journal>(
        mut self,
        tree: &mut Tree,
        arena: &mut Arena<'_, J>,
    ) -> Result<WriteSet, ArenaFull> {
        let mut set = WriteSet::default();
        let computed = self.compute(tree, arena, &mut set);
        set.unless(computed, tree, arena)
    }

    fn compute<J: Journal>(
        &mut self,
        tree: &mut Tree,
        arena: &mut Arena<'_, J>,
        set: &mut WriteSet,
    ) -> Result<(), ArenaFull> {
        let (at, image) = (self.at, std::mem::take(&mut self.image));
        let position = self.position.unwrap_or_else(|next| next);
        let parent = self.path.pop();
        let of = (at, image, self.before);
        let upwards = settle(tree, arena, set, of, (position, parent))?;
        self.rise(tree, arena, set, (at, parent), upwards)
    }

    /// Plans what follows from the change of a child, from its parent up.
    pub fn rise<J: Journal>(
        &mut self,
        tree: &mut Tree,
        arena: &mut Arena<'_, J>,
        set: &mut WriteSet,
        (mut at, mut parent): (NodeRef, Option<(NodeRef, usize)>),
        mut upwards: Upwards,
    ) -> Result<(), ArenaFull> {
        let room = tree.room();
        // Bounded: each node is nearer to the root.
        loop {
            let Some((above, index)) = parent else {
                return grow(tree, arena, set, at, upwards);
            };
            if let Upwards::Count(count) = upwards {
                self.path.push((above, index));
                self.keep_counts(tree, arena.owner, set, count);
                return Ok(());
            }
            let mut image = tree.image(arena.owner, above);
            let mut before = Before::of(&image, &room);
            let position = apply(&mut image, index, upwards);
            if let Some(child) = image.only_child() {
                if image.is_deep
                    && let Some((freed, content)) = set.changed.pop_if(|(at, _)| *at == child)
                {
                    // The part is one level deeper no more.
                    set.freed.push(freed);
                    set.seams.push(above);
                    (image, before) = (content, Before::LARGER);
                } else if self.path.is_empty() && !image.is_deep && !tree.pins.holds(above) {
                    set.freed.push(above);
                    set.root = Some((child, image.level));
                    return Ok(());
                }
            }
            (at, parent) = (above, self.path.pop());
            upwards = settle(tree, arena, set, (at, image, before), (position, parent))?;
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

/// Plans what a changed node needs: to be divided, or joined, or nothing.
fn settle<J: Journal>(
    tree: &mut Tree,
    arena: &mut Arena<'_, J>,
    set: &mut WriteSet,
    (at, image, before): (NodeRef, Image, Before),
    (position, parent): (usize, Option<(NodeRef, usize)>),
) -> Result<Upwards, ArenaFull> {
    if image.fits(&tree.room()) {
        Ok(join(tree, arena.owner, set, (at, image), before, parent))
    } else if tree.pins.holds(at) {
        deepen(tree, arena, set, (at, image), position)
    } else {
        divide(tree, arena, set, (at, image), position)
    }
}

/// The share of its bytes that a node keeps whose new entry is at `position`.
fn share_of(image: &Image, position: usize) -> usize {
    let ascends = image.right.slot == 0 && position + 1 == image.entries.len();
    if ascends { ASCENDING } else { HALF }
}

/// Divides a node that is too full.
fn divide<J: Journal>(
    tree: &mut Tree,
    arena: &mut Arena<'_, J>,
    set: &mut WriteSet,
    (at, image): (NodeRef, Image),
    position: usize,
) -> Result<Upwards, ArenaFull> {
    let right = tree.pool.take(arena)?;
    let (left, behind) = image.divided(&tree.room(), share_of(&image, position), right);
    let payload = Owned::Child(right, behind.count());
    let entry = Entry { key: behind.low.clone(), payload };
    let count = left.count();
    if left.is_deep {
        set.deepens = true;
        set.lead_right(tree, arena.owner, &left, right);
    }
    set.changed.push((at, left));
    set.new.push((right, behind));
    Ok(Upwards::Divided(count, entry))
}

/// Divides a node that is too full and whose address others hold: both halves are new nodes, and
/// it becomes the root of its part, one level deeper.
fn deepen<J: Journal>(
    tree: &mut Tree,
    arena: &mut Arena<'_, J>,
    set: &mut WriteSet,
    (at, image): (NodeRef, Image),
    position: usize,
) -> Result<Upwards, ArenaFull> {
    let first = tree.pool.take(arena)?;
    let second = tree.pool.take(arena).inspect_err(|_| tree.pool.give(arena, first))?;
    let (left, behind) = image.divided(&tree.room(), share_of(&image, position), second);
    let entry =
        |at, half: &Image| Entry { key: half.low.clone(), payload: Owned::Child(at, half.count()) };
    let entries = vec![entry(first, &left), entry(second, &behind)];
    if left.is_deep {
        set.lead_right(tree, arena.owner, &left, second);
    }
    set.new.push((first, left));
    set.new.push((second, behind));
    let root = Image { is_deep: true, entries, ..image };
    let count = root.count();
    set.changed.push((at, root));
    set.deepens = true;
    Ok(Upwards::Count(count))
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
    let may_join = |node: NodeRef| !tree.pins.holds(node) && !tree.node(owner, node).is_deep();
    if let Some((parent, index)) = parent
        && !image.is_deep
        && !tree.pins.holds(at)
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
            if !may_join(neighbour) || !are_few(now.entries, others, &room) {
                continue;
            }
            let other = tree.image(owner, neighbour);
            let seam = if left == index { &other } else { &image };
            let seam = seam.first_child();
            let joined = if left == index {
                image.clone().joined(other)
            } else {
                other.joined(image.clone())
            };
            let bytes = (joined.bytes(room.keys), joined.is_leaf());
            if are_few_bytes(bytes, now.entries.min(others), &room) {
                let count = joined.count();
                set.changed.push((first, joined));
                set.freed.push(second);
                set.seams.extend([Some(first), seam].into_iter().flatten());
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

/// Whether two joined nodes of so many bytes, the smaller one of which had `fewest` entries, take few
/// enough.
pub(super) fn are_few_bytes((bytes, is_leaf): (usize, bool), fewest: usize, room: &Room) -> bool {
    let most = room_bytes(room.node_bytes, is_leaf, room.fan_out);
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
    /// This set; without it, if computing it came to an error.
    pub fn unless<J: Journal>(
        self,
        computed: Result<(), ArenaFull>,
        tree: &mut Tree,
        arena: &mut Arena<'_, J>,
    ) -> Result<Self, ArenaFull> {
        match computed {
            Ok(()) => Ok(self),
            Err(full) => {
                self.give_back(tree, arena);
                Err(full)
            }
        }
    }

    /// Gives the memory back that it has taken.
    pub fn give_back<J: Journal>(self, tree: &mut Tree, arena: &mut Arena<'_, J>) {
        for (at, _) in self.new {
            tree.pool.give(arena, at);
        }
    }

    /// Sets the right links of the last nodes below a deep one that are of its level: a link leads to
    /// the topmost node that begins where the other one ends. So no link leads to a child that its
    /// parent takes the content of.
    fn lead_right<J: Journal>(
        &mut self,
        tree: &Tree,
        owner: &Owner<J>,
        above: &Image,
        right: NodeRef,
    ) {
        let mut next = above.last_child().filter(|_| above.is_deep);
        // Bounded: each node is nearer to the leaves.
        while let Some(at) = next {
            let image = self.image_mut(tree, owner, at);
            image.right = right;
            next = image.last_child().filter(|_| image.is_deep);
        }
    }

    /// The content of a node after the change, which is to change more.
    fn image_mut<J: Journal>(&mut self, tree: &Tree, owner: &Owner<J>, at: NodeRef) -> &mut Image {
        if let Some(index) = self.new.iter().position(|(new, _)| *new == at) {
            return &mut self.new[index].1;
        }
        let index = self.changed.iter().position(|(changed, _)| *changed == at);
        let index = index.unwrap_or_else(|| {
            self.changed.push((at, tree.image(owner, at)));
            self.changed.len() - 1
        });
        &mut self.changed[index].1
    }

    /// The module's text, step by step.
    pub fn publish<J: Journal>(self, tree: &mut Tree, arena: &mut Arena<'_, J>) {
        tree.note_nodes(arena.owner, &self);
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
        for at in self.seams {
            tree.look_at_seam(arena.owner, at);
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
    let keys = tree.options.keys;
    let scratch = tree.node_scratch();
    let used = image.with_content(keys, |content| encode(content, ownership, scratch));
    set_move_mark(&mut scratch[..used], image.mark);
    used
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
    let bytes = &tree.scratch[..used];
    if tree.leaving == Some(at) {
        store_torn_bytes(arena.owner, at, bytes);
    } else {
        store_over_bytes(arena.owner, tree.home, at, bytes);
    }
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
    let version = store_torn_bytes(owner, at, bytes);
    finish(owner, home, CheckedPart::OrderedNode, at, bytes.len(), version + 1);
}

/// Makes a node torn for its readers until it is stored; gives its version, which is odd.
pub(super) fn set_torn<J: Journal>(owner: &mut Owner<J>, at: NodeRef) -> u64 {
    let version = owner.word(word_of(at, word::VERSION)) | 1;
    owner.store(word_of(at, word::VERSION), version);
    owner.release();
    version
}

/// Changes the bytes of a node that stays torn; gives its version.
fn store_torn_bytes<J: Journal>(owner: &mut Owner<J>, at: NodeRef, bytes: &[u8]) -> u64 {
    let version = set_torn(owner, at);
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
    version
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

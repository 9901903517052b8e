//! One change of a tree: computed on images of the nodes that it touches, then published in an
//! order that keeps every concurrent walk correct.
//!
//! A node *loses* if an entry goes, or if an entry's rectangle no longer covers what it covered: a
//! later walk may miss there what it would have found. A change makes its stores in this order:
//!
//! 1. New nodes, whole. No path leads to them yet.
//! 2. Losing nodes get an odd version, freed nodes a dead guardian. From here on no walk gets an
//!    old state of what the change removes.
//! 3. Nodes that only gain, from the root down: ancestors before new homes.
//! 4. Nodes that lose, from the root down, with `left_at` = counter + 1.
//! 5. The header: root, height, and the counter raised. It is last.
//!
//! A walk remembers the counter under which it began. If it finds a dead node, or a greater
//! `left_at`, it restarts. So a walk that finishes has read every losing node before it lost, and
//! misses nothing; and a reader that saw an object in its new place never sees the old one
//! afterwards. If memory is full nothing is published.

use super::leaf_index::LeafIndex;
use super::owned_node::{entries_in, shape_in};
use super::way::{Path, Way};
use crate::pool::{self, Arena, Pool, begin_new, finish, set_state, word_of};
use remora_arena::{ArenaFull, Journal, Owner};
use remora_layout::node::{
    CheckedPart, ENTRY_BYTES, Entry, Home, NODE_CHECKED_FROM, NODE_HEADER_BYTES, NodeRef,
    NodeShape, node_bytes, word,
};
use remora_layout::record::State;
use remora_layout::tree::{TREE_HEADER_BYTES, TreeHeader, TreeKind};
use zerocopy::IntoBytes;

/// The image of a node after the change.
#[derive(Default)]
struct Image {
    level: u8,
    lhv: u64,
    is_new: bool,
    is_freed: bool,
    loses: bool,
    /// Number of entries, from the first on, that are unchanged.
    kept: usize,
    entries: Vec<Entry>,
    /// Number of entries that it had capacity for when the last change with it ended.
    room: usize,
}

/// The fate of an object that existed before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    /// It is removed: walks need not find it any more.
    Removed(u64),
    /// It gets another rectangle. A leaf that keeps its entry changes it at once for all walks; a
    /// leaf that gives it away loses.
    Moved(u64),
}

/// A planned change. It is kept between changes for its memory.
#[derive(Default)]
pub(super) struct WriteSet {
    /// The place of each image. It is apart from the images, because it is searched.
    at: Vec<NodeRef>,
    images: Vec<Image>,
    /// Entries that need a node of a level.
    pub orphans: Vec<(Entry, u8)>,
    /// The object that is changed, if it was there before.
    pub changed: Option<Changed>,
    /// Levels, one bit each, in which entries were reinserted already.
    pub reinserted: u64,
    /// Memory for a way down.
    pub path: Path,
    /// Ways of objects that are added together.
    pub ways: Vec<Way>,
    /// Entries that all images have room for.
    room: usize,
}

impl WriteSet {
    /// Bytes of the heap that it keeps between changes: a few nodes' entries.
    pub fn heap_bytes(&self) -> u64 {
        let bytes = self.room * ENTRY_BYTES
            + self.images.capacity() * size_of::<Image>()
            + self.at.capacity() * size_of::<NodeRef>()
            + self.orphans.capacity() * size_of::<(Entry, u8)>()
            + self.path.capacity() * size_of::<(NodeRef, usize)>()
            + self.ways.capacity() * size_of::<Way>()
            + self.ways.iter().map(Way::heap_bytes).sum::<usize>();
        bytes as u64
    }

    fn position(&self, at: NodeRef) -> Option<usize> {
        self.at.iter().position(|&known| known == at)
    }

    /// A node's entries after the change.
    pub fn entries<'a, J: Journal>(&'a self, owner: &'a Owner<J>, at: NodeRef) -> &'a [Entry] {
        match self.position(at) {
            Some(index) => &self.images[index].entries,
            None => entries_in(owner, at),
        }
    }

    /// A node's largest Hilbert value after the change.
    pub fn lhv<J: Journal>(&self, owner: &Owner<J>, at: NodeRef) -> u64 {
        match self.position(at) {
            Some(index) => self.images[index].lhv,
            None => owner.word(word_of(at, word::LHV)),
        }
    }

    /// A node's entries, to be changed.
    pub fn entries_mut<J: Journal>(&mut self, owner: &Owner<J>, at: NodeRef) -> &mut Vec<Entry> {
        let index = self.image(owner, at);
        &mut self.images[index].entries
    }

    /// Gives a node another largest Hilbert value.
    pub fn set_lhv<J: Journal>(&mut self, owner: &Owner<J>, at: NodeRef, lhv: u64) {
        if self.lhv(owner, at) != lhv {
            let index = self.image(owner, at);
            self.images[index].lhv = lhv;
        }
    }

    fn image<J: Journal>(&mut self, owner: &Owner<J>, at: NodeRef) -> usize {
        if let Some(index) = self.position(at) {
            return index;
        }
        let index = self.add(at, shape_in(owner, at).level, false);
        self.images[index].lhv = owner.word(word_of(at, word::LHV));
        self.images[index].entries.extend_from_slice(entries_in(owner, at));
        index
    }

    fn add(&mut self, at: NodeRef, level: u8, is_new: bool) -> usize {
        let index = self.at.len();
        self.at.push(at);
        if self.images.len() == index {
            self.images.push(Image::default());
        }
        let image = &mut self.images[index];
        image.entries.clear();
        let entries = std::mem::take(&mut image.entries);
        *image = Image { level, is_new, entries, room: image.room, ..Image::default() };
        index
    }

    /// A new node of this level, without entries.
    pub fn new_node<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        pool: &mut Pool,
        level: u8,
    ) -> Result<NodeRef, ArenaFull> {
        let at = pool.take(arena)?;
        self.add(at, level, true);
        Ok(at)
    }

    /// Marks a node to be freed; no entry names it any more.
    pub fn free_node<J: Journal>(&mut self, owner: &Owner<J>, at: NodeRef) {
        let index = self.image(owner, at);
        self.images[index].is_freed = true;
    }

    /// Forgets the change and its new nodes.
    pub fn abandon<J: Journal>(&mut self, arena: &mut Arena<'_, J>, pool: &mut Pool) {
        for (index, &at) in self.at.iter().enumerate() {
            if self.images[index].is_new {
                pool.give(arena, at);
            }
        }
        self.clear();
    }

    fn clear(&mut self) {
        for image in &mut self.images[..self.at.len()] {
            let room = image.entries.capacity();
            self.room = self.room + room - std::mem::replace(&mut image.room, room);
        }
        self.at.clear();
        self.orphans.clear();
        self.changed = None;
        self.reinserted = 0;
    }

    /// Compares the images with the present nodes, and records entries that leave leaves or enter
    /// them. The caller publishes next.
    pub fn compare<J: Journal>(&mut self, owner: &Owner<J>, ids: &mut LeafIndex) {
        for (image, &at) in self.images.iter_mut().zip(&self.at) {
            let old = if image.is_new { &[] } else { entries_in(owner, at) };
            let new = if image.is_freed { &[] } else { &image.entries[..] };
            image.kept = kept(old, new);
            image.loses = image.is_freed || loses(old, image, self.changed);
            image.loses &= !image.is_new;
            if image.level == 0 {
                ids.note(at.slot, &old[image.kept..], &new[image.kept..]);
            }
        }
        ids.settle();
    }

    /// Publishes the change: the module's text, step by step. `header` is the tree's next header,
    /// except the counter.
    pub fn publish<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        pool: &mut Pool,
        home: Home,
        at: NodeRef,
        old: &mut TreeHeader,
        header: TreeHeader,
    ) {
        let counter = old.counter + 1;
        let any_loses = self.images[..self.at.len()].iter().any(|image| image.loses);
        for (index, &at) in self.at.iter().enumerate() {
            if self.images[index].is_new && !self.images[index].is_freed {
                self.images[index].store_new(arena, home, at, header.kind);
            }
        }
        for (index, &at) in self.at.iter().enumerate() {
            let image = &self.images[index];
            if image.is_freed {
                set_state(arena.owner, at, State::Dead);
            } else if image.loses {
                let version = word_of(at, word::VERSION);
                arena.owner.store(version, arena.owner.word(version) | 1);
            }
        }
        arena.owner.release();
        let top = self.images[..self.at.len()].iter().map(|image| image.level).max();
        for losing in [false, true].into_iter().take(1 + any_loses as usize) {
            for level in (0..=top.unwrap_or(0)).rev() {
                for (index, &at) in self.at.iter().enumerate() {
                    let image = &self.images[index];
                    if image.level == level
                        && image.loses == losing
                        && !image.is_new
                        && !image.is_freed
                    {
                        image.store_over(arena, home, at, header.kind, counter);
                    }
                }
            }
        }
        if any_loses || header.root != old.root {
            *old = TreeHeader { counter, ..header };
            store_header(arena.owner, home, at, old, false);
        }
        for (index, &at) in self.at.iter().enumerate() {
            if self.images[index].is_freed {
                pool.give(arena, at);
            }
        }
        self.clear();
    }
}

/// Number of entries, from the first on, that are the same bytes in both.
fn kept(old: &[Entry], new: &[Entry]) -> usize {
    /// Entries that are compared at a time: by the machine's widest means.
    const MANY: usize = 8;
    let many = old.chunks_exact(MANY).zip(new.chunks_exact(MANY));
    let kept = MANY * many.take_while(|(old, new)| old.as_bytes() == new.as_bytes()).count();
    let rest = old[kept..].iter().zip(&new[kept..]);
    kept + rest.take_while(|(old, new)| is_same(old, new)).count()
}

/// Whether two entries are the same bytes.
#[inline(always)]
fn is_same(one: &Entry, other: &Entry) -> bool {
    let words = |entry: &Entry| -> [u64; ENTRY_BYTES / 8] { zerocopy::transmute!(*entry) };
    let pairs = words(one).into_iter().zip(words(other));
    pairs.fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

/// Whether a walk that reads `new` may miss an object that it would have found through `old`.
fn loses(old: &[Entry], new: &Image, changed: Option<Changed>) -> bool {
    let in_leaf = |id: u64| new.level == 0 && changed == Some(Changed::Moved(id));
    let keeps = |old: &Entry, new: &Entry| {
        new.word == old.word && (new.rect.contains(&old.rect) || in_leaf(old.word))
    };
    let goes = |id: u64| new.level == 0 && changed == Some(Changed::Removed(id));
    // Most entries keep their positions.
    !old.iter().enumerate().skip(new.kept).all(|(index, entry)| {
        new.entries.get(index).is_some_and(|new| keeps(entry, new))
            || new.entries.iter().any(|new| keeps(entry, new))
            || goes(entry.word)
    })
}

impl Image {
    fn shape(&self, kind: TreeKind) -> NodeShape {
        NodeShape { entries: self.entries.len() as u16, level: self.level, kind }
    }

    /// Words from the shape to the last of the node's header.
    fn head(&self, kind: TreeKind, left_at: u64, changed_at: u64) -> [u64; 5] {
        [self.shape(kind).to_word(), left_at, changed_at, self.lhv, 0]
    }

    fn store_new<J: Journal>(
        &self,
        arena: &mut Arena<'_, J>,
        home: Home,
        at: NodeRef,
        kind: TreeKind,
    ) {
        write_new_node(arena, home, at, self.shape(kind), self.lhv, &self.entries);
    }

    /// Changes a node while walks may read it.
    fn store_over<J: Journal>(
        &self,
        arena: &mut Arena<'_, J>,
        home: Home,
        at: NodeRef,
        kind: TreeKind,
        counter: u64,
    ) {
        let owner = &mut *arena.owner;
        let version = owner.word(word_of(at, word::VERSION)) | 1;
        owner.store(word_of(at, word::VERSION), version);
        owner.release();
        let before = shape_in(owner, at).entries as usize;
        let left_at = if self.loses { counter } else { owner.word(word_of(at, word::LEFT_AT)) };
        let first = at.offset() + NODE_HEADER_BYTES;
        for index in self.kept..self.entries.len() {
            let entry = &self.entries[index];
            if index >= before || !is_same(&entries_in(owner, at)[index], entry) {
                owner.store_bytes(first + index * ENTRY_BYTES, entry.as_bytes());
            }
        }
        let head = self.head(kind, left_at, arena.changed_at);
        owner.store_bytes(at.offset() + NODE_CHECKED_FROM, head.as_bytes());
        finish(owner, home, CheckedPart::Node, at, node_bytes(self.entries.len()), version + 1);
    }
}

/// Writes a whole node into a place just taken, and makes it live.
pub(super) fn write_new_node<J: Journal>(
    arena: &mut Arena<'_, J>,
    home: Home,
    at: NodeRef,
    shape: NodeShape,
    lhv: u64,
    entries: &[Entry],
) {
    let head: [u64; 5] = [shape.to_word(), 0, arena.changed_at, lhv, 0];
    let version = begin_new(arena.owner, at);
    arena.owner.store_bytes(at.offset() + NODE_HEADER_BYTES, entries.as_bytes());
    arena.owner.store_bytes(at.offset() + NODE_CHECKED_FROM, head.as_bytes());
    finish(arena.owner, home, CheckedPart::Node, at, node_bytes(entries.len()), version + 1);
    set_state(arena.owner, at, State::Live);
}

/// Writes a tree's header, the first time or over an older one.
pub(super) fn store_header<J: Journal>(
    owner: &mut Owner<J>,
    home: Home,
    at: NodeRef,
    header: &TreeHeader,
    is_new: bool,
) {
    let part = (CheckedPart::Header, TREE_HEADER_BYTES);
    pool::store_header(owner, home, part, (at, header.to_words().as_bytes()), is_new);
}

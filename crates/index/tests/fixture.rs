//! A tree in an arena, and a plain list of its objects.

#![allow(dead_code, reason = "not every test file needs everything")]

use remora_arena::{Journal, Owner, Slot, Slots, class_for};
use remora_index::rtree::{
    Arena, AskReason, Object, Query, Tree, TreeError, TreeOptions, walk_locally,
};
use remora_layout::limits::PAGE_BYTES;
use remora_layout::node::{Entry, Home, NodeRef, Proof, node_bytes, verify_node, word};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_HEADER_BYTES, TreeKind};
use remora_testing::Random;
use remora_walk::Walk;
use std::collections::BTreeSet;

/// All kinds of tree.
pub const KINDS: [TreeKind; 3] = [TreeKind::RStar, TreeKind::Guttman, TreeKind::Hilbert];

/// Secret and region of the arena.
pub const HOME: Home = Home { secret: 0x5ec2_e7ed, region: 7 };

pub struct TreeFixture<J: Journal> {
    pub owner: Owner<J>,
    pub slots: Slots,
    pub tree: Tree,
    /// The objects of the tree.
    pub objects: Vec<(u64, Rect)>,
    next_id: u64,
    free_bytes: u64,
}

fn options(kind: TreeKind, capacity: usize) -> TreeOptions {
    // Only a part of the objects' area: other objects are outside the bounds of the curve.
    TreeOptions { kind, capacity, bounds: Rect::new(-4.0, 4.0, -8.0, 8.0).unwrap() }
}

/// Bytes that the test does not allocate.
fn free_bytes(slots: &Slots) -> u64 {
    let stats = slots.stats();
    stats.free_bytes + stats.uncarved_bytes
}

/// A tree whose header has its own slot.
fn new_tree<J: Journal>(arena: &mut Arena<'_, J>, options: TreeOptions) -> Tree {
    let slot = arena.slots.allocate(arena.owner, TREE_HEADER_BYTES, 0).unwrap();
    let at = NodeRef { slot: slot.slot, generation: slot.generation };
    Tree::create(arena, HOME, at, options).unwrap()
}

/// Ends it, and frees the slot.
fn end_tree<J: Journal>(tree: Tree, arena: &mut Arena<'_, J>) {
    let at = tree.at();
    tree.destroy(arena);
    let class = class_for(TREE_HEADER_BYTES).unwrap();
    let slot = Slot { slot: at.slot, generation: at.generation, class };
    arena.slots.release(arena.owner, slot, None, 0);
}

impl<J: Journal> TreeFixture<J> {
    pub fn new(kind: TreeKind, capacity: usize, bytes: usize, journal: J) -> Self {
        let mut owner = Owner::heap(bytes, journal);
        let mut slots = Slots::new(PAGE_BYTES, bytes);
        // The span of the headers' slots exists from the start.
        let header = slots.allocate(&mut owner, TREE_HEADER_BYTES, 0).unwrap();
        slots.release(&mut owner, header, None, 0);
        let free_bytes = free_bytes(&slots);
        let mut arena = Arena { owner: &mut owner, slots: &mut slots, changed_at: 0 };
        let tree = new_tree(&mut arena, options(kind, capacity));
        Self { owner, slots, tree, objects: Vec::new(), next_id: 0, free_bytes }
    }

    /// Ends the tree: all its memory is free again.
    pub fn end(mut self) {
        let mut arena = Arena { owner: &mut self.owner, slots: &mut self.slots, changed_at: 0 };
        end_tree(self.tree, &mut arena);
        assert_eq!(free_bytes(&self.slots), self.free_bytes);
    }

    /// Ends the tree, and gives the memory that it was in.
    pub fn into_ended(mut self) -> (Owner<J>, Slots) {
        let mut arena = Arena { owner: &mut self.owner, slots: &mut self.slots, changed_at: 0 };
        end_tree(self.tree, &mut arena);
        (self.owner, self.slots)
    }

    /// Another tree in the same memory.
    pub fn renew(&mut self, kind: TreeKind, capacity: usize) {
        let mut arena = Arena { owner: &mut self.owner, slots: &mut self.slots, changed_at: 0 };
        let spare = new_tree(&mut arena, options(kind, capacity));
        end_tree(std::mem::replace(&mut self.tree, spare), &mut arena);
        let next = new_tree(&mut arena, options(kind, capacity));
        end_tree(std::mem::replace(&mut self.tree, next), &mut arena);
        self.objects.clear();
    }

    /// The tree and what its writer works with.
    pub fn parts(&mut self) -> (&mut Tree, Arena<'_, J>) {
        let arena = Arena { owner: &mut self.owner, slots: &mut self.slots, changed_at: 1 };
        (&mut self.tree, arena)
    }

    pub fn try_insert(&mut self, rect: Rect) -> Result<(), TreeError> {
        let id = self.next_id;
        let (tree, mut arena) = self.parts();
        assert!(tree.put(&mut arena, id, rect)?);
        self.objects.push((id, rect));
        self.next_id += 1;
        Ok(())
    }

    pub fn insert(&mut self, rect: Rect) {
        self.try_insert(rect).unwrap();
    }

    /// Puts objects under ids of the caller's choice.
    pub fn put_all(&mut self, objects: &[(u64, Rect)]) -> Result<(), TreeError> {
        let (tree, mut arena) = self.parts();
        tree.put_all(&mut arena, objects)?;
        for &(id, rect) in objects {
            self.objects.retain(|&(known, _)| known != id);
            self.objects.push((id, rect));
            self.next_id = self.next_id.max(id + 1);
        }
        Ok(())
    }

    /// As [`TreeFixture::insert`]; gives the id.
    pub fn insert_as(&mut self, rect: Rect) -> u64 {
        self.insert(rect);
        self.next_id - 1
    }

    pub fn load(&mut self, rects: Vec<Rect>) {
        let objects: Vec<_> = (0..).zip(rects).collect();
        let (tree, mut arena) = self.parts();
        tree.load(&mut arena, objects.clone()).unwrap();
        self.next_id = objects.len() as u64;
        self.objects = objects;
    }

    pub fn some(&self, random: &mut Random) -> Option<(u64, Rect)> {
        let count = self.objects.len() as u64;
        (count > 0).then(|| self.objects[random.below(count) as usize])
    }

    pub fn try_remove_some(&mut self, random: &mut Random) -> bool {
        let Some((id, _)) = self.some(random) else { return false };
        self.try_remove(id)
    }

    pub fn remove(&mut self, id: u64) {
        assert!(self.try_remove(id));
    }

    fn try_remove(&mut self, id: u64) -> bool {
        let (tree, mut arena) = self.parts();
        match tree.remove(&mut arena, id) {
            Ok(removed) => assert!(removed),
            Err(error) => {
                assert!(matches!(error, TreeError::Full(_)));
                return false;
            }
        }
        self.objects.retain(|&(known, _)| known != id);
        true
    }

    pub fn remove_some(&mut self, random: &mut Random) {
        assert!(self.try_remove_some(random) || self.objects.is_empty());
    }

    pub fn move_some(&mut self, random: &mut Random, to: Rect) {
        if let Some((id, _)) = self.some(random) {
            self.move_to(id, to);
        }
    }

    pub fn move_to(&mut self, id: u64, to: Rect) {
        let (tree, mut arena) = self.parts();
        assert!(!tree.put(&mut arena, id, to).unwrap());
        let object = self.objects.iter_mut().find(|(known, _)| *known == id);
        object.unwrap().1 = to;
    }

    /// The list's answer, by id.
    pub fn expected(&self, window: &Rect, predicate: Predicate) -> Vec<u64> {
        let hits = self.objects.iter().filter(|(_, rect)| predicate.holds(rect, window));
        let mut ids: Vec<u64> = hits.map(|&(id, _)| id).collect();
        ids.sort();
        ids
    }

    pub fn expected_nearest(&self, x: f64, y: f64, wanted: usize) -> Vec<Object> {
        let mut all = self.objects.clone();
        let distance = |rect: &Rect| rect.distance_squared(x, y);
        all.sort_by(|a, b| distance(&a.1).total_cmp(&distance(&b.1)).then(a.0.cmp(&b.0)));
        all.iter().take(wanted).map(|&(word, rect)| Entry { rect, word }).collect()
    }

    /// The answer of the owner's search, by id.
    pub fn search(&self, window: &Rect, predicate: Predicate) -> Vec<u64> {
        let mut ids = Vec::new();
        self.tree.search(&self.owner, window, predicate, |object| ids.push(object.word));
        ids.sort();
        ids
    }

    /// A walk's answer, and the nodes that it visited: over copies, as remote readers walk, and
    /// over the nodes themselves, as the owner's thread does.
    pub fn walk(&self, query: Query) -> Result<(Vec<u64>, u64), AskReason> {
        let walk = walk_locally(self.owner.view(), HOME, self.tree.at(), query, &mut Vec::new())?;
        assert_eq!(walk.retries(), 0);
        let mut scratch = Vec::new();
        let own = walk_locally(&self.owner, HOME, self.tree.at(), query, &mut scratch)?;
        assert_eq!((own.results(), own.nodes()), (walk.results(), walk.nodes()));
        assert!(scratch.is_empty(), "the owner has copied a node");
        Ok((walk.results().iter().map(|object| object.word).collect(), walk.nodes()))
    }

    pub fn walk_in_order(&self, query: Query) -> Vec<Object> {
        let walk = walk_locally(self.owner.view(), HOME, self.tree.at(), query, &mut Vec::new());
        walk.unwrap().results().to_vec()
    }

    /// The root, and every node below it.
    pub fn all_nodes(&self) -> Vec<NodeRef> {
        let mut nodes = vec![self.tree.header().root];
        let mut next = 0;
        while next < nodes.len() {
            let (level, entries) = self.tree.node(&self.owner, nodes[next]);
            if level > 0 {
                nodes.extend(entries.iter().map(|entry| NodeRef::from_word(entry.word)));
            }
            next += 1;
        }
        nodes
    }

    /// Everything that must hold between two changes.
    pub fn check(&self) {
        self.check_shape(self.tree.least_entries());
    }

    /// As [`TreeFixture::check`], for a tree just loaded, whose nodes at the upper
    /// levels may be emptier.
    pub fn check_loaded(&self) {
        self.check_shape(2);
    }

    fn check_shape(&self, least: usize) {
        let header = self.tree.header();
        let mut ids = BTreeSet::new();
        let top = header.height - 1;
        let (_, nodes) = self.check_below(header.root, top, top, least, &mut ids);
        assert_eq!(self.tree.nodes(), nodes);
        assert_eq!(self.tree.objects(), self.objects.len() as u64);
        let expected: BTreeSet<u64> = self.objects.iter().map(|&(id, _)| id).collect();
        assert_eq!(ids, expected);
        for &(id, rect) in &self.objects {
            assert_eq!(self.tree.find(&self.owner, id), Some(rect));
        }
        assert_eq!(self.tree.find(&self.owner, self.next_id), None);
        assert_eq!(self.slots.stats().run_bytes, self.tree.bytes());
    }

    /// Checks a node and all nodes below it. Returns its box and the number of its nodes.
    fn check_below(
        &self,
        at: NodeRef,
        level: u8,
        top: u8,
        least: usize,
        ids: &mut BTreeSet<u64>,
    ) -> (Option<Rect>, u64) {
        let header = self.tree.header();
        let bytes = self.owner.slice(at.offset(), node_bytes(header.capacity as usize));
        // The check reads as a reader does, which includes that all leaves have one level.
        let node = verify_node(bytes, HOME, at, level, Proof::Checksum).unwrap();
        assert!(node.left_at <= header.counter);
        let count = node.shape.entries as usize;
        assert!(count <= header.capacity as usize);
        assert!(
            count
                >= if level < top {
                    least
                } else if level > 0 {
                    2
                } else {
                    0
                },
            "{count}"
        );
        let lhv = |at: NodeRef| self.owner.word(at.offset() / 8 + word::LHV);
        let (mut all, mut nodes, mut last) = (None::<Rect>, 1, 0);
        for entry in node.entries() {
            if level == 0 {
                assert!(ids.insert(entry.word), "{} stands twice", entry.word);
            } else {
                let child = NodeRef::from_word(entry.word);
                let (rect, below) = self.check_below(child, level - 1, top, least, ids);
                assert_eq!(Some(entry.rect), rect, "the box is tight");
                nodes += below;
                if header.kind == TreeKind::Hilbert {
                    assert!(lhv(child) >= last, "children stand by their values");
                    last = lhv(child);
                }
            }
            all = Some(all.map_or(entry.rect, |all| all.union(&entry.rect)));
        }
        if header.kind == TreeKind::Hilbert && level > 0 {
            assert_eq!(lhv(at), last, "the largest value is the last child's");
        }
        (all, nodes)
    }
}

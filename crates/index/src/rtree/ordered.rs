//! Searching a Hilbert R-tree in the order of its curve, so that a search can go on behind the last object that it
//! gave, whatever has changed meanwhile.

use super::hilbert::value;
use super::owned_node::{entries_in, shape_in};
use super::tree::{Tree, TreeError};
use crate::pool::{Arena, word_of};
use remora_arena::{Journal, Owner};
use remora_layout::node::{Entry, NodeRef, word};
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;

/// Where an object stands: the Hilbert value of its middle, then its id.
pub type CurvePlace = (u64, u64);

/// What is asked of rectangles; if it holds for one, it holds for all that contain it.
pub type Meets<'m> = dyn Fn(&Rect) -> bool + 'm;

/// Some objects in the order of the curve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InOrder {
    /// Their places, in ascending order.
    pub objects: Vec<CurvePlace>,
    /// The place behind which the search goes on; none if there is nothing more.
    pub goes_on: Option<CurvePlace>,
}

impl Tree {
    /// The place of the last object below an entry of a node of `level`.
    fn last_below<J: Journal>(&self, owner: &Owner<J>, entry: &Entry, level: u8) -> CurvePlace {
        let mut last = *entry;
        // Bounded: each turn is nearer to a leaf.
        for _ in 0..level {
            let entries = entries_in(owner, NodeRef::from_word(last.word));
            last = *entries.last().expect("a node below another one has entries");
        }
        (value(&last.rect, &self.header.bounds), last.word)
    }

    /// The first objects of a Hilbert R-tree, in the order of its curve and behind a place, whose rectangles `meets`
    /// holds for, as it does for all that contain such a one: `wanted` at most, at least 1. About `most_nodes` nodes are visited. The tree has come
    /// by single changes: one that was built of many objects has those with one Hilbert value in any order.
    ///
    /// Searches that go on at [`InOrder::goes_on`] give each object once that does not change meanwhile.
    ///
    /// # Panics
    /// The tree is of another kind.
    pub fn in_order<J: Journal>(
        &self,
        owner: &Owner<J>,
        meets: &Meets<'_>,
        after: Option<CurvePlace>,
        (wanted, most_nodes): (usize, usize),
    ) -> InOrder {
        self.some_in_order(owner, (meets, after), (wanted, most_nodes)).0
    }

    /// The same, and how many nodes were visited.
    fn some_in_order<J: Journal>(
        &self,
        owner: &Owner<J>,
        (meets, after): (&Meets<'_>, Option<CurvePlace>),
        (wanted, most_nodes): (usize, usize),
    ) -> (InOrder, usize) {
        assert_eq!(self.header.kind, TreeKind::Hilbert, "only its entries are in an order");
        let lhv = |at: NodeRef| owner.word(word_of(at, word::LHV));
        let place = |entry: &Entry| (value(&entry.rect, &self.header.bounds), entry.word);
        let (mut waiting, mut nodes) = (vec![self.header.root], 0);
        let mut objects = Vec::new();
        while let Some(at) = waiting.pop() {
            nodes += 1;
            let (entries, level) = (entries_in(owner, at), shape_in(owner, at).level);
            if level > 0 {
                let is_ahead = |entry: &&Entry| {
                    let largest = lhv(NodeRef::from_word(entry.word));
                    after.is_none_or(|after| match largest == after.0 {
                        true => after < self.last_below(owner, entry, level),
                        false => after.0 < largest,
                    })
                };
                let children = entries.iter().filter(|entry| meets(&entry.rect)).filter(is_ahead);
                // The first child is the next one.
                waiting.extend(children.rev().map(|entry| NodeRef::from_word(entry.word)));
                continue;
            }
            for entry in entries.iter().filter(|entry| meets(&entry.rect)) {
                let found = place(entry);
                if after.is_some_and(|after| found <= after) {
                    continue;
                }
                objects.push(found);
                if objects.len() == wanted {
                    return (InOrder { objects, goes_on: Some(found) }, nodes);
                }
            }
            let seen = entries.last().map(place);
            if nodes >= most_nodes && !waiting.is_empty() && after < seen {
                return (InOrder { objects, goes_on: seen }, nodes);
            }
        }
        (InOrder { objects, goes_on: None }, nodes)
    }

    /// About how many objects `meets` holds for, as it does for all rectangles that contain such a one. Of their
    /// leaves so many are counted; for more it is an estimate.
    pub fn about<J: Journal>(&self, owner: &Owner<J>, meets: &Meets<'_>, most_nodes: usize) -> u64 {
        let mut level = self.header.height - 1;
        let mut nodes = vec![self.header.root];
        loop {
            let entries = nodes.iter().flat_map(|at| entries_in(owner, *at));
            let entries = entries.filter(|entry| meets(&entry.rect));
            if level == 0 {
                return entries.count() as u64;
            }
            nodes = entries.map(|entry| NodeRef::from_word(entry.word)).collect();
            level -= 1;
            if nodes.len() > most_nodes {
                break;
            }
        }
        let each = (self.objects() + self.nodes()) / self.nodes().max(1);
        let below = each.saturating_pow(u32::from(level) + 1);
        (nodes.len() as u64).saturating_mul(below).min(self.objects())
    }

    /// The smallest rectangle around all objects; none without any.
    pub fn extent<J: Journal>(&self, owner: &Owner<J>) -> Option<Rect> {
        let mut entries = entries_in(owner, self.header.root).iter();
        let first = entries.next()?.rect;
        Some(entries.fold(first, |all, entry| all.union(&entry.rect)))
    }

    /// Takes memory, so that so many puts and moves in a Hilbert R-tree do not fail for lack of it, made one after
    /// the other; removals take none. Nodes that they do not need are used by later changes.
    ///
    /// # Errors
    /// There is no memory for so many.
    pub fn reserve<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        puts: usize,
    ) -> Result<(), TreeError> {
        // Each divides one node of a level at most, and may make a new root.
        let levels = usize::from(self.header.height) + 2;
        Ok(self.pool.reserve(arena, puts * levels)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtree::TreeOptions;
    use remora_arena::{NoJournal, Slots};
    use remora_layout::limits::PAGE_BYTES;
    use remora_layout::node::Home;
    use remora_layout::tree::TREE_HEADER_BYTES;
    use remora_testing::Random;
    use std::collections::{BTreeMap, BTreeSet};

    struct World {
        owner: Owner<NoJournal>,
        slots: Slots,
        tree: Tree,
        there: BTreeMap<u64, Rect>,
        random: Random,
    }

    const SIDE: u64 = 32;

    impl World {
        fn new(capacity: usize, seed: u64) -> Self {
            let mut owner = Owner::heap(32 << 20, NoJournal);
            let mut slots = Slots::new(PAGE_BYTES, 32 << 20);
            let slot = slots.allocate(&mut owner, TREE_HEADER_BYTES, 0).unwrap();
            let at = NodeRef { slot: slot.slot, generation: slot.generation };
            let bounds = Rect::new(0.0, SIDE as f64, 0.0, SIDE as f64).unwrap();
            let options = TreeOptions { kind: TreeKind::Hilbert, capacity, bounds };
            let mut arena = Arena { owner: &mut owner, slots: &mut slots, changed_at: 0 };
            let tree =
                Tree::create(&mut arena, Home { region: 0, secret: 7 }, at, options).unwrap();
            Self { owner, slots, tree, there: BTreeMap::new(), random: Random::new(seed) }
        }

        fn rect(&mut self) -> Rect {
            let mut side = || {
                let from = self.random.below(SIDE);
                (from as f64, (from + self.random.below(3)) as f64)
            };
            let (x, y) = (side(), side());
            Rect::new(x.0, x.1, y.0, y.1).unwrap()
        }

        /// Some puts, moves and removals, for which memory is reserved.
        fn change(&mut self, puts: usize, removals: usize) {
            let Self { owner, slots, .. } = self;
            let mut arena = Arena { owner, slots, changed_at: 0 };
            self.tree.reserve(&mut arena, puts).unwrap();
            let nodes = self.tree.bytes();
            for _ in 0..puts {
                let (id, rect) = (self.random.below(2_000), self.rect());
                let mut arena =
                    Arena { owner: &mut self.owner, slots: &mut self.slots, changed_at: 0 };
                self.tree.put(&mut arena, id, rect).unwrap();
                self.there.insert(id, rect);
            }
            for _ in 0..removals {
                let from = self.random.below(2_000);
                let Some(id) = self.there.range(from..).next().map(|of| *of.0) else { continue };
                let mut arena =
                    Arena { owner: &mut self.owner, slots: &mut self.slots, changed_at: 0 };
                self.tree.remove(&mut arena, id).unwrap();
                self.there.remove(&id);
            }
            assert_eq!(self.tree.bytes(), nodes, "the reserve was too small");
        }

        fn wanted(&self, windows: &[Rect]) -> BTreeSet<CurvePlace> {
            let meets = |rect: &Rect| windows.iter().any(|window| window.intersects(rect));
            let all = self.there.iter().filter(|(_, rect)| meets(rect));
            all.map(|(id, rect)| (value(rect, &self.tree.header.bounds), *id)).collect()
        }
    }

    #[test]
    fn a_search_in_parts_gives_each_object_once_and_in_order() {
        for capacity in [4, 8, 32] {
            let mut world = World::new(capacity, capacity as u64);
            for step in 0..400 {
                let (puts, removals) = if step % 80 < 50 { (9, 3) } else { (2, 9) };
                world.change(puts, removals);
                let windows = [world.rect(), world.rect()];
                let all = Rect::new(0.0, 99.0, 0.0, 99.0).unwrap();
                let windows = if step % 7 == 0 { &[all][..] } else { &windows[..] };
                let wanted = world.wanted(windows);
                let most = (1 + world.random.below(9) as usize, 1 + world.random.below(9) as usize);
                let (mut after, mut found) = (None, Vec::new());
                loop {
                    let meets = |rect: &Rect| windows.iter().any(|window| window.intersects(rect));
                    let some = world.tree.in_order(&world.owner, &meets, after, most);
                    assert!(some.objects.len() <= most.0);
                    found.extend(some.objects);
                    if some.goes_on.is_none() {
                        break;
                    }
                    assert!(some.goes_on > after, "it stands still at {after:?}");
                    after = some.goes_on;
                }
                assert_eq!(found, Vec::from_iter(wanted), "{windows:?}, {most:?}");
            }
        }
    }

    #[test]
    fn many_objects_at_one_place_come_in_the_order_of_their_ids() {
        let mut world = World::new(4, 1);
        for id in 0..500 {
            let (id, rect) = ((id * 7) % 500, Rect::point(3.0, 3.0).unwrap());
            let mut arena =
                Arena { owner: &mut world.owner, slots: &mut world.slots, changed_at: 0 };
            world.tree.put(&mut arena, id, rect).unwrap();
            world.there.insert(id, rect);
        }
        let meets = |rect: &Rect| rect.intersects(&Rect::point(3.0, 3.0).unwrap());
        let (mut after, mut found) = (None, Vec::new());
        while {
            // Each search visits a few nodes, whatever lies in front of its place.
            let (some, nodes) = world.tree.some_in_order(&world.owner, (&meets, after), (7, 3));
            assert!(nodes <= 3 + 2 * usize::from(world.tree.header().height), "{nodes}");
            found.extend(some.objects.iter().map(|object| object.1));
            after = some.goes_on;
            after.is_some()
        } {}
        assert_eq!(found, Vec::from_iter(0..500));
    }

    #[test]
    fn what_lies_in_windows_is_estimated() {
        let mut world = World::new(8, 5);
        (0..60).for_each(|_| world.change(20, 0));
        let (one, all) = (world.rect(), Rect::new(0.0, 99.0, 0.0, 99.0).unwrap());
        let exact = |windows: &[Rect]| world.wanted(windows).len() as u64;
        let about = |windows: &[Rect], most| {
            let meets = |rect: &Rect| windows.iter().any(|window| window.intersects(rect));
            world.tree.about(&world.owner, &meets, most)
        };
        assert_eq!(about(&[one], 10_000), exact(&[one]));
        assert_eq!(about(&[all], 10_000), exact(&[all]));
        let rough = about(&[all], 4);
        assert!(rough * 4 > exact(&[all]) && rough <= exact(&[all]), "{rough}");
        assert_eq!(world.tree.extent(&world.owner).map(|of| all.contains(&of)), Some(true));
        let empty = World::new(8, 5);
        assert_eq!(empty.tree.extent(&empty.owner), None);
    }
}

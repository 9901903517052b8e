//! The objects nearest to a point, as the owner finds them: in turns.
//!
//! Invariants: the search visits nodes nearest first, so it has examined every object nearer than
//! the present node. If entries have left nodes for others since the last turn, waiting nodes may
//! be gone: the search then descends from the root again, past everything that lies wholly within
//! the finished distance. So it advances in each turn, unless the border of the finished part is
//! too long for one turn: then it gives up, if the tree keeps changing.

use super::owned_node::{entries_in, prefetch_node};
use super::search::Object;
use super::tree::Tree;
use remora_arena::{Journal, Owner};
use remora_layout::limits::{NEAREST_AGAIN_WORK, NEAREST_WAITING_NODES, WALK_RESTARTS};
use remora_layout::node::{Entry, NodeRef};
use remora_layout::rect::Rect;
use remora_layout::tree::TreeHeader;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A node to visit.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    distance_squared: f64,
    at: NodeRef,
    level: u8,
}

impl Ord for Waiting {
    /// The greatest is visited first, as the heap requires: the nearest node. Of equally near ones
    /// the lowest, so that few wait.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_distance = other.distance_squared.total_cmp(&self.distance_squared);
        let key = |way: &Self| (way.level, way.at.to_word());
        by_distance.then_with(|| key(other).cmp(&key(self)))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

/// An object that was found, by the bits of its distance, which is not negative, and
/// its id.
#[derive(Clone, Copy, Debug)]
struct Found {
    key: (u64, u64),
    rect: Rect,
}

impl Found {
    fn object(&self) -> Object {
        Entry { rect: self.rect, word: self.key.1 }
    }
}

impl Ord for Found {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Found {}

/// The result of a turn of a search for the nearest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NearestTurn {
    /// All are found.
    Ended,
    /// It goes on in the next turn.
    Paused,
    /// The tree changes in every turn, and the search does not advance; or too many nodes would
    /// wait.
    GaveUp,
}

/// A search for the nearest that can pause; see [`Tree::nearest_some`].
#[derive(Clone, Debug)]
pub struct Nearest {
    at: (f64, f64),
    wanted: usize,
    waiting: BinaryHeap<Waiting>,
    /// The tree's counter when the search last descended from the root; `None` if it has to
    /// descend.
    counter: Option<u64>,
    /// The search has examined every object nearer than this.
    done_within: f64,
    /// The same at the last descent from the root.
    done_before: f64,
    /// Descents from the root in a row without an advance.
    stalls: u32,
    /// The nearest objects so far, the farthest of them first.
    best: BinaryHeap<Found>,
    /// Those of them that it had at the last descent from the root, in order: it finds them again.
    known: Vec<(u64, u64)>,
    nodes: u64,
}

impl Nearest {
    /// A search that has not begun, for so many objects nearest to a point.
    pub fn new(at: (f64, f64), wanted: usize) -> Self {
        Self {
            at,
            wanted,
            waiting: BinaryHeap::new(),
            counter: None,
            done_within: 0.0,
            done_before: 0.0,
            stalls: 0,
            best: BinaryHeap::new(),
            known: Vec::new(),
            nodes: 0,
        }
    }

    /// What it has found, the nearest first; of equally near ones the lesser id.
    pub fn found(&self) -> Vec<Object> {
        let mut best: Vec<&Found> = self.best.iter().collect();
        best.sort_unstable();
        best.into_iter().map(Found::object).collect()
    }

    /// Nodes visited so far.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Between two turns found objects may have moved or gone: `present` returns the present state
    /// of the object that had this word, if it still counts.
    pub fn look_again(&mut self, mut present: impl FnMut(u64) -> Option<Object>) {
        let again = |found: &Found| present(found.key.1).map(|object| self.found_as(&object));
        let again: Vec<Option<Found>> = self.best.iter().map(again).collect();
        let is_same = |(found, again): (&Found, &Option<Found>)| {
            again.is_some_and(|again| again.key == found.key && again.rect == found.rect)
        };
        if !self.best.iter().zip(&again).all(is_same) {
            // Others that were too far may be wanted now.
            (self.best, self.counter) = (again.into_iter().flatten().collect(), None);
        }
    }

    fn found_as(&self, object: &Object) -> Found {
        let distance_squared = object.rect.distance_squared(self.at.0, self.at.1);
        Found { key: (distance_squared.to_bits(), object.word), rect: object.rect }
    }

    /// The farthest object, if there are enough.
    fn farthest(&self) -> Option<(u64, u64)> {
        let is_full = self.best.len() >= self.wanted;
        self.best.peek().filter(|_| is_full).map(|found| found.key)
    }

    /// Descends from the root, if the waiting nodes do not belong to the present state of this
    /// header's tree. False if that is of no use.
    fn enter(&mut self, header: &TreeHeader) -> bool {
        if self.counter == Some(header.counter) {
            return true;
        }
        if self.nodes > 0 {
            let is_further = self.done_within > self.done_before;
            self.stalls = if is_further { 0 } else { self.stalls + 1 };
        }
        (self.counter, self.done_before) = (Some(header.counter), self.done_within);
        self.known.clear();
        self.known.extend(self.best.iter().map(|found| found.key));
        self.known.sort_unstable();
        self.waiting.clear();
        let (at, level) = (header.root, header.height - 1);
        self.waiting.push(Waiting { distance_squared: 0.0, at, level });
        self.stalls <= WALK_RESTARTS
    }

    /// Takes the node to visit next; none if no object below any could be wanted.
    fn next(&mut self) -> Option<Waiting> {
        let way = *self.waiting.peek()?;
        let is_near = |farthest: (u64, u64)| way.distance_squared.to_bits() <= farthest.0;
        if self.wanted == 0 || !self.farthest().is_none_or(is_near) {
            return None;
        }
        self.nodes += 1;
        self.waiting.pop()
    }

    /// Takes the wanted objects of a leaf. Returns the number of examined objects.
    fn take(&mut self, entries: &[Entry], mut counts: impl FnMut(&Object) -> bool) -> u64 {
        let mut looked_at = 0;
        for object in entries {
            let found = self.found_as(object);
            let is_done = f64::from_bits(found.key.0) < self.done_within;
            let farthest = self.farthest();
            if is_done || farthest.is_some_and(|farthest| farthest <= found.key) {
                continue;
            }
            if !self.known.is_empty() && self.known.binary_search(&found.key).is_ok() {
                continue;
            }
            looked_at += 1;
            if !counts(object) {
                continue;
            }
            if farthest.is_none() {
                self.best.push(found);
            } else if let Some(mut farthest) = self.best.peek_mut() {
                *farthest = found;
            }
        }
        looked_at
    }
}

impl Tree {
    /// The `wanted` objects nearest to a point of those that `counts` is for, the
    /// nearest first; of equally near ones the lesser id. The distance is that to
    /// the nearest point of the object.
    pub fn nearest<J: Journal>(
        &self,
        owner: &Owner<J>,
        at: (f64, f64),
        wanted: usize,
        counts: impl FnMut(&Object) -> bool,
    ) -> Vec<Object> {
        let mut search = Nearest::new(at, wanted);
        self.nearest_within(owner, &mut search, (u64::MAX, usize::MAX), counts);
        search.found()
    }

    /// Goes on with a search for the nearest for one turn: over so many nodes that it
    /// visits for the first time and objects that `counts` is asked about, and what
    /// the last of these nodes holds. The search is used with this tree only, and
    /// [`Nearest::look_again`] is called between two turns.
    ///
    /// At its end it has found the nearest of the objects that were there all the
    /// time at one place; of others some.
    pub fn nearest_some<J: Journal>(
        &self,
        owner: &Owner<J>,
        search: &mut Nearest,
        most: u64,
        counts: impl FnMut(&Object) -> bool,
    ) -> NearestTurn {
        self.nearest_within(owner, search, (most, NEAREST_WAITING_NODES), counts)
    }

    fn nearest_within<J: Journal>(
        &self,
        owner: &Owner<J>,
        search: &mut Nearest,
        (most, most_waiting): (u64, usize),
        mut counts: impl FnMut(&Object) -> bool,
    ) -> NearestTurn {
        let header = self.header();
        if !search.enter(&header) {
            return NearestTurn::GaveUp;
        }
        let (capacity, (x, y)) = (header.capacity as usize, search.at);
        let (mut spent, mut again) = (0, 0);
        while spent < most && again < NEAREST_AGAIN_WORK {
            let Some(way) = search.next() else { return NearestTurn::Ended };
            let is_again = way.distance_squared < search.done_within;
            search.done_within = search.done_within.max(way.distance_squared);
            let work = if is_again { &mut again } else { &mut spent };
            *work += 1;
            let entries = entries_in(owner, way.at);
            if way.level == 0 {
                *work += search.take(entries, &mut counts);
                continue;
            }
            for entry in entries {
                // The search has examined everything below.
                if entry.rect.farthest_squared(x, y) < search.done_within {
                    continue;
                }
                let at = NodeRef::from_word(entry.word);
                prefetch_node(owner, at, capacity);
                let distance_squared = entry.rect.distance_squared(x, y);
                search.waiting.push(Waiting { distance_squared, at, level: way.level - 1 });
            }
            if search.waiting.len() > most_waiting {
                return NearestTurn::GaveUp;
            }
        }
        NearestTurn::Paused
    }
}

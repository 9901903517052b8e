//! Searching as the owner does it: over plain references to its own memory.

use super::owned_node::{entries_in, prefetch_node};
use super::scan::{AT_A_TIME, Test};
use super::tree::Tree;
use remora_arena::{Journal, Owner};
use remora_layout::limits::WALK_RESTARTS;
use remora_layout::node::{Entry, NodeRef};
use remora_layout::rect::{Predicate, Rect};
use remora_layout::tree::TreeHeader;
use std::cmp::Ordering;

/// An object that a search found.
pub type Object = Entry;

/// A node or object that a nearest search has to examine, by its distance. At equal distance nodes
/// come first, then objects by their ids.
pub(super) struct Candidate {
    pub distance_squared: f64,
    /// Level of the node, one more than its own; 0 for an object.
    pub levels: u8,
    pub entry: Entry,
}

impl Candidate {
    fn key(&self) -> (u8, u64) {
        (u8::MAX - self.levels, self.entry.word)
    }
}

impl Ord for Candidate {
    /// The greatest is examined first, as the heap requires.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_distance = other.distance_squared.total_cmp(&self.distance_squared);
        by_distance.then_with(|| other.key().cmp(&self.key()))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// Nodes that a search prefetches at a time.
const BATCH: usize = 8;

/// A window search that can pause; see [`Tree::search_some`].
#[derive(Clone, Debug)]
pub struct Cursor {
    window: Rect,
    predicate: Predicate,
    /// Nodes to visit, with their levels.
    waiting: Vec<(NodeRef, u8)>,
    /// The tree's counter when the search began; `None` before.
    counter: Option<u64>,
    nodes: u64,
    restarts: u32,
    is_finished: bool,
}

impl Cursor {
    /// A search that has not begun. `window` is a checked rectangle.
    pub fn new(window: Rect, predicate: Predicate) -> Self {
        Self {
            window,
            predicate,
            waiting: Vec::with_capacity(4 * BATCH),
            counter: None,
            nodes: 0,
            restarts: 0,
            is_finished: false,
        }
    }

    /// Nodes visited so far, those of earlier beginnings too.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Times that it began again.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Takes the last of the waiting nodes, at most so many.
    fn take_batch(&mut self, most: u64) -> ([(NodeRef, u8); BATCH], usize) {
        let mut batch = [(NodeRef::default(), 0); BATCH];
        let count = self.waiting.len().min(BATCH).min(most as usize);
        let from = self.waiting.len() - count;
        // One by one: a copy of a few costs more.
        for (slot, &node) in batch.iter_mut().zip(&self.waiting[from..]) {
            *slot = node;
        }
        self.waiting.truncate(from);
        self.nodes += count as u64;
        (batch, count)
    }

    /// Begins, or restarts, if the waiting nodes do not belong to the present state of this
    /// header's tree.
    fn enter(&mut self, header: &TreeHeader) {
        if self.is_finished || self.counter == Some(header.counter) {
            return;
        }
        self.restarts += self.counter.is_some() as u32;
        self.counter = Some(header.counter);
        self.waiting.clear();
        self.waiting.push((header.root, header.height - 1));
    }
}

impl Tree {
    /// Hands every object for which the predicate holds to `found`, in no
    /// order. Gives the number of nodes visited. `window` is a rectangle.
    pub fn search<J: Journal>(
        &self,
        owner: &Owner<J>,
        window: &Rect,
        predicate: Predicate,
        found: impl FnMut(&Object),
    ) -> u64 {
        let mut cursor = Cursor::new(*window, predicate);
        self.search_some(owner, &mut cursor, u64::MAX, found);
        cursor.nodes()
    }

    /// Continues a search, over at most `most_nodes` nodes. True: it is finished, and it has passed
    /// to `found` every object that existed all the time, and for which the predicate held all the
    /// time; it has passed none that never existed. Use the cursor with this tree only.
    ///
    /// If entries have left nodes since the last slice the search restarts, as its waiting nodes
    /// may be gone. So it may pass an object twice, also with two rectangles if it moved: the
    /// caller removes duplicates by id. After `WALK_RESTARTS` restarts there is no limit of nodes,
    /// so that every search ends.
    pub fn search_some<J: Journal>(
        &self,
        owner: &Owner<J>,
        cursor: &mut Cursor,
        most_nodes: u64,
        mut found: impl FnMut(&Object),
    ) -> bool {
        cursor.enter(&self.header());
        let (object, way) = (
            Test::of_object(cursor.predicate, &cursor.window),
            Test::of_way(cursor.predicate, &cursor.window),
        );
        let usual = self.usual_entries();
        let mut left = if cursor.restarts < WALK_RESTARTS { most_nodes } else { u64::MAX };
        while !cursor.waiting.is_empty() {
            // Several at a time, so that their memory is on its way while
            // others are scanned; the last first, so that few wait.
            let (mut batch, count) = cursor.take_batch(left);
            if count == 0 {
                return false;
            }
            left -= count as u64;
            for &mut (at, level) in &mut batch[..count] {
                let entries = entries_in(owner, at);
                for part in entries.chunks(AT_A_TIME) {
                    if level == 0 {
                        let hits = object.hits(part, |entry| entry.rect);
                        hits.for_each(|index| found(&part[index]));
                        continue;
                    }
                    for index in way.hits(part, |entry| entry.rect) {
                        let child = NodeRef::from_word(part[index].word);
                        prefetch_node(owner, child, usual);
                        cursor.waiting.push((child, level - 1));
                    }
                }
            }
        }
        cursor.is_finished = true;
        true
    }

    /// Entries that most nodes have at most: what a search asks for ahead of its use. The rest of a
    /// node follows by itself, as the processor sees that a row of lines is read.
    fn usual_entries(&self) -> usize {
        let entries = (self.objects() + self.nodes()) / self.nodes().max(1);
        (entries as usize + 2).min(self.header().capacity as usize)
    }

    /// Number of objects for which the predicate holds.
    pub fn count<J: Journal>(&self, owner: &Owner<J>, window: &Rect, predicate: Predicate) -> u64 {
        let mut count = 0;
        self.search(owner, window, predicate, |_| count += 1);
        count
    }
}

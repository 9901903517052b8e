//! The reader's side of all trees: a search that names the nodes that it wants and receives their
//! bytes, one after the other or many at once (C20, C23).
//!
//! Invariants: it accepts a node only if guardian, generation, version and checksum agree (C22). It
//! accepts its results only if no node said that entries have left it since the walk began, or that
//! it has changed since the known durable sequence. Each result occurs once. If it is not certain,
//! it restarts, and after a bounded number of restarts the caller asks.

use super::scan::{AT_A_TIME, Test};
use super::search::{Candidate, Object};
use crate::round::Round;
use remora_layout::arena_header::{durable_of, word};
use remora_layout::limits::{WALK_RESTARTS, WALK_RETRIES, WORD_BYTES};
use remora_layout::node::{
    Entry, Home, NodeRef, NotANode, Proof, VerifiedNode, node_bytes, verify_node,
};
use remora_layout::rect::Predicate;
use remora_layout::rect::{BadRect, Rect};
use remora_layout::tree::TreeHeader;
use remora_walk::{Step, Walk, What};
use std::collections::BinaryHeap;

/// Nodes that wait at a time in most walks.
const WAITING: usize = 32;
/// Results of most small searches.
const FEW_RESULTS: usize = 16;

/// The query of a search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Query {
    /// The objects for which the predicate holds, in no order.
    Window {
        /// The window.
        window: Rect,
        /// The required relation of an object to it.
        predicate: Predicate,
    },
    /// The objects nearest to a point, the nearest first.
    Nearest {
        /// The point's x.
        x: f64,
        /// The point's y.
        y: f64,
        /// How many.
        wanted: usize,
    },
}

impl Query {
    /// This query, if its numbers make one.
    pub fn checked(self) -> Result<Self, BadRect> {
        match self {
            Self::Window { window, .. } => window.checked()?,
            Self::Nearest { x, y, .. } => Rect::point(x, y)?,
        };
        Ok(self)
    }
}

/// A node that a search wants, in its tree's region.
pub type Want = remora_walk::Want<Round>;

/// Why reading did not conclude.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskReason {
    /// The walk restarted too often: the tree changes too fast.
    TooManyRestarts,
    /// Nodes were being changed too often.
    TooManyRetries,
    /// A node's change is not yet as durable as configured.
    Pending,
    /// The tree belongs to a key that has expired.
    Expired,
    /// The bytes are no tree: more nodes than the region holds, or no places.
    Broken,
}

/// One search.
pub struct Search {
    query: Query,
    home: Home,
    region_bytes: u64,
    /// More nodes than this do not fit into the region: then the bytes are no tree.
    most_nodes: u64,
    header: TreeHeader,
    /// Sequence up to which changes are known to be durable.
    durable: u64,
    /// The durable word is wanted, before anything else.
    wants_durable: bool,
    round: u32,
    /// Nodes to fetch: all of a window's, the next of a nearest search.
    waiting: Vec<(NodeRef, u8)>,
    /// How many of them waited before the last step.
    known: usize,
    /// Nodes wanted and not yet fed.
    under_way: u64,
    /// The queue of a nearest search.
    candidates: BinaryHeap<Candidate>,
    results: Vec<Object>,
    nodes: u64,
    retries: u32,
}

impl Search {
    /// A walk over the tree whose header was just read. `query` is a checked
    /// one; the region has `region_bytes`.
    pub fn begin(query: Query, home: Home, header: TreeHeader, region_bytes: u64) -> Self {
        let mut walk = Self {
            query,
            home,
            region_bytes,
            most_nodes: 0,
            header,
            durable: u64::MAX,
            wants_durable: false,
            round: 0,
            waiting: Vec::with_capacity(WAITING),
            known: 0,
            under_way: 0,
            candidates: BinaryHeap::new(),
            results: Vec::with_capacity(FEW_RESULTS),
            nodes: 0,
            retries: 0,
        };
        walk.start();
        walk
    }

    fn start(&mut self) {
        self.waiting.clear();
        self.waiting.push((self.header.root, self.header.height - 1));
        self.candidates.clear();
        self.results.clear();
        self.under_way = 0;
        self.nodes = 0;
        self.most_nodes = self.region_bytes / self.node_bytes() as u64;
    }

    /// Changes beyond this sequence, of [`durable_of`], must not be shown.
    pub fn set_durable(&mut self, sequence: u64) {
        self.durable = sequence;
    }

    /// Reads the durable sequence in the batch of the root. Call it before the walk wants anything.
    pub fn want_durable(&mut self) {
        self.wants_durable = true;
    }

    /// Sequence up to which changes are known to be durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    fn learn_durable(&mut self, bytes: &[u8]) {
        let word = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        self.durable = self.durable.max(durable_of(word));
    }

    /// Bytes of the tree's nodes.
    pub fn node_bytes(&self) -> usize {
        node_bytes(self.header.capacity as usize)
    }

    fn want(&self, at: NodeRef, level: u8) -> Want {
        Want {
            offset: at.offset() as u64,
            bytes: self.node_bytes(),
            what: What::Node { at, level },
            tag: Round(self.round),
        }
    }

    fn take_window(
        &mut self,
        node: &VerifiedNode<'_>,
        level: u8,
        window: &Rect,
        predicate: Predicate,
    ) -> bool {
        let before = self.waiting.len();
        let test = match level {
            0 => Test::of_object(predicate, window),
            _ => Test::of_way(predicate, window),
        };
        for part in node.entry_bytes().chunks(AT_A_TIME) {
            let hits = test.hits(part, |bytes| Entry::from_bytes(bytes).rect);
            let entries = hits.map(|index| Entry::from_bytes(&part[index]));
            if level == 0 {
                self.results.extend(entries);
            } else {
                let ways = entries.map(|way| (NodeRef::from_word(way.word), level - 1));
                self.waiting.extend(ways);
            }
        }
        self.waiting[before..].iter().all(|&(at, _)| self.is_in_region(at))
    }

    /// Takes objects as long as no other one may be nearer; then wants a node.
    fn take_nearest(&mut self) -> bool {
        let Query::Nearest { wanted, .. } = self.query else { return true };
        while self.results.len() < wanted
            && let Some(Candidate { levels, entry, .. }) = self.candidates.pop()
        {
            if levels > 0 {
                let at = NodeRef::from_word(entry.word);
                self.waiting.push((at, levels - 1));
                return self.is_in_region(at);
            }
            if self.results.iter().all(|known| known.word != entry.word) {
                self.results.push(entry);
            }
        }
        true
    }

    fn is_in_region(&self, at: NodeRef) -> bool {
        at.slot != 0 && (at.offset() + self.node_bytes()) as u64 <= self.region_bytes
    }

    /// A walk may meet an object twice that moved during the walk.
    fn finish(&mut self) {
        if matches!(self.query, Query::Window { .. }) {
            self.results.sort_unstable_by_key(|object| object.word);
            self.results.dedup_by_key(|object| object.word);
        }
    }

    /// The results, once the walk is done: each id once; of a window by id.
    pub fn results(&self) -> &[Object] {
        &self.results
    }

    /// Nodes since the last restart that passed every check.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Fetches of a node during a change by the owner.
    pub fn torn(&self) -> u32 {
        self.retries
    }
}

impl Walk for Search {
    /// Its results are in [`Search::results`].
    type Found = ();
    type Reason = AskReason;
    type Tag = Round;
    type Head = TreeHeader;

    const OUT_OF_REGION: AskReason = AskReason::Broken;

    #[inline]
    fn next_want(&mut self) -> Option<Want> {
        if std::mem::take(&mut self.wants_durable) {
            let offset = (word::DURABLE * WORD_BYTES) as u64;
            let tag = Round(self.round);
            return Some(Want { offset, bytes: WORD_BYTES, what: What::Beside, tag });
        }
        let (at, level) = self.waiting.pop()?;
        self.under_way += 1;
        Some(self.want(at, level))
    }

    fn feed(&mut self, want: Want, bytes: &[u8], proof: Proof) -> Step<(), AskReason> {
        self.known = self.waiting.len();
        let What::Node { at, level } = want.what else {
            self.learn_durable(bytes);
            return Step::More;
        };
        if want.tag != Round(self.round) {
            return Step::More;
        }
        self.under_way -= 1;
        let node = match verify_node(bytes, self.home, at, level, proof) {
            Ok(node) if node.changed_at > self.durable => return Step::Ask(AskReason::Pending),
            Ok(node) if node.left_at <= self.header.counter => node,
            Ok(_) | Err(NotANode::Dead) => return Step::Restart,
            Err(NotANode::Torn) => {
                self.retries += 1;
                if self.retries > WALK_RETRIES {
                    return Step::Ask(AskReason::TooManyRetries);
                }
                self.waiting.push((at, level));
                return Step::More;
            }
        };
        self.nodes += 1;
        if self.nodes > self.most_nodes {
            return Step::Ask(AskReason::Broken);
        }
        let all_lie_in_the_region = match self.query {
            Query::Window { window, predicate } => {
                self.take_window(&node, level, &window, predicate)
            }
            Query::Nearest { x, y, .. } => {
                self.candidates.extend(node.entries().map(|entry| Candidate {
                    distance_squared: entry.rect.distance_squared(x, y),
                    levels: level,
                    entry,
                }));
                self.take_nearest()
            }
        };
        if !all_lie_in_the_region {
            return Step::Ask(AskReason::Broken);
        }
        if self.waiting.is_empty() && self.under_way == 0 {
            self.finish();
            return Step::Found(());
        }
        Step::More
    }

    fn restart(&mut self, header: &TreeHeader) -> Result<(), AskReason> {
        if self.round >= WALK_RESTARTS {
            return Err(AskReason::TooManyRestarts);
        }
        self.round += 1;
        self.header = *header;
        self.start();
        Ok(())
    }

    /// Fetches of nodes without a result, and restarts of the search.
    fn retries(&self) -> u32 {
        self.retries + self.round
    }

    fn results(&self) -> usize {
        self.results.len()
    }

    fn believed(&self) -> u64 {
        self.nodes
    }

    fn bytes_in_use(&self, want: &Want, shape: u64) -> usize {
        // The number of entries, if it is a shape.
        node_bytes(usize::from(shape as u16)).min(want.bytes)
    }

    fn each_new_want(&self, mut each: impl FnMut(u64, usize)) {
        let bytes = self.node_bytes();
        for (at, _) in self.waiting.iter().skip(self.known) {
            each(at.offset() as u64, bytes);
        }
    }
}

//! Which inner nodes of ordered trees a client keeps.
//!
//! What is kept is a hint: the leaf that it leads to says for which keys it speaks.

use remora_index::btree::{FatRoot, FatRootLimits, Weighed};
use remora_layout::btree::{OrderedHeader, OrderedNode};
use remora_layout::node::NodeRef;
use remora_walk::remote::NodeCache;
use std::collections::BTreeSet;

/// Bytes of nodes that a view keeps unless it is told otherwise.
const DEFAULT_BYTES: usize = 1 << 20;
/// Bytes of a cache for each node beside, whose visits are counted.
const BYTES_A_COUNT: usize = 64;
/// Fewest and most nodes beside, whose visits are counted.
const COUNTS: (usize, usize) = (1 << 12, 1 << 20);
/// Walks before the first choice; twice as many before each next one, up to `MAX_PERIOD`.
const FIRST_PERIOD: u64 = 1 << 9;
const MAX_PERIOD: u64 = 1 << 16;

/// How a view of an ordered tree keeps inner nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderedCache {
    /// Bytes of nodes, at most. The counts of [`CachePolicy::Greedy`] come beside: about as many bytes
    /// again.
    pub bytes: usize,
    /// Which nodes.
    pub policy: CachePolicy,
}

/// Which inner nodes are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CachePolicy {
    /// The first ones that were read; higher levels evict lower ones.
    Levels,
    /// Those that are visited most, within these limits: the fat root and its layers (Fat-B+Tree III).
    /// The choice follows the visits.
    Greedy(FatRootLimits),
}

impl Default for OrderedCache {
    fn default() -> Self {
        Self { bytes: DEFAULT_BYTES, policy: CachePolicy::Levels }
    }
}

/// The kept nodes of one tree, and how they are chosen.
#[derive(Debug)]
pub(crate) struct KeptNodes {
    /// The nodes.
    pub nodes: NodeCache,
    /// None: the choice stays as it is.
    choice: Option<Choice>,
}

/// When the next choice is made, and within which limits.
#[derive(Clone, Copy, Debug)]
struct Choice {
    limits: FatRootLimits,
    walks: u64,
    period: u64,
}

impl KeptNodes {
    /// None yet.
    pub fn new(cache: OrderedCache) -> Self {
        let CachePolicy::Greedy(limits) = cache.policy else {
            return Self { nodes: NodeCache::new(cache.bytes), choice: None };
        };
        let others = (cache.bytes / BYTES_A_COUNT).clamp(COUNTS.0, COUNTS.1);
        let choice = Some(Choice { limits, walks: 0, period: FIRST_PERIOD });
        Self { nodes: NodeCache::counting(cache.bytes, others), choice }
    }

    /// Keeps the nodes that are chosen now, whatever is visited.
    pub fn settle(&mut self) {
        self.nodes.stop_counting();
        self.choice = None;
    }

    /// Counts a walk that begins at this header, and chooses anew if it is time to.
    pub fn begin_walk(&mut self, header: &OrderedHeader) {
        let Some(choice) = &mut self.choice else { return };
        choice.walks += 1;
        if choice.walks < choice.period {
            return;
        }
        *choice = Choice { walks: 0, period: (2 * choice.period).min(MAX_PERIOD), ..*choice };
        let limits = choice.limits;
        let chosen = chosen_of(&[(header.root, &self.nodes)], header.node_bytes, limits);
        self.nodes.choose(chosen.into_iter().next().unwrap_or_default());
    }
}

/// The nodes that a reader of these trees keeps: for each root, with what is kept below it, a set.
/// Nodes of trees whose own bytes are not known are taken to be as long as `node_bytes`.
fn chosen_of(
    trees: &[(NodeRef, &NodeCache)],
    node_bytes: u32,
    limits: FatRootLimits,
) -> Vec<BTreeSet<NodeRef>> {
    let mut known = Known::default();
    for (tree, (root, cache)) in trees.iter().enumerate() {
        known.add(tree, *root, cache, limits);
    }
    // A node takes its used bytes; those not read yet as many as the others on average.
    let kept: usize = trees.iter().map(|(_, cache)| cache.len()).sum();
    let bytes: usize = trees.iter().map(|(_, cache)| cache.bytes()).sum();
    let room: usize = trees.iter().map(|(_, cache)| cache.most_bytes()).sum();
    let average = bytes.checked_div(kept).unwrap_or(node_bytes as usize);
    let nodes = limits.nodes.min(room / average.max(1));
    let chosen = FatRoot::choose(&known.weighed, FatRootLimits { nodes, ..limits });
    let mut sets = vec![BTreeSet::new(); trees.len()];
    for index in chosen.nodes() {
        let (tree, at) = known.places[index];
        sets[tree].insert(at);
    }
    sets
}

/// The visited nodes of trees, each behind its parent.
#[derive(Default)]
struct Known {
    weighed: Vec<Weighed>,
    /// The tree, and the place there.
    places: Vec<(usize, NodeRef)>,
}

impl Known {
    /// Adds a tree from its root down, as far as its nodes are kept.
    fn add(&mut self, tree: usize, root: NodeRef, cache: &NodeCache, limits: FatRootLimits) {
        let mut next = self.weighed.len();
        self.push(tree, None, root, cache);
        // Bounded: a node is kept once, and each one below the root was visited.
        while next < self.weighed.len() {
            let (_, at) = self.places[next];
            if let Some(node) = cache.node(at).and_then(OrderedNode::parse) {
                self.weighed[next].ranges = node.entries();
                let children = (0..node.entries()).filter_map(|index| node.child(index));
                let visited = children.filter(|&child| node.level() > 1 && cache.visits(child) > 0);
                for child in visited.take(limits.nodes) {
                    self.push(tree, Some(next), child, cache);
                }
            }
            next += 1;
        }
    }

    fn push(&mut self, tree: usize, parent: Option<usize>, at: NodeRef, cache: &NodeCache) {
        self.weighed.push(Weighed { parent, ranges: 1, visits: cache.visits(at).into() });
        self.places.push((tree, at));
    }
}

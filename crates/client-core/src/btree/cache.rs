//! Which inner nodes of B+trees a client keeps (Fat-B+Tree III-B, III-C, IV-A).
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
    /// Bytes of nodes, at most. The counts of [`CachePolicy::Greedy`] come beside: about as many
    /// bytes again.
    pub bytes: usize,
    /// Which nodes.
    pub policy: CachePolicy,
}

/// Which inner nodes are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CachePolicy {
    /// The first ones that were read; higher levels evict lower ones.
    Levels,
    /// Those that are visited most, within these limits: the fat root and its layers (Fat-B+Tree
    /// III). The choice follows the visits.
    Greedy(FatRootLimits),
}

impl Default for OrderedCache {
    /// 1 MiB of the nodes that are visited most.
    fn default() -> Self {
        let policy = CachePolicy::Greedy(FatRootLimits::nodes(usize::MAX));
        Self { bytes: DEFAULT_BYTES, policy }
    }
}

/// When the next choice is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    walks: u64,
    period: u64,
}

impl Pace {
    /// Before the first choice.
    pub const FIRST: Self = Self { walks: 0, period: FIRST_PERIOD };

    /// Counts a walk.
    pub fn count(&mut self) {
        self.walks += 1;
    }

    /// Lets the next choice come soon.
    pub fn hasten(&mut self) {
        self.period = FIRST_PERIOD;
    }

    /// Whether a choice is due; then the next one takes longer.
    pub fn is_due(&mut self) -> bool {
        let is_due = self.walks >= self.period;
        if is_due {
            *self = Self { walks: 0, period: (2 * self.period).min(MAX_PERIOD) };
        }
        is_due
    }
}

/// The kept nodes of one tree, and how they are chosen.
#[derive(Debug)]
pub(crate) struct KeptNodes {
    /// The nodes.
    pub nodes: NodeCache,
    choice: Choice,
}

/// What chooses the kept nodes of a tree.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// Nothing: they stay as they are.
    None,
    /// Its view, within these limits.
    Own(FatRootLimits, Pace),
    /// The trees of a session have their nodes chosen together.
    Shared,
}

impl KeptNodes {
    /// None yet.
    pub fn new(cache: OrderedCache) -> Self {
        match cache.policy {
            CachePolicy::Levels => {
                Self { nodes: NodeCache::new(cache.bytes), choice: Choice::None }
            }
            CachePolicy::Greedy(limits) => {
                Self { choice: Choice::Own(limits, Pace::FIRST), ..Self::shared(cache.bytes) }
            }
        }
    }

    /// None yet, of a tree whose nodes are chosen together with others'.
    pub fn shared(bytes: usize) -> Self {
        let others = (bytes / BYTES_A_COUNT).clamp(COUNTS.0, COUNTS.1);
        Self { nodes: NodeCache::counting(bytes, others), choice: Choice::Shared }
    }

    /// Keeps the nodes that are chosen now, whatever is visited.
    pub fn settle(&mut self) {
        self.nodes.stop_counting();
        self.choice = Choice::None;
    }

    /// Whether its nodes are chosen together with others'.
    pub fn is_shared(&self) -> bool {
        matches!(self.choice, Choice::Shared)
    }

    /// Counts a walk that begins at this header, and chooses anew if it is time to.
    pub fn begin_walk(&mut self, header: &OrderedHeader) {
        let Choice::Own(limits, pace) = &mut self.choice else { return };
        pace.count();
        if pace.is_due() {
            let (limits, bytes) = (*limits, self.nodes.most_bytes());
            choose_together(&mut [(header, &mut self.nodes)], limits, bytes);
        }
    }
}

/// Chooses the nodes that a reader of these trees keeps in so many bytes together.
pub(super) fn choose_together(
    trees: &mut [(&OrderedHeader, &mut NodeCache)],
    limits: FatRootLimits,
    bytes: usize,
) {
    let mut known = Known::default();
    for (tree, (header, cache)) in trees.iter().enumerate() {
        known.add(tree, header.root, cache, limits);
    }
    // A node takes its used bytes; those not read yet as many as the others on average.
    let kept: usize = trees.iter().map(|(_, cache)| cache.len()).sum();
    let kept_bytes: usize = trees.iter().map(|(_, cache)| cache.bytes()).sum();
    let longest = trees.iter().map(|(header, _)| header.node_bytes as usize).max();
    let average = kept_bytes.checked_div(kept).or(longest).unwrap_or(1);
    let nodes = limits.nodes.min(bytes / average.max(1));
    let chosen = FatRoot::choose(&known.weighed, FatRootLimits { nodes, ..limits });
    let mut sets = vec![BTreeSet::new(); trees.len()];
    for index in chosen.nodes() {
        let (tree, at) = known.places[index];
        sets[tree].insert(at);
    }
    // Where memory alone is the limit, what is left over is for nodes that come later.
    let left = bytes.saturating_sub(chosen.nodes().count() * average);
    let is_memory_alone = limits == FatRootLimits::nodes(usize::MAX);
    let spare_bytes = if is_memory_alone { left / trees.len().max(1) } else { 0 };
    for ((_, cache), set) in trees.iter_mut().zip(sets) {
        cache.choose(set, spare_bytes);
    }
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
                let is_known = |child| cache.visits(child) > 0 || cache.node(child).is_some();
                let known = children.filter(|&child| node.level() > 1 && is_known(child));
                for child in known.take(limits.nodes) {
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

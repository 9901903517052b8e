//! Which inner nodes are worth having at hand, by how often they are visited: the fat root, into
//! which the top of the tree is merged (Fat-B+Tree III-B), and layers of nodes below it (III-C).
//!
//! ```text
//!  super-root   the roots of several trees, if there are several (IV-A): it costs no memory access
//!  fat root     greedy: the most visited node whose parent is in it comes next, until its ranges are
//!               as many as it may have
//!  layer 1      the most visited children of the fat root
//!  layer 2..    the most visited children of the layer before
//! ```
//! So a key passes the fat root, then at most one node of each layer, and then the nodes that are not
//! at hand. A node is at hand only with all nodes above it. No node is visited more often than its
//! parent, so that the greedy choice is the best one where nodes are full.

use std::collections::BinaryHeap;

/// How much is at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FatRootLimits {
    /// Ranges of keys that the fat root tells apart, at most.
    pub ranges: usize,
    /// Levels that are merged into it, from the roots of the trees on, at most. The paper names no
    /// limit; its own counts need one.
    pub depth: usize,
    /// Layers below it.
    pub layers: usize,
    /// Nodes of each layer, at most.
    pub layer_nodes: usize,
    /// Nodes of all together, at most.
    pub nodes: usize,
}

impl FatRootLimits {
    /// The paper's settings for RDMA (V): 600 ranges, three layers of 3600 nodes; and three levels in
    /// the fat root, which its counts need.
    pub const PUBLISHED: Self =
        Self { ranges: 600, depth: 3, layers: 3, layer_nodes: 3600, nodes: usize::MAX };

    /// So many nodes, wherever they stand: what a memory needs that has no tables of ranges.
    ///
    /// ```
    /// use remora_index::btree::FatRootLimits;
    ///
    /// assert_eq!(FatRootLimits::nodes(100).layers, 0);
    /// ```
    pub const fn nodes(nodes: usize) -> Self {
        Self { ranges: usize::MAX, depth: usize::MAX, layers: 0, layer_nodes: 0, nodes }
    }
}

/// An inner node that may be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weighed {
    /// The index of its parent, which stands before it; `None`: it is a tree's root.
    pub parent: Option<usize>,
    /// Its children.
    pub ranges: usize,
    /// How often it was visited.
    pub visits: u64,
}

/// Chosen nodes, by their indices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FatRoot {
    /// The nodes that are merged, in the order in which they were chosen.
    pub merged: Vec<usize>,
    /// Ranges of keys that they tell apart, the super-root's among them.
    pub ranges: usize,
    /// The nodes of each layer, the most visited first.
    pub layers: Vec<Vec<usize>>,
}

impl FatRoot {
    /// All chosen nodes.
    pub fn nodes(&self) -> impl Iterator<Item = usize> {
        self.merged.iter().chain(self.layers.iter().flatten()).copied()
    }

    /// Chooses among the nodes of one tree or of several.
    ///
    /// ```
    /// use remora_index::btree::{FatRoot, FatRootLimits, Weighed};
    ///
    /// let node = |parent, visits| Weighed { parent, ranges: 2, visits };
    /// let nodes = [node(None, 9), node(Some(0), 3), node(Some(0), 6)];
    /// let limits = FatRootLimits { ranges: 3, layers: 1, layer_nodes: 9, ..FatRootLimits::nodes(9) };
    /// let chosen = FatRoot::choose(&nodes, limits);
    /// assert_eq!((chosen.merged, chosen.layers), (vec![0, 2], vec![vec![1]]));
    /// ```
    pub fn choose(nodes: &[Weighed], limits: FatRootLimits) -> Self {
        let family = Family::of(nodes);
        let mut chosen = Self { ranges: family.roots.len(), ..Self::default() };
        let mut left_over = chosen.merge(nodes, &family, limits);
        for _ in 0..limits.layers {
            left_over.sort_by_key(|&index| std::cmp::Reverse(nodes[index].visits));
            let room = limits.nodes - chosen.nodes().count();
            left_over.truncate(limits.layer_nodes.min(room));
            let layer = std::mem::take(&mut left_over);
            left_over.extend(layer.iter().flat_map(|&index| &family.children[index]));
            chosen.layers.push(layer);
        }
        chosen
    }

    /// Fills the fat root; gives the visited nodes below it.
    fn merge(&mut self, nodes: &[Weighed], family: &Family, limits: FatRootLimits) -> Vec<usize> {
        let mut below = Vec::new();
        let weighed = |index: usize| (nodes[index].visits, std::cmp::Reverse(index));
        let mut queue: BinaryHeap<_> = family.roots.iter().map(|&root| weighed(root)).collect();
        while let Some((_, std::cmp::Reverse(index))) = queue.pop() {
            // Its ranges come in the place of one.
            let ranges = self.ranges + nodes[index].ranges.saturating_sub(1);
            let is_room = ranges <= limits.ranges && self.merged.len() < limits.nodes;
            if !is_room || family.depths[index] > limits.depth {
                below.push(index);
                continue;
            }
            self.ranges = ranges;
            self.merged.push(index);
            queue.extend(family.children[index].iter().map(|&child| weighed(child)));
        }
        below
    }
}

/// The nodes' parents and children.
struct Family {
    roots: Vec<usize>,
    children: Vec<Vec<usize>>,
    /// 1 for a tree's root.
    depths: Vec<usize>,
}

impl Family {
    fn of(nodes: &[Weighed]) -> Self {
        let (mut roots, mut depths) = (Vec::new(), Vec::with_capacity(nodes.len()));
        let mut children = vec![Vec::new(); nodes.len()];
        for (index, node) in nodes.iter().enumerate() {
            match node.parent.filter(|parent| *parent < index) {
                Some(parent) => {
                    children[parent].push(index);
                    depths.push(depths[parent] + 1);
                }
                None => {
                    roots.push(index);
                    depths.push(1);
                }
            }
        }
        Self { roots, children, depths }
    }
}

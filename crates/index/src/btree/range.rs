//! Many keys in order, and keys by their number, as the owner reads them.

use super::tree::Tree;
use remora_arena::{Journal, Owner};
use remora_layout::btree::{OrderedNode, Value};
use remora_layout::limits::MAX_ORDERED_KEY_BYTES;
use remora_layout::node::NodeRef;
use std::cmp::Ordering;
use std::ops::Bound;

/// The order in which a range is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// From the smallest key.
    #[default]
    Ascending,
    /// From the greatest key.
    Descending,
}

/// A part of the keys.
#[derive(Clone, Copy, Debug)]
pub struct Range<'k> {
    /// The smallest key.
    pub from: Bound<&'k [u8]>,
    /// The greatest key.
    pub to: Bound<&'k [u8]>,
    /// The order.
    pub direction: Direction,
    /// Entries at most.
    pub limit: usize,
}

impl Range<'_> {
    /// All keys.
    pub const ALL: Self = Self {
        from: Bound::Unbounded,
        to: Bound::Unbounded,
        direction: Direction::Ascending,
        limit: usize::MAX,
    };
}

/// Leaves that a range fetches ahead, at most.
const FETCHED_LEAVES: usize = 8;

/// Entries of a node before a bound: the index of the first one that is `from` it or behind it.
pub(super) fn index_from(node: &OrderedNode<'_>, from: Bound<&[u8]>) -> usize {
    let (key, is_excluded) = match from {
        Bound::Unbounded => return 0,
        Bound::Included(key) => (key, false),
        Bound::Excluded(key) => (key, true),
    };
    match node.place_of(key) {
        Ordering::Less => 0,
        Ordering::Greater => node.entries(),
        Ordering::Equal => match node.position(key) {
            Ok(index) => index + usize::from(is_excluded),
            Err(index) => index,
        },
    }
}

/// The index behind the last entry that is not behind `to`.
fn index_to(node: &OrderedNode<'_>, to: Bound<&[u8]>) -> usize {
    match to {
        Bound::Unbounded => node.entries(),
        Bound::Included(key) => index_from(node, Bound::Excluded(key)),
        Bound::Excluded(key) => index_from(node, Bound::Included(key)),
    }
}

fn key_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
    }
}

impl Tree {
    /// Hands the entries of a range over, in its order; gives their number.
    pub fn range<J: Journal>(
        &self,
        owner: &Owner<J>,
        range: Range<'_>,
        mut each: impl FnMut(&[u8], Value<'_>),
    ) -> usize {
        let mut found = 0;
        let mut leaf = match range.direction {
            Direction::Ascending => Some(self.leaf_from(owner, range)),
            Direction::Descending => Some(match key_of(range.to) {
                Some(key) => self.leaf_of(owner, key),
                None => self.last_leaf(owner),
            }),
        };
        let mut key = [0; MAX_ORDERED_KEY_BYTES];
        // Bounded by the leaves: each one is further on.
        while let Some(node) = leaf
            && found < range.limit
        {
            let (from, to) = (index_from(&node, range.from), index_to(&node, range.to));
            let entries = to.saturating_sub(from).min(range.limit - found);
            match range.direction {
                Direction::Ascending => node.visit(from..from + entries, &mut key, &mut each),
                Direction::Descending => {
                    for index in (to - entries..to).rev() {
                        let key = node.key(index, &mut key).expect("the owner's own");
                        each(key, node.value(index).expect("the owner's own"));
                    }
                }
            }
            found += entries;
            leaf = match range.direction {
                Direction::Ascending if to < node.entries() => None,
                Direction::Ascending => node.right().map(|right| self.first_leaf(owner, right)),
                Direction::Descending if from > 0 => None,
                Direction::Descending => self.leaf_before(owner, node.low()),
            };
        }
        found
    }

    /// The leaf in which an ascending range begins. It asks the processor for those behind it that
    /// the range wants, as far as one parent names them.
    fn leaf_from<'a, J: Journal>(&self, owner: &'a Owner<J>, range: Range<'_>) -> OrderedNode<'a> {
        let mut last = None;
        let key = key_of(range.from).unwrap_or_default();
        let leaf = self.descend(owner, key, |at, index| last = Some((at, index)));
        if let Some((parent, index)) = last {
            let parent = self.node(owner, parent);
            // Leaves are half full at least, most of them.
            let leaves = range.limit.div_ceil(self.options.fan_out / 2).min(FETCHED_LEAVES);
            for index in index + 1..(index + 1 + leaves).min(parent.entries()) {
                self.prefetch(owner, parent.child(index).expect("an entry"), true);
            }
        }
        self.node(owner, leaf)
    }

    /// The first leaf in a node's part.
    fn first_leaf<'a, J: Journal>(&self, owner: &'a Owner<J>, at: NodeRef) -> OrderedNode<'a> {
        let mut node = self.node(owner, at);
        // Bounded: each node is nearer to the leaves.
        while !node.is_leaf() {
            node = self.node(owner, node.child(0).expect("an inner node has children"));
        }
        node
    }

    fn last_leaf<'a, J: Journal>(&self, owner: &'a Owner<J>) -> OrderedNode<'a> {
        let mut node = self.node(owner, self.header.root);
        // Bounded: each node is nearer to the leaves.
        while !node.is_leaf() {
            let last = node.child(node.entries() - 1).expect("an inner node has children");
            node = self.node(owner, last);
        }
        node
    }

    /// The leaf whose high fence is this low fence of another.
    fn leaf_before<'a, J: Journal>(
        &self,
        owner: &'a Owner<J>,
        low: &[u8],
    ) -> Option<OrderedNode<'a>> {
        if low.is_empty() {
            return None;
        }
        let mut node = self.node(owner, self.header.root);
        // Bounded: each node is nearer to the leaves.
        while !node.is_leaf() {
            let index = index_from(&node, Bound::Included(low)).checked_sub(1)?;
            node = self.node(owner, node.child(index)?);
        }
        Some(node)
    }

    /// Keys before a bound, taken as that of a range's beginning.
    fn keys_before<J: Journal>(&self, owner: &Owner<J>, from: Bound<&[u8]>) -> u64 {
        let Some(key) = key_of(from) else { return 0 };
        let (mut at, mut before) = (self.header.root, 0);
        // Bounded: each node is nearer to the leaves.
        loop {
            let node = self.node(owner, at);
            if node.is_leaf() {
                return before + index_from(&node, from) as u64;
            }
            let index = node.child_index(key);
            before += (0..index).map(|left| owner.word(self.count_word(at, left))).sum::<u64>();
            at = node.child(index).expect("an inner node has children");
        }
    }

    /// Keys that are smaller than this one, which need not be there.
    pub fn rank<J: Journal>(&self, owner: &Owner<J>, key: &[u8]) -> u64 {
        self.keys_before(owner, Bound::Included(key))
    }

    /// Keys of a range, whatever its limit; without reading its leaves.
    pub fn count<J: Journal>(&self, owner: &Owner<J>, range: Range<'_>) -> u64 {
        let to = match range.to {
            Bound::Unbounded => self.keys,
            Bound::Included(key) => self.keys_before(owner, Bound::Excluded(key)),
            Bound::Excluded(key) => self.keys_before(owner, Bound::Included(key)),
        };
        to.saturating_sub(self.keys_before(owner, range.from))
    }

    /// The key that has so many smaller ones, and its value.
    pub fn select<'a, J: Journal>(
        &self,
        owner: &'a Owner<J>,
        mut rank: u64,
    ) -> Option<(Vec<u8>, Value<'a>)> {
        if rank >= self.keys {
            return None;
        }
        let mut at = self.header.root;
        // Bounded: each node is nearer to the leaves.
        while !self.node(owner, at).is_leaf() {
            let mut index = 0;
            loop {
                let below = owner.word(self.count_word(at, index));
                if rank < below {
                    break;
                }
                rank -= below;
                index += 1;
            }
            at = self.node(owner, at).child(index).expect("the counts are those of the children");
        }
        let node = self.node(owner, at);
        let mut key = [0; MAX_ORDERED_KEY_BYTES];
        let key = node.key(rank as usize, &mut key)?.to_vec();
        Some((key, node.value(rank as usize)?))
    }
}

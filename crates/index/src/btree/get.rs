//! The reader's side: the walk of one key, from the root to its leaf (Fat-B+Tree III-A).
//!
//! Invariants: it accepts a node only if guardian, generation, version or checksum, place, tree and
//! level agree. It concludes only from a leaf whose fences hold the key, and which is as durable as
//! configured. There absence is certain, too: a leaf has all keys between its fences.

use crate::round::Round;
use remora_layout::arena_header::{durable_of, word};
use remora_layout::btree::{Expected, OrderedHeader, OrderedNode, Value, ValueKind};
use remora_layout::limits::{
    WALK_DEPTH, WALK_RESTARTS, WALK_RETRIES, WALK_RIGHT_LINKS, WORD_BYTES,
};
use remora_layout::node::{Home, NodeRef, NotANode, Proof};
use remora_walk::{Step, Walk, What};
use std::cmp::Ordering;

/// A node that a walk wants, in its tree's region.
pub type Want = remora_walk::Want<Round>;

/// Why reading did not conclude.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskReason {
    /// The walk restarted too often: the tree changes too fast.
    TooManyRestarts,
    /// Nodes were being changed too often.
    TooManyRetries,
    /// The part of the tree is too deep, as others have held addresses in it for long.
    TooDeep,
    /// A node's change is not yet as durable as configured.
    Pending,
    /// The bytes are no tree: places outside of the region, or links without end.
    Broken,
}

/// The walk of one key.
pub struct Get<'k> {
    key: &'k [u8],
    home: Home,
    /// The place of the tree's header.
    tree: NodeRef,
    header: OrderedHeader,
    region_bytes: u64,
    durable: u64,
    wants_durable: bool,
    round: u32,
    next: Option<(NodeRef, u8)>,
    right_links: u32,
    /// Nodes from the root down.
    depth: u32,
    nodes: u64,
    retries: u32,
    kind: ValueKind,
    value: Vec<u8>,
}

impl<'k> Get<'k> {
    /// A walk over the tree whose header was just read at `tree`, in a region of so many bytes.
    pub fn begin(
        key: &'k [u8],
        home: Home,
        tree: NodeRef,
        header: OrderedHeader,
        region_bytes: u64,
    ) -> Self {
        Self {
            key,
            home,
            tree,
            header,
            region_bytes,
            durable: u64::MAX,
            wants_durable: false,
            round: 0,
            next: Some((header.root, header.height - 1)),
            right_links: 0,
            depth: 0,
            nodes: 0,
            retries: 0,
            kind: ValueKind::Bytes,
            value: Vec::new(),
        }
    }

    /// Changes beyond this sequence must not be shown.
    pub fn set_durable(&mut self, sequence: u64) {
        self.durable = sequence;
    }

    /// Reads the durable sequence in the batch of the root. Call it before the walk wants anything.
    pub fn want_durable(&mut self) {
        self.wants_durable = true;
    }

    /// The value, once it has found one.
    pub fn value(&self) -> Value<'_> {
        Value { kind: self.kind, bytes: &self.value }
    }

    /// The durable sequence, as far as it is known.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Right links that it has followed.
    pub fn right_links(&self) -> u32 {
        self.right_links
    }

    fn learn_durable(&mut self, bytes: &[u8]) {
        let word = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        self.durable = self.durable.max(durable_of(word));
    }

    /// Wants a node next, if it can be one.
    fn go(&mut self, at: Option<NodeRef>, level: u8) -> Step<bool, AskReason> {
        let end = |at: NodeRef| (at.offset() + self.header.node_bytes as usize) as u64;
        match at {
            Some(at) if at.slot != 0 && end(at) <= self.region_bytes => {
                self.next = Some((at, level));
                Step::More
            }
            _ => Step::Ask(AskReason::Broken),
        }
    }

    fn take(&mut self, node: &OrderedNode<'_>) -> Step<bool, AskReason> {
        self.nodes += 1;
        match node.place_of(self.key) {
            // The keys here were joined to a node further left.
            Ordering::Less => return Step::Restart,
            Ordering::Greater => {
                self.right_links += 1;
                if self.right_links > WALK_RIGHT_LINKS {
                    return Step::Ask(AskReason::TooManyRestarts);
                }
                return self.go(node.right(), node.level());
            }
            Ordering::Equal => {}
        }
        if !node.is_leaf() {
            self.depth += 1;
            if self.depth > WALK_DEPTH {
                return Step::Ask(AskReason::TooDeep);
            }
            return self.go(node.child(node.child_index(self.key)), node.child_level());
        }
        match node.position(self.key) {
            Err(_) => Step::Found(false),
            Ok(index) => match node.value(index) {
                Some(value) => {
                    self.kind = value.kind;
                    self.value.clear();
                    self.value.extend_from_slice(value.bytes);
                    Step::Found(true)
                }
                None => Step::Ask(AskReason::Broken),
            },
        }
    }
}

impl Walk for Get<'_> {
    /// Whether the key is there: [`Get::value`].
    type Found = bool;
    type Reason = AskReason;
    type Tag = Round;
    type Head = OrderedHeader;

    const OUT_OF_REGION: AskReason = AskReason::Broken;
    const NEEDS_INNER_NODES: bool = false;

    fn next_want(&mut self) -> Option<Want> {
        let tag = Round(self.round);
        if std::mem::take(&mut self.wants_durable) {
            let offset = (word::DURABLE * WORD_BYTES) as u64;
            return Some(Want { offset, bytes: WORD_BYTES, what: What::Beside, tag });
        }
        let (at, level) = self.next.take()?;
        let bytes = self.header.node_bytes as usize;
        Some(Want { offset: at.offset() as u64, bytes, what: What::Node { at, level }, tag })
    }

    fn feed(&mut self, want: Want, bytes: &[u8], proof: Proof) -> Step<bool, AskReason> {
        let What::Node { at, level } = want.what else {
            self.learn_durable(bytes);
            return Step::More;
        };
        if want.tag != Round(self.round) {
            return Step::More;
        }
        let expected = Expected { at: Some(at), tree: self.tree, level };
        match OrderedNode::verify(bytes, self.home, expected, proof) {
            // A change marks the leaves that it divides or joins: what leads to them need not be durable.
            Ok(node) if node.is_leaf() && node.changed_at() > self.durable => {
                Step::Ask(AskReason::Pending)
            }
            Ok(node) => self.take(&node),
            Err(NotANode::Dead) => Step::Restart,
            Err(NotANode::Torn) => {
                self.retries += 1;
                if self.retries > WALK_RETRIES {
                    return Step::Ask(AskReason::TooManyRetries);
                }
                self.next = Some((at, level));
                Step::More
            }
        }
    }

    fn restart(&mut self, header: &OrderedHeader) -> Result<(), AskReason> {
        if self.round >= WALK_RESTARTS {
            return Err(AskReason::TooManyRestarts);
        }
        self.round += 1;
        self.header = *header;
        self.right_links = 0;
        self.depth = 0;
        self.nodes = 0;
        self.next = Some((header.root, header.height - 1));
        Ok(())
    }

    fn retries(&self) -> u32 {
        self.retries + self.round
    }

    fn believed(&self) -> u64 {
        self.nodes
    }

    fn detours(&self) -> u32 {
        self.right_links
    }

    fn bytes_in_use(&self, want: &Want, shape: u64) -> usize {
        // The used bytes, if it is a shape; the checks are of these, and need the header's.
        ((shape >> 32) as usize).min(want.bytes)
    }
}

//! The owner's tree: its settings, its nodes, and what is at a key.

use super::accesses::Accesses;
use super::image::{Image, Room};
use super::mending::Mending;
use super::pins::Pins;
use super::shapes::Shapes;
use crate::pool::{Arena, Pool, set_dead};
use remora_arena::{ArenaFull, Journal, Owner};
use remora_layout::btree::{
    Columns, ENTRY_HEAD_BYTES, INTEGER_BYTES, KeyForm, ORDERED_HEADER_BYTES, OrderedHeader,
    OrderedNode, Value, ValueKind, count_offset, leaf_value_bytes, least_node_bytes,
};
use remora_layout::limits::{
    CACHE_LINE_BYTES, MAX_FAN_OUT, MAX_ORDERED_KEY_BYTES, MAX_ORDERED_NODE_BYTES, MIN_FAN_OUT,
    SLOT_UNIT_BYTES, WORD_BYTES,
};
use remora_layout::node::{Home, NodeRef};

/// Why a tree was not changed.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum TreeError {
    /// There is no memory for another node.
    #[error(transparent)]
    Full(#[from] ArenaFull),
    /// The settings are beyond the limits.
    #[error("a B+tree has a fan-out of {MIN_FAN_OUT} to {MAX_FAN_OUT}, and nodes that hold it")]
    BadOptions,
    /// The key is not of the tree's form, or too long.
    #[error(
        "keys of this B+tree have 8 bytes if they are integers, and are not longer than it allows"
    )]
    BadKey,
    /// The value is longer than the tree's nodes allow.
    #[error("the value is too long to lie in a leaf")]
    ValueTooLong,
    /// Entries can be loaded into an empty tree only, sorted, each key once.
    #[error("only sorted entries can be loaded, each key once, and only into an empty tree")]
    NotLoadable,
    /// More addresses would be held than may be.
    #[error("too many addresses of this tree are held, or by too many epochs")]
    TooManyHeld,
    /// No node was taken over that was handed over.
    #[error("not even the first node was taken over")]
    NoneTaken,
    /// The epoch does not hold this address.
    #[error("the epoch does not hold this address")]
    NotHeld,
}

/// The settings of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What the keys are.
    pub keys: KeyForm,
    /// Entries that a node may have.
    pub fan_out: usize,
    /// Longest key, in bytes.
    pub key_bytes: usize,
    /// Longest value that lies in a leaf, in bytes.
    pub value_bytes: usize,
    /// Bytes of a node, at least `least_node_bytes` of the layout.
    pub node_bytes: usize,
}

impl Options {
    /// Integers of 64 bits with values of 8 bytes at most.
    pub fn integers(fan_out: usize) -> Self {
        let (keys, key_bytes, value_bytes) = (KeyForm::Integers, INTEGER_BYTES, WORD_BYTES);
        Self::of(keys, fan_out, key_bytes, value_bytes)
    }

    /// Byte strings, and values, of these lengths at most; a node has room for a full fan-out of
    /// entries of `usual_bytes` behind the head.
    pub fn byte_strings(
        fan_out: usize,
        key_bytes: usize,
        value_bytes: usize,
        usual_bytes: usize,
    ) -> Self {
        let least = least_node_bytes(fan_out, key_bytes, value_bytes);
        let full = (fan_out * (usual_bytes + 4 * WORD_BYTES)).next_multiple_of(SLOT_UNIT_BYTES);
        let node_bytes = least.max(full);
        Self { keys: KeyForm::Bytes, fan_out, key_bytes, value_bytes, node_bytes }
    }

    /// Byte strings of this length at most, with empty values; a leaf has room for a full fan-out of
    /// entries of `usual_bytes` behind the head. An inner node may have room for fewer.
    fn byte_strings_alone(fan_out: usize, key_bytes: usize, usual_bytes: usize) -> Self {
        let least = least_node_bytes(fan_out, key_bytes, 0);
        let entry = ENTRY_HEAD_BYTES - WORD_BYTES + usual_bytes;
        let full = ORDERED_HEADER_BYTES + 2 * WORD_BYTES + fan_out * entry;
        let node_bytes = least.max(full.next_multiple_of(SLOT_UNIT_BYTES));
        Self { keys: KeyForm::Bytes, fan_out, key_bytes, value_bytes: 0, node_bytes }
    }

    /// Keys of this form, and values, of these lengths at most, in nodes of so many entries.
    pub fn of(keys: KeyForm, fan_out: usize, key_bytes: usize, value_bytes: usize) -> Self {
        /// What an entry usually takes beside its head.
        const USUAL_BYTES: usize = 32;
        /// The same of its key, where there are no values.
        const USUAL_REST_BYTES: usize = 12;
        match keys {
            KeyForm::Integers => {
                // An entry of an inner node takes three words, its count included.
                let usual = (2 * WORD_BYTES + value_bytes.min(USUAL_BYTES)).max(3 * WORD_BYTES);
                let full = ORDERED_HEADER_BYTES + 2 * INTEGER_BYTES + fan_out * usual;
                let least = least_node_bytes(fan_out, INTEGER_BYTES, value_bytes);
                let node_bytes = least.max(full).next_multiple_of(CACHE_LINE_BYTES);
                Self { keys, fan_out, key_bytes: INTEGER_BYTES, value_bytes, node_bytes }
            }
            KeyForm::Bytes if value_bytes == 0 => {
                Self::byte_strings_alone(fan_out, key_bytes, USUAL_REST_BYTES)
            }
            KeyForm::Bytes => Self::byte_strings(fan_out, key_bytes, value_bytes, USUAL_BYTES),
        }
    }

    /// Whether a key may be in such a tree.
    ///
    /// # Errors
    /// It may not.
    pub fn check_key(&self, key: &[u8]) -> Result<(), TreeError> {
        let fits = match self.keys {
            KeyForm::Integers => key.len() == INTEGER_BYTES,
            KeyForm::Bytes => key.len() <= self.key_bytes,
        };
        if fits { Ok(()) } else { Err(TreeError::BadKey) }
    }

    /// Whether a value may lie in a leaf. What names a record fits each leaf.
    pub(super) fn check_value(&self, value: Value<'_>) -> Result<(), TreeError> {
        let most = match value.kind {
            ValueKind::Record => leaf_value_bytes(self.value_bytes),
            ValueKind::Bytes | ValueKind::Link => self.value_bytes,
        };
        if value.bytes.len() <= most { Ok(()) } else { Err(TreeError::ValueTooLong) }
    }

    pub(super) fn checked(self) -> Result<Self, TreeError> {
        let is_sound = (MIN_FAN_OUT..=MAX_FAN_OUT).contains(&self.fan_out)
            && self.key_bytes <= MAX_ORDERED_KEY_BYTES
            && self.value_bytes <= MAX_ORDERED_NODE_BYTES
            && (self.keys == KeyForm::Bytes || self.key_bytes == INTEGER_BYTES)
            && self.node_bytes.is_multiple_of(SLOT_UNIT_BYTES)
            && self.node_bytes <= MAX_ORDERED_NODE_BYTES
            && self.node_bytes >= least_node_bytes(self.fan_out, self.key_bytes, self.value_bytes);
        if is_sound { Ok(self) } else { Err(TreeError::BadOptions) }
    }
}

/// Bytes of a node that are fetched before they are looked at.
const FETCHED_BYTES: usize = 512;
const FETCHED_LEAF_BYTES: usize = 1024;

/// A tree of keys with values. Each key occurs once.
pub struct Tree {
    pub(super) home: Home,
    /// The place of the header.
    pub(super) at: NodeRef,
    pub(super) header: OrderedHeader,
    pub(super) pool: Pool,
    pub(super) options: Options,
    pub(super) keys: u64,
    /// The node that is being written. It is lent ([`Tree::swap_scratch`]), or grows at the first use.
    pub(super) scratch: Vec<u8>,
    /// Inner nodes from the root down to the leaf found last, and the index of the child.
    pub(super) path: Vec<(NodeRef, usize)>,
    /// The same of the leaf that an entry is to leave, while a move is planned.
    pub(super) path_from: Vec<(NodeRef, usize)>,
    /// The leaf that an entry is leaving: it stays torn until the entry is gone.
    pub(super) leaving: Option<NodeRef>,
    /// Addresses that others hold.
    pub(super) pins: Pins,
    /// Nodes that are to be looked at.
    pub(super) mending: Mending,
    pub(super) accesses: Accesses,
    /// What its levels hold.
    pub(super) shapes: Shapes,
}

/// A node in its owner's memory.
#[inline]
pub(super) fn node_in<J: Journal>(
    owner: &Owner<J>,
    at: NodeRef,
    node_bytes: usize,
) -> OrderedNode<'_> {
    OrderedNode::parse(owner.slice(at.offset(), node_bytes)).expect("the owner's own")
}

impl Tree {
    /// Ends the tree and frees its nodes' memory; its header is dead, and the header's place
    /// belongs to the caller.
    pub fn destroy<J: Journal>(mut self, arena: &mut Arena<'_, J>) {
        set_dead(arena.owner, self.at);
        // No reader finds a freed node through a live header.
        arena.owner.release();
        self.pool.give_all(arena);
    }

    /// Gives back some of the memory of a tree whose header is dead, bounded; true once there is none.
    pub fn release_some<J: Journal>(&mut self, arena: &mut Arena<'_, J>) -> bool {
        self.pool.give_run(arena)
    }

    /// Bytes of a run that has room for one change.
    pub fn wanted_run_bytes(&self) -> usize {
        self.pool.wanted_run_bytes()
    }

    /// Exchanges the buffer in which a change is written, from its plan to its end. Trees that take
    /// turns share one: between changes none of them has any.
    pub fn swap_scratch(&mut self, with: &mut Vec<u8>) {
        std::mem::swap(&mut self.scratch, with);
    }

    /// The buffer, with room for one node.
    pub(super) fn node_scratch(&mut self) -> &mut [u8] {
        let node_bytes = self.options.node_bytes;
        if self.scratch.len() < node_bytes {
            self.scratch.resize(node_bytes, 0);
        }
        &mut self.scratch[..node_bytes]
    }

    /// Bytes that it takes on the heap.
    pub fn heap_bytes(&self) -> u64 {
        let lists = self.pool.heap_bytes() + self.pins.heap_bytes() + self.mending.heap_bytes();
        let paths = self.path.capacity() + self.path_from.capacity();
        let path = paths * size_of::<(NodeRef, usize)>();
        let own = size_of::<Self>() + self.scratch.capacity() + path;
        lists + self.accesses.heap_bytes() + self.shapes.heap_bytes() + own as u64
    }

    /// The settings.
    pub fn options(&self) -> Options {
        self.options
    }

    /// The place of the header, at which a reader begins.
    pub fn at(&self) -> NodeRef {
        self.at
    }

    /// The content of the header.
    pub fn header(&self) -> OrderedHeader {
        self.header
    }

    /// Keys in the tree.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Nodes in the tree.
    pub fn nodes(&self) -> u64 {
        self.pool.used()
    }

    /// Bytes of the arena that it takes, unused places included.
    pub fn bytes(&self) -> u64 {
        self.pool.bytes()
    }

    pub(super) fn room(&self) -> Room {
        let Options { keys, fan_out, node_bytes, .. } = self.options;
        Room { keys, fan_out, node_bytes }
    }

    #[inline]
    pub(super) fn node<'a, J: Journal>(&self, owner: &'a Owner<J>, at: NodeRef) -> OrderedNode<'a> {
        node_in(owner, at, self.options.node_bytes)
    }

    /// The word with the keys below a child.
    pub(super) fn count_word(&self, at: NodeRef, index: usize) -> usize {
        let Options { fan_out, node_bytes, .. } = self.options;
        (at.offset() + count_offset(node_bytes, fan_out, index)) / WORD_BYTES
    }

    pub(super) fn image<J: Journal>(&self, owner: &Owner<J>, at: NodeRef) -> Image {
        let count = |index| owner.word(self.count_word(at, index));
        Image::of(&self.node(owner, at), count)
    }

    /// The leaf of a key.
    #[inline]
    pub(super) fn leaf_of<'a, J: Journal>(
        &self,
        owner: &'a Owner<J>,
        key: &[u8],
    ) -> OrderedNode<'a> {
        self.node(owner, self.descend(owner, key, |_, _| {}))
    }

    /// The leaf of a key; `each` gets the inner nodes before, and the index of the child. It asks
    /// the processor for each node before it looks at it.
    #[inline(always)]
    pub(super) fn descend<J: Journal>(
        &self,
        owner: &Owner<J>,
        key: &[u8],
        mut each: impl FnMut(NodeRef, usize),
    ) -> NodeRef {
        let mut at = self.header.root;
        let number = <[u8; INTEGER_BYTES]>::try_from(key).map(u64::from_be_bytes);
        if let (KeyForm::Integers, Ok(key)) = (self.options.keys, number) {
            for level in (1..self.header.height).rev() {
                let bytes = owner.slice(at.offset(), self.options.node_bytes);
                let node = Columns::of(bytes).expect("the owner's own");
                let index = node.child_index(key);
                each(at, index);
                at = node.child(index).expect("an inner node has children");
                self.prefetch(owner, at, level == 1);
            }
        } else {
            for level in (1..self.header.height).rev() {
                let node = self.node(owner, at);
                let index = node.child_index(key);
                each(at, index);
                at = node.child(index).expect("an inner node has children");
                self.prefetch(owner, at, level == 1);
            }
        }
        // Below deep nodes. Bounded: each node is nearer to the leaves.
        while self.mending.deep_nodes() > 0
            && let node = self.node(owner, at)
            && !node.is_leaf()
        {
            let index = node.child_index(key);
            each(at, index);
            at = node.child(index).expect("an inner node has children");
        }
        at
    }

    /// Asks the processor for the lines that a search in a node reads: of inner nodes, most of
    /// which are in its caches, the first ones.
    #[inline(always)]
    pub(super) fn prefetch<J: Journal>(&self, owner: &Owner<J>, at: NodeRef, is_leaf: bool) {
        let most = if is_leaf { FETCHED_LEAF_BYTES } else { FETCHED_BYTES };
        let lines = self.options.node_bytes.min(most) / CACHE_LINE_BYTES;
        for line in 0..lines {
            owner.prefetch(at.offset() + line * CACHE_LINE_BYTES);
        }
    }

    /// The value of a key; `None` if it is not there.
    #[inline]
    pub fn get<'a, J: Journal>(&self, owner: &'a Owner<J>, key: &[u8]) -> Option<Value<'a>> {
        self.options.check_key(key).ok()?;
        let leaf = self.leaf_of(owner, key);
        leaf.value(leaf.position(key).ok()?)
    }
}

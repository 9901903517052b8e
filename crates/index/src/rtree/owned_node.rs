//! Nodes as their owner reads them: plain references to its own memory.

use crate::pool::word_of;
use remora_arena::{Journal, Owner};
use remora_layout::node::{
    ENTRY_BYTES, Entry, NODE_HEADER_BYTES, NodeRef, NodeShape, node_bytes, word,
};
use remora_walk::Memory;
use zerocopy::FromBytes;

/// The entries of a node in the owner's memory.
#[inline(always)]
pub(super) fn entries_in<J: Journal>(owner: &Owner<J>, at: NodeRef) -> &[Entry] {
    let entries = shape_in(owner, at).entries as usize;
    let bytes = owner.slice(at.offset() + NODE_HEADER_BYTES, entries * ENTRY_BYTES);
    <[Entry]>::ref_from_bytes(bytes).expect("nodes lie on words")
}

/// Asks for a node's memory ahead of its use.
#[inline(always)]
pub(super) fn prefetch_node<J: Journal>(owner: &Owner<J>, at: NodeRef, capacity: usize) {
    Memory::prefetch(owner.view(), at.offset() as u64, node_bytes(capacity));
}

/// The shape of a node in the owner's memory.
#[inline(always)]
pub(super) fn shape_in<J: Journal>(owner: &Owner<J>, at: NodeRef) -> NodeShape {
    NodeShape::from_word(owner.word(word_of(at, word::SHAPE))).expect("the owner's own")
}

//! Reading a node in its owner's memory, where nothing has to be doubted: searches that look at no
//! more than they need, and many entries at once.

use super::search::{Words, count_below};
use super::{
    HEAD_BYTES, KeyForm, ORDERED_HEADER_BYTES, OrderedNode, Payloads, Value, ValueKind, node_word,
    word,
};
use crate::limits::{MAX_ORDERED_KEY_BYTES, WORD_BYTES};
use crate::node::NodeRef;
use std::ops::Range;

/// A node of integers: heads and payloads.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    heads: Words<'a>,
    payloads: Words<'a>,
}

impl<'a> Columns<'a> {
    /// Those of a node; `None` if the bytes hold none.
    #[inline(always)]
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let words = bytes.as_chunks::<WORD_BYTES>().0;
        let at = |index: usize| words.get(index).map(|word| u64::from_le_bytes(*word));
        let (shape, fences) = (at(node_word::SHAPE)?, at(word::FENCES)?);
        let fence_bytes = fences as u16 as usize + (fences >> 16) as u16 as usize;
        let heads = (ORDERED_HEADER_BYTES + fence_bytes).div_ceil(WORD_BYTES);
        let entries = shape as u16 as usize;
        let (heads, payloads) = words.get(heads..heads + 2 * entries)?.split_at(entries);
        Some(Self { heads, payloads })
    }

    /// The index of the child for a key, of an inner node.
    #[inline(always)]
    pub fn child_index(&self, key: u64) -> usize {
        count_below(self.heads, key, true).saturating_sub(1)
    }

    /// A child; `None` if there are fewer.
    #[inline(always)]
    pub fn child(&self, index: usize) -> Option<NodeRef> {
        self.payloads.get(index).map(|word| NodeRef::from_word(u64::from_le_bytes(*word)))
    }
}

impl<'a> OrderedNode<'a> {
    /// Hands entries of a leaf over, by their indices; `key` is room for a key.
    #[inline]
    pub fn visit(
        &self,
        entries: Range<usize>,
        key: &mut [u8; MAX_ORDERED_KEY_BYTES],
        mut each: impl FnMut(&[u8], Value<'a>),
    ) {
        if self.keys == KeyForm::Integers && self.payloads == Payloads::Words {
            let payloads: Words<'a> =
                self.bytes[self.parts.payloads..self.parts.rests].as_chunks().0;
            let heads = self.heads().iter().zip(payloads).skip(entries.start);
            for (head, payload) in heads.take(entries.len()) {
                let key = u64::from_le_bytes(*head).to_be_bytes();
                each(&key, Value { kind: ValueKind::Bytes, bytes: payload });
            }
            return;
        }
        // All keys have the same prefix.
        let prefix = self.prefix;
        key[..prefix].copy_from_slice(&self.low[..prefix]);
        for index in entries {
            let (Some(head), Some(value)) = (self.heads().get(index), self.value(index)) else {
                return;
            };
            let (rest, bytes) = self.rest(index);
            let head = u64::from_le_bytes(*head).to_be_bytes();
            let (short, from) = (bytes.min(HEAD_BYTES), prefix + HEAD_BYTES);
            match key[prefix..].first_chunk_mut() {
                Some(into) => *into = head,
                None => key[prefix..prefix + short].copy_from_slice(&head[..short]),
            }
            if !rest.is_empty() {
                key[from..from + rest.len()].copy_from_slice(rest);
            }
            each(&key[..prefix + short + rest.len()], value);
        }
    }
}

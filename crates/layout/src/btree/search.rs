//! Searches among the heads of a node.

use crate::limits::WORD_BYTES;

/// Words as they stand in a node.
pub(super) type Words<'a> = &'a [[u8; WORD_BYTES]];

/// Heads of a node that are compared one by one, behind those blocks that are smaller altogether.
const BLOCK: usize = 8;

/// How many of the ascending numbers are smaller than this one, or if `or_equal` not greater.
#[inline(always)]
pub(super) fn count_below(heads: Words<'_>, key: u64, or_equal: bool) -> usize {
    let is_below = |head: &[u8; WORD_BYTES]| {
        let head = u64::from_le_bytes(*head);
        head < key || (or_equal && head == key)
    };
    // Without a branch on what a head is, half of which would be predicted wrongly; and no load
    // waits for another one but those of the last block.
    let (blocks, _) = heads.as_chunks::<BLOCK>();
    let below = blocks.iter().map(|block| usize::from(is_below(&block[BLOCK - 1])));
    let before = below.sum::<usize>() * BLOCK;
    let behind = &heads[before..];
    let in_block: usize = match behind.first_chunk::<BLOCK>() {
        Some(block) => block.iter().map(|head| usize::from(is_below(head))).sum(),
        None => behind.iter().map(|head| usize::from(is_below(head))).sum(),
    };
    before + in_block
}

/// The index of a key among ascending heads that are whole keys.
#[inline(always)]
pub(super) fn position(heads: Words<'_>, key: u64) -> Result<usize, usize> {
    let index = count_below(heads, key, false);
    let is_there = heads.get(index).is_some_and(|head| u64::from_le_bytes(*head) == key);
    if is_there { Ok(index) } else { Err(index) }
}

//! Entries that move from one key to another, and how a node is written in which one does.

use super::{HEAD_BYTES, KeyForm, OrderedNode, REST_BYTES, head_of, word};
use crate::limits::{MAX_ORDERED_KEY_BYTES, WORD_BYTES};
use crate::node::{NODE_CHECKED_FROM, word_at};

/// What a scan has to know of the moves out of a leaf and into it.
///
/// A counted move leaves `moved_at` = the header's `moves` + 1 in the leaf that the entry leaves and in
/// the one it comes to; then the header's `moves` grows. A scan that began under a smaller number may
/// have seen the other one of these leaves before the move: it begins anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct MoveMark {
    /// The number of the last counted move out of the leaf or into it, or out of or into one that was
    /// divided or joined to become this one.
    pub moved_at: u64,
    /// Keys of several leaves came together in it after that move. A scan may have read some of these
    /// leaves only, so the next move within this one is counted.
    pub is_joined: bool,
}

impl MoveMark {
    /// As it stands in a leaf.
    const fn to_word(self) -> u64 {
        self.moved_at << 1 | self.is_joined as u64
    }

    const fn from_word(word: u64) -> Self {
        Self { moved_at: word >> 1, is_joined: word & 1 == 1 }
    }

    /// The mark of the leaf that two others become.
    ///
    /// ```
    /// use remora_layout::btree::MoveMark;
    ///
    /// let of = |moved_at| MoveMark { moved_at, is_joined: false };
    /// assert_eq!(of(3).joined(of(7)), MoveMark { moved_at: 7, is_joined: true });
    /// ```
    pub const fn joined(self, other: Self) -> Self {
        let both = [self.moved_at, other.moved_at];
        Self { moved_at: if both[0] > both[1] { both[0] } else { both[1] }, is_joined: true }
    }
}

/// Writes the mark of a leaf into its encoded bytes.
///
/// # Panics
/// The bytes are no node's.
pub fn set_move_mark(bytes: &mut [u8], mark: MoveMark) {
    let at = word::MOVES * WORD_BYTES;
    bytes[at..at + WORD_BYTES].copy_from_slice(&mark.to_word().to_le_bytes());
}

/// Moves one element of a column to another index; those between make room.
fn rotate(column: &mut [u8], from: usize, to: usize, bytes: usize) {
    if from < to {
        column[from * bytes..(to + 1) * bytes].rotate_left(bytes);
    } else {
        column[to * bytes..(from + 1) * bytes].rotate_right(bytes);
    }
}

impl OrderedNode<'_> {
    /// What has moved out of the leaf or into it.
    pub fn move_mark(&self) -> MoveMark {
        MoveMark::from_word(word_at(self.bytes, word::MOVES))
    }

    /// Writes the owner's node into `into`, with another key for the entry at the index `from`. The key
    /// lies between the fences, and comes before the entry that is now at the index `to`. The first
    /// three words are the writer's. Gives the used bytes; `None` if they do not fit, or if the key has
    /// another length than the one before.
    pub fn with_moved(&self, from: usize, to: usize, key: &[u8], into: &mut [u8]) -> Option<usize> {
        let (suffix, used) = (key.get(self.prefix..)?, self.bytes.len());
        let (rest, suffix_bytes) = self.rest(from);
        let into = into.get_mut(..used)?;
        if suffix.len() != suffix_bytes || key.len() > MAX_ORDERED_KEY_BYTES {
            return None;
        }
        into[NODE_CHECKED_FROM..].copy_from_slice(&self.bytes[NODE_CHECKED_FROM..]);
        // Without the entry, all behind it are one index further left.
        let to = if to > from { to - 1 } else { to };
        let parts = self.parts;
        if self.keys == KeyForm::Bytes {
            let at = parts.rests + from * REST_BYTES;
            let offset = u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]) as usize;
            if !rest.is_empty() {
                into[offset..offset + rest.len()].copy_from_slice(&suffix[HEAD_BYTES..]);
            }
            rotate(&mut into[parts.rests..parts.heap], from, to, REST_BYTES);
        }
        rotate(&mut into[parts.payloads..parts.rests], from, to, self.payloads.bytes());
        rotate(&mut into[parts.heads..parts.payloads], from, to, WORD_BYTES);
        let head = parts.heads + to * WORD_BYTES;
        into[head..head + WORD_BYTES].copy_from_slice(&head_of(suffix).to_le_bytes());
        Some(used)
    }
}

//! Payloads: what an entry has beside its key, and the forms in which leaves have values.

use super::item::{EMPTY, IN_HEAP, Item, Payload, WORDS};
use super::value::{Value, ValueKind};
use crate::limits::WORD_BYTES;

/// What the payloads of a node are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Payloads {
    /// Children, or values that say how long they are and where they lie.
    Tagged,
    /// Values of 8 plain bytes.
    Words,
    /// Values without bytes: there are no payloads.
    Empty,
}

impl Payloads {
    /// Those of a node with these items.
    pub fn of(is_leaf: bool, items: &[Item<'_>]) -> Self {
        let are = |form: Self| items.iter().all(|item| form.has_room_for(item.payload));
        match items {
            [] => Self::Tagged,
            _ if !is_leaf => Self::Tagged,
            _ if are(Self::Words) => Self::Words,
            _ if are(Self::Empty) => Self::Empty,
            _ => Self::Tagged,
        }
    }

    /// Those that a form names; `None` if it names two.
    pub const fn of_form(form: u8) -> Option<Self> {
        match (form & WORDS != 0, form & EMPTY != 0) {
            (false, false) => Some(Self::Tagged),
            (true, false) => Some(Self::Words),
            (false, true) => Some(Self::Empty),
            (true, true) => None,
        }
    }

    pub const fn form(self) -> u8 {
        match self {
            Self::Tagged => 0,
            Self::Words => WORDS,
            Self::Empty => EMPTY,
        }
    }

    /// Whether a payload may stand among these.
    pub fn has_room_for(self, payload: Payload<'_>) -> bool {
        let bytes = match self {
            Self::Tagged => return true,
            Self::Words => WORD_BYTES,
            Self::Empty => 0,
        };
        let Payload::Value(value) = payload else { return false };
        value.kind == ValueKind::Bytes && value.bytes.len() == bytes
    }

    /// Bytes of the payload of one entry.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Tagged | Self::Words => WORD_BYTES,
            Self::Empty => 0,
        }
    }
}

/// The payload of a value that lies in it.
pub(super) fn short_word(value: Value<'_>) -> u64 {
    let mut word = [0; WORD_BYTES];
    word[0] = value.kind as u8;
    word[1] = value.bytes.len() as u8;
    word[2..2 + value.bytes.len()].copy_from_slice(value.bytes);
    u64::from_le_bytes(word)
}

/// The payload of a value that lies in the heap.
pub(super) const fn heap_word(value: Value<'_>, at: usize) -> u64 {
    value.kind as u64
        | (IN_HEAP as u64) << 8
        | (at as u16 as u64) << 16
        | (value.bytes.len() as u16 as u64) << 32
}

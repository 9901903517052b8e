//! The list of a MSET, in its encoding.

use remora_layout::limits::{MAX_COMMAND_ITEMS, MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Pairs of a [`Command::MultiSet`](super::Command::MultiSet), encoded one after the other:
/// key_bytes 4 | value_bytes 4 | key | value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pairs<'a>(pub(crate) &'a [u8]);

impl<'a> Pairs<'a> {
    /// Appends one pair to an encoded list.
    pub fn push(list: &mut Vec<u8>, key: &[u8], value: &[u8]) {
        list.extend_from_slice(&(key.len() as u32).to_le_bytes());
        list.extend_from_slice(&(value.len() as u32).to_le_bytes());
        list.extend_from_slice(key);
        list.extend_from_slice(value);
    }

    /// The pairs of an encoded list, all checked: lengths and limits.
    pub fn parse(list: &'a [u8]) -> Option<Self> {
        let (mut rest, mut items) = (list, 0);
        while !rest.is_empty() {
            let (key, value, after) = Self::split(rest)?;
            items += 2;
            let is_too_long = key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES;
            if is_too_long || items > MAX_COMMAND_ITEMS {
                return None;
            }
            rest = after;
        }
        Some(Self(list))
    }

    /// The pairs, in order.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (key, value, after) = Self::split(rest)?;
            rest = after;
            Some((key, value))
        })
    }

    fn split(bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8], &'a [u8])> {
        let (header, rest) = bytes.split_at_checked(8)?;
        let length = |at: usize| {
            u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize
        };
        let (key, rest) = rest.split_at_checked(length(0))?;
        let (value, rest) = rest.split_at_checked(length(4))?;
        Some((key, value, rest))
    }
}

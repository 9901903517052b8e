//! A value that is too long for a leaf: it lies in a record of its own, which the leaf's entry
//! names.
//!
//! ```text
//!  bytes of a value of the kind Record
//!  | remote pointer of the record 16 | kind of its value 1 |
//! ```
//! The record is a part ([`Kind::ORDERED_VALUE`]): no key leads to it. Its key says of which tree it
//! is. So a leaf has such an entry whatever length its tree's values have there at most.

use super::value::{Value, ValueKind};
use crate::kind::Kind;
use crate::limits::{MAX_ORDERED_LONG_BYTES, WORD_BYTES};
use crate::node::NodeRef;
use crate::pointer::RemotePointer;
use crate::record::{RECORD_HEADER_BYTES, Reject, verify};

/// A value that lies in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongValue {
    /// Where the record lies.
    pub at: RemotePointer,
    /// Whether its value is a link.
    pub is_link: bool,
}

/// Bytes of the key of such a record.
pub const LONG_KEY_BYTES: usize = WORD_BYTES;

/// The key of the records with values of the tree whose header lies at `tree`.
pub const fn long_key(tree: NodeRef) -> [u8; LONG_KEY_BYTES] {
    tree.to_word().to_le_bytes()
}

impl LongValue {
    /// Bytes of a leaf's value that names a record.
    pub const BYTES: usize = RemotePointer::BYTES + 1;

    /// As the leaf's entry has it: [`LongValue::in_leaf`] of these bytes.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let kind = if self.is_link { ValueKind::Link } else { ValueKind::Bytes };
        let mut bytes = [kind as u8; Self::BYTES];
        for (into, word) in bytes.chunks_exact_mut(WORD_BYTES).zip(self.at.to_words()) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The value of a leaf that names a record.
    pub const fn in_leaf(bytes: &[u8; Self::BYTES]) -> Value<'_> {
        Value { kind: ValueKind::Record, bytes }
    }

    /// Where a leaf's value lies, if it lies in a record.
    #[inline]
    pub fn of(value: Value<'_>) -> Option<Self> {
        if value.kind != ValueKind::Record {
            return None;
        }
        let bytes: &[u8; Self::BYTES] = value.bytes.try_into().ok()?;
        let (words, kind) = bytes.as_chunks::<WORD_BYTES>();
        let words = [words[0], words[1]].map(u64::from_le_bytes);
        Some(Self {
            at: RemotePointer::from_words(words),
            is_link: kind == [ValueKind::Link as u8],
        })
    }

    /// Whether a reader may fetch it from a region of so many bytes.
    pub const fn is_within(self, region: u32, region_bytes: u64) -> bool {
        let RemotePointer { length, slot, .. } = self.at;
        let most = RECORD_HEADER_BYTES + LONG_KEY_BYTES + MAX_ORDERED_LONG_BYTES;
        self.at.region == region
            && slot != 0
            && length as usize <= most
            && self.at.offset() + length as u64 <= region_bytes
    }

    /// The value in the bytes that a reader fetched from there, for the tree whose header lies at
    /// `tree`; `secret` is the region's.
    ///
    /// # Errors
    /// They are part old, part new; or the record is dead, or not to be shown yet, or none of this
    /// tree's.
    pub fn verify(self, bytes: &[u8], secret: u64, tree: NodeRef) -> Result<&[u8], Reject> {
        let RemotePointer { region, slot, generation, .. } = self.at;
        let (kind, key) = (Kind::ORDERED_VALUE, long_key(tree));
        let record = verify(bytes, secret, region, slot, Some(generation), kind, &key)?;
        Ok(record.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_where_a_long_value_lies() {
        let at = RemotePointer { region: 3, slot: 77, length: 1_000, generation: u32::MAX };
        for is_link in [false, true] {
            let bytes = LongValue { at, is_link }.to_bytes();
            let value = LongValue::in_leaf(&bytes);
            assert_eq!(LongValue::of(value), Some(LongValue { at, is_link }));
            for kind in [ValueKind::Bytes, ValueKind::Link] {
                assert_eq!(LongValue::of(Value { kind, ..value }), None);
            }
            for cut in 0..bytes.len() {
                let bytes = &bytes[..cut];
                assert_eq!(LongValue::of(Value { bytes, ..value }), None, "forged");
            }
        }
    }

    #[test]
    fn what_lies_outside_of_the_region_is_not_fetched() {
        let at = RemotePointer { region: 3, slot: 16, length: 1_024, generation: 1 };
        let end = at.offset() + 1_024;
        let is_within = |at, bytes| LongValue { at, is_link: false }.is_within(3, bytes);
        assert!(is_within(at, end) && !is_within(at, end - 1));
        assert!(!is_within(RemotePointer { region: 2, ..at }, end));
        assert!(!is_within(RemotePointer { slot: 0, ..at }, end));
        assert!(!is_within(RemotePointer { length: 1 << 20, ..at }, u64::MAX));
    }
}

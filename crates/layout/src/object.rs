//! The data of a tree's object beside its rectangle: a record of its own.
//!
//! ```text
//! record's key     word 8
//! record's word 1  when the object expires, Unix ms; 0 for never
//! record's value   lengths of the next three, 4 each | WKB | fields | id | bytes
//! field            name's length 2 | value's length 2 | name | value
//! verdict          rectangle 32 | word 8 | remote pointer 16 | holds 8
//! ```
//! No key leads to such a record: the server tells the reader where it lies. Its checksum covers
//! the word, and its kind ([`crate::kind::Kind::OBJECT`]) distinguishes it from a key's record.
//!
//! The word is the word of the object's entry in the tree. An id that is an integer below 2^63 is
//! the word itself, if the object does not expire. Any other object has a *surrogate*: a word of
//! its own with the highest bit set, which its shard never gives to another object. Its record
//! holds the id. So a reader of a surrogate knows neither the id nor whether the object has
//! expired, and asks the tree's owner.

use crate::node::Entry;
use crate::pointer::RemotePointer;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes before the WKB.
pub const OBJECT_HEAD_BYTES: usize = 12;
/// Bytes of a verdict.
pub const VERDICT_BYTES: usize = 64;
/// The bit that distinguishes a surrogate from an id.
pub const SURROGATE: u64 = 1 << 63;

/// Whether an object's word is a surrogate instead of its id.
#[inline(always)]
pub const fn is_surrogate(word: u64) -> bool {
    word & SURROGATE != 0
}

/// The key of the record of an object with this word.
pub const fn object_key(word: u64) -> [u8; 8] {
    word.to_le_bytes()
}

/// What an object carries; each part may be empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Payload<'a> {
    /// Its geometry in WKB.
    pub geometry: &'a [u8],
    /// Its fields, as they are encoded.
    pub fields: &'a [u8],
    /// Its id, an integer as text, if its word is a surrogate.
    pub id: &'a [u8],
    /// Its bytes.
    pub data: &'a [u8],
}

impl<'a> Payload<'a> {
    /// Whether all parts are empty.
    pub const fn is_empty(&self) -> bool {
        let Self { geometry, fields, id, data } = self;
        geometry.is_empty() && fields.is_empty() && id.is_empty() && data.is_empty()
    }

    /// Decodes a record's value; `None` if it is not the value of an object's record.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (head, rest) = value.split_first_chunk::<OBJECT_HEAD_BYTES>()?;
        let length = |at: usize| {
            u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
        };
        let (geometry, rest) = rest.split_at_checked(length(0))?;
        let (fields, rest) = rest.split_at_checked(length(4))?;
        let (id, data) = rest.split_at_checked(length(8))?;
        Some(Self { geometry, fields, id, data })
    }

    /// Appends the value of its record.
    #[allow(clippy::cast_possible_truncation, reason = "the parts' lengths are bounded")]
    pub fn write(&self, value: &mut Vec<u8>) {
        for part in [self.geometry, self.fields, self.id] {
            value.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        for part in [self.geometry, self.fields, self.id, self.data] {
            value.extend_from_slice(part);
        }
    }
}

/// The server's result for one object of a refined search.
#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Verdict {
    /// Its rectangle and word.
    pub object: Entry,
    pointer: [u64; 2],
    holds: u64,
}

impl Verdict {
    /// A verdict; [`RemotePointer::NONE`] if the object has no record.
    pub fn new(object: Entry, pointer: RemotePointer, holds: bool) -> Self {
        Self { object, pointer: pointer.to_words(), holds: holds.into() }
    }

    /// Where its record lies.
    pub fn pointer(&self) -> RemotePointer {
        RemotePointer::from_words(self.pointer)
    }

    /// Whether the object matches the search.
    pub fn holds(&self) -> bool {
        self.holds != 0
    }
}

const _: () = assert!(size_of::<Verdict>() == VERDICT_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_object_carries_comes_back() {
        let parts = [&b""[..], b"x", b"longer bytes"];
        for (geometry, fields) in parts.iter().flat_map(|one| parts.map(|two| (*one, two))) {
            for (id, data) in parts.iter().flat_map(|one| parts.map(|two| (*one, two))) {
                let payload = Payload { geometry, fields, id, data };
                let mut value = Vec::new();
                payload.write(&mut value);
                assert_eq!(Payload::parse(&value), Some(payload));
                assert_eq!(payload.is_empty(), value.len() == OBJECT_HEAD_BYTES);
            }
        }
        assert_eq!(Payload::parse(&[0; OBJECT_HEAD_BYTES - 1]), None);
        for at in [0, 4, 8] {
            let mut value = [0; OBJECT_HEAD_BYTES + 1];
            value[at] = 2;
            assert_eq!(Payload::parse(&value), None);
        }
    }
}

//! What an object of a tree has beside its rectangle: a record of its own.
//!
//! ```text
//! record's key     id 8
//! record's value   WKB's length 4 | WKB | bytes
//! verdict          rectangle 32 | id 8 | remote pointer 16 | holds 8
//! ```
//! No key leads to such a record: who is to read it is told where it lies. Its
//! checksum covers the id, and its kind tells it from a key's record.

use crate::node::Entry;
use crate::pointer::RemotePointer;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Kind of an object's record.
pub const OBJECT_KIND: u8 = 1;
/// Bytes before the WKB.
pub const OBJECT_HEAD_BYTES: usize = 4;
/// Bytes of a verdict.
pub const VERDICT_BYTES: usize = 64;

/// The key of an object's record.
pub const fn object_key(id: u64) -> [u8; 8] {
    id.to_le_bytes()
}

/// What an object carries; both parts may be empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried<'a> {
    /// Its geometry in WKB.
    pub geometry: &'a [u8],
    /// Its bytes.
    pub data: &'a [u8],
}

impl<'a> Carried<'a> {
    /// Whether it is nothing.
    pub const fn is_empty(&self) -> bool {
        self.geometry.is_empty() && self.data.is_empty()
    }

    /// What a record's value says; `None` if it is no object's.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (length, rest) = value.split_first_chunk::<OBJECT_HEAD_BYTES>()?;
        let (geometry, data) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Self { geometry, data })
    }

    /// Appends the value of its record.
    #[allow(clippy::cast_possible_truncation, reason = "a geometry's length is bounded")]
    pub fn write(&self, value: &mut Vec<u8>) {
        value.extend_from_slice(&(self.geometry.len() as u32).to_le_bytes());
        value.extend_from_slice(self.geometry);
        value.extend_from_slice(self.data);
    }
}

/// What a server tells of one object of a refined search.
#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Verdict {
    /// Its rectangle and id.
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

    /// Whether it is one of those that were looked for.
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
        for (geometry, data) in [(&b"wkb"[..], &b"bytes"[..]), (b"", b"x"), (b"y", b""), (b"", b"")]
        {
            let carried = Carried { geometry, data };
            let mut value = Vec::new();
            carried.write(&mut value);
            assert_eq!(Carried::parse(&value), Some(carried));
            assert_eq!(carried.is_empty(), value.len() == OBJECT_HEAD_BYTES);
        }
        assert_eq!(Carried::parse(&[1, 0, 0]), None);
        assert_eq!(Carried::parse(&[2, 0, 0, 0, 9]), None);
    }
}

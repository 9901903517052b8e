//! Values of leaves.

/// What the bytes of a value are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum ValueKind {
    /// The value itself.
    #[default]
    Bytes = 0,
    /// A remote pointer to the record that has the value: a `LongValue`.
    Record = 1,
    /// A link: the key of another object.
    Link = 2,
}

impl ValueKind {
    /// The kind that a leaf's byte names.
    pub(super) const fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Record,
            2 => Self::Link,
            _ => Self::Bytes,
        }
    }
}

/// A value of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value<'a> {
    /// What the bytes are.
    pub kind: ValueKind,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// A value that is these bytes.
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { kind: ValueKind::Bytes, bytes }
    }
}

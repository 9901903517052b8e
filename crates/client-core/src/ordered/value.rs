//! Values of ordered trees.

use remora_layout::btree::{Value, ValueKind};

/// A value of an ordered tree.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OrderedValue {
    /// The value; of a link the name of the key that it leads to.
    pub value: Vec<u8>,
    /// Whether it is a link.
    pub is_link: bool,
}

impl OrderedValue {
    /// What a leaf has.
    pub(super) fn of(value: Value<'_>) -> Self {
        Self { value: value.bytes.to_vec(), is_link: value.kind == ValueKind::Link }
    }
}

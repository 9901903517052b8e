//! Keys and values as users write them, and as trees have them.

use crate::store::Store;
use remora_arena::{Journal, Slot};
use remora_index::btree::Change;
use remora_index::hash::record_value;
use remora_layout::btree::{INTEGER_BYTES, KeyForm, LongValue, Value, ValueKind};
use remora_layout::packed::Field;
use remora_protocol::message::Status;

/// A key as its tree has it, made from what users write.
///
/// # Errors
/// The tree has integers, and it is none.
pub(super) fn native<'k>(
    keys: KeyForm,
    text: &'k [u8],
    integer: &'k mut [u8; INTEGER_BYTES],
) -> Result<&'k [u8], Status> {
    keys.parse(text, integer).ok_or(Status::NotAnInteger)
}

pub(super) fn value_of(field: Field<'_>) -> Value<'_> {
    let kind = if field.is_link { ValueKind::Link } else { ValueKind::Bytes };
    Value { kind, bytes: field.value }
}

/// Values of one tree that lie in records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LongValues {
    /// How many.
    pub values: u64,
    /// Bytes of their slots.
    pub bytes: u64,
}

/// A change that is planned whole, and whose memory is taken: it is to be published next.
#[must_use = "the memory that it has taken is lost"]
pub(super) struct Planned {
    pub change: Change,
    /// The record of the present value, if it lies in one.
    pub old: Option<u32>,
    /// The record of the next value, if it is to lie in one.
    pub new: Option<Slot>,
}

/// A value as users see it, wherever it lies.
pub(super) fn field_of<'s, J: Journal>(store: &'s Store<J>, value: Value<'s>) -> Field<'s> {
    match LongValue::of(value) {
        None => Field { value: value.bytes, is_link: value.kind == ValueKind::Link },
        Some(LongValue { at, is_link }) => {
            Field { value: record_value(&store.owner, at.slot), is_link }
        }
    }
}

//! What is to stand in a node, an entry at a time.

use super::value::Value;
use crate::node::NodeRef;

/// In a payload: the value lies in the heap.
pub(super) const IN_HEAP: u8 = 0xff;
/// Bit of a leaf's form: each value is 8 plain bytes.
pub(super) const WORDS: u8 = 8;
/// Bit of a leaf's form: each value is empty, and there are no payloads.
pub(super) const EMPTY: u8 = 16;

/// What an entry has beside its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// Of an inner node: the child.
    Child(NodeRef),
    /// Of a leaf: the value.
    Value(Value<'a>),
}

/// An entry to be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item<'a> {
    /// The whole key.
    pub key: &'a [u8],
    /// Child or value.
    pub payload: Payload<'a>,
}

//! The policy's identifier of a record.

/// A record: a slot under one of its generations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id {
    /// Number of the slot; slots are 32 bytes or longer, so that two numbers
    /// differ by two or more.
    pub slot: u32,
    /// Generation of the slot.
    pub generation: u32,
}

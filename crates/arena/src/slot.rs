//! A slot of an arena, as its allocator, its writer and its readers name it.

/// A slot that the allocator has given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Its number, in units of 16 bytes from the region's start.
    pub slot: u32,
    /// Its present generation.
    pub generation: u32,
    /// Its size class.
    pub class: u8,
}

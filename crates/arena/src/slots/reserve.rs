//! The pages of the reserve, as the allocator knows them ([`super::lending`]).

use std::ops::Range;

/// Pages that the allocator lends, from the first one on.
#[derive(Default)]
pub(super) struct Reserve {
    pub pages: Range<u32>,
    /// How many of them are lent.
    pub lent: u32,
    /// Pages that must stay free.
    pub keep_free: u32,
}

impl Reserve {
    /// How many pages it has.
    pub fn len(&self) -> u32 {
        self.pages.len() as u32
    }
}

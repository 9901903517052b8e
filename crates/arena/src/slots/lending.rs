//! The reserve: pages at the end of the arena that the allocator lends only on request (decision
//! 0061).
//!
//! Invariants:
//! * pages that were never lent are never given out, so they are never touched, and cost no memory of
//!   the machine unless a device registers them;
//! * [`Slots::lend`] makes more pages free. Once lending has ended, as many pages must stay free as
//!   are lent: what is in use is again at most the memory without the reserve, wherever it lies.

use super::Slots;
use crate::pages::Pages;
use remora_layout::limits::PAGE_BYTES;

impl Slots {
    /// Sets the last so many bytes apart. For an allocator that has given nothing out.
    pub fn with_reserve_bytes(mut self, bytes: u64) -> Self {
        let pages = (bytes / PAGE_BYTES as u64).min(self.range.len() as u64) as u32;
        if pages > 0 {
            let first = self.range.end - pages;
            self.pages.take_at(first, pages);
            self.reserve.pages = first..self.range.end;
        }
        self.with_quarantine_share()
    }

    /// Lends so many bytes of the reserve, or what is left. False if nothing is.
    pub fn lend(&mut self, bytes: u64) -> bool {
        let left = self.reserve.len() - self.reserve.lent;
        let pages = bytes.div_ceil(PAGE_BYTES as u64).clamp(1, u32::MAX.into()) as u32;
        let pages = pages.min(left);
        if pages > 0 {
            self.pages.give(self.reserve.pages.start + self.reserve.lent, pages);
            self.reserve.lent += pages;
        }
        pages > 0
    }

    /// All free pages may be taken, also those that are lent.
    pub fn begin_lending(&mut self) {
        self.reserve.keep_free = 0;
    }

    /// Nothing more is to be lent. Free pages at the end of what was lent go back at once.
    pub fn end_lending(&mut self) {
        self.give_spares();
        let start = self.reserve.pages.start;
        let end = start + self.reserve.lent;
        let last = self.pages.free_in(start..end).last();
        if let Some((first, pages)) = last.filter(|(first, pages)| first + pages == end) {
            self.pages.take_at(first, pages);
            self.reserve.lent -= pages;
        }
        self.reserve.keep_free = self.reserve.lent;
    }

    /// Bytes of all pages but the reserve's.
    pub fn limit_bytes(&self) -> u64 {
        (self.range.len() as u64 - u64::from(self.reserve.len())) * PAGE_BYTES as u64
    }

    /// Bytes in use beyond [`Slots::limit_bytes`], after lending has ended.
    pub fn over_bytes(&self) -> u64 {
        let over = self.reserve.keep_free.saturating_sub(self.free_pages());
        u64::from(over) * PAGE_BYTES as u64
    }

    /// Bytes that are free, or could be lent.
    pub fn lendable_bytes(&self) -> u64 {
        let left = self.reserve.len() - self.reserve.lent;
        u64::from(self.free_pages() + left) * PAGE_BYTES as u64
    }

    /// Free pages that may be taken.
    pub(crate) fn available_pages(&self) -> u32 {
        self.free_pages().saturating_sub(self.reserve.keep_free)
    }

    /// Takes so many pages, unless they must stay free.
    pub(super) fn take_from(
        &mut self,
        pages: u32,
        take: impl Fn(&mut Pages) -> Option<u32>,
    ) -> Option<u32> {
        if self.reserve.keep_free > 0 && self.available_pages() < pages {
            return None;
        }
        take(&mut self.pages)
    }

    /// Free pages, also those of a window that is being emptied.
    pub(super) fn free_pages(&self) -> u32 {
        let held: u32 = self.held.iter().map(|&(_, pages)| pages).sum();
        self.pages.free_pages() + held
    }
}

//! Shared words: memory without an owner, for mailboxes and hints.

use crate::copy;
use crate::mapping::Mapping;
use remora_layout::limits::CACHE_LINE_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A range that does not lie in its region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{bytes} bytes at offset {offset} do not lie in a region of {region_bytes} bytes, or are not aligned to words"
)]
pub struct OutOfBounds {
    /// First byte asked for.
    pub offset: u64,
    /// Bytes asked for.
    pub bytes: usize,
    /// Size of the region.
    pub region_bytes: usize,
}

/// Memory that this process writes, and that other processes may change at any time. Cheap to
/// clone. It is never an arena's: only the [`Owner`](crate::Owner) writes an arena, and all others
/// read it through a [`ReadView`](crate::ReadView).
///
/// Word indices and offsets that this process computes itself are asserted; those that come from
/// elsewhere go through [`Words::check`].
#[derive(Clone)]
pub struct Words {
    base: *mut u8,
    bytes: usize,
    /// Keeps the memory mapped.
    _mapping: Arc<Mapping>,
}

// SAFETY: `base` points into `_mapping`, which is Send and Sync and outlives it.
unsafe impl Send for Words {}
// SAFETY: all access is by atomic or opaque accesses.
unsafe impl Sync for Words {}

impl Words {
    /// The whole of a mapping.
    pub fn new(mapping: Arc<Mapping>) -> Self {
        Self { base: mapping.base(), bytes: mapping.bytes(), _mapping: mapping }
    }

    /// Its address in this process, for a device that reaches it by itself.
    pub fn address(&self) -> usize {
        self.base as usize
    }

    /// Size in bytes.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a range from elsewhere lies in the region, its start on a word.
    #[inline(always)]
    pub fn check(&self, offset: u64, bytes: usize) -> Result<usize, OutOfBounds> {
        let fits = offset.is_multiple_of(8)
            && offset <= self.bytes as u64
            && bytes <= self.bytes - offset as usize;
        if fits {
            Ok(offset as usize)
        } else {
            Err(OutOfBounds { offset, bytes, region_bytes: self.bytes })
        }
    }

    /// One word as an atomic, for protocols that know nothing of regions.
    #[inline(always)]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.bytes / 8, "word {index} of {}", self.bytes / 8);
        // SAFETY: in bounds and aligned; the mapping lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.base.add(index * 8).cast()) }
    }

    /// The low half of a word on which threads of several processes wait (futex): no access uses
    /// the other half.
    #[inline(always)]
    pub fn futex_word(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.bytes / 8, "word {index} of {}", self.bytes / 8);
        // SAFETY: in bounds and aligned; the mapping lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.base.add(index * 8).cast()) }
    }

    /// One word, relaxed.
    #[inline(always)]
    pub fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    /// One word, with acquire ordering; later loads see at least what its writer had stored before.
    #[inline(always)]
    pub fn load_acquire(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    /// One word, loaded after everything that was loaded or copied before it: the second load of a
    /// reader that validates by version (seqlock).
    #[inline(always)]
    pub fn load_after(&self, index: usize) -> u64 {
        Self::loads_end();
        self.load(index)
    }

    /// Load fence: earlier loads and copies come before later ones.
    #[inline(always)]
    pub fn loads_end() {
        fence(Ordering::Acquire);
    }

    /// One word, relaxed.
    #[inline(always)]
    pub fn store(&self, index: usize, word: u64) {
        self.word(index).store(word, Ordering::Relaxed);
    }

    /// One word, stored after everything stored before it.
    #[inline(always)]
    pub fn store_release(&self, index: usize, word: u64) {
        self.word(index).store(word, Ordering::Release);
    }

    /// Orders everything before against everything after, loads included: the
    /// fence of the wake-up protocol.
    #[inline(always)]
    pub fn full_fence() {
        fence(Ordering::SeqCst);
    }

    /// Copies bytes out, ascending, no word torn. `offset` is a multiple of 8.
    #[inline(always)]
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        assert!(self.check(offset as u64, into.len()).is_ok(), "copy out of bounds");
        // SAFETY: in bounds; the mapping is a whole number of words, so the
        // last word is readable even where `into` ends inside it.
        unsafe { copy::copy_out(self.base.add(offset), into) };
    }

    /// Copies bytes in, from the last word to the first. `offset` is a
    /// multiple of 8; the rest of the last word is zeroed.
    #[inline(always)]
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        assert!(self.check(offset as u64, from.len()).is_ok(), "copy in of bounds");
        // SAFETY: in bounds; the mapping is a whole number of words.
        unsafe { copy::copy_in(from, self.base.add(offset)) };
    }

    /// Asks the processor to fetch the line at `offset`; a hint, never a fault.
    #[inline(always)]
    pub fn prefetch(&self, offset: u64) {
        if offset < self.bytes as u64 {
            prefetch_line(self.base.wrapping_add(offset as usize));
        }
    }

    /// The same for all lines of a range, if it lies in the mapping.
    #[inline(always)]
    pub fn prefetch_range(&self, offset: u64, bytes: usize) {
        let Ok(offset) = self.check(offset, bytes) else { return };
        let lines = bytes.div_ceil(CACHE_LINE_BYTES);
        let line = |at: usize| self.base.wrapping_add(offset + at * CACHE_LINE_BYTES);
        // Four at a time, otherwise the loop costs more than the prefetches.
        let mut at = 0;
        while at + 4 <= lines {
            (at..at + 4).for_each(|at| prefetch_line(line(at)));
            at += 4;
        }
        (at..lines).for_each(|at| prefetch_line(line(at)));
    }
}

/// Asks the processor to fetch the first line of a value ahead of its use.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_line(std::ptr::from_ref(value).cast());
}

/// Fetches the line of `address` into the cache, if the machine can.
#[inline(always)]
pub(crate) fn prefetch_line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint and never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch(address.cast(), std::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_without_overflow() {
        let words = Words::new(Mapping::heap(64));
        assert_eq!(words.check(8, 56), Ok(8));
        for (offset, bytes) in [(8, 57), (4, 8), (72, 0), (u64::MAX - 7, 16), (!7, 0)] {
            assert!(words.check(offset, bytes).is_err(), "{offset} {bytes}");
        }
        words.prefetch(u64::MAX);
        words.prefetch_range(8, 56);
        words.prefetch_range(u64::MAX - 7, 16);
    }
}

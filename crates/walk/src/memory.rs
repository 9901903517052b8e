//! The owner's memory, as other threads and processes that map it read it, and as the owner's own
//! thread reads it.

use remora_arena::{Journal, Owner, ReadView};

/// Memory that its owner may change at any time, and that a reader copies without asking; the
/// owner's own thread borrows nodes instead. The server hands in the mapping itself.
pub trait Memory {
    /// Its size in bytes.
    fn bytes(&self) -> usize;

    /// Copies bytes out; it tears no word, and does not order one word against another. Returns
    /// false, and copies nothing, if the range does not lie in the memory or does not begin on a
    /// word.
    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool;

    /// As [`Memory::fetch`], after all earlier fetches. If this fetch returns a word that a writer
    /// had not changed yet, no earlier fetch returned bytes that the writer stored after that
    /// change.
    fn fetch_after(&self, offset: u64, into: &mut [u8]) -> bool {
        // For memory whose every fetch is later than the one before.
        self.fetch(offset, into)
    }

    /// Prefetches bytes before their use; a hint, wherever they lie.
    fn prefetch(&self, _offset: u64, _bytes: usize) {}

    /// The bytes themselves, if they cannot change while they are borrowed: in an owner's memory,
    /// read by its own thread. `None`: the reader copies them.
    #[inline(always)]
    fn borrow(&self, _offset: u64, _bytes: usize) -> Option<&[u8]> {
        None
    }

    /// As [`Memory::fetch`], of bytes with a version in their second word (seqlock). Returns that
    /// word as it was after the whole copy. `None` if the range does not lie in the memory. Equal
    /// and even versions in the copy and after it mean that the bytes did not change meanwhile.
    fn fetch_versioned(&self, offset: u64, into: &mut [u8]) -> Option<u64> {
        // For memory whose every fetch is later than the one before.
        let mut version = [0; 8];
        let both = self.fetch(offset, into) && self.fetch(offset + 8, &mut version);
        both.then(|| u64::from_le_bytes(version))
    }
}

impl<M: Memory> Memory for &M {
    fn bytes(&self) -> usize {
        (*self).bytes()
    }

    #[inline(always)]
    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool {
        (*self).fetch(offset, into)
    }

    #[inline(always)]
    fn fetch_after(&self, offset: u64, into: &mut [u8]) -> bool {
        (*self).fetch_after(offset, into)
    }

    #[inline(always)]
    fn prefetch(&self, offset: u64, bytes: usize) {
        (*self).prefetch(offset, bytes);
    }

    #[inline(always)]
    fn borrow(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        (*self).borrow(offset, bytes)
    }

    #[inline(always)]
    fn fetch_versioned(&self, offset: u64, into: &mut [u8]) -> Option<u64> {
        (*self).fetch_versioned(offset, into)
    }
}

/// The owner's own memory: its thread reads nodes in place.
impl<J: Journal> Memory for Owner<J> {
    #[inline(always)]
    fn bytes(&self) -> usize {
        self.region_bytes()
    }

    #[inline(always)]
    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool {
        self.view().fetch(offset, into)
    }

    #[inline(always)]
    fn prefetch(&self, offset: u64, bytes: usize) {
        self.view().prefetch_range(offset, bytes);
    }

    #[inline(always)]
    fn borrow(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let start = self.view().check(offset, bytes).ok()?;
        self.try_slice(start, bytes)
    }
}

impl Memory for ReadView {
    #[inline(always)]
    fn bytes(&self) -> usize {
        self.bytes()
    }

    #[inline(always)]
    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool {
        let Ok(start) = self.check(offset, into.len()) else { return false };
        // x86-ordering: the loads of a fetch come before those of the next one.
        self.copy_out(start, into);
        true
    }

    #[inline(always)]
    fn fetch_after(&self, offset: u64, into: &mut [u8]) -> bool {
        ReadView::loads_end();
        self.fetch(offset, into)
    }

    #[inline(always)]
    fn prefetch(&self, offset: u64, bytes: usize) {
        self.prefetch_range(offset, bytes);
    }

    #[inline(always)]
    fn fetch_versioned(&self, offset: u64, into: &mut [u8]) -> Option<u64> {
        // The copy includes the first words, but in no order: the version that counts is loaded
        // before all others.
        let start = self.check(offset, into.len().max(16)).ok()?;
        let before = self.load_acquire(start / 8 + 1);
        self.copy_out(start, into);
        let after = self.load_after(start / 8 + 1);
        // An odd version never counts, whatever the copy says.
        Some(if before == after { after } else { after | 1 })
    }
}

//! Read-only views: every reader of an arena holds one.

use crate::mapping::{MapError, Mapping};
use crate::words::{OutOfBounds, Words};
use std::os::fd::BorrowedFd;

/// A view of memory that its writer may change at any time: loads only. Cheap
/// to clone.
///
/// Only the [`Owner`](crate::Owner) of a region stores to it, because all other threads get a view,
/// and a view has no store:
///
/// ```compile_fail,E0599
/// use remora_arena::{NoJournal, Owner};
/// let owner = Owner::heap(64, NoJournal);
/// owner.view().store(3, 7); // no such method
/// ```
/// ```compile_fail,E0599
/// use remora_arena::{NoJournal, Owner};
/// let owner = Owner::heap(64, NoJournal);
/// owner.view().copy_in(0, &[7; 8]); // no such method
/// ```
/// ```compile_fail,E0599
/// use remora_arena::{NoJournal, Owner};
/// use std::sync::atomic::Ordering;
/// let owner = Owner::heap(64, NoJournal);
/// owner.view().word(3).store(7, Ordering::Relaxed); // no such method
/// ```
/// The owner does:
/// ```
/// use remora_arena::{NoJournal, Owner};
/// let mut owner = Owner::heap(64, NoJournal);
/// owner.store(3, 7);
/// assert_eq!(owner.view().load(3), 7);
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct ReadView(Words);

impl Words {
    /// The same memory, for a reader of it.
    pub fn view(&self) -> ReadView {
        ReadView::new(self.clone())
    }
}

impl ReadView {
    /// The view of memory that another side writes, or that `words` write.
    pub(crate) fn new(words: Words) -> Self {
        Self(words)
    }

    /// The words that the owner stores through.
    #[inline(always)]
    pub(crate) fn words(&self) -> &Words {
        &self.0
    }

    /// Maps a descriptor that a server passed, for reading only. Its seals are
    /// checked as [`Mapping::of_peer`] does.
    ///
    /// # Errors
    /// The kernel refuses, or the file is not as announced.
    pub fn of_peer(fd: BorrowedFd<'_>, bytes: usize) -> Result<Self, MapError> {
        Ok(Self(Words::new(Mapping::of_peer_to_read(fd, bytes)?)))
    }

    /// Its address in this process, for a device that reads it by itself.
    pub fn address(&self) -> usize {
        self.0.address()
    }

    /// Size in bytes.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// As [`Words::check`].
    ///
    /// # Errors
    /// The range does not lie in the region.
    #[inline(always)]
    pub fn check(&self, offset: u64, bytes: usize) -> Result<usize, OutOfBounds> {
        self.0.check(offset, bytes)
    }

    /// As [`Words::load`].
    #[inline(always)]
    pub fn load(&self, index: usize) -> u64 {
        self.0.load(index)
    }

    /// As [`Words::load_acquire`].
    #[inline(always)]
    pub fn load_acquire(&self, index: usize) -> u64 {
        self.0.load_acquire(index)
    }

    /// As [`Words::load_after`].
    #[inline(always)]
    pub fn load_after(&self, index: usize) -> u64 {
        self.0.load_after(index)
    }

    /// Load fence: earlier loads and copies come before later ones.
    #[inline(always)]
    pub fn loads_end() {
        Words::loads_end();
    }

    /// As [`Words::copy_out`].
    #[inline(always)]
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.0.copy_out(offset, into);
    }

    /// As [`Words::prefetch`].
    #[inline(always)]
    pub fn prefetch(&self, offset: u64) {
        self.0.prefetch(offset);
    }

    /// As [`Words::prefetch_range`].
    #[inline(always)]
    pub fn prefetch_range(&self, offset: u64, bytes: usize) {
        self.0.prefetch_range(offset, bytes);
    }
}

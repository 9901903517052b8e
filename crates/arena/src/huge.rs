//! A zeroed table of plain values on large pages, if the kernel has them: with small pages, random
//! access to a large table costs a page walk for each page.

#[cfg(not(miri))]
use rustix::mm::Advice;
use rustix::mm::{MapFlags, ProtFlags};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use zerocopy::FromZeros;

/// A fixed number of values, zeroed at first.
pub struct HugeTable<T: FromZeros> {
    base: NonNull<T>,
    length: usize,
}

// SAFETY: it owns its memory like a boxed slice.
unsafe impl<T: FromZeros + Send> Send for HugeTable<T> {}
// SAFETY: as above.
unsafe impl<T: FromZeros + Sync> Sync for HugeTable<T> {}

impl<T: FromZeros> HugeTable<T> {
    /// A table of `length` zeroed values.
    ///
    /// # Panics
    /// The kernel gives no memory, as for any allocation.
    pub fn zeroed(length: usize) -> Self {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 4096) };
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                Self::bytes(length),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let base = base.expect("out of memory");
        // SAFETY: the range just mapped. The kernel refuses if it has no large pages; small pages
        // then suffice. (Miri has no pages to advise on.)
        #[cfg(not(miri))]
        let _ = unsafe { rustix::mm::madvise(base, Self::bytes(length), Advice::LinuxHugepage) };
        Self { base: NonNull::new(base.cast()).expect("mmap never returns null"), length }
    }

    fn bytes(length: usize) -> usize {
        length.checked_mul(size_of::<T>()).expect("no overflow").max(1)
    }
}

impl<T: FromZeros> Deref for HugeTable<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: mapped for as long as `self` lives; zeroed memory is a
        // valid `T`; shared as the borrow of `self` is.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }
}

impl<T: FromZeros> DerefMut for HugeTable<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and unique as the borrow of `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

impl<T: FromZeros> Drop for HugeTable<T> {
    fn drop(&mut self) {
        const { assert!(!std::mem::needs_drop::<T>(), "plain values only") };
        // SAFETY: mapped by `zeroed` with this size; nothing refers to it.
        unsafe {
            let _ = rustix::mm::munmap(self.base.as_ptr().cast(), Self::bytes(self.length));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zeroed_and_keeps_what_is_stored() {
        let mut table: HugeTable<u64> = HugeTable::zeroed(100_000);
        assert!(table.iter().all(|&value| value == 0));
        for (at, value) in table.iter_mut().enumerate() {
            *value = at as u64;
        }
        assert_eq!(table[99_999], 99_999);
        assert_eq!(table.len(), 100_000);
    }
}

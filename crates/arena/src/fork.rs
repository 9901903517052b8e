//! Notices a fork: a child must not use its parent's session.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: usize = 4096;

/// A page that the kernel wipes in a forked child (MADV_WIPEONFORK). Looking
/// costs one load, not a system call.
pub struct ForkGuard {
    page: NonNull<AtomicU64>,
}

// SAFETY: a private page at a fixed address, accessed atomically.
unsafe impl Send for ForkGuard {}
// SAFETY: as above.
unsafe impl Sync for ForkGuard {}

impl ForkGuard {
    /// A guard of the calling process.
    pub fn new() -> std::io::Result<Self> {
        // SAFETY: a new private page at an address of the kernel's choice.
        let page = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                PAGE_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let guard = Self { page: NonNull::new(page.cast()).expect("mmap never returns null") };
        // SAFETY: the page was mapped just above, with this size.
        unsafe { rustix::mm::madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }?;
        guard.word().store(1, Ordering::Relaxed);
        Ok(guard)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: mapped, aligned, and alive as long as `self`.
        unsafe { self.page.as_ref() }
    }

    /// Whether this is still the process that made the guard.
    #[inline(always)]
    pub fn same_process(&self) -> bool {
        self.word().load(Ordering::Relaxed) == 1
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size; nothing refers to it.
        unsafe {
            let _ = rustix::mm::munmap(self.page.as_ptr().cast(), PAGE_BYTES);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    #[test]
    fn a_forked_child_is_noticed() {
        let guard = ForkGuard::new().unwrap();
        assert!(guard.same_process());
        // SAFETY: the child only loads one word and exits, which is allowed
        // after a fork of a process with several threads.
        let status = match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let code = if guard.same_process() { 1 } else { 0 };
                // SAFETY: ends the child at once, without running destructors.
                unsafe { nix::libc::_exit(code) }
            }
            ForkResult::Parent { child } => waitpid(child, None).unwrap(),
        };
        assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
        assert!(guard.same_process(), "the parent goes on");
    }
}

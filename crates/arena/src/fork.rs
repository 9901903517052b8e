//! Notices a fork: a child must not use its parent's session.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: usize = 4096;

/// Tells whether this process is still the one that made the guard. The check costs two loads and
/// no system call: the kernel wipes a page in a forked child (MADV_WIPEONFORK). All guards of a
/// process share the page.
pub struct ForkGuard {
    /// The process's number; 0 in a child that has made no guard yet.
    process: &'static AtomicU64,
    /// The process's number when the guard was made.
    made_in: u64,
}

impl ForkGuard {
    /// A guard of the calling process.
    ///
    /// # Errors
    /// The kernel gives no such page.
    pub fn new() -> std::io::Result<Self> {
        static PAGE: OnceLock<&AtomicU64> = OnceLock::new();
        /// Numbers of processes. A child continues the numbering of its parent.
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let process = match PAGE.get() {
            Some(page) => *page,
            None => {
                let page = wiped_page()?;
                PAGE.get_or_init(|| page)
            }
        };
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let found = process.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
        Ok(Self { process, made_in: found.err().unwrap_or(number) })
    }

    /// Whether this is still the process that made the guard.
    #[inline(always)]
    pub fn same_process(&self) -> bool {
        self.process.load(Ordering::Relaxed) == self.made_in
    }
}

/// A page of zeros, which are zeros again in a forked child. It stays for the
/// process's life.
fn wiped_page() -> std::io::Result<&'static AtomicU64> {
    // SAFETY: a new private page at an address of the kernel's choice.
    let page = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            PAGE_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    // SAFETY: the page was mapped just above, with this size.
    unsafe { rustix::mm::madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }?;
    // SAFETY: mapped, aligned, never unmapped, and accessed atomically only.
    Ok(unsafe { &*page.cast::<AtomicU64>() })
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
        // SAFETY: the child only uses words of memory and exits, which is allowed
        // after a fork of a process with several threads.
        let status = match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let noticed = !guard.same_process();
                let own = ForkGuard::new();
                let has_own = own.is_ok_and(|own| own.same_process());
                let code = if noticed && has_own && !guard.same_process() { 0 } else { 1 };
                // SAFETY: ends the child at once, without running destructors.
                unsafe { nix::libc::_exit(code) }
            }
            ForkResult::Parent { child } => waitpid(child, None).unwrap(),
        };
        assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
        assert!(guard.same_process(), "the parent goes on");
        assert!(ForkGuard::new().unwrap().same_process());
    }
}

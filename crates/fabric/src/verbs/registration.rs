//! Memory registered with a device.

use super::errors::checked;
use super::library::may_release;
use super::memlock::{self, NotRegistered};
use super::objects::Domain;
use remora_arena::{ReadView, Words};
use remora_verbs_sys::*;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// How memory is registered.
pub mod access {
    use remora_verbs_sys::*;

    /// The peer may READ it: an arena.
    pub const READ: u32 = IBV_ACCESS_REMOTE_READ;
    /// Any peer of the domain may WRITE it.
    pub const WRITE: u32 = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    /// The holder of a window may WRITE it.
    pub const BY_WINDOW: u32 = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
}

/// Memory that the device may reach.
pub struct Registration {
    domain: Arc<Domain>,
    raw: NonNull<ibv_mr>,
    /// Keeps the memory mapped.
    memory: ManuallyDrop<Memory>,
}

enum Memory {
    Shared(#[allow(dead_code, reason = "kept mapped")] ReadView),
    /// Of this process: zeroed words that come from a box.
    Own(*mut [u64]),
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Self::Own(words) = *self {
            // SAFETY: it came from a box, and is given back once; the device
            // no longer reaches it.
            drop(unsafe { Box::from_raw(words) });
        }
    }
}

// SAFETY: the registration is immutable; the memory is shared or its own.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Lets the device reach a mailbox as `access` (bits of `ibv_access_flags`)
    /// says.
    pub fn of(domain: &Arc<Domain>, words: &Words, access: u32) -> Result<Self, NotRegistered> {
        let memory = Memory::Shared(words.view());
        Self::new(domain, words.address(), words.bytes(), access, memory)
    }

    /// Lets peers READ a part of a region.
    ///
    /// # Panics
    /// It does not lie in the region.
    pub fn readable(
        domain: &Arc<Domain>,
        view: &ReadView,
        part: Range<usize>,
    ) -> Result<Self, NotRegistered> {
        assert!(part.start <= part.end && part.end <= view.bytes(), "beyond the region");
        let memory = Memory::Shared(view.clone());
        Self::new(domain, view.address() + part.start, part.len(), access::READ, memory)
    }

    /// Zeroed memory of this process, which the device alone writes.
    pub fn own(domain: &Arc<Domain>, bytes: usize) -> Result<Self, NotRegistered> {
        let words = Box::into_raw(vec![0u64; bytes.div_ceil(8).max(1)].into_boxed_slice());
        let (address, bytes) = (words.cast::<u8>() as usize, words.len() * 8);
        Self::new(domain, address, bytes, IBV_ACCESS_LOCAL_WRITE, Memory::Own(words))
    }

    fn new(
        domain: &Arc<Domain>,
        address: usize,
        bytes: usize,
        access: u32,
        memory: Memory,
    ) -> Result<Self, NotRegistered> {
        let library = domain.context.library;
        let span = memlock::span(address, bytes);
        memlock::check(span)?;
        let access = access as i32;
        // SAFETY: the range is mapped, and stays so while `memory` lives; what
        // the device writes there is read by atomic accesses, or after its
        // completion.
        let raw =
            unsafe { library.ibv_reg_mr(domain.raw.as_ptr(), address as *mut _, bytes, access) };
        let raw = NonNull::new(raw).ok_or_else(|| NotRegistered::by_kernel(span))?;
        Ok(Self { domain: Arc::clone(domain), raw, memory: ManuallyDrop::new(memory) })
    }

    /// Stores into memory of this process that the device sends from.
    ///
    /// # Panics
    /// It is not such memory, or the range does not lie in it.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        let to = self.range(at, bytes.len());
        // SAFETY: in bounds; no reference to the memory for sending exists.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Bytes of this process's own memory.
    ///
    /// # Safety
    /// Nothing is READ into the range while the reference lives.
    ///
    /// # Panics
    /// It is not such memory, or the range does not lie in it.
    pub unsafe fn landed(&self, at: usize, bytes: usize) -> &[u8] {
        // SAFETY: in bounds and initialised; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.range(at, bytes), bytes) }
    }

    fn range(&self, at: usize, bytes: usize) -> *mut u8 {
        let Memory::Own(words) = *self.memory else { panic!("it is a region") };
        let end = at.checked_add(bytes).expect("no range is that long");
        assert!(end <= words.len() * 8, "beyond the memory");
        // SAFETY: in bounds.
        unsafe { words.cast::<u8>().add(at) }
    }

    /// Its first byte's address.
    pub fn address(&self) -> u64 {
        // SAFETY: a live registration.
        unsafe { self.raw.as_ref() }.addr as u64
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        // SAFETY: as above.
        unsafe { self.raw.as_ref() }.length
    }

    /// The key for operations of this end.
    pub fn lkey(&self) -> u32 {
        // SAFETY: a live registration.
        unsafe { self.raw.as_ref() }.lkey
    }

    /// The key for operations of peers.
    pub fn rkey(&self) -> u32 {
        // SAFETY: a live registration.
        unsafe { self.raw.as_ref() }.rkey
    }

    pub(super) fn raw(&self) -> *mut ibv_mr {
        self.raw.as_ptr()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !may_release() {
            return;
        }
        // SAFETY: made once.
        let code = unsafe { self.domain.context.library.ibv_dereg_mr(self.raw.as_ptr()) };
        // It fails if a window is still bound to it: then a device may still reach the memory, and
        // it must not be given to another owner.
        match checked("give registered memory back", code) {
            // SAFETY: dropped here only.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.memory) },
            Err(error) => tracing::warn!(%error, "registered memory stays in use"),
        }
    }
}

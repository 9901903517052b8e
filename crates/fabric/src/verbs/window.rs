//! Memory windows: the memory that only one client may write.

use super::errors::VerbsError;
use super::library::may_release;
use super::objects::Domain;
use remora_verbs_sys::*;
use rustix::rand::{GetRandomFlags, getrandom};
use std::ptr::NonNull;
use std::sync::Arc;

/// A memory window of type 2B: a part of a registration that only the peer of one queue pair may
/// reach, and no other peer in the same domain.
pub struct Window {
    _domain: Arc<Domain>,
    pub(super) raw: NonNull<ibv_mw>,
    /// The key with which it is bound.
    pub rkey: u32,
}

// SAFETY: libibverbs is safe for threads.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// An unbound one.
    pub fn new(domain: &Arc<Domain>) -> Result<Self, VerbsError> {
        // The binder chooses the key's lower byte, which must differ from the last one. It is
        // random, so that a peer cannot count up to it: on Soft-RoCE any peer that names the key
        // invalidates the window.
        let mut random = [0u8; 1];
        let drawn = getrandom(&mut random, GetRandomFlags::empty());
        drawn.map_err(|error| VerbsError::Failed { step: "draw", why: error.into() })?;
        let raw_domain = domain.raw.as_ptr();
        // SAFETY: a live domain; the function is the provider's, if it has it.
        let raw = unsafe {
            let ops = &(*(*raw_domain).context).ops;
            ops.alloc_mw.and_then(|alloc| NonNull::new(alloc(raw_domain, IBV_MW_TYPE_2)))
        };
        let raw = raw.ok_or(VerbsError::Failed {
            step: "make a memory window",
            why: std::io::Error::last_os_error(),
        })?;
        // SAFETY: just made.
        let rkey = unsafe { raw.as_ref() }.rkey;
        let step = random[0] as u32 % 255 + 1;
        let rkey = (rkey & !0xff) | (rkey.wrapping_add(step) & 0xff);
        Ok(Self { _domain: Arc::clone(domain), raw, rkey })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if !may_release() {
            return;
        }
        // SAFETY: made once; the provider that made it frees it.
        unsafe {
            let dealloc = (*(*self.raw.as_ptr()).context).ops.dealloc_mw;
            dealloc.expect("a provider that makes windows frees them")(self.raw.as_ptr());
        }
    }
}

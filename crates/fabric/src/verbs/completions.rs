//! The completions of a device.

use super::errors::{VerbsError, failed};
use super::library::may_release;
use super::objects::Context;
use remora_verbs_sys::*;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// A completion queue with its channel.
pub struct Completions {
    context: Arc<Context>,
    raw: NonNull<ibv_cq>,
    channel: NonNull<ibv_comp_channel>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Completions {}
// SAFETY: as for `Context`.
unsafe impl Sync for Completions {}

impl Completions {
    /// A queue for so many completions.
    pub fn new(context: Arc<Context>, entries: u32) -> Result<Arc<Self>, VerbsError> {
        let library = context.library;
        // SAFETY: an open device.
        let channel = unsafe { library.ibv_create_comp_channel(context.raw.as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(|| failed("make a completion channel"))?;
        // SAFETY: an open device and its channel.
        let raw = unsafe {
            library.ibv_create_cq(
                context.raw.as_ptr(),
                entries as i32,
                ptr::null_mut(),
                channel.as_ptr(),
                0,
            )
        };
        let Some(raw) = NonNull::new(raw) else {
            let error = failed("make a completion queue");
            // SAFETY: made above, unused.
            unsafe { library.ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(error);
        };
        let completions = Self { context, raw, channel };
        let nonblocking = rustix::fs::fcntl_getfl(completions.as_fd())
            .and_then(|flags| {
                rustix::fs::fcntl_setfl(completions.as_fd(), flags | rustix::fs::OFlags::NONBLOCK)
            })
            .map_err(|error| VerbsError::Failed {
                step: "set up a completion channel",
                why: error.into(),
            });
        nonblocking?;
        Ok(Arc::new(completions))
    }

    /// Takes completions; gives how many.
    pub fn poll(&self, into: &mut [ibv_wc]) -> usize {
        // SAFETY: a live queue; the function is the provider's, set when the
        // device was opened; `into` has room.
        let polled = unsafe {
            let ops = &(*self.context.raw.as_ptr()).ops;
            let poll = ops.poll_cq.expect("every provider polls");
            poll(self.raw.as_ptr(), into.len() as i32, into.as_mut_ptr())
        };
        polled.max(0) as usize
    }

    /// The next completion, or the next solicited or failed one, makes the
    /// channel readable. What came before does not: poll after this (M24).
    pub fn arm(&self, solicited_only: bool) {
        // SAFETY: as in `poll`.
        unsafe {
            let ops = &(*self.context.raw.as_ptr()).ops;
            let notify = ops.req_notify_cq.expect("every provider notifies");
            notify(self.raw.as_ptr(), solicited_only as i32);
        }
    }

    /// Takes the events that made the channel readable.
    pub fn take_events(&self) {
        let library = self.context.library;
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // Bounded: an event for each time it was armed.
        // SAFETY: a live channel, which is not blocking; it serves this queue
        // only.
        unsafe {
            while library.ibv_get_cq_event(self.channel.as_ptr(), &mut queue, &mut context) == 0 {
                library.ibv_ack_cq_events(queue, 1);
            }
        }
    }

    pub(super) fn raw(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }
}

impl AsFd for Completions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's descriptor is open while the channel lives.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd as RawFd) }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if !may_release() {
            return;
        }
        // SAFETY: made once; the queue pairs that use them are gone.
        unsafe {
            self.context.library.ibv_destroy_cq(self.raw.as_ptr());
            self.context.library.ibv_destroy_comp_channel(self.channel.as_ptr());
        }
    }
}

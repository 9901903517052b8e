//! An open device and its protection domains.
//!
//! Invariants of all objects of libibverbs here: each is released when nothing uses it any more, it
//! lives at least as long as those made from it, and memory stays mapped for as long as it is
//! registered. A forked child releases nothing: the objects belong to its parent.

use super::errors::{VerbsError, checked, failed};
use super::events::Events;
use super::library::{last_error, library, may_release};
use super::places::is_known;
use crate::LinkError;
use remora_verbs_sys::*;
use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// An open device.
pub struct Context {
    pub(super) library: &'static Ibverbs,
    pub(super) raw: NonNull<ibv_context>,
    /// Its name.
    pub name: String,
    /// The device's capabilities.
    pub limits: ibv_device_attr,
    events: Events,
}

// SAFETY: libibverbs is safe for threads (its manual page says so of all verbs).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The local id of a port; 0 on Ethernet.
    pub fn lid(&self, port: u8) -> Result<u16, VerbsError> {
        Ok(self.port(port)?.lid)
    }

    /// Opens the device of this name.
    pub fn open(name: &str) -> Result<Arc<Self>, VerbsError> {
        let library = library()?;
        let events = Events::of(name);
        let mut count = 0;
        // SAFETY: the list is read below and freed once.
        let list = unsafe { library.ibv_get_device_list(&mut count) };
        if list.is_null() {
            return Err(failed("list the RDMA devices"));
        }
        // The library passes over devices whose file it does not see.
        let mut opened = Err(if is_known(name) {
            let why = io::Error::other("libibverbs does not list it");
            VerbsError::NotOpened { device: name.to_owned(), why }
        } else {
            VerbsError::NoDevice(name.to_owned())
        });
        for at in 0..count as usize {
            // SAFETY: the list has `count` entries; names are C strings.
            unsafe {
                let device = *list.add(at);
                if CStr::from_ptr(library.ibv_get_device_name(device)).to_bytes() == name.as_bytes()
                {
                    let raw = NonNull::new(library.ibv_open_device(device));
                    opened = raw.ok_or_else(|| VerbsError::NotOpened {
                        device: name.to_owned(),
                        why: last_error(),
                    });
                }
            }
        }
        // SAFETY: the list came from the call above; an open device does not
        // need it.
        unsafe { library.ibv_free_device_list(list) };
        let raw = opened?;
        // SAFETY: plain data, valid as zeros.
        let limits = unsafe { std::mem::zeroed() };
        let mut context = Self { library, raw, name: name.to_owned(), limits, events };
        // SAFETY: an open device, and room for the answer.
        let code = unsafe { library.ibv_query_device(raw.as_ptr(), &mut context.limits) };
        checked("ask what the RDMA device can do", code)?;
        context.prepare_events()?;
        Ok(Arc::new(context))
    }

    /// The largest packet of a port: a number of `ibv_mtu`.
    pub fn active_mtu(&self, port: u8) -> Result<u32, VerbsError> {
        Ok(self.port(port)?.active_mtu)
    }

    /// How many partition keys the table of a port has.
    pub fn pkeys(&self, port: u8) -> Result<u16, VerbsError> {
        Ok(self.port(port)?.pkey_tbl_len)
    }

    fn port(&self, port: u8) -> Result<ibv_port_attr, VerbsError> {
        // SAFETY: plain data, valid as zeros.
        let mut attributes: ibv_port_attr = unsafe { std::mem::zeroed() };
        // The exported function fills the part that every version has.
        // SAFETY: an open device, and more room than the function needs.
        let code = unsafe {
            self.library.ibv_query_port(
                self.raw.as_ptr(),
                port,
                ptr::from_mut(&mut attributes).cast(),
            )
        };
        checked("ask for the RDMA port", code)?;
        Ok(attributes)
    }
}

/// The attributes that the device reports.
impl Context {
    /// Makes the descriptor of events one that does not block.
    fn prepare_events(&self) -> Result<(), VerbsError> {
        let prepared = rustix::fs::fcntl_getfl(self.events_fd()).and_then(|flags| {
            rustix::fs::fcntl_setfl(self.events_fd(), flags | rustix::fs::OFlags::NONBLOCK)
        });
        prepared.map_err(|error| VerbsError::Failed {
            step: "watch the RDMA device",
            why: error.into(),
        })
    }

    /// What becomes readable when the device tells something.
    pub(super) fn events_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open while the device is.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().async_fd) }
    }

    /// Whether the device has gone: nothing can be done with it any more.
    pub fn is_gone(&self) -> bool {
        self.events.is_gone()
    }

    /// Why the queue pair with this number cannot be used, if the device has
    /// told so.
    #[inline]
    pub(super) fn objection(&self, queue_pair: u32) -> Option<LinkError> {
        self.events.objection(queue_pair)
    }

    /// There is no queue pair with this number any more.
    pub(super) fn forget(&self, queue_pair: u32) {
        self.events.forget(queue_pair);
    }

    /// Takes the events of the device since the last check.
    pub(super) fn look(&self) {
        // SAFETY: an open device, whose descriptor was prepared when it was opened.
        unsafe { self.events.take(self.library, self.raw, &self.name) };
    }

    /// The same, if the last look is a while ago. Costs a few nanoseconds if not.
    pub(super) fn look_now_and_then(&self) {
        if self.events.is_due() {
            self.look();
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !may_release() {
            return;
        }
        // SAFETY: opened once, and everything made from it is gone.
        unsafe { self.library.ibv_close_device(self.raw.as_ptr()) };
    }
}

/// A protection domain: queue pairs reach the memory of their own only.
pub struct Domain {
    /// The device.
    pub context: Arc<Context>,
    pub(super) raw: NonNull<ibv_pd>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Domain {}
// SAFETY: as for `Context`.
unsafe impl Sync for Domain {}

impl Domain {
    /// A fresh one.
    pub fn new(context: Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: an open device.
        let raw = unsafe { context.library.ibv_alloc_pd(context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| failed("make a protection domain"))?;
        Ok(Arc::new(Self { context, raw }))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if !may_release() {
            return;
        }
        // SAFETY: made once, and everything made from it is gone.
        unsafe { self.context.library.ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

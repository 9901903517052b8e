//! The objects of libibverbs, each released when nothing uses it any more.
//!
//! What they keep true: an object lives at least as long as those made from
//! it, and memory stays mapped for as long as it is registered. A forked child
//! releases nothing: the objects are its parent's.

use super::library::{NoLibrary, last_error, library, may_release};
use super::memlock::{self, NotRegistered};
use super::places::is_known;
use crate::LinkError;
use remora_arena::Words;
use remora_verbs_sys::*;
use std::ffi::CStr;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Why a verbs object cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// No library.
    #[error(transparent)]
    NoLibrary(#[from] NoLibrary),
    /// No such device, any more.
    #[error("there is no RDMA device {0}: `remora doctor` lists those there are")]
    NoDevice(String),
    /// Nothing to send from.
    #[error("no RDMA device has an active port with an address: `remora doctor` says why")]
    NoPlace,
    /// The device cannot do what is needed.
    #[error("the RDMA device {device} has no {what}")]
    Lacks {
        /// Its name.
        device: String,
        /// What it lacks.
        what: &'static str,
    },
    /// The kernel knows the device, but this process may not use it.
    #[error(
        "the RDMA device {device} cannot be opened ({why}): this process needs /dev/infiniband (in a container: docker run --device=/dev/infiniband), and ibverbs-providers must be installed"
    )]
    NotOpened {
        /// Its name.
        device: String,
        /// What the library said.
        why: io::Error,
    },
    /// Memory cannot be registered.
    #[error(transparent)]
    Register(#[from] NotRegistered),
    /// The queue pairs are connected, and carry nothing.
    #[error("the RDMA devices do not reach each other: {0}")]
    NoReach(LinkError),
    /// Anything else.
    #[error("cannot {step}: {why}")]
    Failed {
        /// What was being done.
        step: &'static str,
        /// What the library said.
        why: io::Error,
    },
}

fn failed(step: &'static str) -> VerbsError {
    VerbsError::Failed { step, why: last_error() }
}

/// What a call returns that gives an error number.
pub(super) fn checked(step: &'static str, code: i32) -> Result<(), VerbsError> {
    match code {
        0 => Ok(()),
        // Some verbs give -1 and set errno, others the number itself.
        ..0 => Err(failed(step)),
        code => Err(VerbsError::Failed { step, why: io::Error::from_raw_os_error(code) }),
    }
}

/// An open device.
pub struct Context {
    library: &'static Ibverbs,
    raw: NonNull<ibv_context>,
    /// Its name.
    pub name: String,
    /// What the device can do.
    pub limits: ibv_device_attr,
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
        let mut context = Self { library, raw, name: name.to_owned(), limits };
        // SAFETY: an open device, and room for the answer.
        let code = unsafe { library.ibv_query_device(raw.as_ptr(), &mut context.limits) };
        checked("ask what the RDMA device can do", code)?;
        Ok(Arc::new(context))
    }

    /// The largest packet of a port: a number of `ibv_mtu`.
    pub fn active_mtu(&self, port: u8) -> Result<u32, VerbsError> {
        Ok(self.port(port)?.active_mtu)
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
    raw: NonNull<ibv_pd>,
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

/// Memory that the device may reach.
pub struct Registration {
    domain: Arc<Domain>,
    raw: NonNull<ibv_mr>,
    /// Keeps the memory mapped.
    memory: ManuallyDrop<Memory>,
}

enum Memory {
    Shared(#[allow(dead_code, reason = "kept mapped")] Words),
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
    /// Lets the device reach a region as `access` (bits of `ibv_access_flags`)
    /// says.
    pub fn of(domain: &Arc<Domain>, words: &Words, access: u32) -> Result<Self, NotRegistered> {
        // A device may write what is mapped for reading only no more than we.
        let memory = Memory::Shared(words.clone());
        Self::new(domain, words.address(), words.bytes(), access, memory)
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
        // SAFETY: in bounds; nobody holds a reference to what is sent from.
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
        // It fails if a window is still bound to it: then a device may go on
        // to reach the memory, and nobody else may get it.
        match checked("give registered memory back", code) {
            // SAFETY: dropped here only.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.memory) },
            Err(error) => tracing::warn!(%error, "registered memory stays in use"),
        }
    }
}

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

/// The library's call, for the queue pair beside.
pub(super) fn library_of(domain: &Domain) -> &'static Ibverbs {
    domain.context.library
}

pub(super) fn raw_domain(domain: &Domain) -> *mut ibv_pd {
    domain.raw.as_ptr()
}

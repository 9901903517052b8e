//! A device's events beside completions: it fails or goes away, a port changes, a queue pair is
//! broken.
//!
//! The thread that checks takes all events, and keeps them for every other thread. A device without
//! a driver that can take it away from its users (Soft-RoCE) reports nothing before it goes: the
//! kernel removes its user-space entry from sysfs, and waits until the users release the device. So
//! the thread checks that entry too.

use super::places::is_listed;
use crate::LinkError;
use crate::locks::lock;
use crate::sync::Mutex;
use remora_verbs_sys::*;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often a device is looked at that says nothing.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// The events of a device.
#[derive(Default)]
pub(super) struct Events {
    is_gone: AtomicBool,
    /// The device has gone, or there are events of queue pairs. Both are rare, so that other
    /// threads look at one word only.
    is_alarmed: AtomicBool,
    /// Second in which it was last looked at.
    looked_s: AtomicU64,
    /// It was in sysfs when it was opened.
    was_listed: bool,
    /// Numbers of queue pairs that are broken, and why.
    broken: Mutex<Vec<(u32, LinkError)>>,
}

impl Events {
    /// Nothing told yet; to be made before the device is opened.
    pub fn of(device: &str) -> Self {
        Self { was_listed: is_listed(device), looked_s: now_s().into(), ..Self::default() }
    }

    /// Whether the device has gone.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    fn gone(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.is_alarmed.store(true, Ordering::Release);
    }

    /// Why the queue pair with this number cannot be used, if the device has
    /// told so.
    #[inline]
    pub fn objection(&self, queue_pair: u32) -> Option<LinkError> {
        if !self.is_alarmed.load(Ordering::Acquire) {
            return None;
        }
        if self.is_gone() {
            return Some(LinkError::DeviceGone);
        }
        let broken = lock(&self.broken);
        broken.iter().find(|(number, _)| *number == queue_pair).map(|(_, reason)| *reason)
    }

    /// There is no queue pair with this number any more.
    pub fn forget(&self, queue_pair: u32) {
        lock(&self.broken).retain(|(number, _)| *number != queue_pair);
    }

    /// Whether the last look is a while ago. Costs a few nanoseconds.
    #[inline]
    pub fn is_due(&self) -> bool {
        now_s() > self.looked_s.load(Ordering::Relaxed)
    }

    /// Takes the events of the device of this name since the last check.
    ///
    /// # Safety
    /// `raw` is an open device, whose descriptor of events does not block.
    pub unsafe fn take(&self, library: &Ibverbs, raw: NonNull<ibv_context>, device: &str) {
        self.looked_s.store(now_s(), Ordering::Relaxed);
        // SAFETY: plain data, valid as zeros.
        let mut event: ibv_async_event = unsafe { std::mem::zeroed() };
        // Bounded: a device tells no more than happens.
        // SAFETY: the caller's promise.
        while unsafe { library.ibv_get_async_event(raw.as_ptr(), &mut event) } == 0 {
            // SAFETY: the union is as the event's type says, and the object that it names exists
            // until the event is acknowledged.
            let told = unsafe { told_by(&event) };
            // Before it is acknowledged: then the queue pair cannot have gone,
            // and another have got its number.
            match told {
                Told::Gone => self.gone(),
                Told::Broken(number, reason) => {
                    lock(&self.broken).push((number, reason));
                    self.is_alarmed.store(true, Ordering::Release);
                }
                Told::Other => {}
            }
            tracing::debug!(device, event = event.event_type, "the RDMA device tells");
            // SAFETY: taken above, acknowledged once.
            unsafe { library.ibv_ack_async_event(&mut event) };
        }
        let errno = rustix::io::Errno::from_io_error(&std::io::Error::last_os_error());
        let is_silent = matches!(errno, Some(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR));
        let is_unlisted = self.was_listed && !is_listed(device);
        if !is_silent || is_unlisted {
            self.gone();
        }
    }
}

/// An event's meaning for this end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Gone,
    Broken(u32, LinkError),
    /// Ports that go and come (a queue pair finds out by itself whether its peer answers), or an
    /// event without meaning here.
    Other,
}

/// # Safety
///
/// The union is as the event's type says, and the object that it names exists.
unsafe fn told_by(event: &ibv_async_event) -> Told {
    // SAFETY: the caller's promise.
    let number = || unsafe { (*event.element.qp).qp_num };
    match event.event_type {
        IBV_EVENT_DEVICE_FATAL => Told::Gone,
        IBV_EVENT_QP_FATAL => Told::Broken(number(), LinkError::Device(IBV_WC_FATAL_ERR)),
        // This end's device has refused an operation of the peer.
        IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => Told::Broken(
            number(),
            LinkError::Violation("this machine's RDMA device refused its operation"),
        ),
        _ => Told::Other,
    }
}

/// Seconds of a clock that costs no system call.
fn now_s() -> u64 {
    rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse).tv_sec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_fails_has_gone_and_a_queue_pair_that_breaks_is_named() {
        // SAFETY: plain data, valid as zeros.
        let (mut event, mut pair): (ibv_async_event, ibv_qp) = unsafe { std::mem::zeroed() };
        pair.qp_num = 17;
        event.element.qp = &mut pair;
        let mut told = |event_type| {
            event.event_type = event_type;
            // SAFETY: the queue pair is there.
            unsafe { told_by(&event) }
        };
        assert_eq!(told(IBV_EVENT_DEVICE_FATAL), Told::Gone);
        let fatal = LinkError::Device(IBV_WC_FATAL_ERR);
        assert_eq!(told(IBV_EVENT_QP_FATAL), Told::Broken(17, fatal));
        for event in [IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR] {
            assert!(matches!(told(event), Told::Broken(17, LinkError::Violation(_))));
        }
        for event in [IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE] {
            assert_eq!(told(event), Told::Other);
        }
    }
}

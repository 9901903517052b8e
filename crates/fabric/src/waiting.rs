//! The shared end of each link: other threads deliver its completions there, and its thread sleeps
//! there.
//!
//! Leader and followers: one waiting thread holds the pump and sleeps on the socket, the others
//! sleep on their own condition variables. A thread that releases the pump checks for followers
//! afterwards, and a follower enters the list before it tries the pump for the last time:
//!
//! ```text
//!   follower                        holder of the pump
//!   enter the list                  unlock the pump
//!   full fence                      full fence
//!   try the pump, sleep if taken    look into the list, wake one
//! ```
//! The later of the two fences makes the other side's step visible, as with the bells of shared
//! memory: no wake-up is lost.

use crate::LinkError;
use crate::locks::{LockWaits, lock};
use crate::sync::{AtomicUsize, Condvar, Instant, Mutex, Ordering, fence};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

/// A connection whose links wait for each other.
pub(crate) trait Turns {
    /// Takes the pump, if no other thread has it, and receives; if nothing `came` for the caller it
    /// sleeps once, for all. False if another thread has the pump.
    fn lead(&self, timeout: Option<Duration>, came: impl FnMut() -> bool) -> bool;

    /// The waiting links.
    fn waiters(&self) -> &Waiters;
}

/// Waits until `look` finds something for the link with this handle, and leads if no other thread
/// does. `None` if the time was up.
pub(crate) fn wait<T>(
    turns: &impl Turns,
    handle: &Arc<Handle>,
    timeout: Option<Duration>,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    // Ends with whatever comes, or with the time.
    let waited = loop {
        let found = look();
        if found.is_some() {
            break found;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            break None;
        }
        let mut first = None;
        let led = turns.lead(left, || {
            first = look();
            first.is_some()
        });
        if first.is_some() {
            break first;
        }
        if led {
            continue;
        }
        // Another thread leads: sleep until something concerns this link. It enters first, and
        // checks afterwards: see the module's documentation.
        handle.arm();
        turns.waiters().enter(handle);
        let found = look();
        let led = found.is_none() && turns.lead(Some(Duration::ZERO), || false);
        if found.is_none() && !led {
            handle.sleep(left);
        }
        turns.waiters().leave(handle);
        if found.is_some() {
            break found;
        }
    };
    // If another thread offered the pump to this link, the next one may have it.
    turns.waiters().hand_over();
    waited
}

/// Deliveries for one link.
#[derive(Default)]
pub(crate) struct Delivered {
    /// Bytes of its READs, in the order of the operations.
    pub bytes: Vec<u8>,
    /// Operations executed, in order, since it was last looked at.
    pub executed: u64,
    /// All further operations fail.
    pub failure: Option<LinkError>,
    /// Something has changed since the link last looked.
    woken: bool,
    /// The link's thread sleeps.
    is_asleep: bool,
}

/// The shared end of one link.
#[derive(Default)]
pub(crate) struct Handle {
    delivered: Mutex<Delivered>,
    changed: Condvar,
    waits: LockWaits,
}

impl Handle {
    /// A link's; times that a thread waits for another here are counted.
    pub fn new(waits: LockWaits) -> Self {
        Self { waits, ..Self::default() }
    }

    /// Delivers the bytes of the oldest unfinished READ, and the number of completed operations. It
    /// delivers nothing once the link has failed.
    pub fn deliver(&self, bytes: &[u8], executed: u64) {
        let mut delivered = self.waits.lock(&self.delivered);
        if delivered.failure.is_some() {
            return;
        }
        delivered.bytes.extend_from_slice(bytes);
        delivered.executed += executed;
        if executed > 0 {
            self.notify(&mut delivered);
        }
    }

    /// Fails the requests that are not executed yet.
    pub fn fail(&self, reason: LinkError) {
        let mut delivered = self.waits.lock(&self.delivered);
        delivered.failure.get_or_insert(reason);
        self.notify(&mut delivered);
    }

    /// Wakes the link's thread, which then checks its state.
    pub fn wake(&self) {
        self.notify(&mut self.waits.lock(&self.delivered));
    }

    /// Notifying is a system call even without a sleeper: so it first checks for one, under the
    /// lock that the sleeper releases only by sleeping.
    fn notify(&self, delivered: &mut Delivered) {
        delivered.woken = true;
        if delivered.is_asleep {
            self.changed.notify_one();
        }
    }

    /// Takes the deliveries: swaps the bytes with `into`, which is empty.
    pub fn take(&self, into: &mut Vec<u8>) -> (u64, Option<LinkError>) {
        let mut delivered = self.waits.lock(&self.delivered);
        std::mem::swap(&mut delivered.bytes, into);
        (std::mem::take(&mut delivered.executed), delivered.failure)
    }

    /// Whether something was delivered that [`Self::take`] has not given.
    pub fn has_delivered(&self) -> bool {
        let delivered = self.waits.lock(&self.delivered);
        delivered.executed > 0 || delivered.failure.is_some()
    }

    /// From here on every change wakes the next [`Self::sleep`].
    pub fn arm(&self) {
        self.waits.lock(&self.delivered).woken = false;
    }

    /// Sleeps until something has changed since [`Self::arm`].
    pub fn sleep(&self, timeout: Option<Duration>) {
        let mut delivered = self.waits.lock(&self.delivered);
        delivered.is_asleep = true;
        let asleep = |delivered: &mut Delivered| !delivered.woken;
        let mut delivered = match timeout {
            None => {
                let waited = self.changed.wait_while(delivered, asleep);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
            Some(timeout) => {
                let waited = self.changed.wait_timeout_while(delivered, timeout, asleep);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        delivered.is_asleep = false;
    }
}

/// The handles of all links on one connection.
#[derive(Default)]
pub(crate) struct Handles(Mutex<Vec<Weak<Handle>>>);

impl Handles {
    /// Adds a link. It calls `failure` after the link has entered: so a link on a failed connection
    /// learns it at once.
    pub fn enter(&self, handle: &Arc<Handle>, failure: impl FnOnce() -> Option<LinkError>) {
        let mut handles = lock(&self.0);
        handles.retain(|handle| handle.strong_count() > 0);
        handles.push(Arc::downgrade(handle));
        if let Some(reason) = failure() {
            handle.fail(reason);
        }
    }

    /// Fails all links.
    pub fn fail(&self, reason: LinkError) {
        for handle in lock(&self.0).iter().filter_map(Weak::upgrade) {
            handle.fail(reason);
        }
    }
}

/// The links that wait on one connection.
#[derive(Default)]
pub(crate) struct Waiters {
    count: AtomicUsize,
    list: Mutex<Vec<Arc<Handle>>>,
    waits: LockWaits,
}

impl Waiters {
    /// A connection's; times that a thread waits for another here are counted.
    pub fn new(waits: LockWaits) -> Self {
        Self { waits, ..Self::default() }
    }

    /// Enters the list. A check after that misses nothing.
    pub fn enter(&self, handle: &Arc<Handle>) {
        self.waits.lock(&self.list).push(Arc::clone(handle));
        self.count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Leaves the list.
    pub fn leave(&self, handle: &Arc<Handle>) {
        self.waits.lock(&self.list).retain(|other| !Arc::ptr_eq(other, handle));
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// The pump is free, or a leaving thread did not take it: one of the waiting links may have it.
    pub fn hand_over(&self) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) > 0
            && let Some(next) = self.waits.lock(&self.list).first()
        {
            next.wake();
        }
    }

    /// Wakes all: something concerns every link.
    pub fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) > 0 {
            self.waits.lock(&self.list).iter().for_each(|handle| handle.wake());
        }
    }
}

//! Holds a session's replies that another thread has taken out of a ring, and the state of requests
//! that the session has abandoned (`crate::asker`).
//!
//! Invariants:
//! * a thread that delivers a reply waits for no lock, unless it wakes a parked thread, or some
//!   request is abandoned;
//! * no wake-up is lost: a delivering thread adds the reply and then reads how the session's thread
//!   waits; that thread writes how it waits and then checks for a reply; both have a full fence
//!   between the two steps.

use crate::data_buffers::BufferRange;
use crate::in_flight::RequestAt;
use crate::sync::{AtomicU32, AtomicUsize, Condvar, Mutex, MutexGuard, fence, lock_counted};
use crossbeam_queue::SegQueue;
use remora_fabric::LockWaits;
use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// The session's thread waits on the condition variable.
const PARKED: u32 = 1;
/// The thread sleeps in the kernel, for all threads of the process.
const IN_KERNEL: u32 = 2;
/// The thread has to check again although no reply has arrived.
const NUDGED: u32 = 4;

/// A session holds the number.
const HELD: u32 = 1 << 31;

/// A reply that another thread has taken out of a ring.
struct Delivered {
    to: RequestAt,
    payload: Vec<u8>,
    /// Another reply to the same request follows.
    is_followed: bool,
}

/// An abandoned request, whose last reply is still in the ring.
struct Abandoned {
    request: RequestAt,
    /// The memory that the reply may fill.
    part: Option<BufferRange>,
    /// It is a search, whose replies still come in parts.
    is_search: bool,
}

/// What the session's own thread uses.
#[derive(Default)]
struct Own {
    /// Taken in; in the order of each shard's ring.
    replies: VecDeque<Delivered>,
    /// At most as many as a session has in flight.
    abandoned: Vec<Abandoned>,
}

/// One session's inbox.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Replies delivered under the receiving lock of their ring.
    delivered: SegQueue<Delivered>,
    /// Replies that the session has not taken; counted after they were delivered.
    waiting: AtomicUsize,
    /// Requests whose replies are still in a ring, and `HELD`: at 0 a session can take the number.
    users: AtomicU32,
    /// The search that the session waits for, as [`search_number`]; 0 without one. The server may
    /// still answer an earlier search that the session gave up.
    search: AtomicU32,
    /// Bytes of the search replies that another reply followed, since the last search began.
    part_bytes: AtomicUsize,
    /// How the session's thread waits: the constants above.
    waits: AtomicU32,
    /// Other threads lock it only while a request is abandoned.
    own: Mutex<Own>,
    /// Number of abandoned requests in `own`: readable without the lock.
    abandoned: AtomicUsize,
    /// The session's thread holds it from its last check until it waits.
    parking: Mutex<()>,
    condvar: Condvar,
    lock_waits: LockWaits,
}

impl Inbox {
    /// An inbox; times that a thread waits for another here are counted.
    pub fn new(lock_waits: LockWaits) -> Self {
        Self { lock_waits, ..Self::default() }
    }

    fn lock_own(&self) -> MutexGuard<'_, Own> {
        lock_counted(&self.own, &self.lock_waits)
    }

    /// Takes the session number of this inbox, if no session holds it and no reply to its former
    /// holder is in flight.
    pub fn take_if_free(&self) -> bool {
        if self.users.compare_exchange(0, HELD, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        // Replies delivered while the former holder left.
        let mut own = self.lock_own();
        own.take_in(&self.delivered);
        *own = Own::default();
        drop(own);
        self.waiting.store(0, Ordering::Relaxed);
        self.abandoned.store(0, Ordering::Relaxed);
        self.search.store(0, Ordering::Relaxed);
        self.waits.store(0, Ordering::Relaxed);
        true
    }

    /// Gives the number back. Memory that replies may still fill stays reserved.
    pub fn give_back(&self) {
        let mut own = self.lock_own();
        own.take_in(&self.delivered);
        own.replies = VecDeque::new();
        drop(own);
        self.users.fetch_and(!HELD, Ordering::AcqRel);
    }

    /// The session is about to send so many requests.
    pub fn expect_replies(&self, requests: u32) {
        self.users.fetch_add(requests, Ordering::Relaxed);
    }

    /// The session did not send so many of them.
    pub fn expect_fewer(&self, requests: u32) {
        self.users.fetch_sub(requests, Ordering::Relaxed);
    }

    /// The session itself took the last reply to a request out of the ring.
    pub fn took_reply(&self) {
        self.users.fetch_sub(1, Ordering::Release);
    }

    /// A search is about to be sent: it may have several replies.
    pub fn begin_search(&self, request: RequestAt) {
        self.part_bytes.store(0, Ordering::Relaxed);
        self.search.store(search_number(request), Ordering::Release);
    }

    /// The session took the last reply to this search, or did not send it. Another one may have
    /// begun, if this one was abandoned.
    pub fn end_search(&self, request: RequestAt) {
        let (own, none) = (search_number(request), 0);
        // Only the session's own thread begins and ends searches.
        let _ = self.search.compare_exchange(own, none, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether the session admits a reply of so many bytes that another reply to the same request
    /// follows: only a search has such replies, and all of them together have no more than `most`
    /// bytes. The thread that takes the reply out of the ring calls it.
    pub fn admits_part(&self, to: RequestAt, bytes: usize, most: u64) -> bool {
        let is_search = self.search.load(Ordering::Acquire) == search_number(to)
            || self.is_abandoned_search(to);
        let before = self.part_bytes.fetch_add(bytes, Ordering::Relaxed);
        is_search && (before + bytes) as u64 <= most
    }

    fn is_abandoned_search(&self, request: RequestAt) -> bool {
        self.abandoned.load(Ordering::Relaxed) > 0
            && self
                .lock_own()
                .abandoned
                .iter()
                .any(|late| late.request == request && late.is_search)
    }

    /// Delivers a reply that another thread took out of a ring. Returns whether the session's
    /// thread sleeps in the kernel and needs a wake-up there; `None` if the session expects no
    /// reply, and then the inbox drops it. If another reply to the same request follows, the
    /// session still expects one; of the replies to an abandoned request the inbox keeps only the
    /// last, to tell the session.
    pub fn deliver(&self, to: RequestAt, payload: &[u8], is_followed: bool) -> Option<bool> {
        let users = self.users.load(Ordering::Relaxed);
        // A session counts a request before it sends it.
        if users & !HELD == 0 {
            return None;
        }
        let is_dropped = is_followed && self.is_abandoned(to);
        if users & HELD != 0 && !is_dropped {
            self.delivered.push(Delivered { to, payload: payload.to_vec(), is_followed });
            self.waiting.fetch_add(1, Ordering::Release);
        }
        fence(Ordering::SeqCst);
        if !is_followed {
            self.answered(to);
        }
        let waits = self.waits.load(Ordering::Relaxed);
        if waits & PARKED != 0 {
            self.wake();
        }
        if !is_followed {
            // The last step: from now on a session may take the number.
            self.users.fetch_sub(1, Ordering::AcqRel);
        }
        Some(waits & IN_KERNEL != 0)
    }

    /// The session no longer waits for the reply to this request.
    pub fn abandon(&self, request: RequestAt) {
        let is_search = self.search.load(Ordering::Relaxed) == search_number(request);
        let mut own = self.lock_own();
        own.abandoned.push(Abandoned { request, part: None, is_search });
        self.abandoned.store(own.abandoned.len(), Ordering::Relaxed);
        if is_search {
            // A thread that reads the 0 also finds the entry.
            self.search.store(0, Ordering::Release);
        }
        // A thread that delivers the last reply from here on finds the entry.
        fence(Ordering::SeqCst);
        own.take_in(&self.delivered);
        let is_last = |reply: &Delivered| reply.to == request && !reply.is_followed;
        let has_come = own.replies.iter().any(is_last);
        drop(own);
        if has_come {
            self.answered(request);
        }
    }

    /// Keeps the memory that an abandoned request's reply may fill until that reply arrives; if it
    /// has arrived, the memory is free.
    pub fn keep(&self, request: RequestAt, part: BufferRange) {
        let mut own = self.lock_own();
        if let Some(late) = own.abandoned.iter_mut().find(|late| late.request == request) {
            late.part = Some(part);
        }
    }

    /// Records the last reply to a request, which may have been abandoned.
    pub fn answered(&self, request: RequestAt) {
        if self.abandoned.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut own = self.lock_own();
        let at = own.abandoned.iter().position(|late| late.request == request);
        let answered = at.map(|at| own.abandoned.swap_remove(at));
        self.abandoned.store(own.abandoned.len(), Ordering::Relaxed);
        drop(own);
        // Its part goes back outside of the lock.
        drop(answered);
    }

    /// Whether the session abandoned a request. The answer may lag: then the inbox keeps one reply
    /// more.
    fn is_abandoned(&self, request: RequestAt) -> bool {
        self.abandoned.load(Ordering::Relaxed) > 0
            && self.lock_own().abandoned.iter().any(|late| late.request == request)
    }

    /// Whether any reply waits here.
    #[inline(always)]
    pub fn has_reply(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Whether a reply of this shard waits here.
    pub fn has_reply_of(&self, shard: usize) -> bool {
        self.has_reply() && {
            let mut own = self.lock_own();
            own.take_in(&self.delivered);
            own.place_of(shard).is_some()
        }
    }

    /// The oldest reply of this shard.
    pub fn take(&self, shard: usize) -> Option<Vec<u8>> {
        if !self.has_reply() {
            return None;
        }
        let mut own = self.lock_own();
        own.take_in(&self.delivered);
        let at = own.place_of(shard)?;
        let reply = own.replies.remove(at)?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(reply.payload)
    }

    /// The thread has checked the rings, and is about to sleep in the kernel; returns false if it
    /// must not.
    pub fn may_sleep_in_kernel(&self, shard: usize) -> bool {
        self.waits.fetch_or(IN_KERNEL, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let has_reply = self.has_reply_of(shard);
        if has_reply {
            self.awake();
        }
        !has_reply
    }

    /// The thread announces that it will park, or change its mind ([`Inbox::awake`]). It checks
    /// once more after this, so an older nudge has had its effect. (If it stayed, the thread would
    /// spin for as long as another sleeps for all.)
    pub fn announce_parking(&self) {
        // Makes visible what came before a nudge that it clears.
        self.waits.swap(PARKED, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Parks, after the announcement, until a reply of this shard arrives, another thread nudges,
    /// or `timeout` has passed.
    pub fn park(&self, shard: usize, timeout: Duration) {
        let parking = lock_counted(&self.parking, &self.lock_waits);
        let waits = |_: &mut ()| {
            self.waits.load(Ordering::Relaxed) & NUDGED == 0 && !self.has_reply_of(shard)
        };
        let waited = self.condvar.wait_timeout_while(parking, timeout, waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.awake();
    }

    /// The thread is awake again, or did not park.
    pub fn awake(&self) {
        self.waits.fetch_and(NUDGED, Ordering::Relaxed);
    }

    /// Whether another thread nudged since the last call.
    pub fn take_nudge(&self) -> bool {
        self.waits.load(Ordering::Relaxed) & NUDGED != 0
            && self.waits.fetch_and(!NUDGED, Ordering::Relaxed) & NUDGED != 0
    }

    /// Makes the thread check again.
    pub fn nudge(&self) {
        self.waits.fetch_or(NUDGED, Ordering::Release);
        self.wake();
    }

    /// As [`Inbox::nudge`], if the thread is parked and has not been nudged.
    pub fn nudge_if_parked(&self) -> bool {
        let (parked, nudged) = (PARKED, PARKED | NUDGED);
        let order = Ordering::Relaxed;
        let nudges = self.waits.compare_exchange(parked, nudged, order, order).is_ok();
        if nudges {
            self.wake();
        }
        nudges
    }

    /// Wakes the thread on the condition variable. A thread that has not seen the reason for the
    /// wake-up holds the lock until it waits.
    fn wake(&self) {
        drop(lock_counted(&self.parking, &self.lock_waits));
        self.condvar.notify_one();
    }
}

/// A request as a number that is not 0.
fn search_number(request: RequestAt) -> u32 {
    (request.shard as u32 + 1) << 16 | request.sequence as u32
}

impl Own {
    /// Takes in the delivered replies.
    fn take_in(&mut self, delivered: &SegQueue<Delivered>) {
        // Bounded by the in-flight requests, and by the bytes that a search may return.
        while let Some(reply) = delivered.pop() {
            self.replies.push_back(reply);
        }
    }

    /// Where the oldest reply of a shard is.
    fn place_of(&self, shard: usize) -> Option<usize> {
        self.replies.iter().position(|reply| reply.to.shard == shard)
    }
}

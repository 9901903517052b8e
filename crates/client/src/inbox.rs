//! Where a session finds replies that another thread has taken out of a ring,
//! and what is kept for requests that it has abandoned (`crate::late`).

use crate::connection::lock;
use crate::data_buffers::Part;
use crate::in_flight::RequestAt;
use crate::sync::{AtomicU32, AtomicUsize, Condvar, Mutex};
use remora_layout::plant::{Plant, planted};
use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How the session's thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Asleep {
    /// It does not, or it polls.
    #[default]
    No,
    /// On the condition variable.
    Parked,
    /// In the kernel, for all threads of the process.
    Kernel,
}

/// A reply that another thread has taken out of a ring.
struct Delivered {
    to: RequestAt,
    payload: Vec<u8>,
    /// Another reply to the same request follows.
    is_followed: bool,
}

/// A request that nobody waits for; its last reply is still to be taken out of
/// the ring.
struct Abandoned {
    request: RequestAt,
    /// The memory that the reply may fill.
    part: Option<Part>,
}

#[derive(Default)]
struct State {
    /// In the order of each shard's ring.
    replies: VecDeque<Delivered>,
    /// At most as many as a session has in flight.
    abandoned: Vec<Abandoned>,
    asleep: Asleep,
    /// Told to look around although no reply has come.
    nudged: bool,
    /// Whether a session holds the number.
    is_held: bool,
}

/// One session's inbox.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    condvar: Condvar,
    /// As many replies as `state` holds: looked at without the lock.
    waiting: AtomicUsize,
    /// Requests whose replies are still in a ring, plus one while a session
    /// holds the number: 0 means that the number can be given out.
    users: AtomicU32,
}

impl Inbox {
    /// Takes the session number that this inbox stands for, if nobody holds
    /// it and no reply to its former holder is still to come.
    pub fn take_if_free(&self) -> bool {
        let too_early = planted(Plant::NumberTooEarly) && !lock(&self.state).is_held;
        let users = if too_early { self.users.load(Ordering::Relaxed) } else { 0 };
        let more = users + 1;
        if self.users.compare_exchange(users, more, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        *lock(&self.state) = State { is_held: true, ..State::default() };
        true
    }

    /// Gives the number back. What replies may still fill stays.
    pub fn give_back(&self) {
        let mut state = lock(&self.state);
        let abandoned = std::mem::take(&mut state.abandoned);
        *state = State { abandoned, ..State::default() };
        drop(state);
        self.waiting.store(0, Ordering::Relaxed);
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    /// So many requests are about to be sent.
    pub fn expect_replies(&self, requests: u32) {
        self.users.fetch_add(requests, Ordering::Relaxed);
    }

    /// So many of them were not sent.
    pub fn expect_fewer(&self, requests: u32) {
        self.users.fetch_sub(requests, Ordering::Relaxed);
    }

    /// The last reply to a request was taken out of the ring by its own session.
    pub fn took_reply(&self) {
        self.users.fetch_sub(1, Ordering::Release);
    }

    /// Another thread took this session's reply out of a ring. Says whether
    /// the session's thread sleeps in the kernel and has to be woken there;
    /// `None` if no reply is expected, and then it is not kept. If it is
    /// followed by another one to the same request, one is expected still; of
    /// those to an abandoned request only the last is kept, to tell the session.
    pub fn deliver(&self, to: RequestAt, payload: &[u8], is_followed: bool) -> Option<bool> {
        let mut state = lock(&self.state);
        // Who asked counted the request before it was sent.
        if self.users.load(Ordering::Relaxed) <= state.is_held as u32 {
            return None;
        }
        let abandoned = state.abandoned.iter().position(|late| late.request == to);
        if state.is_held && !(is_followed && abandoned.is_some()) {
            state.replies.push_back(Delivered { to, payload: payload.to_vec(), is_followed });
            self.waiting.store(state.replies.len(), Ordering::Release);
        }
        let mut answered = None;
        if !is_followed {
            self.users.fetch_sub(1, Ordering::AcqRel);
            answered = abandoned.map(|at| state.abandoned.swap_remove(at));
        }
        if state.asleep == Asleep::Parked {
            self.condvar.notify_one();
        }
        let sleeps_in_kernel = state.asleep == Asleep::Kernel;
        drop(state);
        // Its part goes back outside of the lock.
        drop(answered);
        Some(sleeps_in_kernel)
    }

    /// The session no longer waits for the reply to this request.
    pub fn abandon(&self, request: RequestAt) {
        let mut state = lock(&self.state);
        let is_last = |reply: &Delivered| reply.to == request && !reply.is_followed;
        if !state.replies.iter().any(is_last) {
            state.abandoned.push(Abandoned { request, part: None });
        }
    }

    /// Keeps the memory that an abandoned request's reply may fill until that
    /// reply has come; if it has, the memory is free.
    pub fn keep(&self, request: RequestAt, part: Part) {
        let mut state = lock(&self.state);
        if let Some(late) = state.abandoned.iter_mut().find(|late| late.request == request) {
            late.part = Some(part);
        }
    }

    /// The session has taken the last reply to an abandoned request.
    pub fn answered(&self, request: RequestAt) {
        let mut state = lock(&self.state);
        let at = state.abandoned.iter().position(|late| late.request == request);
        let answered = at.map(|at| state.abandoned.swap_remove(at));
        drop(state);
        drop(answered);
    }

    /// Whether any reply waits here.
    #[inline(always)]
    pub fn has_reply(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// The oldest reply of this shard.
    pub fn take(&self, shard: usize) -> Option<Vec<u8>> {
        if !self.has_reply() {
            return None;
        }
        let mut state = lock(&self.state);
        let at = state.replies.iter().position(|reply| reply.to.shard == shard)?;
        let reply = state.replies.remove(at)?;
        self.waiting.store(state.replies.len(), Ordering::Relaxed);
        Some(reply.payload)
    }

    /// The thread is about to sleep in the kernel; false if it must not.
    pub fn may_sleep_in_kernel(&self, shard: usize) -> bool {
        let mut state = lock(&self.state);
        let has_reply = state.replies.iter().any(|reply| reply.to.shard == shard);
        state.asleep = if has_reply { Asleep::No } else { Asleep::Kernel };
        !has_reply
    }

    /// The thread will park, or change its mind ([`Inbox::awake`]). It looks
    /// around once more after this: an older nudge has had its effect. (One
    /// that stayed would let the thread spin for as long as another sleeps for
    /// all.)
    pub fn announce_parking(&self) {
        let mut state = lock(&self.state);
        state.asleep = Asleep::Parked;
        state.nudged = false;
    }

    /// Parks, after it was announced, until a reply of this shard has come,
    /// somebody nudges, or `timeout` has passed.
    pub fn park(&self, shard: usize, timeout: Duration) {
        let state = lock(&self.state);
        let waits = |state: &mut State| {
            !state.nudged && !state.replies.iter().any(|reply| reply.to.shard == shard)
        };
        let (mut state, _) = self
            .condvar
            .wait_timeout_while(state, timeout, waits)
            .unwrap_or_else(PoisonError::into_inner);
        state.asleep = Asleep::No;
    }

    /// The thread is awake again, or did not go to sleep.
    pub fn awake(&self) {
        lock(&self.state).asleep = Asleep::No;
    }

    /// Whether somebody nudged since the last call.
    pub fn take_nudge(&self) -> bool {
        std::mem::take(&mut lock(&self.state).nudged)
    }

    /// Lets the thread look around.
    pub fn nudge(&self) {
        lock(&self.state).nudged = true;
        self.condvar.notify_one();
    }

    /// As [`Inbox::nudge`], if the thread is parked and has not been nudged.
    pub fn nudge_if_parked(&self) -> bool {
        let mut state = lock(&self.state);
        if state.asleep != Asleep::Parked || state.nudged {
            return false;
        }
        state.nudged = true;
        self.condvar.notify_one();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn held() -> Inbox {
        let inbox = Inbox::default();
        assert!(inbox.take_if_free());
        inbox
    }

    /// The first request to a shard.
    fn at(shard: usize) -> RequestAt {
        RequestAt { shard, sequence: 0 }
    }

    #[test]
    fn replies_come_in_the_order_of_their_shard() {
        shuttle::check_random(
            || {
                let inbox = held();
                inbox.expect_replies(4);
                assert!(!inbox.has_reply() && inbox.take(1).is_none());
                for (shard, payload) in [(1, b"a"), (2, b"b"), (1, b"c")] {
                    let delivered = inbox.deliver(at(shard), payload, false);
                    assert_eq!(delivered, Some(false), "nobody sleeps");
                }
                assert!(inbox.take(3).is_none() && inbox.has_reply());
                assert_eq!(inbox.take(1).unwrap(), b"a");
                assert_eq!(inbox.take(1).unwrap(), b"c");
                assert!(inbox.take(1).is_none() && inbox.has_reply());
                assert_eq!(inbox.take(2).unwrap(), b"b");
                assert!(!inbox.has_reply());
            },
            1,
        );
    }

    #[test]
    fn a_number_is_free_when_its_last_reply_has_come() {
        shuttle::check_random(
            || {
                let inbox = held();
                assert!(!inbox.take_if_free(), "somebody holds it");
                inbox.expect_replies(3);
                inbox.expect_fewer(1);
                inbox.took_reply();
                inbox.give_back();
                assert!(!inbox.take_if_free(), "one reply is still to come");
                assert_eq!(inbox.deliver(at(0), b"to nobody", false), Some(false));
                assert!(inbox.take_if_free());
                assert!(!inbox.has_reply(), "a former holder's reply is not the new one's");
                inbox.expect_replies(1);
                inbox.deliver(at(0), b"not taken", false);
                inbox.give_back();
                assert!(inbox.take_if_free() && !inbox.has_reply());
            },
            1,
        );
    }

    #[test]
    fn of_replies_to_an_abandoned_request_the_last_one_is_kept() {
        shuttle::check_random(
            || {
                let (inbox, late) = (held(), RequestAt { shard: 1, sequence: 7 });
                inbox.expect_replies(4);
                inbox.abandon(late);
                for (to, is_followed) in [(late, true), (at(1), true), (late, true)] {
                    assert_eq!(inbox.deliver(to, b"a part", is_followed), Some(false));
                }
                assert_eq!(inbox.take(1).unwrap(), b"a part");
                assert!(!inbox.has_reply(), "the abandoned one's parts are dropped");
                inbox.deliver(late, b"the last", false);
                assert_eq!(inbox.take(1).unwrap(), b"the last");
                // Its number may be another request's now.
                inbox.deliver(late, b"another one's part", true);
                assert!(inbox.has_reply());
                // Abandoned after the last reply came: nothing is to come.
                inbox.deliver(late, b"the last", false);
                inbox.abandon(late);
                inbox.deliver(late, b"a third one's part", true);
                assert_eq!([(); 3].map(|()| inbox.take(1).is_some()), [true; 3]);
            },
            1,
        );
    }

    #[test]
    fn whoever_sleeps_in_the_kernel_is_to_be_woken_there() {
        shuttle::check_random(
            || {
                let inbox = held();
                inbox.expect_replies(3);
                assert!(inbox.may_sleep_in_kernel(1));
                assert_eq!(inbox.deliver(at(1), b"wakes", false), Some(true));
                assert!(!inbox.may_sleep_in_kernel(1), "a reply is here");
                assert_eq!(inbox.deliver(at(1), b"it stayed awake", false), Some(false));
                assert!(inbox.may_sleep_in_kernel(2), "it waits for another shard's");
                inbox.awake();
                assert_eq!(inbox.deliver(at(1), b"it is awake", false), Some(false));
                assert_eq!(inbox.deliver(at(1), b"nobody asked", false), None);
                // A search's replies but the last leave it expected.
                inbox.expect_replies(1);
                assert_eq!(inbox.deliver(at(1), b"a part", true), Some(false));
                assert_eq!(inbox.deliver(at(1), b"the last", false), Some(false));
                assert_eq!(inbox.deliver(at(1), b"nobody asked", true), None);
            },
            1,
        );
    }

    #[test]
    fn a_nudge_reaches_who_is_parked_and_once() {
        shuttle::check_random(
            || {
                let inbox = held();
                assert!(!inbox.nudge_if_parked() && !inbox.take_nudge(), "nobody is parked");
                inbox.nudge();
                assert!(inbox.take_nudge() && !inbox.take_nudge());
                inbox.nudge();
                inbox.announce_parking();
                assert!(!inbox.take_nudge(), "what came before has had its effect");
                assert!(inbox.nudge_if_parked() && !inbox.nudge_if_parked());
                inbox.park(0, Duration::from_secs(600));
                assert!(inbox.take_nudge());
                assert!(!inbox.nudge_if_parked(), "it is awake");
            },
            1,
        );
    }

    /// Time is never up here: who is not woken is found as a deadlock.
    #[test]
    fn a_reply_wakes_who_is_parked_and_nobody_parks_over_one() {
        shuttle::check_random(
            || {
                let inbox = Arc::new(held());
                inbox.expect_replies(2);
                let waits = Arc::clone(&inbox);
                let waits = shuttle::thread::spawn(move || {
                    waits.announce_parking();
                    waits.park(0, Duration::from_secs(600));
                    waits.take(0).expect("it was woken for this one")
                });
                inbox.deliver(at(1), b"another shard's", false);
                inbox.deliver(at(0), b"awaited", false);
                assert_eq!(waits.join().unwrap(), b"awaited");
            },
            100,
        );
    }
}

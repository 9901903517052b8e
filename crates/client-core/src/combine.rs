//! Combining: several threads want to put messages into one ring; one of them, the *combiner*, does
//! it for all. The others leave their messages, and continue.
//!
//! ```text
//!   a thread                            the combiner
//!   leave a message                     put into the ring what was left
//!   full fence                          give the role back
//!   try to take the role,               full fence
//!   go on if another has it             look once more whether something was left
//! ```
//! The later of the two fences makes the other side's step visible: a thread that finds the role
//! taken has left its message before the combiner's last check.
//!
//! A combiner continues with its own work after some rounds, so that other threads do not keep it
//! busy with theirs. If its last check then finds a message, it hands the role on to a parked
//! thread, which takes the role when it wakes. A thread that is about to park announces that, and
//! then tries once more to take the role, with a full fence between. So either the combiner finds
//! the parked thread, or that thread finds the role free.

use crate::sync::{COMBINE_ROUNDS, Ordering, fence};

/// Makes the thread the combiner if messages are left and no other thread is the combiner. `take`
/// tries to take the role. `drain` puts the left messages into the ring, and returns whether there
/// was room for all of them; without room, the threads that wait for replies try again. `hand_on`
/// lets another thread take the role, if one waits and does not check by itself.
#[inline]
pub fn combine<R, E>(
    waits: impl Fn() -> bool,
    mut take: impl FnMut() -> Option<R>,
    mut drain: impl FnMut(&mut R) -> Result<bool, E>,
    hand_on: impl FnOnce(),
) -> Result<(), E> {
    for _ in 0..COMBINE_ROUNDS {
        fence(Ordering::SeqCst);
        if !waits() {
            return Ok(());
        }
        let Some(mut role) = take() else { return Ok(()) };
        let had_room = drain(&mut role)?;
        drop(role);
        if !had_room {
            return Ok(());
        }
    }
    fence(Ordering::SeqCst);
    if waits() {
        hand_on();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Mutex, PoisonError, TryLockError};

    /// The role as a session takes it, also after another thread's panic.
    fn take(role: &Mutex<Vec<u32>>) -> Option<std::sync::MutexGuard<'_, Vec<u32>>> {
        match role.try_lock() {
            Ok(role) => Some(role),
            Err(TryLockError::Poisoned(role)) => Some(role.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[test]
    fn what_a_combiner_that_panics_has_not_put_into_the_ring_stays_for_the_next() {
        let left = RefCell::new(VecDeque::from([1, 2, 3]));
        let ring = Mutex::new(Vec::new());
        let panics = Cell::new(true);
        let push_on = || {
            let drain = |ring: &mut std::sync::MutexGuard<'_, Vec<u32>>| {
                while !left.borrow().is_empty() {
                    assert!(!(panics.get() && ring.len() == 1), "planned");
                    ring.push(left.borrow_mut().pop_front().expect("it is not empty"));
                }
                Ok::<_, Infallible>(true)
            };
            combine(|| !left.borrow().is_empty(), || take(&ring), drain, || ())
        };
        assert!(catch_unwind(AssertUnwindSafe(push_on)).is_err());
        panics.set(false);
        push_on().expect("it cannot fail");
        let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(*ring, [1, 2, 3]);
    }

    #[test]
    fn without_room_the_combiner_goes_on_and_tries_again_when_it_is_called() {
        let left = RefCell::new(VecDeque::from([1, 2, 3]));
        let (ring, room, drains) = (Mutex::new(Vec::new()), Cell::new(0), Cell::new(0));
        let push_on = || {
            let drain = |ring: &mut std::sync::MutexGuard<'_, Vec<u32>>| {
                drains.set(drains.get() + 1);
                while ring.len() < room.get() && !left.borrow().is_empty() {
                    ring.push(left.borrow_mut().pop_front().expect("it is not empty"));
                }
                Ok::<_, Infallible>(left.borrow().is_empty())
            };
            let waits = || !left.borrow().is_empty();
            combine(waits, || take(&ring), drain, || ()).expect("it cannot fail");
        };
        for (has_room, sent) in [(0, 0), (0, 0), (2, 2), (2, 2), (3, 3)] {
            room.set(has_room);
            push_on();
            assert_eq!(take(&ring).expect("the role is free").len(), sent);
        }
        assert_eq!(drains.get(), 5, "it does not spin for room");
        push_on();
        assert_eq!(drains.get(), 5, "nothing is left");
    }

    #[test]
    fn a_combiner_to_which_others_leave_more_and_more_hands_the_role_on() {
        let (left, ring) = (Cell::new(1), Mutex::new(Vec::new()));
        let is_handed_on = Cell::new(false);
        for (more, is_left) in [(COMBINE_ROUNDS - 1, false), (COMBINE_ROUNDS, true)] {
            left.set(1);
            let rounds = Cell::new(0);
            let drain = |_: &mut std::sync::MutexGuard<'_, Vec<u32>>| {
                left.set((rounds.get() < more) as u32);
                rounds.set(rounds.get() + 1);
                Ok::<_, Infallible>(true)
            };
            combine(|| left.get() > 0, || take(&ring), drain, || is_handed_on.set(true))
                .expect("it cannot fail");
            assert_eq!(rounds.get(), COMBINE_ROUNDS);
            assert_eq!(is_handed_on.take(), is_left);
        }
    }
}

//! Combining: of the threads that want to put something into one ring, one, the
//! *combiner*, does it for all. The others leave what they have, and go on.
//!
//! ```text
//!   a thread                            the combiner
//!   leave a message                     put into the ring what was left
//!   full fence                          give the role back
//!   try to take the role,               full fence
//!   go on if another has it             look once more whether something was left
//! ```
//! Whichever fence comes second sees the other side's step: a thread that finds the
//! role taken has left its message before the combiner's last look.

use crate::sync::{Ordering, fence};
use remora_layout::plant::{Plant, planted};

/// Times that a thread takes the role again because more was left meanwhile. Then it
/// goes on with its own work: threads that wait for replies look, too.
const ROUNDS: usize = 16;

/// Makes the thread the combiner, if something was left and no thread is. `take` tries to
/// take the role, `drain` puts into the ring what was left, and says whether there was
/// room for all of it; without room, the threads that wait for replies try again.
#[inline]
pub fn combine<R, E>(
    waits: impl Fn() -> bool,
    mut take: impl FnMut() -> Option<R>,
    mut drain: impl FnMut(&mut R) -> Result<bool, E>,
) -> Result<(), E> {
    for _ in 0..ROUNDS {
        fence(Ordering::SeqCst);
        if !waits() {
            return Ok(());
        }
        let Some(mut role) = take() else { return Ok(()) };
        let had_room = drain(&mut role)?;
        drop(role);
        if !had_room || planted(Plant::CombineOnce) {
            return Ok(());
        }
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

    /// The role as a session takes it: also after a panic.
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
            combine(|| !left.borrow().is_empty(), || take(&ring), drain)
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
            combine(|| !left.borrow().is_empty(), || take(&ring), drain).expect("it cannot fail");
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
}

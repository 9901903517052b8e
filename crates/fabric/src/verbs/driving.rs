//! Which thread waits for the events of a connection.
//!
//! Either its links: one thread at a time sleeps, for all (`crate::waiting`). Before it sleeps it
//! arms the completion channel, and polls once more (M24).
//!
//! Or an agent, which watches its descriptor: [`Connection::serve`].
//!
//! One connection has one of the two, never both: each arms the channel for its own events, and
//! takes the events that would wake the other.

use super::connection::{Connection, Driver};
use super::events::LOOK;
use crate::waiting::{Turns, Waiters};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::TryLockError;
use std::time::Duration;

impl Connection {
    /// From now on the next immediate makes the descriptor readable, or with `all` the next
    /// completion of any kind. Takes earlier events.
    pub fn arm(&self, all: bool) {
        self.completions.take_events();
        self.arm_completions(all);
        self.pump();
    }

    /// One turn of an agent that watches the descriptor: takes completions and immediates, and arms
    /// it again.
    ///
    /// # Panics
    ///
    /// A link has waited on this connection: see the module's text.
    pub fn serve(&self) {
        self.driven_by(Driver::Agent);
        self.arm(false);
    }

    fn driven_by(&self, driver: Driver) {
        let is_sole = *self.driver.get_or_init(|| driver) == driver;
        assert!(is_sole, "a connection is driven by an agent or by links that wait, not by both");
    }

    fn sleep(&self, timeout: Option<Duration>) {
        // Not for longer than a device may have gone without a word.
        let timeout = Timespec::try_from(timeout.map_or(LOOK, |timeout| timeout.min(LOOK))).ok();
        let context = &self.domain.context;
        let mut fds = [
            PollFd::new(&*self.completions, PollFlags::IN),
            PollFd::new(&self.control, PollFlags::IN),
            PollFd::new(&self.kick, PollFlags::IN),
            PollFd::from_borrowed_fd(context.events_fd(), PollFlags::IN),
        ];
        // Interrupted: the caller looks and comes again.
        let _ = poll(&mut fds, timeout.as_ref());
        let has_spoken = !fds[1].revents().is_empty();
        if !fds[3].revents().is_empty() {
            context.look();
            self.look_after_device();
        }
        if !fds[2].revents().is_empty() {
            let _ = rustix::io::read(&self.kick, &mut [0u8; 8]);
        }
        if has_spoken {
            self.look_after_peer();
        }
    }
}

impl Turns for Connection {
    fn lead(&self, timeout: Option<Duration>, mut came: impl FnMut() -> bool) -> bool {
        let _leads = match self.leads.try_lock() {
            Ok(leads) => leads,
            Err(TryLockError::WouldBlock) => return false,
            // It guards nothing that could be half done.
            Err(TryLockError::Poisoned(leads)) => leads.into_inner(),
        };
        self.driven_by(Driver::Links);
        self.arm(true);
        if !came() && self.failure().is_none() {
            self.sleep(timeout);
            self.pump();
        }
        true
    }

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}

impl AsFd for Connection {
    /// What becomes readable when something comes: see [`Connection::arm`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.completions.as_fd()
    }
}

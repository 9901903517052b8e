//! Wakes one thread of a client from the server: the wake-up protocol of [`asleep`] over two words
//! of the client's mailbox, and a futex. It needs no descriptor, so that every thread can have its
//! own.

use super::asleep;
use super::bell::Woken;
use remora_arena::Words;
use remora_layout::session::{CLIENT_ASLEEP_WORD, CLIENT_SIGNALS_WORD, set_offset};
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A sleep ends after this time at the latest: a futex does not report that the server has died, so
/// the caller checks.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The bell of the thread that has this ring set; for both sides.
#[derive(Clone)]
pub struct ThreadBell {
    mailbox: Words,
    /// First word of the set's block.
    block: usize,
}

impl ThreadBell {
    /// The bell in the mailbox that the client writes, for so many shards.
    pub fn new(mailbox: Words, shards: usize, set: usize) -> Self {
        Self { mailbox, block: set_offset(shards, set) / 8 }
    }

    /// The server, after it has stored a frame: wakes the thread if it sleeps.
    #[inline]
    pub fn ring(&self) {
        if asleep::must_signal(|| self.asleep()) {
            self.signal();
        }
    }

    /// As [`ThreadBell::ring`], behind a full fence that the caller has made.
    #[inline]
    pub fn ring_after_fence(&self) {
        if self.asleep() != 0 {
            self.signal();
        }
    }

    #[inline(always)]
    fn asleep(&self) -> u64 {
        self.mailbox.load(self.block + CLIENT_ASLEEP_WORD)
    }

    /// Wakes the thread whether it sleeps or not.
    pub fn signal(&self) {
        let signals = self.mailbox.futex_word(self.block + CLIENT_SIGNALS_WORD);
        signals.fetch_add(1, Ordering::AcqRel);
        // Fails only for an address that is none.
        let _ = futex::wake(signals, futex::Flags::empty(), 1);
    }

    /// The thread sleeps until the bell rings, `timeout` has passed, or a while
    /// has, unless `scan` finds something to do.
    pub fn sleep(&self, timeout: Duration, scan: impl FnOnce() -> bool) -> Woken {
        let signals = self.mailbox.futex_word(self.block + CLIENT_SIGNALS_WORD);
        // A signal that comes after this ends the sleep.
        let seen = signals.load(Ordering::Acquire);
        let asleep = self.mailbox.word(self.block + CLIENT_ASLEEP_WORD);
        let timeout = Timespec::try_from(timeout.min(LONGEST_SLEEP)).expect("it is short");
        let slept = asleep::sleep_unless(asleep, scan, || {
            match futex::wait(signals, futex::Flags::empty(), seen, Some(&timeout)) {
                Err(Errno::TIMEDOUT) => Woken::TimedOut,
                // Signalled before it slept, or by a signal of the system.
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Woken::Signalled,
                // The word is ours; nothing else can go wrong with it.
                Err(error) => panic!("futex: {error}"),
            }
        });
        slept.unwrap_or(Woken::Found)
    }
}

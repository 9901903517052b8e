//! Whether a snapshot is wanted or under way, and how the last one ended.

use super::port::ThreadBell;
use crate::turn_times::TurnTimes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module's text.
#[derive(Default)]
pub struct Snapshots {
    /// Wakes the thread that writes them.
    pub bell: Arc<ThreadBell>,
    /// The thread is to end.
    pub stopping: AtomicBool,
    is_wanted: AtomicBool,
    is_under_way: AtomicBool,
    /// When the last one was written, Unix s; the start of the server before the first.
    pub saved_at_s: AtomicU64,
    /// Bytes of the last one, and its time, ms.
    pub bytes: AtomicU64,
    /// See [`Snapshots::bytes`].
    pub took_ms: AtomicU64,
    /// Snapshots that were written, and that were given up.
    pub written: AtomicU64,
    /// See [`Snapshots::written`].
    pub given_up: AtomicU64,
    /// The turns of the last one.
    pub turns: TurnTimes,
    /// Why the last one was given up; empty if it was not.
    failure: Mutex<String>,
}

impl Snapshots {
    /// Asks for one. False if one is under way or wanted.
    pub fn want(&self) -> bool {
        let is_new = !self.is_under_way() && !self.is_wanted.swap(true, Ordering::SeqCst);
        self.bell.ring();
        is_new
    }

    /// Asks for one that begins from now on, also behind one that is under way: that one may be given
    /// up, or has less.
    pub fn want_another(&self) {
        self.is_wanted.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Whether one is to begin.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::SeqCst)
    }

    /// Whether one is under way, or about to begin.
    pub fn is_under_way(&self) -> bool {
        self.is_under_way.load(Ordering::SeqCst) || self.is_wanted()
    }

    /// Whether the thread is to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// One begins, if it is wanted.
    pub fn begin(&self) -> bool {
        let is_wanted = self.is_wanted();
        self.is_under_way.store(is_wanted, Ordering::SeqCst);
        self.is_wanted.store(false, Ordering::SeqCst);
        is_wanted
    }

    /// Its turns, once there are no more of them.
    pub fn note_turns(&self, turns: &TurnTimes) {
        self.turns.copy_from(turns);
    }

    /// It is written.
    pub fn end(&self, (bytes, ms): (u64, u64), at_s: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.took_ms.store(ms, Ordering::Relaxed);
        self.saved_at_s.store(at_s, Ordering::Relaxed);
        self.written.fetch_add(1, Ordering::Relaxed);
        self.set_failure(String::new());
        self.is_under_way.store(false, Ordering::SeqCst);
    }

    /// It is given up.
    pub fn fail(&self, why: String) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
        self.set_failure(why);
        self.is_under_way.store(false, Ordering::SeqCst);
    }

    /// Why the last one was given up; empty if it was not.
    pub fn failure(&self) -> String {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_failure(&self, why: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's snapshot is given up while the replica's copy ends: the copy needs another one.
    #[test]
    fn one_that_is_under_way_is_no_answer_to_a_wish_for_another() {
        let snapshots = Snapshots::default();
        assert!(snapshots.want() && snapshots.begin());
        assert!(!snapshots.want(), "one is under way");
        assert!(!snapshots.is_wanted());
        snapshots.want_another();
        snapshots.fail("a shard is being copied".into());
        assert!(snapshots.begin() && !snapshots.begin());
    }
}

//! Counters of one thread's connections. Only that thread writes them, so that counting costs no
//! locked instruction and no line that two cores write; other threads read them now and then.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that one thread writes and others read.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds this many. Only the one writer may call it.
    #[inline(always)]
    pub fn add(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// One of the things that are counted has changed from `before` to `after`.
    #[inline(always)]
    pub fn change(&self, before: usize, after: usize) {
        self.add((after as u64).wrapping_sub(before as u64));
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of the connections of one thread.
#[derive(Default)]
pub struct ConnectionCounts {
    /// Writes to streams.
    pub writes: Counter,
    /// Bytes written.
    pub bytes_written: Counter,
    /// Connections that were closed for a protocol error or an oversized request.
    pub protocol_errors: Counter,
    /// Connections that were closed because too much of their output was unread.
    pub output_cut_off: Counter,
    /// Requests that were given up because no more of them came.
    pub requests_abandoned: Counter,
    /// Bytes that the connections' jobs and replies hold now
    /// ([`Responder::pending_bytes`](crate::Responder::pending_bytes)), and those of requests that
    /// continue after an answer, with their results.
    pub pending_bytes: Counter,
}

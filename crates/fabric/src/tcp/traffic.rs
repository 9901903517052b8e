//! Counts of the traffic over a connection. One thread at a time writes each counter: the one that
//! sends, or the one that receives.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one connection, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// System calls that gave bytes to the socket.
    pub writes: u64,
    /// Bytes that they gave.
    pub written_bytes: u64,
    /// System calls that took bytes.
    pub receives: u64,
    /// Bytes that they took.
    pub received_bytes: u64,
    /// Frames that were in them.
    pub frames: u64,
    /// Times that a client's thread had sent for others for long, and left the rest to
    /// the thread that had the pump.
    pub left: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, more: Self) {
        self.writes += more.writes;
        self.written_bytes += more.written_bytes;
        self.receives += more.receives;
        self.received_bytes += more.received_bytes;
        self.frames += more.frames;
        self.left += more.left;
    }
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Counters {
    writes: AtomicU64,
    written_bytes: AtomicU64,
    receives: AtomicU64,
    received_bytes: AtomicU64,
    frames: AtomicU64,
    left: AtomicU64,
}

impl Counters {
    /// So many bytes were sent, by one write in nearly all cases.
    pub fn sent(&self, bytes: usize) {
        add(&self.writes, 1);
        add(&self.written_bytes, bytes as u64);
    }

    /// One receive brought so many bytes.
    pub fn received(&self, bytes: usize) {
        add(&self.receives, 1);
        add(&self.received_bytes, bytes as u64);
    }

    /// So many frames were executed.
    pub fn executed(&self, frames: usize) {
        add(&self.frames, frames as u64);
    }

    /// The rest was left to another thread; no longer as the one that sends.
    pub fn left_rest(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    pub fn read(&self) -> Traffic {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            writes: load(&self.writes),
            written_bytes: load(&self.written_bytes),
            receives: load(&self.receives),
            received_bytes: load(&self.received_bytes),
            frames: load(&self.frames),
            left: load(&self.left),
        }
    }
}

/// By the only thread that writes it.
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

//! Counts of the operations that a connection has given to its device, and of completions. Only the
//! thread that has the device writes a counter.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one connection, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Times that requests were posted: calls of `ibv_post_send`, each one doorbell.
    pub posts: u64,
    /// Pieces of READs and WRITEs that they posted.
    pub pieces: u64,
    /// Immediates that have come.
    pub immediates: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, more: Self) {
        self.posts += more.posts;
        self.pieces += more.pieces;
        self.immediates += more.immediates;
    }
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Counters {
    posts: AtomicU64,
    pieces: AtomicU64,
}

impl Counters {
    /// So many pieces were posted with one doorbell.
    pub fn posted(&self, pieces: usize) {
        add(&self.posts, 1);
        add(&self.pieces, pieces as u64);
    }

    /// With so many immediates.
    pub fn read(&self, immediates: u64) -> Traffic {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic { posts: load(&self.posts), pieces: load(&self.pieces), immediates }
    }
}

/// By the only thread that writes it.
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

//! Feeding walks by READs over a fabric.
//!
//! What is read has no order inside, so that nodes are proved by their
//! checksums. Whether what a walk found may be used is for the caller to say,
//! once the last READ has completed: by the read lease, and by the expiry.

mod cache;
mod step;
mod wide;

pub use cache::NodeCache;
pub use step::{InStep, Rooted, fetch_rooted, fetch_wanted, follow, follow_rooted};
pub use wide::Wide;

use remora_fabric::{RemoteAddress, Work};

/// Posts READs and waits for their completions: a client's session.
pub trait Reads {
    /// Why no READ completes any more.
    type Error;

    /// A list to gather READs in, whose room is used again.
    fn works(&mut self) -> &mut Vec<Work<'static>>;

    /// Sees to room for what lands. What has landed before may be lost.
    fn reserve(&mut self, bytes: usize);

    /// Posts READs in one batch.
    fn post(&mut self, reads: &[Work<'_>]);

    /// Waits for the next READ that completes, and gives its id.
    ///
    /// # Errors
    /// The link has failed.
    fn next(&mut self) -> Result<u64, Self::Error>;

    /// What has landed there.
    fn landed(&self, from: usize, bytes: usize) -> &[u8];

    /// One READ into the start of the landing memory.
    ///
    /// # Errors
    /// The link has failed.
    #[inline(always)]
    fn fetch(&mut self, region: u32, offset: u64, bytes: usize) -> Result<(), Self::Error> {
        self.reserve(bytes);
        let from = RemoteAddress { region, offset };
        self.post(&[Work::Read { id: 0, from, into: 0, bytes }]);
        self.next().map(drop)
    }
}

/// Counts what READs cost.
pub trait Tally {
    /// Round trips are READs in the longest chain of those that each waited for
    /// the one before; nodes are buckets and records too.
    fn fetched(&mut self, round_trips: u64, nodes: u64, bytes: u64);
}

//! Feeds walks by READs over a fabric.
//!
//! A READ has no order inside, so the checksum of a node proves it. After the last READ has
//! completed, the caller decides whether it may use the walk's result: by the read lease, and by
//! the expiry.

mod cache;
mod step;
mod wide;

pub use cache::NodeCache;
pub use step::{
    InStep, Rooted, fetch_rooted, fetch_wanted, fetch_wanted_rooted, follow, follow_rooted,
};
pub use wide::Wide;

pub use remora_fabric::{RemoteAddress, Work};

/// Posts READs and waits for their completions: a client's session.
pub trait Reads {
    /// Why no further READ completes.
    type Error;

    /// A list that gathers READs, and whose memory is reused.
    fn works(&mut self) -> &mut Vec<Work<'static>>;

    /// Makes room for the bytes of READs. Earlier landed bytes may be lost.
    fn reserve(&mut self, bytes: usize);

    /// Posts READs in one batch.
    fn post(&mut self, reads: &[Work<'_>]);

    /// Waits for the next READ that completes, and gives its id.
    ///
    /// # Errors
    /// The link has failed.
    fn next(&mut self) -> Result<u64, Self::Error>;

    /// The bytes that landed there.
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

/// Counts the cost of READs.
pub trait Tally {
    /// Round trips: the number of READs in the longest chain in which each waited for the one
    /// before. Nodes include buckets and records.
    fn fetched(&mut self, round_trips: u64, nodes: u64, bytes: u64);
}

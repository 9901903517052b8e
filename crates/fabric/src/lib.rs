//! READ and WRITE between processes and machines: one contract, several
//! backends, and one body of tests that every backend runs.
//!
//! The contract (design, "Fabric"; Catfish 2.2, C11: READ and WRITE only):
//! * A link is reliable and ordered *between* operations; they are posted in
//!   batches and complete in order.
//! * *Inside* an operation no order is promised; no word of 8 bytes is torn.
//! * A failed link fails every operation posted after it, with its reason,
//!   and stays failed.
//! * `poll` never blocks.
//! * After a region or session has been withdrawn, no operation completes
//!   successfully any more.

#![forbid(unsafe_code)]

pub mod conformance;
pub mod shm;

/// What carries a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Shared memory between processes of one host.
    Shm,
}

impl Transport {
    /// The name in configuration, INFO and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
        }
    }
}

/// How a receiver waits for what comes by one-sided writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wake {
    /// Polls without end: lowest latency, a core for each receiver.
    Poll,
    /// Blocks in the kernel whenever there is nothing.
    Event,
    /// Polls for a short while after the last work, then blocks.
    #[default]
    Hybrid,
}

impl Wake {
    /// The name in configuration, INFO and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Event => "event",
            Self::Hybrid => "hybrid",
        }
    }
}

/// A place in a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAddress {
    /// Region id, as agreed when the link was made.
    pub region: u32,
    /// Byte offset, a multiple of eight.
    pub offset: u64,
}

/// One operation to post.
#[derive(Clone, Copy, Debug)]
pub enum Work<'a> {
    /// Fetches bytes into the link's landing memory.
    Read {
        /// Comes back in the completion.
        id: u64,
        /// Where to read.
        from: RemoteAddress,
        /// Offset in the landing memory.
        into: usize,
        /// How many bytes.
        bytes: usize,
    },
    /// Stores bytes; they are taken before `post` returns.
    Write {
        /// Comes back in the completion.
        id: u64,
        /// Where to write, in a mailbox of this link's own.
        to: RemoteAddress,
        /// What to write; the rest of the last word is zeroed.
        bytes: &'a [u8],
    },
}

/// The end of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The operation's id.
    pub id: u64,
    /// How it ended.
    pub result: Result<(), LinkError>,
}

/// Why a link failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// The range does not lie in the region, or is not aligned.
    #[error("{bytes} bytes at offset {offset} do not lie in region {region}")]
    OutOfBounds {
        /// The region.
        region: u32,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        bytes: usize,
    },
    /// There is no such region on this link.
    #[error("there is no region {0} on this link")]
    NoSuchRegion(u32),
    /// The region is only to be read.
    #[error("region {0} is not this link's mailbox: it can only be read")]
    NotWritable(u32),
    /// The local end of a READ does not lie in the landing memory.
    #[error("the landing memory has no room for this READ")]
    NoLanding,
    /// The peer has ended the session.
    #[error("the session was withdrawn by the server")]
    Withdrawn,
}

/// One end of a connection. See the crate's text for the contract.
pub trait Link {
    /// What carries it.
    fn transport(&self) -> Transport;

    /// Whether a READ costs the peer's CPU; `choose` has to know.
    fn reads_cost_peer_cpu(&self) -> bool;

    /// Posts a batch; operations complete in this order.
    fn post(&mut self, batch: &[Work<'_>]);

    /// The next completion, if there is one. Never blocks.
    fn poll(&mut self) -> Option<Completion>;

    /// Bytes that a completed READ has fetched.
    fn landed(&self, at: usize, bytes: usize) -> &[u8];

    /// Makes the landing memory at least this large. Not while READs are
    /// under way.
    fn reserve_landing(&mut self, bytes: usize);

    /// Why the link failed, if it has.
    fn failure(&self) -> Option<LinkError>;
}

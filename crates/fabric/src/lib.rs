//! READ and WRITE between processes and machines: one contract, several
//! backends, and one body of tests that every backend runs.
//!
//! * [`shm`]: processes of one host; a READ is a copy from a mapping.
//! * [`tcp`]: any host; the target executes READs, at the cost of its CPU.
//! * [`verbs`]: hosts with RDMA devices, which execute READs by themselves.
//! * [`sim`]: the weakest fabric that the contract allows, in virtual time.
//!
//! [`detect`] chooses one for each session, in the hellos of [`connect()`].
//!
//! The contract (design, "Fabric"; Catfish 2.2, C11: READ and WRITE only):
//! * A link is reliable and ordered *between* operations; a caller posts them in batches, and they
//!   complete in order.
//! * *Inside* an operation there is no order; no word of 8 bytes is torn.
//! * A WRITE may carry an immediate: the target receives it once, after the bytes are stored.
//! * A failed link fails every operation that is in flight or posted later, with its reason, and
//!   stays failed.
//! * `poll` never blocks; `wait` sleeps, and loses no wake-up.
//! * Once a region or session has been withdrawn, no target executes an operation on it any more.
//!   The result of an earlier operation may still be in flight to an initiator on another machine;
//!   later posts fail.

#![deny(unsafe_code)]

mod address;
mod answer;
mod any;
mod awaiting;
mod backoff;
mod client_regions;
pub mod conformance;
mod connect;
mod credentials;
pub mod detect;
mod dialling;
mod hello;
mod hello_stream;
mod locks;
mod pending_ops;
pub mod remote;
pub mod shm;
pub mod sim;
mod sync;
pub mod tcp;
pub mod verbs;
pub mod vital_thread;
mod waiting;

pub use address::{Address, UnknownAddress};
pub use answer::{answer, check_head, elsewhere, hello_of, refusal};
pub use any::AnyLink;
pub use connect::{Connected, connect};
pub use credentials::Credentials;
pub use dialling::Dialling;
pub use hello::{ConnectError, HELLO_TIMEOUT, client_hello};
pub use hello_stream::HelloStream;
pub use locks::LockWaits;
pub use remora_tls::ClientTlsSettings;

use remora_layout::limits::{MAX_READ_BYTES, MAX_WRITE_BYTES};
use std::time::Duration;

/// The transport of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Shared memory between processes of one host.
    Shm,
    /// Frames over a TCP connection; the target's agent executes them.
    Tcp,
    /// RDMA: the target's device executes them.
    Verbs,
    /// The simulated fabric: in process, virtual time.
    Sim,
}

impl Transport {
    /// The name in configuration, INFO and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
            Self::Sim => "sim",
        }
    }
}

/// A name that is not one of a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such transport; there are shm, tcp, verbs and sim")]
pub struct UnknownTransport;

impl std::str::FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(name: &str) -> Result<Self, UnknownTransport> {
        [Self::Shm, Self::Tcp, Self::Verbs, Self::Sim]
            .into_iter()
            .find(|transport| transport.name() == name)
            .ok_or(UnknownTransport)
    }
}

/// How a receiver waits for one-sided writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wake {
    /// Polls without end: lowest latency, a core for each receiver.
    Poll,
    /// Blocks in the kernel whenever there is no work.
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
    /// Stores bytes; the link copies them before `post` returns.
    Write {
        /// Comes back in the completion.
        id: u64,
        /// Where to write, in a mailbox of this link's own.
        to: RemoteAddress,
        /// The bytes to write; the rest of the last word is zeroed.
        bytes: &'a [u8],
        /// The immediate that the target receives after the bytes are stored.
        imm: Option<u32>,
    },
}

impl Work<'_> {
    /// The id in the completion.
    #[inline(always)]
    pub const fn id(&self) -> u64 {
        match *self {
            Self::Read { id, .. } | Self::Write { id, .. } => id,
        }
    }
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
    /// The link may only read the region.
    #[error("region {0} is not this link's mailbox: it can only be read")]
    NotWritable(u32),
    /// The link may only write the region.
    #[error("region {0} is a mailbox: it can only be written")]
    NotReadable(u32),
    /// Longer than any operation.
    #[error(
        "an operation of {0} bytes is too long: READs have at most {MAX_READ_BYTES}, WRITEs {MAX_WRITE_BYTES}"
    )]
    TooLong(usize),
    /// The target has no listener for this immediate.
    #[error("nobody at the target listens for immediate {0}")]
    NoSuchImmediate(u32),
    /// The local end of a READ does not lie in the landing memory.
    #[error("the landing memory has no room for this READ")]
    NoLanding,
    /// The peer has ended the session.
    #[error("the session was withdrawn by the server")]
    Withdrawn,
    /// The connection broke: the peer closed it, or it or its machine has
    /// gone.
    #[error("the connection to the peer is lost")]
    Disconnected,
    /// The peer's machine or the network does not answer.
    #[error("the peer's RDMA device does not answer: is its machine up, and the network?")]
    NoAnswer,
    /// The peer's device refused: the region no longer exists, or does not allow this operation. A
    /// session that ends first withdraws its regions, so an in-flight READ may see this before it
    /// sees the end.
    #[error(
        "the peer's RDMA device denied access to its memory: this session has ended there, or must not do that"
    )]
    Denied,
    /// The device of this machine failed; a number of `ibv_wc_status`.
    #[error("this machine's RDMA device failed an operation (status {0})")]
    Device(u32),
    /// The device of this machine has gone: it was removed, or has failed.
    #[error("this machine's RDMA device has gone: it was removed, or it failed")]
    DeviceGone,
    /// Landing memory cannot be registered.
    #[error(transparent)]
    NotRegistered(verbs::NotRegistered),
    /// The peer sent what no honest peer sends.
    #[error("the peer broke the protocol: {0}")]
    Violation(&'static str),
    /// The peer does not read, or the link has too many posted operations.
    #[error("too much is waiting for the peer: it does not keep up")]
    Overrun,
}

/// Why a waiting link woke up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// [`Link::poll`] has a completion.
    Completed,
    /// The peer may have written into local memory since the last `wait`.
    Arrived,
    /// The link has failed, and all its completions have been taken.
    Failed(LinkError),
    /// The time was up.
    TimedOut,
}

/// One end of a connection. The crate's documentation has the contract.
pub trait Link {
    /// What carries it.
    fn transport(&self) -> Transport;

    /// Whether a READ costs the peer's CPU; `choose` has to know.
    fn reads_cost_peer_cpu(&self) -> bool;

    /// Posts a batch with one doorbell; operations take effect and complete in this order, after
    /// all earlier posts. Never blocks. Each operation gets exactly one completion, also on a
    /// failed link. The link copies the bytes of WRITEs before it returns.
    fn post(&mut self, batch: &[Work<'_>]);

    /// The next completion, if there is one. Never blocks.
    fn poll(&mut self) -> Option<Completion>;

    /// Sleeps until an operation completes, bytes arrive from the peer, the link fails or `timeout`
    /// has passed (`None`: without end). Anything that arrived since the last `wait` makes it
    /// return at once: check for it, then wait, and no wake-up is lost. Spurious wake-ups are
    /// possible.
    fn wait(&mut self, timeout: Option<Duration>) -> Waited;

    /// The bytes of a READ whose completion was taken. Valid until another READ into the same place
    /// is posted.
    fn landed(&self, at: usize, bytes: usize) -> &[u8];

    /// Makes the landing memory at least this large. Do not call it while READs are in flight.
    fn reserve_landing(&mut self, bytes: usize);

    /// Why the link failed, if the link knows that it has: at the latest once the first failed
    /// completion has been taken.
    fn failure(&self) -> Option<LinkError>;

    /// Whether [`Link::poll`] would find something. A thread asks before it sleeps, while a
    /// caller waits for the completions of its WRITEs ([`AnyLink::await_writes`]).
    fn has_completed(&self) -> bool;
}

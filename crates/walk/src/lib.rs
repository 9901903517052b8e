//! Walks, and the drivers that feed them.
//!
//! A *walk* is a pure state machine. It names the bytes that it wants, receives them, and ends with
//! a result, or tells its caller to ask the owner. It does no I/O, keeps no time and draws no
//! random numbers. A *driver* fetches the bytes. There is one implementation of each driver, and it
//! feeds every walk:
//!
//! * [`local`]: memory that this process maps: validated copies for other threads of the server and
//!   for clients of the same host, the nodes themselves for the shard's own thread;
//! * [`remote`]: READs over a fabric: one at a time ([`remote::follow`]), many walks in step
//!   ([`remote::InStep`]), or all wants of one walk at once, with a cache of its upper nodes
//!   ([`remote::Wide`]).
//!
//! Tests have a driver of their own that feeds walks late and torn bytes. The simulator's fabric
//! does the same to the unchanged remote driver.
//!
//! Invariants of a driver:
//! * it feeds a walk exactly the wanted bytes, in any order, each want at most once;
//! * it feeds a node with a proof that fits the way in which it fetched the node;
//! * it never reads a *head*: the state under which a walk begins, such as a table's shape or a
//!   tree's header. When the walk says [`Step::Restart`] the driver stops, and its caller reads the
//!   head and calls [`Walk::restart`].

#![forbid(unsafe_code)]

pub mod local;
mod memory;
pub mod remote;

pub use memory::Memory;
pub use remora_layout::node::Proof;

use remora_layout::node::{NodeRef, VERSIONED_BYTES};

/// Bytes that a walk wants, in its region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want<T> {
    /// Byte offset, a multiple of 16.
    pub offset: u64,
    /// The length; the range lies in the region, as far as the walk knows its size.
    pub bytes: usize,
    /// How the bytes are validated.
    pub what: What,
    /// The walk's own mark: the driver returns it with the bytes.
    pub tag: T,
}

impl<T> Want<T> {
    /// Whether it is an inner node.
    pub(crate) fn is_inner(&self) -> bool {
        matches!(self.what, What::Node { level, .. } if level > 0)
    }
}

/// Most bytes of words that a driver reads beside others.
pub const BESIDE_BYTES: usize = VERSIONED_BYTES;

/// How bytes are validated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Each word stands alone; the record or node that it leads to validates it.
    Words,
    /// At most [`BESIDE_BYTES`] of such words. The driver reads them in the batch of the next want,
    /// before it, and they cost no round trip of their own.
    Beside,
    /// A record: it has a checksum, and never changes.
    Record,
    /// A node with a version, which its writer changes in place.
    Node {
        /// The node.
        at: NodeRef,
        /// Levels below it; 0 for a leaf.
        level: u8,
    },
}

/// The walk's answer after the driver fed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<F, R> {
    /// The driver feeds the next want, or one that is in flight.
    More,
    /// It is finished.
    Found(F),
    /// The walk's head is old: call [`Walk::restart`] with the present one.
    Restart,
    /// Ask the owner.
    Ask(R),
}

/// Why a driver stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End<F, R> {
    /// The walk is finished.
    Found(F),
    /// The walk's head is old: read it, and call [`Walk::restart`].
    Restart,
    /// A cached node has changed: call [`Walk::restart`], under the same head.
    Stale,
    /// The walk would cost more than it may.
    Beyond,
    /// Ask the owner.
    Ask(R),
}

impl<F, R> Step<F, R> {
    /// Why a driver stops after this step; `None` if it continues.
    #[inline(always)]
    pub fn end(self) -> Option<End<F, R>> {
        match self {
            Self::More => None,
            Self::Found(found) => Some(End::Found(found)),
            Self::Restart => Some(End::Restart),
            Self::Ask(reason) => Some(End::Ask(reason)),
        }
    }
}

/// A search that names its wants, receives bytes, and yields.
///
/// Every walk is bounded: it restarts, retries and wants a bounded number of times, whatever bytes
/// it receives.
pub trait Walk {
    /// The result. Ranges in it refer to the bytes that the driver fed last.
    type Found;
    /// Why the caller has to ask the owner.
    type Reason;
    /// The mark of a want.
    type Tag: Copy;
    /// The state under which the walk begins.
    type Head;

    /// For a want that does not lie in the region.
    const OUT_OF_REGION: Self::Reason;

    /// Whether it concludes from inner nodes, too: then a cached one counts only if it is unchanged.
    /// Otherwise each leaf proves by itself for which keys it speaks, and a cached node is a hint.
    const NEEDS_INNER_NODES: bool = true;

    /// The next want, until there is none. The driver may fetch all of them at the same time.
    fn next_want(&mut self) -> Option<Want<Self::Tag>>;

    /// Receives the wanted bytes. `proof` counts for nodes.
    fn feed(
        &mut self,
        want: Want<Self::Tag>,
        bytes: &[u8],
        proof: Proof,
    ) -> Step<Self::Found, Self::Reason>;

    /// Begins again under a head that the caller read after [`Step::Restart`]. The driver may still
    /// feed earlier wants; the walk ignores them.
    ///
    /// # Errors
    /// The walk has restarted too often.
    fn restart(&mut self, head: &Self::Head) -> Result<(), Self::Reason>;

    /// Fetches without a result so far, and restarts.
    fn retries(&self) -> u32;

    /// Results so far, for walks that gather many.
    fn results(&self) -> usize {
        0
    }

    /// Nodes since the last restart that passed every check.
    fn believed(&self) -> u64 {
        0
    }

    /// Nodes since the last restart that it went around because a parent did not name them.
    fn detours(&self) -> u32 {
        0
    }

    /// Bytes of a wanted node that are in use, where word 3 of the node is
    /// `shape`; at most those wanted.
    fn bytes_in_use(&self, want: &Want<Self::Tag>, shape: u64) -> usize {
        let _ = shape;
        want.bytes
    }

    /// Offsets of what the last step has added to the wants, and their bytes, for prefetching.
    fn each_new_want(&self, _each: impl FnMut(u64, usize)) {}
}

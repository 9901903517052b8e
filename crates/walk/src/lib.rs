//! Walks, and who feeds them.
//!
//! A *walk* is a pure state machine. It names the bytes that it wants, is fed
//! them, and ends with a result, or says that its owner is to be asked. It
//! does no I/O, keeps no time and draws no random numbers. A *driver* fetches
//! the bytes. Each driver is written once and feeds every walk:
//!
//! * [`local`]: memory that this process maps: validated copies for other threads
//!   of the server and for clients of the same host, the nodes themselves for the
//!   shard's own thread;
//! * [`remote`]: READs over a fabric: one at a time ([`remote::follow`]), many
//!   walks in step ([`remote::InStep`]), or all that one walk wants at once,
//!   with a cache of its upper nodes ([`remote::Wide`]).
//!
//! Tests feed walks late and torn by a driver of their own. The simulator's
//! fabric does that to the remote driver as it stands.
//!
//! What a driver keeps true:
//! * a walk is fed exactly what it wants, in any order, each at most once;
//! * a node is fed with a proof that fits how it was fetched;
//! * a driver never reads a *head*: what a walk begins under, such as a table's
//!   shape or a tree's header. When the walk says [`Step::Restart`] the driver
//!   stops, and its caller reads the head and calls [`Walk::restart`].

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
    /// How many; the range lies in the region, as far as the walk knows its size.
    pub bytes: usize,
    /// How the bytes are validated.
    pub what: What,
    /// The walk's own: it comes back with the bytes.
    pub tag: T,
}

impl<T> Want<T> {
    /// Whether it is a node below which there are others.
    pub(crate) fn is_inner(&self) -> bool {
        matches!(self.what, What::Node { level, .. } if level > 0)
    }
}

/// Most bytes of words that are read beside others.
pub const BESIDE_BYTES: usize = VERSIONED_BYTES;

/// How bytes are validated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Each word stands alone, and is proved by what it leads to.
    Words,
    /// At most [`BESIDE_BYTES`] of such words, which are read in the batch of the
    /// next want, before it, and cost no round trip of their own.
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

/// What a walk says after it was fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<F, R> {
    /// Feed it what it wants, or what is on its way.
    More,
    /// It is finished.
    Found(F),
    /// What it began under is old: call [`Walk::restart`] with what it is now.
    Restart,
    /// Ask the owner.
    Ask(R),
}

/// Why a driver stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End<F, R> {
    /// The walk is finished.
    Found(F),
    /// What the walk began under is old: read it, and call [`Walk::restart`].
    Restart,
    /// A cached node has changed: call [`Walk::restart`], under the same head.
    Stale,
    /// The walk would cost more than it may.
    Beyond,
    /// Ask the owner.
    Ask(R),
}

impl<F, R> Step<F, R> {
    /// Why a driver stops after this step; `None`: it goes on.
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

/// A search that names what it wants, is fed, and yields.
///
/// Every walk is bounded: it restarts, retries and wants a bounded number of
/// times, whatever it is fed.
pub trait Walk {
    /// What it ends with. Ranges in it are of the bytes that were fed last.
    type Found;
    /// Why its owner is to be asked.
    type Reason;
    /// What it marks its wants with.
    type Tag: Copy;
    /// What it begins under.
    type Head;

    /// For a want that does not lie in the region.
    const OUT_OF_REGION: Self::Reason;

    /// The next want, until there is none. All of them may be fetched at the
    /// same time.
    fn next_want(&mut self) -> Option<Want<Self::Tag>>;

    /// Takes the bytes that were wanted. `proof` counts for nodes.
    fn feed(
        &mut self,
        want: Want<Self::Tag>,
        bytes: &[u8],
        proof: Proof,
    ) -> Step<Self::Found, Self::Reason>;

    /// Begins again under a head that was read after [`Step::Restart`]. What
    /// was wanted before may still be fed; it counts for nothing.
    ///
    /// # Errors
    /// It has begun too often.
    fn restart(&mut self, head: &Self::Head) -> Result<(), Self::Reason>;

    /// Fetches without a result so far, and restarts.
    fn retries(&self) -> u32;

    /// Results so far, for walks that gather many.
    fn results(&self) -> usize {
        0
    }

    /// Nodes of the present beginning that passed every check.
    fn believed(&self) -> u64 {
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

//! Feeds a walk from memory that this process maps.
//!
//! The driver copies words and records. Of a node it copies the used part, and loads the version
//! afterwards; the version proves the copy, so the walk computes no checksum. The owner's own
//! thread reads a node in place.

use crate::{End, Memory, Proof, Step, Walk, Want, What};
use remora_layout::limits::{READ_SEARCH_NODE_BYTES, READ_SEARCH_OBJECTS, SEARCH_TURN_NODES};
use remora_layout::node::{NodeRef, VERSIONED_BYTES, is_version, version_of, word};

/// Limits of a walk's cost, over all its restarts. The nodes that it meets may be forged: a client
/// that can read an arena knows the secret of its checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkLimits {
    /// Nodes fetched, those without a result too.
    pub nodes: u64,
    /// Bytes of these nodes, at full length.
    pub node_bytes: usize,
    /// Results; the last node may bring more.
    pub objects: usize,
}

impl WalkLimits {
    /// For a thread that serves others too: one turn of that thread.
    pub const ONE_TURN: Self = Self {
        nodes: SEARCH_TURN_NODES,
        node_bytes: READ_SEARCH_NODE_BYTES,
        objects: READ_SEARCH_OBJECTS,
    };

    /// For a thread of its own, over nodes that no client forges: the bounds of every walk (limits
    /// `WALK_RESTARTS`, `WALK_RETRIES`, the region).
    pub const REGION: Self = Self { nodes: u64::MAX, node_bytes: usize::MAX, objects: usize::MAX };
}

/// Observes a driver, and may stop it.
pub trait Watch {
    /// Whether one more want of `bytes` may be fetched, after `results`.
    fn admits(&mut self, bytes: usize, results: usize) -> bool;

    /// The driver fed a node that had this version; `brought` says whether it brought results.
    fn fed_node(&mut self, at: NodeRef, level: u8, version: u64, brought: bool);
}

/// For walks that are short by themselves.
pub struct Unwatched;

impl Watch for Unwatched {
    #[inline(always)]
    fn admits(&mut self, _: usize, _: usize) -> bool {
        true
    }

    #[inline(always)]
    fn fed_node(&mut self, _: NodeRef, _: u8, _: u64, _: bool) {}
}

/// Enforces limits, and keeps the leaves that brought results, so that the caller can check them
/// again.
pub struct Watched {
    limits: WalkLimits,
    nodes: u64,
    node_bytes: usize,
    leaves: Vec<(NodeRef, u64)>,
}

impl Default for Watched {
    /// The driver has fetched nothing yet, and there are no limits.
    fn default() -> Self {
        Self { limits: WalkLimits::REGION, nodes: 0, node_bytes: 0, leaves: Vec::new() }
    }
}

impl Watched {
    /// From now on the limits apply to earlier and later fetches together.
    pub fn limit(&mut self, limits: WalkLimits) {
        self.limits = limits;
    }

    /// Call it when the walk restarts: its results are discarded.
    pub fn restart(&mut self) {
        self.leaves.clear();
    }

    /// Whether every leaf that brought results is unchanged since the driver fed it.
    pub fn leaves_stand(&self, memory: &impl Memory) -> bool {
        let mut head = [0; VERSIONED_BYTES];
        self.leaves.iter().all(|&(at, version)| {
            memory.fetch_after(at.offset() as u64, &mut head) && is_version(&head, at, version)
        })
    }
}

impl Watch for Watched {
    fn admits(&mut self, bytes: usize, results: usize) -> bool {
        let Self { limits, nodes, node_bytes, .. } = self;
        *node_bytes = node_bytes.saturating_add(bytes);
        let admits =
            *nodes < limits.nodes && *node_bytes <= limits.node_bytes && results <= limits.objects;
        *nodes += u64::from(admits);
        admits
    }

    fn fed_node(&mut self, at: NodeRef, level: u8, version: u64, brought: bool) {
        if level == 0 && brought {
            self.leaves.push((at, version));
        }
    }
}

/// Feeds a walk until it ends, or `watch` stops it ([`End::Beyond`]). It grows `scratch` as needed;
/// `scratch` holds the bytes that it fed last, unless the memory lent them, which it does only for
/// nodes.
#[inline(always)]
pub fn run<W: Walk>(
    walk: &mut W,
    memory: &impl Memory,
    watch: &mut impl Watch,
    scratch: &mut Vec<u8>,
) -> End<W::Found, W::Reason> {
    // Bounded as every walk is.
    while let Some(want) = walk.next_want() {
        let results = walk.results();
        if !watch.admits(want.bytes, results) {
            return End::Beyond;
        }
        let Some((bytes, proof)) = fetch(walk, memory, &want, scratch) else {
            return End::Ask(W::OUT_OF_REGION);
        };
        let step = walk.feed(want, bytes, proof);
        if let What::Node { at, level } = want.what
            && let Proof::VersionAfter(version) = proof
        {
            // The end removes duplicates: there may be fewer results than before.
            let brought = walk.results() > results || matches!(step, Step::Found(_));
            watch.fed_node(at, level, version, brought);
        }
        match step.end() {
            Some(end) => return end,
            None => walk.each_new_want(|offset, bytes| memory.prefetch(offset, bytes)),
        }
    }
    // The walk wants nothing, and has not ended.
    End::Ask(W::OUT_OF_REGION)
}

/// The wanted bytes, in `scratch` or in place, and their proof.
#[inline(always)]
fn fetch<'a, W: Walk>(
    walk: &W,
    memory: &'a impl Memory,
    want: &Want<W::Tag>,
    scratch: &'a mut Vec<u8>,
) -> Option<(&'a [u8], Proof)> {
    let is_node = matches!(want.what, What::Node { .. });
    if is_node && let Some(node) = memory.borrow(want.offset, want.bytes) {
        return Some((node, Proof::VersionAfter(version_of(node))));
    }
    if scratch.len() < want.bytes {
        scratch.resize(want.bytes, 0);
    }
    if !is_node {
        let bytes = &mut scratch[..want.bytes];
        return memory.fetch(want.offset, bytes).then_some((&*bytes, Proof::Checksum));
    }
    // If the owner is changing the shape, the version check fails.
    let mut shape = [0; 8];
    memory.fetch(want.offset + 8 * word::SHAPE as u64, &mut shape).then_some(())?;
    let bytes = walk.bytes_in_use(want, u64::from_le_bytes(shape)).min(want.bytes);
    let version = memory.fetch_versioned(want.offset, &mut scratch[..bytes])?;
    Some((&scratch[..bytes], Proof::VersionAfter(version)))
}

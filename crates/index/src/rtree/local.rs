//! Walks over memory that this process maps, and what they can say of it
//! afterwards.

use super::walk::{AskReason, Query, Step, Walk};
use crate::memory::Memory;
use remora_layout::limits::WALK_RETRIES;
use remora_layout::node::{
    Home, NodeRef, NotANode, Proof, VERSIONED_BYTES, is_live, is_version, node_bytes, word,
};
use remora_layout::plant::{Plant, planted};
use remora_layout::tree::{TREE_HEADER_BYTES, TreeHeader, verify_header};

/// Nodes between two looks at what a walk has cost.
const STEP: u64 = 8;

/// Reads a tree's header from memory that this process maps.
pub fn read_header(memory: &impl Memory, home: Home, at: NodeRef) -> Result<TreeHeader, NotANode> {
    let mut bytes = [0; TREE_HEADER_BYTES];
    if !memory.fetch(at.offset() as u64, &mut bytes) {
        return Err(NotANode::Dead);
    }
    verify_header(&bytes, home, at, Proof::Checksum)
}

/// A walk over memory that this process maps: another thread of the server, or
/// a client on the same host. It can pause.
pub struct LocalWalk<M> {
    walk: Walk,
    memory: M,
    home: Home,
    at: NodeRef,
    /// Leaves that brought results, and their versions.
    leaves: Vec<(NodeRef, u64)>,
}

impl<M: Memory> LocalWalk<M> {
    /// Reads the header of the tree at `at`, and begins. `query` is a checked
    /// one.
    pub fn begin(memory: M, home: Home, at: NodeRef, query: Query) -> Result<Self, AskReason> {
        let header = settled_header(&memory, home, at)?;
        let walk = Walk::begin(query, home, header, memory.bytes() as u64);
        Ok(Self { walk, memory, home, at, leaves: Vec::new() })
    }

    /// Goes on over at most so many nodes; true at the end. `scratch` is grown
    /// as needed.
    pub fn run(&mut self, most_nodes: u64, scratch: &mut Vec<u8>) -> Result<bool, AskReason> {
        for _ in 0..most_nodes {
            let Some(want) = self.walk.next_want() else { return Ok(true) };
            let (known, found) = (self.walk.waiting.len(), self.walk.results().len());
            let Some((version, bytes)) = self.fetch_node(want.at, scratch) else {
                return Err(AskReason::Broken);
            };
            let step = self.walk.feed(want, &scratch[..bytes], Proof::VersionAfter(version));
            // The end takes doubles away: there may be fewer than before.
            let brought = self.walk.results().len() > found || matches!(step, Step::Done);
            if want.level == 0 && brought {
                self.leaves.push((want.at, version));
            }
            match step {
                Step::More => {
                    let bytes = self.walk.node_bytes();
                    for &(at, _) in self.walk.waiting.iter().skip(known) {
                        self.memory.prefetch(at.offset() as u64, bytes);
                    }
                }
                Step::Done => return Ok(true),
                Step::Again => {
                    let header = settled_header(&self.memory, self.home, self.at)?;
                    self.walk.restart(header)?;
                    self.leaves.clear();
                }
                Step::Ask(reason) => return Err(reason),
            }
        }
        Ok(false)
    }

    /// Goes on to the end. False, before the end, once more than so many bytes of
    /// nodes were fetched, or more than so many objects were found.
    pub fn run_within(
        &mut self,
        most_node_bytes: usize,
        most_objects: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, AskReason> {
        let most_nodes = (most_node_bytes / self.walk.node_bytes()) as u64;
        loop {
            let ended = self.run(STEP, scratch)?;
            if self.walk.results().len() > most_objects || self.walk.fetched() > most_nodes {
                return Ok(false);
            }
            if ended {
                return Ok(true);
            }
        }
    }

    /// Copies as much of a node as is in use: its version afterwards, and bytes.
    fn fetch_node(&self, at: NodeRef, scratch: &mut Vec<u8>) -> Option<(u64, usize)> {
        let offset = at.offset() as u64;
        // A shape that is being changed fails with the version.
        let mut shape = [0; 8];
        self.memory.fetch(offset + 8 * word::SHAPE as u64, &mut shape).then_some(())?;
        let most = self.walk.node_bytes();
        let bytes = node_bytes(u16::from_le_bytes([shape[0], shape[1]]).into()).min(most);
        if scratch.len() < most {
            scratch.resize(most, 0);
        }
        let version = self.memory.fetch_versioned(offset, &mut scratch[..bytes])?;
        Some((version, bytes))
    }

    /// Whether the tree is still there, and every leaf that brought results as
    /// it was when it was read. What was fetched between that and this call of
    /// what objects lead to was theirs, if their owner frees it only after it has
    /// taken the object out of the tree, and a whole tree's after [`Tree::hide`].
    ///
    /// [`Tree::hide`]: super::Tree::hide
    pub fn stands(&self) -> bool {
        let mut head = [0; VERSIONED_BYTES];
        let mut look = |at: NodeRef, fits: &dyn Fn(&[u8]) -> bool| {
            self.memory.fetch_after(at.offset() as u64, &mut head) && fits(&head)
        };
        // The header may be changing: objects may leave other leaves.
        let mut leaves = self.leaves.iter();
        leaves.all(|&(at, version)| look(at, &|head| is_version(head, at, version)))
            && look(self.at, &|head| is_live(head, self.at))
            || planted(Plant::LeavesUnchecked)
    }

    /// The walk: what it found, and what that cost.
    pub fn walk(&self) -> &Walk {
        &self.walk
    }
}

/// Runs a walk over memory that this process maps, to its end.
pub fn walk_locally(
    memory: &impl Memory,
    home: Home,
    at: NodeRef,
    query: Query,
    scratch: &mut Vec<u8>,
) -> Result<Walk, AskReason> {
    let mut local = LocalWalk::begin(memory, home, at, query)?;
    // Bounded: every walk is (limits WALK_RESTARTS, WALK_RETRIES, the region).
    while !local.run(u64::MAX, scratch)? {}
    Ok(local.walk)
}

fn settled_header(memory: &impl Memory, home: Home, at: NodeRef) -> Result<TreeHeader, AskReason> {
    for _ in 0..=WALK_RETRIES {
        match read_header(memory, home, at) {
            Ok(header) => return Ok(header),
            Err(NotANode::Torn) => std::hint::spin_loop(),
            Err(NotANode::Dead) => return Err(AskReason::Broken),
        }
    }
    Err(AskReason::TooManyRetries)
}

//! Walks over memory that this process maps, and their validation afterwards.
//!
//! A walk accepts a node by its version, without its checksum. That is enough only while the tree
//! exists: after that the place may hold bytes that a client chose, and a client can guess
//! guardians and versions. So every walk, after its last node, checks the header with its checksum
//! once more. A tree frees its memory only after its header is dead, so then all nodes were its
//! own.

use super::walk::{AskReason, Query, Search};
use remora_layout::arena_header::{durable_of, word as arena};
use remora_layout::limits::{WALK_RETRIES, WORD_BYTES};
use remora_layout::node::{Home, NodeRef, NotANode, Proof};
use remora_layout::record::{ROOT_WORDS_BYTES, Reject, verify_root_words};
use remora_layout::tree::{RootPlace, TREE_HEADER_BYTES, TreeHeader, verify_header};
use remora_walk::local::{self, WalkLimits, Watched};
use remora_walk::{End, Memory, Walk};

/// Reads a tree's header from memory that this process maps, after everything
/// that was read before.
pub fn read_header(memory: &impl Memory, home: Home, at: NodeRef) -> Result<TreeHeader, NotANode> {
    let mut bytes = [0; TREE_HEADER_BYTES];
    if !memory.fetch_after(at.offset() as u64, &mut bytes) {
        return Err(NotANode::Dead);
    }
    verify_header(&bytes, home, at, Proof::Checksum)
}

/// A search of a tree in memory that this process maps: a thread of the server, another one or the
/// owner's, or a client on the same host.
pub struct LocalWalk<M> {
    walk: Search,
    memory: M,
    home: Home,
    at: NodeRef,
    /// The root record's place and the time, where the tree is a key's.
    key: Option<(RootPlace, u64)>,
    watched: Watched,
}

impl<M: Memory> LocalWalk<M> {
    /// Reads the header of the tree at `at`, and begins. `query` is a checked
    /// one.
    pub fn begin(memory: M, home: Home, at: NodeRef, query: Query) -> Result<Self, AskReason> {
        let header = settled_header(&memory, home, at)?;
        let mut walk = Search::begin(query, home, header, memory.bytes() as u64);
        let mut durable = [0; WORD_BYTES];
        if memory.fetch((WORD_BYTES * arena::DURABLE) as u64, &mut durable) {
            walk.set_durable(durable_of(u64::from_le_bytes(durable)));
        }
        Ok(Self { walk, memory, home, at, key: None, watched: Watched::default() })
    }

    /// As [`LocalWalk::begin`], of the tree of a key: what is found counts only if its
    /// root record is live, and has not expired by `now_ms`, Unix ms.
    pub fn begin_at(
        memory: M,
        home: Home,
        (root, now_ms): (RootPlace, u64),
        query: Query,
    ) -> Result<Self, AskReason> {
        let walk = Self::begin(memory, home, root.at, query)?;
        Ok(Self { key: Some((root, now_ms)), ..walk })
    }

    /// Walks to the end. False, before the end, once the walk would cost more than `limits` allow.
    /// It grows `scratch` as needed.
    ///
    /// # Errors
    /// Why the caller has to ask the owner. The results so far are then invalid, as they are before
    /// the end.
    pub fn run_within(
        &mut self,
        limits: &WalkLimits,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, AskReason> {
        let Self { walk, memory, watched, .. } = self;
        watched.limit(*limits);
        // Bounded: a walk begins again a bounded number of times.
        loop {
            match local::run(walk, &*memory, watched, scratch) {
                End::Found(()) => break,
                End::Beyond => return Ok(false),
                End::Ask(reason) => return Err(reason),
                End::Restart | End::Stale => {
                    walk.restart(&settled_header(&*memory, self.home, self.at)?)?;
                    watched.restart();
                }
            }
        }
        self.settle()?;
        Ok(self.walk.results().len() <= limits.objects)
    }

    /// Whether the tree still exists, and every leaf that brought results is unchanged since the
    /// walk read it. Then bytes fetched in between from locations that objects name were theirs, if
    /// their owner frees those bytes only after it has removed the object from the tree, and a
    /// whole tree's after its header is dead.
    pub fn stands(&self) -> bool {
        // The header may have changed: objects may leave other leaves. It comes
        // last, as it says that the leaves were the tree's own.
        self.watched.leaves_stand(&self.memory) && self.settle().is_ok()
    }

    /// Whether the nodes read before belong to an existing tree, and may be shown.
    fn settle(&self) -> Result<(), AskReason> {
        if let Some((root, now_ms)) = self.key {
            let mut words = [0; ROOT_WORDS_BYTES];
            if !self.memory.fetch_after(root.words_at(), &mut words) {
                return Err(AskReason::Broken);
            }
            match verify_root_words(&words, root.at.generation) {
                Ok(root) if root.has_expired(now_ms) => return Err(AskReason::Expired),
                Ok(_) => {}
                Err(Reject::Pending | Reject::AskOnly) => return Err(AskReason::Pending),
                Err(_) => return Err(AskReason::Broken),
            }
        }
        // Last: it says that the root record's words were its own, too.
        settled_header(&self.memory, self.home, self.at).map(drop)
    }

    /// The search: what it found, and what that cost.
    pub fn walk(&self) -> &Search {
        &self.walk
    }

    /// As [`LocalWalk::walk`], to be kept.
    pub fn into_walk(self) -> Search {
        self.walk
    }
}

/// Searches a tree in memory that this process maps, to the end.
pub fn walk_locally(
    memory: &impl Memory,
    home: Home,
    at: NodeRef,
    query: Query,
    scratch: &mut Vec<u8>,
) -> Result<Search, AskReason> {
    let mut local = LocalWalk::begin(memory, home, at, query)?;
    let is_whole = local.run_within(&WalkLimits::REGION, scratch)?;
    is_whole.then_some(local.walk).ok_or(AskReason::Broken)
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

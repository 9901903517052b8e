//! A session's view of one tree.

use super::records::Records;
use crate::choose::Classes;
use remora_layout::tree::{RootPlace, TreeHeader};
use remora_walk::remote::NodeCache;

/// How a client issues READs of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Issue {
    /// One READ at a time (C20).
    Single,
    /// READs of all wanted nodes, each handled when it completes (C23).
    #[default]
    Multi,
}

/// How a client reads a tree, and what it caches of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeRead {
    /// How many READs at a time.
    pub issue: Issue,
    /// Bytes of inner nodes kept between searches, the top levels first.
    pub cache_bytes: usize,
}

impl Default for TreeRead {
    fn default() -> Self {
        Self { issue: Issue::Multi, cache_bytes: 1 << 20 }
    }
}

/// Events of a tree's searches by READs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TreeEvents {
    /// A search restarted because entries had left a node.
    pub began_again: u64,
    /// A search restarted because a cached node had changed.
    pub stale_kept: u64,
    /// The owner changed a node or the header during the READ.
    pub torn: u64,
    /// The tree's header had gone: the session asked where the tree lies.
    pub header_gone: u64,
}

/// A session's view of one tree: where it lies, and its top levels.
#[derive(Debug)]
pub struct OpenTree {
    pub(super) name: Box<[u8]>,
    pub(super) shard: usize,
    pub(super) root: RootPlace,
    /// As it was read last.
    pub(super) header: Option<TreeHeader>,
    pub(super) reading: TreeRead,
    pub(super) node_cache: NodeCache,
    /// Known locations of its objects' records.
    pub(super) records: Records,
    pub(super) events: TreeEvents,
    /// What its searches cost.
    pub(super) classes: Classes,
}

impl OpenTree {
    /// A view of the tree of this name in this shard.
    pub(super) fn new(name: &[u8], shard: usize, root: RootPlace) -> Self {
        let reading = TreeRead::default();
        Self {
            name: name.into(),
            shard,
            root,
            header: None,
            reading,
            node_cache: NodeCache::new(reading.cache_bytes),
            records: Records::default(),
            events: TreeEvents::default(),
            classes: Classes::default(),
        }
    }

    /// How it is read from now on.
    #[must_use]
    pub fn reading(self, reading: TreeRead) -> Self {
        Self { reading, node_cache: NodeCache::new(reading.cache_bytes), ..self }
    }

    /// The tree's name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What has happened to its searches by READs.
    pub fn events(&self) -> TreeEvents {
        self.events
    }

    /// Bytes of inner nodes that are kept now.
    pub fn cache_bytes(&self) -> usize {
        self.node_cache.bytes()
    }
}

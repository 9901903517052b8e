//! The top levels of trees, cached by a reader: inner nodes only, as many as fit a number of bytes,
//! higher levels first.
//!
//! A cached node proves nothing by itself: a walk that uses it reads the node's first two words,
//! guardian and version, again in the same batch as the nodes below. If the words are unchanged
//! since the node was read, the node has not changed in between, and is as good as if the walk had
//! read it now.

use remora_layout::node::{NodeRef, VERSIONED_BYTES};
use std::collections::BTreeMap;

/// One node as it was read, with its first words.
#[derive(Debug)]
struct Kept {
    level: u8,
    version: u64,
    bytes: Box<[u8]>,
}

/// The version that a node's bytes name.
pub(super) fn version_of(bytes: &[u8]) -> u64 {
    let word = &bytes[VERSIONED_BYTES - 8..VERSIONED_BYTES];
    u64::from_le_bytes(word.try_into().expect("eight bytes"))
}

/// The cached nodes.
#[derive(Debug)]
pub struct NodeCache {
    most_bytes: usize,
    bytes: usize,
    nodes: BTreeMap<NodeRef, Kept>,
    /// The nodes of each level: the cache evicts lower levels first.
    by_level: BTreeMap<u8, Vec<NodeRef>>,
}

impl NodeCache {
    /// An empty cache.
    pub fn new(most_bytes: usize) -> Self {
        Self { most_bytes, bytes: 0, nodes: BTreeMap::new(), by_level: BTreeMap::new() }
    }

    /// Bytes of the cached nodes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A node with its version, if it is cached.
    pub fn get(&self, at: NodeRef) -> Option<(u64, &[u8])> {
        self.nodes.get(&at).map(|kept| (kept.version, &kept.bytes[..]))
    }

    /// Caches a node that has passed every check, if it is an inner one and there is room, or
    /// evicting lower ones makes room.
    pub fn keep(&mut self, at: NodeRef, level: u8, bytes: &[u8]) {
        if level == 0 || bytes.len() > self.most_bytes || bytes.len() < VERSIONED_BYTES {
            return;
        }
        let version = version_of(bytes);
        if let Some(kept) = self.nodes.get_mut(&at) {
            if kept.bytes.len() == bytes.len() {
                kept.version = version;
                kept.bytes.copy_from_slice(bytes);
                return;
            }
            // No honest node changes its length.
            self.forget(at);
        }
        // Bounded: each turn takes a node away.
        while self.bytes + bytes.len() > self.most_bytes {
            let Some((lowest, nodes)) = self.by_level.iter_mut().next() else { return };
            let Some(&victim) = nodes.last().filter(|_| *lowest < level) else { return };
            self.forget(victim);
        }
        self.bytes += bytes.len();
        self.nodes.insert(at, Kept { level, version, bytes: bytes.into() });
        self.by_level.entry(level).or_default().push(at);
    }

    /// Forgets a node that has changed.
    pub fn forget(&mut self, at: NodeRef) {
        let Some(Kept { level, bytes, .. }) = self.nodes.remove(&at) else { return };
        self.bytes -= bytes.len();
        if let Some(nodes) = self.by_level.get_mut(&level) {
            nodes.retain(|node| *node != at);
            if nodes.is_empty() {
                self.by_level.remove(&level);
            }
        }
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Self::new(self.most_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(slot: u32) -> NodeRef {
        NodeRef { slot, generation: 1 }
    }

    #[test]
    fn higher_levels_come_first_and_leaves_never() {
        let mut cache = NodeCache::new(300);
        cache.keep(at(1), 0, &[0; 100]);
        assert_eq!(cache.bytes(), 0);
        for slot in 2..=5 {
            cache.keep(at(slot), 1, &[1; 100]);
        }
        assert!((2..=4).all(|slot| cache.get(at(slot)).is_some()) && cache.get(at(5)).is_none());
        cache.keep(at(6), 2, &[2; 100]);
        cache.keep(at(7), 3, &[3; 100]);
        assert_eq!(cache.bytes(), 300);
        assert!(cache.get(at(6)).is_some() && cache.get(at(7)).is_some());
        assert!(cache.get(at(2)).is_some() && cache.get(at(3)).is_none());
        cache.forget(at(2));
        cache.forget(at(2));
        assert_eq!(cache.bytes(), 200);
        cache.keep(at(8), 1, &[1; 400]);
        cache.keep(at(6), 2, &[9; 100]);
        assert_eq!(
            (cache.bytes(), cache.get(at(6)).unwrap().1[0]),
            (200, 9),
            "as it was read last"
        );
        cache.clear();
        assert_eq!((cache.bytes(), cache.get(at(6))), (0, None));
    }
}

//! Nodes of a tree that a reader caches: inner ones only, as many as fit a number of bytes. Higher
//! levels come first, unless the reader has chosen the nodes by how often it visits them
//! ([`NodeCache::choose`]).
//!
//! A cached node proves nothing by itself. A walk that concludes from it reads the node's first two
//! words, guardian and version, again in the same batch as the nodes below. If the words are
//! unchanged since the node was read, the node has not changed in between, and is as good as if the
//! walk had read it now. For a walk that concludes from leaves alone a cached node is a hint
//! ([`crate::Walk::NEEDS_INNER_NODES`]).

use remora_layout::node::{NodeRef, VERSIONED_BYTES};
use std::collections::{BTreeMap, BTreeSet};

/// One node as it was read, with its first words.
#[derive(Debug)]
struct Kept {
    level: u8,
    version: u64,
    /// How often it was visited, if that is counted.
    visits: u32,
    bytes: Box<[u8]>,
}

/// The version that a node's bytes name.
pub(super) fn version_of(bytes: &[u8]) -> u64 {
    let word = &bytes[VERSIONED_BYTES - 8..VERSIONED_BYTES];
    u64::from_le_bytes(word.try_into().expect("eight bytes"))
}

/// How often inner nodes were visited that are not cached.
#[derive(Debug)]
struct Others {
    /// Nodes that are counted at a time.
    most: usize,
    visits: BTreeMap<NodeRef, u32>,
}

impl Others {
    fn count(&mut self, at: NodeRef, visits: u32) {
        if let Some(so_far) = self.visits.get_mut(&at) {
            *so_far = so_far.saturating_add(visits);
            return;
        }
        // Bounded: every turn halves all counts.
        while self.visits.len() >= self.most {
            self.halve();
        }
        self.visits.insert(at, visits);
    }

    fn halve(&mut self) {
        self.visits.retain(|_, visits| {
            *visits /= 2;
            *visits > 0
        });
    }
}

/// The cached nodes.
#[derive(Debug)]
pub struct NodeCache {
    most_bytes: usize,
    bytes: usize,
    nodes: BTreeMap<NodeRef, Kept>,
    /// The nodes of each level: the cache evicts lower levels first.
    by_level: BTreeMap<u8, BTreeSet<NodeRef>>,
    /// None: visits are not counted.
    others: Option<Others>,
    /// None: any node may be cached.
    choice: Option<Choice>,
}

/// The nodes that are to be cached.
#[derive(Debug)]
struct Choice {
    nodes: BTreeSet<NodeRef>,
    /// Bytes for others beside, and those that they take.
    spare_bytes: usize,
    spared_bytes: usize,
}

impl NodeCache {
    /// An empty cache.
    pub fn new(most_bytes: usize) -> Self {
        let (nodes, by_level) = (BTreeMap::new(), BTreeMap::new());
        Self { most_bytes, bytes: 0, nodes, by_level, others: None, choice: None }
    }

    /// An empty cache that counts how often inner nodes are visited: the cached ones, and so many
    /// others, at least one, at a time. When there are more, their counts are halved, and those of 0
    /// forgotten.
    pub fn counting(most_bytes: usize, most_others: usize) -> Self {
        let others = Others { most: most_others.max(1), visits: BTreeMap::new() };
        Self { others: Some(others), ..Self::new(most_bytes) }
    }

    /// Counts no more visits, and goes on with what was chosen.
    pub fn stop_counting(&mut self) {
        self.others = None;
    }

    /// How often an inner node was visited, if that is counted.
    pub fn visits(&self, at: NodeRef) -> u32 {
        let other = || self.others.as_ref()?.visits.get(&at).copied();
        self.nodes.get(&at).map(|kept| kept.visits).or_else(other).unwrap_or(0)
    }

    /// Caches these nodes from now on, as they are read, and others only in so many bytes beside. Halves
    /// the counts, so that later visits weigh more than those before.
    pub fn choose(&mut self, nodes: BTreeSet<NodeRef>, spare_bytes: usize) {
        self.choice = None;
        let dropped: Vec<NodeRef> =
            self.nodes.keys().filter(|at| !nodes.contains(at)).copied().collect();
        for at in dropped {
            self.forget(at);
        }
        for kept in self.nodes.values_mut() {
            kept.visits /= 2;
        }
        if let Some(others) = &mut self.others {
            others.halve();
        }
        self.choice = Some(Choice { nodes, spare_bytes, spared_bytes: 0 });
    }

    /// Bytes of the cached nodes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many nodes are cached.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether none is cached.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Most bytes of the cached nodes.
    pub fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// A node as it was read, if it is cached.
    pub fn node(&self, at: NodeRef) -> Option<&[u8]> {
        self.nodes.get(&at).map(|kept| &kept.bytes[..])
    }

    /// A node with its version, if it is cached. That is a visit.
    pub(super) fn visit(&mut self, at: NodeRef) -> Option<(u64, &[u8])> {
        let kept = self.nodes.get_mut(&at)?;
        kept.visits = kept.visits.saturating_add(1);
        Some((kept.version, &kept.bytes))
    }

    /// Caches a node that was read and has passed every check, if it is an inner one and may be
    /// cached, and there is room, or evicting lower ones makes room. That is a visit.
    pub fn keep(&mut self, at: NodeRef, level: u8, bytes: &[u8]) {
        if level == 0 || bytes.len() < VERSIONED_BYTES {
            return;
        }
        if let Some(others) = &mut self.others {
            others.count(at, 1);
        }
        if bytes.len() > self.most_bytes {
            return;
        }
        self.forget(at);
        if let Some(choice) = self.choice.as_ref().filter(|choice| !choice.nodes.contains(&at))
            && choice.spared_bytes + bytes.len() > choice.spare_bytes
        {
            return;
        }
        // Bounded: each turn takes a node away.
        while self.bytes + bytes.len() > self.most_bytes {
            let Some((lowest, nodes)) = self.by_level.iter_mut().next() else { return };
            let Some(&victim) = nodes.last().filter(|_| *lowest < level) else { return };
            self.forget(victim);
        }
        let visits = self.others.as_mut().and_then(|others| others.visits.remove(&at));
        let (version, visits) = (version_of(bytes), visits.unwrap_or(0));
        self.bytes += bytes.len();
        self.spare(at, |spared| spared + bytes.len());
        self.nodes.insert(at, Kept { level, version, visits, bytes: bytes.into() });
        self.by_level.entry(level).or_default().insert(at);
    }

    /// Counts the bytes of a node that was not chosen.
    fn spare(&mut self, at: NodeRef, change: impl FnOnce(usize) -> usize) {
        if let Some(choice) = self.choice.as_mut().filter(|choice| !choice.nodes.contains(&at)) {
            choice.spared_bytes = change(choice.spared_bytes);
        }
    }

    /// Forgets a node that has changed; its visits count on.
    pub fn forget(&mut self, at: NodeRef) {
        let Some(Kept { level, bytes, visits, .. }) = self.nodes.remove(&at) else { return };
        self.bytes -= bytes.len();
        self.spare(at, |spared| spared - bytes.len());
        if let Some(nodes) = self.by_level.get_mut(&level) {
            nodes.remove(&at);
            if nodes.is_empty() {
                self.by_level.remove(&level);
            }
        }
        if let Some(others) = self.others.as_mut().filter(|_| visits > 0) {
            others.count(at, visits);
        }
    }

    /// Forgets all of them, their counts and what was chosen.
    pub fn clear(&mut self) {
        *self = match &self.others {
            Some(others) => Self::counting(self.most_bytes, others.most),
            None => Self::new(self.most_bytes),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(slot: u32) -> NodeRef {
        NodeRef { slot, generation: 1 }
    }

    #[test]
    fn chosen_nodes_have_their_room_and_others_what_is_spare() {
        let mut cache = NodeCache::counting(1_000, 10);
        for slot in 1..=5 {
            cache.keep(at(slot), 1, &[1; 100]);
        }
        assert!(cache.visit(at(2)).is_some());
        assert_eq!((cache.visits(at(1)), cache.visits(at(2))), (1, 2));
        cache.choose(BTreeSet::from([at(2), at(9)]), 150);
        assert_eq!((cache.len(), cache.visits(at(1)), cache.visits(at(2))), (1, 0, 1));
        for slot in 3..=6 {
            cache.keep(at(slot), 1, &[1; 100]);
        }
        assert!(cache.node(at(3)).is_some() && cache.node(at(4)).is_none(), "one has room");
        cache.keep(at(9), 1, &[1; 100]);
        assert!(cache.node(at(9)).is_some(), "it was chosen");
        cache.forget(at(3));
        cache.keep(at(4), 1, &[1; 100]);
        assert!(cache.node(at(4)).is_some() && cache.bytes() == 300);
        assert_eq!(cache.visits(at(3)), 1, "they count on");
    }

    #[test]
    fn higher_levels_come_first_and_leaves_never() {
        let mut cache = NodeCache::new(300);
        cache.keep(at(1), 0, &[0; 100]);
        assert_eq!(cache.bytes(), 0);
        for slot in 2..=5 {
            cache.keep(at(slot), 1, &[1; 100]);
        }
        assert!((2..=4).all(|slot| cache.node(at(slot)).is_some()) && cache.node(at(5)).is_none());
        cache.keep(at(6), 2, &[2; 100]);
        cache.keep(at(7), 3, &[3; 100]);
        assert_eq!(cache.bytes(), 300);
        assert!(cache.node(at(6)).is_some() && cache.node(at(7)).is_some());
        assert!(cache.node(at(2)).is_some() && cache.node(at(3)).is_none());
        cache.forget(at(2));
        cache.forget(at(2));
        assert_eq!(cache.bytes(), 200);
        cache.keep(at(8), 1, &[1; 400]);
        cache.keep(at(6), 2, &[9; 100]);
        assert_eq!((cache.bytes(), cache.node(at(6)).unwrap()[0]), (200, 9), "as it was read last");
        cache.clear();
        assert_eq!((cache.bytes(), cache.node(at(6))), (0, None));
    }
}

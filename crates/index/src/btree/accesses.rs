//! How often lookups that the owner answers come to an inner node: a sample of them, so that others
//! choose the nodes whose addresses they hold (Fat-B+Tree III-B, III-C). Readers count by themselves.
//!
//! Who owns the tree says which lookups count ([`super::Tree::note_lookup`]): the shard counts those of
//! one key, and ranges and their counts by the key at which they begin. It does not count ranks and
//! selection by rank, nor changes.

use remora_layout::limits::{ACCESS_HALVING_SAMPLES, ACCESS_SAMPLE_LOOKUPS, MAX_ACCESS_NODES};
use remora_layout::node::NodeRef;
use std::collections::BTreeMap;

/// Samples of lookups, by inner node.
#[derive(Debug)]
pub(super) struct Accesses {
    samples: BTreeMap<NodeRef, u32>,
    /// Lookups until the next sample.
    left: u32,
    /// State of the draw of the distances between samples.
    draw: u64,
    /// Samples since the counts were halved.
    since: u32,
}

impl Default for Accesses {
    fn default() -> Self {
        let (samples, draw) = (BTreeMap::new(), 0x9e37_79b9_7f4a_7c15);
        Self { samples, left: ACCESS_SAMPLE_LOOKUPS, draw, since: 0 }
    }
}

impl Accesses {
    /// Lookups that came to a node, about.
    pub fn of(&self, at: NodeRef) -> u64 {
        let samples = self.samples.get(&at).copied().unwrap_or_default();
        u64::from(samples) * u64::from(ACCESS_SAMPLE_LOOKUPS)
    }

    /// The nodes that lookups came to, and how many.
    pub fn all(&self) -> impl Iterator<Item = (NodeRef, u64)> {
        let each = u64::from(ACCESS_SAMPLE_LOOKUPS);
        self.samples.iter().map(move |(&at, &samples)| (at, u64::from(samples) * each))
    }

    /// Forgets a node that is freed.
    pub fn forget(&mut self, at: NodeRef) {
        if !self.samples.is_empty() {
            self.samples.remove(&at);
        }
    }

    /// Bytes on the heap, about.
    pub fn heap_bytes(&self) -> u64 {
        (self.samples.len() * size_of::<(NodeRef, u32)>()) as u64
    }

    /// Draws the distance to the next sample, so that no rhythm of lookups hides some of them.
    fn begin_next(&mut self) {
        self.draw ^= self.draw << 13;
        self.draw ^= self.draw >> 7;
        self.draw ^= self.draw << 17;
        self.left = 1 + self.draw as u32 % (2 * ACCESS_SAMPLE_LOOKUPS - 1);
    }

    /// Counts a lookup. True for one of some, which counts for all of them.
    #[inline]
    pub fn is_sample(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// A sample begins: each inner node that the lookup comes to is counted next.
    pub fn begin_sample(&mut self) {
        self.begin_next();
        self.since += 1;
        if self.since >= ACCESS_HALVING_SAMPLES {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.since = 0;
        self.samples.retain(|_, samples| {
            *samples /= 2;
            *samples > 0
        });
    }

    /// Counts a node of a sample.
    pub fn count(&mut self, at: NodeRef) {
        if self.samples.len() >= MAX_ACCESS_NODES && !self.samples.contains_key(&at) {
            self.halve();
            if self.samples.len() >= MAX_ACCESS_NODES {
                return;
            }
        }
        let samples = self.samples.entry(at).or_default();
        *samples = samples.saturating_add(1);
    }
}

//! What the server tells its clients of the cluster: the topology, encoded once for each version, and
//! whether a key's slot belongs to this server's group.
//!
//! Invariants:
//! * a version and its bytes are replaced together;
//! * the slots of this group are known before the version that has them is published.

use remora_cluster::topology::{GroupId, Topology};
use remora_layout::limits::TOPOLOGY_PART_BYTES;
use remora_layout::slot::{SLOTS, slot_of};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bits of a word of the set of slots.
const WORD_BITS: usize = u64::BITS as usize;

/// See the module's text.
pub struct PublishedTopology {
    /// The published version; 0 before the first.
    version: AtomicU64,
    encoded: Mutex<Arc<[u8]>>,
    /// Whether other groups have slots, too.
    is_shared: AtomicBool,
    /// One bit for each slot: whether it belongs to this group.
    own: [AtomicU64; SLOTS / WORD_BITS],
}

impl Default for PublishedTopology {
    fn default() -> Self {
        Self {
            version: 0.into(),
            encoded: Mutex::new(Arc::new([])),
            is_shared: false.into(),
            own: [const { AtomicU64::new(0) }; SLOTS / WORD_BITS],
        }
    }
}

impl PublishedTopology {
    /// Publishes this topology. `group`: that of this server, once it is known.
    pub fn publish(&self, topology: &Topology, group: Option<GroupId>) {
        if let Some(group) = group {
            self.own_slots(topology, group);
        }
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        *encoded = topology.encode().into();
        self.version.store(topology.version, Ordering::Release);
    }

    fn own_slots(&self, topology: &Topology, group: GroupId) {
        let mut own = [0u64; SLOTS / WORD_BITS];
        for run in topology.slots().iter().filter(|run| run.group == group) {
            for slot in usize::from(run.first)..usize::from(run.first) + usize::from(run.slots) {
                own[slot / WORD_BITS] |= 1 << (slot % WORD_BITS);
            }
        }
        for (to, from) in self.own.iter().zip(own) {
            to.store(from, Ordering::Relaxed);
        }
        let is_shared = own.iter().any(|word| *word != u64::MAX);
        self.is_shared.store(is_shared, Ordering::Release);
    }

    /// The published version; 0 before the first.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A part of the encoded topology from this byte on, and its version; `None` before the first.
    pub fn part(&self, from: u32) -> Option<(u64, Arc<[u8]>)> {
        let encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.version();
        let from = (from as usize).min(encoded.len());
        let to = (from + TOPOLOGY_PART_BYTES).min(encoded.len());
        (version != 0).then(|| (version, encoded[from..to].into()))
    }

    /// Whether a key belongs to another group of the cluster.
    #[inline]
    pub fn is_elsewhere(&self, key: &[u8]) -> bool {
        self.is_shared.load(Ordering::Acquire) && !self.is_own(slot_of(key))
    }

    #[cold]
    fn is_own(&self, slot: u16) -> bool {
        let slot = usize::from(slot);
        self.own[slot / WORD_BITS].load(Ordering::Relaxed) & 1 << (slot % WORD_BITS) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(groups: u32) -> Topology {
        let groups = (1..=groups).map(|id| (GroupId(id), format!("g{id}"), 1)).collect();
        Topology::new(7, groups).expect("it is valid")
    }

    #[test]
    fn nothing_is_published_before_the_first_topology() {
        let of = PublishedTopology::default();
        assert_eq!((of.version(), of.part(0).is_none()), (0, true));
        assert!(!of.is_elsewhere(b"a"));
    }

    #[test]
    fn parts_make_the_whole_and_the_end_is_empty() {
        let of = PublishedTopology::default();
        let topology = topology(1024);
        let encoded = topology.encode();
        of.publish(&topology, Some(GroupId(1)));
        let mut bytes = Vec::new();
        loop {
            let (version, part) = of.part(bytes.len() as u32).expect("it is published");
            assert_eq!(version, 1);
            bytes.extend_from_slice(&part);
            if part.len() < TOPOLOGY_PART_BYTES {
                break;
            }
        }
        assert_eq!(bytes, encoded);
        assert!(of.part(u32::MAX).is_some_and(|(_, part)| part.is_empty()));
    }

    #[test]
    fn a_key_is_elsewhere_if_another_group_has_its_slot() {
        let of = PublishedTopology::default();
        let two = topology(2);
        of.publish(&two, Some(GroupId(2)));
        for number in 0..1000 {
            let key = format!("key:{number}");
            let group = two.group_of_slot(slot_of(key.as_bytes())).map(|of| of.id);
            assert_eq!(of.is_elsewhere(key.as_bytes()), group != Some(GroupId(2)));
        }
        of.publish(&topology(1), Some(GroupId(1)));
        assert!(!of.is_elsewhere(b"key:1"));
    }
}

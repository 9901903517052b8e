//! Addresses that others hold: a switch, or a reader that keeps nodes (Fat-B+Tree IV-B).
//!
//! A node whose address is held stays where it is and is the root of its part, with the same fences:
//! it joins no neighbour, and if it is too full it becomes deep (`plan`). Nobody holds an address any
//! more once each epoch that handed it out has been released, or its time has come. Pins are no data:
//! they lie on the heap of the owner, and end with it.

use remora_layout::limits::{MAX_HELD_ADDRESSES, MAX_HELD_EPOCHS};
use remora_layout::node::NodeRef;
use std::collections::{BTreeMap, BTreeSet};

/// The addresses that one epoch handed out.
#[derive(Debug)]
struct Epoch {
    until_ms: u64,
    nodes: BTreeSet<NodeRef>,
}

/// The held addresses of one tree.
#[derive(Default, Debug)]
pub(super) struct Pins {
    epochs: BTreeMap<u64, Epoch>,
    /// How many epochs hold an address.
    holders: BTreeMap<NodeRef, u32>,
    /// Addresses of all epochs together.
    held: usize,
}

impl Pins {
    /// Whether an address is held.
    #[inline]
    pub fn holds(&self, at: NodeRef) -> bool {
        !self.holders.is_empty() && self.holders.contains_key(&at)
    }

    /// Whether an epoch holds an address.
    pub fn is_of(&self, epoch: u64, at: NodeRef) -> bool {
        self.epochs.get(&epoch).is_some_and(|epoch| epoch.nodes.contains(&at))
    }

    /// Bytes on the heap, about.
    pub fn heap_bytes(&self) -> u64 {
        const ADDRESS_BYTES: usize = size_of::<NodeRef>() + size_of::<(NodeRef, u32)>();
        (self.held * ADDRESS_BYTES + self.epochs.len() * size_of::<(u64, Epoch)>()) as u64
    }

    /// Holds addresses under an epoch, until `until_ms` or its former time if that is later. False if
    /// more would be held than may be; then nothing has changed.
    pub fn hold(&mut self, epoch: u64, nodes: BTreeSet<NodeRef>, until_ms: u64) -> bool {
        let before = self.epochs.get(&epoch);
        let is_new = |at: &&NodeRef| before.is_none_or(|epoch| !epoch.nodes.contains(at));
        let more: Vec<NodeRef> = nodes.iter().filter(is_new).copied().collect();
        let epochs = self.epochs.len() + usize::from(before.is_none());
        if epochs > MAX_HELD_EPOCHS || self.held + more.len() > MAX_HELD_ADDRESSES {
            return false;
        }
        let empty = || Epoch { until_ms, nodes: BTreeSet::new() };
        let of = self.epochs.entry(epoch).or_insert_with(empty);
        of.until_ms = of.until_ms.max(until_ms);
        for at in more {
            of.nodes.insert(at);
            self.held += 1;
            *self.holders.entry(at).or_default() += 1;
        }
        true
    }

    /// Whether an epoch holds addresses.
    pub fn has(&self, epoch: u64) -> bool {
        self.epochs.contains_key(&epoch)
    }

    /// The epochs whose time has come.
    pub fn due(&self, now_ms: u64) -> Vec<u64> {
        let due = self.epochs.iter().filter(|(_, epoch)| epoch.until_ms <= now_ms);
        due.map(|(epoch, _)| *epoch).collect()
    }

    /// The time of the epoch that ends first; `None` if nothing is held.
    pub fn next_lapse_ms(&self) -> Option<u64> {
        self.epochs.values().map(|epoch| epoch.until_ms).min()
    }

    /// What is held.
    pub fn all(&self) -> Held {
        Held { epochs: self.epochs.len(), addresses: self.held }
    }

    /// Ends an epoch; gives the addresses that nobody holds any more.
    pub fn end(&mut self, epoch: u64) -> Vec<NodeRef> {
        let Some(Epoch { nodes, .. }) = self.epochs.remove(&epoch) else { return Vec::new() };
        self.held -= nodes.len();
        let mut free = Vec::new();
        for at in nodes {
            let holders = self.holders.get_mut(&at).expect("an epoch holds it");
            *holders -= 1;
            if *holders == 0 {
                self.holders.remove(&at);
                free.push(at);
            }
        }
        free
    }
}

/// What is held of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Epochs.
    pub epochs: usize,
    /// Addresses of all of them.
    pub addresses: usize,
}

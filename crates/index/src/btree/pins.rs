//! Addresses that others hold: a switch, or a reader that keeps nodes (Fat-B+Tree IV-B).
//!
//! A node whose address is held stays where it is and is the root of its part, with the same fences:
//! it joins no neighbour, and if it is too full it becomes deep (`plan`). Nobody holds an address any
//! more once each epoch that handed it out has been released, or its time has come. Pins are no data:
//! they lie on the heap of the owner, and end with it.

use super::tree::{Tree, TreeError};
use remora_arena::{Journal, Owner};
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

    /// Ends an epoch; gives the addresses that nobody holds any more.
    fn end(&mut self, epoch: u64) -> Vec<NodeRef> {
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

impl Tree {
    /// Holds the addresses of nodes of this tree under an epoch until `until_ms`. An epoch that holds
    /// some already holds these too, and all of them until then, or until its former time if that is
    /// later.
    ///
    /// # Errors
    /// More would be held than may be; nothing has changed.
    pub fn pin(
        &mut self,
        epoch: u64,
        nodes: impl IntoIterator<Item = NodeRef>,
        until_ms: u64,
    ) -> Result<(), TreeError> {
        let pins = &mut self.pins;
        let before = pins.epochs.get(&epoch);
        let nodes: BTreeSet<NodeRef> = nodes.into_iter().collect();
        let is_new = |at: &&NodeRef| before.is_none_or(|epoch| !epoch.nodes.contains(at));
        let more: Vec<NodeRef> = nodes.iter().filter(is_new).copied().collect();
        let epochs = pins.epochs.len() + usize::from(before.is_none());
        if epochs > MAX_HELD_EPOCHS || pins.held + more.len() > MAX_HELD_ADDRESSES {
            return Err(TreeError::TooManyHeld);
        }
        self.mending.was_held = true;
        let empty = || Epoch { until_ms, nodes: BTreeSet::new() };
        let of = pins.epochs.entry(epoch).or_insert_with(empty);
        of.until_ms = of.until_ms.max(until_ms);
        for at in more {
            of.nodes.insert(at);
            pins.held += 1;
            *pins.holders.entry(at).or_default() += 1;
        }
        Ok(())
    }

    /// Ends an epoch: nodes that no other epoch holds may be joined, and are mended. True if there was
    /// such an epoch.
    pub fn release<J: Journal>(&mut self, owner: &Owner<J>, epoch: u64) -> bool {
        let was_there = self.pins.epochs.contains_key(&epoch);
        for at in self.pins.end(epoch) {
            self.look_at(owner, at);
        }
        was_there
    }

    /// Ends the epochs whose time has come.
    pub fn lapse<J: Journal>(&mut self, owner: &Owner<J>, now_ms: u64) {
        let due = self.pins.epochs.iter().filter(|(_, epoch)| epoch.until_ms <= now_ms);
        let due: Vec<u64> = due.map(|(epoch, _)| *epoch).collect();
        for epoch in due {
            self.release(owner, epoch);
        }
    }

    /// The time of the epoch that ends first; `None` if nothing is held.
    pub fn next_lapse_ms(&self) -> Option<u64> {
        self.pins.epochs.values().map(|epoch| epoch.until_ms).min()
    }

    /// What is held.
    pub fn held(&self) -> Held {
        Held { epochs: self.pins.epochs.len(), addresses: self.pins.held }
    }
}

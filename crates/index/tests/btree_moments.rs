//! The nodes of a B+tree after every single store of a history of splits and merges.
//!
//! A reader may hold a pointer to each node that was reachable at any time before. So one rule holds
//! at every moment: all such leaves that can be believed, and whose fences hold a key, agree about
//! it. Else two readers, one with an old pointer, see a newer state and then an older one.

use crate::btree_history::{History, KEYS, bytes_of, record};
use crate::fixture::HOME;
use remora_layout::btree::{
    Expected, KeyForm, ORDERED_ROOT_BYTES, OrderedNode, verify_ordered_header,
};
use remora_layout::node::{NodeRef, Proof};
use remora_layout::record::{Guardian, State};
use remora_testing::Random;
use std::collections::BTreeSet;

struct Moment<'h> {
    history: &'h History,
    keys: Vec<Vec<u8>>,
    node_bytes: usize,
    memory: Vec<u8>,
    /// Nodes with their levels to which a reader may hold a pointer.
    reachable: BTreeSet<(NodeRef, u8)>,
}

impl Moment<'_> {
    fn node(&self, at: NodeRef, level: u8) -> Option<OrderedNode<'_>> {
        let expected = Expected { at: Some(at), tree: self.history.header_at, level };
        let bytes = &self.memory[at.offset()..at.offset() + self.node_bytes];
        OrderedNode::verify(bytes, HOME, expected, Proof::Checksum).ok()
    }

    /// Adds what the header and the nodes name that can be believed now.
    fn reach(&mut self) {
        let at = self.history.header_at;
        let bytes = &self.memory[at.offset()..at.offset() + ORDERED_ROOT_BYTES];
        if let Ok(header) = verify_ordered_header(bytes, HOME, at, Proof::Checksum) {
            self.node_bytes = header.node_bytes as usize;
            self.reachable.insert((header.root, header.height - 1));
        }
        let mut waiting: Vec<_> = self.reachable.iter().copied().collect();
        while let Some((at, level)) = waiting.pop() {
            let Some(node) = self.node(at, level) else { continue };
            let below = (0..node.entries()).filter(|_| !node.is_leaf());
            let below = below.map(|index| (node.child(index).unwrap(), node.child_level()));
            let named: Vec<_> = below.chain(node.right().map(|right| (right, level))).collect();
            waiting.extend(named.into_iter().filter(|named| self.reachable.insert(*named)));
        }
    }

    /// Every key in every leaf; gives the leaves that can be believed.
    fn check(&self, time: usize) -> usize {
        let leaves = self.reachable.iter().filter(|(_, level)| *level == 0);
        let leaves = leaves.filter_map(|&(at, level)| self.node(at, level));
        let mut leaves: Vec<_> = leaves.filter(OrderedNode::is_leaf).collect();
        leaves.sort_by_key(|leaf| leaf.low());
        let overlap = |pair: &[OrderedNode<'_>]| pair[0].place_of(pair[1].low()).is_le();
        if !leaves.windows(2).any(overlap) {
            return leaves.len();
        }
        for key in &self.keys {
            let holds = leaves.iter().filter(|leaf| leaf.place_of(key).is_eq());
            let value = |leaf: &OrderedNode<'_>| {
                leaf.value(leaf.position(key).ok()?).map(|value| value.bytes.to_vec())
            };
            let states: BTreeSet<_> = holds.map(value).collect();
            assert!(states.len() <= 1, "after {time} stores leaves do not agree about a key");
        }
        leaves.len()
    }

    /// No held address leads to a dead node. Gives how many lead to deep ones.
    fn check_held(&self, time: usize) -> usize {
        let held = self.history.held.iter().filter(|held| (held.from..held.to).contains(&time));
        let held: Vec<_> = held.collect();
        for held in &held {
            let guardian = self.memory[held.at.offset()..].first_chunk().unwrap();
            let guardian = Guardian::from_word(u64::from_le_bytes(*guardian)).unwrap();
            let is_it = guardian.generation == held.at.generation;
            let is_live = is_it && guardian.state == State::Live;
            assert!(is_live, "after {time} stores a held address leads to a dead node");
        }
        let nodes = held.iter().filter_map(|held| self.node(held.at, held.level));
        nodes.filter(OrderedNode::is_deep).count()
    }
}

#[test]
fn after_every_store_all_leaves_that_can_be_believed_agree() {
    for (form, fan_out) in [(KeyForm::Integers, 4), (KeyForm::Integers, 16), (KeyForm::Bytes, 5)] {
        let history = record(form, fan_out, 1_500, &mut Random::new(fan_out as u64));
        let memory = history.start.iter().flat_map(|word| word.to_le_bytes()).collect();
        let keys = (0..KEYS).map(|key| bytes_of(form, key)).collect();
        let reachable = BTreeSet::new();
        let mut moment = Moment { history: &history, keys, node_bytes: 0, memory, reachable };
        moment.reach();
        let (mut most, mut ever, mut deep) = (0, 0, 0);
        for (time, &(index, value)) in history.stores.iter().enumerate() {
            moment.memory[index * 8..index * 8 + 8].copy_from_slice(&value.to_le_bytes());
            moment.reach();
            most = most.max(moment.check(time + 1));
            deep = deep.max(moment.check_held(time + 1));
            ever = ever.max(moment.reachable.len());
            // A generation that has passed does not come again.
            let memory = &moment.memory;
            moment.reachable.retain(|(at, _)| {
                let guardian = memory[at.offset()..].first_chunk().unwrap();
                Guardian::from_word(u64::from_le_bytes(*guardian))
                    .is_some_and(|guardian| guardian.generation == at.generation)
            });
        }
        assert!(most > 4 && deep > 0, "{most} leaves, {ever} nodes, {deep} deep ones");
    }
}

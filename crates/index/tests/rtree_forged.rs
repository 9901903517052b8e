//! A client that can read an arena knows the secret of its checksums, and can put a whole forged
//! tree into a value. A walk over it costs no more than its limits allow, whatever the forged tree
//! contains.

use crate::fixture::HOME;
use remora_index::rtree::{LocalWalk, Query};
use remora_layout::limits::{MAX_NODE_ENTRIES, MAX_TREE_HEIGHT, WALK_RESTARTS, WALK_RETRIES};
use remora_layout::node::{
    CheckedPart, Entry, NODE_CHECKED_FROM, NODE_HEADER_BYTES, NodeRef, NodeShape, node_bytes,
};
use remora_layout::record::{Guardian, State};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_HEADER_BYTES, TreeHeader, TreeKind};
use remora_testing::Random;
use remora_walk::Memory;
use remora_walk::local::WalkLimits;
use std::cell::RefCell;
use zerocopy::IntoBytes;

const BYTES: usize = 64 << 20;
const HEADER: NodeRef = NodeRef { slot: 1, generation: 1 };
/// Nodes lie at slots that are multiples of this and their level plus one.
const APART: u32 = 4096;

/// Memory in which every address holds a header or a node, each time another one.
struct Forger {
    random: RefCell<Random>,
    /// One in this many fetches of a node finds it torn, and one finds it dead.
    torn: u64,
    dead: u64,
    /// Least and most entries of a node's capacity.
    capacities: (u64, u64),
    height: u8,
    /// The fetched addresses.
    nodes: RefCell<u64>,
    node_bytes: RefCell<usize>,
    headers: RefCell<u32>,
    entries: RefCell<u16>,
}

impl Forger {
    fn head(at: NodeRef, state: State, version: u64) -> Vec<u8> {
        let guardian = Guardian { generation: at.generation, state, class: 0 };
        [guardian.to_word(), version, 0].map(u64::to_le_bytes).concat()
    }

    fn header(&self) -> Vec<u8> {
        *self.headers.borrow_mut() += 1;
        let (least, most) = self.capacities;
        let capacity = (least + self.random.borrow_mut().below(most - least + 1)) as u16;
        let header = TreeHeader {
            kind: TreeKind::RStar,
            capacity,
            height: self.height,
            root: NodeRef { slot: APART * u32::from(self.height), generation: 1 },
            counter: u64::MAX - 1,
            bounds: Rect::default(),
            has_geometries: false,
        };
        let mut bytes = Self::head(HEADER, State::Live, 2);
        bytes.extend(header.to_words().map(u64::to_le_bytes).concat());
        let sum = HOME.checksum(CheckedPart::Header, HEADER, 2, &bytes[NODE_CHECKED_FROM..]);
        bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// As full as possible. All entries below have the same box.
    fn node(&self, slot: u32, entries: u16) -> Vec<u8> {
        *self.nodes.borrow_mut() += 1;
        let (at, level) = (NodeRef { slot, generation: 1 }, (slot / APART - 1) as u8);
        let mut random = self.random.borrow_mut();
        let state = if random.below(self.dead) == 0 { State::Dead } else { State::Live };
        let version = if random.below(self.torn) == 0 { 3 } else { 2 };
        let mut bytes = Self::head(at, state, version);
        let shape = NodeShape { entries, level, kind: TreeKind::RStar };
        bytes.extend([shape.to_word(), 0, 0, 0, 0].map(u64::to_le_bytes).concat());
        for _ in 0..entries {
            let below = NodeRef { slot: slot.saturating_sub(APART), generation: 1 };
            let word = if level == 0 { random.bits() } else { below.to_word() };
            bytes.extend_from_slice(Entry { rect: Rect::default(), word }.as_bytes());
        }
        bytes
    }
}

impl Memory for Forger {
    fn bytes(&self) -> usize {
        BYTES
    }

    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool {
        let slot = (offset / 16) as u32;
        let forged = match (offset % 16, into.len()) {
            (0, TREE_HEADER_BYTES) if slot == HEADER.slot => self.header(),
            (0, bytes) if bytes >= NODE_HEADER_BYTES && slot >= APART => {
                *self.node_bytes.borrow_mut() += bytes;
                self.node(slot, *self.entries.borrow())
            }
            // The shape by which a reader knows how much to copy.
            (8, 8) if slot % APART == 1 => {
                let (_, most) = self.capacities;
                *self.entries.borrow_mut() = most as u16;
                most.to_le_bytes().to_vec()
            }
            // The version after the copy.
            (8, 8) => 2u64.to_le_bytes().to_vec(),
            _ => return false,
        };
        let bytes = into.len().min(forged.len());
        into[..bytes].copy_from_slice(&forged[..bytes]);
        true
    }
}

fn query(nearest: bool) -> Query {
    match nearest {
        true => Query::Nearest { x: 0.0, y: 0.0, wanted: 100 },
        false => Query::Window { window: Rect::default(), predicate: Predicate::Intersects },
    }
}

#[test]
fn a_forged_tree_costs_no_more_than_a_search_may() {
    let limits = WalkLimits::ONE_TURN;
    let (mut ended, mut beyond, mut asked) = (0, 0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed + 1);
        let least = [4, 4, 30, 1024][random.below(4) as usize];
        let most = [least, 30, 1024][random.below(3) as usize].max(least);
        let forger = Forger {
            torn: [10, 100, u64::MAX][random.below(3) as usize],
            dead: [10, 100, u64::MAX][random.below(3) as usize],
            capacities: (least, most),
            height: [1, 2, 3, MAX_TREE_HEIGHT][random.below(4) as usize],
            random: RefCell::new(random),
            nodes: RefCell::default(),
            node_bytes: RefCell::default(),
            headers: RefCell::default(),
            entries: RefCell::new(most as u16),
        };
        let mut scratch = Vec::new();
        let mut walk = LocalWalk::begin(&forger, HOME, HEADER, query(seed % 4 == 0))
            .expect("it proves itself");
        match walk.run_within(&limits, &mut scratch) {
            Ok(true) => ended += 1,
            Ok(false) => beyond += 1,
            Err(_) => asked += 1,
        }
        assert!(*forger.nodes.borrow() <= limits.nodes);
        assert!(*forger.node_bytes.borrow() <= limits.node_bytes);
        // A reader copies no more of a node than the tree's capacity.
        assert!(scratch.capacity() <= 2 * node_bytes(MAX_NODE_ENTRIES));
        let most_results = limits.objects + MAX_NODE_ENTRIES;
        assert!(walk.walk().results().len() <= most_results);
        assert!(*forger.headers.borrow() <= (WALK_RESTARTS + 2) * (WALK_RETRIES + 1));
    }
    assert!(ended > 20 && beyond > 100 && asked > 20, "{ended} {beyond} {asked}");
}

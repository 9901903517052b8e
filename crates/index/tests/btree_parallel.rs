//! Parallel ranges, counted as the paper counts them (IV-C, F34): a range of 100 leaves below seven
//! levels of inner nodes.

use crate::btree_fixture::{OrderedFixture, options};
use crate::feeder::{Source, feed};
use crate::fixture::HOME;
use remora_arena::{NoJournal, Owner};
use remora_index::btree::{Direction, Range, Scan, Want};
use remora_layout::btree::{KeyForm, OrderedHeader, Value};
use remora_layout::node::Proof;
use remora_walk::What;
use std::ops::Bound;

/// The fan-out, and the keys of a leaf that was loaded.
const FAN_OUT: usize = 4;
const KEYS: u64 = 24_000;
const LEAVES: u64 = 100;

/// Counts the inner nodes and leaves that are read; those of these levels are at hand.
struct Counted<'o> {
    owner: &'o Owner<NoJournal>,
    at_hand: std::ops::RangeInclusive<u8>,
    inner: u64,
    leaves: u64,
}

impl Source<Scan> for Counted<'_> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        let What::Node { level, .. } = want.what else { panic!("a walk wants nodes") };
        match level {
            0 => self.leaves += 1,
            _ => self.inner += u64::from(!self.at_hand.contains(&level)),
        }
        (self.owner.slice(want.offset as usize, want.bytes).to_vec(), Proof::Checksum)
    }

    fn head(&mut self) -> OrderedHeader {
        panic!("the tree does not change")
    }
}

/// A tree whose leaves have the same number of keys, and that number.
fn loaded() -> (OrderedFixture<NoJournal>, u64) {
    let options = options(KeyForm::Integers, FAN_OUT);
    let mut fixture = OrderedFixture::new(options, 16 << 20, NoJournal);
    let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
    let (tree, mut arena) = fixture.parts();
    let entries = keys.iter().map(|key| (&key[..], Value::of(b"v")));
    tree.load(&mut arena, entries).unwrap();
    assert_eq!(tree.header().height, 8, "seven levels of inner nodes");
    let leaves = fixture.tree.levels(&fixture.owner).last().unwrap().nodes;
    (fixture, KEYS / leaves)
}

/// The nodes that so many scans read, each of its part of the range, with so many leaves at a time.
fn nodes(
    (fixture, keys_a_leaf): &(OrderedFixture<NoJournal>, u64),
    scans: u64,
    parallel: usize,
    at_hand: std::ops::RangeInclusive<u8>,
) -> u64 {
    let mut counted = Counted { owner: &fixture.owner, at_hand, inner: 0, leaves: 0 };
    let keys = LEAVES * keys_a_leaf / scans;
    for scan in 0..scans {
        // It begins with a leaf's first key.
        let from = (1_000 * keys_a_leaf + scan * keys).to_be_bytes();
        let range = Range {
            from: Bound::Included(&from),
            to: Bound::Unbounded,
            direction: Direction::Ascending,
            limit: keys as usize,
        };
        let region = fixture.owner.region_bytes() as u64;
        let (at, header) = (fixture.tree.at(), fixture.tree.header());
        let mut walk = Scan::begin(range, parallel, HOME, at, header, region);
        feed(&mut walk, parallel + 1, &mut counted).unwrap();
        assert_eq!(walk.entries().len() as u64, keys);
    }
    assert_eq!(counted.leaves, LEAVES, "each leaf once");
    counted.inner + counted.leaves
}

#[test]
fn sub_ranges_cost_what_the_paper_counts_and_one_parallel_scan_less() {
    let loaded = loaded();
    let (none, upper_five) = (0..=0, 3..=7);
    // One scan along the leaves, and ten of a tenth each: 59 % more.
    assert_eq!(nodes(&loaded, 1, 1, none.clone()), 107);
    assert_eq!(nodes(&loaded, 10, 1, none.clone()), 170);
    // With five of the seven levels at hand: 18 % more.
    assert_eq!(nodes(&loaded, 1, 1, upper_five.clone()), 102);
    assert_eq!(nodes(&loaded, 10, 1, upper_five.clone()), 120);
    // One scan with ten leaves at a time reads the path once and the parents of the leaves, up to two
    // of them more than it needs.
    let parents = LEAVES.div_ceil(FAN_OUT as u64);
    let parallel = nodes(&loaded, 1, 10, none);
    assert!((107 + parents..=107 + parents + 3).contains(&parallel), "{parallel}");
    // With the parents at hand too it costs nothing more.
    assert_eq!(nodes(&loaded, 1, 10, 1..=7), LEAVES);
}

//! A tree ends between the nodes of a walk and its results. Its memory then holds bytes that an
//! attacker chose without the arena's secret: nodes that are live, of the right generation, level
//! and version, but with wrong checksums. No walk returns any of them.

use crate::fixture::{HOME, KINDS, TreeFixture};
use remora_arena::{NoJournal, ReadView};
use remora_index::rtree::{AskReason, LocalWalk, Query};
use remora_layout::node::{
    NODE_HEADER_BYTES, NodeRef, NotANode, Proof, node_bytes, verify_node, word,
};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_HEADER_BYTES, verify_header};
use remora_testing::Random;
use remora_walk::Memory;
use remora_walk::local::WalkLimits;
use std::cell::{Cell, RefCell};

const CAPACITY: usize = 4;
const OBJECTS: usize = 60;
/// Set in the ids of forged objects.
const FORGED: u64 = 1 << 40;

/// The tree's memory; the tree ends before one of its fetches.
struct Ending<'g> {
    words: ReadView,
    fixture: &'g RefCell<TreeFixture<NoJournal>>,
    fetches_until: Cell<usize>,
    fetches: Cell<usize>,
    forges_header: bool,
}

impl Memory for Ending<'_> {
    fn bytes(&self) -> usize {
        self.words.bytes()
    }

    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool {
        if self.fetches.get() == self.fetches_until.get() {
            end_and_forge(&mut self.fixture.borrow_mut(), self.forges_header);
        }
        self.fetches.set(self.fetches.get() + 1);
        self.words.fetch(offset, into)
    }
}

/// Ends the tree. Then all its nodes are in the memory again, with other ids.
fn end_and_forge(fixture: &mut TreeFixture<NoJournal>, forges_header: bool) {
    let copy = |fixture: &TreeFixture<NoJournal>, at: NodeRef, bytes| {
        (at, fixture.owner.slice(at.offset(), bytes).to_vec())
    };
    let nodes = fixture.all_nodes().into_iter();
    let mut forged: Vec<_> = nodes
        .map(|at| copy(fixture, at, node_bytes(fixture.tree.node(&fixture.owner, at).1.len())))
        .collect();
    for (at, bytes) in &mut forged {
        if fixture.tree.node(&fixture.owner, *at).0 == 0 {
            for id in bytes[NODE_HEADER_BYTES..].chunks_exact_mut(40) {
                id[37] |= (FORGED >> 40) as u8;
            }
        }
    }
    if forges_header {
        let (at, mut header) = copy(fixture, fixture.tree.at(), TREE_HEADER_BYTES);
        // No node restarts a walk.
        header[8 * word::LEFT_AT..][..8].fill(0xff);
        forged.push((at, header));
    }
    fixture.renew(fixture.tree.header().kind, CAPACITY);
    for (at, bytes) in forged {
        fixture.owner.store_bytes(at.offset(), &bytes);
    }
}

fn everything() -> Query {
    let window = Rect::new(-1.0, 2.0, -1.0, 2.0).unwrap();
    Query::Window { window, predicate: Predicate::Intersects }
}

/// Walks while the tree ends before fetch `fetches_until`. Returns the found ids if the walk ended,
/// whether the walk still stands after `more` fetches, and the number of fetches.
fn walk(
    fetches_until: usize,
    number: usize,
    forges_header: bool,
) -> (Result<Vec<u64>, AskReason>, bool, usize) {
    let mut random = Random::new(number as u64 + 3);
    let mut fixture = TreeFixture::new(KINDS[number], CAPACITY, 1 << 20, NoJournal);
    for _ in 0..OBJECTS {
        let (x, y) = (random.unit(), random.unit());
        fixture.insert(Rect::point(x, y).unwrap());
    }
    let (words, at) = (fixture.owner.view().clone(), fixture.tree.at());
    let fixture = RefCell::new(fixture);
    let (fetches_until, fetches) = (Cell::new(fetches_until), Cell::new(0));
    let memory = Ending { words, fixture: &fixture, fetches_until, fetches, forges_header };
    let begun = LocalWalk::begin(&memory, HOME, at, everything());
    let outcome = begun.and_then(|mut walk| {
        let is_whole = walk.run_within(&WalkLimits::ONE_TURN, &mut Vec::new())?;
        assert!(is_whole);
        let found = walk.walk().results().iter().map(|object| object.word).collect();
        Ok((found, walk.stands()))
    });
    let stands = outcome.as_ref().is_ok_and(|(_, stands)| *stands);
    (outcome.map(|(found, _)| found), stands, memory.fetches.get())
}

#[test]
fn what_lies_where_a_tree_was_is_not_given() {
    let all: Vec<u64> = (0..OBJECTS as u64).collect();
    for number in 0..KINDS.len() {
        let (whole, stands, fetches) = walk(usize::MAX, number, false);
        assert_eq!((whole.as_ref(), stands), (Ok(&all), true));
        for forges_header in [false, true] {
            let mut unread = 0;
            for before in 0..fetches {
                let (found, stands, _) = walk(before, number, forges_header);
                match found {
                    Ok(found) => assert_eq!(found, all, "it ended before fetch {before}"),
                    Err(_) => unread += 1,
                }
                assert!(!stands, "it ended before fetch {before}");
            }
            assert!(unread > OBJECTS / CAPACITY, "{unread}");
        }
    }
}

#[test]
fn guardians_alone_revive_nothing_of_a_tree_that_ended() {
    for kind in KINDS {
        let mut random = Random::new(7);
        let mut fixture = TreeFixture::new(kind, CAPACITY, 1 << 20, NoJournal);
        for _ in 0..OBJECTS {
            let (x, y) = (random.unit(), random.unit());
            fixture.insert(Rect::point(x, y).unwrap());
        }
        let guardian = |fixture: &TreeFixture<NoJournal>, at: NodeRef| {
            (at, fixture.owner.word(at.offset() / 8 + word::GUARDIAN))
        };
        let (header, root) = (fixture.tree.at(), fixture.tree.header().root);
        let top = fixture.tree.header().height - 1;
        let nodes: Vec<_> = fixture.all_nodes().iter().map(|&at| guardian(&fixture, at)).collect();
        let level = |fixture: &TreeFixture<NoJournal>, at| fixture.tree.node(&fixture.owner, at).0;
        let levels: Vec<u8> = nodes.iter().map(|&(at, _)| level(&fixture, at)).collect();
        let header_guardian = guardian(&fixture, header);
        let (mut owner, _slots) = fixture.into_ended();
        // The effect of a value that ends at a guardian's word.
        for (at, word) in nodes.iter().copied().chain([header_guardian]) {
            owner.store(at.offset() / 8 + word::GUARDIAN, word);
        }
        assert!(levels.contains(&top) && nodes[0].0 == root);
        for (&(at, _), &level) in nodes.iter().zip(&levels) {
            let bytes = owner.slice(at.offset(), node_bytes(CAPACITY));
            let read = verify_node(bytes, HOME, at, level, Proof::Checksum);
            assert_eq!(read.err(), Some(NotANode::Torn), "{kind:?}, a node of level {level}");
        }
        let bytes = owner.slice(header.offset(), TREE_HEADER_BYTES);
        assert_eq!(verify_header(bytes, HOME, header, Proof::Checksum), Err(NotANode::Torn));
        let walk = LocalWalk::begin(owner.view().clone(), HOME, header, everything());
        assert!(walk.is_err(), "no walk begins there");
    }
}

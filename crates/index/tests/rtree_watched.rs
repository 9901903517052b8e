//! A walk's statement about its leaves after its end, while the tree changes between any two
//! fetches. As long as the walk stands, all its results are still in the tree. It no longer stands
//! once one of them is removed.

use crate::fixture::{HOME, KINDS, TreeFixture};
use remora_arena::{NoJournal, ReadView};
use remora_index::rtree::{LocalWalk, Query};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_testing::Random;
use remora_walk::Memory;
use remora_walk::local::WalkLimits;
use std::cell::RefCell;

/// Entries of a node: so few that leaves often change their parents.
const CAPACITY: usize = 4;
const MOST_OBJECTS: usize = 400;

struct World {
    fixture: TreeFixture<NoJournal>,
    random: Random,
    /// One in this many fetches meets a change.
    rare: u64,
}

impl World {
    fn change(&mut self) {
        let (x, y) = (self.random.unit(), self.random.unit());
        let at = Rect::new(x, x, y, y).unwrap();
        match self.random.below(4) {
            0 => self.fixture.move_some(&mut self.random, at),
            1 => self.fixture.remove_some(&mut self.random),
            _ if self.fixture.objects.len() < MOST_OBJECTS => self.fixture.insert(at),
            _ => self.fixture.remove_some(&mut self.random),
        }
    }
}

/// The tree's memory; it is changed between any two fetches.
struct Busy<'w> {
    words: ReadView,
    world: &'w RefCell<World>,
}

impl Memory for Busy<'_> {
    fn bytes(&self) -> usize {
        self.words.bytes()
    }

    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool {
        let mut world = self.world.borrow_mut();
        let rare = world.rare;
        while world.random.below(rare) == 0 {
            world.change();
        }
        self.words.fetch(offset, into)
    }
}

#[test]
fn what_stands_is_still_there() {
    let mut stood = 0;
    for (number, kind) in KINDS.into_iter().enumerate() {
        let fixture = TreeFixture::new(kind, CAPACITY, 16 << 20, NoJournal);
        let words = fixture.owner.view().clone();
        let world =
            RefCell::new(World { fixture, random: Random::new(number as u64 + 9), rare: 1 });
        (0..400).for_each(|_| world.borrow_mut().change());
        for round in 0..25_000 {
            let mut guard = world.borrow_mut();
            guard.rare = [2, 4, 8][round % 3];
            let (x, y) = (guard.random.unit(), guard.random.unit());
            let window = Rect::new(x - 0.1, x + 0.1, y - 0.1, y + 0.1).unwrap();
            let at = guard.fixture.tree.at();
            drop(guard);
            let query = Query::Window { window, predicate: Predicate::Intersects };
            let memory = Busy { words: words.clone(), world: &world };
            let Ok(mut walk) = LocalWalk::begin(&memory, HOME, at, query) else { continue };
            let ended = walk.run_within(&WalkLimits::REGION, &mut Vec::new());
            world.borrow_mut().rare = u64::MAX;
            let found = walk.walk().results();
            if ended != Ok(true) || found.is_empty() || !walk.stands() {
                continue;
            }
            stood += 1;
            let mut guard = world.borrow_mut();
            let World { fixture, random, .. } = &mut *guard;
            for object in found {
                let there = fixture.objects.contains(&(object.word, object.rect));
                assert!(there, "{} is not there any more", object.word);
            }
            fixture.remove(found[random.below(found.len() as u64) as usize].word);
            drop(guard);
            assert!(!walk.stands(), "something found was taken out");
        }
    }
    assert!(stood > 500, "{stood} walks stood");
}

//! The trees against a plain list: long random histories of inserts, removes, moves and searches,
//! for all kinds. The owner's search and the walk must return what the list returns.

use crate::fixture::{KINDS, TreeFixture};
use remora_arena::NoJournal;
use remora_index::rtree::{Query, TreeError};
use remora_layout::node::{Entry, NodeRef, word};
use remora_layout::rect::Predicate;
use remora_layout::rect::{BadRect, Rect};
use remora_layout::tree::TreeKind;
use remora_testing::Random;
use std::collections::BTreeMap;

const PREDICATES: [Predicate; 3] = [Predicate::Intersects, Predicate::Within, Predicate::Contains];

/// Rectangles of all sorts: points, lines, equal ones, on a coarse grid so that edges meet, and
/// sometimes huge or far away.
fn any_rect(random: &mut Random) -> Rect {
    let grid = |random: &mut Random| (random.below(64) as f64 - 32.0) / 4.0;
    let (x, y) = (grid(random), grid(random));
    let (width, height) = (random.below(4) as f64 / 2.0, random.below(4) as f64 / 2.0);
    match random.below(200) {
        0 => Rect::new(f64::MIN, f64::MAX, y, y),
        1 => Rect::new(x, x, -1e300, f64::MAX),
        2 => Rect::new(-0.0, 0.0, 5e-324, 1e-300),
        3..100 => Rect::point(x, y),
        _ => Rect::new(x, x + width, y, y + height),
    }
    .unwrap()
}

fn compare(fixture: &TreeFixture<NoJournal>, random: &mut Random) {
    let window = any_rect(random);
    for predicate in PREDICATES {
        let expected = fixture.expected(&window, predicate);
        assert_eq!(fixture.search(&window, predicate), expected);
        assert_eq!(fixture.walk(Query::Window { window, predicate }).unwrap().0, expected);
        assert_eq!(fixture.tree.count(&fixture.owner, &window, predicate), expected.len() as u64);
    }
    let (x, y) = window.centre();
    let wanted = random.below(20) as usize;
    let expected = fixture.expected_nearest(x, y, wanted);
    assert_eq!(fixture.tree.nearest(&fixture.owner, (x, y), wanted, |_| true), expected);
    assert_eq!(fixture.walk_in_order(Query::Nearest { x, y, wanted }), expected);
}

fn history(kind: TreeKind, capacity: usize, steps: u64, seed: u64) {
    let mut random = Random::new(seed);
    let mut fixture = TreeFixture::new(kind, capacity, 8 << 20, NoJournal);
    for step in 0..steps {
        // Phases of growing and of shrinking, in turns.
        let grows = (step / (steps / 6)).is_multiple_of(2);
        match random.below(10) {
            0..5 if grows => fixture.insert(any_rect(&mut random)),
            0..5 => fixture.remove_some(&mut random),
            5 => fixture.insert(any_rect(&mut random)),
            6 => fixture.remove_some(&mut random),
            7 => {
                // A small step, as in most moves.
                let rect = fixture.some(&mut random).map(|(_, rect)| rect);
                let nudge = random.below(3) as f64 / 16.0;
                let to = rect.and_then(|r| {
                    Rect::new(r.min_x + nudge, r.max_x + nudge, r.min_y, r.max_y).ok()
                });
                fixture.move_some(&mut random, to.unwrap_or_default());
            }
            8 => {
                let to = any_rect(&mut random);
                fixture.move_some(&mut random, to);
            }
            _ => compare(&fixture, &mut random),
        }
        if step % 97 == 0 {
            fixture.check();
        }
    }
    while !fixture.objects.is_empty() {
        fixture.remove_some(&mut random);
    }
    fixture.check();
    assert_eq!((fixture.tree.nodes(), fixture.tree.header().height), (1, 1));
    fixture.end();
}

#[test]
fn long_histories_of_small_nodes_agree_with_a_list() {
    for kind in KINDS {
        for (capacity, seed) in [(4, 1), (5, 2), (9, 3)] {
            history(kind, capacity, 12_000, seed);
        }
    }
}

#[test]
fn long_histories_of_usual_nodes_agree_with_a_list() {
    for kind in KINDS {
        for (capacity, seed) in [(15, 4), (30, 5), (130, 6)] {
            history(kind, capacity, 8_000, seed);
        }
    }
}

#[test]
fn a_loaded_tree_is_one_like_others() {
    for kind in KINDS {
        for count in [0, 1, 4, 5, 6, 31, 500, 3_001] {
            let mut random = Random::new(count + 7);
            let mut fixture = TreeFixture::new(kind, 5, 8 << 20, NoJournal);
            fixture.load((0..count).map(|_| any_rect(&mut random)).collect());
            fixture.check_loaded();
            for _ in 0..20 {
                compare(&fixture, &mut random);
            }
            for _ in 0..300 {
                fixture.insert(any_rect(&mut random));
                fixture.remove_some(&mut random);
                fixture.remove_some(&mut random);
                compare(&fixture, &mut random);
            }
        }
    }
}

#[test]
fn what_is_no_rectangle_is_refused_and_changes_nothing() {
    let mut fixture = TreeFixture::new(TreeKind::RStar, 4, 1 << 20, NoJournal);
    let good = Rect::new(0.0, 1.0, 0.0, 1.0).unwrap();
    fixture.insert(good);
    for (bad, reason) in [
        (Rect { min_x: f64::NAN, ..good }, BadRect::NotANumber),
        (Rect { max_y: f64::INFINITY, ..good }, BadRect::Infinite),
        (Rect { min_y: 2.0, ..good }, BadRect::Inverted),
    ] {
        let refused = TreeError::BadRect(reason);
        let (tree, mut arena) = fixture.parts();
        assert_eq!(tree.put(&mut arena, 9, bad), Err(refused));
        assert_eq!(tree.put(&mut arena, 0, bad), Err(refused));
        let query = Query::Window { window: bad, predicate: Predicate::Intersects };
        assert_eq!(query.checked(), Err(reason));
        assert!(
            Query::Nearest { x: bad.min_x, y: bad.max_y, wanted: 1 }.checked().is_err()
                || reason == BadRect::Inverted
        );
    }
    let (tree, mut arena) = fixture.parts();
    assert_eq!(tree.load(&mut arena, vec![(3, good)]), Err(TreeError::NotEmpty));
    assert_eq!(tree.remove(&mut arena, 1), Ok(false));
    fixture.check();
    for kind in KINDS {
        let mut fixture = TreeFixture::new(kind, 4, 1 << 20, NoJournal);
        let (tree, mut arena) = fixture.parts();
        let mut objects: Vec<_> = (0..100).map(|id| (id, good)).collect();
        objects.push((42, Rect::default()));
        assert_eq!(tree.load(&mut arena, objects), Err(TreeError::TwiceGiven(42)));
        fixture.check();
        fixture.end();
    }
}

#[test]
fn full_memory_changes_nothing() {
    for kind in KINDS {
        let mut random = Random::new(11);
        let mut fixture = TreeFixture::new(kind, 6, 1 << 20, NoJournal);
        let mut refused = 0;
        while refused < 50 {
            let rect = any_rect(&mut random);
            if fixture.try_insert(rect).is_err() {
                refused += 1;
                if refused % 10 == 0 {
                    fixture.check();
                    compare(&fixture, &mut random);
                }
            }
        }
        let count = fixture.objects.len();
        assert!(count > 3_000, "{count}");
        // Removing may need a node too, but frees more than it needs.
        for _ in 0..500 {
            fixture.try_remove_some(&mut random);
        }
        fixture.check();
        assert!(fixture.objects.len() < count);
        let (tree, mut arena) = fixture.parts();
        let more: Vec<_> = (0..100_000).map(|id| (id, Rect::default())).collect();
        assert!(tree.load(&mut arena, more).is_err());
        fixture.end();
        let mut empty = TreeFixture::new(kind, 6, 1 << 20, NoJournal);
        let (tree, mut arena) = empty.parts();
        let more: Vec<_> = (0..100_000).map(|id| (id, Rect::default())).collect();
        assert!(matches!(tree.load(&mut arena, more), Err(TreeError::Full(_))));
        empty.check();
    }
}

#[test]
fn generations_grow_over_trees_and_runs() {
    // The same memory serves one tree after the other: a header or node of an old tree is never
    // taken for one of the new tree.
    let mut random = Random::new(5);
    let mut fixture = TreeFixture::new(TreeKind::RStar, 4, 1 << 20, NoJournal);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        for _ in 0..200 {
            fixture.insert(any_rect(&mut random));
        }
        for at in fixture.all_nodes() {
            assert!(seen.insert(at), "{at:?} was a node of an earlier tree");
        }
        fixture.renew(TreeKind::RStar, 4);
    }
}

#[test]
fn a_walk_visits_what_the_owner_visits_and_few_nodes() {
    // The measure of the papers, with fewer objects (W1, W2): the R*-tree visits only a few nodes
    // more than it has levels. `crates/index/examples/rtree_counts.rs` counts at full size.
    let mut nodes = Vec::new();
    for kind in KINDS {
        let mut random = Random::new(77);
        let mut fixture = TreeFixture::new(kind, 30, 32 << 20, NoJournal);
        let mut uniform = |edge: f64| {
            let (x, y) = (random.unit(), random.unit());
            Rect::new(x, x + random.unit() * edge, y, y + random.unit() * edge).unwrap()
        };
        for _ in 0..30_000 {
            fixture.insert(uniform(1e-4));
        }
        assert_eq!(fixture.tree.header().height, 4);
        let (mut owner_nodes, mut walk_nodes) = (0, 0);
        for _ in 0..1_000 {
            let window = uniform(1e-5);
            let predicate = Predicate::Intersects;
            owner_nodes += fixture.tree.search(&fixture.owner, &window, predicate, |_| {});
            walk_nodes += fixture.walk(Query::Window { window, predicate }).unwrap().1;
        }
        assert_eq!(owner_nodes, walk_nodes);
        nodes.push(owner_nodes as f64 / 1_000.0);
    }
    let [rstar, guttman, hilbert] = nodes[..] else { panic!() };
    assert!(rstar < 4.6, "{nodes:?}");
    assert!(guttman > rstar && hilbert < 1.4 * rstar, "{nodes:?}");
}

/// The leaf of each object.
fn leaves(fixture: &TreeFixture<NoJournal>) -> BTreeMap<u32, Vec<Entry>> {
    let nodes = fixture.all_nodes().into_iter();
    let node = |at: NodeRef| (at.slot, fixture.tree.node(&fixture.owner, at));
    nodes
        .map(node)
        .filter(|(_, (level, _))| *level == 0)
        .map(|(at, (_, e))| (at, e.to_vec()))
        .collect()
}

/// A rectangle with whole numbers as edges: areas are exact, and ties frequent.
fn whole_rect(random: &mut Random) -> Rect {
    let mut at = || random.below(60) as f64;
    let (x, y) = (at(), at());
    Rect::new(x, x + 1.0 + random.below(5) as f64, y, y + 1.0 + random.below(5) as f64).unwrap()
}

/// Catfish 2.1 (C3): on its way down, an object takes the child that grows least in area. Of equal
/// ones it takes the smallest, and of those the first. Only a full leaf is split, and its objects
/// lie in it and in one new leaf.
#[test]
fn an_insert_takes_the_child_that_grows_least_then_the_smallest() {
    for (capacity, seed) in [(4, 1), (9, 2)] {
        let mut random = Random::new(seed);
        let mut fixture = TreeFixture::new(TreeKind::Guttman, capacity, 8 << 20, NoJournal);
        let mut ties = 0;
        for _ in 0..1500 {
            let rect = whole_rect(&mut random);
            let mut at = fixture.tree.header().root;
            while let (1.., entries) = fixture.tree.node(&fixture.owner, at) {
                let growth = |known: &Rect| known.union(&rect).area() - known.area();
                let cost = |entry: &Entry| (growth(&entry.rect), entry.rect.area());
                let least = entries.iter().map(cost).reduce(|a, b| if b < a { b } else { a });
                let best = entries.iter().find(|entry| Some(cost(entry)) == least).unwrap();
                let growths =
                    entries.iter().filter(|entry| growth(&entry.rect) == least.unwrap().0);
                ties += (growths.count() > 1) as u32;
                at = NodeRef::from_word(best.word);
            }
            let before = leaves(&fixture);
            let id = fixture.insert_as(rect);
            let after = leaves(&fixture);
            let (&leaf, _) = after
                .iter()
                .find(|(_, entries)| entries.iter().any(|entry| entry.word == id))
                .unwrap();
            let is_split = after.len() > before.len();
            assert_eq!(is_split, before[&at.slot].len() == capacity);
            assert!(leaf == at.slot || is_split && !before.contains_key(&leaf), "another leaf");
            let others = |leaves: &BTreeMap<u32, Vec<Entry>>| -> Vec<u32> {
                let same = before.keys().filter(|&&known| known != at.slot);
                same.filter(|known| leaves[known] == before[known]).copied().collect()
            };
            assert_eq!(others(&after).len(), before.len() - 1, "other leaves stay as they were");
        }
        assert!(ties > 500, "{ties}");
        assert!(fixture.tree.header().height > 3);
        fixture.check();
    }
}

/// The position on the Hilbert curve of a rectangle's middle, bit by bit.
fn hilbert(rect: &Rect, bounds: &Rect) -> u64 {
    let (x, y) = rect.centre();
    let scale = |at: f64, min: f64, max: f64| ((at - min) / (max - min) * 2f64.powi(32)) as u32;
    let mut x = scale(x, bounds.min_x, bounds.max_x);
    let mut y = scale(y, bounds.min_y, bounds.max_y);
    let mut value = 0;
    for bit in (0..32).rev() {
        let (right, upper) = (x >> bit & 1, y >> bit & 1);
        value = value << 2 | u64::from((3 * right) ^ upper);
        if upper == 0 {
            if right == 1 {
                (x, y) = (!x, !y);
            }
            (x, y) = (y, x);
        }
    }
    value
}

/// Catfish 5.2.3 (C6): leaves hold the objects in the order of the curve, and each says
/// its largest value. A full leaf shares with a neighbour; only two full ones become
/// three.
#[test]
fn a_hilbert_tree_keeps_the_order_and_splits_two_into_three() {
    for (capacity, seed) in [(4, 1), (10, 2), (30, 3)] {
        let mut random = Random::new(seed);
        let mut fixture = TreeFixture::new(TreeKind::Hilbert, capacity, 16 << 20, NoJournal);
        let bounds = fixture.tree.header().bounds;
        let (mut splits, mut shared) = (0, 0);
        for _ in 0..3000 {
            let (x, y) = (random.unit() * 8.0 - 4.0, random.unit() * 16.0 - 8.0);
            let before = leaves(&fixture);
            fixture.insert(Rect::point(x, y).unwrap());
            let after = leaves(&fixture);
            let changed = |one: &BTreeMap<u32, Vec<Entry>>, other: &BTreeMap<u32, Vec<Entry>>| {
                let differs = |(at, entries): &(&u32, &Vec<Entry>)| other.get(at) != Some(*entries);
                one.iter().filter(differs).map(|(_, entries)| entries.len()).collect::<Vec<_>>()
            };
            let (old, mut new) = (changed(&before, &after), changed(&after, &before));
            new.sort();
            match after.len() - before.len() {
                0 if new.len() == 2 => shared += 1,
                0 => assert_eq!((old.len(), new.len()), (1, 1), "one leaf has one more"),
                // The root was the only leaf.
                1 if before.len() == 1 => assert_eq!(old, [capacity]),
                1 => {
                    assert_eq!(old, [capacity; 2], "only two full leaves are split");
                    let all = 2 * capacity + 1;
                    assert_eq!(new, [all / 3, (all + 1) / 3, all.div_ceil(3)]);
                    splits += 1;
                }
                more => panic!("{more} new leaves"),
            }
        }
        assert!(splits > 50 && shared > 50, "{splits} {shared}");
        let mut last = 0;
        for at in fixture.all_nodes() {
            let (level, entries) = fixture.tree.node(&fixture.owner, at);
            if level > 0 {
                continue;
            }
            for entry in entries {
                let value = hilbert(&entry.rect, &bounds);
                assert!(value >= last, "the curve comes by in this order");
                last = value;
            }
            assert_eq!(fixture.owner.word(at.offset() / 8 + word::LHV), last);
        }
        fixture.check();
    }
}

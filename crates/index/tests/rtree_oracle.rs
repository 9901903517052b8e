//! The trees against a plain list: long random histories of inserts, removes,
//! moves and searches, for all kinds; the owner's search and the walk must
//! give what the list gives.

mod grove;

use grove::{Grove, KINDS, Random};
use remora_arena::NoJournal;
use remora_index::rtree::{Query, TreeError};
use remora_layout::rect::Predicate;
use remora_layout::rect::{BadRect, Rect};
use remora_layout::tree::TreeKind;

const PREDICATES: [Predicate; 3] = [Predicate::Intersects, Predicate::Within, Predicate::Contains];

/// Rectangles of all sorts: points, lines, equal ones, on a coarse grid so that
/// edges meet, and now and then huge or far away.
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

fn compare(grove: &Grove<NoJournal>, random: &mut Random) {
    let window = any_rect(random);
    for predicate in PREDICATES {
        let expected = grove.expected(&window, predicate);
        assert_eq!(grove.search(&window, predicate), expected);
        assert_eq!(grove.walk(Query::Window { window, predicate }).unwrap().0, expected);
        assert_eq!(grove.tree.count(&grove.owner, &window, predicate), expected.len() as u64);
    }
    let (x, y) = window.centre();
    let wanted = random.below(20) as usize;
    let expected = grove.expected_nearest(x, y, wanted);
    assert_eq!(grove.tree.nearest(&grove.owner, (x, y), wanted, |_| true), expected);
    assert_eq!(grove.walk_in_order(Query::Nearest { x, y, wanted }), expected);
}

fn history(kind: TreeKind, capacity: usize, steps: u64, seed: u64) {
    let mut random = Random::new(seed);
    let mut grove = Grove::new(kind, capacity, 8 << 20, NoJournal);
    for step in 0..steps {
        // Times of growing and of shrinking, by turns.
        let grows = (step / (steps / 6)).is_multiple_of(2);
        match random.below(10) {
            0..5 if grows => grove.insert(any_rect(&mut random)),
            0..5 => grove.remove_some(&mut random),
            5 => grove.insert(any_rect(&mut random)),
            6 => grove.remove_some(&mut random),
            7 => {
                // A small step, as most moves are.
                let rect = grove.some(&mut random).map(|(_, rect)| rect);
                let nudge = random.below(3) as f64 / 16.0;
                let to = rect.and_then(|r| {
                    Rect::new(r.min_x + nudge, r.max_x + nudge, r.min_y, r.max_y).ok()
                });
                grove.move_some(&mut random, to.unwrap_or_default());
            }
            8 => {
                let to = any_rect(&mut random);
                grove.move_some(&mut random, to);
            }
            _ => compare(&grove, &mut random),
        }
        if step % 97 == 0 {
            grove.check();
        }
    }
    while !grove.objects.is_empty() {
        grove.remove_some(&mut random);
    }
    grove.check();
    assert_eq!((grove.tree.nodes(), grove.tree.header().height), (1, 1));
    grove.end();
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
            let mut grove = Grove::new(kind, 5, 8 << 20, NoJournal);
            grove.load((0..count).map(|_| any_rect(&mut random)).collect());
            grove.check_loaded();
            for _ in 0..20 {
                compare(&grove, &mut random);
            }
            for _ in 0..300 {
                grove.insert(any_rect(&mut random));
                grove.remove_some(&mut random);
                grove.remove_some(&mut random);
                compare(&grove, &mut random);
            }
        }
    }
}

#[test]
fn what_is_no_rectangle_is_refused_and_changes_nothing() {
    let mut grove = Grove::new(TreeKind::RStar, 4, 1 << 20, NoJournal);
    let good = Rect::new(0.0, 1.0, 0.0, 1.0).unwrap();
    grove.insert(good);
    for (bad, reason) in [
        (Rect { min_x: f64::NAN, ..good }, BadRect::NotANumber),
        (Rect { max_y: f64::INFINITY, ..good }, BadRect::Infinite),
        (Rect { min_y: 2.0, ..good }, BadRect::Inverted),
    ] {
        let refused = TreeError::BadRect(reason);
        let (tree, mut arena) = grove.parts();
        assert_eq!(tree.put(&mut arena, 9, bad), Err(refused));
        assert_eq!(tree.put(&mut arena, 0, bad), Err(refused));
        let query = Query::Window { window: bad, predicate: Predicate::Intersects };
        assert_eq!(query.checked(), Err(reason));
        assert!(
            Query::Nearest { x: bad.min_x, y: bad.max_y, wanted: 1 }.checked().is_err()
                || reason == BadRect::Inverted
        );
    }
    let (tree, mut arena) = grove.parts();
    assert_eq!(tree.load(&mut arena, vec![(3, good)]), Err(TreeError::NotEmpty));
    assert_eq!(tree.remove(&mut arena, 1), Ok(false));
    grove.check();
    for kind in KINDS {
        let mut grove = Grove::new(kind, 4, 1 << 20, NoJournal);
        let (tree, mut arena) = grove.parts();
        let mut objects: Vec<_> = (0..100).map(|id| (id, good)).collect();
        objects.push((42, Rect::default()));
        assert_eq!(tree.load(&mut arena, objects), Err(TreeError::TwiceGiven(42)));
        grove.check();
        grove.end();
    }
}

#[test]
fn full_memory_changes_nothing() {
    for kind in KINDS {
        let mut random = Random::new(11);
        let mut grove = Grove::new(kind, 6, 1 << 20, NoJournal);
        let mut refused = 0;
        while refused < 50 {
            let rect = any_rect(&mut random);
            if grove.try_insert(rect).is_err() {
                refused += 1;
                if refused % 10 == 0 {
                    grove.check();
                    compare(&grove, &mut random);
                }
            }
        }
        let count = grove.objects.len();
        assert!(count > 3_000, "{count}");
        // Removing may need a node too, but frees more than it needs.
        for _ in 0..500 {
            grove.try_remove_some(&mut random);
        }
        grove.check();
        assert!(grove.objects.len() < count);
        let (tree, mut arena) = grove.parts();
        let more: Vec<_> = (0..100_000).map(|id| (id, Rect::default())).collect();
        assert!(tree.load(&mut arena, more).is_err());
        grove.end();
        let mut empty = Grove::new(kind, 6, 1 << 20, NoJournal);
        let (tree, mut arena) = empty.parts();
        let more: Vec<_> = (0..100_000).map(|id| (id, Rect::default())).collect();
        assert!(matches!(tree.load(&mut arena, more), Err(TreeError::Full(_))));
        empty.check();
    }
}

#[test]
fn generations_grow_over_trees_and_runs() {
    // The same memory serves one tree after the other: what an old tree's
    // header or node was is never taken for the new one's.
    let mut random = Random::new(5);
    let mut grove = Grove::new(TreeKind::RStar, 4, 1 << 20, NoJournal);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        for _ in 0..200 {
            grove.insert(any_rect(&mut random));
        }
        for at in grove.all_nodes() {
            assert!(seen.insert(at), "{at:?} was a node of an earlier tree");
        }
        grove.renew(TreeKind::RStar, 4);
    }
}

#[test]
fn a_walk_visits_what_the_owner_visits_and_few_nodes() {
    // The measure of the papers, with fewer objects (W1, W2): the R*-tree
    // visits hardly more nodes than it has levels. `examples/rtree_counts.rs`
    // counts at full size.
    let mut nodes = Vec::new();
    for kind in KINDS {
        let mut random = Random::new(77);
        let mut grove = Grove::new(kind, 30, 32 << 20, NoJournal);
        let mut uniform = |edge: f64| {
            let (x, y) = (random.unit(), random.unit());
            Rect::new(x, x + random.unit() * edge, y, y + random.unit() * edge).unwrap()
        };
        for _ in 0..30_000 {
            grove.insert(uniform(1e-4));
        }
        assert_eq!(grove.tree.header().height, 4);
        let (mut owner_nodes, mut walk_nodes) = (0, 0);
        for _ in 0..1_000 {
            let window = uniform(1e-5);
            let predicate = Predicate::Intersects;
            owner_nodes += grove.tree.search(&grove.owner, &window, predicate, |_| {});
            walk_nodes += grove.walk(Query::Window { window, predicate }).unwrap().1;
        }
        assert_eq!(owner_nodes, walk_nodes);
        nodes.push(owner_nodes as f64 / 1_000.0);
    }
    let [rstar, guttman, hilbert] = nodes[..] else { panic!() };
    assert!(rstar < 4.6, "{nodes:?}");
    assert!(guttman > rstar && hilbert < 1.4 * rstar, "{nodes:?}");
}

//! The trees against the library rstar: long random histories of puts, removes, moves, searches and
//! nearest searches, for all kinds. Both measure the distance to the nearest point of the
//! rectangle.

use crate::fixture::{KINDS, TreeFixture};
use remora_arena::NoJournal;
use remora_index::rtree::Query;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;
use remora_testing::Random;
use rstar::primitives::{GeomWithData, Rectangle};
use rstar::{AABB, RTree};

type Theirs = GeomWithData<Rectangle<[f64; 2]>, u64>;

fn theirs(id: u64, rect: &Rect) -> Theirs {
    let corners = Rectangle::from_corners([rect.min_x, rect.min_y], [rect.max_x, rect.max_y]);
    GeomWithData::new(corners, id)
}

/// Numbers in the range of an i32: small ones, so that edges touch, and the ends.
fn coordinate(random: &mut Random) -> i32 {
    match random.below(40) {
        0 => i32::MIN,
        1 => i32::MAX,
        2 => i32::MAX - 1,
        3 => i32::MIN + 1,
        _ => random.below(200) - 100,
    }
}

/// Points, lines and rectangles whose coordinates fit an i32.
fn any_rect(random: &mut Random) -> Rect {
    let (x, y) = (coordinate(random), coordinate(random));
    let (width, height) = (random.below(4) * 3, random.below(3) * 5);
    let (right, top) = (x.saturating_add(width), y.saturating_add(height));
    Rect::new(x as f64, right as f64, y as f64, top as f64).unwrap()
}

fn compare(fixture: &TreeFixture<NoJournal>, other: &RTree<Theirs>, random: &mut Random) {
    let window = any_rect(random);
    let corners = AABB::from_corners([window.min_x, window.min_y], [window.max_x, window.max_y]);
    let ids = |found: &mut dyn Iterator<Item = &Theirs>| -> Vec<u64> {
        let mut ids: Vec<u64> = found.map(|object| object.data).collect();
        ids.sort();
        ids
    };
    let touching = ids(&mut other.locate_in_envelope_intersecting(corners));
    let inside = ids(&mut other.locate_in_envelope(corners));
    for (predicate, expected) in [(Predicate::Intersects, touching), (Predicate::Within, inside)] {
        assert_eq!(fixture.search(&window, predicate), expected, "{predicate:?} {window:?}");
        assert_eq!(fixture.walk(Query::Window { window, predicate }).unwrap().0, expected);
    }
    // rstar returns equally near ones in any order: the test compares distances.
    let (x, y) = (coordinate(random) as f64, coordinate(random) as f64);
    let wanted = 1 + random.below(12) as usize;
    let distances: Vec<f64> = other
        .nearest_neighbor_iter_with_distance_2([x, y])
        .take(wanted)
        .map(|(_, distance)| distance)
        .collect();
    let found = fixture.tree.nearest(&fixture.owner, (x, y), wanted, |_| true);
    let ours: Vec<f64> = found.iter().map(|object| object.rect.distance_squared(x, y)).collect();
    assert_eq!(ours, distances);
    assert_eq!(fixture.walk_in_order(Query::Nearest { x, y, wanted }), found);
}

fn history(kind: TreeKind, capacity: usize, steps: u64, seed: u64) {
    let mut random = Random::new(seed);
    let mut fixture = TreeFixture::new(kind, capacity, 8 << 20, NoJournal);
    let mut other = RTree::new();
    for step in 0..steps {
        let grows = (step / (steps / 4)).is_multiple_of(2);
        let before = fixture.some(&mut random);
        match (random.below(10), before) {
            (0..4, _) if grows => {
                let rect = any_rect(&mut random);
                other.insert(theirs(fixture.insert_as(rect), &rect));
            }
            (0..6, Some((id, rect))) => {
                fixture.remove(id);
                assert!(other.remove(&theirs(id, &rect)).is_some());
            }
            (6..8, Some((id, rect))) => {
                let to = any_rect(&mut random);
                fixture.move_to(id, to);
                assert!(other.remove(&theirs(id, &rect)).is_some());
                other.insert(theirs(id, &to));
            }
            _ => compare(&fixture, &other, &mut random),
        }
    }
    assert_eq!(other.size() as u64, fixture.tree.objects());
    fixture.check();
}

#[test]
fn long_histories_agree_with_rstar() {
    for kind in KINDS {
        for (capacity, seed) in [(4, 1), (8, 2), (30, 3), (70, 4)] {
            history(kind, capacity, 10_000, seed);
        }
    }
}

#[test]
fn neighbours_that_only_touch_are_told_from_those_that_do_not() {
    // Squares of edge 1 in a grid, at both ends of the numbers.
    for kind in KINDS {
        for origin in [i32::MIN, -8, i32::MAX - 16] {
            let mut fixture = TreeFixture::new(kind, 6, 4 << 20, NoJournal);
            let mut other = RTree::new();
            let at = |step: i32| (origin + step) as f64;
            for (x, y) in (0..16).flat_map(|x| (0..16).map(move |y| (x, y))) {
                let square = Rect::new(at(x), at(x) + 1.0, at(y), at(y) + 1.0).unwrap();
                other.insert(theirs(fixture.insert_as(square), &square));
            }
            // The middle of the board: 9 squares touch a square, 4 a corner.
            let square = Rect::new(at(7), at(8), at(7), at(8)).unwrap();
            assert_eq!(fixture.search(&square, Predicate::Intersects).len(), 9);
            assert_eq!(fixture.search(&square, Predicate::Within).len(), 1);
            let corner = Rect::point(at(7), at(7)).unwrap();
            assert_eq!(fixture.search(&corner, Predicate::Intersects).len(), 4);
            assert_eq!(fixture.search(&corner, Predicate::Contains).len(), 4);
            let edge = Rect::new(at(3), at(3), at(2), at(5)).unwrap();
            assert_eq!(fixture.search(&edge, Predicate::Intersects).len(), 10);
            let corners = AABB::from_corners([at(3), at(2)], [at(3), at(5)]);
            assert_eq!(other.locate_in_envelope_intersecting(corners).count(), 10);
        }
    }
}

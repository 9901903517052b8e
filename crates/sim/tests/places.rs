//! The checker of trees itself: histories known to be good, and one history
//! known to be bad for each way to be wrong.

use remora_client_core::{Predicate, Rect};
use remora_sim::check::places::{Act, Places, Seen};

const SHOWN: &str = "a place that is shown was there";
const ONCE: &str = "a search shows a place once";
const MISSED: &str = "a search shows every place that was there all the time";
const COUNTED: &str = "a count is one of what was there";
const ORDERED: &str = "the nearest places come in order";
const CHANGED: &str = "a change says truly whether a place was there";

/// The point (x, 0).
fn at(x: u32) -> Rect {
    Rect::point(x as f64, 0.0).expect("a point")
}

fn window(from: u32, to: u32) -> Rect {
    Rect::new(from as f64, to as f64, -1.0, 1.0).expect("a window")
}

/// A history of tree 0.
#[derive(Default)]
struct Tree(Places);

impl Tree {
    fn put_open(&mut self, from_ns: u64, id: u64, x: u32) -> Act {
        self.0.put(0, &[(id, at(x))], None, from_ns)
    }

    fn put(&mut self, (from_ns, to_ns): (u64, u64), id: u64, x: u32) -> Act {
        let act = self.put_open(from_ns, id, x);
        self.0.done(act, to_ns);
        act
    }

    fn remove(&mut self, (from_ns, to_ns): (u64, u64), id: u64) -> Act {
        let act = self.0.remove(0, id, from_ns);
        self.0.done(act, to_ns);
        act
    }

    fn search(
        &mut self,
        (from_ns, to_ns): (u64, u64),
        (from, to): (u32, u32),
        found: &[(u64, u32)],
    ) {
        let found = found.iter().map(|&(id, x)| (id, at(x))).collect();
        let (window, predicate) = (window(from, to), Predicate::Intersects);
        self.0.look(0, from_ns, to_ns, Seen::Window { window, predicate, found });
    }

    fn count(&mut self, (from_ns, to_ns): (u64, u64), (from, to): (u32, u32), count: u64) {
        let (window, predicate) = (window(from, to), Predicate::Within);
        self.0.look(0, from_ns, to_ns, Seen::Count { window, predicate, count });
    }

    /// The nearest to 0.
    fn nearest(&mut self, (from_ns, to_ns): (u64, u64), wanted: usize, found: &[(u64, u32)]) {
        let found = found.iter().map(|&(id, x)| (id, at(x))).collect();
        self.0.look(0, from_ns, to_ns, Seen::Nearest { point: (0.0, 0.0), wanted, found });
    }

    fn object(&mut self, (from_ns, to_ns): (u64, u64), found: Option<(u32, Option<u32>)>) {
        let found = found.map(|(x, data)| (at(x), data));
        self.0.look(0, from_ns, to_ns, Seen::Object { id: 1, found });
    }

    fn broke(&self) -> Vec<&'static str> {
        self.0.judge().iter().map(|violation| violation.promise).collect()
    }
}

#[track_caller]
fn good(make: impl FnOnce(&mut Tree)) {
    let mut tree = Tree::default();
    make(&mut tree);
    assert!(tree.0.judge().is_empty(), "{:?}", tree.0.judge());
}

#[track_caller]
fn bad(promise: &str, make: impl FnOnce(&mut Tree)) {
    let mut tree = Tree::default();
    make(&mut tree);
    assert_eq!(tree.broke(), [promise]);
}

#[test]
fn what_was_there_all_the_time_is_shown() {
    let start = |tree: &mut Tree| tree.put((0, 1), 1, 5);
    good(|tree| {
        start(tree);
        tree.search((2, 3), (0, 9), &[(1, 5)]);
        tree.search((2, 3), (6, 9), &[]);
    });
    bad(MISSED, |tree| {
        start(tree);
        tree.search((2, 3), (0, 9), &[]);
    });
    // Another version of it that overlaps the search is searched for too.
    bad(MISSED, |tree| {
        start(tree);
        tree.put((2, 9), 1, 6);
        tree.search((3, 4), (0, 9), &[]);
    });
    for x in [20, 30] {
        // One that is not may have been current.
        good(|tree| {
            start(tree);
            tree.put((2, 9), 1, x);
            tree.search((3, 4), (0, 9), &[]);
        });
    }
    // It was away before and after, but not meanwhile.
    bad(MISSED, |tree| {
        start(tree);
        tree.remove((2, 3), 1);
        tree.put((4, 5), 1, 6);
        tree.search((6, 7), (0, 9), &[]);
        tree.remove((8, 9), 1);
    });
}

#[test]
fn what_is_shown_was_there() {
    bad(SHOWN, |tree| tree.search((2, 3), (0, 9), &[(1, 5)]));
    // Of another object.
    bad(SHOWN, |tree| {
        tree.put((0, 1), 1, 5);
        tree.put((0, 1), 2, 6);
        tree.search((2, 3), (0, 9), &[(1, 5), (2, 6), (3, 5)]);
    });
    // Removed, moved, and not put yet.
    bad(SHOWN, |tree| {
        tree.put((0, 1), 1, 5);
        tree.remove((2, 3), 1);
        tree.search((4, 5), (0, 9), &[(1, 5)]);
    });
    bad(SHOWN, |tree| {
        tree.put((0, 1), 1, 5);
        tree.put((2, 3), 1, 6);
        tree.search((4, 5), (0, 9), &[(1, 5)]);
    });
    bad(SHOWN, |tree| {
        tree.search((0, 1), (0, 9), &[(1, 5)]);
        tree.put((2, 3), 1, 5);
    });
    // Outside the search.
    bad(SHOWN, |tree| {
        tree.put((0, 1), 1, 50);
        tree.search((2, 3), (0, 9), &[(1, 50)]);
    });
}

#[test]
fn what_was_seen_is_not_taken_back() {
    // A change that is under way, seen by one and not by the next.
    bad(SHOWN, |tree| {
        tree.put((0, 1), 1, 5);
        tree.put((2, 99), 1, 6);
        tree.search((3, 4), (0, 9), &[(1, 6)]);
        tree.search((5, 6), (0, 9), &[(1, 5)]);
    });
    good(|tree| {
        tree.put((0, 1), 1, 5);
        tree.put((2, 99), 1, 6);
        tree.search((3, 5), (0, 9), &[(1, 6)]);
        tree.search((4, 6), (0, 9), &[(1, 5)]);
    });
    // Its outcome is unknown; a client saw its effect.
    bad(MISSED, |tree| {
        tree.put_open(0, 1, 5);
        tree.search((1, 2), (0, 9), &[(1, 5)]);
        tree.search((3, 4), (0, 9), &[]);
    });
    good(|tree| {
        tree.put_open(0, 1, 5);
        tree.search((1, 2), (0, 9), &[]);
        tree.search((3, 4), (0, 9), &[(1, 5)]);
    });
}

#[test]
fn each_place_is_shown_once() {
    bad(ONCE, |tree| {
        tree.put((0, 1), 1, 5);
        tree.search((2, 3), (0, 9), &[(1, 5), (1, 5)]);
    });
    bad(ONCE, |tree| {
        tree.put((0, 1), 1, 5);
        tree.put((2, 5), 1, 6);
        tree.nearest((3, 4), 2, &[(1, 5), (1, 6)]);
    });
}

#[test]
fn changes_end_with_the_session_the_tree_and_the_server() {
    let late = |tree: &mut Tree| tree.search((50, 51), (0, 9), &[(1, 5)]);
    good(|tree| {
        tree.put_open(0, 1, 5);
        tree.remove((10, 11), 1);
        late(tree);
    });
    bad(SHOWN, |tree| {
        let act = tree.put_open(0, 1, 5);
        tree.0.bound(act, 9);
        tree.remove((10, 11), 1);
        late(tree);
    });
    bad(SHOWN, |tree| {
        tree.put_open(0, 1, 5);
        tree.0.restart(10, 20);
        late(tree);
    });
    for which in [None, Some(0)] {
        bad(SHOWN, |tree| {
            tree.put((0, 1), 1, 5);
            let act = tree.0.clear(which, 10);
            tree.0.done(act, 11);
            late(tree);
        });
    }
    good(|tree| {
        tree.put((0, 1), 1, 5);
        let act = tree.0.clear(Some(1), 10);
        tree.0.done(act, 11);
        late(tree);
    });
    bad(SHOWN, |tree| {
        let act = tree.put_open(0, 1, 5);
        tree.0.refused(act);
        late(tree);
    });
}

#[test]
fn a_tree_is_built_at_once() {
    let build = |tree: &mut Tree| {
        tree.0.put(0, &[(1, at(5)), (2, at(6))], None, 0);
        tree.search((1, 2), (0, 5), &[(1, 5)]);
    };
    good(build);
    bad(MISSED, |tree| {
        build(tree);
        tree.search((3, 4), (0, 9), &[(1, 5)]);
    });
}

#[test]
fn counts_lie_between_the_certain_and_the_possible() {
    for count in 0..6 {
        let make = |tree: &mut Tree| {
            tree.put((0, 1), 1, 5);
            tree.put((0, 1), 2, 6);
            tree.put((2, 9), 2, 60);
            tree.put((2, 9), 3, 7);
            tree.put((0, 1), 4, 70);
            tree.count((3, 4), (0, 9), count);
        };
        if (1..=3).contains(&count) { good(make) } else { bad(COUNTED, make) }
    }
}

#[test]
fn the_nearest_that_stay_come_in_order() {
    let start = |tree: &mut Tree| {
        tree.put((0, 1), 1, 5);
        tree.put((0, 1), 2, 6);
        tree.put((0, 1), 3, 7);
    };
    for (is_good, wanted, found) in [
        (true, 9, &[(1, 5), (2, 6), (3, 7)][..]),
        (true, 2, &[(1, 5), (2, 6)]),
        (true, 0, &[]),
        // Out of order, one left out, too few, too many.
        (false, 9, &[(2, 6), (1, 5), (3, 7)]),
        (false, 2, &[(1, 5), (3, 7)]),
        (false, 3, &[(1, 5), (2, 6)]),
        (false, 1, &[(1, 5), (2, 6)]),
    ] {
        let make = |tree: &mut Tree| {
            start(tree);
            tree.nearest((2, 3), wanted, found);
        };
        if is_good { good(make) } else { bad(ORDERED, make) }
    }
    // One that moves meanwhile may stand anywhere.
    good(|tree| {
        start(tree);
        tree.put((2, 9), 3, 1);
        tree.nearest((3, 4), 9, &[(1, 5), (2, 6), (3, 1)]);
    });
}

#[test]
fn an_object_has_its_own_bytes_while_it_is_there() {
    let start = |tree: &mut Tree| {
        let act = tree.0.put(0, &[(1, at(5))], Some(true), 0);
        tree.0.done(act, 1);
    };
    for (is_good, found) in [
        (true, Some((5, Some(0)))),
        (false, Some((5, None))),
        (false, Some((5, Some(7)))),
        (false, None),
    ] {
        let make = |tree: &mut Tree| {
            start(tree);
            tree.object((2, 3), found);
        };
        if is_good { good(make) } else { bad(SHOWN, make) }
    }
    // They stay when it moves, and go with it.
    good(|tree| {
        start(tree);
        tree.put((2, 3), 1, 6);
        tree.object((4, 5), Some((6, Some(0))));
    });
    for (is_good, data) in [(true, None), (false, Some(0))] {
        let make = |tree: &mut Tree| {
            start(tree);
            tree.remove((2, 3), 1);
            tree.object((4, 5), None);
            tree.put((6, 7), 1, 6);
            tree.object((8, 9), Some((6, data)));
        };
        if is_good { good(make) } else { bad(SHOWN, make) }
    }
}

#[test]
fn a_change_says_what_it_found() {
    for was_there in [false, true] {
        let put = |tree: &mut Tree| {
            let act = tree.put((4, 5), 1, 6);
            tree.0.look(0, 4, 5, Seen::Changed { act, id: 1, was_there });
        };
        let remove = |tree: &mut Tree| {
            let act = tree.remove((4, 5), 1);
            tree.0.look(0, 4, 5, Seen::Changed { act, id: 1, was_there });
        };
        for change in [&put as &dyn Fn(&mut Tree), &remove] {
            let after_put = |tree: &mut Tree| {
                tree.put((0, 1), 1, 5);
                change(tree);
            };
            if was_there {
                good(after_put)
            } else {
                bad(CHANGED, after_put)
            }
            if was_there { bad(CHANGED, change) } else { good(change) }
        }
    }
}

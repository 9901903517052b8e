//! Window searches that pause, while the tree changes between their slices.

use crate::fixture::{KINDS, TreeFixture};
use remora_arena::NoJournal;
use remora_index::rtree::Cursor;
use remora_layout::limits::WALK_RESTARTS;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_testing::Random;
use std::collections::{HashMap, HashSet};

fn rect(random: &mut Random) -> Rect {
    let (x, y) = (random.below(100) as f64, random.below(100) as f64);
    Rect::new(x, x + random.below(9) as f64, y, y + random.below(9) as f64).unwrap()
}

fn change(fixture: &mut TreeFixture<NoJournal>, random: &mut Random) {
    match random.below(4) {
        0 => fixture.insert(rect(random)),
        1 => fixture.remove_some(random),
        2 => {
            // Most objects move by a little.
            let to = fixture.some(random).map(|(_, rect)| rect).unwrap_or_default();
            fixture.move_some(random, to);
        }
        _ => {
            let to = rect(random);
            fixture.move_some(random, to);
        }
    }
}

#[test]
fn what_is_there_all_the_time_is_found_and_nothing_that_never_was() {
    let (mut restarts, mut pauses) = (0, 0);
    for kind in KINDS {
        let mut random = Random::new(31);
        let mut fixture = TreeFixture::new(kind, 5, 4 << 20, NoJournal);
        for _ in 0..if cfg!(miri) { 60 } else { 600 } {
            fixture.insert(rect(&mut random));
        }
        for round in 0..if cfg!(miri) { 6 } else { 400 } {
            let (x, y) = (random.below(80) as f64, random.below(80) as f64);
            let window = Rect::new(x, x + 40.0, y, y + 40.0).unwrap();
            let predicate = [Predicate::Intersects, Predicate::Within][random.below(2) as usize];
            let hits = |fixture: &TreeFixture<NoJournal>| -> HashMap<u64, Rect> {
                let hits = fixture.objects.iter().copied();
                hits.filter(|(_, rect)| predicate.holds(rect, &window)).collect()
            };
            let mut always: HashSet<u64> = hits(&fixture).into_keys().collect();
            let mut ever: HashSet<(u64, [u64; 4])> = HashSet::new();
            let key =
                |rect: &Rect| [rect.min_x, rect.max_x, rect.min_y, rect.max_y].map(f64::to_bits);
            let mut found = HashSet::new();
            let mut cursor = Cursor::new(window, predicate);
            loop {
                let now = hits(&fixture);
                always.retain(|id| now.contains_key(id));
                ever.extend(now.iter().map(|(id, rect)| (*id, key(rect))));
                let before = cursor.nodes();
                let most = 1 + random.below(9);
                let done = fixture.tree.search_some(&fixture.owner, &mut cursor, most, |object| {
                    assert!(ever.contains(&(object.word, key(&object.rect))));
                    found.insert(object.word);
                });
                if cursor.restarts() < WALK_RESTARTS {
                    assert!(cursor.nodes() - before <= most);
                }
                if done {
                    break;
                }
                pauses += 1;
                for _ in 0..random.below(1 + round % 4) {
                    change(&mut fixture, &mut random);
                }
            }
            assert!(always.is_subset(&found), "{kind:?}: one is missing");
            assert!(cursor.restarts() <= WALK_RESTARTS);
            restarts += cursor.restarts();
        }
        fixture.check();
    }
    assert!(cfg!(miri) || restarts > 500 && pauses > 2_000, "{restarts} {pauses}");
}

#[test]
fn without_changes_slices_give_each_object_once() {
    let mut random = Random::new(8);
    let mut fixture = TreeFixture::new(KINDS[0], 8, 4 << 20, NoJournal);
    for _ in 0..2_000 {
        fixture.insert(rect(&mut random));
    }
    let window = Rect::new(10.0, 60.0, 10.0, 60.0).unwrap();
    for most in [1, 2, 7, u64::MAX] {
        let (mut cursor, mut ids) = (Cursor::new(window, Predicate::Intersects), Vec::new());
        while !fixture.tree.search_some(&fixture.owner, &mut cursor, most, |o| ids.push(o.word)) {}
        let all = fixture.tree.search(&fixture.owner, &window, Predicate::Intersects, |_| {});
        assert_eq!((cursor.nodes(), cursor.restarts()), (all, 0));
        ids.sort();
        assert_eq!(ids, fixture.expected(&window, Predicate::Intersects));
        // A finished search stays finished, whatever changes.
        fixture.remove_some(&mut random);
        assert!(fixture.tree.search_some(&fixture.owner, &mut cursor, 1, |_| panic!("finished")));
    }
}

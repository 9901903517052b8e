//! Objects that are put several at a time, against a plain list: new ones and known ones, the same
//! one twice, and one that is refused.

use crate::fixture::{KINDS, TreeFixture};
use remora_arena::NoJournal;
use remora_index::rtree::{Query, TreeError};
use remora_layout::rect::{BadRect, Predicate, Rect};
use remora_layout::tree::TreeKind;
use remora_testing::Random;

fn any_rect(random: &mut Random) -> Rect {
    let (x, y) = (random.below(100) as f64 / 4.0, random.below(100) as f64 / 4.0);
    let (width, height) = (random.below(3) as f64 / 2.0, random.below(3) as f64 / 2.0);
    Rect::new(x, x + width, y, y + height).unwrap()
}

#[test]
fn batches_agree_with_a_list() {
    let predicate = Predicate::Intersects;
    for kind in KINDS {
        for (capacity, batch, seed) in [(4, 3, 1), (5, 40, 2), (9, 17, 3), (30, 90, 4)] {
            let mut random = Random::new(seed);
            let mut fixture = TreeFixture::new(kind, capacity, 8 << 20, NoJournal);
            for step in 0..400 {
                let count = random.below(batch + 1);
                // A batch moves the root, splits leaves, and empties them: ways found before
                // lead to other leaves then, or nowhere.
                let objects: Vec<_> =
                    (0..count).map(|_| (random.below(900), any_rect(&mut random))).collect();
                fixture.put_all(&objects).unwrap();
                for _ in 0..random.below(batch) {
                    fixture.remove_some(&mut random);
                }
                let window = any_rect(&mut random);
                let expected = fixture.expected(&window, predicate);
                assert_eq!(fixture.search(&window, predicate), expected);
                assert_eq!(fixture.walk(Query::Window { window, predicate }).unwrap().0, expected);
                if step % 20 == 0 {
                    fixture.check();
                }
            }
            fixture.check();
            fixture.end();
        }
    }
}

#[test]
fn what_comes_before_a_refused_object_is_in_the_tree() {
    let mut fixture = TreeFixture::new(TreeKind::RStar, 4, 1 << 20, NoJournal);
    let good = Rect::new(0.0, 1.0, 0.0, 1.0).unwrap();
    let bad = Rect { max_x: f64::NAN, ..good };
    for refused in [0, 3, 7, 8, 19] {
        let from = fixture.tree.objects();
        let mut objects: Vec<_> = (from..from + 20).map(|id| (id, good)).collect();
        objects[refused].1 = bad;
        let (tree, mut arena) = fixture.parts();
        let error = tree.put_all(&mut arena, &objects).unwrap_err();
        assert_eq!(error, TreeError::BadRect(BadRect::NotANumber));
        fixture.put_all(&objects[..refused]).unwrap();
        fixture.check();
    }
}

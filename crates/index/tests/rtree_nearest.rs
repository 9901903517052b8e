//! A search for the nearest objects in turns. Each turn is bounded, whatever the objects are. The
//! results equal those of a list, although the tree changes between all turns.

use crate::fixture::{KINDS, TreeFixture};
use remora_arena::NoJournal;
use remora_index::rtree::{Nearest, NearestTurn, Object};
use remora_layout::limits::{NEAREST_AGAIN_WORK, WALK_RESTARTS};
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;
use remora_testing::Random;
use std::collections::BTreeSet;

const CAPACITY: usize = 16;
/// The budget of a turn in these tests.
const MOST: u64 = 256;

/// A point within the bounds of the Hilbert trees. Several objects have the same point.
fn place(random: &mut Random) -> (f64, f64) {
    (random.below(256) as f64 / 32.0 - 4.0, random.below(256) as f64 / 16.0 - 8.0)
}

fn point(random: &mut Random) -> Rect {
    let (x, y) = place(random);
    Rect::point(x, y).unwrap()
}

/// One turn: the nodes that it visited, and the objects that it asked about.
fn turn(
    fixture: &TreeFixture<NoJournal>,
    search: &mut Nearest,
    counted: &BTreeSet<u64>,
) -> (NearestTurn, u64, u64) {
    let mut asked = 0;
    let before = search.nodes();
    search.look_again(|word| {
        let rect = fixture.tree.find(&fixture.owner, word)?;
        counted.contains(&word).then_some(Object { rect, word })
    });
    let ended = fixture.tree.nearest_some(&fixture.owner, search, MOST, |object| {
        asked += 1;
        counted.contains(&object.word)
    });
    (ended, search.nodes() - before, asked)
}

/// The nearest of the objects that count, from a plain list.
fn expected(
    fixture: &TreeFixture<NoJournal>,
    (x, y): (f64, f64),
    wanted: usize,
    counted: &BTreeSet<u64>,
) -> Vec<Object> {
    let all = fixture.expected_nearest(x, y, usize::MAX);
    all.into_iter().filter(|object| counted.contains(&object.word)).take(wanted).collect()
}

#[test]
fn a_turn_is_bounded_where_nearly_all_objects_have_expired() {
    for kind in KINDS {
        let mut random = Random::new(3);
        let mut fixture = TreeFixture::new(kind, CAPACITY, 16 << 20, NoJournal);
        fixture.load((0..20_000).map(|_| point(&mut random)).collect());
        let counted: BTreeSet<u64> = (0..5).map(|_| fixture.some(&mut random).unwrap().0).collect();
        for wanted in [1, 3, 50] {
            let mut search = Nearest::new((1.0, 2.0), wanted);
            let mut turns = 0;
            loop {
                let (ended, nodes, asked) = turn(&fixture, &mut search, &counted);
                turns += 1;
                assert!(nodes + asked <= MOST + CAPACITY as u64, "{nodes} nodes, {asked} asked");
                match ended {
                    NearestTurn::Ended => break,
                    ended => assert_eq!(ended, NearestTurn::Paused),
                }
            }
            assert!(turns > 10 && search.nodes() <= fixture.tree.nodes(), "{turns} turns");
            let found: Vec<Object> = search.found();
            assert_eq!(found, expected(&fixture, (1.0, 2.0), wanted, &counted));
        }
    }
}

/// As in a sweep: expired objects are removed between all turns, and others are added and move. The
/// objects that count and stay are found, and each found object is in the tree.
#[test]
fn a_search_comes_to_its_end_though_the_tree_changes_in_every_turn() {
    let mut began_again = 0;
    for seed in 0..12 {
        let mut random = Random::new(seed + 1);
        let kind = KINDS[seed as usize % KINDS.len()];
        let mut fixture = TreeFixture::new(kind, CAPACITY, 16 << 20, NoJournal);
        fixture.load((0..12_000).map(|_| point(&mut random)).collect());
        let mut counted: BTreeSet<u64> =
            (0..40).map(|_| fixture.some(&mut random).unwrap().0).collect();
        let mut stayed = counted.clone();
        let at = place(&mut random);
        let wanted = 1 + random.below(50) as usize;
        let mut search = Nearest::new(at, wanted);
        let mut nodes = 0;
        for turns in 0.. {
            let (ended, visited, asked) = turn(&fixture, &mut search, &counted);
            assert!(visited + asked <= MOST + NEAREST_AGAIN_WORK + CAPACITY as u64);
            nodes += visited;
            match ended {
                NearestTurn::Ended => break,
                ended => assert_eq!((ended, turns < 5_000), (NearestTurn::Paused, true)),
            }
            for _ in 0..8 {
                let (id, _) = fixture.some(&mut random).unwrap();
                match random.below(6) {
                    0 => {
                        stayed.remove(&id);
                        fixture.move_to(id, point(&mut random));
                    }
                    1 => {
                        let id = fixture.insert_as(point(&mut random));
                        counted.insert(id);
                    }
                    2 => {
                        stayed.remove(&id);
                        counted.remove(&id);
                    }
                    _ if !stayed.contains(&id) => {
                        counted.remove(&id);
                        fixture.remove(id);
                    }
                    _ => {}
                }
            }
        }
        began_again += (nodes > fixture.tree.nodes()) as u32;
        let found: Vec<Object> = search.found();
        assert!(found.len() <= wanted);
        for object in &found {
            assert!(counted.contains(&object.word));
            assert_eq!(fixture.tree.find(&fixture.owner, object.word), Some(object.rect));
        }
        let distance = |object: &Object| object.rect.distance_squared(at.0, at.1);
        assert!(found.is_sorted_by_key(|object| (distance(object).to_bits(), object.word)));
        let key = |object: &Object| (distance(object).to_bits(), object.word);
        let farthest = found.last().filter(|_| found.len() == wanted).map(key);
        for object in expected(&fixture, at, usize::MAX, &stayed) {
            let is_due = farthest.is_none_or(|farthest| key(&object) < farthest);
            assert!(!is_due || found.contains(&object), "{object:?} is missing");
        }
    }
    assert!(began_again > 6, "{began_again} searches met changes");
}

/// All nodes are equally near and the tree changes in every turn: no turn gets further than the one
/// before.
#[test]
fn a_search_that_comes_no_further_gives_up() {
    let everywhere = Rect::new(0.0, 1_000.0, 0.0, 1_000.0).unwrap();
    let mut fixture = TreeFixture::new(TreeKind::RStar, CAPACITY, 16 << 20, NoJournal);
    fixture.load(vec![everywhere; 4_000]);
    let none = BTreeSet::new();
    let mut search = Nearest::new((500.0, 500.0), 3);
    for turns in 0.. {
        let (ended, nodes, asked) = turn(&fixture, &mut search, &none);
        assert!(nodes + asked <= MOST + CAPACITY as u64);
        if ended == NearestTurn::GaveUp {
            assert_eq!(turns, WALK_RESTARTS + 1);
            break;
        }
        let counter = fixture.tree.header().counter;
        while fixture.tree.header().counter == counter {
            fixture.insert(everywhere);
        }
    }
    // The search ends when nothing changes.
    let mut search = Nearest::new((500.0, 500.0), 3);
    while turn(&fixture, &mut search, &none).0 == NearestTurn::Paused {}
    assert_eq!((search.found().len(), search.nodes()), (0, fixture.tree.nodes()));
}

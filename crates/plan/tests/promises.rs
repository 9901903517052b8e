//! What an answer promises while data change, and drivers that answer anything.

use crate::driver::answer;
use crate::generator::Names;
use crate::runs::plan;
use crate::world::{Thing, World, bytes, link, plain};
use remora_plan::{Column, Given, Object, Run, Value};
use remora_testing::Random;

/// Runs a plan over a world that `change` changes before each answer.
fn run_over(
    world: &mut World,
    words: &str,
    random: &mut Random,
    mut change: impl FnMut(&mut World, &mut Random),
) -> Vec<Vec<Column>> {
    let mut run = Run::new(plan(words), 0, 7);
    while run.outcome().is_none() {
        for number in 0..run.wants().len() {
            change(world, random);
            let want = run.wants()[number].clone();
            assert!(run.give(number, answer(world, &want, random)));
        }
    }
    run.into_outcome().unwrap().rows
}

#[test]
fn the_columns_of_one_item_are_of_one_moment() {
    let (mut random, mut version, mut moments) = (Random::new(3), 0, 0);
    let set = |world: &mut World, key: &str, version: u64| {
        let text = plain(&version.to_string());
        let fields = [("a", text.clone()), ("b", text), ("next", link("h2"))];
        *world = std::mem::take(world).hash(key, &fields);
    };
    for _ in 0..300 {
        let mut world = World::default();
        ["h0", "h1", "h2"].iter().for_each(|key| set(&mut world, key, 0));
        let words =
            "FROM KEYS 2 h0 h1 GET a WHERE a EXISTS GETKEY GET b FOLLOW next GET a b GETALL";
        let rows = run_over(&mut world, words, &mut random, |world, random| {
            version += 1;
            set(world, random.pick(&["h0", "h1", "h2"]), version);
        });
        assert_eq!(rows.len(), 2);
        for row in &rows {
            assert_eq!(row[0], row[2], "{row:?}");
            assert_eq!(row[3], row[4], "{row:?}");
            let Column::Fields(all) = &row[5] else { panic!("{row:?}") };
            assert_eq!(Column::Text(all[0].1.clone()), row[3]);
            moments += usize::from(row[0] != row[3]);
        }
    }
    assert!(moments > 200, "the world did not change meanwhile: {moments}");
}

#[test]
fn lists_that_grow_and_shrink_meanwhile_end() {
    let mut random = Random::new(4);
    for number in 0..200 {
        let length = random.below(400usize);
        let mut world = World::default().list("l", (0..length).map(|_| link("x")));
        let rows = run_over(&mut world, "FROM LIST l 0 -1 GETKEY", &mut random, |world, random| {
            let thing = world.things.get_mut(&bytes("l"));
            let Some(Thing::List(elements)) = thing else { return };
            match random.below(if number % 2 == 0 { 3u8 } else { 2 }) {
                0 => elements.truncate(elements.len() / 2),
                1 => elements.extend((0..50).map(|_| link("x"))),
                _ => drop(world.things.remove(&bytes("l"))),
            }
        });
        assert!(rows.len() <= 2_000, "{}", rows.len());
    }
}

#[test]
fn a_list_that_goes_meanwhile_leaves_the_next_one_alone() {
    let mut world = World::default()
        .list("l", (0..250).map(|_| link("x")))
        .list("m", ["a", "b", "c"].map(link));
    let mut answers = 0;
    let words = "FROM KEYS 2 l m EACH GETKEY";
    let rows = run_over(&mut world, words, &mut Random::new(1), |world, _| {
        answers += 1;
        if answers == 3 {
            world.things.remove(&bytes("l"));
        }
    });
    let keys = [vec!["x"; 100], vec!["a", "b", "c"]].concat();
    let expected: Vec<_> = keys.iter().map(|key| vec![Column::Text(bytes(key))]).collect();
    assert_eq!(rows, expected);
}

/// Any answer, to whatever.
fn anything(random: &mut Random) -> Given {
    let value = |random: &mut Random| match random.below(2u8) {
        0 => Value::Plain(random.bytes_up_to(3).into()),
        _ => Value::Link { key: random.key("h", 9).into(), hint: Some(random.bits()) },
    };
    let count = random.pick(&[0, 1, 2, 9, 300usize]);
    match random.below(7u8) {
        0 => Given::Gone,
        1 => Given::OtherType,
        2 => Given::Text(random.bytes_up_to(9).into()),
        3 => {
            let names = ["one", "other", "list", "more", "n"];
            let field = |random: &mut Random| (bytes(random.pick(&names)), value(random));
            Given::Hash((0..count).map(|_| field(random)).collect())
        }
        4 => {
            let object = |random: &mut Random| Object {
                id: random.bytes_up_to(4).into(),
                fields: vec![(bytes("n"), bytes("1"))],
            };
            let objects = (0..count).map(|_| object(random)).collect();
            Given::Objects { objects, next: (!random.one_in(3)).then(|| bytes("more")) }
        }
        _ => {
            let total = random.pick(&[0, count as u64, 1_000, i64::MAX as u64, u64::MAX]);
            Given::List { elements: (0..count).map(|_| value(random)).collect(), total }
        }
    }
}

#[test]
fn whatever_a_driver_answers_the_run_ends() {
    let (mut random, mut with_rows) = (Random::new(5), 0);
    for _ in 0..3_000 {
        let mut run = Run::new(Names::World.plan(&mut random), 0, 7);
        let mut batches = 0;
        while run.outcome().is_none() {
            batches += 1;
            assert!(batches < 20_000);
            for number in 0..run.wants().len() {
                run.give(number, anything(&mut random));
            }
        }
        with_rows += usize::from(!run.outcome().unwrap().rows.is_empty());
    }
    assert!(with_rows > 300, "{with_rows}");
}

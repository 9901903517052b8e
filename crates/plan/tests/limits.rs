//! Each limit at its edge: what it allows passes, one more ends the run and says which limit it was.

use crate::driver::{answer, batch, run};
use crate::runs::plan;
use crate::world::{Spot, Thing, World, bytes, link, plain};
use remora_plan::limits::*;
use remora_plan::{
    BadPlan, Column, Given, KeyRange, Limit, Limits, Object, Outcome, Plan, Range, Run, Start,
    Step, Want,
};
use remora_testing::Random;
use std::collections::BTreeMap;
use std::ops::Bound;

fn outcome(world: &World, words: &str) -> Outcome {
    run(world, &plan(words), &mut Random::new(1))
}

/// Rows and limit with the words' limit at a number that is just enough, and at one less.
fn at_edge(world: &World, words: &str, what: &str, enough: u64) -> [(usize, Option<Limit>); 2] {
    [enough, enough - 1].map(|most| {
        let outcome = outcome(world, &format!("{words} LIMIT {what} {most}"));
        (outcome.rows.len(), outcome.limit)
    })
}

#[test]
fn visits_count_a_tree_and_its_entries() {
    let entry = |number: u32| (bytes(&format!("{number:03}")), link(&format!("h{number}")));
    let world = crowd().with("o", Thing::Ordered((0..250).map(entry).collect()));
    let words = "FROM KEYS 1 o RANGE - + GET name";
    // One tree, 250 entries, 250 items.
    let expected = [(250, None), (249, Some(Limit::Visits))];
    assert_eq!(at_edge(&world, words, "VISITS", 501), expected);
    // Only as many entries as are wanted are looked at.
    let words = "FROM KEYS 1 o RANGE (004 + REV COUNT 120 GET name";
    assert_eq!(at_edge(&world, words, "VISITS", 241)[0], (120, None));
}

/// A list of 250 hashes with a name of two bytes.
fn crowd() -> World {
    let keys: Vec<String> = (0..250).map(|number| format!("h{number}")).collect();
    let world =
        keys.iter().fold(World::default(), |world, key| world.hash(key, &[("name", plain("xy"))]));
    world.list("all", keys.iter().map(|key| link(key)))
}

#[test]
fn visits_count_lists_elements_items_and_objects() {
    let words = "FROM LIST all 0 -1 GET name";
    // One list, 250 elements, 250 items.
    let expected = [(250, None), (249, Some(Limit::Visits))];
    assert_eq!(at_edge(&crowd(), words, "VISITS", 501), expected);
    let spot = |number: i32| Spot {
        id: number.to_string().into_bytes().into(),
        x: 0.0,
        y: 0.0,
        fields: BTreeMap::new(),
    };
    let mut world = crowd();
    world.trees.insert(bytes("tree"), (0..20).map(spot).collect());
    let words = "FROM WINDOW tree 0 0 1 1 KEY h GET name";
    assert_eq!(at_edge(&world, words, "VISITS", 40), [(20, None), (19, Some(Limit::Visits))]);
    assert_eq!(outcome(&world, "FROM KEYS 1 h0 LIMIT VISITS 0").limit, None);
}

#[test]
fn rows_and_bytes_end_in_front_of_the_row_that_is_too_much() {
    let words = "FROM LIST all 0 -1 GET name";
    let expected = [(250, None), (249, Some(Limit::Rows))];
    assert_eq!(at_edge(&crowd(), words, "ROWS", 250), expected);
    // A row, its column, and two bytes in it.
    let expected = [(250, None), (249, Some(Limit::Bytes))];
    assert_eq!(at_edge(&crowd(), words, "BYTES", 250 * 34), expected);
    let none = outcome(&crowd(), &format!("{words} LIMIT ROWS 0"));
    assert_eq!((none.rows.len(), none.limit), (0, Some(Limit::Rows)));
}

#[test]
fn remembered_keys_count_by_their_lengths() {
    let expected = [(250, None), (249, Some(Limit::Remembered))];
    assert_eq!(at_edge(&crowd(), "FROM LIST all 0 -1 ONCE", "REMEMBERED", 250), expected);
    let long = ["a", "b"].map(|letter| letter.repeat(128));
    let words = format!("FROM KEYS 2 {} {} ONCE", long[0], long[1]);
    let expected = [(2, None), (1, Some(Limit::Remembered))];
    assert_eq!(at_edge(&World::default(), &words, "REMEMBERED", 6), expected);
    let world = crowd().hash("root", &[("list", link("all"))]);
    // Each walk has the limit for its own; the last level of a walk that repeats remembers nothing.
    let words = "FROM KEYS 2 root root WALK list 1";
    let expected = [(500, None), (249, Some(Limit::Remembered))];
    assert_eq!(at_edge(&world, words, "REMEMBERED", 250), expected);
    let words = "FROM KEYS 2 root root WALK list 1 REPEAT";
    assert_eq!(at_edge(&world, words, "REMEMBERED", 1), [(500, None), (500, None)]);
}

#[test]
fn time_is_the_callers() {
    let world = crowd();
    let plan = plan("FROM LIST all 0 -1 GET name LIMIT MS 50");
    let mut random = Random::new(1);
    let mut run = Run::new(plan, 1_000, 7);
    batch(&world, &mut run, &mut random);
    batch(&world, &mut run, &mut random);
    run.tick(1_050);
    assert_eq!(run.outcome(), None);
    run.tick(1_051);
    let outcome = run.outcome().unwrap();
    assert_eq!(outcome.limit, Some(Limit::Time));
    assert!((1..250).contains(&outcome.rows.len()), "{}", outcome.rows.len());
    assert!(run.wants().is_empty());
    assert!(!run.give(0, Given::Gone));
    run.tick(2_000);
    assert!(run.outcome().is_some());
}

#[test]
fn a_window_beyond_its_bound_gives_no_rows() {
    for (many, limit) in [(MAX_WINDOW_OBJECTS, None), (MAX_WINDOW_OBJECTS + 1, Some(Limit::Window))]
    {
        let mut run = Run::new(plan("FROM WINDOW tree 0 0 1 1 LIMIT ROWS 1000000"), 0, 7);
        let mut given = 0;
        while run.outcome().is_none() {
            let Want::Objects { count, .. } = run.wants()[0] else { panic!("{:?}", run.wants()) };
            let piece = (many - given).min(count as usize);
            let object = |number: usize| Object {
                id: format!("{number:08}").into_bytes().into(),
                fields: Vec::new(),
            };
            let objects = (given..given + piece).map(object).collect();
            given += piece;
            // The last piece is empty.
            let next = (piece > 0).then(|| bytes("more"));
            assert!(run.give(0, Given::Objects { objects, next }));
        }
        let outcome = run.outcome().unwrap();
        assert_eq!(outcome.limit, limit);
        assert_eq!(outcome.rows.len(), if limit.is_none() { many } else { 0 });
    }
}

#[test]
fn a_search_for_the_nearest_that_goes_no_further_ends_at_its_limit() {
    // Of 1,999 objects all were looked at. Of 2,000 there may be more.
    for (many, limit) in [(MAX_NEAREST - 1, None), (MAX_NEAREST, Some(Limit::Nearest))] {
        let words = "FROM NEAREST tree 0 0 50 WHERE status = free GETKEY";
        let mut run = Run::new(plan(words), 0, 7);
        let mut given = 0;
        while run.outcome().is_none() {
            let Want::Objects { count, .. } = run.wants()[0] else { panic!("{:?}", run.wants()) };
            if given == MAX_NEAREST {
                assert!(run.give(0, Given::NoMoreNearest));
                continue;
            }
            let piece = (many - given).min(count);
            let object = |number: u32| Object {
                id: format!("{number:08}").into_bytes().into(),
                // Three are free.
                fields: vec![(bytes("status"), bytes(if number < 3 { "free" } else { "busy" }))],
            };
            let objects = (given..given + piece).map(object).collect();
            given += piece;
            let next = (piece == count || given == MAX_NEAREST).then(|| bytes("more"));
            assert!(run.give(0, Given::Objects { objects, next }));
        }
        let outcome = run.outcome().unwrap();
        assert_eq!((outcome.limit, outcome.rows.len()), (limit, 3));
        assert_eq!(outcome.explain.objects, u64::from(many));
        let limit_read = Outcome::from_bytes(&outcome.to_bytes()).map(|outcome| outcome.limit);
        assert_eq!(limit_read, Some(limit));
    }
    // Enough are found before.
    let mut run = Run::new(plan("FROM NEAREST tree 0 0 1 GETKEY"), 0, 7);
    let objects = vec![Object { id: bytes("1"), fields: Vec::new() }];
    assert!(run.give(0, Given::Objects { objects, next: Some(bytes("more")) }));
    assert_eq!(run.outcome().unwrap().limit, None);
    // No other start knows that answer.
    let mut run = Run::new(plan("FROM WINDOW tree 0 0 1 1 GETKEY"), 0, 7);
    assert!(run.give(0, Given::NoMoreNearest));
    let outcome = run.outcome().unwrap();
    assert_eq!((outcome.limit, outcome.explain.skipped.other_type), (None, 1));
}

#[test]
fn cycles_and_graphs_that_grow_with_each_level_end() {
    let ring = World::default()
        .hash("a", &[("one", link("a")), ("list", link("l")), ("name", plain("x"))])
        .list("l", [link("a")]);
    let words = format!("FROM KEYS 1 a {}GETKEY", "FOLLOW one ".repeat(MAX_STEPS - 1));
    assert_eq!(outcome(&ring, &words).explain.hops, MAX_STEPS as u64 - 1);
    assert_eq!(outcome(&ring, "FROM KEYS 1 a WALK list 64").rows.len(), 0);
    assert_eq!(outcome(&ring, "FROM KEYS 1 a WALK list 64 REPEAT").rows.len(), 64);

    // Ten items, each with links to all: 10^64 paths.
    let keys: Vec<String> = (0..10).map(|number| format!("h{number}")).collect();
    let world =
        keys.iter().fold(World::default(), |world, key| world.hash(key, &[("list", link("l"))]));
    let world = world.list("l", keys.iter().map(|key| link(key)));
    let bomb = outcome(&world, "FROM KEYS 1 h0 WALK list 64 REPEAT LIMIT ROWS 100000");
    assert_eq!(bomb.limit, Some(Limit::Visits));
    let bomb = outcome(&world, "FROM KEYS 1 h0 WALK list 64 REPEAT LIMIT REMEMBERED 500");
    assert_eq!((bomb.limit, bomb.rows.len()), (Some(Limit::Remembered), 500));
    assert_eq!(outcome(&world, "FROM KEYS 1 h0 WALK list 64").rows.len(), 9);
}

#[test]
fn a_text_that_is_too_long_for_a_key_leads_nowhere() {
    let [longest, longer] = [0, 1].map(|more| "k".repeat(MAX_PLAN_KEY_BYTES + more));
    let world = World::default()
        .hash("a", &[("one", plain(&longest)), ("other", plain(&longer))])
        .list("l", [plain(&longer), link(&longest)]);
    let rows = |words: &str| {
        let outcome = outcome(&world, words);
        (outcome.rows.len(), outcome.explain.skipped.not_a_key)
    };
    assert_eq!(rows("FROM KEYS 1 a FOLLOW one KEY"), (1, 0));
    assert_eq!(rows("FROM KEYS 1 a FOLLOW other KEY"), (0, 1));
    assert_eq!(rows("FROM KEYS 1 l EACH KEY"), (1, 1));
}

#[test]
fn take_reads_no_further_than_its_batch() {
    let world = crowd();
    let mut run = Run::new(plan("FROM LIST all 0 -1 GET name TAKE 3"), 0, 7);
    let (mut random, mut lists) = (Random::new(1), 0);
    while run.outcome().is_none() {
        lists += run.wants().iter().filter(|want| matches!(want, Want::List { .. })).count();
        for number in 0..run.wants().len() {
            let given = answer(&world, &run.wants()[number], &mut random);
            assert!(run.give(number, given));
        }
    }
    assert_eq!((run.outcome().unwrap().rows.len(), lists), (3, 1));
    assert_eq!(run.outcome().unwrap().explain.items, 3);
}

#[test]
fn batches_stay_within_their_bounds() {
    // Many long lists at once: a batch wants few of them.
    let keys: Vec<String> = (0..1_000).map(|number| format!("l{number}")).collect();
    let words = format!("FROM KEYS 1000 {} EACH GETALL", keys.join(" "));
    let run = Run::new(plan(&words), 0, 7);
    let each = LIST_ELEMENTS as usize;
    assert_eq!(run.wants().len(), BATCH_VISITS.div_ceil(each));
    let words = format!("FROM KEYS 1000 {} GETALL", keys.join(" "));
    assert_eq!(Run::new(plan(&words), 0, 7).wants().len(), BATCH_WANTS);
    // In front of a TAKE not many more than it takes, also where a later step needs them.
    let wants = |steps: &str| Run::new(plan(&format!("{words} {steps}")), 0, 7).wants().len();
    assert_eq!(wants("GETKEY TAKE 3"), LEAST_AHEAD);
    assert_eq!(wants("FOLLOW one GETALL TAKE 20 GETALL"), 40);
    assert_eq!(wants("TAKE 1000"), BATCH_WANTS);
}

#[test]
fn a_run_whose_rows_hold_much_reads_only_for_the_first() {
    let keys: Vec<String> = (0..64).map(|number| format!("h{number}")).collect();
    let words = format!("FROM KEYS 64 {} GET name FOLLOW one GET name", keys.join(" "));
    let wants = |name_bytes: usize| {
        let mut run = Run::new(plan(&words), 0, 7);
        let name = Column::Text(vec![b'x'; name_bytes].into());
        let Column::Text(name) = name else { unreachable!() };
        for number in 0..run.wants().len() {
            let name = remora_plan::Value::Plain(name.clone());
            let fields = vec![(bytes("name"), name), (bytes("one"), link("z"))];
            assert!(run.give(number, Given::Hash(fields)));
        }
        run.wants().len()
    };
    assert_eq!(wants(BYTES_AHEAD / 128), 64);
    assert_eq!(wants(BYTES_AHEAD / 32), 1);
}

#[test]
fn a_plan_beyond_a_bound_is_none() {
    let keys = |count: usize| Start::Keys(vec![bytes("k"); count]);
    let bad = |start: Start, steps: Vec<Step>| Plan::new(start, steps, Limits::default()).err();
    let walk = |depth| Step::Walk { via: bytes("f"), depth, once: true, by_key: false };
    let get = |count: usize| Step::Get(vec![bytes("f"); count]);
    let suffix = |length: usize| Step::Suffix(vec![0; length].into());
    let range = |length: usize, count: u64| {
        let to = Bound::Excluded(vec![0; length].into());
        let keys = KeyRange { from: Bound::Unbounded, to, is_reverse: false };
        Step::Range(Range { keys, count, with_keys: false, by_key: false })
    };
    let follow = |length: usize| Step::Follow { field: vec![0; length].into(), by_key: false };
    let cases = [
        (keys(MAX_START_KEYS), vec![Step::GetKey; MAX_STEPS], None),
        (keys(1), vec![Step::GetKey; MAX_STEPS + 1], Some(BadPlan::Steps)),
        (keys(0), vec![], Some(BadPlan::Keys)),
        (keys(MAX_START_KEYS + 1), vec![], Some(BadPlan::Keys)),
        (keys(1), vec![Step::Once; MAX_REMEMBERING_STEPS], None),
        (keys(1), vec![walk(1), Step::Once, Step::Once, Step::Once, Step::Once], {
            Some(BadPlan::RememberingSteps)
        }),
        (keys(1), vec![walk(MAX_DEPTH)], None),
        (keys(1), vec![walk(MAX_DEPTH + 1)], Some(BadPlan::Depth)),
        (keys(1), vec![walk(0)], Some(BadPlan::Depth)),
        (keys(1), vec![get(MAX_GET_FIELDS)], None),
        (keys(1), vec![get(MAX_GET_FIELDS + 1)], Some(BadPlan::Fields)),
        (keys(1), vec![get(0)], Some(BadPlan::Fields)),
        (keys(1), vec![follow(MAX_WORD_BYTES)], None),
        (keys(1), vec![follow(MAX_WORD_BYTES + 1)], Some(BadPlan::LongWord)),
        (keys(1), vec![suffix(MAX_PREFIX_BYTES)], None),
        (keys(1), vec![suffix(MAX_PREFIX_BYTES + 1)], Some(BadPlan::LongSuffix)),
        (keys(1), vec![range(MAX_BOUND_BYTES, 1)], None),
        (keys(1), vec![range(MAX_BOUND_BYTES + 1, 1)], Some(BadPlan::LongBound)),
        (keys(1), vec![range(0, 0)], Some(BadPlan::Entries)),
        (keys(1), vec![Step::Take(0)], Some(BadPlan::Take)),
        (Start::Keys(vec![vec![0; MAX_PLAN_KEY_BYTES].into()]), vec![], None),
        (Start::Keys(vec![vec![0; MAX_PLAN_KEY_BYTES + 1].into()]), vec![], Some(BadPlan::LongKey)),
    ];
    for (number, (start, steps, expected)) in cases.into_iter().enumerate() {
        assert_eq!(bad(start, steps), expected, "{number}");
    }
    let limits = [
        (Limits { visits: MAX_VISITS + 1, ..Limits::default() }, BadPlan::Visits),
        (Limits { rows: MAX_ROWS + 1, ..Limits::default() }, BadPlan::Rows),
        (Limits { bytes: MAX_RESULT_BYTES + 1, ..Limits::default() }, BadPlan::Bytes),
        (Limits { remembered: MAX_REMEMBERED + 1, ..Limits::default() }, BadPlan::Remembered),
        (Limits { time_ms: MAX_TIME_MS + 1, ..Limits::default() }, BadPlan::Time),
    ];
    for (limits, expected) in limits {
        assert_eq!(Plan::new(keys(1), vec![], limits), Err(expected));
    }
}

#[test]
fn a_run_far_ahead_of_its_result_waits_for_it() {
    // The first list leads to one item, and the plan follows it often; the other lists lead nowhere.
    let mut world = World::default().hash("h", &[("one", link("h"))]).list("l0", [link("h")]);
    let keys: Vec<String> = (0..1_000).map(|number| format!("l{number}")).collect();
    for key in &keys[1..] {
        world = world.list(key, (0..100).map(|_| plain("x")));
    }
    let follow = "FOLLOW one ".repeat(20);
    let mut run =
        Run::new(plan(&format!("FROM KEYS 1000 {} EACH {follow}TAKE 1", keys.join(" "))), 0, 7);
    let (mut random, mut lists) = (Random::new(1), 0);
    while run.outcome().is_none() {
        lists += run.wants().iter().filter(|want| matches!(want, Want::List { .. })).count();
        batch(&world, &mut run, &mut random);
    }
    assert_eq!(run.outcome().unwrap().rows.len(), 1);
    let most = (VISITS_AHEAD as usize + 2 * BATCH_VISITS) / LIST_ELEMENTS as usize;
    assert!((10..most).contains(&lists), "{lists} of at most {most}");
}

//! Random plans over random graphs: the runner gives what the oracle gives, whatever the order of the
//! answers.

use crate::driver::{batch, run};
use crate::generator::Names;
use crate::oracle;
use crate::world::{KEYS, World, bytes, link, plain};
use remora_plan::limits::MAX_PLAN_KEY_BYTES;
use remora_plan::{
    Area, Column, Fields, Given, Limit, Limits, LinkAt, LinkPlace, Outcome, Place, Plan, Run,
    Start, Step, Value, Want, text,
};
use remora_testing::Random;
use std::collections::BTreeMap;

/// The plan that the words say.
pub fn plan(words: &str) -> Plan {
    let words: Vec<&str> = words.split_whitespace().collect();
    text::parse(&words).unwrap_or_else(|error| panic!("{error}")).plan
}

/// The outcome, without what the oracle does not know.
fn known(mut outcome: Outcome) -> Outcome {
    outcome.explain.batches = 0;
    if outcome.limit.is_some() {
        outcome.explain = Default::default();
    }
    outcome
}

#[test]
fn random_plans_give_what_the_oracle_gives() {
    let mut random = Random::new(24);
    let (mut limits, mut with_rows, mut skipped) = (BTreeMap::new(), 0, [0u64; 6]);
    for number in 0..20_000 {
        let world = World::random(&mut random);
        let plan = Names::World.plan(&mut random);
        let expected = oracle::outcome(&world, &plan);
        let outcome = run(&world, &plan, &mut random);
        let words = text::print(&text::Query { plan: plan.clone(), explain: false });
        let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        assert_eq!(known(outcome.clone()), known(expected), "plan {number}: {}", words.join(" "));
        *limits.entry(outcome.limit.map(Limit::name)).or_insert(0) += 1;
        with_rows += usize::from(!outcome.rows.is_empty());
        let s = outcome.explain.skipped;
        let all = [s.gone, s.other_type, s.missing_field, s.not_a_link, s.filtered, s.met_before];
        (0..6).for_each(|at| skipped[at] += u64::from(all[at] > 0));
    }

    // Enough of everything is among them for the comparison to say something.
    assert!(with_rows > 7_000, "{with_rows}");
    for name in [None, Some("VISITS"), Some("ROWS"), Some("BYTES"), Some("REMEMBERED")] {
        assert!(limits.get(&name).is_some_and(|count| *count > 50), "{name:?} {limits:?}");
    }
    assert!(skipped.iter().all(|count| *count > 200), "{skipped:?}");
}

#[test]
fn the_order_of_answers_changes_nothing_at_all() {
    let mut random = Random::new(25);
    for _ in 0..1_000 {
        let world = World::random(&mut random);
        let plan = Names::World.plan(&mut random);
        // Trees give pieces of random sizes: there the number of batches may differ.
        let [one, other] = [1, 2].map(|seed| run(&world, &plan, &mut Random::new(seed)));
        if matches!(plan.start(), remora_plan::Start::Keys(_) | remora_plan::Start::List { .. }) {
            assert_eq!(one, other);
        } else {
            assert_eq!(known(one), known(other));
        }
    }
}

/// The lead user's question.
#[test]
fn the_nearest_free_couriers_their_profiles_and_zones() {
    let mut world = World::default();
    for number in 0..40 {
        let zone = format!("zone:{}", number % 3);
        world = world
            .hash(
                &format!("courier:{number}"),
                &[("name", plain(&format!("c{number}"))), ("zone", link(&zone))],
            )
            .hash(&zone, &[("name", plain(&zone[5..]))]);
    }
    let spot = |number: i32| crate::world::Spot {
        id: number.to_string().into_bytes().into(),
        x: f64::from(number),
        y: 0.0,
        fields: [(bytes("status"), bytes(if number % 4 == 0 { "free" } else { "busy" }))].into(),
    };
    world.trees.insert(bytes("couriers"), (0..40).map(spot).collect());
    let words = "FROM NEAREST couriers 10.1 0 3 WHERE status = free KEY courier: \
                 GET name phone FOLLOW zone GET name";
    let outcome = run(&world, &plan(words), &mut Random::new(1));
    let row = |courier: &str, zone: &str| {
        let [courier, zone] = [courier, zone].map(|text| Column::Text(bytes(text)));
        vec![courier, Column::Nil, zone]
    };
    assert_eq!(outcome.rows, [row("c12", "0"), row("c8", "2"), row("c16", "1")]);
    assert_eq!((outcome.limit, outcome.explain.hops, outcome.explain.items), (None, 3, 6));
    // Each object that was tested counts, and those behind the last one do not.
    assert_eq!((outcome.explain.objects, outcome.explain.skipped.filtered), (12, 9));
}

#[test]
fn a_plan_stays_in_the_generation_that_its_root_named() {
    let generation = |world: World, name: &str| {
        let target = format!("{name}:user:2");
        world
            .hash(&format!("{name}:user:1"), &[("v", plain(name)), ("boss", link(&target))])
            .hash(&target, &[("v", plain(name))])
    };
    let world = World::default().hash("staff", &[("current", link("staff@7"))]);
    let world = generation(generation(world, "staff@7"), "staff@8");
    // The name of a generation is no item: only keys with it at their beginning are read.
    let words = "FROM KEYS 1 staff FOLLOW current SUFFIX :user:1 GET v FOLLOW boss GET v GETKEY";
    let outcome = run(&world, &plan(words), &mut Random::new(1));
    let row = ["staff@7", "staff@7", "staff@7:user:2"].map(|text| Column::Text(bytes(text)));
    assert_eq!(outcome.rows, [row]);
    assert_eq!((outcome.explain.hops, outcome.explain.items), (2, 3));
    // A key that gets too long is none.
    let start = Start::Keys(vec![vec![b'k'; MAX_PLAN_KEY_BYTES].into()]);
    let steps = vec![Step::Suffix(bytes("x")), Step::GetKey];
    let plan = Plan::new(start, steps, Limits::default()).unwrap();
    let outcome = run(&world, &plan, &mut Random::new(1));
    assert_eq!((outcome.rows.len(), outcome.explain.skipped.not_a_key), (0, 1));
}

#[test]
fn a_walk_goes_breadth_first_and_meets_each_once() {
    let world = World::default()
        .hash("a", &[("list", link("la"))])
        .list("la", [link("b"), link("c"), link("b")])
        .hash("b", &[("list", link("lb"))])
        .list("lb", [link("d"), link("a"), link("c")])
        .hash("c", &[("list", link("lc"))])
        .list("lc", [link("e"), link("d"), plain("f")]);
    let keys = |words: &str| {
        let outcome = run(&world, &plan(words), &mut Random::new(1));
        let text = |column: &Column| match column {
            Column::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        outcome.rows.iter().flatten().map(text).collect::<Vec<_>>().concat()
    };
    assert_eq!(keys("FROM KEYS 1 a WALK list 1 GETKEY"), "bc");
    assert_eq!(keys("FROM KEYS 1 a GETLEVEL WALK list 2 GETKEY GETLEVEL"), "0b10c10d20e2");
    assert_eq!(keys("FROM KEYS 1 a WALK list 2 GETKEY"), "bcde");
    assert_eq!(keys("FROM KEYS 1 a WALK list 64 GETKEY"), "bcde");
    assert_eq!(keys("FROM KEYS 1 a WALK list 2 KEY GETKEY"), "bcdef");
    assert_eq!(keys("FROM KEYS 1 a WALK list 2 REPEAT GETKEY"), "bcbdacedda".to_owned() + "c");
    assert_eq!(keys("FROM KEYS 2 a b WALK list 1 GETKEY"), "bcdac");
    assert_eq!(keys("FROM KEYS 2 a b WALK list 1 ONCE GETKEY"), "bcda");
}

#[test]
fn wants_of_many_rows_share_batches() {
    let world = KEYS[..8].iter().fold(World::default(), |world, key| {
        world.hash(key, &[("one", link("h0")), ("name", plain(key))])
    });
    let words = format!("FROM KEYS 8 {} GET name FOLLOW one GET name", KEYS[..8].join(" "));
    let outcome = run(&world, &plan(&words), &mut Random::new(1));
    assert_eq!((outcome.rows.len(), outcome.explain.batches), (8, 2));
}

#[test]
fn a_run_at_its_limit_of_visits_has_read_little_beyond_it() {
    // Each of 1,000 lists has 500 elements that lead nowhere; a limit of 2,000 visits ends it soon.
    let mut world = World::default();
    let keys: Vec<String> = (0..1_000).map(|number| format!("l{number}")).collect();
    for key in &keys {
        world = world.list(key, (0..500).map(|_| plain("x")));
    }
    let words = format!("FROM KEYS 1000 {} EACH LIMIT VISITS 2000", keys.join(" "));
    let mut run = Run::new(plan(&words), 0, 7);
    let (mut random, mut wants) = (Random::new(1), 0);
    while run.outcome().is_none() {
        wants += run.wants().len();
        batch(&world, &mut run, &mut random);
    }
    assert_eq!(run.outcome().unwrap().limit, Some(Limit::Visits));
    assert!(wants < 100, "{wants} lists and parts of them");
}

#[test]
fn fields_give_a_row_for_each_link_of_hashes_larger_than_a_stage() {
    // Three chunks as an application makes them, each with a link to the next.
    let mut world = World::default();
    let mut expected = Vec::new();
    for chunk in 0..3 {
        let names: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
        let targets: Vec<String> = names.iter().map(|name| format!("user:{chunk}{name}")).collect();
        let mut fields: Vec<(&str, Value)> =
            names.iter().zip(&targets).map(|(name, target)| (&**name, link(target))).collect();
        let next = format!("chunk:{}", chunk + 1);
        fields.extend([("next", link(&next)), ("note", plain("no link"))]);
        world = world.hash(&format!("chunk:{chunk}"), &fields);
        expected.extend(targets);
        expected.push(next);
    }
    let outcome = run(
        &world,
        &plan("FROM KEYS 3 chunk:0 chunk:1 chunk:2 FIELDS GETKEY LIMIT ROWS 2000"),
        &mut Random::new(1),
    );
    let rows: Vec<_> = expected.iter().map(|key| vec![Column::Text(bytes(key))]).collect();
    assert_eq!(outcome.rows, rows);
    let explain = outcome.explain;
    assert_eq!((explain.elements, explain.hops, explain.skipped.not_a_link), (906, 903, 3));
    // They count as visits: a limit holds within a hash.
    let words = "FROM KEYS 1 chunk:0 FIELDS GETKEY LIMIT VISITS 101";
    let outcome = run(&world, &plan(words), &mut Random::new(1));
    assert_eq!((outcome.limit, outcome.rows.len()), (Some(Limit::Visits), 100));
}

#[test]
fn a_plan_without_steps_has_rows_without_columns() {
    let outcome = run(&World::default(), &plan("FROM KEYS 2 a b"), &mut Random::new(1));
    assert_eq!(outcome.rows, [vec![], vec![]]);
    assert_eq!(outcome.explain.visits(), 0);
    assert_eq!(Limits::default(), *plan("FROM KEYS 1 a").limits());
}

#[test]
fn a_run_may_go_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Run>();
}

#[test]
fn wants_say_what_helps_and_only_what_is_used() {
    let fields = |names: &[&str]| Fields::Some(names.iter().map(|name| bytes(name)).collect());
    let place = |key: &str| Place { key: bytes(key), hint: None, link: None };
    let words = "FROM KEYS 1 a GET name WHERE n > 3 GETKEY FOLLOW one GET other EACH GETALL";
    let mut run = Run::new(plan(words), 0, 7);
    let expected = Want::Item { place: place("a"), fields: fields(&["n", "name", "one"]) };
    assert_eq!(run.wants(), [expected]);
    assert_eq!(run.wants()[0].key(), &bytes("a"));
    let one = Value::Link { key: bytes("b"), hint: Some(77) };
    assert!(run.give(0, Given::Hash(vec![(bytes("one"), one), (bytes("n"), plain("4"))])));
    let link = Some(LinkPlace { key: bytes("a"), at: LinkAt::Field(bytes("one")) });
    let there = Place { key: bytes("b"), hint: Some(77), link };
    assert_eq!(run.wants(), [Want::Item { place: there.clone(), fields: fields(&["other"]) }]);
    assert!(run.give(0, Given::Hash(Vec::new())));
    assert_eq!(run.wants(), [Want::List { place: there, from: 0, count: 100 }]);
    assert!(run.give(0, Given::List { elements: vec![plain("x"), link_to("c", 5)], total: 2 }));
    let link = Some(LinkPlace { key: bytes("b"), at: LinkAt::Element(1) });
    let there = Place { key: bytes("c"), hint: Some(5), link };
    assert_eq!(run.wants(), [Want::Item { place: there, fields: Fields::All }]);
    assert!(run.give(0, Given::Text(bytes("text"))));
    let expected =
        [Column::Nil, Column::Text(bytes("a")), Column::Nil, Column::Text(bytes("text"))];
    assert_eq!(run.outcome().unwrap().rows, [expected]);

    let run = Run::new(plan("FROM NEAREST t 1 2 9 WHERE status = free WHERE n > 2 KEY c:"), 0, 7);
    let expected = Want::Objects {
        tree: bytes("t"),
        area: Area::Nearest(1.0, 2.0),
        fields: [bytes("n"), bytes("status")].into(),
        count: 18,
        next: None,
    };
    assert_eq!(run.wants(), [expected]);
    let run = Run::new(plan("FROM LIST l -7 -3 GETALL"), 0, 7);
    assert_eq!(run.wants(), [Want::List { place: place("l"), from: -7, count: 5 }]);
}

fn link_to(key: &str, hint: u64) -> Value {
    Value::Link { key: bytes(key), hint: Some(hint) }
}

#[test]
fn documents_are_items_until_a_step_leaves_them() {
    let plan =
        plan("FROM KEYS 2 c d FIND {} COUNT 3 WHERE n > 1 GET name n FOLLOW at KEY GET size");
    let Step::Find(find) = &plan.steps()[0] else { panic!() };
    assert_eq!((&*find.filter, find.count), (&b"{}"[..], 3));
    let mut run = Run::new(plan, 0, 0);
    let document = |n: i32| {
        let fields = [("n", n.to_string()), ("name", format!("no {n}")), ("at", format!("p{n}"))];
        fields.map(|(name, text)| (bytes(name), Value::Plain(bytes(&text)))).to_vec()
    };
    let mut searches = Vec::new();
    while run.outcome().is_none() {
        for (number, want) in run.wants().to_vec().into_iter().enumerate() {
            let given = match want {
                Want::Documents { place, next, count, .. } => {
                    searches.push((place.key.to_vec(), next.clone(), count));
                    match (&*place.key, next.as_deref()) {
                        (b"d", _) => Given::Gone,
                        // A step of a search may find nothing, and go on.
                        (_, None) => Given::Documents {
                            documents: vec![document(1), document(2)],
                            next: Some(bytes("one")),
                        },
                        (_, Some(b"one")) => {
                            Given::Documents { documents: Vec::new(), next: Some(bytes("two")) }
                        }
                        _ => Given::Documents {
                            documents: vec![document(3), document(4)],
                            next: Some(bytes("three")),
                        },
                    }
                }
                Want::Item { place, .. } => {
                    Given::Hash(vec![(bytes("size"), Value::Plain(place.key))])
                }
                other => panic!("{other:?}"),
            };
            assert!(run.give(number, given));
        }
    }
    let outcome = run.into_outcome().unwrap();
    let row = |n: i32| {
        let texts = [format!("no {n}"), n.to_string(), format!("p{n}")];
        texts.map(|text| Column::Text(bytes(&text))).to_vec()
    };
    assert_eq!((outcome.rows, outcome.limit), (vec![row(2), row(3)], None));
    let explain = outcome.explain;
    assert_eq!((explain.elements, explain.lists, explain.skipped.filtered), (3, 4, 1));
    assert_eq!((explain.hops, explain.skipped.gone), (2, 1));
    let of_c = searches.iter().filter(|(key, ..)| key == b"c");
    let of_c: Vec<_> = of_c.map(|(_, next, count)| (next.as_deref(), *count)).collect();
    assert_eq!(of_c, [(None, 3), (Some(&b"one"[..]), 1), (Some(&b"two"[..]), 1)]);
}

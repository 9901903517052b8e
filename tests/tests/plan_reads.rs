//! Plans run by clients with READs: the same rows as asked ones, and as an oracle says.

use crate::generator::Names;
use crate::oracle;
use crate::world::{Thing, World};
use remora_client_core::{Options, Path, PlanRun, Route, Session, Wake, Wanted};
use remora_plan::{Bytes, Column, Limit, Limits, Outcome, Plan, Start, Value, text};
use remora_tests::{Random, Resp, ServerProcess, options, while_read_lease_lapses};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

const FLAGS: [&str; 2] = ["--max-memory=64MiB", "--fabric-address=127.0.0.1:0"];
const TRANSPORTS: [Wanted; 2] = [Wanted::Shm, Wanted::Tcp];

fn server(shards: &str) -> ServerProcess {
    ServerProcess::start(&[&FLAGS[..], &[shards]].concat())
}

fn session(server: &ServerProcess, transport: Wanted) -> Session {
    server.session_with(&Options { transport, wake: Wake::Event, ..options() })
}

fn call(resp: &mut Resp, words: &[&[u8]]) {
    let value = resp.try_call(words).unwrap();
    assert!(!value.is_error(), "{value:?}");
}

/// Sets a field, which becomes a link if its value is one.
fn set(resp: &mut Resp, key: &[u8], name: &[u8], value: &Value) {
    let command: &[u8] = match value {
        Value::Plain(_) => b"HSET",
        Value::Link { .. } => b"LINK.SET",
    };
    call(resp, &[command, key, name, value.text()]);
}

/// Writes a world into an empty server. What the server cannot hold leaves the world.
fn load(resp: &mut Resp, world: &mut World, random: &mut Random) {
    call(resp, &[b"FLUSHALL"]);
    world.things.retain(|_, thing| match thing {
        Thing::Hash(fields) => !fields.is_empty(),
        Thing::List(elements) => !elements.is_empty(),
        Thing::Text(_) | Thing::Ordered(_) => true,
    });
    world.trees.retain(|_, spots| !spots.is_empty());
    for (key, thing) in &world.things {
        match thing {
            Thing::Hash(fields) => {
                fields.iter().for_each(|(name, value)| set(resp, key, name, value));
            }
            Thing::List(elements) => {
                for element in elements {
                    let command: &[&[u8]] = match element {
                        Value::Plain(_) => &[b"RPUSH", key],
                        Value::Link { .. } => &[b"LINK.PUSH", key],
                    };
                    call(resp, &[command, &[element.text()]].concat());
                }
            }
            Thing::Text(text) => call(resp, &[b"SET", key, text]),
            Thing::Ordered(entries) => {
                call(resp, &[b"BTREE.CREATE", key, b"FANOUT", b"4"]);
                for (name, value) in entries {
                    let words: &[&[u8]] = &[b"BTREE.SET", key, name, value.text(), b"LINK"];
                    let is_link = matches!(value, Value::Link { .. });
                    call(resp, &words[..words.len() - usize::from(!is_link)]);
                }
            }
        }
    }
    // Some hints are stale: the records have moved.
    for (key, thing) in &world.things {
        let Thing::Hash(fields) = thing else { continue };
        let (name, value) = fields.iter().nth(random.below(fields.len())).unwrap();
        set(resp, key, name, value);
    }
    for (tree, spots) in &world.trees {
        for spot in spots {
            let [x, y] = [spot.x, spot.y].map(|number| number.to_string().into_bytes());
            let count = spot.fields.len().to_string();
            let mut words: Vec<&[u8]> = vec![b"RTREE.ADD", tree, &spot.id, &x, &y, &x, &y];
            if !spot.fields.is_empty() {
                words.extend([&b"FIELDS"[..], count.as_bytes()]);
                spot.fields.iter().for_each(|(name, value)| words.extend([&**name, &**value]));
            }
            call(resp, &words);
        }
    }
}

/// The outcome, without what depends on the path; and without counts if it reached a limit.
fn known(outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    outcome.explain.batches = 0;
    if outcome.limit.is_some() {
        outcome.explain = Default::default();
    }
    outcome
}

/// The plan with time enough.
fn patient(plan: &Plan) -> Plan {
    let limits = Limits { time_ms: 60_000, ..*plan.limits() };
    Plan::new(plan.start().clone(), plan.steps().to_vec(), limits).unwrap()
}

fn plan(words: &str) -> Plan {
    let words: Vec<&str> = words.split_whitespace().collect();
    text::parse(&words).unwrap_or_else(|error| panic!("{error}")).plan
}

#[test]
fn random_plans_give_the_same_rows_on_each_path() {
    let server = server("--shards=2");
    let mut random = Random::new(75);
    let mut resp = server.resp();
    let mut sessions = TRANSPORTS.map(|transport| session(&server, transport));
    let (mut read, mut asked, mut rows, mut stale) = (0, 0, 0, 0);
    for number in 0..40 {
        let mut world = World::random(&mut random);
        load(&mut resp, &mut world, &mut random);
        for _ in 0..12 {
            let plan = patient(&Names::World.plan(&mut random));
            let expected = known(&oracle::outcome(&world, &plan));
            let words = text::print(&text::Query { plan: plan.clone(), explain: false });
            let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
            let words = words.join(" ");
            // Objects at one distance come in an order of the tree.
            let is_oracle = !matches!(plan.start(), Start::Nearest { .. });
            let mut first = is_oracle.then_some(expected);
            for session in &mut sessions {
                for path in [Path::Ask, Path::Read, Path::Choose] {
                    let run = session.run_plan(&plan, path).unwrap();
                    let outcome = known(&run.outcome);
                    let first = first.get_or_insert_with(|| outcome.clone());
                    assert_eq!(&outcome, first, "world {number}, {path:?}: {words}");
                    let is_read = path == Path::Read && run.served_by.is_read();
                    read += u32::from(is_read);
                    asked += u32::from(path == Path::Read && !is_read);
                    rows += outcome.rows.len();
                    stale += run.counts.stale_hints;
                }
            }
        }
    }
    assert!(read > 200 && asked > 50 && rows > 1_000, "{read} read, {asked} asked, {rows} rows");
    assert!(stale > 50, "{stale} stale hints");
}

/// Ten thousand people in a binary tree of links, in steps of one batch a level.
#[test]
fn each_hop_of_a_plan_is_one_batch_of_reads() {
    let server = server("--shards=1");
    let mut resp = server.resp();
    for number in (0..127u32).rev() {
        let key = format!("p:{number}");
        call(&mut resp, &[b"HSET", key.as_bytes(), b"name", format!("n{number}").as_bytes()]);
        for (field, child) in [("left", 2 * number + 1), ("right", 2 * number + 2)] {
            if child < 127 {
                let child = format!("p:{child}");
                let words = ["LINK.SET", &key, field, &child].map(str::as_bytes);
                call(&mut resp, &words);
            }
        }
        let list = format!("l:{number}");
        for child in [2 * number + 1, 2 * number + 2] {
            let child = format!("p:{child}");
            call(&mut resp, &["LINK.PUSH", &list, &child].map(str::as_bytes));
        }
        call(&mut resp, &["LINK.SET", &key, "all", &list].map(str::as_bytes));
    }
    let down = plan("FROM KEYS 1 p:0 FOLLOW left FOLLOW right FOLLOW left GET name");
    let walk = plan("FROM KEYS 1 p:0 WALK all 5 GET name");
    for transport in TRANSPORTS {
        let mut session = session(&server, transport);
        session.explain(true);
        let run = while_read_lease_lapses(&mut session, |session| {
            session.run_plan(&down, Path::Read).unwrap()
        });
        assert_eq!(run.outcome.rows, [[Column::Text(b"n9"[..].into())]]);
        let PlanRun { served_by, counts, outcome, .. } = run;
        assert!(served_by.is_read(), "{served_by:?} {counts:?}");
        assert_eq!((outcome.explain.hops, outcome.explain.batches), (3, 4));
        // The first key has no hint, and its record moved when the last of its fields was set.
        assert!(counts.round_trips <= 5 && counts.asked == 0, "{counts:?}");
        let explanation = session.explanation().unwrap();
        assert_eq!((explanation.route, explanation.served_by), (Route::Read, served_by));
        let asked = session.run_plan(&down, Path::Ask).unwrap();
        assert_eq!((known(&asked.outcome), asked.counts.round_trips), (known(&outcome), 1));
        assert_eq!(session.explanation().unwrap().route, Route::Ask);
        let run = while_read_lease_lapses(&mut session, |session| {
            session.run_plan(&walk, Path::Read).unwrap()
        });
        assert_eq!(run.outcome.rows.len(), 62, "{:?}", run.outcome.explain);
        assert_eq!(run.counts.asked, 0, "{:?}", run.counts);
        let PlanRun { outcome, counts, .. } = run;
        let most = 3 * outcome.explain.batches + 2;
        assert!(counts.round_trips <= most, "{counts:?} {:?}", outcome.explain);
        assert_eq!(known(&session.run_plan(&walk, Path::Ask).unwrap().outcome), known(&outcome));
    }
}

#[test]
fn the_cost_of_both_paths_is_learned_by_the_shape_of_plans() {
    let server = server("--shards=2");
    let mut resp = server.resp();
    for number in 0..20 {
        let (key, next) = (format!("k:{number}"), format!("k:{}", (number + 1) % 20));
        call(&mut resp, &["LINK.SET", &key, "next", &next].map(str::as_bytes));
    }
    let plan = plan("FROM KEYS 1 k:0 FOLLOW next FOLLOW next GET next");
    let mut session = session(&server, Wanted::Shm);
    session.explain(true);
    let mut routes = BTreeMap::new();
    let mut known = false;
    for _ in 0..400 {
        session.run_plan(&plan, Path::Choose).unwrap();
        let explanation = session.explanation().unwrap();
        *routes.entry(format!("{:?}", explanation.route)).or_insert(0) += 1;
        known |= explanation.ask_ns.is_some() && explanation.read_ns.is_some();
    }
    assert!(known && routes.len() == 2, "both were tried: {routes:?}");
}

/// A row sees each item at one moment, and a key's own content, whatever the path.
#[test]
fn beside_writers_the_columns_of_an_item_belong_together() {
    let server = server("--shards=2");
    let mut resp = server.resp();
    let people = 30;
    for number in 0..people {
        let (key, next) = (format!("w:{number}"), format!("w:{}", (number + 1) % people));
        let fields = ["HSET", &key, "me", &key, "one", "0", "two", "0"];
        call(&mut resp, &fields.map(str::as_bytes));
        call(&mut resp, &["LINK.SET", &key, "next", &next].map(str::as_bytes));
        call(&mut resp, &["LINK.PUSH", "all", &key].map(str::as_bytes));
    }
    let plan = plan("FROM LIST all 0 -1 GET me one two FOLLOW next GET me one two");
    for transport in TRANSPORTS {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut resp, mut random) = (server.resp(), Random::new(8));
                for round in 1u64.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let (key, round) = (format!("w:{}", random.below(people)), round.to_string());
                    let pad = "x".repeat(random.below(60));
                    let words = ["HSET", &key, "one", &round, "two", &round, "pad", &pad];
                    call(&mut resp, &words.map(str::as_bytes));
                }
            });
            let mut session = session(&server, transport);
            let (mut changed, mut reads) = (0, 0);
            for number in 0..300 {
                let path = [Path::Read, Path::Ask, Path::Choose][number % 3];
                let run = session.run_plan(&plan, path).unwrap();
                assert_eq!((run.outcome.rows.len(), run.outcome.limit), (people, None::<Limit>));
                reads += u64::from(run.served_by.is_read());
                for (number, row) in run.outcome.rows.iter().enumerate() {
                    let text = |at: usize| match &row[at] {
                        Column::Text(text) => text.clone(),
                        other => panic!("{other:?}"),
                    };
                    for (from, number) in [(0, number), (3, (number + 1) % people)] {
                        let me: Bytes = format!("w:{number}").into_bytes().into();
                        assert_eq!(text(from), me);
                        assert_eq!(text(from + 1), text(from + 2), "of one moment");
                        changed += u32::from(&*text(from + 1) != b"0");
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
            assert!(changed > 100 && reads > 20, "{changed} {reads}");
        });
    }
}

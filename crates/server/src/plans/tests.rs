//! Plans at a thread, with real shards, whose jobs the test carries.

use super::*;
use crate::large_jobs::LargeJobs;
use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_layout::btree::KeyForm;
use remora_layout::limits::MAX_NEAREST;
use remora_layout::packed::Field;
use remora_layout::rect::Rect;
use remora_plan::Column;
use remora_plan::text;
use remora_protocol::Command;
use remora_protocol::hash::HashCommand;
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::ordered::{OrderedCommand, OrderedSettings};
use remora_protocol::tree::{ObjectId, PutObject, TreeCommand};
use remora_protocol::{Items, Request};

const SHARDS: usize = 3;

struct World {
    plans: Plans,
    shards: Vec<(Shard<NoJournal>, LargeJobs)>,
}

/// The shard of a key: by its last byte.
fn shard_of(key: &[u8]) -> usize {
    usize::from(key.last().copied().unwrap_or_default()) % SHARDS
}

fn route(database: Database, key: &[u8]) -> Option<(KeyHash, usize)> {
    (!key.starts_with(b"elsewhere")).then(|| {
        let seed = ShardOptions::default().hash_seed;
        (KeyHash::within(database, key, seed), shard_of(key))
    })
}

fn asker(id: u32) -> Asker {
    Asker::Session { place: 0, session: 1, id }
}

fn plan(words: &str) -> Plan {
    text::parse(&words.split(' ').collect::<Vec<_>>()).unwrap().plan
}

impl World {
    fn new() -> Self {
        let shard = || {
            let shard = Shard::new(Owner::heap(16 << 20, NoJournal), ShardOptions::default());
            (shard, LargeJobs::default())
        };
        Self { plans: Plans::new(0, 7), shards: (0..SHARDS).map(|_| shard()).collect() }
    }

    fn execute(&mut self, key: &str, request: Request<'_>) {
        let key = key.as_bytes();
        let command = Command::Of { key, request };
        let (shard, _) = &mut self.shards[shard_of(key)];
        let hash = shard.hash_of(Database::ZERO, &command);
        shard.execute(&command, hash, Now::default());
    }

    fn hash(&mut self, key: &str, fields: &[(&str, &str)]) {
        let mut pairs = Vec::new();
        for (name, value) in fields {
            Items::push(&mut pairs, name.as_bytes());
            Items::push(&mut pairs, value.as_bytes());
        }
        self.execute(key, HashCommand::Set { pairs: Items::parse(&pairs).unwrap() }.request());
    }

    fn list(&mut self, key: &str, elements: impl Iterator<Item = String>) {
        let mut items = Vec::new();
        elements.for_each(|element| Items::push(&mut items, element.as_bytes()));
        let items = Items::parse(&items).unwrap();
        self.execute(
            key,
            ListCommand::Push { side: Side::Right, if_there: false, items }.request(),
        );
    }

    /// An empty ordered tree of small nodes.
    fn ordered(&mut self, tree: &str, keys: KeyForm) {
        let settings = OrderedSettings { fan_out: 4, ..OrderedSettings::of(keys) };
        self.execute(tree, OrderedCommand::Create(settings).request());
    }

    fn entry(&mut self, tree: &str, key: &str, (value, is_link): (&str, bool)) {
        let (key, value) = (key.as_bytes(), Field { value: value.as_bytes(), is_link });
        self.execute(tree, OrderedCommand::Set { key, value }.request());
    }

    /// Objects along a line, from a point on.
    fn places(&mut self, tree: &str, count: u64) {
        for id in 1..=count {
            let rect = Rect::point(id as f64 / 1_000.0, 0.0).unwrap();
            let put = PutObject::new(ObjectId::Number(id), rect);
            self.execute(tree, TreeCommand::Put(put).request());
        }
    }

    fn begin(&mut self, id: u32, words: &str) {
        self.plans.begin(asker(id), (Database::ZERO, plan(words)));
    }

    /// A turn of the plans; the looks that result.
    fn turn(&mut self) -> Vec<(usize, Job)> {
        self.plans.turn(route);
        std::iter::from_fn(|| self.plans.pop_job()).collect()
    }

    /// Lets the shards carry out these looks, and gives their answers.
    fn answer(&mut self, jobs: Vec<(usize, Job)>) -> Vec<(Token, OwnedReply)> {
        let mut answers = Vec::new();
        for (at, job) in jobs {
            let (shard, work) = &mut self.shards[at];
            work.execute(shard, job, Now::default());
            while work.has_work() || work.has_replies() {
                work.turn(shard, Now::default());
                answers.extend(std::iter::from_fn(|| work.pop_reply()));
            }
        }
        answers
    }

    /// Goes on until all plans have ended. The outcomes by the ids of their requests.
    fn run(&mut self) -> Vec<(u32, Outcome)> {
        let mut ended = Vec::new();
        while !self.plans.is_empty() || self.plans.has_work() {
            let jobs = self.turn();
            for (token, reply) in self.answer(jobs) {
                self.plans.take(token, reply);
            }
            while let Some((asker, reply)) = self.plans.pop_ended() {
                ended.push((id_of(asker), outcome(&reply)));
            }
        }
        ended
    }
}

fn id_of(asker: Asker) -> u32 {
    match asker {
        Asker::Session { id, .. } => id,
        Asker::Connection(_) => unreachable!("there is none"),
    }
}

fn outcome(reply: &OwnedReply) -> Outcome {
    Outcome::from_bytes(reply.value.as_deref().expect("an outcome")).expect("an outcome")
}

fn texts(outcome: &Outcome) -> Vec<String> {
    let text = |column: &Column| match column {
        Column::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        other => format!("{other:?}"),
    };
    outcome.rows.iter().flatten().map(text).collect()
}

#[test]
fn an_answer_to_a_plan_that_has_gone_is_none_to_the_next_one() {
    let mut world = World::new();
    world.hash("a", &[("name", "old")]);
    world.hash("d", &[("name", "new")]);
    world.begin(1, "FROM KEYS 1 a GET name");
    let jobs = world.turn();
    let late = world.answer(jobs);
    world.plans.forget(|of| id_of(*of) == 1);
    world.begin(2, "FROM KEYS 1 d GET name");
    let jobs = world.turn();
    assert_eq!((late.len(), jobs.len()), (1, 1));
    late.into_iter().for_each(|(token, reply)| world.plans.take(token, reply));
    assert!(world.turn().is_empty());
    assert!(world.plans.pop_ended().is_none(), "it waits for its own answer");
    for (token, reply) in world.answer(jobs) {
        world.plans.take(token, reply);
    }
    let ended = world.run();
    assert_eq!((ended[0].0, texts(&ended[0].1)), (2, vec!["new".to_owned()]));
    assert_eq!(world.plans.counts().given_up, 1);
}

#[test]
fn the_time_of_a_plan_ends_though_no_answer_comes() {
    let mut world = World::new();
    world.hash("a", &[("name", "x")]);
    world.begin(1, "FROM KEYS 1 a GET name LIMIT MS 100");
    assert_eq!(world.turn().len(), 1);
    for id in 3..3 + PLANS_AT_ONCE as u32 {
        world.begin(id, "FROM KEYS 1 a WALK l 3 LIMIT REMEMBERED 1048576 LIMIT MS 60000");
    }
    // It comes last, and waits.
    world.begin(2, "FROM KEYS 1 a GET name LIMIT MS 50");
    world.turn();
    assert!(world.plans.counts().waiting > 0);
    world.plans.look_at_clock(100);
    world.plans.tick();
    world.plans.turn(route);
    let first = world.plans.pop_ended().map(|(of, reply)| (id_of(of), outcome(&reply).limit));
    assert_eq!(first, Some((2, Some(Limit::Time))));
    assert!(world.plans.pop_ended().is_none());
    world.plans.look_at_clock(101);
    world.plans.tick();
    world.plans.turn(route);
    let second = world.plans.pop_ended().map(|(of, reply)| (id_of(of), outcome(&reply).limit));
    assert_eq!(second, Some((1, Some(Limit::Time))));
    // Late answers belong to no plan; the others end with their time.
    world.plans.look_at_clock(60_001);
    world.plans.tick();
    world.plans.turn(route);
    let ended = std::iter::from_fn(|| world.plans.pop_ended()).count();
    assert_eq!(ended, PLANS_AT_ONCE);
    assert!(world.plans.is_empty());
    assert_eq!(world.plans.counts().reserved_bytes, 0);
}

#[test]
fn a_turn_takes_a_bounded_number_of_visits() {
    let mut world = World::new();
    world.list("l", (0..5_000).map(|at| format!("k{at}")));
    // As many as run at once by what they may hold.
    let plans = 30;
    for id in 0..plans {
        world.begin(id, "FROM LIST l 0 -1 KEY TAKE 1000 GETKEY");
    }
    let mut most = 0;
    let mut taken = 0;
    while !world.plans.is_empty() {
        let jobs = world.turn();
        most = most.max(jobs.len());
        for (token, reply) in world.answer(jobs) {
            world.plans.take(token, reply);
        }
        while let Some((_, reply)) = world.plans.pop_ended() {
            assert_eq!(outcome(&reply).rows.len(), 1_000);
            taken += 1;
        }
    }
    assert_eq!(taken, plans);
    // Each answer has 100 elements, and leads to the next look.
    assert!(most <= plans as usize, "{most}");
    for id in 0..plans {
        world.begin(id, "FROM LIST l 0 -1 KEY TAKE 1000 GETKEY");
    }
    let jobs = world.turn();
    assert_eq!(jobs.len(), plans as usize);
    for (token, reply) in world.answer(jobs) {
        world.plans.take(token, reply);
    }
    let after_one_turn = world.turn().len();
    assert!(after_one_turn <= PLAN_TURN_VISITS / 100 + 1, "{after_one_turn} looks after one turn");
    assert!(world.plans.has_work(), "the rest is for later turns");
}

#[test]
fn plans_wait_until_those_that_run_leave_room() {
    let mut world = World::new();
    world.hash("a", &[("name", "x")]);
    // Each may hold some 64 MiB: four at once.
    for id in 0..9 {
        world.begin(id, "FROM KEYS 1 a GET name LIMIT BYTES 60000000");
    }
    let mut most = 0;
    let mut order = Vec::new();
    while !world.plans.is_empty() {
        let jobs = world.turn();
        let counts = world.plans.counts();
        assert!(counts.reserved_bytes <= PLANS_HELD_BYTES, "{counts:?}");
        most = most.max(counts.running);
        for (token, reply) in world.answer(jobs) {
            world.plans.take(token, reply);
        }
        order.extend(std::iter::from_fn(|| world.plans.pop_ended()).map(|(of, _)| id_of(of)));
    }
    assert_eq!(order, (0..9).collect::<Vec<_>>());
    assert_eq!(most, 4);
    // One that may hold more than that runs alone.
    let walks = " WALK l 2".repeat(4);
    world.begin(9, &format!("FROM KEYS 1 a{walks} LIMIT BYTES 67108864 LIMIT REMEMBERED 1048576"));
    assert_eq!(world.run()[0].1.limit, None);
}

#[test]
fn rows_that_come_to_one_item_want_it_once() {
    let mut world = World::new();
    world.hash("zone", &[("name", "Z")]);
    for at in 0..40 {
        world.hash(&format!("c{at}"), &[("zone", "zone")]);
    }
    let keys: Vec<String> = (0..40).map(|at| format!("c{at}")).collect();
    world.begin(1, &format!("FROM KEYS 40 {} FOLLOW zone KEY GET name", keys.join(" ")));
    let ended = world.run();
    assert_eq!(texts(&ended[0].1), vec!["Z"; 40]);
    let counts = world.plans.counts();
    assert!(counts.wants < 80 && counts.looks < 20, "{counts:?}");
}

#[test]
fn values_too_long_for_one_answer_come_in_several() {
    let mut world = World::new();
    let long = "v".repeat(300_000);
    for at in 0..20 {
        world.hash(&format!("c{at}"), &[("v", &long)]);
    }
    let keys: Vec<String> = (0..20).map(|at| format!("c{at}")).collect();
    let words = format!("FROM KEYS 20 {} GET v LIMIT BYTES 60000000", keys.join(" "));
    world.begin(1, &words);
    let ended = world.run();
    assert_eq!(texts(&ended[0].1), vec![long; 20]);
    assert!(world.plans.counts().looks > 3);
}

#[test]
fn a_search_for_the_nearest_beyond_its_bound_says_so() {
    let mut world = World::new();
    for (tree, count) in [("few", MAX_NEAREST as u64 - 1), ("many", MAX_NEAREST as u64 + 100)] {
        world.places(tree, count);
    }
    // None of them has that field.
    for (key, limit) in [("few", None), ("many", Some(Limit::Nearest))] {
        world.begin(1, &format!("FROM NEAREST {key} 0 0 5 WHERE status = free GETKEY"));
        let [(_, outcome)] = &world.run()[..] else { panic!("{key}: one plan") };
        assert_eq!((outcome.limit, outcome.rows.len()), (limit, 0), "{key}");
        let looked_at = outcome.explain.objects;
        assert_eq!(looked_at, MAX_NEAREST as u64 - u64::from(limit.is_none()), "{key}");
        // As many as that are no limit by themselves.
        world.begin(2, &format!("FROM NEAREST {key} 0 0 {MAX_NEAREST} GETKEY"));
        let [(_, outcome)] = &world.run()[..] else { panic!("{key}: one plan") };
        assert_eq!((outcome.limit, outcome.rows.len() as u64), (None, looked_at), "{key}");
    }
}

#[test]
fn a_plan_ends_where_it_comes_to_a_key_of_another_group_or_reads_are_refused() {
    let mut world = World::new();
    world.hash("a", &[("next", "elsewhere:1")]);
    world.begin(1, "FROM KEYS 1 a FOLLOW next KEY GETALL");
    let jobs = world.turn();
    for (token, reply) in world.answer(jobs) {
        world.plans.take(token, reply);
    }
    world.turn();
    let ended = world.plans.pop_ended().map(|(_, reply)| reply.status);
    assert_eq!(ended, Some(Status::OtherGroup));
    world.begin(2, "FROM KEYS 1 a GETALL");
    world.turn();
    world.begin(3, "FROM KEYS 1 a GETALL");
    world.plans.end_all(Status::NoReads);
    let ended: Vec<Status> =
        std::iter::from_fn(|| world.plans.pop_ended()).map(|(_, reply)| reply.status).collect();
    assert_eq!(ended, [Status::NoReads; 2]);
    assert!(world.plans.is_empty());
}

/// The entries of a tree of 300 keys that meet the words of a range, with their keys.
fn expected(words: &[&str]) -> Vec<String> {
    if words[..2] == ["+", "-"] {
        return Vec::new();
    }
    let bound = |word: &str| match word.as_bytes() {
        [b'(', ..] => (word[1..].parse::<u64>().unwrap(), 1),
        _ => (word.parse().unwrap(), 0),
    };
    let from = if words[0] == "-" { 0 } else { bound(words[0]).0 + bound(words[0]).1 };
    let to = if words[1] == "+" { 301 } else { bound(words[1]).0 + 1 - bound(words[1]).1 };
    let mut keys: Vec<u64> = (from..to.max(from)).filter(|key| (1..=300).contains(key)).collect();
    if words.contains(&"REV") {
        keys.reverse();
    }
    let count = words.iter().position(|word| *word == "COUNT");
    keys.truncate(count.map_or(usize::MAX, |at| words[at + 1].parse().unwrap()));
    // Every third value is no link.
    let is_taken = |key: &u64| words.contains(&"KEY") || !key.is_multiple_of(3);
    keys.into_iter().filter(is_taken).flat_map(|key| [key.to_string(), format!("v{key}")]).collect()
}

#[test]
fn a_range_gives_the_entries_of_its_bounds_in_its_order() {
    let mut world = World::new();
    world.ordered("numbers", KeyForm::Integers);
    for key in 1..=300 {
        world.entry("numbers", &key.to_string(), (&format!("v{key}"), key % 3 != 0));
    }
    let bounds =
        ["- +", "(10 (12", "10 12", "7 +", "- (299", "250 260", "260 250", "(5 (5", "301 +", "+ -"];
    for bounds in bounds {
        for more in ["", " KEY", " COUNT 1 KEY", " COUNT 100", " COUNT 101 KEY", " COUNT 9999"] {
            for order in ["", " REV"] {
                let (count, key) = (more.trim_end_matches(" KEY"), more.ends_with(" KEY"));
                let key = if key { " KEY" } else { "" };
                let range = format!("{bounds}{order}{count} WITHKEYS{key}");
                world.begin(1, &format!("FROM KEYS 1 numbers RANGE {range} GETKEY"));
                let ended = world.run();
                let words: Vec<&str> = range.split(' ').collect();
                assert_eq!(texts(&ended[0].1), expected(&words), "{range}");
                assert_eq!(ended[0].1.limit, None);
            }
        }
    }
}

#[test]
fn a_range_of_a_tree_feeds_the_next_steps_and_of_others_says_why() {
    let mut world = World::new();
    world.ordered("empty", KeyForm::Bytes);
    world.ordered("times", KeyForm::Bytes);
    for (at, name) in ["Ann", "Bea", "Cid"].into_iter().enumerate() {
        world.hash(name, &[("name", name)]);
        world.entry("times", &format!("2026-11-2{at}"), (name, at != 1));
    }
    let mut run = |words: &str| {
        world.begin(1, words);
        let (_, outcome) = world.run().remove(0);
        (texts(&outcome), outcome.explain)
    };
    let words = "FROM KEYS 3 times Ann times RANGE 2026-11-21 + REV COUNT 2 KEY GET name";
    let (rows, explain) = run(words);
    assert_eq!(rows, ["Cid", "Bea", "Cid", "Bea"]);
    assert_eq!((explain.lists, explain.elements, explain.items), (3, 4, 4));
    assert_eq!((explain.skipped.other_type, explain.skipped.gone), (1, 0));
    assert_eq!(run("FROM KEYS 1 times RANGE - + GET name").0, ["Ann", "Cid"]);
    let (rows, explain) = run("FROM KEYS 2 empty none RANGE - + KEY GETKEY");
    assert!(rows.is_empty());
    assert_eq!((explain.lists, explain.skipped.gone, explain.skipped.other_type), (2, 1, 0));
}

#[test]
fn a_bound_that_is_no_key_of_the_tree_is_an_error() {
    let mut world = World::new();
    world.ordered("numbers", KeyForm::Integers);
    world.entry("numbers", "7", ("v", true));
    world.begin(1, "FROM KEYS 1 numbers RANGE seven + GETKEY");
    let jobs = world.turn();
    for (token, reply) in world.answer(jobs) {
        world.plans.take(token, reply);
    }
    world.turn();
    let (_, reply) = world.plans.pop_ended().expect("it has ended");
    assert_eq!(reply.status, Status::NotAnInteger);
}

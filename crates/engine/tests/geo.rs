//! Sorted sets that are searched for positions, against plain maps: histories beside strings of the
//! same names, searches whole and in turns, with an R-tree and without, the log replayed, memory
//! that runs out.

use crate::scored;
use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, LargeSet, Now, Outcome, Shard, ShardOptions};
use remora_layout::hash::KeyHash;
use remora_layout::limits::WHOLE_ITEMS;
use remora_protocol::Reply;
use remora_protocol::geo::{Centre, GeoQuery, GeoSearch, Member, Members};
use remora_protocol::geo::{Position, Shape};
use remora_protocol::message::Status;
use remora_protocol::sorted::SortedCommand;
use remora_protocol::{Command, Condition, ExpireCondition, Expiry};
use remora_testing::Random;
use std::collections::BTreeMap;

const START: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 1 };
const KEYS: [&[u8]; 3] = [b"a", b"b", b""];

fn position(random: &mut Random) -> Position {
    let (longitude, latitude) = random.position();
    Position::new(longitude, latitude).unwrap()
}

fn shape(random: &mut Random) -> Shape {
    let mut size = || 10f64.powi(random.below(8)) * (1 + random.below(9)) as f64 / 3.0;
    let (one, other) = (size(), size());
    if random.one_in(2) {
        Shape::Circle { radius: one }
    } else {
        Shape::Box { width: one, height: other }
    }
}

fn shard(bytes: usize, eviction: Eviction) -> Shard {
    let options = ShardOptions { eviction, record_secret: 77, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

/// A shard's answer: status, number, value.
type Answer = (Status, i64, Option<Vec<u8>>);

fn told(reply: Reply<'_>) -> Answer {
    (reply.status, reply.number, reply.value.map(<[u8]>::to_vec))
}

fn ask(shard: &mut Shard, command: &Command<'_>, now: Now) -> Answer {
    let hash = command.key().map_or(KeyHash(0), |key| shard.hash(key));
    told(shard.execute(command, hash, now))
}

fn list(places: &[(f64, Vec<u8>)]) -> Vec<u8> {
    scored::scored(places.iter().map(|(score, member)| (*score, &member[..])))
}

fn add(shard: &mut Shard, key: &[u8], places: &[(f64, Vec<u8>)], now: Now) -> Answer {
    ask(shard, &Command::Of { key, request: scored::add(&list(places)).request() }, now)
}

/// A search finds these members, and lets the set get its tree.
fn search(bytes: &[u8]) -> SortedCommand<'_> {
    SortedCommand::Search { query: GeoQuery::parse(bytes).unwrap() }
}

fn encoded(search: &GeoSearch<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    search.write(&mut bytes);
    bytes
}

/// Scores by member, as a search has found them; each once, and distances as
/// they are.
fn members(found: &[u8], centre: Position) -> BTreeMap<Vec<u8>, u64> {
    let mut all = BTreeMap::new();
    for place in Members::parse(found).unwrap().iter() {
        assert_eq!(place.distance, centre.distance(Position::of_score(place.score)));
        let before = all.insert(place.member.to_vec(), place.score.to_bits());
        assert!(before.is_none(), "a member twice");
    }
    all
}

fn everything(shard: &mut Shard, key: &[u8], now: Now) -> Option<BTreeMap<Vec<u8>, u64>> {
    let centre = Position::new(0.0, 0.0).unwrap();
    let shape = Shape::Circle { radius: f64::INFINITY };
    let bytes = encoded(&GeoSearch { centre: Centre::At(centre), shape, enough: 0 });
    let answer = ask(shard, &Command::Of { key, request: search(&bytes).request() }, now);
    match answer.0 {
        Status::Ok => Some(members(&answer.2.unwrap(), centre)),
        Status::NotFound | Status::WrongType => None,
        other => panic!("{other:?}"),
    }
}

/// A key's content.
#[derive(Clone, PartialEq, Debug)]
enum Held {
    String,
    /// Scores by member, and the expiry; 0 for none.
    Geo(BTreeMap<Vec<u8>, f64>, u64),
}

struct Fixture {
    shard: Shard,
    model: BTreeMap<&'static [u8], Held>,
    random: Random,
    now: Now,
}

impl Fixture {
    fn step(&mut self) {
        let random = &mut self.random;
        let key = KEYS[random.below(3) as usize];
        self.now.unix_ms += random.below(20);
        let now = self.now;
        self.model.retain(|_, held| {
            !matches!(held, Held::Geo(_, expiry) if *expiry != 0 && *expiry <= now.unix_ms)
        });
        let held = self.model.get_mut(key);
        let member = |random: &mut Random| format!("member {}", random.below(300)).into_bytes();
        match random.below(60) {
            0 => {
                let answer = ask(&mut self.shard, &Command::Del { key }, now);
                assert_eq!(answer.1, self.model.remove(key).is_some() as i64);
            }
            1 if random.below(4) == 0 => {
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                let set = Command::Set { key, value: b"1", condition, expiry, get: false };
                assert_eq!(ask(&mut self.shard, &set, now).0, Status::Ok);
                self.model.insert(key, Held::String);
            }
            2 if matches!(held, Some(Held::Geo(..))) => {
                let at_ms = now.unix_ms + random.below(3_000);
                let condition = ExpireCondition::Always;
                let command = Command::Expire { key, at_ms, condition };
                assert_eq!(ask(&mut self.shard, &command, now).1, 1);
                match held {
                    Some(Held::Geo(_, expiry)) if at_ms > now.unix_ms => *expiry = at_ms,
                    _ => drop(self.model.remove(key)),
                }
            }
            3 => {
                self.shard.tick(now);
                release_all(&mut self.shard);
            }
            4..8 => {
                let pair = [member(random), member(random)];
                self.remove(key, pair);
            }
            8..16 => self.search(key),
            16 => {
                let count = random.below(400);
                self.store(key, count);
            }
            _ => {
                let places: Vec<(f64, Vec<u8>)> = (0..1 + random.below(3))
                    .map(|_| (position(random).score(), member(random)))
                    .collect();
                let answer = add(&mut self.shard, key, &places, now);
                let fresh = || Held::Geo(BTreeMap::new(), 0);
                match self.model.entry(key).or_insert_with(fresh) {
                    Held::String => assert_eq!(answer.0, Status::WrongType),
                    Held::Geo(scores, _) => {
                        let mut new = 0;
                        for (score, member) in places {
                            new += scores.insert(member, score).is_none() as i64;
                        }
                        assert_eq!((answer.0, answer.1), (Status::Ok, new));
                    }
                }
            }
        }
    }

    fn remove(&mut self, key: &'static [u8], members: [Vec<u8>; 2]) {
        let names = scored::names(&list(&members.clone().map(|member| (0.0, member))));
        let command = Command::Of { key, request: scored::remove(&names).request() };
        let answer = ask(&mut self.shard, &command, self.now);
        match self.model.get_mut(key) {
            Some(Held::String) => assert_eq!(answer.0, Status::WrongType),
            Some(Held::Geo(scores, _)) => {
                let mut gone = 0;
                for member in &members {
                    gone += scores.remove(member).is_some() as i64;
                }
                if scores.is_empty() {
                    self.model.remove(key);
                }
                assert_eq!((answer.0, answer.1), (Status::Ok, gone));
            }
            None => assert_eq!((answer.0, answer.1), (Status::Ok, 0)),
        }
    }

    /// A key of any type is replaced by so many members.
    fn store(&mut self, key: &'static [u8], count: u64) {
        let places: Vec<(f64, Vec<u8>)> = (0..count)
            .map(|at| (position(&mut self.random).score(), format!("stored {at}").into_bytes()))
            .collect();
        let list = list(&places);
        let command = Command::Of { key, request: scored::store(&list).request() };
        let answer = ask(&mut self.shard, &command, self.now);
        assert_eq!((answer.0, answer.1), (Status::Ok, count as i64));
        self.model.remove(key);
        if count > 0 {
            let scores = places.into_iter().map(|(score, member)| (member, score));
            self.model.insert(key, Held::Geo(scores.collect(), 0));
        }
    }

    fn search(&mut self, key: &[u8]) {
        let (centre, shape) = (position(&mut self.random), shape(&mut self.random));
        let centre = Position::of_score(centre.score());
        let bytes = encoded(&GeoSearch { centre: Centre::At(centre), shape, enough: 0 });
        let command = Command::Of { key, request: search(&bytes).request() };
        let answer = ask(&mut self.shard, &command, self.now);
        match self.model.get(key) {
            None => assert_eq!(answer.0, Status::NotFound),
            Some(Held::String) => assert_eq!(answer.0, Status::WrongType),
            Some(Held::Geo(scores, _)) => {
                let within = |score: &f64| {
                    shape.distance_within(centre, Position::of_score(*score)).is_some()
                };
                let expected: BTreeMap<Vec<u8>, u64> = scores
                    .iter()
                    .filter(|(_, score)| within(score))
                    .map(|(member, score)| (member.clone(), score.to_bits()))
                    .collect();
                assert_eq!(members(&answer.2.unwrap(), centre), expected, "{centre:?} {shape:?}");
            }
        }
    }
}

#[test]
fn long_histories_agree_with_maps_and_their_logs_make_the_same() {
    for seed in 1..=10 {
        let random = Random::new(seed * 0x9e37_79b9);
        let shard_of = || shard(8 << 20, Eviction::None);
        let mut fixture = Fixture { shard: shard_of(), model: BTreeMap::new(), random, now: START };
        let mut had_trees = 0;
        for step in 0..2_000 {
            fixture.step();
            if step % 50 == 0 {
                fixture.shard.audit().unwrap();
            }
            let stats = fixture.shard.stats();
            had_trees += u64::from(stats.geo_members > WHOLE_ITEMS as u64);
        }
        assert!(had_trees > 100, "some keys are large enough for a tree: {had_trees} steps");
        let log = fixture.shard.log().entries();
        assert!(log.first().is_some_and(|entry| entry.sequence == 1), "the log is whole");
        // Nothing expires by the clock of a replay.
        let mut second = shard_of();
        for entry in log {
            let (command, _) = Command::decode(entry.operation()).unwrap();
            assert_ne!(ask(&mut second, &command, START).0, Status::OutOfMemory);
        }
        fixture.shard.execute(&Command::Count, KeyHash(0), fixture.now);
        for key in KEYS {
            let exists = ask(&mut fixture.shard, &Command::Exists { key }, fixture.now);
            assert_eq!(ask(&mut second, &Command::Exists { key }, START), exists);
            let one = everything(&mut fixture.shard, key, fixture.now);
            assert_eq!(one, everything(&mut second, key, START));
        }
        second.audit().unwrap();
        let keys = fixture.shard.stats().keys as i64;
        assert_eq!(ask(&mut fixture.shard, &Command::Flush, fixture.now).1, keys);
        release_all(&mut fixture.shard);
        let stats = fixture.shard.stats();
        assert_eq!((stats.keys, stats.geo_keys, stats.geo_members, stats.geo_bytes), (0, 0, 0, 0));
        assert_eq!((stats.sorted_sets, stats.sorted_bytes), (0, 0));
        fixture.shard.audit().unwrap();
    }
}

/// Lets removed keys give back all their memory. Bounded: each turn gives some.
fn release_all(shard: &mut Shard) {
    while shard.wants_release() {
        shard.release_some(START);
    }
}

fn filled(shard: &mut Shard, key: &[u8], count: u64, random: &mut Random) {
    for at in 0..count {
        let place = (position(random).score(), format!("m{at}").into_bytes());
        assert_eq!(add(shard, key, &[place], START).0, Status::Ok);
    }
}

/// A search in turns, with changes between them: it finds each unchanged member once. Through a tree
/// it finds otherwise only members that were there at some time; without one, those at its beginning.
#[test]
fn a_search_in_turns_finds_what_stands_still() {
    for has_tree in [false, true] {
        let mut random = Random::new(3);
        let mut shard = shard(64 << 20, Eviction::None);
        filled(&mut shard, b"a", 20_000, &mut random);
        let still = everything(&mut shard, b"a", START).unwrap();
        if has_tree {
            release_all(&mut shard);
        }
        assert_eq!(shard.stats().geo_members, if has_tree { 20_000 } else { 0 });
        let most_turns = (0..20).map(|round| search_beside(&mut shard, round, &still, &mut random));
        let most_turns = most_turns.max().unwrap();
        assert!(most_turns > 10, "{most_turns}");
        // A tree that goes takes the search along.
        let bytes = encoded(&GeoSearch {
            centre: Centre::Member(b"m7"),
            shape: Shape::Circle { radius: 2.1e7 },
            enough: 0,
        });
        let at = (&b"a"[..], shard.hash(b"a"));
        let mut read = shard.begin_read(at, search(&bytes).request(), START).unwrap();
        let mut found = Vec::new();
        assert!(!shard.read_turn(&mut read, &mut found, Now::default()).unwrap().ended);
        let there = ask(
            &mut shard,
            &Command::Of { key: b"a", request: SortedCommand::Length.request() },
            START,
        )
        .1;
        ask(&mut shard, &Command::Del { key: b"a" }, START);
        while !shard.read_turn(&mut read, &mut found, Now::default()).unwrap().ended {
            assert!(!has_tree);
            shard.release_some(START);
        }
        let found = Members::parse(&found).unwrap().iter().count() as i64;
        assert_eq!(found, if has_tree { 0 } else { there });
        shard.audit().unwrap();
    }
}

/// One search beside changes of other members; how many turns it took.
fn search_beside(
    shard: &mut Shard,
    round: usize,
    still: &BTreeMap<Vec<u8>, u64>,
    random: &mut Random,
) -> usize {
    let centre = Position::of_score(position(random).score());
    let shape = Shape::Circle { radius: [2e7, 3e6, 5e5][round % 3] };
    let bytes = encoded(&GeoSearch { centre: Centre::At(centre), shape, enough: 0 });
    let at = (&b"a"[..], shard.hash(b"a"));
    let mut read = shard.begin_read(at, search(&bytes).request(), START).unwrap();
    let (mut turns, mut found) = (1, Vec::new());
    while !shard.read_turn(&mut read, &mut found, Now::default()).unwrap().ended {
        turns += 1;
        let moving = format!("moving {}", random.below(50)).into_bytes();
        add(shard, b"a", &[(position(random).score(), moving.clone())], START);
        if random.below(3) == 0 {
            let names = scored::names(&list(&[(0.0, moving)]));
            let request = scored::remove(&names).request();
            ask(shard, &Command::Of { key: b"a", request }, START);
        }
    }
    let mut found = members(&found, centre);
    found.retain(|member, _| !member.starts_with(b"moving"));
    let mut expected = still.clone();
    expected.retain(|_, score| {
        shape.distance_within(centre, Position::of_score(f64::from_bits(*score))).is_some()
    });
    assert!(found == expected, "round {round}: {} of {}", found.len(), expected.len());
    turns
}

/// Memory that runs out refuses one member; all others stay, and room that
/// comes back is used.
#[test]
fn full_memory_refuses_and_loses_nothing() {
    let mut random = Random::new(5);
    let mut shard = shard(1 << 20, Eviction::None);
    let mut model: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
    let mut refused = 0;
    while refused < 200 {
        let member = format!("member with a longer name {}", random.below(1_000_000)).into_bytes();
        let score = position(&mut random).score();
        match add(&mut shard, b"a", &[(score, member.clone())], START).0 {
            Status::Ok => drop(model.insert(member, score)),
            Status::OutOfMemory => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    shard.audit().unwrap();
    let found = everything(&mut shard, b"a", START).unwrap();
    assert!(
        found.iter().map(|(m, s)| (m, f64::from_bits(*s))).eq(model.iter().map(|(m, &s)| (m, s)))
    );
    // A store that has no room leaves the old value.
    let all: Vec<(f64, Vec<u8>)> = model.iter().map(|(m, &s)| (s, m.clone())).collect();
    let list = list(&all);
    let command = scored::store(&list);
    for key in [&b"a"[..], b"b"] {
        let answer = ask(&mut shard, &Command::Of { key, request: command.request() }, START);
        assert_eq!(answer.0, Status::OutOfMemory);
    }
    assert_eq!(everything(&mut shard, b"a", START).unwrap(), found);
    assert_eq!(everything(&mut shard, b"b", START), None);
    shard.audit().unwrap();
    ask(&mut shard, &Command::Del { key: b"a" }, START);
    release_all(&mut shard);
    assert_eq!(shard.stats().sorted_bytes, 0);
    filled(&mut shard, b"b", model.len() as u64 / 2, &mut random);
    shard.audit().unwrap();
}

/// Strings go to make room for members, where they may go at all.
#[test]
fn strings_are_evicted_for_members() {
    let mut random = Random::new(9);
    let mut shard = shard(2 << 20, Eviction::S3Fifo);
    for at in 0..3_000 {
        let key = format!("key {at}").into_bytes();
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let set = Command::Set { key: &key, value: &[7; 900], condition, expiry, get: false };
        assert_eq!(ask(&mut shard, &set, START).0, Status::Ok);
    }
    let before = shard.stats().evicted;
    filled(&mut shard, b"a", 5_000, &mut random);
    assert!(shard.stats().evicted > before);
    assert_eq!(everything(&mut shard, b"a", START).unwrap().len(), 5_000);
    shard.audit().unwrap();
}

/// A large value that comes in pieces over a sorted set is a SET like any other.
#[test]
fn an_upload_overwrites_a_set_with_places() {
    let mut shard = shard(8 << 20, Eviction::None);
    let mut random = Random::new(1);
    let hash = shard.hash(b"a");
    for (condition, get, expected) in [
        (Condition::Always, true, Status::WrongType),
        (Condition::IfAbsent, false, Status::NotDone),
        (Condition::IfPresent, false, Status::Ok),
    ] {
        filled(&mut shard, b"a", 200, &mut random);
        everything(&mut shard, b"a", START).unwrap();
        release_all(&mut shard);
        assert_eq!(shard.stats().geo_members, 200);
        let at_ms = START.unix_ms + 5_000;
        let condition_of_expiry = ExpireCondition::Always;
        let expire = Command::Expire { key: b"a", at_ms, condition: condition_of_expiry };
        assert_eq!(ask(&mut shard, &expire, START).1, 1);
        let value = vec![1u8; 300_000];
        let set = LargeSet {
            key: b"a",
            hash,
            value_bytes: value.len(),
            condition,
            expiry: Expiry::Keep,
            get,
        };
        let mut upload = shard.begin_upload(set, START).unwrap();
        shard.upload(&mut upload, &value).unwrap();
        let Outcome::Reply(reply) = shard.finish_upload(upload, START) else {
            panic!("there is no old value to stream")
        };
        assert_eq!(reply.status, expected);
        shard.audit().unwrap();
    }
    assert_eq!(ask(&mut shard, &Command::StrLen { key: b"a" }, START).1, 300_000);
    assert_eq!(ask(&mut shard, &Command::Ttl { key: b"a" }, START).1, 5_000);
    release_all(&mut shard);
    assert_eq!((shard.stats().geo_bytes, shard.stats().sorted_bytes), (0, 0));
}

#[test]
fn bytes_that_encode_nothing_are_refused() {
    let mut random = Random::new(11);
    let search = GeoSearch {
        centre: Centre::Member(b"m"),
        shape: Shape::Box { width: 1.0, height: 2.0 },
        enough: 3,
    };
    let query = encoded(&search);
    assert_eq!(GeoQuery::parse(&query).unwrap().search(), search);
    let mut places = Vec::new();
    for (score, member) in [(1.5, &b"one"[..]), (2.5, b"")] {
        Members::push(&mut places, &Member { score, distance: 0.0, member });
    }
    for cut in 1..places.len() {
        assert_eq!(Members::parse(&places[..cut]).is_some(), cut == 23, "{cut}");
    }
    for cut in 0..32 {
        assert!(GeoQuery::parse(&query[..cut]).is_none(), "{cut}");
    }
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..random.below(90)).map(|_| random.below(256) as u8).collect();
        if random.below(2) == 0 && bytes.len() > 8 {
            bytes[..8]
                .copy_from_slice(&(random.below(2u64) | random.below(2u64) << 32).to_le_bytes());
        }
        if let Some(query) = GeoQuery::parse(&bytes) {
            let (first, second) = query.search().shape.windows(Position::of_score(1e15));
            assert!(first.checked().is_ok() && second.is_none_or(|rect| rect.checked().is_ok()));
        }
        let _ = Members::parse(&bytes).map(|places| places.iter().count());
    }
}

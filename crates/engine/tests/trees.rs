//! Trees of places in a shard, against plain maps: histories on several trees
//! beside keys, searches in turns, the log replayed, memory that runs out.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, LongRead, Now, Shard, ShardOptions};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{MAX_NEAREST, MAX_OBJECT_BYTES};
use remora_layout::node::{ENTRY_BYTES, Entry};
use remora_layout::object::Payload;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;
use remora_protocol::message::Status;
use remora_protocol::tree::{Objects, TreeCommand, TreeSettings};
use remora_protocol::{Command, Condition, Expiry, Request};
use remora_testing::Random;
use std::collections::BTreeMap;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 1 };
const NAMES: [&[u8]; 3] = [b"zones", b"couriers", b""];
const KINDS: [TreeKind; 3] = [TreeKind::RStar, TreeKind::Guttman, TreeKind::Hilbert];

fn rect(random: &mut Random, side: u32) -> Rect {
    let [x_min, x_max, y_min, y_max] = random.rectangle(100, side);
    Rect::new(x_min, x_max, y_min, y_max).unwrap()
}

fn shard(bytes: usize, eviction: Eviction) -> Shard {
    let options = ShardOptions { eviction, record_secret: 77, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

/// A shard's answer: status, number, value.
type Answer = (Status, i64, Option<Vec<u8>>);

fn ask(shard: &mut Shard, name: &[u8], command: TreeCommand<'_>) -> Answer {
    let request = command.checked().map(TreeCommand::request).unwrap();
    let command = Command::Of { key: name, request };
    // Bounded: a build has so many steps.
    loop {
        let reply = shard.execute(&command, shard.hash(name), NOW);
        if reply.status != Status::InPieces {
            return (reply.status, reply.number, reply.value.map(<[u8]>::to_vec));
        }
    }
}

fn ids(value: Option<Vec<u8>>) -> Vec<(u64, Rect)> {
    let value = value.unwrap();
    let (objects, rest) = value.as_chunks::<ENTRY_BYTES>();
    assert!(rest.is_empty());
    objects.iter().map(Entry::from_bytes).map(|e| (e.word, e.rect)).collect()
}

fn sorted(mut found: Vec<(u64, Rect)>) -> Vec<(u64, Rect)> {
    found.sort_by_key(|(id, _)| *id);
    found
}

/// One tree as it has to be.
#[derive(Default)]
struct Model(BTreeMap<u64, (Rect, Option<Vec<u8>>)>);

impl Model {
    fn hits(&self, window: &Rect, predicate: Predicate) -> Vec<(u64, Rect)> {
        let all = self.0.iter().map(|(&id, (rect, _))| (id, *rect));
        all.filter(|(_, rect)| predicate.holds(rect, window)).collect()
    }
}

struct Fixture {
    shard: Shard,
    models: BTreeMap<&'static [u8], Model>,
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    random: Random,
}

impl Fixture {
    fn step(&mut self) {
        let name = NAMES[self.random.below(3) as usize];
        let id = self.random.below(200);
        let model = self.models.get(name);
        match self.random.below(40) {
            0 if self.random.below(20) == 0 => {
                let was_there = self.models.remove(name).is_some();
                let answer = ask(&mut self.shard, name, TreeCommand::Drop);
                assert_eq!(answer, (Status::Ok, was_there as i64, None));
            }
            1 => {
                let kind = KINDS[self.random.below(3) as usize];
                let capacity = 4 + self.random.below(8) as usize;
                let settings = TreeSettings { kind, capacity, ..TreeSettings::default() };
                let expected = if model.is_some() { Status::NotDone } else { Status::Ok };
                let answer = ask(&mut self.shard, name, TreeCommand::Create(settings));
                assert_eq!(answer.0, expected);
                self.models.entry(name).or_default();
            }
            2..=4 => {
                let key = format!("key{}", self.random.below(30)).into_bytes();
                let value = vec![id as u8; self.random.below(3_000) as usize];
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                let set = Command::Set { key: &key, value: &value, condition, expiry, get: false };
                let hash = self.shard.hash(&key);
                assert_eq!(self.shard.execute(&set, hash, NOW).status, Status::Ok);
                self.keys.insert(key, value);
            }
            5..=9 => {
                let answer = ask(&mut self.shard, name, TreeCommand::Get { id: id.into() });
                let expected = match model.map(|model| model.0.get(&id)) {
                    None => (Status::NoTree, 0, None),
                    Some(None) => (Status::NotFound, 0, None),
                    Some(Some((rect, data))) => {
                        let mut value = zerocopy::IntoBytes::as_bytes(rect).to_vec();
                        value.extend(0_u64.to_le_bytes());
                        let bytes = data.as_deref().unwrap_or_default();
                        Payload { data: bytes, ..Payload::default() }.write(&mut value);
                        (Status::Ok, data.is_some() as i64, Some(value))
                    }
                };
                assert_eq!(answer, expected);
            }
            10..=15 => self.search(name),
            16..=22 => {
                let was_there = self.models.get_mut(name).map(|model| model.0.remove(&id));
                let number = was_there.flatten().is_some() as i64;
                let answer = ask(&mut self.shard, name, TreeCommand::Remove { id: id.into() });
                assert_eq!(answer, (Status::Ok, number, None));
            }
            _ => {
                let rect = rect(&mut self.random, 9);
                let bytes = vec![self.random.below(256) as u8; self.random.below(900) as usize];
                let data = (self.random.below(3) == 0).then_some(&bytes[..]);
                let put = TreeCommand::put(id, rect, data, None);
                let model = self.models.entry(name).or_default();
                let is_new = !model.0.contains_key(&id);
                assert_eq!(ask(&mut self.shard, name, put), (Status::Ok, is_new as i64, None));
                let known = model.0.entry(id).or_insert((rect, None));
                known.0 = rect;
                if let Some(data) = data {
                    known.1 = Some(data.to_vec()).filter(|data| !data.is_empty());
                }
            }
        }
    }

    fn search(&mut self, name: &[u8]) {
        let window = rect(&mut self.random, 60);
        let predicate = [Predicate::Intersects, Predicate::Within, Predicate::Contains]
            [self.random.below(3) as usize];
        let found = ask(&mut self.shard, name, TreeCommand::Search { window, predicate });
        let count = ask(&mut self.shard, name, TreeCommand::Count { window, predicate });
        let (x, y) = (self.random.below(100) as f64, self.random.below(100) as f64);
        let wanted = self.random.below(9) as u32;
        let near = ask(&mut self.shard, name, TreeCommand::Nearest { x, y, wanted });
        let Some(model) = self.models.get(name) else {
            assert!([found.0, count.0, near.0].iter().all(|&status| status == Status::NoTree));
            return;
        };
        let expected = model.hits(&window, predicate);
        assert_eq!(count, (Status::Ok, expected.len() as i64, None));
        assert_eq!(sorted(ids(found.2)), expected);
        let all = model.0.iter().map(|(&id, (rect, _))| (rect.distance_squared(x, y), id));
        let mut all: Vec<_> = all.collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        all.truncate(wanted as usize);
        assert!(ids(near.2).into_iter().map(|(id, _)| id).eq(all.into_iter().map(|(_, id)| id)));
    }

    /// All that the log's entries make, in another shard.
    fn replayed(&self) -> Shard {
        let mut second = shard(4 << 20, Eviction::None);
        for entry in self.shard.log().entries() {
            let (command, _) = Command::decode(entry.operation()).unwrap();
            let hash = command.key().map_or(KeyHash(0), |key| second.hash(key));
            assert_ne!(second.execute(&command, hash, NOW).status, Status::OutOfMemory);
        }
        second
    }
}

fn everything() -> TreeCommand<'static> {
    let window = Rect::new(f64::MIN, f64::MAX, f64::MIN, f64::MAX).unwrap();
    TreeCommand::Search { window, predicate: Predicate::Intersects }
}

#[test]
fn long_histories_agree_with_maps_and_their_logs_make_the_same() {
    for seed in 1..=12 {
        let random = Random::new(seed * 0x9e37_79b9);
        let (models, keys) = (BTreeMap::new(), BTreeMap::new());
        let mut fixture = Fixture { shard: shard(4 << 20, Eviction::None), models, keys, random };
        for step in 0..1_500 {
            fixture.step();
            if step % 100 == 0 {
                fixture.shard.audit().unwrap();
            }
        }
        let stats = fixture.shard.stats();
        let objects = fixture.models.values().map(|model| model.0.len() as u64).sum::<u64>();
        assert_eq!((stats.trees, stats.tree_objects), (fixture.models.len() as u64, objects));
        let is_whole =
            fixture.shard.log().entries().first().is_some_and(|entry| entry.sequence == 1);
        assert!(is_whole, "the log has room for it all");
        let mut second = fixture.replayed();
        for name in NAMES {
            let one = ask(&mut fixture.shard, name, everything());
            let other = ask(&mut second, name, everything());
            assert_eq!(one.0, other.0);
            if one.0 == Status::Ok {
                assert_eq!(sorted(ids(one.2)), sorted(ids(other.2)));
            }
        }
        second.audit().unwrap();
        fixture.shard.execute(&Command::Flush, KeyHash(0), NOW);
        release_all(&mut fixture.shard);
        let stats = fixture.shard.stats();
        assert_eq!((stats.trees, stats.tree_objects, stats.tree_bytes), (0, 0, 0));
        fixture.shard.audit().unwrap();
        for name in NAMES {
            assert_eq!(ask(&mut fixture.shard, name, TreeCommand::Info).0, Status::NoTree);
        }
    }
}

/// Lets removed objects give back all their memory. Bounded: each turn gives some.
fn release_all(shard: &mut Shard) {
    while shard.wants_release() {
        shard.release_some(NOW);
    }
}

fn begin(shard: &mut Shard, name: &[u8], command: TreeCommand<'_>) -> Result<LongRead, Status> {
    let request: Request<'_> = command.checked().map(TreeCommand::request).unwrap();
    let hash = shard.hash(name);
    shard.begin_read((name, hash), request, Now::default()).map_err(|reply| reply.status)
}

fn filled(count: u64) -> Shard {
    let mut shard = shard(32 << 20, Eviction::None);
    ask(&mut shard, b"t", TreeCommand::Create(TreeSettings::default()));
    let mut list = Vec::new();
    for id in 0..count {
        let (x, y) = ((id % 300) as f64, (id / 300) as f64);
        Objects::push(&mut list, id, &Rect::point(x, y).unwrap());
    }
    let objects = Objects::parse(&list).unwrap();
    let staged = ask(&mut shard, b"t", TreeCommand::Stage { load: 1, first: true, objects });
    assert_eq!(staged, (Status::Ok, count as i64, None));
    assert_eq!(
        ask(&mut shard, b"t", TreeCommand::Build { load: 1 }),
        (Status::Ok, count as i64, None)
    );
    shard
}

#[test]
fn a_search_in_turns_goes_on_while_the_tree_changes() {
    let mut shard = filled(60_000);
    let mut search = begin(&mut shard, b"t", everything()).unwrap();
    let mut count = begin(&mut shard, b"t", {
        let TreeCommand::Search { window, predicate } = everything() else { unreachable!() };
        TreeCommand::Count { window, predicate }
    })
    .unwrap();
    let (mut found, mut turns, mut ended) = (Vec::new(), 0, [false; 2]);
    let (mut has_doubles, mut counted) = (false, 0);
    while ended != [true; 2] {
        let before = found.len();
        if !ended[0] {
            let turn = shard.read_turn(&mut search, &mut found, NOW).unwrap();
            (ended[0], has_doubles) = (turn.ended, turn.has_doubles);
        }
        assert!(found.len() - before < 80_000 || has_doubles);
        if !ended[1] {
            let turn = shard.read_turn(&mut count, &mut Vec::new(), NOW).unwrap();
            (ended[1], counted) = (turn.ended, turn.number);
        }
        turns += 1;
        if turns % 5 == 0 && turns < 30 {
            // Objects of both ends go to the other one; 1000 stays.
            let rect = Rect::point(turns as f64, 90.0).unwrap();
            for id in [turns, 60_000 - turns] {
                ask(&mut shard, b"t", TreeCommand::put(id, rect, None, None));
            }
        }
    }
    assert!(turns > 20 && has_doubles);
    let mut all: Vec<u64> = ids(Some(found)).into_iter().map(|(id, _)| id).collect();
    all.sort_unstable();
    all.dedup();
    assert!(all.into_iter().eq(0..60_000), "all were there all the time");
    assert_eq!(counted, 60_000);
    // A search whose tree is removed gets that answer, even if another tree has the name now.
    let mut search = begin(&mut shard, b"t", everything()).unwrap();
    assert!(!shard.read_turn(&mut search, &mut Vec::new(), NOW).unwrap().ended);
    ask(&mut shard, b"t", TreeCommand::Drop);
    assert_eq!(shard.read_turn(&mut search, &mut Vec::new(), NOW), Err(Status::NoTree));
    ask(&mut shard, b"t", TreeCommand::Create(TreeSettings::default()));
    assert_eq!(shard.read_turn(&mut search, &mut Vec::new(), NOW), Err(Status::NoTree));
    shard.audit().unwrap();
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let mut shard = filled(100);
    let before = shard.log().last_sequence();
    let good = Rect::point(1.0, 2.0).unwrap();
    for bad in [
        Rect { min_x: f64::NAN, ..good },
        Rect { max_y: f64::INFINITY, ..good },
        Rect { min_x: 1.5, ..good },
    ] {
        let put = TreeCommand::put(1, bad, None, None);
        assert_eq!(put.checked().map(TreeCommand::request), Err(Status::BadRectangle));
        let mut list = Vec::new();
        Objects::push(&mut list, 1, &bad);
        let objects = Objects::parse(&list).unwrap();
        let stage = TreeCommand::Stage { load: 1, first: true, objects };
        assert_eq!(stage.checked().map(TreeCommand::request), Err(Status::BadRectangle));
        let create = TreeCommand::Create(TreeSettings { bounds: bad, ..TreeSettings::default() });
        assert_eq!(create.checked().map(TreeCommand::request), Err(Status::BadRectangle));
    }
    let long = vec![0; MAX_OBJECT_BYTES + 1];
    let put = TreeCommand::put(1, good, Some(&long), None);
    assert_eq!(put.checked().map(TreeCommand::request), Err(Status::TooLarge));
    for capacity in [0, 3, 1025, usize::MAX] {
        let create = TreeCommand::Create(TreeSettings { capacity, ..TreeSettings::default() });
        assert_eq!(create.checked().map(TreeCommand::request), Err(Status::BadCapacity));
    }
    let near = TreeCommand::Nearest { x: 0.0, y: 0.0, wanted: MAX_NEAREST as u32 + 1 };
    assert_eq!(ask(&mut shard, b"t", near).0, Status::TooLarge);
    let mut list = Vec::new();
    Objects::push(&mut list, 1, &good);
    Objects::push(&mut list, 1, &good);
    let objects = Objects::parse(&list).unwrap();
    let one = Objects::parse(&list[..ENTRY_BYTES]).unwrap();
    assert_eq!(
        ask(&mut shard, b"t", TreeCommand::Stage { load: 1, first: true, objects }).0,
        Status::NotEmpty
    );
    assert_eq!(
        ask(&mut shard, b"none", TreeCommand::Stage { load: 1, first: true, objects }).0,
        Status::NoTree
    );
    assert_eq!(ask(&mut shard, b"t", TreeCommand::Build { load: 1 }).0, Status::NotEmpty);
    assert_eq!(shard.log().last_sequence(), before);
    ask(&mut shard, b"u", TreeCommand::Create(TreeSettings::default()));
    ask(&mut shard, b"u", TreeCommand::Stage { load: 1, first: true, objects });
    assert_eq!(ask(&mut shard, b"u", TreeCommand::Build { load: 1 }).0, Status::TwiceGiven);
    let again = ask(&mut shard, b"u", TreeCommand::Build { load: 1 });
    assert_eq!(again.0, Status::OtherLoad, "nothing is kept");
    // The rest of another load, or a load that has begun meanwhile, is not mixed with one's own.
    let part = |load, first| TreeCommand::Stage { load, first, objects: one };
    assert_eq!(ask(&mut shard, b"u", part(7, true)), (Status::Ok, 1, None));
    assert_eq!(ask(&mut shard, b"u", part(8, false)).0, Status::OtherLoad);
    assert_eq!(ask(&mut shard, b"u", part(8, true)), (Status::Ok, 1, None));
    assert_eq!(ask(&mut shard, b"u", part(7, false)).0, Status::OtherLoad);
    assert_eq!(ask(&mut shard, b"u", TreeCommand::Build { load: 7 }).0, Status::OtherLoad);
    assert_eq!(ask(&mut shard, b"u", TreeCommand::Build { load: 8 }), (Status::Ok, 1, None));
    shard.audit().unwrap();
}

#[test]
fn a_full_shard_refuses_objects_whole_and_takes_them_again_later() {
    let mut shard = shard(1 << 20, Eviction::None);
    let mut random = Random::new(5);
    let data = vec![7; 300];
    let mut model: BTreeMap<u64, Rect> = BTreeMap::new();
    for round in 0..4 {
        let mut refused = 0;
        for id in 0..6_000 {
            let rect = rect(&mut random, 3);
            let data = (id % 4 == 0).then_some(&data[..]);
            match ask(&mut shard, b"t", TreeCommand::put(id, rect, data, None)).0 {
                Status::Ok => drop(model.insert(id, rect)),
                status => {
                    assert_eq!(status, Status::OutOfMemory);
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "round {round}");
        let all = ids(ask(&mut shard, b"t", everything()).2);
        assert_eq!(sorted(all), model.clone().into_iter().collect::<Vec<_>>());
        shard.audit().unwrap();
        for id in (0..6_000).filter(|id| id % 3 == round % 3) {
            let was_there = model.remove(&id).is_some();
            assert_eq!(
                ask(&mut shard, b"t", TreeCommand::Remove { id: id.into() }).1,
                was_there as i64
            );
        }
    }
    // An empty arena's worth of objects cannot be staged for ever.
    assert_eq!(ask(&mut shard, b"t", TreeCommand::Drop).1, 1);
    release_all(&mut shard);
    assert_eq!(shard.stats().tree_bytes, 0);
    shard.audit().unwrap();
}

#[test]
fn keys_make_room_for_trees_where_keys_may_go() {
    let mut shard = shard(2 << 20, Eviction::S3Fifo);
    let value = vec![1; 500];
    for key in 0..6_000 {
        let key = format!("key{key}");
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let set =
            Command::Set { key: key.as_bytes(), value: &value, condition, expiry, get: false };
        let hash = shard.hash(key.as_bytes());
        assert_eq!(shard.execute(&set, hash, NOW).status, Status::Ok);
    }
    let (evicted, mut random) = (shard.stats().evicted, Random::new(9));
    assert!(evicted > 0, "it is full");
    for id in 0..8_000 {
        let put = TreeCommand::put(id, rect(&mut random, 3), None, None);
        assert_eq!(ask(&mut shard, b"t", put), (Status::Ok, 1, None), "{id}");
    }
    assert!(shard.stats().evicted > evicted && shard.stats().keys > 0);
    let settings = TreeSettings::default();
    assert_eq!(ask(&mut shard, b"loaded", TreeCommand::Create(settings)).0, Status::Ok);
    let mut list = Vec::new();
    for id in 0..8_000 {
        Objects::push(&mut list, id, &rect(&mut random, 3));
    }
    let objects = Objects::parse(&list).unwrap();
    ask(&mut shard, b"loaded", TreeCommand::Stage { load: 1, first: true, objects });
    assert_eq!(
        ask(&mut shard, b"loaded", TreeCommand::Build { load: 1 }),
        (Status::Ok, 8_000, None)
    );
    shard.audit().unwrap();
}

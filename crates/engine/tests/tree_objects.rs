//! Objects of trees with ids of any bytes, fields and expiries, against a map: long histories under
//! an advancing clock, the log replayed, searches in turns, invalid messages.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_geometry::{Refine, Shape, Wkb};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    EXPIRE_TURN_OBJECTS, MAX_FIELDS_BYTES, MAX_OBJECT_ID_BYTES, MAX_RESOLVE_WORDS,
};
use remora_layout::node::{Entry, NodeRef};
use remora_layout::object::{Payload, SURROGATE, is_surrogate};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::TreeInfo;
use remora_protocol::message::Status;
use remora_protocol::tree::{Fields, FoundObjects, ObjectId, PutObject, ReadObjects, TreeCommand};
use remora_protocol::{Command, Expiry, Items, Request};
use remora_testing::Random;
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::FromBytes;

const START_MS: u64 = 1_700_000_000_000;

fn rect(random: &mut Random, side: u32) -> Rect {
    let [x_min, x_max, y_min, y_max] = random.rectangle(100, side);
    Rect::new(x_min, x_max, y_min, y_max).unwrap()
}

/// The text of an id: integers, names, and names that look like integers.
fn id(random: &mut Random) -> Vec<u8> {
    let number = random.below(60);
    match random.below(4) {
        0 => format!("{number}"),
        1 => format!("0{number}"),
        2 => "x".repeat(number as usize + 1),
        _ => format!("courier:{number}\0\u{fe}"),
    }
    .into_bytes()
}

fn fields(random: &mut Random) -> Vec<u8> {
    let fields: Vec<(Vec<u8>, Vec<u8>)> = (0..random.below(4))
        .map(|_| (vec![random.below(6u8)], vec![7; random.below(20)]))
        .collect();
    Fields::encode(fields.iter().map(|(name, value)| (&name[..], &value[..]))).unwrap()
}

fn new_shard() -> Shard {
    let options = ShardOptions { record_secret: 77, ..ShardOptions::default() };
    Shard::new(Owner::heap(8 << 20, NoJournal), options)
}

/// A shard's answer: status, number, value.
type Answer = (Status, i64, Vec<u8>);

fn ask_at(shard: &mut Shard, command: TreeCommand<'_>, now: Now) -> Answer {
    let request = command.checked().map(TreeCommand::request).unwrap();
    let command = Command::Of { key: b"t", request };
    let reply = shard.execute(&command, shard.hash(b"t"), now);
    (reply.status, reply.number, reply.value.unwrap_or_default().to_vec())
}

fn info(shard: &mut Shard, now: Now) -> TreeInfo {
    let words = ask_at(shard, TreeCommand::Info, now).2;
    let words: Vec<u64> = words.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w)).collect();
    TreeInfo::from_words(&words).unwrap()
}

#[derive(Clone, PartialEq, Debug)]
struct Known {
    rect: Rect,
    data: Vec<u8>,
    has_geometry: bool,
    fields: BTreeMap<Vec<u8>, Vec<u8>>,
    expires_at_ms: u64,
}

struct Fixture {
    shard: Shard,
    model: BTreeMap<Vec<u8>, Known>,
    random: Random,
    now_ms: u64,
    expired: u64,
}

fn fields_of(bytes: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let fields = Fields::parse(bytes).unwrap();
    fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

impl Fixture {
    fn now(&self) -> Now {
        Now { unix_ms: self.now_ms, since_start_s: (self.now_ms - START_MS) / 1_000 }
    }

    fn ask(&mut self, command: TreeCommand<'_>) -> Answer {
        let now = self.now();
        ask_at(&mut self.shard, command, now)
    }

    fn step(&mut self) {
        let text = id(&mut self.random);
        let id = ObjectId::of_text(&text);
        match self.random.below(20) {
            0 => self.go_on(),
            1..=3 => {
                let was_there = self.model.remove(&text).is_some();
                let answer = self.ask(TreeCommand::Remove { id });
                assert_eq!(answer, (Status::Ok, was_there.into(), vec![]));
            }
            4..=5 => self.set_fields(&text),
            6..=7 => self.get(&text),
            8..=9 => self.search(),
            _ => self.put(&text),
        }
    }

    /// Time passes, and now and then the shard sweeps.
    fn go_on(&mut self) {
        self.now_ms += self.random.below(40);
        let now_ms = self.now_ms;
        let before = self.model.len();
        self.model.retain(|_, known| known.expires_at_ms == 0 || known.expires_at_ms > now_ms);
        self.expired += (before - self.model.len()) as u64;
        if self.random.below(2) == 0 {
            let now = self.now();
            self.shard.tick(now);
        }
    }

    fn put(&mut self, text: &[u8]) {
        let shape = format!("LINESTRING ({} 3, 7 {})", self.random.below(50), self.random.below(9));
        let shape = Shape::from_wkt(&shape).unwrap();
        let wkb = shape.to_wkb();
        let has_geometry = self.random.below(5) == 0;
        let rect = if has_geometry { shape.bounds() } else { rect(&mut self.random, 9) };
        let bytes = vec![3; self.random.below(40) as usize];
        let data = (self.random.below(3) == 0).then_some(&bytes[..]);
        let list = fields(&mut self.random);
        let fields = (self.random.below(3) == 0).then(|| Fields::parse(&list).unwrap());
        let expiry = match self.random.below(6) {
            0 => Expiry::Never,
            1 => Expiry::At(self.now_ms + 1 + self.random.below(200)),
            2 if self.random.below(4) == 0 => Expiry::At(self.now_ms - self.random.below(2)),
            _ => Expiry::Keep,
        };
        let geometry = has_geometry.then_some(Wkb::known(&wkb, rect));
        let put = PutObject { id: ObjectId::of_text(text), rect, data, geometry, fields, expiry };
        let (status, number, _) = self.ask(TreeCommand::Put(put));
        assert_eq!((status, number == 1), (Status::Ok, !self.model.contains_key(text)));
        if matches!(expiry, Expiry::At(at_ms) if at_ms <= self.now_ms) {
            self.model.remove(text);
            return;
        }
        let fresh =
            Known { rect, data: vec![], has_geometry, fields: BTreeMap::new(), expires_at_ms: 0 };
        let known = self.model.entry(text.to_vec()).or_insert(fresh);
        (known.rect, known.has_geometry) = (rect, has_geometry);
        known.data = data.map_or_else(|| known.data.clone(), <[u8]>::to_vec);
        if fields.is_some() {
            known.fields = fields_of(&list);
        }
        match expiry {
            Expiry::Never => known.expires_at_ms = 0,
            Expiry::At(at_ms) => known.expires_at_ms = at_ms,
            Expiry::Keep => {}
        }
    }

    fn set_fields(&mut self, text: &[u8]) {
        let list = fields(&mut self.random);
        let set = TreeCommand::SetFields {
            id: ObjectId::of_text(text),
            fields: Fields::parse(&list).unwrap(),
        };
        let (status, number, _) = self.ask(set);
        let Some(known) = self.model.get_mut(text) else {
            assert_eq!(status, if self.model.is_empty() { status } else { Status::NotFound });
            return;
        };
        let before = known.fields.len();
        known.fields.extend(fields_of(&list));
        assert_eq!((status, number), (Status::Ok, (known.fields.len() - before) as i64));
    }

    fn get(&mut self, text: &[u8]) {
        let id = ObjectId::of_text(text);
        let (status, _, value) = self.ask(TreeCommand::Get { id });
        let mut names = Vec::new();
        (0..6).for_each(|name| Items::push(&mut names, &[name]));
        let names = Items::parse(&names).unwrap();
        let (field_status, count, values) = self.ask(TreeCommand::GetFields { id, names });
        let Some(known) = self.model.get(text) else {
            assert!([status, field_status].iter().all(|status| *status != Status::Ok));
            return;
        };
        let (rect, rest) = Rect::read_from_prefix(&value).unwrap();
        let (at_ms, rest) = rest.split_first_chunk().unwrap();
        let payload = Payload::parse(rest).unwrap();
        let told = Known {
            rect,
            data: payload.data.to_vec(),
            has_geometry: !payload.geometry.is_empty(),
            fields: fields_of(payload.fields),
            expires_at_ms: u64::from_le_bytes(*at_ms),
        };
        assert_eq!((status, &told), (Status::Ok, known), "{id}");
        assert_eq!((field_status, count), (Status::Ok, 6));
        let told = Items::parse(&values).unwrap();
        let expected = (0..6).map(|name| known.fields.get(&vec![name]).map(Vec::as_slice));
        assert!(told.iter().eq(expected));
    }

    fn search(&mut self) {
        if self.model.is_empty() {
            return;
        }
        let window = rect(&mut self.random, 60);
        let hits: Vec<(Vec<u8>, Rect)> = self
            .model
            .iter()
            .filter(|(_, known)| known.rect.intersects(&window))
            .map(|(text, known)| (text.clone(), known.rect))
            .collect();
        let predicate = Predicate::Intersects;
        let (_, _, found) = self.ask(TreeCommand::Search { window, predicate });
        assert_eq!(sorted(&found), hits);
        let (_, count, _) = self.ask(TreeCommand::Count { window, predicate });
        assert_eq!(count as usize, hits.len());
        let refine = Refine::DistanceAtMost { from: Shape::of_rect(&window), most: 1e9 };
        let bytes = refine.to_bytes();
        let (_, _, all) = self.ask(TreeCommand::Refine { refine: &bytes, of: None });
        assert!(sorted(&all).into_iter().map(|(text, _)| text).eq(self.model.keys().cloned()));
        let (_, count, _) = self.ask(TreeCommand::CountRefined { refine: &bytes });
        assert_eq!(count as usize, self.model.len());
        let wanted = self.random.below(30) as u32;
        let (_, count, near) = self.ask(TreeCommand::Nearest { x: 50.0, y: 50.0, wanted });
        let mut far: Vec<f64> =
            self.model.values().map(|known| known.rect.distance_squared(50.0, 50.0)).collect();
        far.sort_by(f64::total_cmp);
        far.truncate(wanted as usize);
        assert_eq!(count as usize, far.len(), "expired ones take nobody's place");
        let told = FoundObjects::of(&near).iter();
        assert!(told.map(|(object, _)| object.rect.distance_squared(50.0, 50.0)).eq(far));
        self.resolve(&all);
    }

    /// Every surrogate that a search gave resolves to its id; others to none.
    fn resolve(&mut self, found: &[u8]) {
        let found: Vec<(Entry, ObjectId<'_>)> = FoundObjects::of(found).iter().collect();
        let mut words: Vec<u64> = found.iter().map(|(object, _)| object.word).collect();
        words.push(SURROGATE | u64::MAX >> 2);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let now = self.now();
        let tree = info(&mut self.shard, now).at;
        let (status, count, list) =
            self.ask(TreeCommand::Resolve(ReadObjects { tree, words: &bytes }));
        assert_eq!((status, count as usize), (Status::Ok, words.len()));
        let told: Vec<Option<&[u8]>> = Items::parse(&list).unwrap().iter().collect();
        assert_eq!(told.len(), words.len());
        for ((object, id), told) in found.iter().zip(&told) {
            // A word that is an id needs no table to resolve it.
            let expected = is_surrogate(object.word).then_some(*id);
            assert_eq!(told.map(ObjectId::of_text), expected);
        }
        assert_eq!(told.last(), Some(&None));
    }
}

/// Texts of ids and rectangles, by the texts.
fn sorted(found: &[u8]) -> Vec<(Vec<u8>, Rect)> {
    let objects = FoundObjects::of(found);
    let mut list: Vec<(Vec<u8>, Rect)> =
        objects.iter().map(|(object, id)| (id.with_text(<[u8]>::to_vec), object.rect)).collect();
    list.sort_by(|one, other| one.0.cmp(&other.0));
    list
}

fn everything() -> TreeCommand<'static> {
    let window = Rect::new(f64::MIN, f64::MAX, f64::MIN, f64::MAX).unwrap();
    TreeCommand::Search { window, predicate: Predicate::Intersects }
}

#[test]
fn long_histories_agree_with_a_map_and_their_logs_make_the_same() {
    let mut expired = 0;
    for seed in 1..=10 {
        let (model, random) = (BTreeMap::new(), Random::new(seed * 0x9e37_79b9));
        let mut fixture =
            Fixture { shard: new_shard(), model, random, now_ms: START_MS, expired: 0 };
        for step in 0..2_000 {
            fixture.step();
            if step % 100 == 0 {
                fixture
                    .shard
                    .audit()
                    .unwrap_or_else(|why| panic!("seed {seed}, step {step}: {why}"));
            }
        }
        expired += fixture.expired;
        // Soon after their time the others are gone, too.
        let now = fixture.now();
        (0..20).for_each(|_| fixture.shard.tick(now));
        let stats = fixture.shard.stats();
        assert_eq!(stats.tree_objects, fixture.model.len() as u64);
        assert_eq!(stats.objects_expired, fixture.expired, "each one once");
        fixture.shard.audit().unwrap();
        // The log makes the same at any time: nothing expires by itself.
        let mut second = new_shard();
        for entry in fixture.shard.log().entries() {
            let (command, _) = Command::decode(entry.operation()).unwrap();
            let hash = command.key().map_or(KeyHash(0), |key| second.hash(key));
            assert_eq!(second.execute(&command, hash, Now::default()).status, Status::Ok);
        }
        let one = ask_at(&mut fixture.shard, everything(), now);
        let other = ask_at(&mut second, everything(), now);
        assert_eq!(sorted(&one.2), sorted(&other.2));
        second.audit().unwrap();
        let facts = info(&mut fixture.shard, now);
        let known = fixture.model.values();
        assert_eq!(
            facts.with_expiry as usize,
            known.clone().filter(|k| k.expires_at_ms > 0).count()
        );
        assert_eq!(facts.with_fields as usize, known.filter(|k| !k.fields.is_empty()).count());
        assert_eq!(facts.with_fields, info(&mut second, now).with_fields);
        // All of it can be given back.
        ask_at(&mut fixture.shard, TreeCommand::Drop, now);
        while fixture.shard.wants_release() {
            fixture.shard.release_some(now);
        }
        fixture.shard.audit().unwrap();
        assert_eq!((fixture.shard.stats().tree_bytes, fixture.shard.wants_ticks()), (0, false));
    }
    assert!(expired > 200, "{expired}");
}

#[test]
fn a_surrogate_stays_its_objects_and_is_never_given_again() {
    let mut shard = new_shard();
    let now = Now { unix_ms: START_MS, since_start_s: 1 };
    let rect = Rect::point(1.0, 2.0).unwrap();
    let mut seen = BTreeSet::new();
    let mut word_of = |shard: &mut Shard| {
        let found = ask_at(shard, everything(), now).2;
        let (object, _) = FoundObjects::of(&found).iter().next().unwrap();
        (object.word, seen.insert(object.word))
    };
    let put = |shard: &mut Shard, id: &'static str, expiry| {
        let put = PutObject { expiry, ..PutObject::new(id, rect) };
        assert_eq!(ask_at(shard, TreeCommand::Put(put), now).0, Status::Ok);
    };
    put(&mut shard, "7", Expiry::Keep);
    assert_eq!(word_of(&mut shard), (7, true), "an integer is its own word");
    put(&mut shard, "7", Expiry::At(START_MS + 5));
    let (word, is_new) = word_of(&mut shard);
    assert!(is_surrogate(word) && is_new);
    for expiry in [Expiry::Keep, Expiry::Never, Expiry::At(START_MS + 9), Expiry::Keep] {
        put(&mut shard, "7", expiry);
        assert_eq!(word_of(&mut shard), (word, false), "{expiry:?}");
    }
    for id in ["7", "name"] {
        for _ in 0..20 {
            let id = ObjectId::from(id);
            ask_at(&mut shard, TreeCommand::Remove { id: 7.into() }, now);
            ask_at(&mut shard, TreeCommand::Remove { id }, now);
            let expiry = Expiry::At(START_MS + 5);
            let put = PutObject { expiry, ..PutObject::new(id, rect) };
            ask_at(&mut shard, TreeCommand::Put(put), now);
            assert!(word_of(&mut shard).1, "another object, another word");
        }
    }
    ask_at(&mut shard, TreeCommand::Drop, now);
    put(&mut shard, "name", Expiry::Keep);
    assert!(word_of(&mut shard).1, "even in another tree");
    shard.audit().unwrap();
}

#[test]
fn a_sweep_is_bounded_and_goes_to_its_end() {
    let mut shard = new_shard();
    let now = Now { unix_ms: START_MS, since_start_s: 1 };
    for id in 0..1_000_u64 {
        let rect = Rect::point(id as f64, 0.0).unwrap();
        let put =
            PutObject { expiry: Expiry::At(START_MS + 1 + id % 3), ..PutObject::new(id, rect) };
        ask_at(&mut shard, TreeCommand::Put(put), now);
    }
    shard.tick(now);
    assert_eq!(shard.stats().objects_expired, 0);
    let late = Now { unix_ms: START_MS + 2, since_start_s: 1 };
    assert!(FoundObjects::of(&ask_at(&mut shard, everything(), late).2).iter().count() == 333);
    let mut ticks = 0;
    while shard.stats().objects_expired < 667 {
        let (before, sequence) = (shard.stats().objects_expired, shard.log().last_sequence());
        shard.tick(late);
        let removed = shard.stats().objects_expired - before;
        assert!((1..=EXPIRE_TURN_OBJECTS as u64).contains(&removed));
        assert_eq!(shard.log().last_sequence() - sequence, removed, "one entry each");
        ticks += 1;
    }
    assert!(ticks >= 10);
    shard.tick(late);
    assert_eq!((shard.stats().objects_expired, shard.stats().tree_objects), (667, 333));
    assert!(shard.wants_ticks());
    shard.audit().unwrap();
}

#[test]
fn a_search_in_turns_gives_nothing_from_its_time_on() {
    let mut shard = new_shard();
    let mut now = Now { unix_ms: START_MS, since_start_s: 1 };
    for id in 0..5_000_u64 {
        let rect = Rect::point((id % 70) as f64, (id / 70) as f64).unwrap();
        let name = format!("object {id}");
        let put = PutObject { expiry: Expiry::At(START_MS + 10), ..PutObject::new(&*name, rect) };
        ask_at(&mut shard, TreeCommand::Put(put), now);
    }
    let request: Request<'_> = everything().checked().map(TreeCommand::request).unwrap();
    let on = (&b"t"[..], shard.hash(b"t"));
    let mut search = shard.begin_read(on, request, now).unwrap();
    let mut found = Vec::new();
    assert!(!shard.read_turn(&mut search, &mut found, now).unwrap().ended);
    let first = found.len();
    assert!(first > 0);
    now.unix_ms += 10;
    while !shard.read_turn(&mut search, &mut found, now).unwrap().ended {}
    assert_eq!(found.len(), first, "nothing after their time");
    let mut cut = found.clone();
    assert!(shard.cut(&search, &mut cut, 5));
    assert_eq!(FoundObjects::of(&cut).iter().count(), 5);
    assert!(!shard.cut(&search, &mut found, 1_000_000));
    assert_eq!(found.len(), first);
}

/// A client reads a tree, then asks about the objects that it found. Meanwhile the key gets another
/// tree that has the same objects: none of the surrogates is known there, and none is reported as
/// removed.
#[test]
fn what_was_read_of_a_tree_is_not_asked_of_the_next_one() {
    let (mut shard, now) = (new_shard(), Now { unix_ms: START_MS, since_start_s: 1 });
    let rect = Rect::point(1.0, 2.0).unwrap();
    let fill = |shard: &mut Shard| {
        for id in [ObjectId::Name(b"x"), ObjectId::Number(7)] {
            let put = TreeCommand::Put(PutObject::new(id, rect));
            assert_eq!(ask_at(shard, put, now).0, Status::Ok);
        }
        info(shard, now).at
    };
    let refine = Refine::Intersects(Shape::of_rect(&rect)).to_bytes();
    let about = |shard: &mut Shard, tree: NodeRef, word: u64| {
        let words = word.to_le_bytes();
        let of = ReadObjects { tree, words: &words };
        let (resolved, _, names) = ask_at(shard, TreeCommand::Resolve(of), now);
        let verdicts = ask_at(shard, TreeCommand::Refine { refine: &refine, of: Some(of) }, now);
        ((resolved, names), (verdicts.0, !verdicts.2.is_empty()))
    };
    let known = |text: &[u8]| {
        let mut names = Vec::new();
        Items::push(&mut names, text);
        names
    };
    let read = fill(&mut shard);
    let told = ((Status::Ok, known(b"x")), (Status::Ok, true));
    assert_eq!(about(&mut shard, read, SURROGATE | 1), told);
    assert_eq!(about(&mut shard, read, 7).1, (Status::Ok, true));
    assert_eq!(ask_at(&mut shard, TreeCommand::Drop, now).1, 1);
    let gone = ((Status::NoTree, vec![]), (Status::NoTree, false));
    assert_eq!(about(&mut shard, read, 7), gone, "no tree at all");
    let other = fill(&mut shard);
    assert_ne!(other, read);
    for word in [SURROGATE | 1, 7] {
        assert_eq!(about(&mut shard, read, word), gone, "another tree, with the same objects");
    }
    let told = ((Status::Ok, known(b"x")), (Status::Ok, true));
    assert_eq!(about(&mut shard, other, SURROGATE | 2), told);
    // In turns, as a server answers: the tree goes between two of them.
    let words = 7u64.to_le_bytes();
    let request = TreeCommand::Resolve(ReadObjects { tree: other, words: &words });
    let request = request.checked().map(TreeCommand::request).unwrap();
    let mut begun = shard.begin_read((b"t", shard.hash(b"t")), request, now).unwrap();
    assert_eq!(ask_at(&mut shard, TreeCommand::Drop, now).1, 1);
    fill(&mut shard);
    assert_eq!(shard.read_turn(&mut begun, &mut Vec::new(), now).err(), Some(Status::NoTree));
}

#[test]
fn what_makes_no_sense_is_refused_and_limits_hold() {
    let rect = Rect::point(1.0, 2.0).unwrap();
    let long = vec![b'x'; MAX_OBJECT_ID_BYTES + 1];
    let refused =
        |put: PutObject<'_>| TreeCommand::Put(put).checked().map(TreeCommand::request).err();
    let put = PutObject::new("x", rect);
    assert_eq!(refused(PutObject { id: ObjectId::Name(b""), ..put }), Some(Status::Malformed));
    assert_eq!(refused(PutObject { id: ObjectId::Name(&long), ..put }), Some(Status::TooLarge));
    assert_eq!(refused(PutObject { id: ObjectId::Name(&long[1..]), ..put }), None);
    // An integer has one form.
    assert_eq!(refused(PutObject { id: ObjectId::Name(b"12"), ..put }), Some(Status::Malformed));
    let id = ObjectId::Number(SURROGATE | 1);
    assert_eq!(refused(PutObject { id, ..put }), Some(Status::Malformed));
    for (at_ms, status) in [(0, Status::Malformed), (1 << 44, Status::InvalidExpiry)] {
        assert_eq!(refused(PutObject { expiry: Expiry::At(at_ms), ..put }), Some(status));
    }
    let words = vec![0; 8 * MAX_RESOLVE_WORDS + 8];
    let tree = NodeRef { slot: 9, generation: 1 };
    let resolve = |words| {
        TreeCommand::Resolve(ReadObjects { tree, words }).checked().map(TreeCommand::request).err()
    };
    assert_eq!(resolve(&words), Some(Status::TooLarge));
    assert_eq!(resolve(&words[8..]), None);
    assert_eq!(resolve(&words[..7]), Some(Status::Malformed));
    // Fields that would become too many leave the object as it is.
    let (mut shard, now) = (new_shard(), Now { unix_ms: START_MS, since_start_s: 1 });
    ask_at(&mut shard, TreeCommand::Put(put), now);
    let value = vec![1; MAX_FIELDS_BYTES / 2];
    let mut set = |name: &[u8]| {
        let fields = Fields::encode([(name, &value[..])]).unwrap();
        let fields = Fields::parse(&fields).unwrap();
        ask_at(&mut shard, TreeCommand::SetFields { id: "x".into(), fields }, now)
    };
    assert_eq!(set(b"a"), (Status::Ok, 1, vec![]));
    assert_eq!(set(b"a"), (Status::Ok, 0, vec![]));
    assert_eq!(set(b"b"), (Status::TooLarge, 0, vec![]));
    let names = Items::parse(&[]).unwrap();
    let all = ask_at(&mut shard, TreeCommand::GetFields { id: "x".into(), names }, now);
    let mut expected = Vec::new();
    Items::push(&mut expected, b"a");
    Items::push(&mut expected, &value);
    assert_eq!(all, (Status::Ok, 2, expected));
    shard.audit().unwrap();
}

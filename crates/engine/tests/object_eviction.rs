//! Memory that is full of objects of parts: large hashes, trees of places, sorted sets. With eviction
//! they make room for each other, for strings, and for their own growth; an object goes as a whole,
//! the least touched first, and never the one that the command works on.

use crate::scored;
use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Origin, Shard, ShardOptions};
use remora_layout::database::Database;
use remora_layout::limits::{EVICTION_SLACK_BYTES, ROOM_TRIES, SPAN_BYTES, STAGE_IDLE_S};
use remora_layout::packed::Field;
use remora_layout::rect::Rect;
use remora_log::{Assembler, Cursor, Frames, LogKey};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::geo::Position;
use remora_protocol::hash::{HashCommand, Told};
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedRange};
use remora_protocol::set::SetCommand;
use remora_protocol::sorted::{Scored, SortedCommand, When};
use remora_protocol::tree::{Objects, TreeCommand, TreeSettings};
use remora_protocol::{Command, Condition, Expiry, Items};

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const ARENA: usize = 4 << 20;
const SECRET: u64 = 0x10c;

/// The kinds of objects.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Made {
    Hash,
    List,
    Set,
    Ordered,
    Documents,
    Tree,
    Sorted,
    /// A string beside them.
    String,
}

const OBJECTS: [Made; 7] =
    [Made::Hash, Made::Ordered, Made::Set, Made::Tree, Made::Sorted, Made::List, Made::Documents];
/// Parts of an object.
const PARTS: u64 = 200;

fn rect(at: u64) -> Rect {
    let (x, y) = ((at * 37 % 101) as f64, (at * 53 % 97) as f64);
    Rect { min_x: x, max_x: x + 1.0, min_y: y, max_y: y + 1.0 }
}

/// A shard, and all that its log said.
struct Fixture {
    shard: Shard,
    cursor: Cursor,
    log: Vec<u8>,
}

impl Fixture {
    fn new(eviction: Eviction) -> Self {
        let shard = shard(ARENA, eviction);
        Self { cursor: shard.log().oldest_cursor(), shard, log: Vec::new() }
    }

    fn ask(&mut self, command: &Command<'_>) -> (Status, i64, Option<Vec<u8>>) {
        let hash = self.shard.hash(command.key().unwrap_or_default());
        // Bounded: a build has so many steps.
        loop {
            let reply = self.shard.execute(command, hash, NOW);
            let answer = (reply.status, reply.number, reply.value.map(<[u8]>::to_vec));
            let log = self.shard.log();
            log.read(&mut self.cursor, usize::MAX, &mut self.log).expect("read at once");
            let is_build = matches!(command, Command::Of { .. });
            if !is_build || answer.0 != Status::InPieces {
                return answer;
            }
        }
    }

    fn hash(&mut self, key: &[u8], command: HashCommand<'_>) -> (Status, i64, Option<Vec<u8>>) {
        self.ask(&Command::Of { key, request: command.request() })
    }

    fn tree(&mut self, key: &[u8], command: &TreeCommand<'_>) -> (Status, i64, Option<Vec<u8>>) {
        let request = command.checked().map(TreeCommand::request).unwrap();
        self.ask(&Command::Of { key, request })
    }

    fn sorted(&mut self, key: &[u8], command: SortedCommand<'_>) -> (Status, i64, Option<Vec<u8>>) {
        self.ask(&Command::Of { key, request: command.request() })
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Status {
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        self.ask(&Command::Set { key, value, condition, expiry, get: false }).0
    }

    /// Adds some parts to an object; how many were new.
    fn add(&mut self, made: Made, key: &[u8], parts: std::ops::Range<u64>) -> (Status, i64) {
        let number = parts.end - parts.start;
        let (status, added) = match made {
            Made::String => (self.set(key, &[7; 3_000]), number as i64),
            Made::Hash => {
                let mut items = Vec::new();
                for at in parts {
                    Items::push(&mut items, format!("field {at}").as_bytes());
                    Items::push(&mut items, &[at as u8; 80]);
                }
                let pairs = Items::parse(&items).unwrap();
                let (status, added, _) = self.hash(key, HashCommand::Set { pairs });
                (status, added)
            }
            Made::List => {
                let mut items = Vec::new();
                parts.for_each(|at| Items::push(&mut items, &[at as u8; 80]));
                let (side, items) = (Side::Right, Items::parse(&items).unwrap());
                let push = ListCommand::Push { side, if_there: false, items };
                let (status, ..) = self.ask(&Command::Of { key, request: push.request() });
                (status, if status == Status::Ok { number as i64 } else { 0 })
            }
            Made::Set => {
                let mut items = Vec::new();
                for at in parts {
                    Items::push(&mut items, format!("{at:060}").as_bytes());
                }
                let members = Items::parse(&items).unwrap();
                let request = SetCommand::Add { members }.request();
                let (status, added, _) = self.ask(&Command::Of { key, request });
                (status, added)
            }
            Made::Ordered => self.add_ordered(key, parts),
            Made::Documents => self.add_documents(key, parts),
            Made::Tree => {
                let mut added = 0;
                for at in parts {
                    let data = [at as u8; 60];
                    let put = TreeCommand::put(at, rect(at), Some(&data), None);
                    let (status, number, _) = self.tree(key, &put);
                    if status != Status::Ok {
                        return (status, added);
                    }
                    added += number;
                }
                (Status::Ok, added)
            }
            Made::Sorted => {
                let mut list = Vec::new();
                for at in parts {
                    let (x, y) = ((at * 7 % 359) as f64 - 179.0, (at * 3 % 169) as f64 - 84.0);
                    let score = Position::new(x, y).unwrap().score();
                    let member = format!("a member with a long name {at}");
                    Scored::push(&mut list, score, member.as_bytes());
                }
                let (status, added, _) = self.sorted(key, scored::add(&list));
                (status, added)
            }
        };
        (status, added)
    }

    fn add_ordered(&mut self, key: &[u8], parts: std::ops::Range<u64>) -> (Status, i64) {
        let mut added = 0;
        for at in parts {
            // One of eight lies in a record.
            let bytes = if at % 8 == 0 { 400 } else { 60 };
            let (name, value) = (format!("key {at:09}"), vec![at as u8; bytes]);
            let value = Field { value: &value, is_link: false };
            let set = OrderedCommand::Set { key: name.as_bytes(), value };
            let (status, number, _) = self.ask(&Command::Of { key, request: set.request() });
            if status != Status::Ok {
                return (status, added);
            }
            added += number;
        }
        (Status::Ok, added)
    }

    fn add_documents(&mut self, key: &[u8], parts: std::ops::Range<u64>) -> (Status, i64) {
        let (mut list, count) = (Vec::new(), (parts.end - parts.start) as i64);
        for at in parts {
            let document = bson::doc! { "_id": at as i64, "a": "text ".repeat(8) };
            Items::push(&mut list, &document.to_vec().unwrap());
        }
        let documents = Items::parse(&list).unwrap();
        let request = CollectionCommand::Insert { documents, ordered: true }.request();
        let (status, added, _) = self.ask(&Command::Of { key, request });
        // What follows a document without room is told as a failure of that one.
        let has_failed = status == Status::Ok && added < count;
        (if has_failed { Status::OutOfMemory } else { status }, added)
    }

    /// Parts of an object; none if it is not there. It counts as a use.
    fn parts(&mut self, made: Made, key: &[u8]) -> u64 {
        let number = match made {
            Made::String => self.ask(&Command::StrLen { key }).1,
            Made::Hash => self.hash(key, HashCommand::Length).1,
            Made::List => {
                let request = ListCommand::Length.request();
                self.ask(&Command::Of { key, request }).1
            }
            Made::Set => self.ask(&Command::Of { key, request: SetCommand::Length.request() }).1,
            Made::Ordered => {
                let request = OrderedCommand::Count { range: OrderedRange::ALL }.request();
                self.ask(&Command::Of { key, request }).1
            }
            Made::Documents => {
                let request = bson::doc! { "count": true }.to_vec().unwrap();
                let request = CollectionCommand::Find { request: &request }.request();
                self.ask(&Command::Of { key, request }).1
            }
            Made::Tree => {
                let window = Rect { min_x: -1.0, max_x: 1e6, min_y: -1.0, max_y: 1e6 };
                let predicate = remora_layout::rect::Predicate::Intersects;
                let (status, number, _) = self.tree(key, &TreeCommand::Count { window, predicate });
                if status == Status::NoTree { 0 } else { number }
            }
            Made::Sorted => self.sorted(key, SortedCommand::Length).1,
        };
        number as u64
    }

    /// Makes hashes that are asked for, too, so that none is a passing one.
    fn add_touched(&mut self, objects: std::ops::Range<u64>) {
        for at in objects {
            assert_eq!(self.add(Made::Hash, &key(at), 0..PARTS).0, Status::Ok, "{at}");
            assert_eq!(self.parts(Made::Hash, &key(at)), PARTS);
        }
    }

    fn is_there(&mut self, key: &[u8]) -> bool {
        self.ask(&Command::Exists { key }).1 == 1
    }

    fn evicted(&self) -> u64 {
        self.shard.stats().evicted
    }

    fn release_all(&mut self) {
        while self.shard.wants_release() {
            self.shard.release_some(NOW);
        }
        self.shard.tick(NOW);
    }

    /// Bytes that are free once everything that was removed is released.
    fn free(&mut self) -> u64 {
        self.release_all();
        let slots = self.shard.stats().slots;
        slots.free_bytes + slots.uncarved_bytes
    }

    /// Memory is whole, and the log makes the same of another shard.
    fn check(&mut self) {
        self.release_all();
        let log = self.shard.log();
        log.read(&mut self.cursor, usize::MAX, &mut self.log).expect("read at once");
        self.shard.audit().unwrap();
        let mut copy = shard(64 << 20, Eviction::S3Fifo);
        copy.begin_applying();
        let mut assembler = Assembler::new(1, 100 << 20);
        for frame in Frames::new(&self.log, LogKey::new(SECRET, 0)) {
            if let Some(entry) = assembler.take(frame.unwrap()).unwrap() {
                copy.apply(&entry.to_owned().entry(), &Origin::WHOLE, NOW).unwrap();
            }
        }
        assert_eq!(copy.applied(0), self.shard.last_sequence());
        assert_eq!(copy.digest(), self.shard.digest());
    }
}

fn shard(bytes: usize, eviction: Eviction) -> Shard {
    let options =
        ShardOptions { eviction, record_secret: 7, log_secret: SECRET, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

fn key(at: u64) -> Vec<u8> {
    format!("object {at}").into_bytes()
}

/// Fills memory twice with such objects; all of them are taken.
fn fill_twice(fixture: &mut Fixture, made: impl Fn(u64) -> Made) -> u64 {
    let mut at = 0;
    // Bounded: each object takes memory.
    while fixture.evicted() == 0 || at < 2 * fixture.shard.stats().keys {
        let (status, added) = fixture.add(made(at), &key(at), 0..PARTS);
        assert_eq!((status, added), (Status::Ok, PARTS as i64), "{:?} {at}", made(at));
        at += 1;
        assert!(at < 10_000, "memory never gets full");
    }
    at
}

#[test]
fn objects_of_any_type_make_room_for_each_other() {
    for made in OBJECTS {
        let mut fixture = Fixture::new(Eviction::S3Fifo);
        let objects = fill_twice(&mut fixture, |_| made);
        let stats = fixture.shard.stats();
        println!("{made:?}: {objects} made, {} evicted, {} there", stats.evicted, stats.keys);
        assert_eq!(stats.evicted + stats.keys, objects);
        assert!(stats.slots.used_bytes + stats.slots.run_bytes > ARENA as u64 / 3, "{stats:?}");
        // Every present object is whole.
        for at in 0..objects {
            let parts = fixture.parts(made, &key(at));
            assert!(parts == PARTS || (parts == 0 && !fixture.is_there(&key(at))), "{parts}");
        }
        fixture.check();
    }
}

#[test]
fn objects_and_strings_of_all_sizes_make_room_for_each_other() {
    let mut fixture = Fixture::new(Eviction::S3Fifo);
    let made =
        |at: u64| [Made::Hash, Made::Tree, Made::String, Made::Sorted, Made::Set][at as usize % 5];
    let objects = fill_twice(&mut fixture, made);
    for large in 0..6 {
        assert_eq!(fixture.set(&key(objects + large), &vec![1; 300_000]), Status::Ok, "{large}");
    }
    for at in 0..200 {
        let at = objects + 6 + at;
        assert_eq!(fixture.add(made(at), &key(at), 0..PARTS).0, Status::Ok, "{at}");
    }
    fixture.check();
}

#[test]
fn the_least_touched_go_first() {
    for made in OBJECTS {
        let mut fixture = Fixture::new(Eviction::S3Fifo);
        const HOT: u64 = 5;
        let mut missed = 0;
        for at in HOT..HOT + 800 {
            assert_eq!(fixture.add(made, &key(at), 0..PARTS).0, Status::Ok);
            if fixture.parts(made, &key(at % HOT)) == 0 {
                assert_eq!(fixture.add(made, &key(at % HOT), 0..PARTS).0, Status::Ok);
                missed += 1;
            }
        }
        println!("{made:?}: {missed} missed, {} evicted", fixture.evicted());
        assert!(fixture.evicted() > 500, "{made:?}: {}", fixture.evicted());
        // Until something is evicted for the first time all touches are alike.
        assert!(missed <= 2 * HOT, "{made:?}: {missed}");
    }
}

#[test]
fn to_be_touched_is_a_use_and_to_exist_is_none() {
    const HOT: u64 = 5;
    for made in OBJECTS.into_iter().chain([Made::String]) {
        let others = if made == Made::String { 8_000 } else { 800 };
        let missed = [true, false].map(|is_touched| {
            let mut fixture = Fixture::new(Eviction::S3Fifo);
            let mut missed = 0;
            for at in HOT..HOT + others {
                assert_eq!(fixture.add(made, &key(at), 0..PARTS).0, Status::Ok);
                let key = &key(at % HOT);
                let is_there = fixture.ask(&match is_touched {
                    true => Command::Touch { key },
                    false => Command::Exists { key },
                });
                if is_there.1 == 0 {
                    assert_eq!(fixture.add(made, key, 0..PARTS).0, Status::Ok);
                    missed += 1;
                }
            }
            assert!(fixture.evicted() > 300, "{made:?}: {}", fixture.evicted());
            missed
        });
        println!("{made:?}: {missed:?} missed");
        assert!(missed[0] < missed[1], "{made:?}: {missed:?}");
    }
}

#[test]
fn an_object_grows_while_others_go_and_never_goes_itself() {
    for made in OBJECTS {
        let mut fixture = Fixture::new(Eviction::S3Fifo);
        let others = fill_twice(&mut fixture, |at| OBJECTS[at as usize % OBJECTS.len()]);
        let mut parts = 0;
        // Bounded: memory ends.
        let status = loop {
            let (status, added) = fixture.add(made, b"grows", parts..parts + 1);
            if status != Status::Ok {
                break status;
            }
            assert_eq!(added, 1);
            parts += 1;
            if parts % 500 == 0 {
                assert_eq!(fixture.parts(made, b"grows"), parts, "{made:?}");
            }
        };
        assert_eq!(status, Status::OutOfMemory);
        assert_eq!(fixture.parts(made, b"grows"), parts, "{made:?}");
        let left = (0..others).filter(|&at| fixture.is_there(&key(at))).count();
        println!("{made:?}: {parts} parts, {left} others left");
        assert!(left <= 3, "{made:?}: {left} others, and it finds no room at {parts}");
        let stats = fixture.shard.stats().slots;
        let taken = stats.used_bytes + stats.run_bytes;
        assert!(taken > ARENA as u64 / 2, "{made:?}: {stats:?}");
        fixture.check();
    }
}

#[test]
fn without_eviction_nothing_goes() {
    for made in OBJECTS {
        let mut fixture = Fixture::new(Eviction::None);
        let mut at = 0;
        let status = loop {
            let (status, _) = fixture.add(made, &key(at), 0..PARTS);
            if status != Status::Ok {
                break status;
            }
            at += 1;
        };
        assert_eq!(status, Status::OutOfMemory);
        for at in 0..at {
            assert_eq!(fixture.parts(made, &key(at)), PARTS, "{made:?}");
        }
        assert_eq!(fixture.evicted(), 0);
        fixture.check();
    }
}

#[test]
fn a_command_evicts_in_proportion_to_what_it_wants() {
    for made in OBJECTS {
        let mut fixture = Fixture::new(Eviction::S3Fifo);
        let objects = fill_twice(&mut fixture, |_| made);
        let slack = SPAN_BYTES as u64 + EVICTION_SLACK_BYTES;
        let mut most = 0;
        for at in 0..300 {
            let before = fixture.free();
            assert_eq!(fixture.add(Made::String, &key(objects + at), 0..1).0, Status::Ok);
            most = most.max(fixture.free().saturating_sub(before));
        }
        println!("{made:?}: at most {most} bytes went for 3 000");
        // Members cannot be moved: pages come free with all the keys that share them.
        let tries = if made == Made::Sorted { 1 << ROOM_TRIES } else { 4 };
        assert!(most < tries * (slack + 2 * 3_100), "{made:?}: {most} bytes");
        // One that can have no room takes nothing with it.
        let before = fixture.evicted();
        assert_eq!(fixture.set(b"too long", &vec![0; ARENA]), Status::OutOfMemory);
        assert_eq!(fixture.evicted(), before, "{made:?}");
    }
}

#[test]
fn a_large_value_finds_room_among_objects() {
    for made in OBJECTS {
        let mut fixture = Fixture::new(Eviction::S3Fifo);
        fill_twice(&mut fixture, |_| made);
        for at in 0..5 {
            let (key, bytes) = (format!("large {at}"), 300_000);
            let before = fixture.free();
            assert_eq!(fixture.set(key.as_bytes(), &vec![1; bytes]), Status::Ok, "{made:?}");
            let went = (fixture.free() + bytes as u64).saturating_sub(before);
            let most = (1 << ROOM_TRIES) * (bytes as u64 + 2 * EVICTION_SLACK_BYTES);
            assert!(went < most, "{made:?}: {went} bytes, {most} may go");
        }
        fixture.check();
    }
}

/// Work done before memory was full is not repeated.
#[test]
fn a_member_that_is_named_twice_is_given_twice_and_no_more() {
    let mut fixture = Fixture::new(Eviction::S3Fifo);
    fill_twice(&mut fixture, |_| Made::Sorted);
    for key in 0..5 {
        let mut list = Vec::new();
        let mut push = |member: &[u8], x: f64| {
            let score = Position::new(x, 1.0).unwrap().score();
            Scored::push(&mut list, score, member);
        };
        push(b"twice", 1.0);
        push(b"twice", 2.0);
        // Short names: they take more than is reckoned for them.
        (0..8_000).for_each(|at| push(format!("{at}").as_bytes(), 3.0));
        let members = Scored::parse(&list).unwrap();
        let add = SortedCommand::Add { when: When::default(), counts_changed: true, members };
        let key = format!("sorted {key}");
        let (status, number, _) = fixture.sorted(key.as_bytes(), add);
        assert_eq!((status, number), (Status::Ok, 8_002), "{key}");
    }
    fixture.check();
}

#[test]
fn a_string_that_is_given_to_another_key_stays() {
    let mut fixture = Fixture::new(Eviction::S3Fifo);
    let made = |at| if at % 2 == 0 { Made::String } else { Made::Hash };
    let objects = fill_twice(&mut fixture, made);
    let mut renamed = 0;
    for at in (0..objects).step_by(2) {
        if !fixture.is_there(&key(at)) {
            continue;
        }
        let to = format!("renamed {at}");
        let transfer = Command::Transfer {
            key: &key(at),
            to: to.as_bytes(),
            database: Database::ZERO,
            replaces: true,
            keeps: true,
        };
        let answer = fixture.ask(&transfer);
        assert_eq!((answer.0, answer.1), (Status::Ok, 1), "{at}");
        assert!(fixture.is_there(&key(at)), "{at}");
        assert_eq!(fixture.parts(Made::String, to.as_bytes()), 3_000);
        renamed += 1;
    }
    assert!(renamed > 20, "{renamed}");
    fixture.check();
}

/// Bytes of an element for which many keys have to go.
const LONG: usize = 60_000;

/// A move from a key to another one of the element `LONG` times this byte, and whether it succeeded.
fn move_long(fixture: &mut Fixture, made: Made, (from, to): (&[u8], &[u8]), byte: u8) -> bool {
    let long = vec![byte; LONG];
    let mut items = Vec::new();
    let request = match made {
        Made::Set => {
            Items::push(&mut items, to);
            Items::push(&mut items, &long);
            let to_and_member = Items::parse(&items).unwrap();
            SetCommand::Move { to_and_member }.request()
        }
        _ => ListCommand::Move { from: Side::Left, to: Side::Right, other: to }.request(),
    };
    let moved = fixture.ask(&Command::Of { key: from, request });
    moved.0 == Status::Ok && (made == Made::List || moved.1 == 1)
}

/// Adds a long element: to a list at the front.
fn add_long(fixture: &mut Fixture, made: Made, key: &[u8], byte: u8) -> Status {
    let mut items = Vec::new();
    Items::push(&mut items, &vec![byte; LONG]);
    let items = Items::parse(&items).unwrap();
    let request = match made {
        Made::Set => SetCommand::Add { members: items }.request(),
        _ => ListCommand::Push { side: Side::Left, if_there: false, items }.request(),
    };
    fixture.ask(&Command::Of { key, request }).0
}

/// The one that is next to go is now the source, now the target: small or large.
#[test]
fn neither_key_of_a_move_goes_before_its_end() {
    for made in [Made::Set, Made::List] {
        let mut fixture = Fixture::new(Eviction::S3Fifo);
        for at in 0..3_000u64 {
            fixture.set(&key(at), &[7; 1_500]);
        }
        for trial in 0..400u64 {
            let (from, to) = (format!("from {trial}"), format!("to {trial}"));
            let (from, to) = (from.as_bytes(), to.as_bytes());
            let (mut left, there) = (1 + PARTS, [0, 3, PARTS][trial as usize % 3]);
            if trial % 2 == 0 {
                left = 1;
            } else {
                assert_eq!(fixture.add(made, from, 0..PARTS).0, Status::Ok);
            }
            assert_eq!(add_long(&mut fixture, made, from, trial as u8), Status::Ok);
            if there > 0 {
                assert_eq!(fixture.add(made, to, 0..there).0, Status::Ok);
            }
            for at in 0..trial % 240 {
                fixture.set(&key(10_000 + trial * 240 + at), &[8; 1_500]);
            }
            // Either may have gone before.
            let (is_left, was_there) = (fixture.is_there(from), fixture.is_there(to));
            let moved = move_long(&mut fixture, made, (from, to), trial as u8);
            assert_eq!(moved, is_left, "{made:?}, {trial}");
            let given = u64::from(moved) + if was_there { there } else { 0 };
            assert_eq!(fixture.parts(made, to), given, "{made:?}, {trial}");
            let left = if is_left { left - 1 } else { 0 };
            assert_eq!(fixture.parts(made, from), left, "{made:?}, {trial}");
            fixture.shard.audit().unwrap();
        }
        assert!(fixture.evicted() > 1_000, "{}", fixture.evicted());
        fixture.check();
    }
}

/// A build that fails for good keeps nothing, as without eviction.
#[test]
fn a_build_of_what_was_given_twice_keeps_nothing() {
    let mut fixture = Fixture::new(Eviction::S3Fifo);
    let settings = TreeSettings::default();
    assert_eq!(fixture.tree(b"tree", &TreeCommand::Create(settings)).0, Status::Ok);
    let mut staged = Vec::new();
    [7, 8, 7].into_iter().for_each(|id| Objects::push(&mut staged, id, &rect(id)));
    let objects = Objects::parse(&staged).unwrap();
    let stage = TreeCommand::Stage { load: 1, first: true, objects };
    assert_eq!(fixture.tree(b"tree", &stage).0, Status::Ok);
    assert_eq!(fixture.tree(b"tree", &TreeCommand::Build { load: 1 }).0, Status::TwiceGiven);
    assert_eq!(fixture.tree(b"tree", &TreeCommand::Build { load: 1 }).0, Status::OtherLoad);
    fixture.check();
}

#[test]
fn a_tree_that_is_being_built_stays() {
    let mut fixture = Fixture::new(Eviction::S3Fifo);
    let create = TreeCommand::Create(TreeSettings::default());
    assert_eq!(fixture.tree(b"built", &create).0, Status::Ok);
    let stage = |fixture: &mut Fixture, part: u64| {
        let mut objects = Vec::new();
        (part * 500..(part + 1) * 500).for_each(|at| Objects::push(&mut objects, at, &rect(at)));
        let objects = Objects::parse(&objects).unwrap();
        let stage = TreeCommand::Stage { load: 9, first: part == 0, objects };
        assert_eq!(fixture.tree(b"built", &stage).0, Status::Ok, "{part}");
    };
    let mut at = 0;
    for part in 0..40 {
        stage(&mut fixture, part);
        fixture.add_touched(at..at + 40);
        at += 40;
    }
    assert!(fixture.evicted() > 100);
    let built = fixture.tree(b"built", &TreeCommand::Build { load: 9 });
    assert_eq!((built.0, built.1), (Status::Ok, 20_000));
    fixture.check();
    // Once it is built it goes as any other; so it does when a stage is given up.
    let again = TreeCommand::Create(TreeSettings::default());
    assert_eq!(fixture.tree(b"given up", &again).0, Status::Ok);
    let mut objects = Vec::new();
    Objects::push(&mut objects, 1, &rect(1));
    let objects = Objects::parse(&objects).unwrap();
    let stage = TreeCommand::Stage { load: 1, first: true, objects };
    assert_eq!(fixture.tree(b"given up", &stage).0, Status::Ok);
    for second in 0..2 * STAGE_IDLE_S {
        fixture.shard.tick(Now { since_start_s: NOW.since_start_s + second, ..NOW });
    }
    fixture.add_touched(at..at + 800);
    assert!(!fixture.is_there(b"built") && !fixture.is_there(b"given up"));
}

#[test]
fn a_key_that_is_given_to_another_one_stays_and_what_is_read_in_turns_is_whole() {
    let mut fixture = Fixture::new(Eviction::S3Fifo);
    for key in [&b"given"[..], b"read"] {
        assert_eq!(fixture.add(Made::Hash, key, 0..5 * PARTS).0, Status::Ok);
    }
    let (status, _, head) = fixture.ask(&Command::Dump { key: b"given", holds: true });
    assert_eq!(status, Status::InPieces);
    let dump = remora_protocol::Dumped::parse(&head.unwrap()).unwrap().dump;
    let request = HashCommand::All { told: Told::Names }.request();
    let hash = fixture.shard.hash(b"read");
    let mut read = fixture.shard.begin_read((b"read", hash), request, NOW).unwrap();
    fixture.add_touched(0..1_000);
    assert!(fixture.is_there(b"given") && !fixture.is_there(b"read"));
    let mut pieces = Vec::new();
    loop {
        let part = fixture.ask(&Command::DumpPart { key: b"given", dump });
        assert_eq!(part.0, Status::Ok);
        pieces.extend(part.2.unwrap());
        if part.1 == 0 {
            break;
        }
    }
    assert_eq!(Items::parse(&pieces).unwrap().iter().count() as u64, 10 * PARTS);
    let mut found = Vec::new();
    while !fixture.shard.read_turn(&mut read, &mut found, NOW).expect("it was kept").ended {}
    assert_eq!(Items::parse(&found).unwrap().iter().count() as u64, 5 * PARTS);
}

#[test]
fn writes_beside_a_flush_of_full_memory_are_what_the_log_says() {
    let mut fixture = Fixture::new(Eviction::S3Fifo);
    fill_twice(&mut fixture, |at| OBJECTS[at as usize % OBJECTS.len()]);
    for at in 0..300 {
        assert_eq!(fixture.set(&key(20_000 + at), &[1; 100]), Status::Ok);
    }
    let flush = fixture.shard.begin_flush(None).unwrap();
    let evicted = fixture.evicted();
    assert_eq!(fixture.set(b"large", &vec![2; 300_000]), Status::Ok);
    assert_eq!(fixture.evicted(), evicted, "what went was the flush's");
    drop(flush);
    fixture.check();
    assert_eq!(fixture.shard.stats().keys, 1);
}

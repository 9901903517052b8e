//! RENAME, RENAMENX, COPY and MOVE of objects of any type and size: the target gets exactly the
//! source's object, nothing changes meanwhile, and a failed move leaves nothing.

use crate::give::{Answer, How, KeyRef, give_some};
use crate::scored;
use remora_arena::{NoJournal, Owner};
use remora_engine::{Digest, LargeSet, Now, Outcome, Shard, ShardOptions};
use remora_geometry::Wkb;
use remora_layout::btree::KeyForm;
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::{
    DUMP_PIECE_BYTES, DUMP_PIECE_PARTS, MAX_HELD_RECORDS, MAX_MOVES, REPUBLISH_AFTER_S,
    UPLOAD_IDLE_S,
};
use remora_layout::packed::Field;
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::geo::Position;
use remora_protocol::hash::HashCommand;
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedSettings};
use remora_protocol::set::SetCommand;
use remora_protocol::sorted::Scored;
use remora_protocol::tree::{Fields, ObjectId, PutObject, TreeCommand, TreeSettings};
use remora_protocol::{
    Command, Condition, Dumped, ExpireCondition, Expiry, Items, LoadStep, Pairs,
};

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const RENAME: How = How { replaces: true, keeps: false };
const RENAME_NX: How = How { replaces: false, keeps: false };
const COPY: How = How { replaces: false, keeps: true };
const COPY_REPLACE: How = How { replaces: true, keeps: true };
const TYPES: [&[u8]; 7] = [b"hash", b"sorted", b"tree", b"list", b"set", b"ordered", b"documents"];

/// Some shards, and the time.
struct World {
    shards: Vec<Shard>,
    now: Now,
}

fn give(
    ask: &mut dyn FnMut(usize, Database, &Command<'_>) -> Answer,
    from: KeyRef<'_>,
    to: KeyRef<'_>,
    how: How,
) -> (Status, i64) {
    give_some(ask, from, to, how, usize::MAX)
}

fn database(number: usize) -> Database {
    Database::new(number).unwrap()
}

impl World {
    fn new(bytes: usize) -> Self {
        let shard = |number: u32| {
            let record_secret = 7 + u64::from(number);
            let options = ShardOptions {
                region: number,
                record_secret,
                buckets: 2,
                ..ShardOptions::default()
            };
            Shard::new(Owner::heap(bytes, NoJournal), options)
        };
        Self { shards: (0..2).map(shard).collect(), now: NOW }
    }

    fn ask(&mut self, at: usize, on: Database, command: &Command<'_>) -> Answer {
        let hash = self.shards[at].hash_of(on, command);
        let reply = self.shards[at].execute(command, hash, self.now);
        (reply.status, reply.number, reply.value.map(<[u8]>::to_vec))
    }

    fn of(&mut self, place: KeyRef<'_>, command: &Command<'_>) -> Answer {
        self.ask(place.shard, place.database, command)
    }

    fn give(&mut self, from: KeyRef<'_>, to: KeyRef<'_>, how: How) -> (Status, i64) {
        give(&mut |at, on, command| self.ask(at, on, command), from, to, how)
    }

    fn exists(&mut self, place: KeyRef<'_>) -> bool {
        self.of(place, &Command::Exists { key: place.key }).1 == 1
    }

    fn digest(&mut self, place: KeyRef<'_>) -> Option<Digest> {
        let shard = &mut self.shards[place.shard];
        let hash = shard.hash_of(place.database, &Command::Get { key: place.key });
        shard.digest_value(place.key, hash, self.now)
    }

    fn set(&mut self, place: KeyRef<'_>, value: &[u8]) -> Status {
        let (condition, expiry, get) = (Condition::Always, Expiry::Never, false);
        let set = Command::Set { key: place.key, value, condition, expiry, get };
        self.of(place, &set).0
    }

    fn get(&mut self, place: KeyRef<'_>) -> Option<Vec<u8>> {
        self.of(place, &Command::Get { key: place.key }).2
    }

    /// Lets this many seconds pass.
    fn tick(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now.since_start_s += 1;
            self.shards.iter_mut().for_each(|shard| shard.tick(self.now));
        }
    }

    /// Compares the books once all memory has come back.
    fn audit(&mut self) {
        for shard in &mut self.shards {
            while shard.wants_release() {
                shard.release_some(Now { since_start_s: 1 << 30, ..NOW });
            }
            shard.audit().unwrap();
        }
    }

    fn used_bytes(&mut self) -> u64 {
        self.audit();
        self.shards.iter().map(|shard| shard.stats().slots.used_bytes).sum()
    }

    fn hash(&mut self, place: KeyRef<'_>, fields: usize) {
        for at in 0..fields {
            let mut list = Vec::new();
            Items::push(&mut list, format!("field {at}").as_bytes());
            Items::push(&mut list, &vec![at as u8; at % 90]);
            let pairs = Items::parse(&list).unwrap();
            let request = HashCommand::Set { pairs }.request();
            assert_eq!(self.of(place, &Command::Of { key: place.key, request }).1, 1);
        }
    }

    fn list(&mut self, place: KeyRef<'_>, elements: usize) {
        for at in 0..elements {
            let mut list = Vec::new();
            Items::push(&mut list, &vec![at as u8; at % 90]);
            let (side, items) = (Side::Right, Items::parse(&list).unwrap());
            let request = ListCommand::Push { side, if_there: false, items }.request();
            let answer = self.of(place, &Command::Of { key: place.key, request });
            assert_eq!(answer.1, at as i64 + 1);
        }
    }

    fn set_members(&mut self, place: KeyRef<'_>, members: usize) {
        for at in 0..members {
            let mut list = Vec::new();
            Items::push(&mut list, format!("member {at}").repeat(1 + at % 9).as_bytes());
            let members = Items::parse(&list).unwrap();
            let request = SetCommand::Add { members }.request();
            assert_eq!(self.of(place, &Command::Of { key: place.key, request }).1, 1);
        }
    }

    fn sorted(&mut self, place: KeyRef<'_>, members: usize) {
        let mut list = Vec::new();
        for at in 0..members {
            let east = (at % 360) as f64 - 180.0;
            let score = Position::new(east, (at % 160) as f64 - 80.0).unwrap().score();
            let member = format!("member {at}");
            Scored::push(&mut list, score, member.as_bytes());
        }
        let request = scored::store(&list).request();
        let answer = self.of(place, &Command::Of { key: place.key, request });
        assert_eq!(answer.1, members as i64);
    }

    fn tree_command(&mut self, place: KeyRef<'_>, command: &TreeCommand<'_>) -> Answer {
        let request = command.checked().map(TreeCommand::request).unwrap();
        self.of(place, &Command::Of { key: place.key, request })
    }

    fn tree(&mut self, place: KeyRef<'_>, objects: u64) {
        let bounds = Rect { min_x: -5.0, max_x: 99.0, min_y: 0.0, max_y: 99.0 };
        let settings = TreeSettings { kind: TreeKind::Hilbert, capacity: 12, bounds };
        assert_eq!(self.tree_command(place, &TreeCommand::Create(settings)).0, Status::Ok);
        let fields = Fields::encode([(&b"kind"[..], &b"cafe"[..])]).unwrap();
        for at in 0..objects {
            let name = format!("object {at}");
            let id = if at % 3 == 0 { ObjectId::from(&name[..]) } else { at.into() };
            let rect = Rect::point((at % 97) as f64, (at % 89) as f64).unwrap();
            let data = (at % 5 == 0).then_some(&b"some bytes"[..]);
            let fields = (at % 4 == 0).then(|| Fields::parse(&fields).unwrap());
            let wkb = point_wkb(&rect);
            let geometry = (at % 7 == 0).then_some(Wkb::known(&wkb, rect));
            let expiry = match at % 11 {
                0 => Expiry::At(NOW.unix_ms + 1_000 + at),
                _ => Expiry::Keep,
            };
            let put = PutObject { data, fields, geometry, expiry, ..PutObject::new(id, rect) };
            assert_eq!(self.tree_command(place, &TreeCommand::Put(put)).1, 1);
        }
    }

    fn ordered(&mut self, place: KeyRef<'_>, keys: usize) {
        let settings = OrderedSettings { fan_out: 9, ..OrderedSettings::of(KeyForm::Bytes) };
        let request = OrderedCommand::Create(settings).request();
        assert_eq!(self.of(place, &Command::Of { key: place.key, request }).0, Status::Ok);
        for at in 0..keys {
            let key = format!("{} key {at}", at % 13);
            // Some lie in records.
            let long = key[1..].repeat(if at % 7 == 0 { 60 } else { 1 });
            let value = Field { value: long.as_bytes(), is_link: at % 5 == 0 };
            let request = OrderedCommand::Set { key: key.as_bytes(), value }.request();
            assert_eq!(self.of(place, &Command::Of { key: place.key, request }).1, 1);
        }
    }

    fn documents(&mut self, place: KeyRef<'_>, count: usize) {
        let spec = bson::doc! { "spec": { "key": { "a": 1 }, "name": "a_1" } }.to_vec().unwrap();
        let request = CollectionCommand::CreateIndex { request: &spec }.request();
        assert_eq!(self.of(place, &Command::Of { key: place.key, request }).1, 1);
        let mut list = Vec::new();
        for at in 0..count as i32 {
            let document = bson::doc! { "_id": at, "a": [at % 7, at % 11], "b": "text" };
            Items::push(&mut list, &document.to_vec().unwrap());
        }
        let documents = Items::parse(&list).unwrap();
        let request = CollectionCommand::Insert { documents, ordered: true }.request();
        let inserted = self.of(place, &Command::Of { key: place.key, request }).1;
        assert_eq!(inserted, count as i64);
    }

    /// An object of one of the types, by its key's name.
    fn make(&mut self, place: KeyRef<'_>, parts: usize) {
        match place.key {
            b"hash" => self.hash(place, parts),
            b"sorted" => self.sorted(place, parts),
            b"list" => self.list(place, parts),
            b"set" => self.set_members(place, parts),
            b"ordered" => self.ordered(place, parts),
            b"documents" => self.documents(place, parts),
            _ => self.tree(place, parts as u64),
        }
    }

    /// A command that changes an object in part.
    fn change(&mut self, place: KeyRef<'_>) -> Status {
        match place.key {
            b"hash" => {
                let request = HashCommand::Increment { name: b"count", by: 1 }.request();
                self.of(place, &Command::Of { key: place.key, request }).0
            }
            b"list" => {
                let request =
                    ListCommand::Pop { side: Side::Left, count: 1, fits_frame: false }.request();
                self.of(place, &Command::Of { key: place.key, request }).0
            }
            b"set" => {
                let mut list = Vec::new();
                Items::push(&mut list, b"member 0");
                let members = Items::parse(&list).unwrap();
                let request = SetCommand::Remove { members }.request();
                self.of(place, &Command::Of { key: place.key, request }).0
            }
            b"ordered" => {
                let request = OrderedCommand::Delete { key: b"0 key 0" }.request();
                self.of(place, &Command::Of { key: place.key, request }).0
            }
            b"documents" => {
                let removal = bson::doc! { "q": { "_id": 0 } }.to_vec().unwrap();
                let request = CollectionCommand::Write { request: &removal }.request();
                self.of(place, &Command::Of { key: place.key, request }).0
            }
            b"sorted" => {
                let names = scored::names(&scored::scored([(0.0, &b"member 3"[..])]));
                let request = scored::remove(&names).request();
                self.of(place, &Command::Of { key: place.key, request }).0
            }
            _ => self.tree_command(place, &TreeCommand::Remove { id: 1.into() }).0,
        }
    }
}

fn point_wkb(rect: &Rect) -> Vec<u8> {
    let mut wkb = vec![1, 1, 0, 0, 0];
    wkb.extend_from_slice(&rect.min_x.to_le_bytes());
    wkb.extend_from_slice(&rect.min_y.to_le_bytes());
    wkb
}

fn at(shard: usize, on: usize, key: &[u8]) -> KeyRef<'_> {
    KeyRef { shard, database: database(on), key }
}

#[test]
fn all_that_an_object_has_arrives_within_a_shard_and_at_another_one() {
    for key in TYPES {
        for (shard, on) in [(0, 0), (0, 6), (1, 0), (1, 9)] {
            let mut world = World::new(32 << 20);
            let (from, to) = (at(0, 0, key), at(shard, on, b"another key"));
            world.make(from, 1_500);
            let at_ms = NOW.unix_ms + 60_000;
            let expire = Command::Expire { key, at_ms, condition: ExpireCondition::Always };
            world.of(from, &expire);
            let digest = world.digest(from).expect("it is there");
            // RENAMENX, and COPY, to a key that is there.
            world.hash(to, 200);
            let other = world.digest(to);
            assert_eq!(world.give(from, to, RENAME_NX), (Status::Ok, 0));
            assert_eq!(world.give(from, to, COPY), (Status::Ok, 0));
            assert_eq!((world.digest(from), world.digest(to)), (Some(digest), other));
            // COPY REPLACE.
            assert_eq!(world.give(from, to, COPY_REPLACE), (Status::Ok, 1));
            assert_eq!((world.digest(from), world.digest(to)), (Some(digest), Some(digest)));
            // The copy is an object of its own.
            let copy = KeyRef { key, ..at(shard, on + 1, b"") };
            assert_eq!(world.give(to, copy, RENAME), (Status::Ok, 1));
            assert_eq!((world.exists(to), world.digest(copy)), (false, Some(digest)));
            assert_eq!(world.change(copy), Status::Ok);
            assert_ne!(world.digest(copy), Some(digest));
            assert_eq!(world.digest(from), Some(digest));
            // RENAME over it, and to itself.
            assert_eq!(world.give(from, copy, RENAME), (Status::Ok, 1));
            assert_eq!((world.exists(from), world.digest(copy)), (false, Some(digest)));
            assert_eq!(world.give(copy, copy, RENAME), (Status::Ok, 1));
            assert_eq!(world.give(copy, copy, RENAME_NX), (Status::Ok, 0));
            assert_eq!(world.give(from, copy, RENAME), (Status::NotFound, 0));
            world.audit();
            let expires = world.of(copy, &Command::ExpireTime { key }).1;
            let keys: u64 = world.shards.iter().map(|shard| shard.stats().keys).sum();
            assert_eq!((keys, expires), (1, at_ms as i64));
            assert_eq!(world.of(copy, &Command::Del { key }).1, 1);
            let nothing = World::new(32 << 20).used_bytes();
            let tables: u64 = world.shards.iter().map(|shard| shard.stats().overflow_buckets).sum();
            assert!(world.used_bytes() <= nothing + tables * 64, "all memory comes back");
        }
    }
}

#[test]
fn while_an_object_is_given_nothing_changes_it_and_no_half_of_it_is_seen() {
    for key in TYPES {
        let mut world = World::new(32 << 20);
        let (from, to) = (at(0, 0, key), at(0, 0, b"to"));
        world.make(from, 2_000);
        let digest = world.digest(from);
        let all = world.shards[0].digest();
        let (mut steps, mut pieces) = (0, 0);
        let mut ask = |shard: usize, on: Database, command: &Command<'_>| {
            if let Command::Load { step: LoadStep::Piece(piece), .. } = command {
                pieces += 1;
                assert!(piece.len() < 2 * DUMP_PIECE_BYTES);
            }
            let is_under_way = matches!(
                command,
                Command::Load { .. } | Command::DumpPart { .. } | Command::DelDumped { .. }
            );
            if is_under_way && steps < 3 {
                steps += 1;
                assert_eq!(world.change(from), Status::TryAgain);
                for command in [
                    Command::Del { key },
                    Command::Persist { key },
                    Command::Expire { key, at_ms: 1, condition: ExpireCondition::Always },
                    Command::Set {
                        key,
                        value: b"",
                        condition: Condition::Always,
                        expiry: Expiry::Never,
                        get: false,
                    },
                    Command::Dump { key, holds: false },
                    Command::Dump { key, holds: true },
                ] {
                    assert_eq!(world.of(from, &command).0, Status::TryAgain, "{command:?}");
                }
                let over = Command::Transfer {
                    key: b"other",
                    to: key,
                    database: Database::ZERO,
                    replaces: true,
                    keeps: false,
                };
                assert_eq!(world.ask(0, Database::ZERO, &over).0, Status::TryAgain);
                assert_eq!((world.digest(from), world.exists(to)), (digest, false));
                assert_eq!(world.shards[0].digest(), all, "a load counts for nothing");
                world.shards[0].audit().unwrap();
            }
            world.ask(shard, on, command)
        };
        assert_eq!(give(&mut ask, from, to, COPY), (Status::Ok, 1));
        assert!(steps == 3 && pieces >= 2_000 / (2 * DUMP_PIECE_PARTS), "{pieces} pieces");
        assert_eq!(world.digest(to), digest);
        assert_eq!(world.change(from), Status::Ok, "it may change again");
        world.audit();
    }
}

#[test]
fn what_does_not_fit_is_not_given_and_leaves_nothing() {
    for key in TYPES {
        let mut world = World::new(32 << 20);
        let (from, to) = (at(0, 0, key), at(1, 0, b"to"));
        world.make(from, 2_000);
        let digest = world.digest(from);
        let value = vec![0; 1 << 20];
        for number in 0.. {
            let name = format!("filler {number}");
            let length = if number < 30 { value.len() } else { 20_000 };
            let (condition, expiry, get) = (Condition::Always, Expiry::Never, false);
            let value = &value[..length];
            let set = Command::Set { key: name.as_bytes(), value, condition, expiry, get };
            if world.of(to, &set).0 == Status::OutOfMemory && number > 30 {
                break;
            }
        }
        let before = world.used_bytes();
        assert_eq!(world.give(from, to, RENAME), (Status::OutOfMemory, 0));
        assert_eq!((world.digest(from), world.exists(to)), (digest, false));
        assert_eq!(world.used_bytes(), before);
        assert_eq!(world.change(from), Status::Ok, "it may change again");
    }
}

#[test]
fn a_giver_that_is_gone_leaves_nothing_behind() {
    for key in TYPES {
        let mut world = World::new(32 << 20);
        let (from, to) = (at(0, 0, key), at(1, 0, b"to"));
        world.make(from, 1_000);
        let (before, digest) = (world.used_bytes(), world.digest(from));
        let mut ask = |at: usize, on: Database, command: &Command<'_>| world.ask(at, on, command);
        assert_eq!(give_some(&mut ask, from, to, RENAME, 2).0, Status::NotDone);
        assert_eq!(give(&mut ask, from, to, RENAME).0, Status::TryAgain, "one at a time");
        assert_eq!(world.change(from), Status::TryAgain);
        assert!(world.shards.iter().all(Shard::wants_ticks));
        world.tick(UPLOAD_IDLE_S + 2);
        assert_eq!((world.used_bytes(), world.digest(from)), (before, digest));
        assert_eq!(world.change(from), Status::Ok, "it may change again");
        assert_eq!(world.give(from, to, RENAME), (Status::Ok, 1));
        world.audit();
    }
}

#[test]
fn an_object_that_goes_meanwhile_does_not_arrive() {
    for (key, goes) in [(b"hash", "expires"), (b"hash", "flushed"), (b"hash", "flushed there")] {
        for shard in [0, 1] {
            let mut world = World::new(32 << 20);
            let (from, to) = (at(0, 0, key), at(shard, 3, b"to"));
            world.make(from, 1_000);
            let at_ms = NOW.unix_ms + 10;
            world.of(from, &Command::Expire { key, at_ms, condition: ExpireCondition::Always });
            let mut questions = 0;
            let mut ask = |at: usize, on: Database, command: &Command<'_>| {
                questions += 1;
                match goes {
                    _ if questions != 8 => {}
                    "expires" => world.now.unix_ms += 10,
                    "flushed" => drop(world.ask(0, from.database, &Command::Flush)),
                    _ => drop(world.ask(to.shard, to.database, &Command::Flush)),
                }
                world.ask(at, on, command)
            };
            let gone = if goes == "flushed there" { Status::TryAgain } else { Status::NotFound };
            assert_eq!(give(&mut ask, from, to, RENAME), (gone, 0), "{goes}");
            assert!(!world.exists(to));
            assert_eq!(world.exists(from), goes == "flushed there");
            world.of(from, &Command::Del { key });
            world.audit();
        }
    }
}

#[test]
fn so_many_are_given_at_a_time_and_no_more() {
    let mut world = World::new(64 << 20);
    let keys: Vec<Vec<u8>> = (0..MAX_MOVES + 1).map(|at| format!("h{at}").into_bytes()).collect();
    for key in &keys {
        world.hash(at(0, 0, key), 150);
    }
    let mut statuses = Vec::new();
    for key in &keys {
        let (from, to) = (at(0, 0, key), at(1, 0, key));
        let mut ask = |at: usize, on: Database, command: &Command<'_>| world.ask(at, on, command);
        statuses.push(give_some(&mut ask, from, to, RENAME, 0).0);
    }
    assert!(statuses[..MAX_MOVES].iter().all(|status| *status == Status::NotDone));
    assert_eq!(statuses[MAX_MOVES], Status::TryAgain);
}

/// Every command that would change a key is refused.
fn every_change_is_refused(world: &mut World, place: KeyRef<'_>) {
    let key = place.key;
    let mut pairs = Vec::new();
    Pairs::push(&mut pairs, b"other", b"");
    Pairs::push(&mut pairs, key, b"");
    let always = Condition::Always;
    let to = |key, to| Command::Transfer {
        key,
        to,
        database: place.database,
        replaces: true,
        keeps: false,
    };
    let mut bytes = Vec::new();
    Dumped::push(&mut bytes, Kind::STRING, 0, 0, b"");
    let dumped = Dumped::parse(&bytes).unwrap();
    let set = |get| Command::Set { key, value: b"", condition: always, expiry: Expiry::Never, get };
    let commands = [
        set(false),
        set(true),
        Command::MultiSet { pairs: Pairs::parse(&pairs).unwrap() },
        Command::Del { key },
        Command::Incr { key, by: 1 },
        Command::Append { key, value: b"1" },
        Command::SetRange { key, offset: 0, value: b"1" },
        Command::SetBit { key, offset: 0, bit: true },
        Command::GetDel { key },
        Command::GetEx { key, at_ms: None },
        Command::Persist { key },
        Command::Expire { key, at_ms: 1, condition: ExpireCondition::Always },
        Command::Of { key, request: HashCommand::Increment { name: b"f", by: 1 }.request() },
        Command::Restore { key, dumped, replaces: true },
        Command::Dump { key, holds: true },
        to(key, b"elsewhere"),
        to(b"other", key),
    ];
    for command in commands {
        assert_eq!(world.of(place, &command).0, Status::TryAgain, "{command:?}");
    }
    let shard = &mut world.shards[place.shard];
    let large = LargeSet {
        key,
        hash: shard.hash_of(place.database, &Command::Get { key }),
        value_bytes: 1,
        condition: always,
        expiry: Expiry::Never,
        get: true,
    };
    let mut upload = shard.begin_upload(large, world.now).unwrap();
    shard.upload(&mut upload, b"1").unwrap();
    let Outcome::Reply(reply) = shard.finish_upload(upload, world.now) else { panic!() };
    assert_eq!(reply.status, Status::TryAgain);
}

#[test]
fn a_record_that_goes_to_another_shard_does_not_change_meanwhile() {
    for key in [&b"string"[..], b"ask-only", b"hash"] {
        let mut world = World::new(32 << 20);
        let (from, to) = (at(0, 3, key), at(1, 3, b"to"));
        let value = vec![b'7'; if key == b"ask-only" { 200_000 } else { 3 }];
        match key {
            b"hash" => world.hash(from, 3),
            _ => assert_eq!(world.set(from, &value), Status::Ok),
        }
        if key == b"ask-only" {
            assert_eq!(world.of(from, &Command::Append { key, value: b"!" }).0, Status::Ok);
            assert_eq!(world.shards[0].stats().ask_only, 1);
        }
        let digest = world.digest(from);
        world.set(at(0, 3, b"other"), b"");
        let mut asked = Vec::new();
        let mut ask = |shard: usize, on: Database, command: &Command<'_>| {
            asked.push(format!("{command:?}").split(' ').next().unwrap().to_owned());
            if !matches!(command, Command::Dump { .. }) {
                every_change_is_refused(&mut world, from);
                assert_eq!(world.digest(from), digest, "it can be read");
                let copy = Command::Dump { key, holds: false };
                assert_eq!(world.of(from, &copy).0, Status::Ok);
            }
            world.ask(shard, on, command)
        };
        assert_eq!(give(&mut ask, from, to, RENAME), (Status::Ok, 1));
        assert_eq!(asked, ["Dump", "Restore", "DelDumped"]);
        assert_eq!((world.digest(to), world.exists(from)), (digest, false));
        assert_eq!(world.set(from, b"1"), Status::Ok, "it is free again");
        // A command that is not done changes nothing, and holds nothing.
        world.set(to, b"2");
        assert_eq!(world.give(from, to, RENAME_NX), (Status::Ok, 0));
        assert_eq!(world.give(from, to, COPY), (Status::Ok, 0));
        assert_eq!(world.give(from, to, COPY_REPLACE), (Status::Ok, 1));
        assert_eq!(world.set(from, b"3"), Status::Ok);
        world.audit();
    }
}

/// A client adds to a counter as often as it can while that goes from key to key of
/// another shard: each addition that was answered is somewhere.
#[test]
fn no_answered_change_of_a_record_that_goes_to_another_shard_is_lost() {
    let mut world = World::new(32 << 20);
    let from = at(0, 0, b"counter");
    let (mut answered, mut refused, mut sum) = (0, 0, 0);
    let add = Command::Incr { key: b"counter", by: 1 };
    for round in 0..50 {
        let name = format!("gone {round}");
        let to = at(1, 0, name.as_bytes());
        assert_eq!(world.of(from, &add).0, Status::Ok);
        answered += 1;
        let mut ask = |shard: usize, on: Database, command: &Command<'_>| {
            let mut add = || match world.of(from, &add).0 {
                Status::Ok => answered += 1,
                status => {
                    assert_eq!(status, Status::TryAgain);
                    refused += 1;
                }
            };
            add();
            add();
            world.ask(shard, on, command)
        };
        assert_eq!(give(&mut ask, from, to, RENAME), (Status::Ok, 1));
        assert!(!world.exists(from));
        let text = String::from_utf8(world.get(to).unwrap()).unwrap();
        sum += text.parse::<i32>().unwrap();
    }
    assert_eq!(sum, answered);
    assert!(refused > 0);
}

/// A record that is ask-only when it is dumped is whole again before it is removed: it
/// is held as before, and free once it has gone by itself.
#[test]
fn a_held_record_may_be_published_again() {
    for is_flushed in [false, true] {
        let mut world = World::new(4 << 20);
        let (from, to) = (at(0, 0, b"k"), at(1, 0, b"to"));
        world.set(from, &[1; 200_000]);
        let append = Command::Append { key: b"k", value: b"!" };
        assert_eq!(world.of(from, &append).0, Status::Ok);
        let mut ask = |shard: usize, on: Database, command: &Command<'_>| {
            if matches!(command, Command::DelDumped { .. }) {
                assert_eq!(world.shards[0].stats().ask_only, 1);
                world.tick(REPUBLISH_AFTER_S + 2);
                assert_eq!(world.shards[0].stats().ask_only, 0);
                assert_eq!(world.set(from, b""), Status::TryAgain);
                if is_flushed {
                    world.of(from, &Command::Flush);
                    assert_eq!(world.set(from, b"new"), Status::Ok);
                }
            }
            world.ask(shard, on, command)
        };
        assert_eq!(give(&mut ask, from, to, RENAME), (Status::Ok, 1));
        assert_eq!(world.get(to).unwrap().len(), 200_001);
        assert_eq!(world.get(from).as_deref(), is_flushed.then_some(&b"new"[..]));
        world.audit();
    }
}

/// Room is made by moving held records: as above.
#[test]
fn a_held_record_may_be_moved_to_another_slot() {
    let mut world = World::new(4 << 20);
    let name = |number: usize| format!("key {number}").into_bytes();
    let count =
        (0..).find(|&number| world.set(at(0, 0, &name(number)), &[2; 500]) == Status::OutOfMemory);
    let (count, mut held) = (count.unwrap(), Vec::new());
    for number in 0..count {
        let (key, place) = (name(number), at(0, 0, b""));
        match number % 16 {
            0 => {
                let dump = Command::Dump { key: &key, holds: true };
                let bytes = world.of(KeyRef { key: &key, ..place }, &dump).2.unwrap();
                held.push((number, Dumped::parse(&bytes).unwrap().dump));
            }
            _ => assert_eq!(world.of(place, &Command::Del { key: &key }).1, 1),
        }
    }
    let moved = world.shards[0].stats().moved;
    assert_eq!(world.set(at(0, 0, b"large"), &vec![3; 2 << 20]), Status::Ok);
    assert!(world.shards[0].stats().moved > moved + 10, "records were moved");
    let gone = held.split_off(held.len() / 2);
    for (number, dump) in held {
        let key = name(number);
        let place = at(0, 0, &key);
        assert_eq!(world.set(place, b""), Status::TryAgain);
        assert_eq!(world.of(place, &Command::DelDumped { key: &key, dump }).1, 1);
    }
    world.of(at(0, 0, b""), &Command::Flush);
    for (number, dump) in gone {
        let key = name(number);
        let place = at(0, 0, &key);
        assert_eq!(world.set(place, b"new"), Status::Ok);
        assert_eq!(world.of(place, &Command::DelDumped { key: &key, dump }).1, 0);
        assert_eq!(world.get(place).unwrap(), b"new");
    }
    world.audit();
}

#[test]
fn so_many_records_are_held_at_a_time_and_no_more() {
    let mut world = World::new(32 << 20);
    let name = |number: usize| format!("k{number}").into_bytes();
    for number in 0..=MAX_HELD_RECORDS {
        let key = name(number);
        world.set(at(0, 0, &key), b"v");
        let status = world.of(at(0, 0, &key), &Command::Dump { key: &key, holds: true }).0;
        let is_full = number == MAX_HELD_RECORDS;
        assert_eq!(status, if is_full { Status::TryAgain } else { Status::Ok });
    }
    // Objects of parts have places of their own, and continue.
    world.hash(at(0, 0, b"hash"), 500);
    assert_eq!(world.give(at(0, 0, b"hash"), at(1, 0, b"to"), RENAME), (Status::Ok, 1));
    world.tick(UPLOAD_IDLE_S + 2);
    assert_eq!(world.set(at(0, 0, b"k7"), b""), Status::Ok, "nothing is held for ever");
}

/// The source of a RENAME is removed by itself once the other key has the value.
#[test]
fn a_source_that_is_gone_before_it_is_removed_is_no_failure() {
    for goes in ["flushed", "expired"] {
        let mut world = World::new(32 << 20);
        let (from, to) = (at(0, 1, b"from"), at(1, 2, b"to"));
        world.set(from, b"new");
        world.set(to, b"old");
        let (key, at_ms) = (b"from", NOW.unix_ms + 10);
        world.of(from, &Command::Expire { key, at_ms, condition: ExpireCondition::Always });
        let mut ask = |shard: usize, on: Database, command: &Command<'_>| {
            match (command, goes) {
                (Command::DelDumped { .. }, "flushed") => {
                    world.of(from, &Command::Flush);
                    // Another key of that name is another key.
                    assert_eq!(world.set(from, b"newer"), Status::Ok);
                }
                (Command::DelDumped { .. }, _) => world.now.unix_ms += 10,
                _ => {}
            }
            world.ask(shard, on, command)
        };
        assert_eq!(give(&mut ask, from, to, RENAME), (Status::Ok, 1));
        let [at_from, at_to] = [from, to].map(|place| world.get(place));
        match goes {
            "flushed" => {
                assert_eq!((at_from.unwrap(), at_to.unwrap()), (b"newer".into(), b"new".into()))
            }
            _ => assert_eq!((at_from, at_to), (None, None)),
        }
        world.audit();
    }
}

#[test]
fn a_record_that_does_not_fit_leaves_all_as_it_was() {
    let mut world = World::new(4 << 20);
    let (from, to) = (at(0, 0, b"from"), at(1, 0, b"to"));
    world.set(from, &[1; 1 << 20]);
    world.set(to, b"old");
    let mut number = 0;
    while world.set(at(1, 0, format!("filler {number}").as_bytes()), &[2; 60_000]) == Status::Ok {
        number += 1;
    }
    assert_eq!(world.give(from, to, RENAME), (Status::OutOfMemory, 0));
    assert_eq!((world.get(from).unwrap().len(), world.get(to).unwrap()), (1 << 20, b"old".into()));
    assert_eq!(world.of(from, &Command::Append { key: b"from", value: b"!" }).0, Status::Ok);
}

/// The server stops before the last step for so long that the dump ends: later changes stay at the
/// key where they were made.
#[test]
fn what_is_changed_once_a_dump_has_ended_is_not_removed() {
    for key in
        [&b"string"[..], b"hash", b"sorted", b"tree", b"list", b"set", b"ordered", b"documents"]
    {
        for shard in [0, 1] {
            if (key, shard) == (b"string", 0) {
                // It goes in one turn.
                continue;
            }
            let mut world = World::new(32 << 20);
            let (from, to) = (at(0, 0, key), at(shard, 5, b"to"));
            match key {
                b"string" => drop(world.set(from, b"7")),
                _ => world.make(from, 1_500),
            }
            let (digest, mut changed) = (world.digest(from), None);
            let mut ask = |at: usize, on: Database, command: &Command<'_>| {
                let is_last = match command {
                    Command::Load { step: LoadStep::Enter { .. }, .. } => shard == 0,
                    command => matches!(command, Command::DelDumped { .. }),
                };
                if is_last {
                    let load = if let Command::Load { load, .. } = *command { load } else { 0 };
                    for _ in 0..UPLOAD_IDLE_S + 2 {
                        world.tick(1);
                        // The load is under way, or has been asked for.
                        let piece = LoadStep::Piece(&[]);
                        world.of(to, &Command::Load { key: b"to", load, step: piece });
                    }
                    let status = match key {
                        b"string" => world.of(from, &Command::Incr { key, by: 1 }).0,
                        _ => world.change(from),
                    };
                    assert_eq!(status, Status::Ok);
                    changed = world.digest(from);
                    // Another move of it has begun meanwhile.
                    let dump = Command::Dump { key, holds: true };
                    assert!(matches!(world.of(from, &dump).0, Status::Ok | Status::InPieces));
                }
                world.ask(at, on, command)
            };
            let given = give(&mut ask, from, to, RENAME);
            assert_ne!(changed, digest);
            assert_eq!(world.digest(from), changed, "{key:?} {shard}");
            match shard {
                // Beside the new key, which has the value.
                1 => assert_eq!((given, world.digest(to)), ((Status::Ok, 1), digest)),
                _ => assert_eq!((given, world.exists(to)), ((Status::NotFound, 0), false)),
            }
            world.tick(UPLOAD_IDLE_S + 2);
            world.audit();
        }
    }
}

/// A large hash is renamed to a key that is on its way itself: nothing is left of it.
#[test]
fn a_load_that_may_not_enter_is_given_up_at_once() {
    for shard in [0, 1] {
        let mut world = World::new(32 << 20);
        let (from, to) = (at(0, 0, b"hash"), at(shard, 0, b"to"));
        world.hash(from, 1_000);
        world.hash(to, 1_000);
        let (before, digests) = (world.used_bytes(), [world.digest(from), world.digest(to)]);
        let (_, _, bytes) = world.of(to, &Command::Dump { key: b"to", holds: true });
        let other = Dumped::parse(bytes.as_deref().unwrap()).unwrap().dump;
        for _ in 0..2 * MAX_MOVES {
            assert_eq!(world.give(from, to, RENAME), (Status::TryAgain, 0));
        }
        assert_eq!(world.used_bytes(), before);
        assert_eq!([world.digest(from), world.digest(to)], digests);
        assert_eq!(world.change(from), Status::Ok, "it may change");
        world.of(to, &Command::EndDump { key: b"to", dump: other });
        assert_eq!(world.give(from, to, RENAME), (Status::Ok, 1));
        world.audit();
    }
}

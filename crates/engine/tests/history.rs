//! Random histories of all types in some shards, with expiry, eviction, flushes and moves of keys,
//! and what their logs say.

use crate::give::{Answer, How, KeyRef, give_some};
use crate::scored;
use remora_arena::{NoJournal, Owner};
use remora_engine::{
    Applied, ApplyError, Digest, Durability, Eviction, LargeSet, Now, Origin, Outcome, Shard,
    ShardOptions, Tried, WaitFor,
};
use remora_geometry::{Shape, Wkb};
use remora_layout::btree::KeyForm;
use remora_layout::database::Database;
use remora_layout::limits::STAGE_IDLE_S;
use remora_layout::packed::Field;
use remora_layout::rect::Rect;
use remora_layout::slot::{SLOTS, slot_of};
use remora_log::{Assembler, Cursor, Frames, OwnedEntry};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::geo::Shape::Circle;
use remora_protocol::geo::{Centre, GeoQuery, GeoSearch, Position};
use remora_protocol::hash::HashCommand;
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedSettings};
use remora_protocol::set::SetCommand;
use remora_protocol::sorted::{Comparison, Scored, SortedCommand, SortedRange, When};
use remora_protocol::tree::{Fields, ObjectId, Objects, PutObject, TreeCommand, TreeSettings};
use remora_protocol::{Claim, Command, Condition, ExpireCondition, Expiry, Items, Pairs};
use remora_testing::Random;

pub const START: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
pub const SECRET: u64 = 0x10c_5ec2e7;

fn rect(random: &mut Random) -> Rect {
    let [x_min, x_max, y_min, y_max] = random.rectangle(1_000, 9);
    Rect::new(x_min, x_max, y_min, y_max).unwrap()
}

pub fn shard(number: u32, bytes: usize, eviction: Eviction) -> Shard {
    shard_of(number, bytes, eviction, Durability::Memory)
}

fn shard_of(number: u32, bytes: usize, eviction: Eviction, durability: Durability) -> Shard {
    let options = ShardOptions {
        durability,
        region: number,
        record_secret: 7 + u64::from(number),
        hash_seed: 3,
        eviction,
        log_secret: SECRET,
        log_shard: number,
        ..ShardOptions::default()
    };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

/// Which of so many shards has a key, as in `SlotTable::even`.
pub fn home(key: &[u8], shards: usize) -> usize {
    usize::from(slot_of(key)) * shards / SLOTS
}

pub fn digest_of(shards: &[Shard]) -> Digest {
    shards.iter().fold(Digest::default(), |sum, shard| sum.with(shard.digest()))
}

/// The shards that a history changes, and all that their logs said.
pub struct Source {
    pub shards: Vec<Shard>,
    pub cursors: Vec<Cursor>,
    pub logs: Vec<Vec<u8>>,
    pub now: Now,
    pub random: Random,
    large: bool,
    loads: u64,
    /// Records that were changed in place last.
    pub ask_only: u64,
    /// Keys that were given to others, and pieces that were dumped.
    pub given: u64,
    pub pieces: u64,
    /// Requests that waited for a list, and those of them that a later command served.
    pub waited: u64,
    pub served: u64,
    /// Called after each command, and each step of giving a key.
    pub hook: Option<Hook>,
}

/// Gets the number of a shard, the shard, and the time.
pub type Hook = Box<dyn FnMut(usize, &mut Shard, Now)>;

impl Source {
    pub fn new(seed: u64, shards: usize, eviction: Eviction) -> Self {
        Self::with_durability(seed, shards, eviction, Durability::Memory)
    }

    pub fn with_durability(
        seed: u64,
        shards: usize,
        eviction: Eviction,
        durability: Durability,
    ) -> Self {
        let bytes = if eviction == Eviction::None { 24 << 20 } else { 1 << 20 };
        let made = |at| shard_of(at, bytes, eviction, durability);
        let shards: Vec<Shard> = (0..shards as u32).map(made).collect();
        Self {
            cursors: shards.iter().map(|shard| shard.log().oldest_cursor()).collect(),
            logs: vec![Vec::new(); shards.len()],
            shards,
            now: START,
            random: Random::new(seed * 2 + 1),
            large: eviction == Eviction::None,
            loads: 0,
            ask_only: 0,
            given: 0,
            pieces: 0,
            waited: 0,
            served: 0,
            hook: None,
        }
    }

    fn ask(&mut self, command: &Command<'_>) -> (Status, i64) {
        let at = command.key().map_or(0, |key| home(key, self.shards.len()));
        self.ask_shard(at, command)
    }

    fn ask_shard(&mut self, at: usize, command: &Command<'_>) -> (Status, i64) {
        let database = Database::new(if self.random.one_in(6) { 3 } else { 0 }).unwrap();
        let hash = self.shards[at].hash_of(database, command);
        let reply = self.shards[at].execute(command, hash, self.now);
        let answer = (reply.status, reply.number);
        self.drain(at);
        answer
    }

    /// A step of giving a key to another one. Other things happen meanwhile.
    fn ask_within(&mut self, at: usize, database: Database, command: &Command<'_>) -> Answer {
        match self.random.below(12) {
            0 if self.random.one_in(2) => self.hash(),
            0 => self.members(),
            1 => self.tree(),
            2 => self.sorted(),
            5 => self.list(),
            3 => self.time_passes(),
            4 if self.random.one_in(20) => self.flush(),
            _ => {}
        }
        let hash = self.shards[at].hash_of(database, command);
        let reply = self.shards[at].execute(command, hash, self.now);
        let answer = (reply.status, reply.number, reply.value.map(<[u8]>::to_vec));
        self.drain(at);
        answer
    }

    /// RENAME, COPY or MOVE; some of them stop before their end.
    fn give(&mut self) {
        let kinds = [self.random.below(6), self.random.below(6)];
        let [key, other] =
            kinds.map(|kind| self.key(["s", "g", "t", "h", "m", "d"][kind as usize]));
        let other = if self.random.one_in(2) { other } else { [&key[..], b"+"].concat() };
        let how = How { replaces: self.random.one_in(2), keeps: self.random.one_in(2) };
        let on = |random: &mut Random| Database::new(3 * random.one_in(6) as usize).unwrap();
        let (from_on, to_on) = (on(&mut self.random), on(&mut self.random));
        let shards = self.shards.len();
        let place = |key, database| KeyRef { shard: home(key, shards), database, key };
        let (from, to) = (place(&key[..], from_on), place(&other[..], to_on));
        if key == other && from_on == to_on {
            return;
        }
        let most = if self.random.one_in(8) { self.random.below(3) as usize } else { usize::MAX };
        let mut pieces = 0;
        let mut ask = |at: usize, on: Database, command: &Command<'_>| {
            pieces += matches!(command, Command::DumpPart { .. }) as u64;
            self.ask_within(at, on, command)
        };
        let given = give_some(&mut ask, from, to, how, most);
        self.given += (given == (Status::Ok, 1)) as u64;
        self.pieces += pieces;
    }

    pub fn drain(&mut self, at: usize) {
        while self.shards[at].pop_served().is_some() {
            self.served += 1;
        }
        let log = self.shards[at].log();
        log.read(&mut self.cursors[at], usize::MAX, &mut self.logs[at]).expect("read at once");
        if let Some(hook) = &mut self.hook {
            hook(at, &mut self.shards[at], self.now);
            let log = self.shards[at].log();
            log.read(&mut self.cursors[at], usize::MAX, &mut self.logs[at]).expect("read at once");
        }
    }

    fn key(&mut self, of: &str) -> Vec<u8> {
        format!("{of}{}", self.random.below(if self.large { 40 } else { 400 })).into_bytes()
    }

    /// Mostly of one type's keys; sometimes one that any type may have.
    fn key_or_other(&mut self, of: &str) -> Vec<u8> {
        let of = if self.random.one_in(30) { "x" } else { of };
        self.key(of)
    }

    fn at_ms(&mut self) -> u64 {
        self.now.unix_ms - 500 + self.random.below(20_000)
    }

    pub fn run(&mut self, steps: usize) {
        for left in (0..steps).rev() {
            match self.random.below(20) {
                0..=8 => self.string(),
                9..=11 => self.sorted(),
                12..=14 => self.tree(),
                15 if self.random.one_in(2) => self.list(),
                15 => self.hash(),
                16 if self.random.one_in(2) => self.ordered(),
                16 if self.random.one_in(2) => self.documents(),
                16 => self.members(),
                17 if self.random.one_in(2) => self.give(),
                17 => self.any_key(),
                18 => self.pairs(),
                19 if left > 300 && self.random.one_in(12) => self.flush(),
                _ => self.time_passes(),
            }
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.below(16) {
            0 if self.large => self.random.bytes_up_to(200_000),
            1 => self.random.bytes_up_to(5_000),
            2..=4 => self.random.below(1000).to_string().into_bytes(),
            _ => self.random.bytes_up_to(60),
        }
    }

    fn string(&mut self) {
        let key = &self.key_or_other("s")[..];
        let value = &self.value()[..];
        let at_ms = self.at_ms();
        let pick = |random: &mut Random| match random.below(4) {
            0 => Expiry::Keep,
            1 => Expiry::At(at_ms),
            _ => Expiry::Never,
        };
        let expiry = pick(&mut self.random);
        let condition = match self.random.below(4) {
            0 => Condition::IfAbsent,
            1 => Condition::IfPresent,
            _ => Condition::Always,
        };
        let offset = self.random.below(if self.large { 90_000 } else { 900 });
        let command = match self.random.below(12) {
            0..=3 => {
                let get = self.random.one_in(3);
                if value.len() > 30_000 {
                    return self.upload(key, value, condition, expiry);
                }
                Command::Set { key, value, condition, expiry, get }
            }
            4 => Command::Incr { key, by: self.random.below(100) as i64 - 50 },
            5 | 6 => Command::Append { key, value },
            7 => Command::SetRange { key, offset, value },
            8 => Command::SetBit { key, offset: offset as u32, bit: self.random.one_in(2) },
            9 => Command::GetDel { key },
            10 => Command::GetEx { key, at_ms: self.random.one_in(2).then_some(at_ms) },
            _ => Command::Get { key },
        };
        self.ask(&command);
    }

    /// A SET in pieces.
    fn upload(&mut self, key: &[u8], value: &[u8], condition: Condition, expiry: Expiry) {
        let at = home(key, self.shards.len());
        let shard = &mut self.shards[at];
        let hash = shard.hash(key);
        let value_bytes = value.len();
        let set = LargeSet { key, hash, value_bytes, condition, expiry, get: false };
        if let Ok(mut upload) = shard.begin_upload(set, self.now) {
            value.chunks(9_999).for_each(|piece| shard.upload(&mut upload, piece).unwrap());
            let Outcome::Reply(_) = shard.finish_upload(upload, self.now) else { panic!() };
        }
        self.drain(at);
    }

    fn pairs(&mut self) {
        let mut lists = vec![Vec::new(); self.shards.len()];
        for _ in 0..1 + self.random.below(6) {
            let (key, value) = (self.key("s"), self.random.bytes_up_to(50));
            Pairs::push(&mut lists[home(&key, self.shards.len())], &key, &value);
        }
        for (at, list) in lists.iter().enumerate().filter(|(_, list)| !list.is_empty()) {
            let pairs = Pairs::parse(list).unwrap();
            self.ask_shard(at, &Command::MultiSet { pairs });
        }
    }

    /// Members of a sorted set: at positions, mostly.
    fn scored(&mut self, most: u64) -> Vec<u8> {
        let (mut list, random) = (Vec::new(), &mut self.random);
        for _ in 0..random.below(most) {
            let (east, north) = (random.below(3600) as f64, random.below(1600) as f64);
            let position = Position::new(east / 10.0 - 180.0, north / 10.0 - 80.0).unwrap();
            let score = match random.below(5) {
                0 => random.below(9) as f64 - 4.0,
                1 => [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY][random.below(4) as usize],
                _ => position.score(),
            };
            let repeated = if random.one_in(150) { 90 } else { 1 };
            let member = format!("m{}", random.below(most * 2)).repeat(repeated);
            Scored::push(&mut list, score, member.as_bytes());
        }
        list
    }

    fn when(&mut self) -> When {
        let any = Comparison::Any;
        let comparison = [any, any, any, Comparison::Greater, Comparison::Less];
        let comparison = comparison[self.random.below(5) as usize];
        match self.random.below(5) {
            0 => When { condition: Condition::IfAbsent, comparison: any },
            1 => When { condition: Condition::IfPresent, comparison },
            _ => When { condition: Condition::Always, comparison },
        }
    }

    /// One change of a sorted set, or a search that lets it get places.
    fn sorted(&mut self) {
        let key = &self.key_or_other("g")[..];
        let mut list = if self.random.one_in(4) { self.scored(250) } else { self.scored(6) };
        if list.is_empty() {
            Scored::push(&mut list, 1.0, b"one");
        }
        let (names, when) = (scored::names(&list), self.when());
        let (members, random) = (Scored::parse(&list).unwrap(), &mut self.random);
        let (by, member) = members.iter().next().unwrap();
        let start = random.below(60) as i64 - 20;
        let mut query = Vec::new();
        let centre = Centre::At(Position::new(0.0, 0.0).unwrap());
        GeoSearch { centre, shape: Circle { radius: 1e6 }, enough: 0 }.write(&mut query);
        let command = match random.below(24) {
            0 | 1 => scored::store(&list),
            2..=5 => scored::remove(&names),
            6 | 7 => SortedCommand::Increment { when, by, member },
            8 => SortedCommand::Pop { count: random.below(9), from_greatest: random.one_in(2) },
            9 => {
                let range = SortedRange::Index { start, stop: start + 9 };
                SortedCommand::RemoveRange { range }
            }
            10 => SortedCommand::Search { query: GeoQuery::parse(&query).unwrap() },
            _ => SortedCommand::Add { when, counts_changed: false, members },
        };
        self.ask(&Command::Of { key, request: command.request() });
    }

    fn hash(&mut self) {
        let key = &self.key_or_other("h")[..];
        let mut list = Vec::new();
        let mut names = Vec::new();
        let most = if self.random.one_in(3) { 100 } else { 4 };
        for _ in 0..1 + self.random.below(most) {
            let name = format!("f{}", self.random.below(200)).into_bytes();
            Items::push(&mut names, &name);
            Items::push(&mut list, &name);
            let value = self.random.bytes_up_to(80);
            let is_link = value.len() % 4 == 1;
            Items::push_field(&mut list, Field { value: &value, is_link });
        }
        let (pairs, names) = (Items::parse(&list).unwrap(), Items::parse(&names).unwrap());
        let name = b"count";
        let command = match self.random.below(7) {
            0..=2 => HashCommand::Set { pairs },
            3 | 4 => HashCommand::Remove { names },
            5 => HashCommand::Increment { name, by: 3 },
            _ => {
                let list: &mut Vec<u8> = &mut Vec::new();
                Items::push(list, b"fraction");
                Items::push(list, b"0.1");
                let name_and_by = Items::parse(list).unwrap();
                let request = HashCommand::IncrementFloat { name_and_by }.request();
                self.ask(&Command::Of { key, request });
                return;
            }
        };
        self.ask(&Command::Of { key, request: command.request() });
    }

    /// A request that takes an element of a list, now or once there is one.
    fn wait(&mut self, key: &[u8], command: &ListCommand<'_>) {
        let at = home(key, self.shards.len());
        let mut bytes = Vec::new();
        let command = Command::Of { key, request: command.request() };
        command.encode_within(Database::ZERO, 0, &mut bytes);
        let (name, commands) = ([0, 0, 0, self.waited], vec![bytes.into_boxed_slice()]);
        let wait = WaitFor { name, claim: Claim::default(), commands };
        self.waited += (self.shards[at].wait_for(wait, self.now) == Tried::Waits) as u64;
        self.drain(at);
    }

    fn list(&mut self) {
        let key = &self.key_or_other("l")[..];
        let other = &self.key("l")[..];
        let [own, its] = [key, other].map(|key| home(key, self.shards.len()));
        let other = if own == its { other } else { key };
        let random = &mut self.random;
        let value = match random.below(20) {
            0 => random.bytes_up_to(3_000),
            _ => random.below(300).to_string().into_bytes(),
        };
        let mut list = Vec::new();
        let most = if random.one_in(3) { 120 } else { 4 };
        for _ in 0..1 + random.below(most) {
            Items::push(&mut list, &random.below(300).to_string().into_bytes());
        }
        Items::push(&mut list, &value);
        let items = Items::parse(&list).unwrap();
        let mut marked = Vec::new();
        for element in items.iter().flatten() {
            let is_link = element.len() % 3 == 1;
            Items::push_field(&mut marked, Field { value: element, is_link });
        }
        let marked = Items::parse(&marked).unwrap();
        let mut two = Vec::new();
        items.iter().flatten().chain([&value[..]]).take(2).for_each(|of| Items::push(&mut two, of));
        let pivot_and_value = Items::parse(&two).unwrap();
        let [side, to] = [0, 1].map(|_| if random.one_in(2) { Side::Left } else { Side::Right });
        let (index, value) = (random.below(90) as i64 - 45, &value[..]);
        let command = match random.below(15) {
            14 => ListCommand::Store { items },
            0..=4 => ListCommand::Push { side, if_there: random.one_in(6), items: marked },
            5..=7 => {
                let count = random.below(if most > 4 { 60 } else { 4 });
                ListCommand::Pop { side, count, fits_frame: random.one_in(2) }
            }
            8 => ListCommand::SetAt { index, value },
            9 => ListCommand::Insert { after: random.one_in(2), pivot_and_value },
            10 => ListCommand::Remove { count: index / 20, value },
            11 => ListCommand::Trim {
                start: random.below(9) as i64,
                stop: -1 - random.below(9) as i64,
            },
            _ => ListCommand::Move { from: side, to, other },
        };
        let waits = matches!(command, ListCommand::Pop { .. } | ListCommand::Move { .. });
        match waits && self.random.one_in(2) {
            true => self.wait(key, &command),
            false => _ = self.ask(&Command::Of { key, request: command.request() }),
        }
    }

    /// One change of a set.
    pub fn members(&mut self) {
        let key = &self.key_or_other("m")[..];
        let mut list = Vec::new();
        let (most, is_text) = (if self.random.one_in(3) { 300 } else { 4 }, self.random.one_in(2));
        for _ in 0..1 + self.random.below(most) {
            let number = self.random.below(900).to_string();
            let member = match self.random.below(20) {
                0 => number.repeat(30),
                _ if is_text => format!("m{number}"),
                _ => number,
            };
            Items::push(&mut list, member.as_bytes());
        }
        let members = Items::parse(&list).unwrap();
        let to = self.key("m");
        let mut to_and_member = Vec::new();
        Items::push(&mut to_and_member, &to);
        Items::push(&mut to_and_member, members.iter().next().flatten().unwrap());
        let command = match self.random.below(9) {
            0..=4 => SetCommand::Add { members },
            5 => SetCommand::Remove { members },
            6 => SetCommand::Pop { count: self.random.below(40) },
            7 if home(key, self.shards.len()) == home(&to, self.shards.len()) => {
                SetCommand::Move { to_and_member: Items::parse(&to_and_member).unwrap() }
            }
            _ => SetCommand::Store { members },
        };
        self.ask(&Command::Of { key, request: command.request() });
    }

    fn ordered(&mut self) {
        let key = &self.key_or_other("o")[..];
        let number = self.random.below(300);
        let tree_key = format!("{} {number}", number % 9);
        let tree_key = tree_key.as_bytes();
        // Some lie in records.
        let most = if self.random.one_in(5) { 600 } else { 70 };
        let value = self.random.bytes_up_to(most);
        let command = match self.random.below(12) {
            0 => OrderedCommand::Create(OrderedSettings {
                fan_out: 5,
                ..OrderedSettings::of(KeyForm::Bytes)
            }),
            1..=3 => OrderedCommand::Delete { key: tree_key },
            _ => {
                let value = Field { value: &value, is_link: self.random.one_in(6) };
                OrderedCommand::Set { key: tree_key, value }
            }
        };
        self.ask(&Command::Of { key, request: command.request() });
    }

    /// One change of a collection: documents come, change and go, and indexes of them.
    fn documents(&mut self) {
        let key = &self.key_or_other("d")[..];
        let (random, mut bytes, mut list) = (&mut self.random, Vec::new(), Vec::new());
        for _ in 0..1 + random.below(6) {
            let text = "x".repeat(random.below(200) as usize);
            let of = bson::doc! { "_id": random.below(60), "a": random.below(20), "b": [1, text] };
            Items::push(&mut list, &of.to_vec().unwrap());
        }
        let documents = Items::parse(&list).unwrap();
        let mut request = |of: bson::Document| bytes = of.to_vec().unwrap();
        let is_multi = random.one_in(2);
        let command = match random.below(10) {
            0 => {
                request(bson::doc! { "validator": { "a": { "$gte": random.below(3) } } });
                CollectionCommand::Create { options: &bytes }
            }
            1 => {
                let field = random.pick(&["a", "b", "_id"]);
                let spec = bson::doc! { "key": { field: -1 }, "name": field };
                request(bson::doc! { "spec": spec });
                CollectionCommand::CreateIndex { request: &bytes }
            }
            2 if random.one_in(3) => CollectionCommand::DropIndex { name: b"a" },
            3 => {
                let above = random.below(20);
                request(bson::doc! { "q": { "a": { "$gt": above } }, "multi": is_multi });
                CollectionCommand::Write { request: &bytes }
            }
            4 | 5 => {
                let update = bson::doc! { "$inc": { "a": 1 }, "$push": { "b": 2 } };
                let q = bson::doc! { "a": random.below(20) };
                let id = 100 + random.below(9);
                request(
                    bson::doc! { "q": q, "u": update, "multi": is_multi, "upsert": true, "_id": id },
                );
                CollectionCommand::Write { request: &bytes }
            }
            6 => CollectionCommand::Put { documents },
            _ => CollectionCommand::Insert { documents, ordered: is_multi },
        };
        self.ask(&Command::Of { key, request: command.request() });
    }

    fn tree(&mut self) {
        let key = self.key_or_other("t");
        if self.random.one_in(12) {
            return self.load(&key);
        }
        let id = self.random.below(60);
        let name = format!("n{id}");
        let name = if self.random.one_in(3) { ObjectId::from(&name[..]) } else { id.into() };
        let at_ms = self.at_ms();
        let expiry = match self.random.below(6) {
            0 => Expiry::At(at_ms),
            1 => Expiry::Never,
            _ => Expiry::Keep,
        };
        let texts = [self.random.bytes_up_to(9), self.random.bytes_up_to(9)];
        let fields = Fields::encode([(&b"a"[..], &texts[0][..]), (b"b", &texts[1])]);
        let fields = Fields::parse(fields.as_ref().unwrap()).unwrap();
        let rect = rect(&mut self.random);
        let wkb = Shape::from_wkb(&point_wkb(&rect)).unwrap().to_wkb();
        let data = self.random.bytes_up_to(90);
        let data = (!id.is_multiple_of(3)).then_some(&data[..]);
        let command = match self.random.below(10) {
            0 => TreeCommand::Create(TreeSettings::default()),
            1 | 2 => TreeCommand::Remove { id: name },
            3 if self.random.one_in(6) => TreeCommand::Drop,
            4 | 5 => {
                let rect = Rect::point(rect.min_x, rect.min_y).unwrap();
                let geometry = Some(Wkb::known(&wkb, rect));
                TreeCommand::Put(PutObject { data, geometry, expiry, ..PutObject::new(name, rect) })
            }
            6 => TreeCommand::SetFields { id: name, fields },
            7 => {
                let fields = Some(fields);
                TreeCommand::Put(PutObject { data, fields, expiry, ..PutObject::new(name, rect) })
            }
            _ => TreeCommand::Put(PutObject { data, expiry, ..PutObject::new(name, rect) }),
        };
        self.tree_command(&key, &command);
    }

    fn tree_command(&mut self, key: &[u8], command: &TreeCommand<'_>) -> (Status, i64) {
        let request = command.checked().map(TreeCommand::request).unwrap();
        self.ask(&Command::Of { key, request })
    }

    /// A tree that is built of staged objects, or is not in the end.
    fn load(&mut self, key: &[u8]) {
        self.loads += 1;
        let load = self.loads;
        self.tree_command(key, &TreeCommand::Create(TreeSettings::default()));
        let pieces = 1 + self.random.below(3);
        for piece in 0..pieces {
            let mut list = Vec::new();
            let many = self.random.below(if self.large { 3000 } else { 50 });
            for id in 0..many {
                Objects::push(&mut list, 10_000 * piece + id, &rect(&mut self.random));
            }
            let objects = Objects::parse(&list).unwrap();
            self.tree_command(key, &TreeCommand::Stage { load, first: piece == 0, objects });
        }
        match self.random.below(4) {
            0 => {
                // It is left, and goes.
                self.wait_for_idle_stages();
            }
            1 => drop(self.tree_command(key, &TreeCommand::Build { load: load + 1 })),
            // To the end, or left before.
            of => {
                let most = if of == 2 { 2 } else { usize::MAX };
                let build = TreeCommand::Build { load };
                let steps = || self.tree_command(key, &build).0 == Status::InPieces;
                std::iter::repeat_with(steps).take(most).find(|goes_on| !goes_on);
            }
        }
    }

    pub fn wait_for_idle_stages(&mut self) {
        for _ in 0..STAGE_IDLE_S + 2 {
            self.now.since_start_s += 1;
            self.tick();
        }
        assert!(self.shards.iter().all(|shard| shard.stats().staged_bytes == 0));
    }

    fn any_key(&mut self) {
        let kind = ["s", "g", "t", "h", "m", "x"][self.random.below(6) as usize];
        let key = &self.key(kind)[..];
        let at_ms = self.at_ms();
        let condition = match self.random.below(4) {
            0 => ExpireCondition::IfNone,
            1 => ExpireCondition::IfLater,
            _ => ExpireCondition::Always,
        };
        let command = match self.random.below(4) {
            0 => Command::Del { key },
            1 => Command::Exists { key },
            _ => Command::Expire { key, at_ms, condition },
        };
        self.ask(&command);
    }

    fn flush(&mut self) {
        let at = self.random.below(self.shards.len() as u64) as usize;
        let is_all = self.random.one_in(3);
        self.ask_shard(at, if is_all { &Command::FlushAll } else { &Command::Flush });
    }

    fn time_passes(&mut self) {
        let passed = self.random.below(3_000);
        self.now.unix_ms += passed;
        self.now.since_start_s += passed / 1000;
        self.tick();
    }

    fn tick(&mut self) {
        for at in 0..self.shards.len() {
            self.shards[at].tick(self.now);
            self.drain(at);
        }
    }
}

fn point_wkb(rect: &Rect) -> Vec<u8> {
    let mut wkb = vec![1, 1, 0, 0, 0];
    wkb.extend_from_slice(&rect.min_x.to_le_bytes());
    wkb.extend_from_slice(&rect.min_y.to_le_bytes());
    wkb
}

/// The whole entries of a log's bytes, up to the first invalid frame.
pub fn entries(log: u32, bytes: &[u8]) -> Vec<OwnedEntry> {
    let mut assembler = Assembler::new(1, 100 << 20);
    let key = remora_log::LogKey::new(SECRET, log);
    let mut entries = Vec::new();
    for frame in Frames::new(bytes, key).map_while(Result::ok) {
        let entry = assembler.take(frame).expect("in order");
        entries.extend(entry.map(|entry| entry.to_owned()));
    }
    entries
}

/// Shards that apply logs.
pub struct Copy {
    pub shards: Vec<Shard>,
    logs: usize,
}

impl Copy {
    pub fn new(shards: usize, logs: usize) -> Self {
        let mut shards: Vec<Shard> =
            (0..shards as u32).map(|at| shard(100 + at, 64 << 20, Eviction::S3Fifo)).collect();
        shards.iter_mut().for_each(Shard::begin_applying);
        Self { shards, logs }
    }

    pub fn apply(&mut self, log: usize, entry: &OwnedEntry) -> Vec<Result<Applied, ApplyError>> {
        let (logs, shards) = (self.logs, self.shards.len());
        let apply = |(at, shard): (usize, &mut Shard)| {
            let takes = |key: &[u8]| home(key, logs) == log && home(key, shards) == at;
            // Its own clock is far ahead: it must expire nothing by it.
            let now = Now { unix_ms: START.unix_ms * 2, since_start_s: 9 };
            let origin = Origin { log: log as u32, takes: &takes, cut: 0 };
            shard.apply(&entry.entry(), &origin, now)
        };
        self.shards.iter_mut().enumerate().map(apply).collect()
    }

    /// Carries out an operation of a shard's snapshot.
    pub fn load(&mut self, log: usize, operation: &[u8]) -> Vec<Result<Applied, ApplyError>> {
        let (logs, shards) = (self.logs, self.shards.len());
        let load = |(at, shard): (usize, &mut Shard)| {
            let takes = |key: &[u8]| home(key, logs) == log && home(key, shards) == at;
            let now = Now { unix_ms: START.unix_ms * 2, since_start_s: 9 };
            shard.load(operation, &Origin { log: log as u32, takes: &takes, cut: 0 }, now)
        };
        self.shards.iter_mut().enumerate().map(load).collect()
    }

    /// Applies all logs, in any order between them; each entry so many times.
    pub fn apply_all(&mut self, logs: &[Vec<OwnedEntry>], times: usize, random: &mut Random) {
        let mut next = vec![0; logs.len()];
        while next.iter().zip(logs).any(|(&next, log)| next < log.len()) {
            let at = random.below(logs.len() as u64) as usize;
            let Some(entry) = logs[at].get(next[at]) else { continue };
            let done = self.apply(at, entry);
            assert!(done.iter().all(Result::is_ok), "{done:?} {}", entry.sequence);
            let is_flush = done.iter().all(|done| *done == Ok(Applied::Done));
            let somewhere = done.contains(&Ok(Applied::Done));
            assert!(somewhere && (is_flush || self.logs > 0));
            for _ in 1..times {
                let again = self.apply(at, entry);
                assert!(again.iter().all(|again| *again == Ok(Applied::Before)), "{again:?}");
            }
            next[at] += 1;
        }
        for shard in &self.shards {
            assert_eq!(shard.stats().evicted + shard.stats().expired, 0);
        }
    }

    pub fn audit(&mut self) {
        for shard in &mut self.shards {
            while shard.wants_release() {
                shard.release_some(Now { since_start_s: 1_000_000, ..START });
            }
            shard.audit().unwrap();
        }
    }
}

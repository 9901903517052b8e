//! Sorted sets against a map of members and the order of their scores: small ones in one record, large
//! ones, and their growth from one to the other; every operation, doubles of every kind, long members,
//! memory that is full at each point of a change, and the log.

use crate::scored::{self, Entry, Members, all, entries, in_order, in_range, of, quiet};
use remora_arena::{NoJournal, Owner};
use remora_engine::{Applied, Eviction, Now, Origin, Shard, ShardOptions};
use remora_layout::limits::{SORTED_CHANGE_MEMBERS, WHOLE_ITEM_BYTES, WHOLE_ITEMS};
use remora_log::{Assembler, Cursor, Frames, LogKey};
use remora_protocol::message::Status;
use remora_protocol::sorted::{Comparison, Scored, SortedCommand, SortedRange, SortedRead, When};
use remora_protocol::{Command, Condition, ExpireCondition, Expiry, Items};
use remora_testing::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

const START: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
/// Members of the first are few. Those of the second have one score. The others grow and shrink.
const KEYS: [&[u8]; 5] = [b"small", b"equal", b"grows", b"large", b"other"];
const SECRET: u64 = 0x10c;

fn shard(bytes: usize, eviction: Eviction) -> Shard {
    let options =
        ShardOptions { eviction, record_secret: 7, log_secret: SECRET, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

/// One of so many members: some do not fit a bin, or a key of the tree.
fn name(random: &mut Random, many: u64) -> Vec<u8> {
    let number = random.below(many);
    let name = format!("{number} is a member");
    let repeated = match number {
        _ if number % 31 == 3 => 8,
        _ if number % 37 == 7 => 30,
        _ => 1,
    };
    if number == 0 { Vec::new() } else { name.repeat(repeated).into_bytes() }
}

fn score(random: &mut Random) -> f64 {
    match random.below(24) {
        0 => f64::INFINITY,
        1 => f64::NEG_INFINITY,
        2 => 0.5,
        3 => 0.0,
        4 => [f64::MIN_POSITIVE, -1e308, 1e308, 5e-324][random.below(4) as usize],
        5 => random.between(-1e6, 1e6),
        6 => (random.below(1_u64 << 52)) as f64,
        _ => (random.below(40) as f64 - 20.0) / 4.0,
    }
}

fn when(random: &mut Random) -> When {
    let any = Comparison::Any;
    let comparison = [any, any, Comparison::Greater, Comparison::Less][random.below(4) as usize];
    match random.below(4) {
        0 => When { condition: Condition::IfAbsent, comparison: any },
        1 => When { condition: Condition::IfPresent, comparison },
        _ => When { condition: Condition::Always, comparison },
    }
}

/// A shard, what its keys must hold, and all that its log said.
struct World {
    shard: Shard,
    model: BTreeMap<&'static [u8], Members>,
    random: Random,
    now: Now,
    cursor: Cursor,
    log: Vec<u8>,
    refused: u64,
}

impl World {
    fn new(seed: u64, bytes: usize) -> Self {
        let shard = shard(bytes, Eviction::None);
        let (model, random) = (BTreeMap::new(), Random::new(seed));
        let cursor = shard.log().oldest_cursor();
        Self { shard, model, random, now: START, cursor, log: Vec::new(), refused: 0 }
    }

    fn of(&mut self, key: &[u8], command: SortedCommand<'_>) -> (Status, i64, Option<Vec<u8>>) {
        let answer = of(&mut self.shard, key, command, self.now);
        let log = self.shard.log();
        log.read(&mut self.cursor, usize::MAX, &mut self.log).expect("read at once");
        answer
    }

    /// An operation that changes the key: done, with this number; or refused, with nothing changed.
    /// The value.
    fn change(
        &mut self,
        key: &'static [u8],
        command: SortedCommand<'_>,
        expected: (i64, Members),
    ) -> Option<Vec<u8>> {
        let digest = self.shard.digest();
        let (status, number, value) = self.of(key, command);
        if status == Status::OutOfMemory {
            self.refused += 1;
            assert_eq!(self.shard.digest(), digest, "{command:?} is refused and leaves a trace");
            return None;
        }
        assert_eq!((status, number), (Status::Ok, expected.0), "{command:?}");
        match expected.1.is_empty() {
            true => drop(self.model.remove(key)),
            false => drop(self.model.insert(key, expected.1)),
        }
        value
    }

    fn held(&self, key: &[u8]) -> Members {
        self.model.get(key).cloned().unwrap_or_default()
    }

    /// How many names a key's members have.
    fn names_of(key: &[u8]) -> u64 {
        match key {
            b"small" => 60,
            b"grows" => 300,
            _ => 700,
        }
    }

    fn entry(&mut self, key: &[u8]) -> (f64, Vec<u8>) {
        let score = if key == b"equal" { 0.0 } else { score(&mut self.random) };
        (score, name(&mut self.random, Self::names_of(key)))
    }

    fn list(&mut self, key: &[u8], most: u64) -> Vec<u8> {
        let mut list = Vec::new();
        for _ in 0..1 + self.random.below(most) {
            let (score, member) = self.entry(key);
            Scored::push(&mut list, score, &member);
        }
        list
    }

    fn add(&mut self, key: &'static [u8]) {
        // In so little memory, no more than one change has: a command of several may end between them.
        let many =
            if self.shard.memory_bytes() < 2 << 20 { SORTED_CHANGE_MEMBERS as u64 } else { 90 };
        let most = [1, 1, 4, many][self.random.below(4) as usize];
        let (list, when) = (self.list(key, most), when(&mut self.random));
        let (mut held, before) = (self.held(key), self.held(key));
        let (mut added, mut changed) = (0, 0);
        for (new, member) in Scored::in_list(&list) {
            let old = held.get(member).copied();
            if when.permits(old, new) && old != Some(new) {
                (added, changed) = (added + old.is_none() as i64, changed + old.is_some() as i64);
                held.insert(member.to_vec(), new);
            }
        }
        // What has its former score in the end has not changed.
        for (member, score) in &mut held {
            *score = before.get(member).copied().filter(|old| old == score).unwrap_or(*score);
        }
        let counts_changed = self.random.one_in(2);
        let number = added + if counts_changed { changed } else { 0 };
        let members = Scored::parse(&list).unwrap();
        let command = SortedCommand::Add { when, counts_changed, members };
        self.change(key, command, (number, held));
    }

    fn increment(&mut self, key: &'static [u8]) {
        let ((by, member), when) = (self.entry(key), when(&mut self.random));
        let mut held = self.held(key);
        let old = held.get(&member).copied();
        let new = old.map_or(by, |old| old + by);
        let command = SortedCommand::Increment { when, by, member: &member };
        let is_stopped = !match old {
            // A sum that is no number is seen before it is compared.
            Some(_) if new.is_nan() => when.condition != Condition::IfAbsent,
            old => when.permits(old, new),
        };
        if is_stopped || new.is_nan() {
            let status = if is_stopped { Status::NotDone } else { Status::NotANumber };
            assert_eq!(self.of(key, command).0, status, "{old:?} {command:?}");
            return;
        }
        if old != Some(new) {
            held.insert(member.clone(), new);
        }
        if let Some(value) = self.change(key, command, (0, held)) {
            assert_eq!(value, new.to_le_bytes());
        }
    }

    fn remove(&mut self, key: &'static [u8]) {
        let list = scored::names(&self.list(key, 12));
        let mut held = self.held(key);
        let names = Items::parse(&list).unwrap().iter().flatten();
        let gone = names.filter(|name| held.remove(*name).is_some()).count();
        self.change(key, scored::remove(&list), (gone as i64, held));
    }

    fn store(&mut self, key: &'static [u8]) {
        let most = [5, 100, 200, 600][self.random.below(4) as usize];
        let mut list = self.list(key, if key == b"small" { 5 } else { most });
        if self.random.one_in(5) {
            list.clear();
        }
        let held: Members =
            Scored::in_list(&list).map(|(score, member)| (member.to_vec(), score)).collect();
        self.change(key, scored::store(&list), (held.len() as i64, held));
    }

    fn pop(&mut self, key: &'static [u8]) {
        let from_greatest = self.random.one_in(2);
        let count = [0, 1, 3, 40, u64::MAX >> 1][self.random.below(5) as usize];
        let mut held = self.held(key);
        let range = SortedRange::ALL;
        let read = SortedRead { range, is_reverse: from_greatest, offset: 0, limit: count };
        let expected = in_range(&held, &read);
        held.retain(|member, _| !expected.iter().any(|(_, of)| of == member));
        let command = SortedCommand::Pop { count, from_greatest };
        if let Some(value) = self.change(key, command, (expected.len() as i64, held)) {
            assert_eq!(entries(&value), expected);
        }
    }
}

/// A bound of a range, which may be open.
fn bound<T>(random: &mut Random, of: T) -> Bound<T> {
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(of),
        _ => Bound::Excluded(of),
    }
}

/// Runs with a range of a key: by members only where all scores are equal.
fn with_range<R>(
    world: &mut World,
    key: &[u8],
    run: impl FnOnce(&mut World, SortedRange<'_>) -> R,
) -> R {
    let (one, other) = (world.entry(key), world.entry(key));
    let random = &mut world.random;
    match random.below(3) {
        0 => {
            let [start, stop] = [0, 1].map(|_| random.below(400) as i64 - 200);
            run(world, SortedRange::Index { start, stop })
        }
        1 if key == b"equal" => {
            let (from, to) = (bound(random, &one.1[..]), bound(random, &other.1[..]));
            run(world, SortedRange::Lex { from, to })
        }
        _ => {
            let (from, to) = (bound(random, one.0), bound(random, other.0));
            run(world, SortedRange::Score { from, to })
        }
    }
}

/// Questions, and changes of ranges.
impl World {
    fn range(&mut self, key: &'static [u8]) {
        with_range(self, key, |world, range| {
            let random = &mut world.random;
            let is_reverse = random.one_in(2);
            let offset = [0, 0, 3, u64::MAX][random.below(4) as usize];
            let limit = [0, 5, 200, u64::MAX, u64::MAX][random.below(5) as usize];
            let read = SortedRead { range, is_reverse, offset, limit };
            let expected = in_range(&world.held(key), &read);
            let (status, number, value) = world.of(key, SortedCommand::Range(read));
            assert_eq!((status, number), (Status::Ok, expected.len() as i64), "{read:?}");
            assert_eq!(entries(&value.unwrap()), expected, "{read:?}");
        });
    }

    fn count(&mut self, key: &'static [u8]) {
        with_range(self, key, |world, range| {
            let expected = in_range(&world.held(key), &SortedRead::of(range)).len();
            let (status, number, _) = world.of(key, SortedCommand::Count { range });
            assert_eq!((status, number), (Status::Ok, expected as i64), "{range:?}");
        });
    }

    fn remove_range(&mut self, key: &'static [u8]) {
        with_range(self, key, |world, range| {
            let mut held = world.held(key);
            let gone = in_range(&held, &SortedRead::of(range));
            if gone.len() > 20 && world.random.below(4) > 0 {
                return;
            }
            held.retain(|member, _| !gone.iter().any(|(_, of)| of == member));
            world.change(key, SortedCommand::RemoveRange { range }, (gone.len() as i64, held));
        });
    }

    fn scores(&mut self, key: &'static [u8]) {
        let (held, list) = (self.held(key), self.list(key, 9));
        let names = scored::names(&list);
        let members = Items::parse(&names).unwrap();
        let score = |member: &[u8]| held.get(member).copied();
        let told: Vec<u8> = members
            .iter()
            .flatten()
            .flat_map(|of| score(of).unwrap_or(f64::NAN).to_le_bytes())
            .collect();
        let answer = self.of(key, SortedCommand::Scores { members });
        assert_eq!(answer, (Status::Ok, i64::from(!held.is_empty()), Some(told)));
        let member = members.iter().flatten().next().unwrap();
        let (status, _, value) = self.of(key, SortedCommand::Score { member });
        let expected = score(member).map(|score| score.to_le_bytes().to_vec());
        let is_there = if expected.is_some() { Status::Ok } else { Status::NotFound };
        assert_eq!((status, value), (is_there, expected));
    }

    fn rank(&mut self, key: &'static [u8]) {
        let (held, (_, member)) = (self.held(key), self.entry(key));
        let is_reverse = self.random.one_in(2);
        let read = SortedRead { is_reverse, ..SortedRead::of(SortedRange::ALL) };
        let rank = in_range(&held, &read).iter().position(|(_, of)| *of == member);
        let (status, number, value) =
            self.of(key, SortedCommand::Rank { member: &member, is_reverse });
        let Some(rank) = rank else {
            assert_eq!(status, Status::NotFound);
            return;
        };
        assert_eq!((status, number), (Status::Ok, rank as i64));
        assert_eq!(value.unwrap(), held[&member].to_le_bytes());
    }

    fn random(&mut self, key: &'static [u8]) {
        let (held, count) = (self.held(key), self.random.below(90) as i64 - 40);
        let (status, number, value) = self.of(key, SortedCommand::Random { count });
        let told = entries(&value.unwrap());
        assert_eq!((status, number), (Status::Ok, told.len() as i64));
        assert!(told.iter().all(|(score, of)| held.get(of).map(|of| of.to_bits()) == Some(*score)));
        let asked = count.unsigned_abs() as usize;
        let most = if count > 0 { asked.min(held.len()) } else { asked };
        assert_eq!(told.len(), if held.is_empty() { 0 } else { most });
        let different: BTreeSet<&Entry> = told.iter().collect();
        assert!(count < 0 || different.len() == told.len(), "{count}: a member twice");
    }

    fn scan(&mut self, key: &'static [u8]) {
        let (mut options, mut found, mut cursor) = (Vec::new(), BTreeSet::new(), 0);
        let some = [1, 10, 500][self.random.below(3) as usize];
        let wanted = self.random.one_in(3).then_some(&b"*1 is*"[..]);
        match wanted {
            Some(wanted) => Items::push(&mut options, wanted),
            None => Items::push_none(&mut options),
        }
        Items::push(&mut options, &u64::to_le_bytes(some));
        let options = Items::parse(&options).unwrap();
        loop {
            let (status, next, value) = self.of(key, SortedCommand::Scan { cursor, options });
            assert_eq!(status, Status::Ok);
            found.extend(entries(&value.unwrap()));
            cursor = next as u64;
            if cursor == 0 {
                break;
            }
        }
        let fits = |of: &[u8]| wanted.is_none() || of.windows(4).any(|some| some == b"1 is");
        let all = in_order(&self.held(key)).into_iter();
        assert_eq!(found, all.filter(|(_, of)| fits(of)).collect());
    }

    fn step(&mut self) {
        let key = self.random.pick(&KEYS);
        match self.random.below(32) {
            0..8 => self.add(key),
            8..10 => self.increment(key),
            10..14 => self.remove(key),
            14 if self.random.one_in(6) => self.store(key),
            15 => self.pop(key),
            16 => self.remove_range(key),
            17..20 => self.range(key),
            20 | 21 => self.count(key),
            22..24 => self.scores(key),
            24..26 => self.rank(key),
            26 => self.random(key),
            27 => self.scan(key),
            28 => {
                let answer = self.of(key, SortedCommand::Length);
                assert_eq!((answer.0, answer.1 as usize), (Status::Ok, self.held(key).len()));
            }
            29 if self.random.one_in(20) => {
                let gone = scored::ask(&mut self.shard, &Command::Del { key }, self.now).1;
                assert_eq!(gone, i64::from(self.model.remove(key).is_some()));
            }
            30 => {
                self.shard.tick(self.now);
                quiet(&mut self.shard, self.now);
            }
            _ => {}
        }
    }

    /// All keys are as they must be.
    fn check(&mut self) {
        self.shard.audit().unwrap();
        for key in KEYS {
            let held = self.held(key);
            assert_eq!(all(&mut self.shard, key, self.now), in_order(&held), "{key:?}");
        }
    }

    /// What the log makes of another shard.
    fn replayed(&self) -> Shard {
        let mut copy = shard(64 << 20, Eviction::None);
        copy.begin_applying();
        let mut assembler = Assembler::new(1, 100 << 20);
        for frame in Frames::new(&self.log, LogKey::new(SECRET, 0)) {
            if let Some(entry) = assembler.take(frame.unwrap()).unwrap() {
                let applied = copy.apply(&entry.to_owned().entry(), &Origin::WHOLE, START);
                assert_eq!(applied, Ok(Applied::Done));
            }
        }
        copy.audit().unwrap();
        copy
    }
}

fn encoding(shard: &mut Shard, key: &[u8]) -> String {
    let (_, _, value) = scored::ask(shard, &Command::Encoding { key }, START);
    value.map_or_else(String::new, |name| String::from_utf8(name).unwrap())
}

#[test]
fn random_operations_agree_with_a_map_and_an_order_and_the_log_makes_the_same() {
    let mut met = BTreeSet::new();
    for seed in 0..4 {
        let mut world = World::new(seed, 16 << 20);
        for at in 0..5_000 {
            world.step();
            if at % 250 == 0 {
                world.check();
                for key in KEYS {
                    met.insert((key, encoding(&mut world.shard, key)));
                }
            }
        }
        world.check();
        // Keys that were removed by themselves are in the log, too.
        let log = world.shard.log();
        log.read(&mut world.cursor, usize::MAX, &mut world.log).expect("read at once");
        let copy = world.replayed();
        assert_eq!(copy.digest(), world.shard.digest());
        assert_eq!(world.refused, 0);
    }
    let has = |key: &[u8], name: &str| met.iter().any(|(of, form)| *of == key && form == name);
    assert!(has(b"small", "listpack") && has(b"large", "skiplist"), "{met:?}");
    assert!(has(b"grows", "listpack") && has(b"grows", "skiplist"), "{met:?}");
}

#[test]
fn a_set_is_kept_as_redis_keeps_it() {
    let mut shard = shard(4 << 20, Eviction::None);
    let add = |shard: &mut Shard, key: &[u8], member: &[u8]| {
        let list = scored::scored([(1.0, member)]);
        assert_eq!(of(shard, key, scored::add(&list), START).1, 1);
    };
    for at in 0..WHOLE_ITEMS {
        add(&mut shard, b"many", at.to_string().as_bytes());
    }
    add(&mut shard, b"long", &[b'l'; WHOLE_ITEM_BYTES]);
    for key in [&b"many"[..], b"long"] {
        assert_eq!(encoding(&mut shard, key), "listpack");
    }
    add(&mut shard, b"many", b"one more");
    add(&mut shard, b"long", &[b'l'; WHOLE_ITEM_BYTES + 1]);
    for key in [&b"many"[..], b"long"] {
        assert_eq!(encoding(&mut shard, key), "skiplist");
    }
    let one = |count| SortedCommand::Pop { count, from_greatest: true };
    of(&mut shard, b"many", one(100), START);
    assert_eq!(encoding(&mut shard, b"many"), "skiplist", "it stays so");
    of(&mut shard, b"many", one(100), START);
    assert_eq!(encoding(&mut shard, b"many"), "");
    quiet(&mut shard, START);
    shard.audit().unwrap();
    assert_eq!(shard.stats().sorted_sets, 1);
}

/// Members whose keys in the tree differ by marks alone: they have an order, though not that of their
/// bytes, and each is found.
#[test]
fn long_members_with_one_beginning_are_told_apart() {
    let mut shard = shard(8 << 20, Eviction::None);
    let mut members = Members::new();
    for at in 0..300u32 {
        let (score, mut member) = (f64::from(at % 3), vec![b'm'; 300]);
        member.extend(at.to_be_bytes());
        let list = scored::scored([(score, &member[..])]);
        assert_eq!(of(&mut shard, b"k", scored::add(&list), START).1, 1);
        members.insert(member, score);
    }
    shard.audit().unwrap();
    let read = all(&mut shard, b"k", START);
    let scores: Vec<u64> = read.iter().map(|(score, _)| *score).collect();
    assert!(scores.iter().is_sorted_by_key(|score| f64::from_bits(*score)));
    for (rank, (score, member)) in read.iter().enumerate() {
        let command = SortedCommand::Rank { member, is_reverse: false };
        let (_, number, value) = of(&mut shard, b"k", command, START);
        assert_eq!((number as usize, value.unwrap()), (rank, score.to_le_bytes().to_vec()));
        assert_eq!(members.remove(member), Some(f64::from_bits(*score)));
    }
    assert!(members.is_empty());
    for (left, (_, member)) in (0..300).rev().zip(&read) {
        let names = scored::names(&scored::scored([(0.0, &member[..])]));
        assert_eq!(of(&mut shard, b"k", scored::remove(&names), START).1, 1);
        assert_eq!(of(&mut shard, b"k", SortedCommand::Length, START).1, left);
    }
    quiet(&mut shard, START);
    shard.audit().unwrap();
}

/// Little memory, which other keys fill to the last bytes: each change is done, or leaves no trace.
#[test]
fn a_change_that_finds_no_memory_leaves_no_trace() {
    for seed in 0..6 {
        let mut world = World::new(seed, 1 << 20);
        let mut fillers = 0;
        for at in 0..3_000 {
            if at % 10 == 0 {
                // Other keys take the last memory, or give some back.
                let (condition, expiry, get) = (Condition::Always, Expiry::Never, false);
                let bytes = [30_000, 2_000, 200, 20][world.random.below(4) as usize];
                let value = vec![7; bytes];
                while world.random.below(20) > 0 {
                    let key = format!("filler {fillers}").into_bytes();
                    let set = Command::Set { key: &key, value: &value, condition, expiry, get };
                    if scored::ask(&mut world.shard, &set, START).0 != Status::Ok {
                        break;
                    }
                    fillers += 1;
                }
                if world.random.one_in(8) {
                    for at in (0..fillers).filter(|at| at % 4 == fillers % 4) {
                        let key = format!("filler {at}").into_bytes();
                        scored::ask(&mut world.shard, &Command::Del { key: &key }, START);
                    }
                }
            }
            world.step();
            if at % 100 == 0 {
                world.check();
            }
        }
        world.check();
        println!("{} of 3000 refused", world.refused);
        assert!(world.refused > 50, "{}", world.refused);
    }
}

#[test]
fn a_key_that_expires_takes_all_along() {
    let mut shard = shard(8 << 20, Eviction::None);
    let list: Vec<Vec<u8>> = (0..3_000).map(|at| format!("member {at}").into_bytes()).collect();
    let list = scored::scored(list.iter().map(|member| (1.0, &member[..])));
    let empty = shard.stats().slots.used_bytes;
    for how in 0..2 {
        assert_eq!(of(&mut shard, b"k", scored::add(&list), START).1, 3_000);
        let (at_ms, condition) = (START.unix_ms + 10, ExpireCondition::Always);
        let expire = Command::Expire { key: b"k", at_ms, condition };
        assert_eq!(scored::ask(&mut shard, &expire, START).1, 1);
        // What changes it keeps its expiry.
        let one = scored::scored([(2.0, &b"member 0"[..])]);
        of(&mut shard, b"k", scored::add(&one), START);
        assert_eq!(scored::ask(&mut shard, &Command::Ttl { key: b"k" }, START).1, 10);
        let later = Now { unix_ms: at_ms, since_start_s: 6 };
        match how {
            0 => shard.tick(later),
            _ => assert_eq!(of(&mut shard, b"k", SortedCommand::Length, later).1, 0),
        }
        quiet(&mut shard, later);
        shard.audit().unwrap();
        assert_eq!((shard.stats().sorted_sets, shard.stats().sorted_bytes), (0, 0));
        assert_eq!(shard.stats().slots.used_bytes, empty);
    }
}

#[test]
fn doubles_are_kept_to_their_last_bit() {
    let mut shard = shard(4 << 20, Eviction::None);
    let scores = [f64::NEG_INFINITY, -1e308, -5e-324, -0.0, 5e-324, 0.1 + 0.2, f64::INFINITY];
    for others in [0, 300] {
        let fill: Vec<Vec<u8>> = (0..others).map(|at: u32| at.to_string().into_bytes()).collect();
        let mut list = scored::scored(fill.iter().map(|of| (0.0, &of[..])));
        for (at, &score) in scores.iter().enumerate() {
            Scored::push(&mut list, score, format!("s{at}").as_bytes());
        }
        of(&mut shard, b"k", scored::store(&list), START);
        for (at, &score) in scores.iter().enumerate() {
            let member = format!("s{at}");
            let value =
                of(&mut shard, b"k", SortedCommand::Score { member: member.as_bytes() }, START);
            // A small set has 0 for -0, as Redis's.
            let kept = if others == 0 { score + 0.0 } else { score };
            assert_eq!(value.2.unwrap(), kept.to_le_bytes());
        }
        let zero = if others == 0 { 0.0_f64 } else { -0.0 };
        assert!(all(&mut shard, b"k", START).contains(&(zero.to_bits(), b"s3".to_vec())));
        let when = When::default();
        for (member, by) in [(b"s0", f64::INFINITY), (b"s6", f64::NEG_INFINITY)] {
            let command = SortedCommand::Increment { when, by, member };
            assert_eq!(of(&mut shard, b"k", command, START).0, Status::NotANumber);
        }
        let zero = Bound::Included(0.0);
        let range = SortedRange::Score { from: zero, to: zero };
        let count = of(&mut shard, b"k", SortedCommand::Count { range }, START).1;
        assert_eq!(count, i64::from(others) + 1, "-0 is 0");
        shard.audit().unwrap();
    }
}

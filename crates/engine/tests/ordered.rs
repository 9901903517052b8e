//! Ordered trees against a map: byte strings and integers, ranges in turns beside changes, numbers of
//! keys, bad requests, full memory, and the end of a tree.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, LongRead, Now, Shard, ShardOptions};
use remora_layout::btree::{KeyForm, LEVEL_INFO_WORDS, LevelInfo, OrderedInfo};
use remora_layout::limits::{
    MAX_ORDERED_KEY_BYTES, MAX_ORDERED_LONG_BYTES, MAX_ORDERED_VALUE_BYTES, RANGE_TURN_BYTES,
    RANGE_TURN_KEYS,
};
use remora_layout::packed::Field;
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedRange, OrderedSettings};
use remora_protocol::{Command, Items};
use remora_testing::Random;
use std::collections::BTreeMap;
use std::ops::Bound;
use zerocopy::FromBytes;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const KEY: &[u8] = b"tree";

/// Values, and whether each is a link, by the keys of the tree in its order.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, bool)>;
type Answer = (Status, i64, Option<Vec<u8>>);
type Entry = (Vec<u8>, (Vec<u8>, bool));

fn shard(bytes: usize) -> Shard {
    let options = ShardOptions { record_secret: 7, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

fn ask(shard: &mut Shard, command: OrderedCommand<'_>) -> Answer {
    let command = Command::Of { key: KEY, request: command.request() };
    let reply = shard.execute(&command, shard.hash(KEY), NOW);
    (reply.status, reply.number, reply.value.map(<[u8]>::to_vec))
}

fn create(shard: &mut Shard, keys: KeyForm, fan_out: usize, value_bytes: usize) {
    let settings = OrderedSettings { fan_out, value_bytes, ..OrderedSettings::of(keys) };
    assert_eq!(ask(shard, OrderedCommand::Create(settings)).0, Status::Ok);
}

fn set(shard: &mut Shard, key: &[u8], value: &[u8]) -> Answer {
    ask(shard, OrderedCommand::Set { key, value: Field { value, is_link: false } })
}

fn text(keys: KeyForm, key: &[u8]) -> Vec<u8> {
    match keys {
        KeyForm::Bytes => key.to_vec(),
        KeyForm::Integers => u64::from_be_bytes(key.try_into().unwrap()).to_string().into_bytes(),
    }
}

fn draw_key(keys: KeyForm, random: &mut Random, of: u64) -> Vec<u8> {
    let number = random.below(of);
    match keys {
        KeyForm::Integers if number == 0 => u64::MAX.to_be_bytes().to_vec(),
        KeyForm::Integers => (number * number).to_be_bytes().to_vec(),
        KeyForm::Bytes if number == 0 => Vec::new(),
        KeyForm::Bytes => format!("{:x}/{}", number % 7, "k".repeat(number as usize % 40))
            .into_bytes()
            .into_iter()
            .chain(number.to_be_bytes())
            .collect(),
    }
}

fn entries(value: Option<Vec<u8>>, number: i64) -> Vec<Entry> {
    let value = value.expect("a range has a value");
    let items: Vec<Field<'_>> =
        Items::parse(&value).unwrap().fields().map(Option::unwrap).collect();
    assert_eq!(items.len() as i64, number);
    let pair = |of: &[Field<'_>]| (of[0].value.to_vec(), (of[1].value.to_vec(), of[1].is_link));
    items.chunks(2).map(pair).collect()
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn draw_bound(keys: KeyForm, random: &mut Random, of: u64) -> Bound<Vec<u8>> {
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(draw_key(keys, random, of)),
        _ => Bound::Excluded(draw_key(keys, random, of)),
    }
}

fn holds(model: &Model, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> Model {
    let is_in = |key: &Vec<u8>| {
        (match from {
            Bound::Unbounded => true,
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
        }) && match to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
        }
    };
    model.iter().filter(|(key, _)| is_in(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Everything that can be read, compared.
fn compare(shard: &mut Shard, model: &Model, keys: KeyForm, random: &mut Random, of: u64) {
    let key = draw_key(keys, random, of);
    let (status, number, value) = ask(shard, OrderedCommand::Get { key: &text(keys, &key) });
    match model.get(&key) {
        None => assert_eq!(status, Status::NotFound),
        Some((wanted, is_link)) => {
            assert_eq!((status, number), (Status::Ok, i64::from(*is_link)));
            assert_eq!(value.as_ref(), Some(wanted));
        }
    }
    let rank = model.range::<Vec<u8>, _>(..&key).count() as i64;
    let ranked = ask(shard, OrderedCommand::Rank { key: &text(keys, &key) });
    match model.contains_key(&key) {
        true => assert_eq!((ranked.0, ranked.1), (Status::Ok, rank)),
        false => assert_eq!(ranked.0, Status::NotFound),
    }
    for rank in [random.below(of) as i64, -1 - random.below(of) as i64, 0, -1, i64::MIN] {
        let wanted = match rank {
            0.. => model.iter().nth(rank as usize),
            _ => model.iter().rev().nth((rank.unsigned_abs() - 1) as usize),
        };
        let (status, number, value) = ask(shard, OrderedCommand::Select { rank });
        match wanted {
            None => assert_eq!(status, Status::NotFound, "{rank}"),
            Some((key, of)) => {
                assert_eq!(entries(value, number), [(text(keys, key), of.clone())], "{rank}");
            }
        }
    }
    let (from, to) = (draw_bound(keys, random, of), draw_bound(keys, random, of));
    let texts = [&from, &to].map(|bound| bound.as_ref().map(|key| text(keys, key)));
    let range = OrderedRange { from: as_slice(&texts[0]), to: as_slice(&texts[1]) };
    let wanted = holds(model, &from, &to);
    assert_eq!(ask(shard, OrderedCommand::Count { range }).1, wanted.len() as i64, "{range:?}");
    let limit = if random.one_in(2) { u64::MAX >> 1 } else { random.below(of) };
    let is_reverse = random.one_in(2);
    let (_, number, value) = ask(shard, OrderedCommand::Range { range, is_reverse, limit });
    let mut wanted: Vec<_> = wanted.into_iter().map(|(key, of)| (text(keys, &key), of)).collect();
    if is_reverse {
        wanted.reverse();
    }
    wanted.truncate(limit as usize);
    assert_eq!(entries(value, number), wanted, "{range:?}");
}

#[test]
fn trees_are_as_a_map_for_each_fan_out_and_both_forms_of_keys() {
    for keys in [KeyForm::Bytes, KeyForm::Integers] {
        // Values up to these lengths lie in leaves, longer ones in records.
        for (fan_out, value_bytes) in [(4, 0), (16, 20), (64, 256)] {
            let mut random = Random::new(fan_out as u64);
            let (mut shard, mut model) = (shard(16 << 20), Model::new());
            create(&mut shard, keys, fan_out, value_bytes);
            let of = 900;
            for step in 0..6_000 {
                // It grows, shrinks to nothing, and grows again.
                let shrinks = (step / 1_500) % 2 == 1;
                let key = draw_key(keys, &mut random, of);
                if random.below(10) < if shrinks { 8 } else { 2 } {
                    let answer = ask(&mut shard, OrderedCommand::Delete { key: &text(keys, &key) });
                    let was_there = model.remove(&key).is_some();
                    assert_eq!((answer.0, answer.1), (Status::Ok, was_there.into()));
                } else {
                    let is_longer = random.one_in(20);
                    let value = random.bytes_up_to(if is_longer { 3_000 } else { 60 });
                    let is_link = random.one_in(5);
                    let field = Field { value: &value, is_link };
                    let text = text(keys, &key);
                    let answer = ask(&mut shard, OrderedCommand::Set { key: &text, value: field });
                    let is_new = model.insert(key, (value.clone(), is_link)).is_none();
                    assert_eq!((answer.0, answer.1), (Status::Ok, is_new.into()));
                }
                if step % 20 == 0 {
                    compare(&mut shard, &model, keys, &mut random, of);
                }
                if step % 500 == 0 {
                    shard.audit().unwrap();
                }
            }
            let words = ask(&mut shard, OrderedCommand::Info).2.unwrap();
            let info = OrderedInfo::from_words(&FromBytes::read_from_bytes(&words).unwrap());
            let info = info.unwrap();
            assert_eq!((info.keys, info.fan_out), (model.len() as u64, fan_out as u64));
            let is_long = |(value, _): &&(Vec<u8>, bool)| value.len() > value_bytes;
            let long = model.values().filter(is_long).count() as u64;
            assert_eq!((info.long_values, info.long_bytes > 0), (long, long > 0));
            let (_, height, words) = ask(&mut shard, OrderedCommand::Levels);
            let levels: Vec<LevelInfo> = words
                .unwrap()
                .chunks(LEVEL_INFO_WORDS * 8)
                .map(|words| LevelInfo::from_words(&FromBytes::read_from_bytes(words).unwrap()))
                .collect();
            assert_eq!((levels.len() as u64, height as u64), (info.height, info.height));
            assert_eq!(levels.iter().map(|level| level.nodes).sum::<u64>(), info.nodes);
            assert_eq!(levels.last().unwrap().entries, info.keys);
            for pair in levels.windows(2) {
                assert_eq!(pair[0].entries, pair[1].nodes, "each node has an entry above it");
            }
        }
    }
}

fn begin(shard: &mut Shard, command: OrderedCommand<'_>) -> LongRead {
    let hash = shard.hash(KEY);
    shard.begin_read((KEY, hash), command.request(), NOW).unwrap()
}

/// A range in turns has each key that is there all the time, once, in order, whatever else changes.
#[test]
fn a_range_in_turns_beside_changes_has_what_is_there_all_the_time() {
    for (seed, is_reverse) in [(1, false), (2, true)] {
        let (mut shard, mut random) = (shard(32 << 20), Random::new(seed));
        create(&mut shard, KeyForm::Integers, 8, 256);
        let stays = |number: u64| number.is_multiple_of(3);
        for number in 0..6_000u64 {
            set(&mut shard, number.to_string().as_bytes(), &number.to_le_bytes());
        }
        let range = OrderedRange::ALL;
        let mut read =
            begin(&mut shard, OrderedCommand::Range { range, is_reverse, limit: u64::MAX >> 1 });
        let (mut found, mut turns) = (Vec::new(), 0);
        let number = loop {
            let before = found.len();
            let turn = shard.read_turn(&mut read, &mut found, NOW).unwrap();
            let keys = Items::parse(&found[before..]).unwrap().iter().count() / 2;
            assert!(keys <= RANGE_TURN_KEYS);
            turns += 1;
            if turn.ended {
                break turn.number;
            }
            for _ in 0..400 {
                let number = random.below(6_000);
                let text = number.to_string();
                match random.below(3) {
                    _ if stays(number) => {}
                    0 => drop(ask(&mut shard, OrderedCommand::Delete { key: text.as_bytes() })),
                    _ => drop(set(&mut shard, text.as_bytes(), b"another")),
                }
            }
        };
        assert!(turns > 6, "{turns}");
        let found: Vec<u64> = entries(Some(found), number)
            .iter()
            .map(|(key, _)| str::from_utf8(key).unwrap().parse().unwrap())
            .collect();
        let mut sorted = found.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if is_reverse {
            sorted.reverse();
        }
        assert_eq!(found, sorted, "in order, and once");
        assert!((0..6_000).filter(|of| stays(*of)).all(|of| found.contains(&of)));
    }
}

#[test]
fn a_tree_that_goes_ends_the_reads_of_it_and_gives_its_memory_back() {
    for value_bytes in [100, 5_000] {
        end_of_a_tree(value_bytes);
    }
}

fn end_of_a_tree(value_bytes: usize) {
    let mut shard = shard(64 << 20);
    let before = shard.stats().slots.used_bytes;
    for number in 0..3_000u64 {
        assert_eq!(set(&mut shard, &number.to_be_bytes(), &vec![1; value_bytes]).1, 1);
    }
    let range = OrderedRange::ALL;
    let mut read =
        begin(&mut shard, OrderedCommand::Range { range, is_reverse: false, limit: 9_999 });
    let mut found = Vec::new();
    assert!(!shard.read_turn(&mut read, &mut found, NOW).unwrap().ended);
    assert!(found.len() < RANGE_TURN_BYTES + value_bytes + 100, "a turn is bounded");
    let del = Command::Del { key: KEY };
    assert_eq!(shard.execute(&del, shard.hash(KEY), NOW).number, 1);
    assert_eq!(shard.read_turn(&mut read, &mut found, NOW), Err(Status::NotFound));
    while shard.wants_release() {
        shard.release_some(Now { since_start_s: 1 << 30, ..NOW });
    }
    shard.audit().unwrap();
    assert_eq!(shard.stats().slots.used_bytes, before);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut shard = shard(16 << 20);
    for (command, status, number) in [
        (OrderedCommand::Get { key: b"k" }, Status::NotFound, 0),
        (OrderedCommand::Delete { key: b"k" }, Status::Ok, 0),
        (OrderedCommand::Count { range: OrderedRange::ALL }, Status::Ok, 0),
        (OrderedCommand::Rank { key: b"k" }, Status::NotFound, 0),
        (OrderedCommand::Select { rank: 0 }, Status::NotFound, 0),
        (OrderedCommand::Info, Status::NotFound, 0),
    ] {
        let answer = ask(&mut shard, command);
        assert_eq!((answer.0, answer.1), (status, number), "{command:?}: a tree that is not there");
    }
    let range = OrderedRange::ALL;
    let none = ask(&mut shard, OrderedCommand::Range { range, is_reverse: false, limit: 9 });
    assert_eq!(none, (Status::Ok, 0, Some(Vec::new())));
    create(&mut shard, KeyForm::Integers, 16, 256);
    let again = OrderedSettings::of(KeyForm::Bytes);
    assert_eq!(ask(&mut shard, OrderedCommand::Create(again)).0, Status::NotDone);
    for key in [&b"-1"[..], b"+1", b"", b"x", b"18446744073709551616", b" 1"] {
        assert_eq!(set(&mut shard, key, b"").0, Status::NotAnInteger);
        assert_eq!(ask(&mut shard, OrderedCommand::Get { key }).0, Status::NotAnInteger);
        let range = OrderedRange { from: Bound::Included(key), to: Bound::Unbounded };
        assert_eq!(ask(&mut shard, OrderedCommand::Count { range }).0, Status::NotAnInteger);
        let range = OrderedCommand::Range { range, is_reverse: false, limit: 1 };
        assert_eq!(ask(&mut shard, range).0, Status::NotAnInteger);
    }
    let most = MAX_ORDERED_LONG_BYTES;
    assert_eq!(set(&mut shard, b"1", &vec![0; most + 1]).0, Status::TooLarge);
    assert_eq!(set(&mut shard, b"1", &vec![0; most]), (Status::Ok, 1, None));
    assert_eq!(set(&mut shard, b"1", &[0; 256]), (Status::Ok, 0, None));
    let set_of =
        Command::Of { key: KEY, request: remora_protocol::set::SetCommand::Length.request() };
    assert_eq!(shard.execute(&set_of, shard.hash(KEY), NOW).status, Status::WrongType);
    shard.audit().unwrap();
}

/// Where memory is full a change fails whole, and the tree stays as it was.
#[test]
fn full_memory_refuses_a_change_and_keeps_the_tree() {
    let options = ShardOptions { eviction: Eviction::None, ..ShardOptions::default() };
    let mut shard = Shard::new(Owner::heap(2 << 20, NoJournal), options);
    let longest = OrderedSettings {
        key_bytes: MAX_ORDERED_KEY_BYTES,
        value_bytes: MAX_ORDERED_VALUE_BYTES,
        fan_out: 4,
        keys: KeyForm::Bytes,
    };
    assert_eq!(ask(&mut shard, OrderedCommand::Create(longest)).0, Status::Ok);
    let mut random = Random::new(5);
    let (mut model, mut refused) = (Model::new(), 0);
    for number in 0..4_000u64 {
        let mut key = random.below(1u64 << 40).to_be_bytes().to_vec();
        key.resize(8 + random.below(MAX_ORDERED_KEY_BYTES as u64 - 7) as usize, b'k');
        let value = vec![number as u8; random.below(MAX_ORDERED_VALUE_BYTES as u64 + 1) as usize];
        match set(&mut shard, &key, &value).0 {
            Status::Ok => drop(model.insert(key, (value, false))),
            status => {
                assert_eq!(status, Status::OutOfMemory);
                refused += 1;
            }
        }
        if refused == 40 {
            break;
        }
    }
    assert_eq!(refused, 40);
    shard.audit().unwrap();
    let all =
        OrderedCommand::Range { range: OrderedRange::ALL, is_reverse: false, limit: u64::MAX >> 1 };
    let (_, number, value) = ask(&mut shard, all);
    assert_eq!(entries(value, number).into_iter().collect::<Model>(), model);
    for key in model.keys() {
        assert_eq!(ask(&mut shard, OrderedCommand::Delete { key }).1, 1);
    }
    assert_eq!(ask(&mut shard, OrderedCommand::Count { range: OrderedRange::ALL }).1, 0);
    shard.audit().unwrap();
}

#[test]
fn a_tree_of_one_entry_takes_one_node_and_some_hundred_bytes_of_the_heap() {
    const TREES: u64 = 200;
    let of = OrderedSettings::of;
    let short = OrderedSettings { key_bytes: 64, value_bytes: 32, ..of(KeyForm::Bytes) };
    let large = OrderedSettings { fan_out: 256, ..of(KeyForm::Bytes) };
    let cases = [
        (of(KeyForm::Bytes), 8 << 10),
        (of(KeyForm::Integers), 4 << 10),
        (short, 4 << 10),
        (large, 16 << 10),
    ];
    for (settings, bytes) in cases {
        let mut shard = shard(32 << 20);
        shard.tick(NOW);
        let before = shard.stats().heap_bytes;
        for number in 0..TREES {
            let name = format!("user{number}");
            let mut ask = |command: OrderedCommand<'_>| {
                let request = command.request();
                let command = Command::Of { key: name.as_bytes(), request };
                let reply = shard.execute(&command, shard.hash(name.as_bytes()), NOW);
                assert_eq!(reply.status, Status::Ok);
                reply.value.map(<[u8]>::to_vec)
            };
            ask(OrderedCommand::Create(settings));
            ask(OrderedCommand::Set { key: b"1", value: Field { value: b"one", is_link: false } });
            let info = ask(OrderedCommand::Info).unwrap();
            let info = OrderedInfo::from_words(&<[u64; _]>::read_from_bytes(&info).unwrap());
            let OrderedInfo { nodes, bytes: taken, .. } = info.unwrap();
            assert_eq!((nodes, taken), (1, bytes), "{settings:?}");
        }
        shard.tick(NOW);
        let on_heap = (shard.stats().heap_bytes - before) / TREES;
        assert!(on_heap < 1_000, "{on_heap} bytes of the heap");
        let stats = shard.stats();
        assert_eq!((stats.ordered_trees, stats.ordered_bytes), (TREES, TREES * bytes));
        shard.audit().unwrap();
    }
}

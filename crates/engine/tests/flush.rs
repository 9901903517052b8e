//! FLUSHALL in turns: each turn is bounded, commands continue meanwhile and see an empty shard, and
//! it ends once everything is dead for readers.

use remora_arena::{NoJournal, Owner, state_in};
use remora_engine::{Applied, Eviction, LongRead, Now, Origin, Shard, ShardOptions};
use remora_index::hash::walk_locally;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{FLUSH_TURN_BUCKETS, FLUSH_TURN_KEYS};
use remora_layout::record::State;
use remora_layout::rect::Rect;
use remora_protocol::message::Status;
use remora_protocol::tree::{PutObject, TreeCommand};
use remora_protocol::{Command, Condition, ExpireCondition, Expiry, Pairs};
use remora_testing::Random;
use std::collections::BTreeMap;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
/// Most keys of one bucket in these tests.
const CHAIN: u64 = 40;

fn shard(buckets: u64, eviction: Eviction) -> Shard {
    let options = ShardOptions { buckets, eviction, ..ShardOptions::default() };
    Shard::new(Owner::heap(16 << 20, NoJournal), options)
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn set(shard: &mut Shard, number: u64, value: &[u8]) {
    let (key, condition, expiry) = (key(number), Condition::Always, Expiry::Never);
    let command = Command::Set { key: &key, value, condition, expiry, get: false };
    assert_eq!(shard.execute(&command, shard.hash(&key), NOW).status, Status::Ok);
}

fn get(shard: &mut Shard, number: u64) -> Option<Vec<u8>> {
    let key = key(number);
    shard.execute(&Command::Get { key: &key }, shard.hash(&key), NOW).value.map(<[u8]>::to_vec)
}

fn count(shard: &mut Shard) -> u64 {
    shard.execute(&Command::Count, KeyHash(0), NOW).number as u64
}

fn filled(keys: u64, buckets: u64) -> Shard {
    let mut shard = shard(buckets, Eviction::None);
    (0..keys).for_each(|number| set(&mut shard, number, b"old"));
    shard
}

/// Whether a reader of the memory finds a key, and so takes it for fresh.
fn reads(shard: &Shard, number: u64) -> bool {
    let (mut table, key) = (shard.table_ref(), key(number));
    let (view, hash, scratch) = (shard.owner().view(), shard.hash(&key), &mut Vec::new());
    walk_locally(view, &mut table, &key, hash, Kind::STRING, scratch).is_ok()
}

/// The flush's answer, if it is at its end.
fn answer(shard: &mut Shard, flush: &mut LongRead) -> Option<i64> {
    let turn = shard.read_turn(flush, &mut Vec::new(), NOW).unwrap();
    turn.ended.then_some(turn.number)
}

#[test]
fn a_turn_removes_no_more_than_its_share_and_the_end_comes_last() {
    for buckets in [16u64, 1 << 14] {
        let mut shard = filled(20_000, buckets);
        let mut flush = shard.begin_flush(None).unwrap();
        let (mut turns, mut left) = (0, 20_000);
        while answer(&mut shard, &mut flush).is_none() {
            assert!(shard.wants_release());
            let live = (0..20_000).filter(|&number| reads(&shard, number)).count() as u64;
            assert!(left - live <= FLUSH_TURN_KEYS + CHAIN, "{} in a turn", left - live);
            left = live;
            shard.release_some(NOW);
            turns += 1;
        }
        assert!(!(0..20_000).any(|number| reads(&shard, number)), "all are dead when it answers");
        assert_eq!(answer(&mut shard, &mut flush), Some(20_000));
        let most = 20_000 / FLUSH_TURN_KEYS + buckets / FLUSH_TURN_BUCKETS + 2;
        assert!(turns > 20_000 / (FLUSH_TURN_KEYS + CHAIN) && turns <= most, "{turns} turns");
        shard.audit().unwrap();
        assert_eq!(shard.stats().slots.used_bytes, 0);
    }
}

#[test]
fn a_flush_in_one_step_is_one_entry_of_the_log() {
    let mut shard = filled(5_000, 16);
    let before = shard.last_sequence();
    let reply = shard.execute(&Command::Flush, KeyHash(0), NOW);
    assert_eq!((reply.status, reply.number), (Status::Ok, 5_000));
    assert_eq!(shard.last_sequence(), before + 1);
    assert!(!shard.wants_release());
    shard.audit().unwrap();
}

#[test]
fn commands_go_on_and_see_an_empty_shard_from_the_first_turn_on() {
    let mut shard = filled(5_000, 16);
    let mut flush = shard.begin_flush(None).unwrap();
    let mut model = BTreeMap::new();
    let mut random = Random::new(7);
    let mut step = || random.bits() >> 33;
    let mut during = 0;
    for round in 0..20_000 {
        during += answer(&mut shard, &mut flush).is_none() as u64;
        // The table grows beneath it, too.
        let number = step() % 9_000;
        match step() % 5 {
            0 => {
                let value = format!("new {round}").into_bytes();
                set(&mut shard, number, &value);
                model.insert(number, value);
            }
            1 => {
                let key = key(number);
                let removed = shard.execute(&Command::Del { key: &key }, shard.hash(&key), NOW);
                assert_eq!(removed.number, model.remove(&number).is_some() as i64);
            }
            2 => assert_eq!(count(&mut shard), model.len() as u64),
            _ => assert_eq!(get(&mut shard, number), model.get(&number).cloned(), "{number}"),
        }
        if round % 50 == 0 {
            shard.audit().unwrap();
        }
        if round % 150 == 0 {
            shard.release_some(NOW);
        }
    }
    assert!(during > 500, "{during}");
    assert_eq!(answer(&mut shard, &mut flush), Some(5_000));
    for number in 0..9_000 {
        assert_eq!(get(&mut shard, number), model.get(&number).cloned());
    }
    shard.audit().unwrap();
}

#[test]
fn what_several_keys_are_set_to_meanwhile_stays() {
    let mut shard = filled(3_000, 16);
    let mut flush = shard.begin_flush(None).unwrap();
    let mut list = Vec::new();
    let keys: Vec<Vec<u8>> = (0..100).map(key).collect();
    keys.iter().for_each(|key| Pairs::push(&mut list, key, b"new"));
    let pairs = Pairs::parse(&list).unwrap();
    let reply = shard.execute(&Command::MultiSet { pairs }, KeyHash(0), NOW);
    assert_eq!(reply.status, Status::Ok);
    while answer(&mut shard, &mut flush).is_none() {
        shard.release_some(NOW);
    }
    assert_eq!(count(&mut shard), 100);
    assert!((0..100).all(|number| get(&mut shard, number).as_deref() == Some(b"new")));
    shard.audit().unwrap();
}

#[test]
fn a_second_flush_removes_what_was_set_since_and_both_end() {
    let mut shard = filled(3_000, 16);
    let mut first = shard.begin_flush(None).unwrap();
    shard.release_some(NOW);
    (0..500).for_each(|number| set(&mut shard, number, b"between"));
    let mut second = shard.begin_flush(None).unwrap();
    assert_eq!(count(&mut shard), 0);
    set(&mut shard, 7, b"after");
    assert_eq!(answer(&mut shard, &mut first), None);
    while answer(&mut shard, &mut second).is_none() {
        shard.release_some(NOW);
    }
    assert_eq!(answer(&mut shard, &mut first), Some(3_000));
    assert_eq!(answer(&mut shard, &mut second), Some(500));
    assert_eq!((count(&mut shard), get(&mut shard, 7)), (1, Some(b"after".to_vec())));
    shard.audit().unwrap();
}

#[test]
fn a_tree_is_dead_with_all_its_nodes_before_the_answer() {
    let mut shard = filled(2_000, 16);
    for id in 0..500u64 {
        let rect = Rect::point(id as f64, 1.0).unwrap();
        let put = TreeCommand::put(id, rect, None, None);
        let request = put.checked().map(TreeCommand::request).unwrap();
        let command = Command::Of { key: b"tree", request };
        assert_eq!(shard.execute(&command, shard.hash(b"tree"), NOW).status, Status::Ok);
    }
    let mut flush = shard.begin_flush(None).unwrap();
    // Its bucket is swept by a command that changes nothing.
    assert_eq!(
        shard.execute(&Command::Exists { key: b"tree" }, shard.hash(b"tree"), NOW).number,
        0
    );
    while answer(&mut shard, &mut flush).is_none() {
        shard.release_some(NOW);
    }
    // Bounded: each turn releases something.
    for _ in 0..1_000 {
        shard.release_some(NOW);
    }
    assert!(!shard.wants_release());
    assert_eq!((shard.stats().trees, shard.stats().slots.used_bytes), (0, 0));
    shard.audit().unwrap();
}

#[test]
fn writes_that_need_room_go_on_with_it() {
    for eviction in [Eviction::None, Eviction::S3Fifo] {
        let options = ShardOptions { eviction, ..ShardOptions::default() };
        let mut shard = Shard::new(Owner::heap(2 << 20, NoJournal), options);
        let value = vec![7; 4_000];
        let mut held = 0;
        while shard.stats().slots.used_bytes < 1_500_000 {
            set(&mut shard, held, &value);
            held += 1;
        }
        let mut flush = shard.begin_flush(None).unwrap();
        // More than was free: only these commands call `release_some`.
        (10_000..10_000 + held).for_each(|number| set(&mut shard, number, &value));
        shard.audit().unwrap();
        while answer(&mut shard, &mut flush).is_none() {
            shard.release_some(NOW);
        }
        assert!((0..held).all(|number| get(&mut shard, number).is_none()));
        assert!(eviction == Eviction::S3Fifo || count(&mut shard) == held);
        shard.audit().unwrap();
    }
}

#[test]
fn keys_that_expire_or_are_met_meanwhile_are_counted_once() {
    let mut shard = shard(16, Eviction::None);
    for number in 0..2_000 {
        let key = key(number);
        let expiry = Expiry::At(NOW.unix_ms + 10);
        let (value, condition) = (&b"v"[..], Condition::Always);
        let command = Command::Set { key: &key, value, condition, expiry, get: false };
        shard.execute(&command, shard.hash(&key), NOW);
    }
    let mut flush = shard.begin_flush(None).unwrap();
    let later = Now { unix_ms: NOW.unix_ms + 20, ..NOW };
    while answer(&mut shard, &mut flush).is_none() {
        shard.tick(later);
        assert_eq!(count(&mut shard), 0);
        shard.audit().unwrap();
    }
    assert_eq!(shard.stats().expiring, 0);
}

/// An empty shard after the replay of the shard's log.
fn shard_of_log(shard: &Shard) -> Shard {
    let mut copy = Shard::new(Owner::heap(16 << 20, NoJournal), ShardOptions::default());
    copy.begin_applying();
    for entry in shard.log().entries() {
        let applied = copy.apply(&entry.entry(), &Origin::WHOLE, NOW);
        assert_eq!(applied, Ok(Applied::Done), "{:?}", entry.entry());
    }
    copy
}

/// A key or an object that expires before the flush comes to it is no change of its
/// own: a log that said so could not be replayed.
#[test]
fn what_expires_meanwhile_goes_by_the_flush() {
    let at_ms = NOW.unix_ms + 10;
    for expiring_keys in [50, 0] {
        let mut shard = filled(100, 16);
        for number in 0..expiring_keys {
            let (key, condition) = (key(number), ExpireCondition::Always);
            let command = Command::Expire { key: &key, at_ms, condition };
            assert_eq!(shard.execute(&command, shard.hash(&key), NOW).number, 1);
        }
        let rect = Rect::point(1.0, 1.0).unwrap();
        let put = PutObject { expiry: Expiry::At(at_ms), ..PutObject::new(7, rect) };
        let request = TreeCommand::Put(put).checked().map(TreeCommand::request).unwrap();
        let command = Command::Of { key: b"tree", request };
        assert_eq!(shard.execute(&command, shard.hash(b"tree"), NOW).status, Status::Ok);
        let before = shard.last_sequence();
        shard.begin_flush(None).unwrap();
        let later = Now { unix_ms: at_ms, ..NOW };
        (0..9).for_each(|_| shard.tick(later));
        assert_eq!(shard.last_sequence(), before + 1);
        let mut copy = shard_of_log(&shard);
        assert_eq!(count(&mut copy), 0);
    }
}

#[test]
fn a_dead_records_guardian_says_so() {
    let mut shard = shard(16, Eviction::None);
    set(&mut shard, 1, b"v");
    let key = key(1);
    let pointer = shard.execute(&Command::Get { key: &key }, shard.hash(&key), NOW).pointer;
    assert_eq!(state_in(shard.owner(), pointer.slot), State::Live);
    shard.execute(&Command::Flush, KeyHash(0), NOW);
    assert_eq!(state_in(shard.owner(), pointer.slot), State::Dead);
}

/// Databases are filled, flushed one by one and all together, while flushes of
/// others are under way.
#[test]
fn flushes_of_several_databases_do_not_mix() {
    let mut shard = shard(16, Eviction::None);
    let mut model: BTreeMap<(u8, u64), Vec<u8>> = BTreeMap::new();
    let mut flushes: Vec<(LongRead, i64)> = Vec::new();
    let mut random = Random::new(11);
    let mut step = || random.bits() >> 33;
    let (mut together, mut ended) = (0, 0);
    for round in 0..30_000 {
        let database = Database::new(step() as usize % 3).unwrap();
        let (number, key) = (database.number(), step() % 4_000);
        let name = format!("key-{key}").into_bytes();
        let hash = KeyHash::within(database, &name, 0);
        match step() % 400 {
            0..200 => {
                let value = format!("{round}").into_bytes();
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                let command =
                    Command::Set { key: &name, value: &value, condition, expiry, get: false };
                assert_eq!(shard.execute(&command, hash, NOW).status, Status::Ok);
                model.insert((number, key), value);
            }
            200 => {
                let only = (step() % 3 > 0).then_some(database);
                let is_meant = |of: u8| only.is_none_or(|only| only.number() == of);
                let keys = model.keys().filter(|(of, _)| is_meant(*of)).count();
                model.retain(|(of, _), _| !is_meant(*of));
                flushes.push((shard.begin_flush(only).unwrap(), keys as i64));
            }
            201..210 => {
                let count = shard.execute(&Command::Count, KeyHash::without_key(database), NOW);
                let expected = model.keys().filter(|(of, _)| *of == number).count();
                assert_eq!(count.number, expected as i64);
                assert_eq!(shard.stats().keys, model.len() as u64);
            }
            _ => {
                let reply = shard.execute(&Command::Get { key: &name }, hash, NOW);
                assert_eq!(reply.value, model.get(&(number, key)).map(Vec::as_slice));
            }
        }
        if step() % 40 == 0 {
            shard.release_some(NOW);
        }
        together = together.max(flushes.len());
        flushes.retain_mut(|(flush, keys)| {
            let answer = answer(&mut shard, flush);
            assert!(answer.is_none_or(|told| told == *keys));
            ended += answer.is_some() as u64;
            answer.is_none()
        });
        if round % 200 == 0 {
            shard.audit().unwrap();
        }
    }
    assert!(together > 2 && ended > 40, "{together} {ended}");
}

//! The shard against a plain map, with expiry, conditions, counters, batches,
//! flushes and full memory; after each run its log is replayed into a second
//! shard, which must hold the same keys.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Shard, ShardOptions};
use remora_index::hash::{AskReason, walk_locally};
use remora_layout::kind::Kind;
use remora_layout::limits::ASK_ONLY_BYTES;
use remora_layout::record::RECORD_HEADER_BYTES;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, ExpireCondition, Expiry, Pairs};
use remora_testing::Random;
use std::collections::HashMap;

const KEYS: u64 = 300;

/// A shard whose table begins with two buckets.
fn shard(bytes: usize) -> Shard {
    shard_with(bytes, 2)
}

fn shard_with(bytes: usize, buckets: u64) -> Shard {
    let options = ShardOptions {
        region: 3,
        incarnation: 1,
        epoch: 1,
        hash_seed: 11,
        buckets,
        lease_min_s: 1,
        record_secret: 0x5ec2_e7ed,
        quarantine_bytes: 0,
        eviction: Eviction::None,
        ..ShardOptions::default()
    };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

/// Most bytes of a value where memory is enough.
const VALUE_MOST: usize = 400;

#[derive(Default)]
struct Oracle {
    /// Most bytes of a value.
    value_most: usize,
    keys: HashMap<Vec<u8>, (Vec<u8>, u64)>,
}

impl Oracle {
    fn new(value_most: usize) -> Self {
        Self { value_most, ..Self::default() }
    }

    fn live(&mut self, key: &[u8], now_ms: u64) -> Option<(Vec<u8>, u64)> {
        if self.keys.get(key).is_some_and(|(_, at)| *at != 0 && *at <= now_ms) {
            self.keys.remove(key);
        }
        self.keys.get(key).cloned()
    }
}

/// A key's value, and its expiry; 0 for never.
type Held = Option<(Vec<u8>, u64)>;

/// A SET of any form. Returns whether memory was full.
fn set_step(
    shard: &mut Shard,
    oracle: &mut Oracle,
    random: &mut Random,
    (key, present): (Vec<u8>, Held),
    now: Now,
) -> bool {
    let hash = shard.hash(&key);
    let value = random.value(oracle.value_most);
    let condition =
        [Condition::Always, Condition::IfAbsent, Condition::IfPresent][random.below(3) as usize];
    let expiry = match random.below(4) {
        0 => Expiry::At(now.unix_ms + 1 + random.below(3_000)),
        1 => Expiry::Keep,
        _ => Expiry::Never,
    };
    let get = random.below(2) == 0;
    let command = Command::Set { key: &key, value: &value, condition, expiry, get };
    let reply = shard.execute(&command, hash, now);
    if reply.status == Status::OutOfMemory {
        return true;
    }
    let allowed = match condition {
        Condition::Always => true,
        Condition::IfAbsent => present.is_none(),
        Condition::IfPresent => present.is_some(),
    };
    assert_eq!(reply.status, if allowed { Status::Ok } else { Status::NotDone });
    let old = present.as_ref().filter(|_| get).map(|(value, _)| value.as_slice());
    assert_eq!(reply.value, old);
    if allowed {
        let at = match expiry {
            Expiry::Never => 0,
            Expiry::Keep => present.map_or(0, |(_, at)| at),
            Expiry::At(at) => at,
        };
        oracle.keys.insert(key, (value, at));
    }
    false
}

/// A GET, and a walk to the record that it names.
fn get_step(shard: &mut Shard, (key, value): (&[u8], Option<&[u8]>), now: Now) {
    let hash = shard.hash(key);
    let reply = shard.execute(&Command::Get { key }, hash, now);
    assert_eq!(reply.value, value);
    if let Some(value) = value {
        let length = RECORD_HEADER_BYTES + key.len() + value.len();
        let pointer = reply.pointer;
        let is_ask_only = !pointer.is_some();
        assert!(pointer.length as usize == length || is_ask_only);
        let mut scratch = Vec::new();
        let words = shard.owner().view().clone();
        match walk_locally(&words, &mut shard.table_ref(), key, hash, Kind::STRING, &mut scratch) {
            Ok(found) => {
                assert_eq!((found.value, found.pointer), (value, pointer));
            }
            Err(reason) if is_ask_only => {
                assert!(reason == AskReason::Pending && value.len() > ASK_ONLY_BYTES);
            }
            Err(reason) => panic!("a quiet shard can be read: {reason:?}"),
        }
    }
}

/// Returns whether memory was full.
fn multi_set_step(shard: &mut Shard, oracle: &mut Oracle, random: &mut Random, now: Now) -> bool {
    let (mut list, mut pairs) = (Vec::new(), Vec::new());
    for _ in 0..1 + random.below(12) {
        let pair = (random.key("key-", KEYS), random.value(oracle.value_most));
        Pairs::push(&mut list, &pair.0, &pair.1);
        pairs.push(pair);
    }
    let command = Command::MultiSet { pairs: Pairs::parse(&list).unwrap() };
    let hash = shard.hash(&pairs[0].0);
    match shard.execute(&command, hash, now).status {
        Status::OutOfMemory => return true,
        status => assert_eq!(status, Status::Ok),
    }
    for (key, value) in pairs {
        oracle.keys.insert(key, (value, 0));
    }
    false
}

fn expire_step(
    shard: &mut Shard,
    oracle: &mut Oracle,
    random: &mut Random,
    (key, present): (Vec<u8>, Held),
    now: Now,
) {
    let hash = shard.hash(&key);
    let at_ms = (now.unix_ms + random.below(4_000)).saturating_sub(1_000);
    let conditions = [
        ExpireCondition::Always,
        ExpireCondition::IfNone,
        ExpireCondition::IfSome,
        ExpireCondition::IfLater,
        ExpireCondition::IfEarlier,
        ExpireCondition::IfSomeEarlier,
    ];
    let condition = conditions[random.below(6) as usize];
    let reply = shard.execute(&Command::Expire { key: &key, at_ms, condition }, hash, now);
    let allowed = present.as_ref().is_some_and(|(_, at)| {
        let effective = if *at == 0 { u64::MAX } else { *at };
        match condition {
            ExpireCondition::Always => true,
            ExpireCondition::IfNone => *at == 0,
            ExpireCondition::IfSome => *at != 0,
            ExpireCondition::IfLater => at_ms > effective,
            ExpireCondition::IfEarlier => at_ms < effective,
            ExpireCondition::IfSomeEarlier => *at != 0 && at_ms < effective,
        }
    });
    assert_eq!(reply.number, allowed as i64);
    if allowed {
        oracle.keys.get_mut(&key).unwrap().1 = at_ms;
    }
}

/// One random command against both. Returns whether memory was full.
fn step(shard: &mut Shard, oracle: &mut Oracle, random: &mut Random, now: Now) -> bool {
    let key = random.key("key-", KEYS);
    let hash = shard.hash(&key);
    let present = oracle.live(&key, now.unix_ms);
    if random.below(5) == 0 {
        return edit_step(shard, oracle, random, &key, now);
    }
    match random.below(100) {
        0..=29 => {
            return set_step(shard, oracle, random, (key, present), now);
        }
        30..=44 => {
            let reply = shard.execute(&Command::Del { key: &key }, hash, now);
            assert_eq!(reply.number, present.is_some() as i64);
            oracle.keys.remove(&key);
        }
        45..=69 => {
            let value = present.as_ref().map(|(value, _)| value.as_slice());
            get_step(shard, (&key, value), now);
        }
        70..=76 => {
            let by = random.below(2000) as i64 - 1000;
            let reply = shard.execute(&Command::Incr { key: &key, by }, hash, now);
            let before = present.as_ref().map_or(Some(0), |(value, _)| {
                let text = std::str::from_utf8(value).ok()?;
                text.parse::<i64>().ok().filter(|number| number.to_string() == text)
            });
            match before {
                _ if reply.status == Status::OutOfMemory => return true,
                None => assert_eq!(reply.status, Status::NotAnInteger),
                Some(before) => {
                    assert_eq!((reply.status, reply.number), (Status::Ok, before + by));
                    let at = present.map_or(0, |(_, at)| at);
                    oracle.keys.insert(key, ((before + by).to_string().into_bytes(), at));
                }
            }
        }
        77..=84 => {
            expire_step(shard, oracle, random, (key, present), now);
        }
        85..=89 => {
            let reply = shard.execute(&Command::Ttl { key: &key }, hash, now);
            let expected = match present {
                None => -2,
                Some((_, 0)) => -1,
                Some((_, at)) => (at - now.unix_ms) as i64,
            };
            assert_eq!(reply.number, expected);
        }
        90..=98 => {
            return multi_set_step(shard, oracle, random, now);
        }
        _ if random.below(40) == 0 => {
            shard.execute(&Command::Flush, hash, now);
            assert_eq!(shard.stats().overflow_buckets, 0, "an empty table needs none");
            oracle.keys.clear();
        }
        _ => shard.tick(now),
    }
    false
}

/// One random piecemeal command against both; `string_oracle.rs` has the
/// edges, this has the company of all other commands.
fn edit_step(
    shard: &mut Shard,
    oracle: &mut Oracle,
    random: &mut Random,
    key: &[u8],
    now: Now,
) -> bool {
    let hash = shard.hash(key);
    let (mut value, at) = oracle.live(key, now.unix_ms).unwrap_or_default();
    let part = random.bytes_up_to(39);
    let offset = random.below(400);
    let (bit, on) = (1u8 << random.below(8), random.below(2) == 1);
    let kind = random.below(4);
    let command = match kind {
        0 => Command::Append { key, value: &part },
        1 => Command::SetRange { key, offset, value: &part },
        2 => {
            let offset = offset as u32 * 8 + bit.leading_zeros();
            Command::SetBit { key, offset, bit: on }
        }
        _ => Command::GetEx { key, at_ms: on.then(|| now.unix_ms + random.below(2_000)) },
    };
    let reply = shard.execute(&command, hash, now);
    if reply.status == Status::OutOfMemory {
        return true;
    }
    let (mut kept_at, mut writes) = (at, true);
    let offset = offset as usize;
    let number = match command {
        Command::Append { .. } => {
            value.extend(&part);
            value.len() as i64
        }
        Command::SetRange { .. } => {
            writes = !part.is_empty();
            if writes {
                value.resize(value.len().max(offset + part.len()), 0);
                value[offset..offset + part.len()].copy_from_slice(&part);
            }
            value.len() as i64
        }
        Command::SetBit { .. } => {
            value.resize(value.len().max(offset + 1), 0);
            let before = value[offset] & bit != 0;
            value[offset] = if on { value[offset] | bit } else { value[offset] & !bit };
            before as i64
        }
        Command::GetEx { at_ms, .. } => {
            writes = oracle.keys.contains_key(key);
            assert_eq!(reply.value, writes.then_some(value.as_slice()));
            kept_at = at_ms.unwrap_or(0);
            0
        }
        other => unreachable!("{other:?}"),
    };
    assert_eq!(reply.number, number, "{command:?}");
    if writes {
        oracle.keys.insert(key.to_vec(), (value, kept_at));
    }
    false
}

fn check_all(shard: &mut Shard, oracle: &mut Oracle, now: Now) {
    for number in 0..KEYS {
        let key = format!("key-{number}").into_bytes();
        let hash = shard.hash(&key);
        let expected = oracle.live(&key, now.unix_ms);
        let reply = shard.execute(&Command::Get { key: &key }, hash, now);
        assert_eq!(reply.value, expected.as_ref().map(|(value, _)| value.as_slice()));
        let ttl = shard.execute(&Command::Ttl { key: &key }, hash, now).number;
        assert_eq!(ttl >= 0, expected.is_some_and(|(_, at)| at != 0));
    }
    assert_eq!(shard.stats().keys as usize, oracle.keys.len());
    let expiring = oracle.keys.values().filter(|(_, at)| *at != 0).count();
    assert_eq!(shard.stats().expiring as usize, expiring);
}

/// How often memory was full, and how many records were moved.
fn run(mut random: Random, value_most: usize, bytes: usize, steps: u64) -> (u64, u64) {
    let mut shard = shard(bytes);
    let mut oracle = Oracle::new(value_most);
    let mut full = 0;
    let mut now = Now::default();
    for at in 0..steps {
        now = Now { unix_ms: 1_000_000 + at * 3, since_start_s: at * 3 / 1000 };
        full += step(&mut shard, &mut oracle, &mut random, now) as u64;
        if at % 1_000 == 0 {
            check_all(&mut shard, &mut oracle, now);
        }
    }
    check_all(&mut shard, &mut oracle, now);
    (full, shard.stats().moved)
}

#[test]
fn long_random_histories_agree_with_a_map() {
    for seed in 1..=6 {
        assert_eq!(run(Random::new(seed), VALUE_MOST, 8 << 20, 12_000), (0, 0), "memory enough");
    }
}

#[test]
fn full_memory_changes_nothing_and_is_said() {
    for (seed, value_most) in [(11, 12_000), (12, 9_000), (13, 30_000), (14, 60_000)] {
        let (full, moved) = run(Random::new(seed), value_most, 1 << 20, 12_000);
        assert!(full > 100 && moved > 100, "full {full} times, {moved} records moved");
    }
}

#[test]
fn the_log_replays_to_the_same_keys() {
    for seed in 21..=26 {
        let (mut first, mut second) = (shard(8 << 20), shard(8 << 20));
        let mut oracle = Oracle::new(VALUE_MOST);
        let mut random = Random::new(seed);
        // Few enough steps that the whole log is still in memory.
        let mut now = Now::default();
        for at in 0..2_000 {
            now = Now { unix_ms: 1_000_000 + at * 3, since_start_s: at * 3 / 1000 };
            step(&mut first, &mut oracle, &mut random, now);
        }
        let entries = first.log().entries();
        assert_eq!(entries[0].sequence, 1, "nothing was dropped");
        for entry in entries {
            let (command, _) = Command::decode(entry.operation()).unwrap();
            let hash = second.hash(command.key().unwrap_or_default());
            // At the first time: only the log removes keys.
            second.execute(&command, hash, Now { unix_ms: 1_000_000, since_start_s: 0 });
        }
        check_all(&mut second, &mut oracle, now);
    }
}

#[test]
fn terms_follow_popularity() {
    let mut shard = shard(1 << 20);
    let set = Command::Set {
        key: b"k",
        value: b"v",
        condition: Condition::Always,
        expiry: Expiry::Never,
        get: false,
    };
    let hash = shard.hash(b"k");
    shard.execute(&set, hash, Now::default());
    let mut terms = Vec::new();
    for since_start_s in [10, 10, 10, 11, 12, 13, 14, 15] {
        let now = Now { unix_ms: 1, since_start_s };
        terms.push(shard.execute(&Command::Get { key: b"k" }, hash, now).lease_ms);
    }
    assert_eq!(terms, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000]);
    // Long after the last lease has ended the key is less popular again.
    let now = Now { unix_ms: 1, since_start_s: 1_000 };
    assert_eq!(shard.execute(&Command::Get { key: b"k" }, hash, now).lease_ms, 32_000);
}

/// A SET for a shard, with an expiry or without.
fn set_at(shard: &mut Shard, number: u32, at_ms: u64) {
    let key = number.to_le_bytes();
    let expiry = if at_ms == 0 { Expiry::Never } else { Expiry::At(at_ms) };
    let condition = Condition::Always;
    let command = Command::Set { key: &key, value: b"v", condition, expiry, get: false };
    let hash = shard.hash(&key);
    assert_eq!(shard.execute(&command, hash, Now::default()).status, Status::Ok);
}

#[test]
fn a_table_grows_with_its_keys_and_one_view_is_enough() {
    let mut shard = shard(8 << 20);
    let mut view = shard.table_ref();
    for number in 0..20_000 {
        set_at(&mut shard, number, 0);
    }
    let stats = shard.stats();
    assert_eq!((stats.keys, view.buckets()), (20_000, 2));
    assert_eq!(stats.buckets, 20_000 * 4 / 21 + 1, "5.25 records a bucket");
    assert!(stats.table_bytes * 10 <= 159 * stats.keys, "{stats:?}");
    let (words, mut scratch) = (shard.owner().view().clone(), Vec::new());
    for number in 0..20_000u32 {
        let key = number.to_le_bytes();
        let hash = shard.hash(&key);
        assert!(walk_locally(&words, &mut view, &key, hash, Kind::STRING, &mut scratch).is_ok());
    }
    assert_eq!(view.buckets(), stats.buckets, "it was told");
}

#[test]
fn several_keys_at_once_make_the_table_grow_as_much() {
    let mut shard = shard(8 << 20);
    for first in (0..4_000u32).step_by(100) {
        let mut list = Vec::new();
        for number in first..first + 100 {
            Pairs::push(&mut list, &number.to_le_bytes(), b"v");
        }
        let command = Command::MultiSet { pairs: Pairs::parse(&list).unwrap() };
        let hash = shard.hash(b"");
        assert_eq!(shard.execute(&command, hash, Now::default()).status, Status::Ok);
    }
    assert_eq!(shard.stats().buckets, 4_000 * 4 / 21 + 1);
    for number in 0..4_000u32 {
        let key = number.to_le_bytes();
        let hash = shard.hash(&key);
        assert!(shard.execute(&Command::Get { key: &key }, hash, Now::default()).value.is_some());
    }
}

#[test]
fn the_sweep_meets_every_expired_key_while_the_table_grows() {
    let mut shard = shard(8 << 20);
    let now = Now { unix_ms: 1_000, since_start_s: 0 };
    for number in 0..3_000 {
        set_at(&mut shard, number, 500);
    }
    // New keys, and so splits, between the sweep's turns.
    let mut ticks = 0;
    for number in 3_000.. {
        set_at(&mut shard, number, 0);
        shard.tick(now);
        ticks += 1;
        if shard.stats().expiring == 0 {
            break;
        }
        assert!(ticks < 200, "{:?}", shard.stats());
    }
    let stats = shard.stats();
    assert_eq!((stats.expired, stats.keys), (3_000, ticks));
}

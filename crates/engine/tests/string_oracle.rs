//! Piecemeal commands against a plain `Vec<u8>`, at all the edges: offsets at
//! the limit, empty parts, absent and expired keys, bits behind the end. After
//! each run the log is replayed into a second shard.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_index::hash::{AskReason, walk_locally};
use remora_layout::kind::Kind;
use remora_layout::limits::{ASK_ONLY_BYTES, MAX_VALUE_BYTES};
use remora_protocol::Reply;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};
use remora_testing::Random;

const MOST: u64 = MAX_VALUE_BYTES as u64;
/// Long enough to be changed in place.
const LONG: u64 = 64 << 10;
const NAMES: [&[u8]; 4] = [b"", b"a", b"b", b"absent most of the time"];
const START: Now = Now { unix_ms: 1_000_000, since_start_s: 0 };

/// A key as the model has it: its value and expiry (0: never).
type Held = Option<(Vec<u8>, u64)>;

fn shard() -> Shard {
    let options = ShardOptions { hash_seed: 5, buckets: 32, ..ShardOptions::default() };
    Shard::new(Owner::heap(8 << 20, NoJournal), options)
}

/// Mostly small, sometimes long, beyond the limit, or absurd.
fn offset(random: &mut Random) -> u64 {
    random.mostly_below(70, &[LONG - 8..LONG + 8, MOST..MOST + 16, u64::MAX - 8..u64::MAX])
}

fn bit_offset(random: &mut Random) -> u32 {
    let absurd = u64::from(u32::MAX);
    let rare = [LONG * 8 - 8..LONG * 8 + 8, MOST * 8..MOST * 8 + 16, absurd - 7..absurd + 1];
    random.mostly_below(500, &rare) as u32
}

fn bound(random: &mut Random) -> i32 {
    match random.below(12) {
        0 => i32::MIN + random.below(3),
        1 => i32::MAX - random.below(3),
        _ => random.below(160) - 80,
    }
}

fn part(random: &mut Random) -> Vec<u8> {
    let bytes = if random.one_in(200) { LONG - random.below(3) } else { random.below(30) };
    random.bytes(bytes as usize)
}

/// The expected reply to an edit that makes `new`; the model is changed.
fn model_edit(held: &mut Held, new: Option<Vec<u8>>, number: i64) -> (Status, i64) {
    match new {
        None => (Status::TooLarge, 0),
        Some(new) => {
            let at = held.as_ref().map_or(0, |(_, at)| *at);
            *held = Some((new, at));
            (Status::Ok, number)
        }
    }
}

/// `old` with `part` written at `offset`, if that fits the limit.
fn written(old: &[u8], offset: u64, part: &[u8]) -> Option<Vec<u8>> {
    let end = offset.checked_add(part.len() as u64).filter(|end| *end <= MOST)? as usize;
    let mut new = old.to_vec();
    if new.len() < end {
        new.resize(end, 0);
    }
    new[offset as usize..end].copy_from_slice(part);
    Some(new)
}

fn reply_of(reply: &Reply<'_>) -> (Status, i64) {
    (reply.status, reply.number)
}

/// A reply that came with a pointer is where the record now is.
fn check_record(shard: &Shard, key: &[u8], held: &Held) {
    let words = shard.owner().view().clone();
    let mut scratch = Vec::new();
    let found = walk_locally(
        &words,
        &mut shard.table_ref(),
        key,
        shard.hash(key),
        Kind::STRING,
        &mut scratch,
    );
    match (found, held) {
        (Ok(found), Some((value, at))) => {
            assert_eq!((found.value, found.mutable.expires_at_ms), (value.as_slice(), *at));
        }
        (Ok(_), None) => panic!("a key that is not there is read"),
        (Err(AskReason::Pending), Some((value, _))) => assert!(value.len() > ASK_ONLY_BYTES),
        (Err(reason), held) => assert!(held.is_none(), "{reason:?}"),
    }
}

fn edit(shard: &mut Shard, random: &mut Random, key: &[u8], held: &mut Held, now: Now) {
    let hash = shard.hash(key);
    let old = held.as_ref().map(|(value, _)| value.clone()).unwrap_or_default();
    let sequence = shard.log().last_sequence();
    let before = held.clone();
    // SETRANGE writes also the bytes that are there already.
    let mut is_written = false;
    match random.below(3) {
        0 => {
            let part = part(random);
            let new = written(&old, old.len() as u64, &part);
            let expected = model_edit(held, new, (old.len() + part.len()) as i64);
            let reply = shard.execute(&Command::Append { key, value: &part }, hash, now);
            assert_eq!(reply_of(&reply), expected);
        }
        1 => {
            let (offset, part) = (offset(random), part(random));
            let expected = if part.is_empty() {
                (Status::Ok, old.len() as i64)
            } else {
                let new = written(&old, offset, &part);
                let length = new.as_ref().map_or(0, Vec::len) as i64;
                model_edit(held, new, length)
            };
            is_written = !part.is_empty() && expected.0 == Status::Ok;
            let command = Command::SetRange { key, offset, value: &part };
            assert_eq!(reply_of(&shard.execute(&command, hash, now)), expected);
        }
        _ => {
            let (offset, bit) = (bit_offset(random), random.below(2) == 1);
            let (byte, shift) = (offset as usize / 8, 7 - offset % 8);
            let was = old.get(byte).copied().unwrap_or(0);
            let new = was & !(1 << shift) | u8::from(bit) << shift;
            let number = i64::from(was >> shift & 1);
            let expected = model_edit(held, written(&old, byte as u64, &[new]), number);
            let reply = shard.execute(&Command::SetBit { key, offset, bit }, hash, now);
            assert_eq!(reply_of(&reply), expected);
        }
    }
    // An edit without a change costs the log nothing, and one edit is one entry.
    let entries = shard.log().last_sequence() - sequence;
    assert_eq!(entries, u64::from(is_written || *held != before));
    check_record(shard, key, held);
}

fn look(shard: &mut Shard, random: &mut Random, key: &[u8], held: &mut Held, now: Now) {
    let hash = shard.hash(key);
    let value = held.as_ref().map(|(value, _)| value.clone());
    let bytes = value.clone().unwrap_or_default();
    match random.below(5) {
        0 => {
            let reply = shard.execute(&Command::StrLen { key }, hash, now);
            assert_eq!(reply_of(&reply), (Status::Ok, bytes.len() as i64));
        }
        1 => {
            let offset = bit_offset(random);
            let row = bytes.get(offset as usize / 8).map_or(0, |byte| byte << (offset % 8) >> 7);
            let reply = shard.execute(&Command::GetBit { key, offset }, hash, now);
            assert_eq!(reply_of(&reply), (Status::Ok, i64::from(row)));
        }
        2 => {
            let (start, end) = (bound(random), bound(random));
            let place = |at: i32| match i64::from(at) {
                at if at < 0 => (at + bytes.len() as i64).max(0) as usize,
                at => at as usize,
            };
            let crossed = start < 0 && end < 0 && start > end;
            let expected: Vec<u8> = (0..bytes.len())
                .filter(|at| !crossed && *at >= place(start) && *at <= place(end))
                .map(|at| bytes[at])
                .collect();
            let reply = shard.execute(&Command::GetRange { key, start, end }, hash, now);
            assert_eq!((reply.status, reply.value), (Status::Ok, Some(expected.as_slice())));
        }
        3 => {
            let reply = shard.execute(&Command::GetDel { key }, hash, now);
            let status = if value.is_some() { Status::Ok } else { Status::NotFound };
            assert_eq!((reply.status, reply.value), (status, value.as_deref()));
            *held = None;
            check_record(shard, key, held);
        }
        _ => {
            let at_ms =
                [None, Some(now.unix_ms + random.below(300)), Some(5)][random.below(3) as usize];
            let reply = shard.execute(&Command::GetEx { key, at_ms }, hash, now);
            assert_eq!(reply.value, value.as_deref());
            *held = value.map(|value| (value, at_ms.unwrap_or(0)));
            if at_ms.is_some_and(|at| at <= now.unix_ms) {
                *held = None;
            }
            check_record(shard, key, held);
        }
    }
}

/// One random command on one random key.
fn step(shard: &mut Shard, random: &mut Random, model: &mut [Held; 4], now: Now) {
    let at = random.below(4) as usize;
    let (key, held) = (NAMES[at], &mut model[at]);
    if held.as_ref().is_some_and(|(_, at)| *at != 0 && *at <= now.unix_ms) {
        *held = None;
        // Met by a plain read, so that the step's own entries can be counted.
        let hash = shard.hash(key);
        assert_eq!(shard.execute(&Command::Exists { key }, hash, now).number, 0);
    }
    match random.below(20) {
        0 => {
            let hash = shard.hash(key);
            let (value, at_ms) = (part(random), now.unix_ms + 1 + random.below(400));
            let (condition, expiry) = (Condition::Always, Expiry::At(at_ms));
            let set = Command::Set { key, value: &value, condition, expiry, get: false };
            assert_eq!(shard.execute(&set, hash, now).status, Status::Ok);
            *held = Some((value, at_ms));
        }
        1..=12 => edit(shard, random, key, held, now),
        _ => look(shard, random, key, held, now),
    }
}

#[test]
fn thousands_of_edits_agree_with_a_vector() {
    for seed in 1..=4 {
        let (mut shard, mut random) = (shard(), Random::new(seed));
        let mut model = [const { None }; 4];
        for at in 0..6_000 {
            let now = Now { unix_ms: START.unix_ms + at, since_start_s: at / 1_000 };
            step(&mut shard, &mut random, &mut model, now);
        }
    }
}

#[test]
fn the_log_of_edits_replays_to_the_same_values() {
    let mut replayed_at_limit = 0;
    for seed in 11..=16 {
        let (mut first, mut second) = (shard(), shard());
        let (mut random, mut model) = (Random::new(seed), [const { None }; 4]);
        let mut now = START;
        for at in 0..800 {
            now = Now { unix_ms: START.unix_ms + at, since_start_s: 0 };
            step(&mut first, &mut random, &mut model, now);
        }
        // Expired keys that no command has met yet are still in both.
        for (held, key) in model.iter_mut().zip(NAMES) {
            let hash = first.hash(key);
            first.execute(&Command::Exists { key }, hash, now);
            held.take_if(|(_, at)| *at != 0 && *at <= now.unix_ms);
        }
        let entries = first.log().entries();
        assert_eq!(entries[0].sequence, 1, "nothing was dropped");
        for entry in entries {
            let (command, _) = Command::decode(entry.operation()).unwrap();
            let hash = second.hash(command.key().unwrap_or_default());
            // At the first time: only the log removes keys.
            assert_eq!(second.execute(&command, hash, START).status, Status::Ok);
        }
        for (key, held) in NAMES.iter().zip(&model) {
            check_record(&second, key, held);
            replayed_at_limit += held.as_ref().is_some_and(|(v, _)| v.len() > 60_000) as u32;
        }
    }
    assert!(replayed_at_limit > 0, "some value was near the limit");
}

#[test]
fn a_bit_of_a_long_value_costs_the_log_little() {
    let mut shard = shard();
    let hash = shard.hash(b"k");
    let bytes = |shard: &Shard| -> usize {
        shard.log().entries().iter().map(|entry| entry.operation().len()).sum()
    };
    let offset = LONG as u32 * 8 - 1;
    for round in 0..100 {
        let command = Command::SetBit { key: b"k", offset: offset - round, bit: true };
        assert_eq!(shard.execute(&command, hash, START).number, 0);
    }
    assert!(bytes(&shard) < 100 * 64, "{}", bytes(&shard));
}

//! A shard at work while other threads walk its table and read its records: a reader always finds
//! some value of the key that it looked for.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_index::hash::walk_locally;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_protocol::{Command, Condition, Expiry};
use remora_testing::Random;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYS: u64 = if cfg!(miri) { 6 } else { 200 };
const STEPS: u64 = if cfg!(miri) { 150 } else { 60_000 };
const SEED: u64 = 11;
/// How long the readers may take to begin.
const DEADLINE: Duration = Duration::from_secs(120);

/// Stops the readers when the writer is done, or has failed.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

/// A value that names its key and is of one round throughout.
fn value(number: u64, round: u64) -> Vec<u8> {
    let word = number << 32 | round & 0xffff_ffff;
    word.to_le_bytes().repeat(1 + (round % 20) as usize)
}

fn check(number: u64, value: &[u8]) {
    let words: Vec<&[u8]> = value.chunks(8).collect();
    assert!(words.iter().all(|word| *word == words[0]), "a mixed value");
    let word = u64::from_le_bytes(words[0].try_into().unwrap());
    assert_eq!(word >> 32, number, "a value of another key");
}

#[test]
fn walks_beside_a_busy_shard_find_whole_values_of_their_keys() {
    let options = ShardOptions { hash_seed: SEED, buckets: 8, ..ShardOptions::default() };
    let mut shard = Shard::new(Owner::heap(2 << 20, NoJournal), options);
    let table = shard.table_ref();
    let (stop, found) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ending = StopAtEnd(&stop);
        for seed in 1..=2u64 {
            let (words, table) = (shard.owner().view().clone(), &table);
            let (stop, found) = (&stop, &found);
            scope.spawn(move || {
                let (mut random, mut scratch) = (Random::new(seed), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let number = random.below(KEYS);
                    let key = key(number);
                    let hash = KeyHash::of(&key, SEED);
                    if let Ok(record) = walk_locally(
                        &words,
                        &mut table.clone(),
                        &key,
                        hash,
                        Kind::STRING,
                        &mut scratch,
                    ) {
                        check(number, record.value);
                        found.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            });
        }
        let mut random = Random::new(77);
        // A busy machine may run the readers late.
        let began = Instant::now();
        let is_found = || cfg!(miri) || found.load(Ordering::Relaxed) > 0;
        for step in 0.. {
            if step >= STEPS && is_found() {
                break;
            }
            assert!(step < STEPS || began.elapsed() < DEADLINE, "nobody finds anything");
            let number = random.below(KEYS);
            let key = key(number);
            let hash = shard.hash(&key);
            let now = Now { unix_ms: 1_000_000 + step, since_start_s: step / 1000 };
            let value = value(number, step);
            let (condition, expiry) = (Condition::Always, Expiry::Never);
            let set = Command::Set { key: &key, value: &value, condition, expiry, get: false };
            let command = match random.below(10) {
                0 => Command::Del { key: &key },
                1..=3 => Command::Get { key: &key },
                _ => set,
            };
            shard.execute(&command, hash, now);
            if step % 16 == 0 {
                std::thread::yield_now();
            }
        }
    });
}

//! The shard with eviction against a plain map. A key that is there has its
//! right value; one that is not was removed, or stands in the log as evicted;
//! counts add up, and memory stays within the arena.

use remora_arena::{NoJournal, Owner};
use remora_engine::command::{Command, Condition, Expiry, Pairs};
use remora_engine::evict::Id;
use remora_engine::{Eviction, Now, Shard, ShardOptions};
use remora_layout::message::Status;
use std::collections::{HashMap, HashSet};

/// Keys of the random histories.
const KEYS: u64 = 12_000;

fn shard(bytes: usize, eviction: Eviction) -> Shard {
    let options = ShardOptions {
        region: 3,
        life: 1,
        epoch: 1,
        hash_seed: 11,
        buckets: 64,
        lease_min_s: 1,
        eviction,
    };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }
}

/// What should be there: values and expiries. Evicted keys stay in it until
/// the log has told of them.
#[derive(Default)]
struct Oracle {
    keys: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    /// The keys as a replica has them that follows the log.
    replica: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    /// Sequence of the last entry that the replica has.
    seen: u64,
    /// Keys that were found absent, and not because of a DEL or an expiry.
    missed: Vec<Vec<u8>>,
}

impl Oracle {
    fn live(&self, key: &[u8], now_ms: u64) -> Option<Vec<u8>> {
        let (value, at) = self.keys.get(key)?;
        (*at == 0 || *at > now_ms).then(|| value.clone())
    }

    /// What the shard says of a key: right, or absent because evicted.
    fn check(&mut self, key: &[u8], got: Option<&[u8]>, now_ms: u64) {
        let expected = self.live(key, now_ms);
        if got.is_none() && expected.is_some() {
            self.missed.push(key.to_vec());
            self.keys.remove(key);
            return;
        }
        assert_eq!(got, expected.as_deref());
    }

    /// Follows the log, as a replica would; then both must agree.
    fn follow(&mut self, shard: &Shard) {
        let mut deleted = HashSet::new();
        let entries = shard.log().entries();
        assert!(entries.first().is_none_or(|first| first.sequence <= self.seen + 1), "a gap");
        let seen = std::mem::replace(&mut self.seen, shard.log().last_sequence());
        for entry in entries.iter().filter(|entry| entry.sequence > seen) {
            match Command::decode(&entry.command).unwrap().0 {
                Command::Set { key, value, expiry, .. } => {
                    let at = if let Expiry::At(at) = expiry { at } else { 0 };
                    self.replica.insert(key.to_vec(), (value.to_vec(), at));
                }
                Command::MultiSet { pairs } => pairs.iter().for_each(|(key, value)| {
                    self.replica.insert(key.to_vec(), (value.to_vec(), 0));
                }),
                Command::Del { key } => {
                    assert!(self.replica.remove(key).is_some(), "what is deleted was there");
                    deleted.insert(key.to_vec());
                }
                Command::Flush => self.replica.clear(),
                other => panic!("never logged: {other:?}"),
            }
        }
        for key in self.missed.drain(..) {
            assert!(deleted.contains(&key), "absent, but not in the log");
        }
        for (key, held) in &self.replica {
            assert_eq!(Some(held), self.keys.get(key));
        }
        self.keys = self.replica.clone();
        assert_eq!(shard.stats().keys as usize, self.keys.len());
        let expiring = self.keys.values().filter(|(_, at)| *at != 0).count();
        assert_eq!(shard.stats().expiring as usize, expiring);
    }
}

fn set<'a>(key: &'a [u8], value: &'a [u8], expiry: Expiry, get: bool) -> Command<'a> {
    Command::Set { key, value, condition: Condition::Always, expiry, get }
}

/// One random command against both. Whether memory was full all the same.
fn step(
    shard: &mut Shard,
    oracle: &mut Oracle,
    random: &mut Random,
    largest: u64,
    now: Now,
) -> bool {
    let key = format!("key-{:05}", random.below(KEYS)).into_bytes();
    let hash = shard.hash(&key);
    match random.below(100) {
        0..=49 => {
            let value = vec![now.unix_ms as u8; random.below(largest) as usize];
            let at = [0, now.unix_ms + 1 + random.below(3_000)][(random.below(5) == 0) as usize];
            let expiry = if at == 0 { Expiry::Never } else { Expiry::At(at) };
            let reply = shard.execute(&set(&key, &value, expiry, true), hash, now);
            if reply.status == Status::OutOfMemory {
                return true;
            }
            assert_eq!(reply.status, Status::Ok);
            oracle.check(&key, reply.value, now.unix_ms);
            oracle.keys.insert(key, (value, at));
        }
        50..=79 => {
            let reply = shard.execute(&Command::Get { key: &key }, hash, now);
            oracle.check(&key, reply.value, now.unix_ms);
            if reply.status == Status::Ok {
                let (slot, generation) = (reply.pointer.slot, reply.pointer.generation);
                shard.hint_touched(Id { slot, generation });
            }
        }
        80..=84 => {
            shard.execute(&Command::Del { key: &key }, hash, now);
            oracle.keys.remove(&key);
        }
        85..=96 => {
            let mut list = Vec::new();
            for _ in 0..1 + random.below(8) {
                let key = format!("key-{:05}", random.below(KEYS)).into_bytes();
                Pairs::push(&mut list, &key, &vec![7; random.below(largest) as usize]);
            }
            let pairs = Pairs::parse(&list).unwrap();
            if shard.execute(&Command::MultiSet { pairs }, hash, now).status != Status::Ok {
                return true;
            }
            for (key, value) in pairs.iter() {
                oracle.keys.insert(key.to_vec(), (value.to_vec(), 0));
            }
        }
        97 if random.below(300) == 0 => {
            shard.execute(&Command::Flush, hash, now);
            oracle.keys.clear();
        }
        // A hint of another life of the slot, or of no slot at all.
        97 => shard.hint_touched(Id {
            slot: random.below(1 << 32) as u32,
            generation: random.below(9) as u32,
        }),
        _ => shard.tick(now),
    }
    false
}

/// A random history; gives how many keys were evicted, and how often memory
/// was full all the same.
fn run(seed: u64, bytes: usize, largest: u64, steps: u64) -> (u64, u64) {
    let mut shard = shard(bytes, Eviction::S3Fifo);
    let total = shard.stats().slots.uncarved_bytes;
    let mut oracle = Oracle::default();
    let mut random = Random(seed);
    let mut full = 0;
    let mut now = Now::default();
    for at in 0..steps {
        now = Now { unix_ms: 1_000_000 + at * 3, since_start_s: at * 3 / 1000 };
        full += step(&mut shard, &mut oracle, &mut random, largest, now) as u64;
        let slots = shard.stats().slots;
        let all = slots.used_bytes + slots.free_bytes + slots.quarantine_bytes;
        assert_eq!(all + slots.retired_bytes + slots.uncarved_bytes, total, "no byte is lost");
        if at % 64 == 63 {
            oracle.follow(&shard);
        }
    }
    oracle.follow(&shard);
    for number in 0..KEYS {
        let key = format!("key-{number:05}").into_bytes();
        let hash = shard.hash(&key);
        let got = shard.execute(&Command::Get { key: &key }, hash, now).value;
        assert_eq!(got, oracle.live(&key, now.unix_ms).as_deref());
    }
    (shard.stats().evicted, full)
}

#[test]
fn random_histories_with_eviction_agree_with_a_map() {
    for seed in 1..=2 {
        let (evicted, full) = run(seed, 512 << 10, 64, 12_000);
        println!("{evicted} evicted, {full} times full");
        assert!(evicted > 500, "{evicted}");
        // Slots keep their class: where the largest that is wanted
        // has no slot, no victim makes room for it.
        assert!(full < 100, "{full}");
    }
}

#[test]
fn records_of_one_size_never_meet_a_full_memory() {
    for seed in 11..=13 {
        let (evicted, full) = run(seed, 160 << 10, 1, 8_000);
        assert!(evicted > 500 && full == 0, "{evicted} evicted, {full} times full");
    }
}

#[test]
fn without_eviction_the_limit_is_an_error_and_nothing_goes() {
    let mut shard = shard(128 << 10, Eviction::None);
    let now = Now::default();
    let mut kept = 0u32;
    loop {
        let key = kept.to_le_bytes();
        let hash = shard.hash(&key);
        if shard.execute(&set(&key, &[1; 100], Expiry::Never, false), hash, now).status
            != Status::Ok
        {
            break;
        }
        kept += 1;
    }
    assert!(kept > 300);
    assert_eq!((shard.stats().keys, shard.stats().evicted), (kept as u64, 0));
}

#[test]
fn leased_records_can_be_evicted_and_a_hot_set_outlives_a_scan() {
    let mut shard = shard(256 << 10, Eviction::S3Fifo);
    let now = Now { unix_ms: 1_000_000, since_start_s: 10 };
    let put = |shard: &mut Shard, number: u32| {
        let key = number.to_le_bytes();
        let hash = shard.hash(&key);
        let reply = shard.execute(&set(&key, &[1; 100], Expiry::Never, false), hash, now);
        assert_eq!(reply.status, Status::Ok, "{number}");
    };
    let get = |shard: &mut Shard, number: u32| {
        let key = number.to_le_bytes();
        let hash = shard.hash(&key);
        shard.execute(&Command::Get { key: &key }, hash, now).status == Status::Ok
    };
    // 300 hot records of about 1600 that fit; one GET each, then they are
    // read one-sidedly, and asked for again once in 3000 scanned ones.
    (0..300).for_each(|number| put(&mut shard, number));
    (0..300).for_each(|number| assert!(get(&mut shard, number)));
    for scanned in 0..30_000u32 {
        put(&mut shard, 1_000 + scanned);
        // Each record of the scan is leased too.
        if scanned % 10 == 0 {
            get(&mut shard, scanned / 10 * 7 % 300);
        }
    }
    let kept = (0..300).filter(|&number| get(&mut shard, number)).count();
    assert!(kept >= 295, "{kept} of 300");
    // All is leased, and no time passes: room is found nevertheless.
    let before = shard.stats().evicted;
    for number in 40_000..44_000 {
        put(&mut shard, number);
        assert!(get(&mut shard, number));
    }
    assert_eq!(shard.stats().evicted, before + 4_000, "one for each");
}

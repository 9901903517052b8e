//! The shard with eviction against a plain map. A key that is there has its
//! right value; one that is not was removed, or stands in the log as evicted;
//! no write is refused; counts add up, and memory stays within the arena.

use remora_arena::{NoJournal, Owner};
use remora_engine::evict::Id;
use remora_engine::{Eviction, Now, Shard, ShardOptions};
use remora_layout::limits::MAX_VALUE_BYTES;
use remora_layout::record::{Guardian, State};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry, Pairs};
use remora_testing::Random;
use std::collections::{HashMap, HashSet, VecDeque};

/// The parameters of a random history.
struct Mix {
    arena_bytes: usize,
    keys: u64,
    /// Values are shorter than this,
    short: u64,
    /// but for one in so many, which has 8 KiB to 256 KiB; 0: none.
    long_one_in: u64,
    /// Most pairs of one MSET.
    pairs: u64,
}

impl Mix {
    fn key(&self, random: &mut Random) -> Vec<u8> {
        key_of(random.below(self.keys))
    }

    /// A value that looks like many live records of low generations: at a
    /// former record's place its bytes must prove nothing.
    fn value(&self, random: &mut Random) -> Vec<u8> {
        let is_long = self.long_one_in > 0 && random.below(self.long_one_in) == 0;
        let bytes =
            if is_long { (8 << 10) + random.below(248 << 10) } else { random.below(self.short) };
        let generation = 1 + random.below(40) as u32;
        let class = random.below(60) as u8;
        let guardian = Guardian { generation, state: State::Live, class }.to_word();
        guardian.to_le_bytes().iter().copied().cycle().take(bytes as usize).collect()
    }
}

/// Sixteen bytes, so that values are aligned to words.
fn key_of(number: u64) -> Vec<u8> {
    format!("key-{number:012}").into_bytes()
}

fn shard(bytes: usize, eviction: Eviction) -> Shard {
    let options = ShardOptions {
        region: 3,
        incarnation: 1,
        epoch: 1,
        hash_seed: 11,
        buckets: 64,
        lease_min_s: 1,
        record_secret: 0x5ec2_e7ed,
        quarantine_bytes: 0,
        eviction,
        ..ShardOptions::default()
    };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

/// A key, its value and expiry.
type Held = (Vec<u8>, Vec<u8>, u64);

/// The expected content: values and expiries. Evicted keys stay in it until the log has recorded
/// them.
#[derive(Default)]
struct Oracle {
    keys: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    /// The keys as a replica has them that follows the log.
    replica: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    /// Sequence of the last entry that the replica has.
    seen: u64,
    /// Entries longer than a message may be, which are not decoded here; in the
    /// order of the log.
    long: VecDeque<Held>,
    /// Keys that were found absent, and not because of a DEL or an expiry.
    missed: Vec<Vec<u8>>,
}

impl Oracle {
    fn live(&self, key: &[u8], now_ms: u64) -> Option<Vec<u8>> {
        let (value, at) = self.keys.get(key)?;
        (*at == 0 || *at > now_ms).then(|| value.clone())
    }

    /// Checks the shard's answer for a key: right, or absent because evicted.
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
            let Ok((command, _)) = Command::decode(entry.operation()) else {
                let (key, value, at) = self.long.pop_front().expect("a long entry");
                self.replica.insert(key, (value, at));
                continue;
            };
            match command {
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

/// One random command against both. Gives the bytes that it logged, about.
fn step(shard: &mut Shard, oracle: &mut Oracle, random: &mut Random, mix: &Mix, now: Now) -> usize {
    let key = mix.key(random);
    let hash = shard.hash(&key);
    match random.below(100) {
        0..=49 => {
            let value = mix.value(random);
            let at = [0, now.unix_ms + 1 + random.below(3_000)][(random.below(5) == 0) as usize];
            let expiry = if at == 0 { Expiry::Never } else { Expiry::At(at) };
            let reply = shard.execute(&set(&key, &value, expiry, true), hash, now);
            assert_eq!(reply.status, Status::Ok, "no write is refused");
            oracle.check(&key, reply.value, now.unix_ms);
            let logged = value.len();
            if value.len() > MAX_VALUE_BYTES {
                oracle.long.push_back((key.clone(), value.clone(), at));
            }
            oracle.keys.insert(key, (value, at));
            return logged;
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
            for _ in 0..1 + random.below(mix.pairs) {
                let mut value = mix.value(random);
                // The content of a message.
                value.truncate(MAX_VALUE_BYTES);
                Pairs::push(&mut list, &mix.key(random), &value);
            }
            let pairs = Pairs::parse(&list).unwrap();
            let status = shard.execute(&Command::MultiSet { pairs }, hash, now).status;
            assert_eq!(status, Status::Ok, "no write is refused");
            for (key, value) in pairs.iter() {
                oracle.keys.insert(key.to_vec(), (value.to_vec(), 0));
            }
            return list.len();
        }
        97 if random.below(300) == 0 => {
            shard.execute(&Command::Flush, hash, now);
            oracle.keys.clear();
        }
        // A hint of another life of the slot, or of no slot at all.
        97 => shard
            .hint_touched(Id { slot: random.bits() as u32, generation: random.below(9) as u32 }),
        _ => shard.tick(now),
    }
    0
}

/// A random history; gives how many keys were evicted and how many moved.
fn run(seed: u64, mix: &Mix, steps: u64) -> (u64, u64) {
    let mut shard = shard(mix.arena_bytes, Eviction::S3Fifo);
    let total = shard.stats().slots.total_bytes();
    let mut oracle = Oracle::default();
    let mut random = Random::new(seed);
    let (mut now, mut logged) = (Now::default(), 0);
    for at in 0..steps {
        now = Now { unix_ms: 1_000_000 + at * 3, since_start_s: at * 3 / 1000 };
        logged += step(&mut shard, &mut oracle, &mut random, mix, now);
        assert_eq!(shard.stats().slots.total_bytes(), total, "no byte is lost");
        // Before the log, of 1 MiB, forgets.
        if at % 64 == 63 || logged > 128 << 10 {
            oracle.follow(&shard);
            logged = 0;
        }
    }
    oracle.follow(&shard);
    for number in 0..mix.keys {
        let key = key_of(number);
        let hash = shard.hash(&key);
        let got = shard.execute(&Command::Get { key: &key }, hash, now).value;
        assert_eq!(got, oracle.live(&key, now.unix_ms).as_deref());
    }
    (shard.stats().evicted, shard.stats().moved)
}

#[test]
fn random_histories_with_eviction_agree_with_a_map() {
    for seed in 1..=4 {
        let mix = Mix { arena_bytes: 2 << 20, keys: 12_000, short: 400, long_one_in: 0, pairs: 8 };
        let (evicted, moved) = run(seed, &mix, 24_000);
        println!("{evicted} evicted, {moved} moved");
        assert!(evicted > 2_000 && moved > 100, "{evicted} evicted, {moved} moved");
    }
}

#[test]
fn small_and_large_records_make_room_for_each_other() {
    for seed in 1..=3 {
        let mix = Mix { arena_bytes: 4 << 20, keys: 8_000, short: 400, long_one_in: 100, pairs: 3 };
        let (evicted, moved) = run(seed, &mix, 20_000);
        println!("{evicted} evicted, {moved} moved");
        assert!(evicted > 2_000 && moved > 100, "{evicted} evicted, {moved} moved");
    }
}

#[test]
fn records_of_one_size_cost_no_moves() {
    for seed in 14..=16 {
        let mix = Mix { arena_bytes: 512 << 10, keys: 12_000, short: 1, long_one_in: 0, pairs: 8 };
        let (evicted, moved) = run(seed, &mix, 24_000);
        println!("{evicted} evicted, {moved} moved");
        assert!(evicted > 1_000 && moved == 0, "{evicted} evicted, {moved} moved");
    }
}

fn put(shard: &mut Shard, number: u64, value: &[u8]) -> Status {
    let now = Now { unix_ms: 1_000_000, since_start_s: 10 };
    let key = key_of(number);
    let hash = shard.hash(&key);
    shard.execute(&set(&key, value, Expiry::Never, false), hash, now).status
}

#[test]
fn a_large_record_finds_room_among_small_ones_within_its_bounds() {
    const LARGE: usize = 1 << 20;
    let mut shard = shard(8 << 20, Eviction::S3Fifo);
    for number in 0..100_000 {
        assert_eq!(put(&mut shard, number, &[1; 68]), Status::Ok);
    }
    let slot_bytes = 32 + 16 + 68 + 12;
    for number in 200_000..200_012 {
        let before = shard.stats();
        assert_eq!(put(&mut shard, number, &vec![2; LARGE]), Status::Ok, "{number}");
        let after = shard.stats();
        let evicted = (after.evicted - before.evicted) as usize * slot_bytes;
        let moved = (after.moved - before.moved) as usize * slot_bytes;
        println!("{evicted} bytes evicted, {moved} moved");
        if number < 200_004 {
            // The records evicted are the small ones yet.
            assert!(evicted < LARGE + (512 << 10), "{evicted}");
            assert!(moved < 2 * LARGE, "{moved}");
        }
    }
}

#[test]
fn half_the_memory_can_go_to_one_record_and_nothing_goes_for_one_that_is_too_long() {
    let mut shard = shard(8 << 20, Eviction::S3Fifo);
    let mut random = Random::new(9);
    for number in 0..100_000 {
        let bytes = random.below(300) as usize;
        assert_eq!(put(&mut shard, number, &vec![1; bytes]), Status::Ok);
    }
    let before = shard.stats();
    assert_eq!(put(&mut shard, 200_000, &vec![2; 8 << 20]), Status::OutOfMemory);
    assert_eq!(shard.stats(), before, "nothing is evicted in vain");
    assert_eq!(put(&mut shard, 200_000, &vec![2; 4 << 20]), Status::Ok);
}

#[test]
fn memory_follows_the_sizes_that_are_in_use() {
    let mut shard = shard(4 << 20, Eviction::S3Fifo);
    for number in 0..60_000 {
        assert_eq!(put(&mut shard, number, &[1; 64]), Status::Ok);
    }
    let (mut most_evicted, mut most_moved) = (0, 0);
    for number in 60_000..90_000 {
        let before = shard.stats();
        assert_eq!(put(&mut shard, number, &[1; 192]), Status::Ok);
        let after = shard.stats();
        most_evicted = most_evicted.max(after.evicted - before.evicted);
        most_moved = most_moved.max(after.moved - before.moved);
    }
    let stats = shard.stats();
    let share = stats.keys as f64 * 240.0 / (4 << 20) as f64;
    println!(
        "{} keys, {share:.3} of memory; at most {most_evicted} evicted, {most_moved} moved",
        stats.keys
    );
    assert!(share > 0.85, "{share}: {:?}", stats.slots);
    // Two spans of the small records, and the content of a window.
    assert!(most_evicted < 2 * 586 + 586 && most_moved < 2 * 586, "{most_evicted} {most_moved}");
}

#[test]
fn the_policy_takes_little_heap() {
    let mut shard = shard(8 << 20, Eviction::S3Fifo);
    let mut random = Random::new(5);
    // New keys, then writes of keys that are there, then both.
    for number in 0..100_000 {
        assert_eq!(put(&mut shard, number, &[1; 64]), Status::Ok);
    }
    let marks = (8 << 20) / 64;
    let per_record = |shard: &Shard| {
        let stats = shard.stats();
        (stats.eviction_bytes - marks) as f64 / stats.keys as f64
    };
    let fresh = per_record(&shard);
    for _ in 0..300_000 {
        assert_eq!(put(&mut shard, 60_000 + random.below(40_000), &[2; 64]), Status::Ok);
    }
    let updated = per_record(&shard);
    println!("{fresh:.1} and {updated:.1} bytes a record, beside the marks");
    assert!(fresh < 18.0, "{fresh}");
    assert!(updated < 32.0, "{updated}");
}

#[test]
fn the_table_grows_while_memory_is_full() {
    let mut shard = shard(4 << 20, Eviction::S3Fifo);
    // Long records fill memory while the table is small; then short ones come.
    for number in 0..4_000 {
        assert_eq!(put(&mut shard, number, &[1; 2_000]), Status::Ok);
    }
    let before = shard.stats();
    for number in 10_000..60_000 {
        assert_eq!(put(&mut shard, number, &[1; 32]), Status::Ok);
    }
    let after = shard.stats();
    assert!(after.buckets > 4 * before.buckets, "{} {}", before.buckets, after.buckets);
    let load = after.keys as f64 / after.buckets as f64;
    assert!(load < 5.6, "{load}");
}

#[test]
fn without_eviction_the_limit_is_an_error_and_nothing_goes() {
    let mut shard = shard(256 << 10, Eviction::None);
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
    let mut shard = shard(384 << 10, Eviction::S3Fifo);
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

//! A simulated day of changes while the sizes of values drift: memory never runs out as long as the
//! live data fits, and every value stays unchanged.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Shard, ShardOptions};
use remora_index::hash::walk_locally;
use remora_layout::kind::Kind;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{RECORD_HEADER_BYTES, verify};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};
use remora_testing::Random;
use std::collections::HashMap;

const DAY_S: u64 = 86_400;
const ARENA_BYTES: usize = 16 << 20;
const BUCKETS: u64 = 1 << 13;
const SECRET: u64 = 0xc4a2_0e11;

#[derive(Clone, Copy)]
struct Alive {
    fill: u64,
    value_bytes: usize,
    /// Unix ms; 0 for never.
    expires_at_ms: u64,
    /// Where it stands in the list of keys.
    at: usize,
}

fn value_of(fill: u64, bytes: usize, into: &mut Vec<u8>) {
    into.clear();
    into.extend((0..bytes.div_ceil(8) as u64).flat_map(|at| (fill ^ (at * 0x9e37)).to_le_bytes()));
    into.truncate(bytes);
}

struct Day {
    shard: Shard,
    random: Random,
    alive: HashMap<u64, Alive>,
    keys: Vec<u64>,
    /// The pointer that the last GET of a key brought.
    pointers: HashMap<u64, RemotePointer>,
    alive_bytes: usize,
    next_key: u64,
    now: Now,
    value: Vec<u8>,
    scratch: Vec<u8>,
}

impl Day {
    fn new(seed: u64) -> Self {
        let options = ShardOptions {
            region: 1,
            incarnation: 1,
            epoch: 1,
            hash_seed: 3,
            buckets: BUCKETS,
            lease_min_s: 1,
            record_secret: SECRET,
            quarantine_bytes: 0,
            eviction: Eviction::None,
            ..ShardOptions::default()
        };
        Self {
            shard: Shard::new(Owner::heap(ARENA_BYTES, NoJournal), options),
            random: Random::new(seed),
            alive: HashMap::new(),
            keys: Vec::new(),
            pointers: HashMap::new(),
            alive_bytes: 0,
            next_key: 0,
            now: Now::default(),
            value: Vec::new(),
            scratch: Vec::new(),
        }
    }

    fn record_bytes(value_bytes: usize) -> usize {
        RECORD_HEADER_BYTES + 8 + value_bytes
    }

    fn forget(&mut self, key: u64) -> Alive {
        let gone = self.alive.remove(&key).unwrap();
        self.keys.swap_remove(gone.at);
        if let Some(&moved) = self.keys.get(gone.at) {
            self.alive.get_mut(&moved).unwrap().at = gone.at;
        }
        self.alive_bytes -= Self::record_bytes(gone.value_bytes);
        gone
    }

    fn remove(&mut self, key: u64) {
        let gone = self.forget(key);
        let key = key.to_le_bytes();
        let hash = self.shard.hash(&key);
        let reply = self.shard.execute(&Command::Del { key: &key }, hash, self.now);
        let expired = gone.expires_at_ms != 0 && gone.expires_at_ms <= self.now.unix_ms;
        assert_eq!(reply.number, !expired as i64);
        assert_eq!(self.follow(&key), None, "nobody reads what was removed");
        self.pointers.remove(&u64::from_le_bytes(key));
    }

    /// The result of a reader that follows the last pointer of a key.
    fn follow(&self, key: &[u8; 8]) -> Option<&[u8]> {
        let pointer = self.pointers.get(&u64::from_le_bytes(*key))?;
        let owner = self.shard.owner();
        let bytes = owner.slice(pointer.offset() as usize, pointer.length as usize);
        let generation = Some(pointer.generation);
        verify(bytes, SECRET, 1, pointer.slot, generation, Kind::STRING, key)
            .ok()
            .map(|found| found.value)
    }

    /// Removes keys until so many more bytes are alive at most.
    fn make_room(&mut self, bytes: usize, alive_most: usize) {
        while self.alive_bytes + bytes > alive_most && !self.keys.is_empty() {
            let at = self.random.below(self.keys.len() as u64) as usize;
            self.remove(self.keys[at]);
        }
    }

    fn set(&mut self, key: u64, value_bytes: usize, alive_most: usize) {
        if self.alive.contains_key(&key) {
            self.forget(key);
        }
        self.make_room(Self::record_bytes(value_bytes), alive_most);
        let fill = self.random.below(u64::MAX >> 17);
        let expires_at_ms = match self.random.below(5) {
            0 => self.now.unix_ms + 1 + self.random.below(1000 * DAY_S / 20),
            _ => 0,
        };
        let expiry = if expires_at_ms == 0 { Expiry::Never } else { Expiry::At(expires_at_ms) };
        value_of(fill, value_bytes, &mut self.value);
        let bytes = key.to_le_bytes();
        let hash = self.shard.hash(&bytes);
        let condition = Condition::Always;
        let command =
            Command::Set { key: &bytes, value: &self.value, condition, expiry, get: false };
        let status = self.shard.execute(&command, hash, self.now).status;
        assert_eq!(
            status,
            Status::Ok,
            "{value_bytes} bytes do not fit beside {} at {} s: {:?}",
            self.alive_bytes,
            self.now.since_start_s,
            self.shard.stats()
        );
        self.alive.insert(key, Alive { fill, value_bytes, expires_at_ms, at: self.keys.len() });
        self.keys.push(key);
        self.alive_bytes += Self::record_bytes(value_bytes);
    }

    /// A GET, which leases the record, and a walk as a reader would run it.
    fn get(&mut self, key: u64) {
        let alive = self.alive[&key];
        let bytes = key.to_le_bytes();
        let hash = self.shard.hash(&bytes);
        let (now, table) = (self.now, self.shard.table_ref());
        let words = self.shard.owner().view().clone();
        let reply = self.shard.execute(&Command::Get { key: &bytes }, hash, now);
        if alive.expires_at_ms != 0 && alive.expires_at_ms <= now.unix_ms {
            assert_eq!(reply.status, Status::NotFound);
            self.forget(key);
            return;
        }
        value_of(alive.fill, alive.value_bytes, &mut self.value);
        let pointer = reply.pointer;
        assert_eq!(reply.value, Some(self.value.as_slice()));
        let found =
            walk_locally(&words, &mut table.clone(), &bytes, hash, Kind::STRING, &mut self.scratch);
        assert_eq!(found.map(|found| found.value), Ok(self.value.as_slice()));
        // An old pointer leads to this very value, or the reader knows better.
        let before = self.follow(&bytes);
        assert!(before.is_none_or(|before| before == self.value));
        self.pointers.insert(key, pointer);
        assert_eq!(self.follow(&bytes), Some(self.value.as_slice()));
    }

    fn check(&mut self, total: u64) {
        for key in self.keys.clone() {
            self.get(key);
        }
        let stats = self.shard.stats();
        assert_eq!(stats.slots.total_bytes(), total);
        assert!(stats.slots.quarantine_bytes <= total / 16);
        assert!(stats.slots.used_bytes >= self.alive_bytes as u64);
    }

    /// A day in so many steps.
    fn run(&mut self, steps: u64, share_percent: usize, usual_bytes: impl Fn(u64) -> u64) {
        let total = self.shard.stats().slots.total_bytes();
        let alive_most = ARENA_BYTES / 100 * share_percent;
        for step in 0..steps {
            let unix_ms = 1_700_000_000_000 + step * DAY_S * 1000 / steps;
            self.now = Now { unix_ms, since_start_s: step * DAY_S / steps };
            match self.random.below(10) {
                0 if !self.keys.is_empty() => {
                    let at = self.random.below(self.keys.len() as u64) as usize;
                    self.remove(self.keys[at]);
                }
                1..=3 if !self.keys.is_empty() => {
                    let at = self.random.below(self.keys.len() as u64) as usize;
                    self.get(self.keys[at]);
                }
                what => {
                    let bytes = usual_bytes(step * 100 / steps);
                    let bytes = 16 + self.random.below(bytes) as usize;
                    let key = if what == 4 && !self.keys.is_empty() {
                        self.keys[self.random.below(self.keys.len() as u64) as usize]
                    } else {
                        self.next_key += 1;
                        self.next_key
                    };
                    self.set(key, bytes, alive_most);
                }
            }
            if step % 16 == 0 {
                self.shard.tick(self.now);
            }
            if step % (steps / 12) == 0 {
                self.check(total);
            }
        }
        self.check(total);
    }
}

#[test]
fn a_day_of_drifting_sizes_never_runs_out_of_memory() {
    for (seed, share_percent) in [(1, 60), (2, 65), (3, 70)] {
        let mut day = Day::new(seed);
        // From 32 bytes to 256 KiB and back, and again.
        day.run(60_000, share_percent, |percent| {
            let phase = percent % 50;
            32 << if phase < 26 { phase / 2 } else { (50 - phase) / 2 }
        });
        let stats = day.shard.stats();
        assert!(stats.moved > 0, "it was tight: {stats:?}");
    }
}

#[test]
fn a_sudden_change_of_sizes_is_served() {
    let mut day = Day::new(7);
    let sizes = [64, 5_000, 100, 100_000, 300, 12_000, 48, 262_128, 2_000, 700];
    day.run(60_000, 68, |percent| sizes[percent as usize / 10 % 10]);
    assert!(day.shard.stats().moved > 0);
}

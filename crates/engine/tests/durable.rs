//! Visible means acknowledgeable: while changes wait for a lagging durability, a reader of the
//! memory sees the durable state or asks, and the owner's replies name the change for which they
//! wait, no more and no less.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Durability, Eviction, Now, Shard, ShardOptions};
use remora_index::hash::{AskReason, walk_locally};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{ASK_ONLY_BYTES, PENDING_KEYS, REPUBLISH_AFTER_S};
use remora_protocol::Reply;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, ExpireCondition, Expiry, Pairs};
use remora_testing::Random;
use std::collections::BTreeMap;

const START: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 0 };

/// A shard whose durability lags, and a reader of its memory.
struct World {
    shard: Shard,
    now: Now,
    scratch: Vec<u8>,
}

/// A reply, as far as it matters here.
#[derive(PartialEq, Eq, Debug)]
struct Told {
    status: Status,
    number: i64,
    value: Option<Vec<u8>>,
    wait: u64,
}

impl World {
    fn new(bytes: usize, options: ShardOptions) -> Self {
        let options = ShardOptions { durability: Durability::Told, ..options };
        let shard = Shard::new(Owner::heap(bytes, NoJournal), options);
        Self { shard, now: START, scratch: Vec::new() }
    }

    fn small() -> Self {
        Self::new(8 << 20, ShardOptions::default())
    }

    fn execute(&mut self, command: &Command<'_>) -> Told {
        let hash = command.key().map_or(KeyHash(0), |key| self.shard.hash(key));
        let Reply { status, number, value, wait, .. } = self.shard.execute(command, hash, self.now);
        Told { status, number, value: value.map(<[u8]>::to_vec), wait }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> u64 {
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        self.execute(&Command::Set { key, value, condition, expiry, get: false }).wait
    }

    fn get(&mut self, key: &[u8]) -> (Option<Vec<u8>>, u64) {
        let Told { value, wait, .. } = self.execute(&Command::Get { key });
        (value, wait)
    }

    /// The result of a reader of the memory: a value, or why it asks.
    fn read(&mut self, key: &[u8]) -> Result<Vec<u8>, AskReason> {
        let hash = self.shard.hash(key);
        let (words, mut table) = (self.shard.owner().view().clone(), self.shard.table_ref());
        let found = walk_locally(&words, &mut table, key, hash, Kind::STRING, &mut self.scratch)?;
        let expires_at_ms = found.mutable.expires_at_ms;
        if expires_at_ms != 0 && expires_at_ms <= self.now.unix_ms {
            return Err(AskReason::NotFound);
        }
        Ok(found.value.to_vec())
    }

    fn durable(&mut self, sequence: u64) {
        self.shard.set_durable(sequence);
        while self.shard.wants_release() {
            self.shard.release_some(self.now);
        }
        self.shard.audit().unwrap();
    }

    fn all_durable(&mut self) {
        let last = self.shard.last_sequence();
        self.durable(last);
    }
}

#[test]
fn a_value_is_seen_once_it_is_durable_and_only_what_depends_on_it_waits() {
    let mut world = World::small();
    assert_eq!(world.set(b"a", b"1"), 1);
    assert_eq!(world.set(b"b", b"1"), 2);
    assert_eq!(world.read(b"a"), Err(AskReason::Pending));
    assert_eq!(world.get(b"a"), (Some(b"1".to_vec()), 1));
    assert_eq!(world.get(b"absent"), (None, 0), "nobody ever wrote it");
    world.durable(1);
    assert_eq!(world.read(b"a"), Ok(b"1".to_vec()));
    assert_eq!(world.get(b"a").1, 0);
    assert_eq!((world.read(b"b"), world.get(b"b").1), (Err(AskReason::Pending), 2));
    // Over a durable value: no reader sees the old value any longer, nor the new one.
    world.all_durable();
    assert_eq!(world.set(b"a", b"2"), 3);
    assert!(world.read(b"a").is_err());
    assert_eq!(world.read(b"b"), Ok(b"1".to_vec()));
    assert_eq!(world.get(b"a"), (Some(b"2".to_vec()), 3));
    // An error that depends on the value waits for it.
    let told = world.execute(&Command::Incr { key: b"b", by: i64::MAX });
    assert_eq!((told.status, told.wait), (Status::Overflow, 0));
    world.set(b"a", b"no number");
    let told = world.execute(&Command::Incr { key: b"a", by: 1 });
    assert_eq!((told.status, told.wait), (Status::NotAnInteger, 4));
    let told = world.execute(&Command::Count);
    assert_eq!((told.number, told.wait), (2, 4), "it looks at all keys");
    world.all_durable();
    assert_eq!(world.read(b"a"), Ok(b"no number".to_vec()));
    assert_eq!(world.execute(&Command::Count).wait, 0);
}

#[test]
fn nil_waits_for_what_removed_the_key() {
    let mut world = World::small();
    world.set(b"deleted", b"1");
    world.set(b"other", b"1");
    let (key, condition) = (&b"expiring"[..], Condition::Always);
    let expiry = Expiry::At(START.unix_ms + 10);
    world.execute(&Command::Set { key, value: b"1", condition, expiry, get: false });
    world.all_durable();
    assert_eq!(world.execute(&Command::Del { key: b"deleted" }).wait, 4);
    assert!(world.read(b"deleted").is_err());
    assert_eq!(world.get(b"deleted"), (None, 4));
    assert_eq!(world.execute(&Command::Exists { key: b"deleted" }).wait, 4);
    world.now.unix_ms += 20;
    assert_eq!(world.get(key), (None, 5), "its removal is a change too");
    assert_eq!(world.get(b"other"), (Some(b"1".to_vec()), 0));
    world.durable(4);
    assert_eq!((world.get(b"deleted"), world.get(key)), ((None, 0), (None, 5)));
    assert_eq!(world.execute(&Command::Flush).wait, 6);
    assert_eq!((world.get(b"other"), world.get(b"never there")), ((None, 6), (None, 6)));
    assert!(world.read(b"other").is_err());
    world.all_durable();
    assert_eq!(world.get(b"other"), (None, 0));
}

#[test]
fn an_expiry_that_changes_is_asked_for_until_it_is_durable() {
    let mut world = World::small();
    world.set(b"a", b"1");
    world.all_durable();
    let (at_ms, condition) = (START.unix_ms + 1_000, ExpireCondition::Always);
    assert_eq!(world.execute(&Command::Expire { key: b"a", at_ms, condition }).wait, 2);
    assert_eq!(world.read(b"a"), Err(AskReason::Pending));
    assert_eq!(world.execute(&Command::Ttl { key: b"a" }).wait, 2);
    world.all_durable();
    assert_eq!(world.read(b"a"), Ok(b"1".to_vec()));
    // Taken away: a reader that saw that too early would read past the old one.
    assert_eq!(world.execute(&Command::GetEx { key: b"a", at_ms: None }).wait, 3);
    assert_eq!(world.read(b"a"), Err(AskReason::Pending));
    world.now.unix_ms += 2_000;
    assert_eq!(world.get(b"a"), (Some(b"1".to_vec()), 3));
    world.all_durable();
    assert_eq!(world.read(b"a"), Ok(b"1".to_vec()));
}

#[test]
fn a_value_changed_in_place_is_whole_again_only_once_it_is_durable() {
    let mut world = World::small();
    let long = vec![b'x'; ASK_ONLY_BYTES + 1];
    world.set(b"a", &long);
    world.all_durable();
    assert_eq!(world.read(b"a"), Ok(long.clone()));
    let edit = Command::SetRange { key: b"a", offset: 0, value: b"y" };
    assert_eq!(world.execute(&edit).wait, 2);
    assert!(world.read(b"a").is_err());
    world.now.since_start_s += 2 * REPUBLISH_AFTER_S + 2;
    world.shard.tick(world.now);
    assert_eq!(world.shard.stats().ask_only, 0, "its checksum is right again");
    assert_eq!(world.read(b"a"), Err(AskReason::Pending));
    world.shard.audit().unwrap();
    world.all_durable();
    assert_eq!(world.read(b"a").map(|value| value[0]), Ok(b'y'));
    // Edited while it is pending.
    world.set(b"a", &long);
    world.execute(&edit);
    world.shard.audit().unwrap();
    world.all_durable();
    assert!(world.read(b"a").is_err(), "it is being changed in place");
}

#[test]
fn with_more_changed_keys_than_are_told_apart_every_reply_waits() {
    let mut world = World::new(64 << 20, ShardOptions { buckets: 4_096, ..Default::default() });
    world.set(b"durable", b"1");
    world.all_durable();
    for key in 0..=PENDING_KEYS as u64 {
        world.set(&key.to_le_bytes(), b"1");
    }
    let last = world.shard.last_sequence();
    assert_eq!(world.get(b"durable"), (Some(b"1".to_vec()), last));
    assert_eq!(world.read(b"durable"), Ok(b"1".to_vec()), "readers know each record");
    assert!(world.shard.stats().pending_keys <= PENDING_KEYS as u64);
    world.durable(last);
    assert_eq!(world.get(b"durable").1, 0);
    assert_eq!(world.shard.stats().pending_keys, 0);
    assert_eq!(world.read(&7u64.to_le_bytes()), Ok(b"1".to_vec()));
}

/// A key's value after each of its changes.
type Versions = BTreeMap<u64, Option<Vec<u8>>>;

const KEYS: u64 = 12;
const STEPS: u64 = if cfg!(miri) { 400 } else { 40_000 };

/// Random commands against a model that keeps every version of each key.
struct Oracle {
    world: World,
    keys: Vec<Versions>,
    random: Random,
}

impl Oracle {
    fn name(key: u64) -> Vec<u8> {
        format!("key-{key}").into_bytes()
    }

    fn below(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn newest(&self, key: u64) -> Option<Vec<u8>> {
        self.keys[key as usize].values().next_back().cloned().flatten()
    }

    fn pending(&self, key: u64) -> u64 {
        let last = self.keys[key as usize].keys().next_back().copied().unwrap_or(0);
        if last > self.world.shard.durable_sequence() { last } else { 0 }
    }

    /// The shard made changes up to now: they gave these keys their values.
    fn changed(&mut self, before: u64, keys: &[(u64, Option<Vec<u8>>)]) {
        let last = self.world.shard.last_sequence();
        if last > before {
            for (key, value) in keys {
                self.keys[*key as usize].insert(last, value.clone());
            }
        }
    }

    fn change(&mut self, step: u64) {
        let (key, before) = (self.below(KEYS), self.world.shard.last_sequence());
        let name = Self::name(key);
        // Both sides of changes in place.
        let bytes = [3, 40, ASK_ONLY_BYTES + 9][self.below(3) as usize];
        let value = step.to_le_bytes().repeat(1 + bytes / 8);
        let (told, changes) = match self.below(9) {
            0..3 => {
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                let get = self.below(2) == 0;
                let set = Command::Set { key: &name, value: &value, condition, expiry, get };
                (self.world.execute(&set), vec![(key, Some(value))])
            }
            3 => (self.world.execute(&Command::Del { key: &name }), vec![(key, None)]),
            4 => (self.world.execute(&Command::GetDel { key: &name }), vec![(key, None)]),
            5 => {
                let mut after = self.newest(key).unwrap_or_default();
                after.extend(&value);
                let append = Command::Append { key: &name, value: &value };
                (self.world.execute(&append), vec![(key, Some(after))])
            }
            6 => {
                let other = (key + 1) % KEYS;
                let mut list = Vec::new();
                Pairs::push(&mut list, &name, &value);
                Pairs::push(&mut list, &Self::name(other), &value);
                let pairs = Pairs::parse(&list).unwrap();
                let told = self.world.execute(&Command::MultiSet { pairs });
                (told, vec![(key, Some(value.clone())), (other, Some(value))])
            }
            7 => {
                let at_ms = START.unix_ms + 1_000_000_000;
                let condition = ExpireCondition::Always;
                let expire = Command::Expire { key: &name, at_ms, condition };
                (self.world.execute(&expire), vec![(key, self.newest(key))])
            }
            _ if self.below(20) == 0 => {
                let all = (0..KEYS).map(|key| (key, None)).collect();
                (self.world.execute(&Command::Flush), all)
            }
            _ => {
                let get_ex = Command::GetEx { key: &name, at_ms: None };
                (self.world.execute(&get_ex), vec![(key, self.newest(key))])
            }
        };
        self.changed(before, &changes);
        let last = self.world.shard.last_sequence();
        let is_changed = last > before;
        let expected = if is_changed { last } else { self.pending(key) };
        assert_eq!(told.wait, expected, "step {step}: {told:?}");
    }

    fn look(&mut self, step: u64) {
        let key = self.below(KEYS);
        let name = Self::name(key);
        let (newest, pending) = (self.newest(key), self.pending(key));
        // Absence is never concluded.
        if let Ok(value) = self.world.read(&name) {
            assert_eq!(pending, 0, "step {step}: a change that is not durable was seen");
            assert_eq!(Some(value), newest, "step {step}");
        }
        assert_eq!(self.world.get(&name), (newest, pending), "step {step}");
    }
}

#[test]
fn readers_see_the_durable_state_or_ask_whatever_happens() {
    let mut seen_by_reading = 0;
    for eviction in [Eviction::None, Eviction::S3Fifo] {
        let world = World::new(16 << 20, ShardOptions { eviction, ..Default::default() });
        let mut oracle =
            Oracle { world, keys: vec![Versions::new(); KEYS as usize], random: Random::new(99) };
        for step in 0..STEPS {
            match oracle.below(8) {
                0..4 => oracle.change(step),
                4..7 => oracle.look(step),
                _ => {
                    let (durable, last) =
                        (oracle.world.shard.durable_sequence(), oracle.world.shard.last_sequence());
                    let by = oracle.below(last - durable + 1);
                    oracle.world.shard.set_durable(durable + by);
                    oracle.world.now.since_start_s += 1;
                    let now = oracle.world.now;
                    oracle.world.shard.tick(now);
                }
            }
            if step % 512 == 0 {
                oracle.world.shard.audit().unwrap();
                oracle.world.all_durable();
                // Nothing is withheld, except values that are changed in place.
                for key in 0..KEYS {
                    let (name, newest) = (Oracle::name(key), oracle.newest(key));
                    if let Ok(value) = oracle.world.read(&name) {
                        assert_eq!(Some(value), newest);
                        seen_by_reading += 1;
                    }
                }
            }
        }
    }
    assert!(cfg!(miri) || seen_by_reading > 100, "{seen_by_reading} reads concluded");
}

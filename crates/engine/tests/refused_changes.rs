//! Changes are refused before they begin while the log's disk takes nothing, or is far behind; reads
//! go on, and nothing of the log is lost.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Durability, Eviction, Now, Shard, ShardOptions};
use remora_layout::limits::{
    LOG_EXPIRY_ROOM_BYTES, LOG_HELD_BYTES, LOG_ROOM_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES,
};
use remora_log::{Cursor, Hold};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry, Pairs};

const VALUE_BYTES: usize = 1 << 20;

fn execute(shard: &mut Shard, command: &Command<'_>) -> Status {
    let hash = shard.hash(command.key().unwrap());
    shard.execute(command, hash, Now::default()).status
}

fn set(shard: &mut Shard, value: &[u8]) -> Status {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    execute(shard, &Command::Set { key: b"key", value, condition, expiry, get: false })
}

fn get(shard: &mut Shard) -> Status {
    execute(shard, &Command::Get { key: b"key" })
}

#[test]
fn changes_are_refused_while_the_disk_takes_nothing() {
    let mut shard = Shard::new(Owner::heap(8 << 20, NoJournal), ShardOptions::default());
    assert_eq!(set(&mut shard, b"1"), Status::Ok);
    let last = shard.last_sequence();
    shard.set_keeps(false);
    assert_eq!((set(&mut shard, b"2"), get(&mut shard)), (Status::NotKept, Status::Ok));
    assert_eq!(shard.last_sequence(), last);
    shard.set_keeps(true);
    assert_eq!(set(&mut shard, b"2"), Status::Ok);
}

#[test]
fn changes_are_refused_while_too_few_replicas_keep_up() {
    let mut shard = Shard::new(Owner::heap(8 << 20, NoJournal), ShardOptions::default());
    assert_eq!(set(&mut shard, b"1"), Status::Ok);
    let last = shard.last_sequence();
    shard.set_has_replicas(false);
    assert_eq!((set(&mut shard, b"2"), get(&mut shard)), (Status::TooFewReplicas, Status::Ok));
    shard.set_keeps(false);
    assert_eq!(set(&mut shard, b"2"), Status::NotKept, "the disk is said first");
    assert_eq!(shard.last_sequence(), last);
    shard.set_keeps(true);
    shard.set_has_replicas(true);
    assert_eq!(set(&mut shard, b"2"), Status::Ok);
}

/// The disk or the replicas that would have to take them are the cause of the refusal.
#[test]
fn refusals_wait_for_no_change_that_is_not_durable() {
    refused_at_once(|shard| shard.set_keeps(false), Status::NotKept);
    refused_at_once(|shard| shard.set_has_replicas(false), Status::TooFewReplicas);
}

fn refused_at_once(fail: impl Fn(&mut Shard), status: Status) {
    let options = ShardOptions { durability: Durability::Told, ..ShardOptions::default() };
    let mut shard = Shard::new(Owner::heap(8 << 20, NoJournal), options);
    assert_eq!(set(&mut shard, b"1"), Status::Ok);
    fail(&mut shard);
    let mut pairs = Vec::new();
    Pairs::push(&mut pairs, b"other", b"2");
    let all = Command::MultiSet { pairs: Pairs::parse(&pairs).unwrap() };
    let commands = [all, Command::FlushAll, Command::Del { key: b"key" }];
    for command in &commands {
        let hash = shard.hash(command.key().unwrap_or_default());
        let reply = shard.execute(command, hash, Now::default());
        assert_eq!((reply.status, reply.wait), (status, 0), "{command:?}");
    }
    let hash = shard.hash(b"key");
    let read = shard.execute(&Command::Get { key: b"key" }, hash, Now::default());
    assert_eq!((read.status, read.wait), (Status::Ok, 1));
}

#[test]
fn changes_are_refused_while_a_reader_of_the_log_is_far_behind_and_it_loses_nothing() {
    let mut shard = Shard::new(Owner::heap(16 << 20, NoJournal), ShardOptions::default());
    let mut cursor = shard.log().cursor(shard.last_sequence() + 1).unwrap();
    let hold = shard.hold_log(&cursor).unwrap();
    let value = vec![7; VALUE_BYTES];
    let mut done = 0;
    let refused = loop {
        match set(&mut shard, &value) {
            Status::Ok => done += 1,
            status => break status,
        }
    };
    assert_eq!((refused, get(&mut shard)), (Status::NotKept, Status::Ok));
    let room = (LOG_HELD_BYTES - LOG_ROOM_BYTES) / VALUE_BYTES;
    // Some of each segment of the log stays empty.
    assert!((room / 2..=room).contains(&done), "{done} of {room}");
    let (mut frames, mut bytes) = (Vec::new(), 0);
    loop {
        frames.clear();
        shard.log().read(&mut cursor, VALUE_BYTES, &mut frames).unwrap();
        bytes += frames.len();
        shard.move_hold(&hold, &cursor).unwrap();
        if frames.is_empty() {
            break;
        }
    }
    assert!(bytes >= done * VALUE_BYTES, "{bytes}");
    assert_eq!(set(&mut shard, &value), Status::Ok);
}

/// A reader of the log, as the log's thread is one.
struct Reader {
    cursor: Cursor,
    hold: Hold,
    frames: Vec<u8>,
}

impl Reader {
    fn behind(shard: &mut Shard) -> Self {
        let cursor = shard.log().cursor(shard.last_sequence() + 1).unwrap();
        let hold = shard.hold_log(&cursor).unwrap();
        Self { cursor, hold, frames: Vec::new() }
    }

    /// Takes so many bytes; panics if some of the log is lost. False at its end.
    fn take(&mut self, shard: &mut Shard, bytes: usize) -> bool {
        self.frames.clear();
        shard.log().read(&mut self.cursor, bytes, &mut self.frames).unwrap();
        shard.move_hold(&self.hold, &self.cursor).unwrap();
        !self.frames.is_empty()
    }

    fn take_all(&mut self, shard: &mut Shard) {
        while self.take(shard, VALUE_BYTES) {}
    }
}

fn set_key(shard: &mut Shard, key: &[u8], value: &[u8], expiry: Expiry) -> Status {
    execute(shard, &Command::Set { key, value, condition: Condition::Always, expiry, get: false })
}

/// As many changes as are let in, and then as little room more as one more takes.
fn fill_to_the_brim(shard: &mut Shard, reader: &mut Reader) {
    while set(shard, &vec![7; VALUE_BYTES]) == Status::Ok {}
    while set(shard, b"small") == Status::NotKept {
        assert!(reader.take(shard, 1000));
    }
}

#[test]
fn the_longest_entry_fits_behind_the_last_one_that_is_let_in() {
    let mut shard = Shard::new(Owner::heap(192 << 20, NoJournal), ShardOptions::default());
    let mut reader = Reader::behind(&mut shard);
    fill_to_the_brim(&mut shard, &mut reader);
    let (key, value) = (vec![b'k'; MAX_KEY_BYTES], vec![7; MAX_VALUE_BYTES]);
    assert_eq!(set_key(&mut shard, &key, &value, Expiry::Never), Status::Ok);
    assert_eq!(set(&mut shard, b"1"), Status::NotKept);
    reader.take_all(&mut shard);
    assert_eq!(set(&mut shard, b"1"), Status::Ok);
}

#[test]
fn the_removals_that_make_room_for_a_value_break_no_hold() {
    let options = ShardOptions { eviction: Eviction::S3Fifo, ..ShardOptions::default() };
    let mut shard = Shard::new(Owner::heap(160 << 20, NoJournal), options);
    // The log of their removal is as long as they are.
    let long_key = |number: usize| {
        let mut key = vec![b'k'; 32 << 10];
        key[..8].copy_from_slice(&number.to_le_bytes());
        key
    };
    for number in 0..6000 {
        assert_eq!(set_key(&mut shard, &long_key(number), b"v", Expiry::Never), Status::Ok);
    }
    let mut reader = Reader::behind(&mut shard);
    fill_to_the_brim(&mut shard, &mut reader);
    let evicted = shard.stats().evicted;
    let status = set_key(&mut shard, b"large", &vec![7; MAX_VALUE_BYTES], Expiry::Never);
    assert_eq!(status, Status::OutOfMemory);
    assert!(shard.stats().evicted > evicted, "it began to make room");
    reader.take_all(&mut shard);
    for _ in 0..3 {
        set_key(&mut shard, b"large", &vec![7; MAX_VALUE_BYTES], Expiry::Never);
        reader.take_all(&mut shard);
    }
    assert_eq!(execute(&mut shard, &Command::Exists { key: b"large" }), Status::Ok);
    shard.audit().unwrap();
}

#[test]
fn keys_that_expire_while_the_disk_takes_nothing_stay_and_are_not_found() {
    const KEYS: usize = 400_000;
    let mut shard = Shard::new(Owner::heap(128 << 20, NoJournal), ShardOptions::default());
    let key = |number: usize| format!("a-key-with-a-name-of-some-length-{number}").into_bytes();
    for number in 0..KEYS {
        assert_eq!(set_key(&mut shard, &key(number), b"v", Expiry::At(1000)), Status::Ok);
    }
    let mut reader = Reader::behind(&mut shard);
    shard.set_keeps(false);
    let later = Now { unix_ms: 2000, ..Now::default() };
    let at = |shard: &mut Shard, command: &Command<'_>| {
        let hash = shard.hash(command.key().unwrap());
        let reply = shard.execute(command, hash, later);
        (reply.status, reply.number)
    };
    // Some turns of the sweep, and reads of all keys.
    (0..KEYS / 10).for_each(|_| shard.tick(later));
    for number in 0..KEYS {
        let key = key(number);
        assert_eq!(at(&mut shard, &Command::Get { key: &key }).0, Status::NotFound);
    }
    let (expired, keys) = (shard.stats().expired, shard.stats().keys);
    assert_eq!(expired + keys, KEYS as u64);
    assert!(expired > 0 && keys > 0 && shard.stats().expiries_put_off > 0, "{expired} {keys}");
    assert!(shard.log().room_bytes() + (1 << 20) > LOG_EXPIRY_ROOM_BYTES);
    assert_eq!(at(&mut shard, &Command::Persist { key: &key(0) }).0, Status::NotKept);
    // The disk takes entries again: a change removes what it meets, and the sweep the rest.
    shard.set_keeps(true);
    for number in 0..KEYS / 2 {
        assert_eq!(at(&mut shard, &Command::Persist { key: &key(number) }), (Status::Ok, 0));
    }
    assert!(shard.stats().keys < keys);
    reader.take_all(&mut shard);
    (0..KEYS / 10).for_each(|_| {
        shard.tick(later);
        reader.take_all(&mut shard);
    });
    assert_eq!((shard.stats().expired, shard.stats().keys), (KEYS as u64, 0));
}

//! Changes are refused before they begin while the log's disk takes nothing, or is far behind; reads
//! go on, and nothing of the log is lost.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Durability, Now, Shard, ShardOptions};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{LOG_HELD_BYTES, LOG_ROOM_BYTES};
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

/// A change is pending for as long as the disk fails: a refusal that waited for it would come once
/// there is no reason for it.
#[test]
fn a_refusal_does_not_wait_for_what_is_pending() {
    let options = ShardOptions { durability: Durability::Told, ..Default::default() };
    let mut shard = Shard::new(Owner::heap(8 << 20, NoJournal), options);
    assert_eq!(set(&mut shard, b"1"), Status::Ok);
    shard.set_keeps(false);
    let mut pairs = Vec::new();
    Pairs::push(&mut pairs, b"other", b"1");
    let pairs = Pairs::parse(&pairs).unwrap();
    let all = KeyHash::without_key(Database::ZERO);
    for (command, waits) in [
        (Command::MultiSet { pairs }, false),
        (Command::Del { key: b"key" }, false),
        (Command::Count, true),
        (Command::Get { key: b"key" }, true),
    ] {
        let hash = if command.key().is_some() { shard.hash(b"key") } else { all };
        let reply = shard.execute(&command, hash, Now::default());
        assert_eq!(reply.status == Status::NotKept, !waits, "{command:?}");
        assert_eq!(reply.wait != 0, waits, "{command:?}");
    }
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

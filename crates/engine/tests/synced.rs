//! What a shard says of its disk and its replicas to clients that wait for them.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Durability, Now, ReplicaMarks, Shard, ShardOptions};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};

fn shard(durability: Durability) -> Shard {
    let options = ShardOptions { durability, ..Default::default() };
    Shard::new(Owner::heap(8 << 20, NoJournal), options)
}

fn set(shard: &mut Shard) {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let set = Command::Set { key: b"key", value: b"value", condition, expiry, get: false };
    let hash = shard.hash(b"key");
    assert_eq!(shard.execute(&set, hash, Now::default()).status, Status::Ok);
}

/// The status, the sequence asked for, and the last one on the disk.
fn ask(shard: &mut Shard, until: u64, begins: bool) -> (Status, u64, u64) {
    let command = Command::Synced { until, begins };
    let reply = shard.execute(&command, KeyHash::without_key(Database::ZERO), Now::default());
    assert_eq!(reply.wait, 0, "it waits for nothing");
    let synced = reply.value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
    (reply.status, reply.number as u64, synced)
}

#[test]
fn it_tells_how_far_the_disk_is_and_wants_a_sync_only_for_what_is_missing() {
    for durability in [Durability::Memory, Durability::Told] {
        let mut shard = shard(durability);
        assert_eq!(ask(&mut shard, 0, true), (Status::NothingKept, 0, 0));
        shard.set_synced(0);
        assert_eq!(ask(&mut shard, 0, true), (Status::Ok, 0, 0));
        assert!(!shard.wants_sync(), "there is nothing to sync");
        set(&mut shard);
        set(&mut shard);
        assert_eq!(ask(&mut shard, 0, false), (Status::NotDone, 2, 0));
        assert!(!shard.wants_sync());
        assert_eq!(ask(&mut shard, 0, true), (Status::NotDone, 2, 0));
        assert!(shard.wants_sync());
        shard.begin_sync();
        assert_eq!(ask(&mut shard, 3, true), (Status::NotDone, 3, 0), "it is not there yet");
        assert!(!shard.wants_sync());
        set(&mut shard);
        shard.set_synced(2);
        shard.set_synced(1);
        assert_eq!(ask(&mut shard, 2, true), (Status::Ok, 2, 2), "later changes do not count");
        assert_eq!(ask(&mut shard, 0, true), (Status::NotDone, 3, 2));
    }
}

#[test]
fn a_disk_that_fails_is_told_and_what_it_has_counts() {
    let mut shard = shard(Durability::Memory);
    shard.set_synced(0);
    set(&mut shard);
    shard.set_synced(1);
    set(&mut shard);
    shard.set_keeps(false);
    assert_eq!(ask(&mut shard, 0, true), (Status::NotKept, 2, 1));
    assert_eq!(ask(&mut shard, 1, true), (Status::Ok, 1, 1));
    assert!(!shard.wants_sync());
    shard.set_keeps(true);
    assert_eq!(ask(&mut shard, 2, true), (Status::NotDone, 2, 1));
}

#[test]
fn it_tells_how_many_replicas_have_its_changes() {
    let mut shard = shard(Durability::Memory);
    set(&mut shard);
    set(&mut shard);
    let ask = |shard: &mut Shard, until, replicas| {
        let command = Command::Replicated { until, replicas };
        let reply = shard.execute(&command, KeyHash::without_key(Database::ZERO), Now::default());
        assert_eq!(reply.wait, 0, "it waits for nothing");
        let have = reply.value.map(|value| u64::from_le_bytes(value.try_into().unwrap()));
        (reply.status, reply.number, have.unwrap())
    };
    assert_eq!(ask(&mut shard, 0, 0), (Status::Ok, 2, 0));
    assert_eq!(ask(&mut shard, 0, 1), (Status::NotDone, 2, 0));
    let marks = [(2, 1), (1, 0)].map(|(stored, durable)| ReplicaMarks { stored, durable });
    shard.set_replicas(marks.into_iter());
    assert_eq!(ask(&mut shard, 0, 1), (Status::Ok, 2, 1));
    assert_eq!(ask(&mut shard, 0, 2), (Status::NotDone, 2, 1));
    assert_eq!(ask(&mut shard, 1, 2), (Status::Ok, 1, 2));
    assert_eq!((shard.count_durable(1), shard.count_durable(2)), (1, 0));
    shard.set_replicas(std::iter::empty());
    assert_eq!(ask(&mut shard, 0, 1), (Status::NotDone, 2, 0));
}

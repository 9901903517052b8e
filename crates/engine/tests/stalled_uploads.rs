//! Uploads whose pieces stop coming: their memory becomes free for other requests.

use remora_arena::{NoJournal, Owner};
use remora_engine::{LargeSet, Upload};
use remora_engine::{Now, Shard, ShardOptions};
use remora_protocol::hash::HashCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry, Items};

const IDLE_S: u64 = 3;

fn now(since_start_s: u64) -> Now {
    Now { unix_ms: 1_700_000_000_000 + since_start_s * 1_000, since_start_s }
}

fn begin(shard: &mut Shard, bytes: usize, now: Now) -> Result<Upload, Status> {
    let (key, hash) = (&b"big"[..], shard.hash(b"big"));
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let set = LargeSet { key, hash, value_bytes: bytes, condition, expiry, get: false };
    shard.begin_upload(set, now)
}

#[test]
fn a_stalled_upload_gives_its_memory_back() {
    let options = ShardOptions { upload_idle_s: IDLE_S, ..ShardOptions::default() };
    let mut shard = Shard::new(Owner::heap(8 << 20, NoJournal), options);
    let mut upload = begin(&mut shard, 5 << 20, now(1)).unwrap();
    let mut last_piece_s = shard.ticked_s();
    let mut second = 1;
    // An upload whose pieces come in time may take any time.
    for _ in 0..5 {
        for _ in 0..IDLE_S {
            second += 1;
            shard.tick(now(second));
        }
        assert!(!shard.has_stalled(last_piece_s));
        shard.upload(&mut upload, &[7; 1_000]).unwrap();
        last_piece_s = shard.ticked_s();
    }
    let no_room = begin(&mut shard, 5 << 20, now(second)).err();
    assert_eq!(no_room, Some(Status::OutOfMemory));
    // An hour in which the shard did not tick is a second.
    second += 3_600;
    shard.tick(now(second));
    assert!(!shard.has_stalled(last_piece_s));
    for _ in 0..IDLE_S {
        second += 1;
        shard.tick(now(second));
    }
    assert!(shard.has_stalled(last_piece_s));
    let used = shard.stats().slots.used_bytes;
    shard.note_stalled();
    shard.abandon_upload(upload, now(second));
    let stats = shard.stats();
    assert_eq!(stats.uploads_abandoned, 1);
    assert!(stats.slots.used_bytes + (5 << 20) <= used);
    // Its key was never there, and its memory serves again.
    let hash = shard.hash(b"big");
    let reply = shard.execute(&Command::Get { key: b"big" }, hash, now(second));
    assert_eq!(reply.status, Status::NotFound);
    let again = begin(&mut shard, 5 << 20, now(second)).unwrap();
    shard.abandon_upload(again, now(second));
    assert_eq!(shard.stats().uploads_abandoned, 1, "its client has given it up itself");
    shard.audit().unwrap();
}

#[test]
fn an_upload_gets_the_memory_that_is_coming_back() {
    let mut shard = Shard::new(Owner::heap(8 << 20, NoJournal), ShardOptions::default());
    let hash = shard.hash(b"h");
    for field in 0..20_000u32 {
        let mut list = Vec::new();
        [&field.to_le_bytes()[..], &[7; 250]].iter().for_each(|item| Items::push(&mut list, item));
        let pairs = Items::parse(&list).unwrap();
        let set = Command::Of { key: b"h", request: HashCommand::Set { pairs }.request() };
        assert_eq!(shard.execute(&set, hash, now(1)).status, Status::Ok);
    }
    assert_eq!(begin(&mut shard, 5 << 20, now(1)).err(), Some(Status::OutOfMemory));
    assert_eq!(shard.execute(&Command::Del { key: b"h" }, hash, now(1)).number, 1);
    assert!(shard.wants_release(), "it comes back in turns");
    let upload = begin(&mut shard, 5 << 20, now(1)).unwrap();
    shard.abandon_upload(upload, now(1));
    shard.audit().unwrap();
}

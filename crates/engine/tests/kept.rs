//! Copies for reads in turns are bounded before they are made, not after.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_layout::limits::KEPT_PARTS_SHARE;
use remora_protocol::hash::{HashCommand, Told};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};
use remora_testing::in_own_process;

const ARENA_BYTES: usize = 16 << 20;
const VALUE_BYTES: usize = 1 << 20;
const READERS: usize = 100;

fn set(shard: &mut Shard, value: &[u8]) {
    let mut list = Vec::new();
    [b"field", value].iter().for_each(|item| Items::push(&mut list, item));
    let pairs = Items::parse(&list).unwrap();
    let set = Command::Of { key: b"h", request: HashCommand::Set { pairs }.request() };
    let hash = shard.hash(b"h");
    assert_eq!(shard.execute(&set, hash, Now::default()).status, Status::Ok);
}

/// Most bytes of the process that ever were in memory.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn a_change_is_not_copied_for_more_readers_than_may_be() {
    in_own_process(|| {
        let mut shard = Shard::new(Owner::heap(ARENA_BYTES, NoJournal), ShardOptions::default());
        let value = vec![7; VALUE_BYTES];
        set(&mut shard, &value);
        set(&mut shard, &value);
        let all = HashCommand::All { told: Told::Both }.request();
        let hash = shard.hash(b"h");
        let begin =
            |shard: &mut Shard| shard.begin_read((b"h", hash), all, Now::default()).unwrap();
        let mut reads: Vec<_> = (0..READERS).map(|_| begin(&mut shard)).collect();
        let before = peak_bytes();
        set(&mut shard, &value);
        let taken = peak_bytes() - before;
        let most = ARENA_BYTES / KEPT_PARTS_SHARE as usize;
        assert!(taken < 8 * most, "{taken} bytes were taken, {most} may be kept");
        let mut turn = |read| shard.read_turn(read, &mut Vec::new(), Now::default());
        let whole = reads.iter_mut().filter_map(|read| turn(read).ok()).count();
        assert!((1..=most / VALUE_BYTES).contains(&whole), "{whole}");
    });
}

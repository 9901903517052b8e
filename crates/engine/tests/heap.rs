//! The types' heap memory beside the arena: the shard's count against the process's, and that it
//! counts in the shard's memory.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_layout::hash::KeyHash;
use remora_layout::rect::Rect;
use remora_protocol::message::Status;
use remora_protocol::tree::{Objects, PutObject, TreeCommand, TreeSettings};
use remora_protocol::{Command, Condition, Expiry};
use remora_testing::in_own_process;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 1 };
const ARENA_BYTES: usize = 160 << 20;

fn shard(bytes: usize) -> Shard {
    let options = ShardOptions { record_secret: 77, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

fn tree(shard: &mut Shard, name: &[u8], command: TreeCommand<'_>) -> Status {
    let request = command.checked().map(TreeCommand::request).unwrap();
    let command = Command::Of { key: name, request };
    shard.execute(&command, shard.hash(name), NOW).status
}

/// Bytes of the process that are in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Touches all pages of the arena, so that it takes no more afterwards.
fn fill(shard: &mut Shard) {
    let value = vec![1; 1 << 20];
    for number in 0.. {
        let key = format!("key{number}");
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let set =
            Command::Set { key: key.as_bytes(), value: &value, condition, expiry, get: false };
        if shard.execute(&set, shard.hash(key.as_bytes()), NOW).status != Status::Ok {
            break;
        }
    }
    shard.execute(&Command::Flush, KeyHash(0), NOW);
    while shard.wants_release() {
        shard.release_some(NOW);
    }
}

/// The growth of the heap during an action: by the shard's count, and by the process's.
fn grown(shard: &mut Shard, what: &str, mut act: impl FnMut(&mut Shard)) {
    shard.tick(NOW);
    let before = (shard.stats().heap_bytes, resident());
    act(shard);
    // Pages for all of it are set aside in the end.
    (0..50).for_each(|_| shard.tick(NOW));
    let said = shard.stats().heap_bytes - before.0;
    let taken = resident().saturating_sub(before.1);
    let covered = shard.stats().heap_covered_bytes;
    assert!(shard.stats().heap_bytes - covered < 64 << 10, "{what}: {covered} covered");
    assert!(
        (taken * 6 / 10..=taken * 15 / 10).contains(&said),
        "{what}: {said} bytes were said, {taken} were taken"
    );
    shard.audit().unwrap();
}

#[test]
fn the_heap_is_what_types_say_and_counts_as_memory() {
    in_own_process(|| {
        let mut shard = shard(ARENA_BYTES);
        fill(&mut shard);
        let point = |id: u64| Rect::point((id % 1_000) as f64, (id / 1_000) as f64).unwrap();
        grown(&mut shard, "objects with integers as ids", |shard| {
            assert_eq!(tree(shard, b"t", TreeCommand::Create(TreeSettings::default())), Status::Ok);
            for from in (0..600_000).step_by(1_000) {
                let mut list = Vec::new();
                (from..from + 1_000).for_each(|id| Objects::push(&mut list, id, &point(id)));
                let objects = Objects::parse(&list).unwrap();
                let stage = TreeCommand::Stage { load: 1, first: from == 0, objects };
                assert_eq!(tree(shard, b"t", stage), Status::Ok);
            }
            // Bounded: so many steps.
            while tree(shard, b"t", TreeCommand::Build { load: 1 }) == Status::InPieces {}
            assert_eq!(tree(shard, b"t", TreeCommand::Build { load: 1 }), Status::NotEmpty);
        });
        grown(&mut shard, "objects with names that expire", |shard| {
            for id in 0..150_000 {
                let name = format!("object {id}");
                let expiry = Expiry::At(NOW.unix_ms + 1_000 + id * 7 % 100_000);
                let put = PutObject { expiry, ..PutObject::new(name.as_str(), point(id)) };
                assert_eq!(tree(shard, b"u", TreeCommand::Put(put)), Status::Ok);
            }
        });
        grown(&mut shard, "small trees", |shard| {
            for number in 0..2_000 {
                let name = format!("tree {number}");
                let put = TreeCommand::put(number, point(number), None, None);
                assert_eq!(tree(shard, name.as_bytes(), put), Status::Ok);
            }
        });
        // All of it is given back.
        shard.execute(&Command::Flush, KeyHash(0), NOW);
        while shard.wants_release() {
            shard.release_some(NOW);
        }
        (0..50).for_each(|_| shard.tick(NOW));
        assert_eq!((shard.stats().heap_bytes, shard.stats().heap_covered_bytes), (0, 0));
        shard.audit().unwrap();
        full();
    });
}

/// Heap memory takes room in the arena: growth is refused in the end, removal is not.
fn full() {
    let mut shard = shard(2 << 20);
    let put = |shard: &mut Shard, id: u64| {
        tree(shard, b"t", TreeCommand::put(id, Rect::point(id as f64, 1.0).unwrap(), None, None))
    };
    let taken = (0..).take_while(|&id| put(&mut shard, id) == Status::Ok).count() as u64;
    let stats = shard.stats();
    assert!(
        stats.heap_bytes > 256 << 10 && stats.heap_bytes - stats.heap_covered_bytes < 128 << 10
    );
    assert!(stats.tree_bytes + stats.heap_covered_bytes <= 2 << 20);
    assert_eq!(put(&mut shard, taken), Status::OutOfMemory);
    for id in 0..taken {
        assert_eq!(tree(&mut shard, b"t", TreeCommand::Remove { id: id.into() }), Status::Ok);
    }
    shard.audit().unwrap();
}

//! Staged objects of trees that are to be built: the memory that they take of a shard, and how long
//! they stay when nothing is added to them.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Shard, ShardOptions, SnapshotTurn};
use remora_layout::limits::{NODE_RUN_BYTES, PAGE_BYTES, STAGE_IDLE_S};
use remora_layout::node::ENTRY_BYTES;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_protocol::message::Status;
use remora_protocol::tree::{Objects, TreeCommand, TreeSettings};
use remora_protocol::{Command, Condition, Expiry};

const ALL: Rect = Rect { min_x: -1e6, max_x: 1e6, min_y: -1e6, max_y: 1e6 };
const ARENA_BYTES: usize = 8 << 20;
/// Objects of one piece, as clients send them.
const PIECE: u64 = 1_000;

fn now(since_start_s: u64) -> Now {
    Now { unix_ms: 1_700_000_000_000 + since_start_s * 1_000, since_start_s }
}

fn shard(eviction: Eviction) -> Shard {
    let options = ShardOptions { eviction, record_secret: 77, ..ShardOptions::default() };
    Shard::new(Owner::heap(ARENA_BYTES, NoJournal), options)
}

fn ask(shard: &mut Shard, name: &[u8], command: TreeCommand<'_>, now: Now) -> (Status, i64) {
    let request = command.checked().map(TreeCommand::request).unwrap();
    let reply = shard.execute(&Command::Of { key: name, request }, shard.hash(name), now);
    (reply.status, reply.number)
}

fn create(shard: &mut Shard, name: &[u8]) {
    let made = ask(shard, name, TreeCommand::Create(TreeSettings::default()), now(1));
    assert_eq!(made.0, Status::Ok);
}

/// Stages the objects from this id on.
fn stage(shard: &mut Shard, name: &[u8], load: u64, from: u64, now: Now) -> (Status, i64) {
    let mut list = Vec::new();
    for id in from..from + PIECE {
        let (x, y) = ((id % 300) as f64, (id / 300) as f64);
        Objects::push(&mut list, id, &Rect::point(x, y).unwrap());
    }
    let objects = Objects::parse(&list).unwrap();
    ask(shard, name, TreeCommand::Stage { load, first: from == 0, objects }, now)
}

/// Builds a tree to the end; gives the number of steps too.
fn build(shard: &mut Shard, name: &[u8], load: u64, now: Now) -> (Status, i64, usize) {
    for steps in 1.. {
        match ask(shard, name, TreeCommand::Build { load }, now) {
            (Status::InPieces, _) => shard.audit().unwrap(),
            (status, number) => return (status, number, steps),
        }
    }
    unreachable!("a build has an end")
}

/// Stages until memory is full; gives the number of objects that were taken.
fn stage_all(shard: &mut Shard, name: &[u8]) -> u64 {
    let mut taken = 0;
    loop {
        match stage(shard, name, 1, taken, now(1)) {
            (Status::Ok, staged) => taken = staged as u64,
            (status, _) => {
                assert_eq!(status, Status::OutOfMemory);
                return taken;
            }
        }
        shard.audit().unwrap();
    }
}

fn set(shard: &mut Shard, key: &[u8], value: &[u8]) -> Status {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let hash = shard.hash(key);
    shard.execute(&Command::Set { key, value, condition, expiry, get: false }, hash, now(1)).status
}

#[test]
fn trees_under_construction_share_one_shards_memory() {
    let mut shard = shard(Eviction::None);
    let names = [&b"a"[..], b"b", b"c", b"d"];
    names.iter().for_each(|name| create(&mut shard, name));
    let mut staged = 0;
    for piece in 0..2 * ARENA_BYTES as u64 / ENTRY_BYTES as u64 / PIECE {
        let name = names[piece as usize % names.len()];
        let from = piece / names.len() as u64 * PIECE;
        match stage(&mut shard, name, 1, from, now(1)) {
            (Status::Ok, _) => staged += PIECE,
            (status, _) => {
                assert_eq!(status, Status::OutOfMemory);
                break;
            }
        }
        let stats = shard.stats();
        // Lists reserve room to grow for a half of their content.
        let (least, pages) = (staged * ENTRY_BYTES as u64, (names.len() * PAGE_BYTES) as u64);
        assert!(stats.staged_bytes >= least, "{} of {least}", stats.staged_bytes);
        assert!(stats.staged_bytes <= least * 3 / 2 + pages, "{} of {least}", stats.staged_bytes);
        assert!(stats.staged_bytes <= stats.slots.run_bytes, "set aside in the arena");
        shard.audit().unwrap();
    }
    let taken = staged as usize * ENTRY_BYTES;
    assert!((ARENA_BYTES / 3..ARENA_BYTES).contains(&taken), "{taken} bytes of objects were taken");
    // The refused one is gone; with the other trees all is.
    names.iter().for_each(|name| assert_eq!(ask(&mut shard, name, TreeCommand::Drop, now(1)).1, 1));
    // Bounded: each turn gives something back.
    while shard.wants_release() {
        shard.release_some(now(1));
    }
    assert_eq!((shard.stats().staged_bytes, shard.stats().slots.run_bytes), (0, 0));
    shard.audit().unwrap();
}

#[test]
fn what_is_staged_lessens_what_keys_may_take() {
    let mut shard = shard(Eviction::None);
    create(&mut shard, b"t");
    for from in (0..100_000).step_by(PIECE as usize) {
        assert_eq!(stage(&mut shard, b"t", 1, from, now(1)).0, Status::Ok);
    }
    let staged = shard.stats().staged_bytes as usize;
    assert!(staged >= 100_000 * ENTRY_BYTES);
    let value = vec![7; 50_000];
    let fill = |shard: &mut Shard| {
        let taken = |key: &u64| set(shard, &key.to_le_bytes(), &value) == Status::Ok;
        (0..1_000).take_while(taken).count() * value.len()
    };
    let beside = fill(&mut shard);
    assert!(beside + staged <= ARENA_BYTES, "{beside} bytes of keys beside {staged}");
    // A build in a full shard is refused, and the staged objects are gone.
    assert_eq!(build(&mut shard, b"t", 1, now(1)).0, Status::OutOfMemory);
    assert_eq!(build(&mut shard, b"t", 1, now(1)).0, Status::OtherLoad);
    // The content of so many objects is freed in turns.
    while shard.wants_ticks() {
        shard.tick(now(1));
        shard.audit().unwrap();
    }
    assert_eq!(shard.stats().staged_bytes, 0);
    let later = fill(&mut shard);
    assert!(later > beside + staged / 2, "{later} bytes of keys after {beside}");
    shard.audit().unwrap();
}

#[test]
fn a_built_tree_leaves_nothing_set_aside() {
    let mut shard = shard(Eviction::None);
    create(&mut shard, b"t");
    for from in (0..50_000).step_by(PIECE as usize) {
        assert_eq!(stage(&mut shard, b"t", 1, from, now(1)).0, Status::Ok);
    }
    assert!(shard.stats().staged_bytes > 0);
    let built = build(&mut shard, b"t", 1, now(1));
    assert_eq!((built.0, built.1), (Status::Ok, 50_000));
    assert_eq!(shard.stats().staged_bytes, 0);
    // Nothing is staged for a tree that has objects.
    assert_eq!(stage(&mut shard, b"t", 2, 0, now(1)).0, Status::NotEmpty);
    assert_eq!(shard.stats().staged_bytes, 0);
    shard.audit().unwrap();
}

#[test]
fn keys_make_room_for_staged_objects_where_keys_may_go() {
    let mut shard = shard(Eviction::S3Fifo);
    for key in 0..20_000_u64 {
        assert_eq!(set(&mut shard, &key.to_le_bytes(), &[1; 500]), Status::Ok);
    }
    let evicted = shard.stats().evicted;
    assert!(evicted > 0, "it is full");
    create(&mut shard, b"t");
    let taken = stage_all(&mut shard, b"t") as usize * ENTRY_BYTES;
    assert!(taken > ARENA_BYTES / 2, "{taken} bytes of objects were taken");
    assert!(shard.stats().evicted > evicted);
    // It was given up when memory was full; its place serves keys again.
    while shard.wants_ticks() && shard.stats().staged_bytes > 0 {
        shard.tick(now(1));
    }
    assert_eq!(shard.stats().staged_bytes, 0);
    for key in 0..1_000_u64 {
        assert_eq!(set(&mut shard, &key.to_le_bytes(), &[2; 500]), Status::Ok);
    }
    shard.audit().unwrap();
}

#[test]
fn an_idle_stage_goes_and_its_client_hears_of_it() {
    let mut shard = shard(Eviction::None);
    assert!(!shard.wants_ticks());
    for name in [b"idle", b"busy"] {
        create(&mut shard, name);
        assert_eq!(stage(&mut shard, name, 7, 0, now(1)).0, Status::Ok);
    }
    assert!(shard.wants_ticks());
    let both = shard.stats().staged_bytes;
    let mut second = 1;
    let mut pass = |shard: &mut Shard, seconds: u64| {
        for _ in 0..seconds {
            second += 1;
            // More than once a second, as shards tick.
            shard.tick(now(second));
            shard.tick(now(second));
        }
        now(second)
    };
    let later = pass(&mut shard, STAGE_IDLE_S);
    assert_eq!(shard.stats().staged_bytes, both, "it may still come");
    assert_eq!(stage(&mut shard, b"busy", 7, PIECE, later), (Status::Ok, 2 * PIECE as i64));
    let later = pass(&mut shard, 1);
    let stats = shard.stats();
    assert_eq!(stats.stages_abandoned, 1);
    assert!((1..both + ENTRY_BYTES as u64 * PIECE).contains(&stats.staged_bytes));
    shard.audit().unwrap();
    // Neither a late piece nor a late build makes a part of a tree.
    assert_eq!(stage(&mut shard, b"idle", 7, PIECE, later).0, Status::OtherLoad);
    assert_eq!(build(&mut shard, b"idle", 7, later).0, Status::OtherLoad);
    // From the start it may come again, and the busy one is built.
    assert_eq!(stage(&mut shard, b"idle", 8, 0, later).0, Status::Ok);
    for (name, load, objects) in [(b"idle", 8, PIECE), (b"busy", 7, 2 * PIECE)] {
        let built = build(&mut shard, name, load, later);
        assert_eq!((built.0, built.1), (Status::Ok, objects as i64));
    }
    assert_eq!(shard.stats().staged_bytes, 0);
    assert!(!shard.wants_ticks());
    shard.audit().unwrap();
}

#[test]
fn a_stage_without_objects_goes_too_and_snapshots_wait_no_longer() {
    let mut shard = shard(Eviction::None);
    create(&mut shard, b"t");
    let objects = Objects::parse(&[]).unwrap();
    let none = TreeCommand::Stage { load: 7, first: true, objects };
    assert_eq!(ask(&mut shard, b"t", none, now(1)).0, Status::Ok);
    let next = |shard: &mut Shard, now: Now| {
        let mut turns = (0..1_000).map(|_| shard.snapshot_turn(now));
        turns.find(|turn| *turn != SnapshotTurn::More)
    };
    shard.begin_snapshot().unwrap();
    assert_eq!(next(&mut shard, now(1)), Some(SnapshotTurn::Waits));
    assert!(shard.wants_ticks());
    for second in 2..STAGE_IDLE_S + 5 {
        shard.tick(now(second));
        shard.tick(now(second));
    }
    let ends = next(&mut shard, now(STAGE_IDLE_S + 5));
    assert!(matches!(ends, Some(SnapshotTurn::Ended { .. })), "{ends:?}");
    assert!(!shard.wants_ticks());
    shard.audit().unwrap();
}

#[test]
fn a_shard_that_was_held_up_does_not_take_it_for_silence() {
    let mut shard = shard(Eviction::None);
    create(&mut shard, b"t");
    shard.tick(now(1));
    assert_eq!(stage(&mut shard, b"t", 7, 0, now(1)).0, Status::Ok);
    for hours in 1..=STAGE_IDLE_S {
        shard.tick(now(hours * 3_600));
    }
    assert_eq!(shard.stats().stages_abandoned, 0);
    assert_eq!(stage(&mut shard, b"t", 7, PIECE, now(1_000_000)).0, Status::Ok);
}

#[test]
fn a_tree_is_built_in_bounded_steps_between_which_others_change_things() {
    let mut shard = shard(Eviction::None);
    create(&mut shard, b"t");
    for from in (0..50_000).step_by(PIECE as usize) {
        assert_eq!(stage(&mut shard, b"t", 1, from, now(1)).0, Status::Ok);
    }
    let logged = shard.log().last_sequence();
    let (mut steps, mut nodes) = (0, 0);
    let built = loop {
        match ask(&mut shard, b"t", TreeCommand::Build { load: 1 }, now(1)) {
            (Status::InPieces, _) => {}
            built => break built,
        }
        // A step writes this many nodes, and no reader sees them.
        let bytes = shard.stats().tree_bytes;
        assert!(bytes - nodes <= 2 * NODE_RUN_BYTES as u64, "{}", bytes - nodes);
        nodes = bytes;
        assert_eq!(
            ask(
                &mut shard,
                b"t",
                TreeCommand::Count { window: ALL, predicate: Predicate::Intersects },
                now(1)
            ),
            (Status::Ok, 0)
        );
        assert_eq!(set(&mut shard, b"k", &[7; 100]), Status::Ok);
        // A tree that is being built takes no more objects.
        assert_eq!(stage(&mut shard, b"t", 1, PIECE, now(1)).0, Status::OtherLoad);
        steps += 1;
    };
    assert_eq!(built, (Status::Ok, 50_000));
    // 50,000 objects are looked at some 20 times, and written.
    assert!((20..100).contains(&steps), "{steps}");
    // The log has the other changes, and one of the tree.
    assert_eq!(shard.log().last_sequence(), logged + steps + 1);
    shard.audit().unwrap();
}

#[test]
fn a_build_that_is_given_up_gives_everything_back() {
    // An object that comes in between, a new load, the tree's end, silence.
    for way in 0..4 {
        let mut shard = shard(Eviction::None);
        create(&mut shard, b"t");
        let empty = shard.stats();
        for from in (0..50_000).step_by(PIECE as usize) {
            assert_eq!(stage(&mut shard, b"t", 1, from, now(1)).0, Status::Ok);
        }
        // Until nodes are written.
        while shard.stats().tree_bytes < empty.tree_bytes + NODE_RUN_BYTES as u64 {
            let step = ask(&mut shard, b"t", TreeCommand::Build { load: 1 }, now(1));
            assert_eq!(step.0, Status::InPieces);
        }
        match way {
            0 => {
                let put = TreeCommand::put(7, Rect::point(1.0, 2.0).unwrap(), None, None);
                assert_eq!(ask(&mut shard, b"t", put, now(1)).0, Status::Ok);
                assert_eq!(build(&mut shard, b"t", 1, now(1)).0, Status::NotEmpty);
                assert_eq!(
                    ask(&mut shard, b"t", TreeCommand::Remove { id: 7.into() }, now(1)).1,
                    1
                );
            }
            1 => assert_eq!(stage(&mut shard, b"t", 2, 0, now(1)).0, Status::Ok),
            2 => assert_eq!(ask(&mut shard, b"t", TreeCommand::Drop, now(1)).1, 1),
            _ => (0..4 * STAGE_IDLE_S).for_each(|second| shard.tick(now(second))),
        }
        assert_eq!(
            build(&mut shard, b"t", 2, now(1)).0,
            [Status::OtherLoad, Status::Ok, Status::NoTree, Status::OtherLoad][way]
        );
        // Bounded: each turn gives something back.
        while shard.wants_release() || shard.wants_ticks() {
            shard.release_some(now(1));
            shard.tick(now(1));
            shard.audit().unwrap();
        }
        assert_eq!(shard.stats().staged_bytes, 0);
        // Another one of as many is built in the same memory.
        if way == 2 {
            create(&mut shard, b"t");
        } else if way == 1 {
            assert_eq!(ask(&mut shard, b"t", TreeCommand::Drop, now(1)).1, 1);
            create(&mut shard, b"t");
        }
        for from in (0..50_000).step_by(PIECE as usize) {
            assert_eq!(stage(&mut shard, b"t", 3, from, now(2)).0, Status::Ok);
        }
        let built = build(&mut shard, b"t", 3, now(2));
        assert_eq!((built.0, built.1), (Status::Ok, 50_000));
        shard.audit().unwrap();
    }
}

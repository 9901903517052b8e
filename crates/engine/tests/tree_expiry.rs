//! Objects of trees that expire all at once: a sweep in every turn until none is left, and its
//! obstacles.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Applied, Now, Origin, Shard, ShardOptions};
use remora_layout::limits::{EXPIRE_TURN_OBJECTS, MAX_NODE_ENTRIES, NEAREST_TURN_WORK};
use remora_layout::rect::Rect;
use remora_protocol::message::Status;
use remora_protocol::tree::{FoundObjects, ObjectId, PutObject, TreeCommand, TreeSettings};
use remora_protocol::{Command, Dumped, Expiry};

const START: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 1 };
const LATE: Now = Now { unix_ms: START.unix_ms + 1_000, since_start_s: 2 };

fn new_shard() -> Shard {
    let options = ShardOptions { record_secret: 77, ..ShardOptions::default() };
    Shard::new(Owner::heap(32 << 20, NoJournal), options)
}

fn ask(shard: &mut Shard, key: &[u8], command: TreeCommand<'_>, now: Now) -> (Status, i64) {
    let request = command.checked().map(TreeCommand::request).unwrap();
    let hash = shard.hash(key);
    let reply = shard.execute(&Command::Of { key, request }, hash, now);
    (reply.status, reply.number)
}

/// Puts so many objects into a tree; they expire when `LATE` comes, one after the
/// other, some of them at the same time.
fn put(shard: &mut Shard, key: &[u8], objects: u64, first_ms: u64) {
    for at in 0..objects {
        let name = format!("object {at}");
        let expiry = Expiry::At(START.unix_ms + first_ms + at / 10);
        let rect = Rect::point((at % 97) as f64, (at % 89) as f64).unwrap();
        let put = PutObject { expiry, ..PutObject::new(ObjectId::from(&name[..]), rect) };
        assert_eq!(ask(shard, key, TreeCommand::Put(put), START), (Status::Ok, 1));
    }
}

/// Turns until the shard has nothing to do; none removes more than it may.
fn turns(shard: &mut Shard, now: Now) -> usize {
    for turns in 0.. {
        if !shard.wants_release() {
            return turns;
        }
        let before = shard.stats().objects_expired;
        shard.release_some(now);
        let removed = shard.stats().objects_expired - before;
        assert!(removed <= EXPIRE_TURN_OBJECTS as u64, "{removed} in a turn");
        assert!(turns < 10_000, "it comes to an end");
    }
    unreachable!()
}

#[test]
fn after_one_tick_the_sweep_goes_on_in_every_turn_until_nothing_is_due() {
    let mut shard = new_shard();
    put(&mut shard, b"t", 5_000, 1);
    shard.tick(START);
    assert!(!shard.wants_release(), "nothing is due");
    shard.tick(LATE);
    assert!(turns(&mut shard, LATE) >= 5_000 / EXPIRE_TURN_OBJECTS - 1);
    assert_eq!((shard.stats().objects_expired, shard.stats().tree_objects), (5_000, 0));
    assert!(!shard.wants_release());
    shard.audit().unwrap();
}

#[test]
fn a_tree_that_is_being_moved_does_not_stop_the_others() {
    let mut shard = new_shard();
    put(&mut shard, b"moved", 1_000, 1);
    put(&mut shard, b"t", 1_000, 50);
    let hash = shard.hash(b"moved");
    let dump = shard.execute(&Command::Dump { key: b"moved", holds: true }, hash, START);
    let dump = Dumped::parse(dump.value.unwrap()).unwrap().dump;
    shard.tick(LATE);
    // A tree that is being moved takes a step for each of its times, not for each
    // object.
    assert!(turns(&mut shard, LATE) <= 1_100 / EXPIRE_TURN_OBJECTS + 2);
    assert_eq!((shard.stats().objects_expired, shard.stats().tree_objects), (1_000, 1_000));
    let end = Command::EndDump { key: b"moved", dump };
    assert_eq!(shard.execute(&end, hash, LATE).status, Status::Ok);
    shard.tick(LATE);
    turns(&mut shard, LATE);
    assert_eq!((shard.stats().objects_expired, shard.stats().tree_objects), (2_000, 0));
    shard.audit().unwrap();
}

/// Objects that a flush is about to remove do not expire: the log's flush removes them.
#[test]
fn a_sweep_removes_nothing_that_is_flushed() {
    let mut shard = new_shard();
    put(&mut shard, b"t", 300, 1);
    let fill = |shard: &mut Shard, keys: u64| {
        for at in 0..keys {
            let key = at.to_le_bytes();
            let mut tree = [&b"tree "[..], &key].concat();
            tree.truncate(13);
            let create = TreeCommand::Create(TreeSettings::default());
            assert_eq!(ask(shard, &tree, create, START).0, Status::Ok);
        }
    };
    fill(&mut shard, 3_000);
    let flush = shard.begin_flush(None).unwrap();
    let before = shard.last_sequence();
    for _ in 0..3 {
        // A tick looks for expired objects before it sweeps for the flush.
        shard.tick(LATE);
    }
    turns(&mut shard, LATE);
    drop(flush);
    assert_eq!((shard.stats().objects_expired, shard.stats().tree_objects), (0, 0));
    assert_eq!(shard.last_sequence(), before, "the flush was its last change");
    let mut copy = new_shard();
    copy.begin_applying();
    for entry in shard.log().entries() {
        let applied = copy.apply(&entry.entry(), &Origin::WHOLE, START);
        assert_eq!(applied, Ok(Applied::Done));
    }
    assert_eq!(copy.digest(), shard.digest());
    shard.audit().unwrap();
}

/// The search for the nearest passes expired objects in turns, whether they are removed meanwhile
/// or still there.
#[test]
fn the_nearest_behind_many_that_have_expired_are_found_in_turns() {
    for sweeps in [false, true] {
        let mut shard = new_shard();
        put(&mut shard, b"t", 20_000, 1);
        for id in 0..3 {
            let rect = Rect::point(500.0 + id as f64, 500.0).unwrap();
            let put = PutObject::new(ObjectId::Number(id), rect);
            assert_eq!(ask(&mut shard, b"t", TreeCommand::Put(put), START), (Status::Ok, 1));
        }
        let now = Now { unix_ms: START.unix_ms + 10_000, ..LATE };
        let nearest = TreeCommand::Nearest { x: 1.0, y: 2.0, wanted: 2 };
        let request = nearest.checked().map(TreeCommand::request).unwrap();
        let on = (&b"t"[..], shard.hash(b"t"));
        let mut read = shard.begin_read(on, request, now).unwrap();
        let (mut found, mut turns) = (Vec::new(), 0);
        if sweeps {
            shard.tick(now);
        }
        loop {
            let turn = shard.read_turn(&mut read, &mut found, now).unwrap();
            turns += 1;
            if turn.ended {
                assert_eq!(turn.number, 2);
                break;
            }
            assert!(found.is_empty() && turns < 100);
            if sweeps {
                assert!(shard.wants_release(), "the sweep is not at its end");
                shard.release_some(now);
            }
        }
        let words: Vec<u64> =
            FoundObjects::of(&found).iter().map(|(object, _)| object.word).collect();
        assert_eq!(words, [0, 1]);
        // The work of one turn is less than all objects.
        let in_a_turn = NEAREST_TURN_WORK + MAX_NODE_ENTRIES as u64;
        assert!(turns >= 19_000 / in_a_turn, "{turns} turns");
        // Without turns it returns the same.
        assert_eq!(ask(&mut shard, b"t", nearest, now), (Status::Ok, 2));
    }
}

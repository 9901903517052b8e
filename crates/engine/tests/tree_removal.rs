//! A tree that goes, whatever takes it away: one step hides its root, and turns of
//! bounded work give its nodes and its objects' records back. Work is counted in
//! words stored.

use remora_arena::{Journal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_index::rtree::{LocalWalk, Query};
use remora_layout::limits::{NODE_RUN_BYTES, RELEASE_RECORDS, RELEASE_TURNS};
use remora_layout::node::{Home, node_bytes};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{RootPlace, TREE_INFO_WORDS, TreeInfo};
use remora_protocol::message::Status;
use remora_protocol::tree::{TreeCommand, TreeSettings};
use remora_protocol::{Command, Condition, ExpireCondition, Expiry, Pairs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::FromBytes;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const LATER: Now = Now { unix_ms: NOW.unix_ms + 60_000, ..NOW };
const KEY: &[u8] = b"tree";
const OBJECTS: u64 = 20_000;
/// Words that a command stores at most that removes one key.
const COMMAND_WORDS: u64 = 64;
/// Words that one turn stores: two for each node of a run, or some for each record.
const TURN_WORDS: u64 = RELEASE_TURNS as u64
    * if 2 * RUN_NODES > 8 * RELEASE_RECORDS as u64 {
        2 * RUN_NODES
    } else {
        8 * RELEASE_RECORDS as u64
    };
const RUN_NODES: u64 = (NODE_RUN_BYTES / node_bytes(30)) as u64;

/// Counts the words stored.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU64>);

impl Journal for Counting {
    const ACTIVE: bool = true;
    fn stored(&mut self, _index: usize, _value: u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn fenced(&mut self) {}
}

struct World {
    shard: Shard<Counting>,
    words: Counting,
}

impl World {
    /// A tree of points; some of them carry bytes.
    fn new() -> Self {
        let words = Counting::default();
        let owner = Owner::heap(32 << 20, words.clone());
        let mut world = Self { shard: Shard::new(owner, ShardOptions::default()), words };
        world.tree(TreeCommand::Create(TreeSettings::default()));
        for id in 0..OBJECTS {
            let rect = Rect::point((id % 141) as f64, (id / 141) as f64).unwrap();
            let data = (id % 5 == 0).then_some(&b"data"[..]);
            world.tree(TreeCommand::put(id, rect, data, None));
        }
        world
    }

    fn ask(&mut self, command: &Command<'_>, now: Now) -> (Status, i64) {
        let hash = self.shard.hash(command.key().unwrap_or_default());
        let reply = self.shard.execute(command, hash, now);
        (reply.status, reply.number)
    }

    fn tree(&mut self, command: TreeCommand<'_>) -> (Status, i64) {
        let request = command.checked().map(TreeCommand::request).unwrap();
        self.ask(&Command::Of { key: KEY, request }, NOW)
    }

    fn root(&mut self) -> RootPlace {
        let request = TreeCommand::Info.checked().map(TreeCommand::request).unwrap();
        let command = Command::Of { key: KEY, request };
        let reply = self.shard.execute(&command, self.shard.hash(KEY), NOW);
        let words = <[u64; TREE_INFO_WORDS]>::read_from_bytes(reply.value.unwrap()).unwrap();
        RootPlace::of(TreeInfo::from_words(&words).unwrap().at, KEY.len()).unwrap()
    }

    /// Words stored by one step.
    fn words_of<T>(&mut self, step: impl FnOnce(&mut Self) -> T) -> (T, u64) {
        let before = self.words.0.load(Ordering::Relaxed);
        let done = step(self);
        (done, self.words.0.load(Ordering::Relaxed) - before)
    }

    /// Objects that another thread reads of the tree there.
    fn read(&self, root: RootPlace, now: Now) -> Option<usize> {
        let ShardOptions { record_secret: secret, region, .. } = ShardOptions::default();
        let view = self.shard.owner().view().clone();
        let window = Rect::new(-1.0, 1e6, -1.0, 1e6).unwrap();
        let query = Query::Window { window, predicate: Predicate::Intersects };
        let home = Home { secret, region };
        let mut walk = LocalWalk::begin_at(view, home, (root, now.unix_ms), query).ok()?;
        let limits = remora_walk::local::WalkLimits::REGION;
        walk.run_within(&limits, &mut Vec::new()).ok()?.then(|| walk.walk().results().len())
    }
}

#[test]
fn a_tree_goes_in_bounded_turns_whatever_takes_it_away() {
    for way in 0..7 {
        let mut world = World::new();
        let root = world.root();
        let bytes = world.shard.stats().tree_bytes;
        assert_eq!(world.read(root, NOW), Some(OBJECTS as usize));
        let expire = |at_ms| {
            let condition = ExpireCondition::Always;
            Command::Expire { key: KEY, at_ms, condition }
        };
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let set = Command::Set { key: KEY, value: b"x", condition, expiry, get: false };
        let mut list = Vec::new();
        Pairs::push(&mut list, KEY, b"x");
        let multi_set = Command::MultiSet { pairs: Pairs::parse(&list).unwrap() };
        let (_, words) = world.words_of(|world| match way {
            0 => assert_eq!(world.tree(TreeCommand::Drop).1, 1),
            1 => assert_eq!(world.ask(&Command::Del { key: KEY }, NOW).1, 1),
            2 => assert_eq!(world.ask(&set, NOW).0, Status::Ok),
            3 => assert_eq!(world.ask(&multi_set, NOW).0, Status::Ok),
            4 => assert_eq!(world.ask(&expire(NOW.unix_ms - 1), NOW).1, 1),
            5 => {
                assert_eq!(world.ask(&expire(LATER.unix_ms), NOW).1, 1);
                assert_eq!(world.ask(&Command::Exists { key: KEY }, LATER).1, 0);
            }
            _ => {
                assert_eq!(world.ask(&expire(LATER.unix_ms), NOW).1, 1);
                assert_eq!(world.read(root, NOW), Some(OBJECTS as usize), "it is read as before");
                world.shard.tick(LATER);
            }
        });
        // A tick is a turn, too.
        let most = if way == 6 { COMMAND_WORDS + TURN_WORDS } else { COMMAND_WORDS };
        assert!(words <= most, "way {way}: {words} words");
        assert_eq!(world.read(root, NOW), None, "way {way}: it is hidden at once");
        let left = world.shard.stats().tree_bytes;
        assert!(left > bytes / 2, "way {way}: what is to be freed counts: {left} of {bytes}");
        // Commands on other keys continue meanwhile, and are bounded too.
        let other = Command::Set { key: b"other", value: b"x", condition, expiry, get: false };
        let (_, words) = world.words_of(|world| world.ask(&other, NOW));
        assert!(words <= COMMAND_WORDS + TURN_WORDS, "way {way}: {words} words");
        let mut turns = 0;
        while world.shard.wants_release() {
            let (_, words) = world.words_of(|world| world.shard.release_some(NOW));
            assert!(words <= TURN_WORDS, "way {way}, turn {turns}: {words} words");
            turns += 1;
        }
        assert!(turns > 5, "way {way}: {turns} turns");
        let stats = world.shard.stats();
        assert_eq!((stats.tree_bytes, stats.trees, stats.tree_objects), (0, 0, 0));
        world.shard.audit().unwrap();
    }
}

#[test]
fn a_flush_of_trees_goes_in_bounded_turns() {
    let mut world = World::new();
    let root = world.root();
    let mut flush = world.shard.begin_flush(None).unwrap();
    let (mut turns, mut ended) = (0, 0);
    while world.shard.wants_release() {
        let (_, words) = world.words_of(|world| world.shard.release_some(NOW));
        assert!(words <= COMMAND_WORDS + TURN_WORDS, "turn {turns}: {words} words");
        turns += 1;
        if ended == 0 && world.shard.read_turn(&mut flush, &mut Vec::new(), NOW).unwrap().ended {
            ended = turns;
            assert_eq!(world.read(root, NOW), None, "answered, it is dead for readers");
        }
    }
    assert!(ended == 1 && turns > 5, "{ended} of {turns} turns");
    assert_eq!(world.shard.stats().tree_bytes, 0);
    world.shard.audit().unwrap();
}

/// A tree that expires is read until its time, and not from then on, whether or not
/// a command has met it.
#[test]
fn other_threads_read_a_tree_until_it_expires() {
    let mut world = World::new();
    let root = world.root();
    let at_ms = NOW.unix_ms + 1_000;
    let condition = ExpireCondition::Always;
    assert_eq!(world.ask(&Command::Expire { key: KEY, at_ms, condition }, NOW).1, 1);
    let at = |unix_ms| Now { unix_ms, ..NOW };
    assert_eq!(world.read(root, at(at_ms - 1)), Some(OBJECTS as usize));
    assert_eq!(world.read(root, at(at_ms)), None);
    assert_eq!(world.ask(&Command::Persist { key: KEY }, NOW).1, 1);
    assert_eq!(world.read(root, at(at_ms)), Some(OBJECTS as usize));
}

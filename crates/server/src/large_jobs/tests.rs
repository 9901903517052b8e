use super::*;
use crate::waits::Run;
use remora_arena::{NoJournal, Owner};
use remora_engine::{Durability, ShardOptions};
use remora_frontend::{self as frontend, Each, KeyBatch, KeyCommand, KeyReplies, WantedBytes};
use remora_layout::database::Database;
use remora_layout::limits::{
    DIGEST_RESTARTS, DIGEST_TURN_PARTS, JOB_KEYS_PER_TURN, SEARCH_TURN_BYTES, SEARCH_TURN_NODES,
};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_protocol::hash::HashCommand;
use remora_protocol::message::Status;
use remora_protocol::tree::{Objects, TreeCommand, TreeSettings};
use remora_protocol::{Claim, Condition, Expiry, Items};
use remora_testing::Random;

struct World {
    shard: Shard<NoJournal>,
    jobs: LargeJobs,
}

impl World {
    fn new() -> Self {
        Self::with(Durability::Memory)
    }

    /// Nothing is durable before that is said.
    fn lagging() -> Self {
        Self::with(Durability::Told)
    }

    fn with(durability: Durability) -> Self {
        let options = ShardOptions { durability, ..ShardOptions::default() };
        let shard = Shard::new(Owner::heap(32 << 20, NoJournal), options);
        Self { shard, jobs: LargeJobs::default() }
    }

    fn job(&mut self, connection: usize, request: u64, command: &Command<'_>) {
        self.job_for(connection, request, command, usize::MAX);
    }

    fn job_for(
        &mut self,
        connection: usize,
        request: u64,
        command: &Command<'_>,
        most_objects: usize,
    ) {
        let mut bytes = Vec::new();
        command.encode_into(0, &mut bytes);
        let token = Token { home: 0, connection, serial: 1, request, part: 0, shard: 0 };
        let job = Job { most_objects, ..Job::execute(bytes, token) };
        self.jobs.execute(&mut self.shard, job, Now::default());
    }

    /// The replies that are there: connection, request, bytes of value.
    fn answered(&mut self) -> Vec<(usize, u64, usize)> {
        let mut all = Vec::new();
        while let Some((token, reply)) = self.jobs.pop_reply() {
            assert_eq!(reply.status, Status::Ok);
            let bytes = reply.value.map_or(0, |value| value.len());
            all.push((token.connection, token.request, bytes));
        }
        all
    }

    /// A command about the tree `t`.
    fn tree(&mut self, connection: usize, request: u64, command: TreeCommand<'_>, most: usize) {
        let request_of = command.checked().map(TreeCommand::request).unwrap();
        self.job_for(connection, request, &Command::Of { key: b"t", request: request_of }, most);
    }

    /// The tree `t` with so many points: object i is at (i, 0).
    fn with_points(points: u64) -> Self {
        let mut world = Self::new();
        for id in 0..points {
            let rect = Rect::point(id as f64, 0.0).unwrap();
            world.tree(9, id, TreeCommand::put(id, rect, None, None), usize::MAX);
        }
        assert_eq!(world.answered().len(), points as usize);
        world
    }

    /// The only reply that is there.
    fn reply(&mut self) -> OwnedReply {
        let (_, reply) = self.jobs.pop_reply().expect("a reply");
        assert!(self.jobs.pop_reply().is_none(), "one reply");
        reply
    }

    fn turn(&mut self) {
        self.jobs.turn(&mut self.shard, Now::default());
    }
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    Command::Set { key, value, condition, expiry, get: false }
}

#[test]
fn others_go_on_while_a_connection_moves_a_large_value() {
    let mut world = World::new();
    let pieces = 4;
    let large = vec![7; pieces * STREAM_PIECE_BYTES];
    world.job(1, 0, &set(b"large", &large));
    world.job(1, 1, &set(b"k", b"first"));
    world.job(1, 2, &Command::Get { key: b"large" });
    world.job(1, 3, &Command::StrLen { key: b"large" });
    for round in 0..pieces as u64 - 1 {
        world.turn();
        // Others see no part of it, and are answered at once.
        world.job(2, round, &Command::Get { key: b"k" });
        let missing = world.jobs.pop_reply().unwrap();
        assert_eq!((missing.0.connection, missing.1.status), (2, Status::NotFound));
        world.job(2, round, &set(b"other", b"value"));
        assert_eq!(world.answered(), [(2, round, 0)]);
    }
    world.turn();
    assert_eq!(world.answered(), [(1, 0, 0), (1, 1, 0)], "done, and what was behind it");
    // The GET has begun: it is of this moment, whatever comes.
    world.job(2, 9, &Command::Del { key: b"large" });
    assert_eq!(world.answered(), [(2, 9, 0)]);
    for _ in 0..pieces - 1 {
        world.turn();
        world.job(2, 10, &Command::Exists { key: b"large" });
        assert_eq!(world.answered(), [(2, 10, 0)]);
    }
    world.turn();
    assert_eq!(world.answered(), [(1, 2, large.len()), (1, 3, 0)]);
    assert!(!world.jobs.has_work() && world.jobs.behind.is_empty());
    assert_eq!(world.shard.stats().pinned, 0);
}

#[test]
fn two_large_ones_share_the_turns() {
    let mut world = World::new();
    let large = vec![7; 3 * STREAM_PIECE_BYTES];
    for connection in [1, 2] {
        world.job(connection, 0, &set(b"large", &large));
        world.job(connection, 1, &set(b"large", &large));
    }
    let mut turns = 0;
    let mut order = Vec::new();
    while world.jobs.has_work() {
        world.turn();
        turns += 1;
        order.extend(world.answered());
    }
    assert_eq!(turns, 4 * 3);
    assert_eq!(order, [(1, 0, 0), (2, 0, 0), (1, 1, 0), (2, 1, 0)]);
}

fn ids(reply: &OwnedReply) -> Vec<u64> {
    let objects = Objects::parse(reply.value.as_deref().unwrap()).unwrap();
    let mut ids: Vec<u64> = objects.iter().map(|(id, _)| id).collect();
    ids.sort_unstable();
    ids
}

const EVERYWHERE: Rect = Rect { min_x: -1e9, max_x: 1e9, min_y: -1e9, max_y: 1e9 };
const ALL: TreeCommand<'_> =
    TreeCommand::Search { window: EVERYWHERE, predicate: Predicate::Intersects };
const COUNT: TreeCommand<'_> =
    TreeCommand::Count { window: EVERYWHERE, predicate: Predicate::Intersects };

#[test]
fn others_go_on_while_a_connection_searches_a_tree() {
    let points = 5_000;
    let mut world = World::with_points(points);
    world.tree(1, 0, ALL, usize::MAX);
    world.tree(1, 1, COUNT, usize::MAX);
    let mut turns = 0;
    while world.jobs.lines.front().is_some() && turns < 1_000 {
        world.job(2, turns, &Command::Exists { key: b"k" });
        let missing = world.jobs.pop_reply().unwrap();
        assert_eq!((missing.0.connection, missing.1.number), (2, 0));
        world.turn();
        turns += 1;
        if let Some((token, found)) = world.jobs.pop_reply() {
            assert_eq!(token.request, 0, "the search is answered before the count");
            assert_eq!(ids(&found), (0..points).collect::<Vec<_>>());
            break;
        }
    }
    // No turn gives more than its share, and one node beyond it.
    let bytes = points as usize * ENTRY_BYTES;
    assert!(turns as usize >= bytes / (SEARCH_TURN_BYTES + 30 * ENTRY_BYTES) - 1, "{turns}");
    while world.jobs.has_work() {
        world.turn();
    }
    assert_eq!(world.reply().number, points as i64);
}

#[test]
fn a_tree_that_is_dropped_ends_its_searches() {
    let mut world = World::with_points(5_000);
    world.tree(1, 0, ALL, usize::MAX);
    world.turn();
    world.tree(2, 0, TreeCommand::Drop, usize::MAX);
    assert_eq!(world.reply().number, 1);
    // One of the same name is another tree.
    world.tree(2, 1, TreeCommand::Create(Default::default()), usize::MAX);
    assert_eq!(world.reply().status, Status::Ok);
    world.turn();
    assert_eq!(world.reply(), OwnedReply::status(Status::NoTree));
    world.tree(1, 1, COUNT, usize::MAX);
    assert_eq!(world.reply().number, 0);
    assert!(!world.jobs.has_work() && world.jobs.behind.is_empty());
}

#[test]
fn a_limit_ends_a_search_early() {
    let mut world = World::with_points(5_000);
    for most in [1, 20, 700, 4_999, 5_000, 5_001] {
        world.tree(1, 0, ALL, most);
        let mut turns = 0;
        while world.jobs.has_work() {
            world.turn();
            turns += 1;
        }
        let reply = world.reply();
        let mut found = ids(&reply);
        found.dedup();
        assert_eq!(found.len(), most.min(5_000));
        let turn_objects = SEARCH_TURN_BYTES / ENTRY_BYTES;
        assert!(turns <= most / turn_objects + 2, "{most}: {turns}");
        assert!(most > 20 || reply.number < SEARCH_TURN_NODES as i64);
    }
}

#[test]
fn more_objects_than_a_reply_may_bring() {
    let shard = Shard::new(Owner::heap(512 << 20, NoJournal), ShardOptions::default());
    let mut world = World { shard, ..World::new() };
    world.tree(1, 0, TreeCommand::Create(TreeSettings::default()), usize::MAX);
    let most = MAX_REPLY_BYTES / ENTRY_BYTES;
    let mut list = Vec::new();
    for id in 0..=most as u64 {
        let (x, y) = ((id % 1_000) as f64, (id / 1_000) as f64);
        Objects::push(&mut list, id, &Rect { min_x: x, max_x: x, min_y: y, max_y: y });
        if id % 1_000 == 999 || id == most as u64 {
            let (first, objects) = (id < 1_000, Objects::parse(&list).unwrap());
            world.tree(1, 0, TreeCommand::Stage { load: 1, first, objects }, usize::MAX);
            list.clear();
        }
    }
    world.answered();
    // Bounded: so many steps.
    while {
        world.tree(1, 0, TreeCommand::Build { load: 1 }, usize::MAX);
        world.reply().status == Status::InPieces
    } {}
    let mut search = |most| {
        world.tree(1, 0, ALL, most);
        while world.jobs.has_work() {
            world.turn();
        }
        world.reply()
    };
    assert_eq!(search(usize::MAX), OwnedReply::status(Status::TooLarge));
    assert_eq!(search(most + 1), OwnedReply::status(Status::TooLarge));
    for most in [most, 5] {
        let reply = search(most);
        assert_eq!((reply.status, reply.value.unwrap().len()), (Status::Ok, most * ENTRY_BYTES));
    }
}

/// Objects move under a search from one end of the tree to the other: the
/// search begins again, and gives none of them twice.
#[test]
fn no_object_comes_twice() {
    let mut world = World::with_points(5_000);
    for most in [usize::MAX, 4_000] {
        world.tree(1, 0, ALL, most);
        let mut random = Random::new(7);
        for request in 0.. {
            if !world.jobs.has_work() {
                break;
            }
            for _ in 0..50 {
                let (id, x) = (random.below(5_000), random.below(100_000u32));
                let rect = Rect::point(f64::from(x), 1.0).unwrap();
                let put = TreeCommand::put(id, rect, None, None);
                world.tree(2, request, put, usize::MAX);
                assert_eq!(world.reply().number, 0);
            }
            world.turn();
            if !world.jobs.has_work() {
                break;
            }
        }
        let found = ids(&world.reply());
        assert_eq!(found.len(), most.min(5_000), "each once");
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

#[test]
fn replies_are_held_until_they_are_durable_and_only_those_that_depend_on_it() {
    let mut world = World::lagging();
    world.job(1, 0, &set(b"k", b"1"));
    world.job(1, 1, &Command::Get { key: b"other" });
    assert_eq!(
        world.jobs.pop_reply().map(|(token, _)| token.request),
        Some(1),
        "it looked elsewhere"
    );
    world.job(2, 0, &Command::Get { key: b"k" });
    world.job(2, 1, &Command::Del { key: b"k" });
    world.job(3, 0, &Command::Exists { key: b"k" });
    // A large value waits as well, and so does a read of many objects.
    let large = vec![7; 2 * STREAM_PIECE_BYTES];
    world.job(4, 0, &set(b"large", &large));
    world.job(4, 1, &Command::Get { key: b"large" });
    for _ in 0..3 {
        world.turn();
    }
    let rect = Rect::point(1.0, 1.0).unwrap();
    let put = TreeCommand::put(7, rect, None, None);
    world.tree(5, 0, put, usize::MAX);
    let window = rect;
    let search = TreeCommand::Search { window, predicate: Predicate::Intersects };
    world.tree(5, 1, search, usize::MAX);
    let settings = TreeSettings::default();
    world.tree(5, 2, TreeCommand::Create(settings), usize::MAX);
    for _ in 0..6 {
        world.turn();
    }
    assert!(
        world.jobs.pop_reply().is_none() && !world.jobs.has_work(),
        "nothing to do, none is told"
    );
    assert_eq!(world.jobs.held_replies(), 9);
    assert_eq!(world.jobs.found_bytes(), 1 + large.len() + ENTRY_BYTES, "what they hold counts");
    world.shard.set_durable(1);
    world.turn();
    assert_eq!(world.answered(), [(1, 0, 0), (2, 0, 1)]);
    world.shard.set_durable(2);
    world.turn();
    assert_eq!(world.answered(), [(2, 1, 0), (3, 0, 0)], "nil waits as well");
    world.shard.set_durable(3);
    world.turn();
    assert_eq!(world.answered(), [(4, 0, 0), (4, 1, large.len())]);
    world.shard.set_durable(4);
    world.turn();
    let statuses: Vec<_> = std::iter::from_fn(|| world.jobs.pop_reply())
        .map(|(token, reply)| (token.request, reply.status))
        .collect();
    assert_eq!(statuses, [(0, Status::Ok), (1, Status::Ok), (2, Status::NotDone)]);
    assert_eq!((world.jobs.held_replies(), world.jobs.found_bytes()), (0, 0));
}

/// A digest of many keys goes in turns, between which others are answered.
#[test]
fn a_digest_goes_in_turns() {
    let mut world = World::new();
    for at in 0..3 * DIGEST_TURN_PARTS as u64 {
        world.job(1, at, &set(&at.to_le_bytes(), b"value"));
        world.jobs.pop_reply().expect("set at once");
    }
    world.job(1, 0, &Command::Digest { key: None });
    assert!(world.jobs.pop_reply().is_none());
    world.job(2, 0, &Command::Get { key: &1u64.to_le_bytes() });
    assert_eq!(world.answered(), [(2, 0, 5)]);
    let mut turns = 1;
    while world.jobs.held_replies() == 0 && world.jobs.has_work() {
        world.turn();
        turns += 1;
        assert!(turns < 20);
    }
    assert!(turns >= 3, "{turns}");
    let digest = world.shard.digest().0.to_le_bytes().to_vec();
    assert_eq!(world.reply().value, Some(digest));
    // It waits for the last change that it shows.
    let mut world = World::lagging();
    world.job(1, 0, &set(b"key", b"value"));
    world.job(2, 0, &Command::Digest { key: None });
    world.turn();
    assert!(world.jobs.pop_reply().is_none());
    world.shard.set_durable(1);
    world.turn();
    assert_eq!(world.answered().len(), 2);
}

/// One that something is changed under all the time is refused, and others are
/// answered until then.
#[test]
fn a_digest_under_changes_is_refused() {
    let mut world = World::new();
    for at in 0..3 * DIGEST_TURN_PARTS as u64 {
        world.job(1, at, &set(&at.to_le_bytes(), b"value"));
        world.jobs.pop_reply().expect("set at once");
    }
    world.job(1, 0, &Command::Digest { key: None });
    for turn in 0..DIGEST_RESTARTS as u64 + 1 {
        assert!(world.jobs.has_work(), "{turn}");
        world.job(2, turn, &set(b"key", b"value"));
        assert_eq!(world.answered(), [(2, turn, 0)]);
        world.turn();
    }
    assert_eq!(world.reply().status, Status::TryAgain);
    assert!(!world.jobs.has_work());
}

#[test]
fn a_flush_goes_in_turns_and_is_answered_at_its_end() {
    let mut world = World::new();
    let keys: Vec<Vec<u8>> = (0..5_000).map(|number| format!("k{number}").into_bytes()).collect();
    keys.iter().for_each(|key| world.job(1, 0, &set(key, b"v")));
    world.answered();
    world.job(1, 1, &Command::Flush);
    // The same connection's next command waits behind it, another's does not.
    world.job(1, 2, &Command::Count);
    let (mut turns, mut told) = (0, Vec::new());
    while told.len() < 2 {
        world.job(2, turns, &Command::Count);
        world.shard.release_some(Now::default());
        world.turn();
        turns += 1;
        while let Some((token, reply)) = world.jobs.pop_reply() {
            match token.connection {
                1 => told.push((token.request, reply.number)),
                _ => assert_eq!((token.request, reply.number), (turns - 1, 0)),
            }
        }
    }
    assert!(turns > 10, "{turns}");
    assert_eq!(told, [(1, 5_000), (2, 0)]);
}

/// A job for each of these keys, of a connection. If its guard is dropped, the request is no longer
/// wanted.
fn job_of_keys(
    world: &mut World,
    connection: usize,
    keys: &[String],
    of: KeyCommand,
) -> WantedBytes {
    let wanted = WantedBytes::default();
    let mut batch = KeyBatch::new(Each::Key(of), wanted.found());
    for key in keys {
        let hash = world.shard.hash_of(Database::ZERO, &of(key.as_bytes()));
        batch.push(key.as_bytes(), hash);
    }
    let token = Token { home: 0, connection, serial: 1, request: 0, part: 0, shard: 0 };
    let order = Order::ExecuteEach(Box::new(batch));
    let job = Job { order, token, most_objects: usize::MAX, hash: None };
    world.jobs.execute(&mut world.shard, job, Now::default());
    wanted
}

/// A connection that is gone leaves no list of values that grows; its changes are made.
#[test]
fn reads_of_many_keys_end_with_their_connection_and_changes_do_not() {
    let mut world = World::new();
    let keys: Vec<String> = (0..1_000).map(|key| format!("key{key}")).collect();
    for key in &keys {
        let hash = world.shard.hash(key.as_bytes());
        world.shard.execute(&set(key.as_bytes(), b"v"), hash, Now::default());
    }
    drop(job_of_keys(&mut world, 1, &keys, |key| Command::Get { key }));
    world.turn();
    let (_, reply) = world.jobs.pop_reply().expect("it ended with its first turn");
    assert_eq!((reply.status, reply.value), (Status::TooLarge, None));
    drop(job_of_keys(&mut world, 2, &keys, |key| Command::Del { key }));
    while !world.jobs.has_replies() {
        world.turn();
    }
    let (_, reply) = world.jobs.pop_reply().expect("it is there");
    let removed: i64 = KeyReplies::each(&reply.value.unwrap()).map(|(_, number, _)| number).sum();
    assert_eq!(removed, 1_000);
}

/// Values of every length, so many that each goes in a turn of its own among them.
#[test]
fn a_job_of_many_keys_goes_in_turns() {
    let mut world = World::new();
    let keys: Vec<String> = (0..300).map(|key| format!("key{key}")).collect();
    let value = |at: usize| match at % 50 {
        0 => None,
        7 => Some(vec![at as u8; 3 * STREAM_PIECE_BYTES]),
        9 => Some(vec![at as u8; STREAM_PIECE_BYTES]),
        _ => Some(vec![at as u8; at % 50]),
    };
    for (at, key) in keys.iter().enumerate() {
        if let Some(value) = value(at) {
            let hash = world.shard.hash(key.as_bytes());
            world.shard.execute(&set(key.as_bytes(), &value), hash, Now::default());
        }
    }
    let _wanted = job_of_keys(&mut world, 1, &keys, |key| Command::Get { key });
    // Later jobs of the connection wait; others do not.
    world.job(1, 1, &Command::Get { key: b"key1" });
    world.job(2, 0, &Command::Get { key: b"key1" });
    assert_eq!(world.answered(), [(2, 0, 1)]);
    let mut turns = 0;
    while !world.jobs.has_replies() {
        world.turn();
        turns += 1;
    }
    // 64 keys a turn, and the six large values three more each.
    assert!((300 / JOB_KEYS_PER_TURN + 6 * 3..40).contains(&turns), "{turns} turns");
    let (token, reply) = world.jobs.pop_reply().unwrap();
    assert_eq!((token.connection, token.request), (1, 0));
    let list = reply.value.unwrap();
    assert_eq!(KeyReplies::each(&list).count(), keys.len());
    for (at, (status, _, found)) in KeyReplies::each(&list).enumerate() {
        let expected = value(at);
        assert_eq!(status, if expected.is_some() { Status::Ok } else { Status::NotFound });
        assert!(found == expected.as_deref(), "key {at}");
    }
    assert_eq!(world.answered(), [(1, 1, 1)], "what was behind it");
}

#[test]
fn a_job_of_many_keys_ends_when_its_values_are_too_many() {
    let mut world = World::new();
    let hash = world.shard.hash(b"k");
    world.shard.execute(&set(b"k", &vec![1; 5 << 20]), hash, Now::default());
    let keys = vec!["k".to_owned(); 1_000];
    let _wanted = job_of_keys(&mut world, 1, &keys, |key| Command::Get { key });
    let mut turns = 0;
    while !world.jobs.has_replies() {
        world.turn();
        turns += 1;
    }
    assert_eq!(world.jobs.pop_reply().unwrap().1, OwnedReply::status(Status::TooLarge));
    let pieces = MAX_REPLY_BYTES / STREAM_PIECE_BYTES;
    assert!(turns <= pieces + 20, "{turns} turns");
    assert!(!world.jobs.has_work());
}

#[test]
fn a_small_job_of_many_keys_is_answered_at_once_and_in_order() {
    let mut world = World::new();
    for key in [b"a", b"b"] {
        let hash = world.shard.hash(key);
        world.shard.execute(&set(key, key), hash, Now::default());
    }
    let keys = ["b", "x", "a", "b"].map(str::to_owned);
    let _wanted = job_of_keys(&mut world, 1, &keys, |key| Command::Get { key });
    let list = world.jobs.pop_reply().unwrap().1.value.unwrap();
    let values: Vec<_> = KeyReplies::each(&list).map(|answer| answer.2).collect();
    assert_eq!(values, [Some(&b"b"[..]), None, Some(b"a"), Some(b"b")]);
    let _wanted = job_of_keys(&mut world, 1, &keys, |key| Command::Del { key });
    let list = world.jobs.pop_reply().unwrap().1.value.unwrap();
    let numbers: Vec<_> = KeyReplies::each(&list).map(|answer| answer.1).collect();
    assert_eq!(numbers, [1, 0, 1, 0]);
}

/// A reply that says what is on the disk goes, and leaves nothing that the shard would look for.
#[test]
fn a_job_that_has_waited_for_the_disk_leaves_the_shard_idle() {
    for times_out in [false, true] {
        let mut world = World::new();
        let set = Command::Set {
            key: b"key",
            value: b"1",
            condition: Condition::Always,
            expiry: Expiry::Never,
            get: false,
        };
        world.job(0, 0, &set);
        assert_eq!(world.answered().len(), 1);
        let token = Token { home: 0, connection: 0, serial: 1, request: 1, part: 0, shard: 0 };
        let job =
            Job::new(Order::Await { wanted: Wanted::Disks { replicas: 0 }, until_ms: 5 }, token);
        world.jobs.execute(&mut world.shard, job, Now::default());
        assert!(world.shard.wants_sync() && world.jobs.awaits());
        match times_out {
            true => world.jobs.time_out(&world.shard, Now { unix_ms: 5, ..Now::default() }),
            false => world.jobs.set_synced(&world.shard, 1),
        }
        assert!(world.jobs.has_work(), "the reply is to go");
        world.jobs.turn(&mut world.shard, Now::default());
        let (_, reply) = world.jobs.pop_reply().unwrap();
        assert_eq!(reply.number, i64::from(!times_out));
        assert!(!world.jobs.has_work() && !world.jobs.awaits());
    }
}

/// CLIENT UNBLOCK with TIMEOUT answers as it stands; with ERROR by an error. Others wait on.
#[test]
fn a_wait_for_disks_or_replicas_is_ended_by_another_client() {
    let mut world = World::new();
    let token = |connection: usize| {
        let serial = connection as u64;
        Token { home: 0, connection, serial, request: 0, part: 0, shard: 0 }
    };
    let wanted = [Wanted::Replicas(1), Wanted::Disks { replicas: 0 }, Wanted::Replicas(1)];
    world.job(9, 0, &set(b"k", b"1"));
    assert_eq!(world.answered().len(), 1);
    for (connection, wanted) in (1..).zip(wanted) {
        let job = Job::new(Order::Await { wanted, until_ms: 0 }, token(connection));
        world.jobs.execute(&mut world.shard, job, Now::default());
    }
    let unblock = |world: &mut World, serial, status| {
        let job = Job::new(Order::Unblock { serial, status }, token(8));
        world.jobs.execute(&mut world.shard, job, Now::default());
        let all: Vec<_> = std::iter::from_fn(|| world.jobs.pop_reply()).collect();
        let all = all.iter().map(|(of, reply)| (of.connection, reply.status, reply.number));
        all.collect::<Vec<_>>()
    };
    let (ok, ended) = (Status::Ok, Status::Unblocked);
    assert_eq!(unblock(&mut world, 1, Status::NotFound), [(1, ok, 0), (8, ok, 1)]);
    assert_eq!(unblock(&mut world, 1, Status::NotFound), [(8, ok, 0)]);
    assert_eq!(unblock(&mut world, 2, ended), [(2, ended, 0), (8, ok, 1)]);
    assert!(world.jobs.awaits(), "the third waits on");
}

/// A refusal would say that nothing was changed, and a client would change it again.
#[test]
fn a_server_that_becomes_a_replica_refuses_nothing_that_it_has_executed() {
    let mut world = World::lagging();
    world.job(1, 0, &set(b"k", b"1"));
    world.job(2, 0, &Command::Get { key: b"k" });
    assert!(!world.jobs.has_replies() && world.jobs.held_replies() == 2);
    let wanted = [Wanted::Replicas(1), Wanted::Disks { replicas: 1 }];
    let wait = |world: &mut World, connection, wanted| {
        let token = Token { home: 0, connection, serial: 1, request: 0, part: 0, shard: 0 };
        let job = Job::new(Order::Await { wanted, until_ms: 0 }, token);
        world.jobs.execute(&mut world.shard, job, Now::default());
    };
    (3..).zip(wanted).for_each(|(connection, wanted)| wait(&mut world, connection, wanted));
    assert!(world.jobs.awaits());
    world.jobs.give_up_waiting(&mut world.shard);
    let mut answers: Vec<_> = std::iter::from_fn(|| world.jobs.pop_reply()).collect();
    answers.sort_by_key(|(token, _)| token.connection);
    let answers: Vec<_> = answers.iter().map(|of| (of.0.connection, of.1.status)).collect();
    let lost = Status::RoleChanged;
    assert_eq!(answers, [(1, lost), (2, lost), (3, Status::Ok), (4, Status::Ok)]);
    assert!(!world.jobs.awaits() && world.jobs.held_replies() == 0);
    // Nor does anybody wait who comes later.
    world.shard.begin_applying();
    (5..).zip(wanted).for_each(|(connection, wanted)| wait(&mut world, connection, wanted));
    assert!(world.jobs.has_replies() && !world.jobs.awaits());
}

/// An order that removes this field of a hash, once there is one.
fn wait_for(key: &[u8], connection: usize) -> Job {
    let mut list = Vec::new();
    Items::push(&mut list, b"f");
    let names = Items::parse(&list).unwrap();
    let mut command = Vec::new();
    let request = HashCommand::Remove { names }.request();
    Command::Of { key, request }.encode_within(Database::ZERO, 0, &mut command);
    let wait = frontend::WaitFor { claim: Claim::default(), commands: vec![command.into()] };
    let token = Token { home: 0, connection, serial: 1, request: 0, part: 0, shard: 0 };
    Job::new(Order::WaitFor(Box::new(wait)), token)
}

fn set_field(key: &[u8], act: impl FnOnce(&Command<'_>)) {
    let mut list = Vec::new();
    [b"f", b"v"].iter().for_each(|item| Items::push(&mut list, *item));
    let pairs = Items::parse(&list).unwrap();
    act(&Command::Of { key, request: HashCommand::Set { pairs }.request() });
}

#[test]
fn an_answer_to_a_waiting_request_is_held_until_its_change_is_durable() {
    let mut world = World::lagging();
    world.jobs.execute(&mut world.shard, wait_for(b"k", 1), Now::default());
    let (token, _) = world.jobs.pop_reply().unwrap();
    assert_eq!((token.connection, token.part), (1, PARKED));
    set_field(b"k", |command| world.job(2, 0, command));
    world.jobs.turn(&mut world.shard, Now::default());
    assert!(!world.jobs.has_replies() && world.jobs.held_replies() == 2);
    world.shard.set_durable(world.shard.last_sequence() - 1);
    world.jobs.turn(&mut world.shard, Now::default());
    let (token, _) = world.jobs.pop_reply().unwrap();
    assert_eq!((token.connection, world.jobs.held_replies()), (2, 1));
    world.shard.set_durable(world.shard.last_sequence());
    world.jobs.turn(&mut world.shard, Now::default());
    let (token, reply) = world.jobs.pop_reply().unwrap();
    assert_eq!((token.connection, token.part, reply.status), (1, 0, Status::Ok));
}

#[test]
fn a_change_of_the_role_ends_waits_and_no_shard_keeps_one() {
    let mut world = World::new();
    let token = Token { home: 0, connection: 1, serial: 7, request: 3, part: 0, shard: 0 };
    let Order::WaitFor(wait) = wait_for(b"k", 1).order else { panic!("it is one") };
    let run = Run { shard: 0, commands: wait.commands };
    world.jobs.waits.begin(token, vec![run], 0);
    let (_, job) = world.jobs.waits.pop_job().unwrap();
    world.jobs.execute(&mut world.shard, job, Now::default());
    assert_eq!(world.shard.waiters(), 1);
    world.jobs.pop_reply().unwrap();
    world.jobs.give_up_waiting(&mut world.shard);
    assert!(world.jobs.has_work());
    world.shard.begin_applying();
    world.jobs.turn(&mut world.shard, Now::default());
    let (to, reply) = world.jobs.pop_reply().unwrap();
    assert_eq!((to, reply.status), (token, Status::WaitEnded));
    assert_eq!((world.shard.waiters(), world.jobs.waits.len()), (0, 0));
    // One that comes later is refused, as any change.
    world.jobs.execute(&mut world.shard, wait_for(b"k", 2), Now::default());
    let (to, reply) = world.jobs.pop_reply().unwrap();
    assert_eq!((to.connection, to.part, reply.status), (2, 0, Status::ReadOnly));
}

#[test]
fn a_request_that_waits_comes_behind_the_jobs_of_its_connection() {
    let mut world = World::new();
    let value = vec![7; 3 * STREAM_PIECE_BYTES];
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let set = Command::Set { key: b"large", value: &value, condition, expiry, get: false };
    world.job(1, 0, &set);
    set_field(b"k", |command| world.job(1, 1, command));
    world.jobs.execute(&mut world.shard, wait_for(b"k", 1), Now::default());
    assert!(!world.jobs.has_replies(), "the value is under way");
    while world.jobs.has_work() {
        world.jobs.turn(&mut world.shard, Now::default());
    }
    let replies: Vec<_> = std::iter::from_fn(|| world.jobs.pop_reply()).collect();
    assert_eq!(replies.len(), 3);
    assert_eq!((replies[2].0.part, replies[2].1.number), (0, 1), "it finds the field");
}

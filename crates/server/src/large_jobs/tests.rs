use super::*;
use remora_arena::{NoJournal, Owner};
use remora_engine::ShardOptions;
use remora_engine::command::{Condition, Expiry, Objects, Predicate, TreeCommand, TreeSettings};
use remora_layout::limits::{SEARCH_TURN_BYTES, SEARCH_TURN_NODES};
use remora_layout::message::Status;
use remora_layout::rect::Rect;

struct World {
    shard: Shard<NoJournal>,
    jobs: LargeJobs,
    replies: Arc<ReplyQueue>,
}

impl World {
    fn new() -> Self {
        let shard = Shard::new(Owner::heap(32 << 20, NoJournal), ShardOptions::default());
        let replies = Arc::new(ReplyQueue::new(|| ()));
        Self { shard, jobs: LargeJobs::default(), replies }
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
        let token = Token { connection, serial: 1, request, part: 0 };
        let reply_to = Arc::clone(&self.replies);
        let job = Job { command: bytes, reply_to, token, most_objects };
        self.jobs.execute(&mut self.shard, job, Now::default());
    }

    /// The replies that are there: connection, request, bytes of value.
    fn answered(&mut self) -> Vec<(usize, u64, usize)> {
        let mut all = Vec::new();
        while let Some((token, reply)) = self.replies.pop() {
            assert_eq!(reply.status, Status::Ok);
            let bytes = reply.value.map_or(0, |value| value.len());
            all.push((token.connection, token.request, bytes));
        }
        all
    }

    /// A command about the tree `t`.
    fn tree(&mut self, connection: usize, request: u64, command: TreeCommand<'_>, most: usize) {
        let mut scratch = Vec::new();
        let request_of = command.request(&mut scratch).unwrap();
        self.job_for(connection, request, &Command::Tree { name: b"t", request: request_of }, most);
    }

    /// The tree `t` with so many points: object i is at (i, 0).
    fn with_points(points: u64) -> Self {
        let mut world = Self::new();
        for id in 0..points {
            let rect = Rect::point(id as f64, 0.0).unwrap();
            world.tree(
                9,
                id,
                TreeCommand::Put { id, rect, data: None, geometry: None },
                usize::MAX,
            );
        }
        assert_eq!(world.answered().len(), points as usize);
        world
    }

    /// The only reply that is there.
    fn reply(&mut self) -> OwnedReply {
        let (_, reply) = self.replies.pop().expect("a reply");
        assert!(self.replies.pop().is_none(), "one reply");
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
        let missing = world.replies.pop().unwrap();
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
    assert!(world.jobs.is_empty() && world.jobs.behind.is_empty());
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
    while !world.jobs.is_empty() {
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
        let missing = world.replies.pop().unwrap();
        assert_eq!((missing.0.connection, missing.1.number), (2, 0));
        world.turn();
        turns += 1;
        if let Some((token, found)) = world.replies.pop() {
            assert_eq!(token.request, 0, "the search is answered before the count");
            assert_eq!(ids(&found), (0..points).collect::<Vec<_>>());
            break;
        }
    }
    // No turn gives more than its share, and one node beyond it.
    let bytes = points as usize * ENTRY_BYTES;
    assert!(turns as usize >= bytes / (SEARCH_TURN_BYTES + 30 * ENTRY_BYTES) - 1, "{turns}");
    while !world.jobs.is_empty() {
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
    assert!(world.jobs.is_empty() && world.jobs.behind.is_empty());
}

#[test]
fn a_limit_ends_a_search_early() {
    let mut world = World::with_points(5_000);
    for most in [1, 20, 700, 4_999, 5_000, 5_001] {
        world.tree(1, 0, ALL, most);
        let mut turns = 0;
        while !world.jobs.is_empty() {
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
    let most = RESP_MAX_REPLY_BYTES / ENTRY_BYTES;
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
    world.tree(1, 0, TreeCommand::Build { load: 1 }, usize::MAX);
    world.answered();
    let mut search = |most| {
        world.tree(1, 0, ALL, most);
        while !world.jobs.is_empty() {
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
        let mut random = 7_u64;
        for request in 0.. {
            if world.jobs.is_empty() {
                break;
            }
            for _ in 0..50 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (id, x) = (random >> 33, (random >> 20) % 100_000);
                let rect = Rect::point(x as f64, 1.0).unwrap();
                let put = TreeCommand::Put { id: id % 5_000, rect, data: None, geometry: None };
                world.tree(2, request, put, usize::MAX);
                assert_eq!(world.reply().number, 0);
            }
            world.turn();
            if world.jobs.is_empty() {
                break;
            }
        }
        let found = ids(&world.reply());
        assert_eq!(found.len(), most.min(5_000), "each once");
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

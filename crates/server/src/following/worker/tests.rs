use super::*;
use crate::following::fit::Memory;

use remora_log::{Log, LogKey, LogOptions};
use remora_protocol::replication::{Begins, FeedHeader, FeedKind};
use remora_replica::FreshAt;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A server of one shard, which writes down what it is given.
#[derive(Clone)]
struct Server {
    following: Arc<Following>,
    given: Rc<RefCell<Vec<Arc<Batch>>>>,
    may_clear: Rc<Cell<bool>>,
}

impl Server {
    fn new() -> Self {
        let primary = "/primary".parse().unwrap();
        let following = Arc::new(Following::new(primary, 1));
        Self { following, given: Rc::default(), may_clear: Rc::new(Cell::new(true)) }
    }
}

impl Host for Server {
    fn following(&self) -> &Arc<Following> {
        &self.following
    }

    fn memory(&self) -> Memory {
        Memory { shards: 1, arena_bytes: u64::MAX }
    }

    fn resp_port(&self) -> u16 {
        0
    }

    fn copies_any(&self) -> bool {
        true
    }

    fn may_clear(&self) -> bool {
        self.may_clear.get()
    }

    fn give(&self, _shard: usize, batch: Arc<Batch>) {
        self.given.borrow_mut().push(batch);
    }

    fn clock_ns(&self) -> u64 {
        1
    }

    fn unix_ms(&self) -> u64 {
        1
    }

    fn learn_time(&self, _time_ms: u64) {}

    fn show(&self, _fresh: Option<FreshAt>) {}

    fn hide(&self) -> Duration {
        Duration::ZERO
    }
}

/// A worker that has asked a primary of one shard for its log.
fn asked(server: &Server) -> Worker<Server> {
    let mut worker = Worker::new(server.clone(), 1);
    worker.logs = vec![Follower::default()];
    (worker.copied, worker.begins) = (vec![None], vec![None]);
    worker.logs[0].ask(0);
    worker
}

/// A primary whose log has this key says that a copy comes.
fn copy_begins(key: u64) -> Vec<u8> {
    let header =
        FeedHeader { kind: FeedKind::Begins as u8, zero: [0; 3], ask: 0.into(), commit: 0.into() };
    let begins = Begins {
        key: key.into(),
        epoch: 1.into(),
        next: 0.into(),
        kept: 0.into(),
        former: 0.into(),
        arena_bytes: 1.into(),
        used_bytes: 1.into(),
        keys: 1.into(),
        shards: 1.into(),
        zero: 0.into(),
    };
    [header.as_bytes(), begins.as_bytes()].concat()
}

/// REPLICAOF, and NO ONE before its thread has read the answer of that primary.
#[test]
fn no_copy_begins_once_its_link_is_over() {
    let server = Server::new();
    let mut worker = asked(&server);
    assert!(worker.is_whole(true));
    assert!(worker.take_last(0, &copy_begins(7)).is_err(), "what follows does not count");
    worker.begin_copy(0);
    assert!(server.given.borrow().is_empty(), "nothing goes away");
    assert!(worker.is_whole(true) && !worker.is_whole(false));
    // The same answer over a link that lasts.
    let mut worker = asked(&server);
    let heard = worker.logs[0].hear(&copy_begins(7)).unwrap();
    assert!(matches!(heard, FollowEvent::Begins { copies: true, .. }));
    worker
        .begun(0, true, PrimaryFacts { arena_bytes: 1, shards: 1, ..PrimaryFacts::default() })
        .unwrap_or_else(|_| panic!("it has room"));
    assert!(worker.begin_copy(0));
    let given = server.given.borrow();
    assert!(matches!(given[0].body, Body::Clear { logs: 1 }));
    assert!(matches!(given[1].body, Body::Log { part: LogPart::Begin, key: 7, .. }));
    drop(given);
    assert!(!worker.is_whole(true));
}

/// The primary of a cluster cannot go on from what is here.
#[test]
fn a_log_is_left_only_once_the_record_does_not_count_on_it() {
    let server = Server::new();
    let mut worker = asked(&server);
    worker.logs = vec![Follower::resumed(7, (20, 3), 20)];
    server.may_clear.set(false);
    assert!(matches!(worker.leave_log(0), Err(Ended::Failed(why)) if why.contains("data stay")));
    let end = Position { epoch: 3, sequence: 20, applied: 20 };
    assert_eq!(worker.ends(), Some(vec![end]), "it may lead with that");
    server.may_clear.set(true);
    assert!(worker.leave_log(0).is_ok());
    assert_eq!(worker.ends(), None);
}

/// A promotion waits for readers only if they must not see what is applied.
#[test]
fn what_is_committed_needs_no_wait_for_readers() {
    let server = Server::new();
    let mut worker = asked(&server);
    assert!(worker.has_uncommitted(), "a copy has not come");
    worker.logs = vec![Follower::resumed(7, (20, 3), 20)];
    assert!(!worker.has_uncommitted());
    worker.copied[0] = Some((20, 3));
    assert!(worker.has_uncommitted(), "the end of a copy may not be shown yet");
}

/// A copy for want of memory: its primary may have come back empty meanwhile.
#[test]
fn another_log_is_not_copied_for_want_of_memory() {
    let server = Server::new();
    let mut worker = asked(&server);
    worker.logs[0].hear(&copy_begins(7)).unwrap();
    let mut next = worker.anew(server.clone());
    let ask = next.logs[0].ask(0);
    assert_eq!((ask.key.get(), ask.next.get()), (7, 0), "a copy of that log alone");
    assert!(next.logs[0].hear(&copy_begins(8)).is_err());
    assert!(!next.is_whole(false) && !next.is_cleared, "what there is goes with the first part");
    // Of a log that was never heard of, the first one counts.
    let next = asked(&server).anew(server.clone());
    assert!(!next.logs[0].has_begun());
}

/// The shard stands still: what it says that it has applied is of before the copy.
#[test]
fn nothing_of_before_a_copy_is_acknowledged() {
    let server = Server::new();
    let mut worker = asked(&server);
    let (applied, done) = (&server.following.applied[0][0], &server.following.done[0]);
    applied.store(50, Ordering::Release);
    assert_eq!(worker.applied_and_durable(0), (50, 0), "there was no copy");
    worker.give(0, LogPart::Begin);
    assert_eq!(worker.applied_and_durable(0), (0, 0));
    worker.give(0, LogPart::Copied { sequence: 60, epoch: 1 });
    assert_eq!(worker.applied_and_durable(0), (0, 0), "the shard has carried out none of it");
    done.store(1, Ordering::Release);
    applied.store(0, Ordering::Release);
    assert_eq!(worker.applied_and_durable(0), (0, 0));
    done.store(2, Ordering::Release);
    applied.store(60, Ordering::Release);
    assert_eq!(worker.applied_and_durable(0), (60, 0));
}

/// Two logs, each of which begins with a part of one change and goes on with an entry of its own.
fn logs_with_parts() -> [Log; 2] {
    let parts = [Part::new(0, 1), Part::new(1, 1)];
    [0, 1].map(|shard| {
        let mut log = Log::new(LogOptions::new(LogKey::new(5, shard), shard, 1));
        log.append_part(&parts, [b"a part", &[], &[]]);
        log.append([b"alone", &[], &[]]);
        log
    })
}

/// A worker that follows both from their beginning.
fn follows_two(server: &Server) -> Worker<Server> {
    let mut worker = asked(server);
    let follower = |shard| Follower::resumed(LogKey::new(5, shard).to_word(), (0, 1), 0);
    worker.logs = vec![follower(0), follower(1)];
    (worker.copied, worker.begins) = (vec![None; 2], vec![None; 2]);
    worker
}

/// All entries of a log come, with this commit position.
fn take(worker: &mut Worker<Server>, (log, entries): (usize, &Log), commit: u64) {
    let (mut cursor, mut frames) = (entries.oldest_cursor(), Vec::new());
    entries.read(&mut cursor, usize::MAX, &mut frames).unwrap();
    let (kind, commit) = (FeedKind::Entries as u8, commit.into());
    let header = FeedHeader { kind, zero: [0; 3], ask: 0.into(), commit };
    let message = [header.as_bytes(), &frames].concat();
    worker.logs[log].log().unwrap().take(&message).unwrap();
}

/// By log, the sequences that the shards were given.
fn given(server: &Server) -> Vec<(usize, u64)> {
    let sequences = |batch: &Arc<Batch>| match &batch.body {
        Body::Log { log, part: LogPart::Entries(entries), .. } => {
            entries.iter().map(|entry| (*log, entry.sequence)).collect()
        }
        _ => Vec::new(),
    };
    server.given.borrow().iter().flat_map(sequences).collect()
}

#[test]
fn a_part_is_given_once_all_parts_are_committed() {
    let (server, logs) = (Server::new(), logs_with_parts());
    let mut worker = follows_two(&server);
    take(&mut worker, (0, &logs[0]), 2);
    assert!(!worker.give_entries(0), "the other part has not come");
    take(&mut worker, (1, &logs[1]), 0);
    assert!(!worker.give_entries(0) && !worker.give_entries(1), "it is not committed");
    take(&mut worker, (1, &logs[1]), 1);
    assert!(worker.give_entries(0) && worker.give_entries(1));
    assert_eq!(given(&server), [(0, 1), (0, 2), (1, 1)]);
}

#[test]
fn a_promotion_leaves_out_what_is_torn() {
    let (server, logs) = (Server::new(), logs_with_parts());
    let mut worker = follows_two(&server);
    take(&mut worker, (0, &logs[0]), 0);
    let barrier = StepBarrier::new(1);
    worker.give_rest(&barrier);
    assert_eq!(given(&server), []);
    let end = Position { epoch: 1, sequence: 0, applied: 0 };
    assert_eq!(worker.ends(), Some(vec![end; 2]));
    // Both parts have come: nothing is left out.
    let mut worker = follows_two(&server);
    (0..2).for_each(|log| take(&mut worker, (log, &logs[log]), 0));
    worker.give_rest(&barrier);
    assert_eq!(given(&server), [(0, 1), (0, 2), (1, 1), (1, 2)]);
}

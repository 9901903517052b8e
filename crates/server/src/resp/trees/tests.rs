//! Connections and one shard in one thread: what is read, what is asked, and
//! who is served in between.

use crate::jobs::{Job, ReplyQueue};
use crate::large_jobs::LargeJobs;
use crate::resp::{Connections, Host, Sections};
use crate::shared::Counts;
use remora_arena::{NoJournal, Owner, Words};
use remora_engine::{Now, Shard, ShardOptions};
use remora_layout::pointer::RemotePointer;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A stream that never waits: what is to be read, and what was written.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<(VecDeque<u8>, Vec<u8>)>>);

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self.0.lock().unwrap().0.read(into)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A server of one shard, whose jobs wait until they are executed.
struct Fake {
    shard: Mutex<(Shard<NoJournal>, LargeJobs)>,
    words: Words,
    waiting: Mutex<VecDeque<Job>>,
    counts: Counts,
}

impl Host for Fake {
    type Memory = Words;

    fn shards(&self) -> usize {
        1
    }

    fn hash_seed(&self) -> u64 {
        7
    }

    fn unix_ms(&self) -> u64 {
        0
    }

    fn memory(&self, _: usize) -> &Words {
        &self.words
    }

    fn hand(&self, _: usize, job: Job) {
        self.waiting.lock().unwrap().push_back(job);
    }

    fn touched(&self, _: usize, _: RemotePointer) {}

    fn counts(&self) -> &Counts {
        &self.counts
    }

    fn info(&self, _: &Sections<'_>) -> String {
        String::new()
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

pub(in crate::resp) struct World {
    host: Arc<Fake>,
    connections: Connections<Pipe, Fake>,
    pipes: Vec<Pipe>,
}

impl World {
    pub fn new(connections: usize) -> Self {
        let shard = Shard::new(Owner::heap(64 << 20, NoJournal), ShardOptions::default());
        let host = Arc::new(Fake {
            words: shard.owner().words().clone(),
            shard: Mutex::new((shard, LargeJobs::default())),
            waiting: Mutex::default(),
            counts: Counts::default(),
        });
        let replies = Arc::new(ReplyQueue::new(|| ()));
        let mut world =
            Self { connections: Connections::new(Arc::clone(&host), replies), host, pipes: vec![] };
        for _ in 0..connections {
            let pipe = Pipe::default();
            world.connections.add(pipe.clone(), SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
            world.pipes.push(pipe);
        }
        world
    }

    pub fn send(&mut self, connection: usize, lines: &str) {
        self.pipes[connection].0.lock().unwrap().0.extend(lines.as_bytes());
        self.connections.stir(connection);
    }

    /// One turn of the connections that have something to do.
    fn serve(&mut self) {
        self.connections.take_replies();
        self.connections.serve(drop);
    }

    /// The shard does all that it was asked.
    fn execute(&mut self) {
        let mut shard = self.host.shard.lock().unwrap();
        let (shard, jobs) = &mut *shard;
        while let Some(job) = self.host.waiting.lock().unwrap().pop_front() {
            jobs.execute(shard, job, Now::default());
        }
        while !jobs.is_empty() {
            jobs.turn(shard, Now::default());
        }
    }

    /// What was written since the last time.
    fn written(&mut self, connection: usize) -> String {
        let bytes = std::mem::take(&mut self.pipes[connection].0.lock().unwrap().1);
        String::from_utf8(bytes).unwrap()
    }

    /// Everything that the requests bring, and how many jobs they took.
    pub fn call(&mut self, connection: usize, lines: &str) -> (String, usize) {
        self.send(connection, lines);
        let mut jobs = 0;
        loop {
            self.serve();
            let waiting = self.host.waiting.lock().unwrap().len();
            if waiting == 0 && self.connections.are_idle() {
                return (self.written(connection), jobs);
            }
            jobs += waiting;
            self.execute();
        }
    }

    pub fn reads(&self) -> (u64, u64) {
        let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.host.counts.optimistic_reads), load(&self.host.counts.asked_reads))
    }
}

fn add_row(world: &mut World, count: usize) {
    let lines: String = (0..count).map(|id| format!("RTREE.ADDPOINT t {id} {id} 0\r\n")).collect();
    assert_eq!(world.call(0, &lines).0, ":1\r\n".repeat(count));
}

#[test]
fn small_searches_are_read_once_the_place_is_known() {
    let mut world = World::new(1);
    add_row(&mut world, 3_000);
    let search = "RTREE.SEARCH t 7 0 8 1\r\n";
    let found = "*2\r\n:7\r\n:8\r\n";
    let (reply, jobs) = world.call(0, search);
    assert_eq!((reply.len(), jobs), (found.len(), 2), "the search, and where the tree is");
    assert_eq!(world.call(0, search), (found.into(), 0));
    assert_eq!(world.call(0, "RTREE.COUNT t 7 0 18 1\r\n"), (":12\r\n".into(), 0));
    let nearest = world.call(0, "RTREE.NEAREST t 7.2 0 2 WITHDIST\r\n").0;
    assert_eq!(nearest.matches("*2\r\n").count(), 3, "{nearest}");
    assert!(nearest.starts_with("*2\r\n*2\r\n:7\r\n$"), "{nearest}");
    assert_eq!(world.call(0, "RTREE.SEARCH t 7 0 99 1 LIMIT 1\r\n").0.matches(':').count(), 1);
    assert_eq!(world.reads(), (4, 0));
    // Too large: the shard's to answer.
    assert_eq!(world.call(0, "RTREE.COUNT t 0 0 2999 1\r\n"), (":3000\r\n".into(), 1));
    assert_eq!(world.call(0, "RTREE.COUNT t 0 0 1637 1\r\n"), (":1638\r\n".into(), 0));
    assert_eq!(world.reads(), (5, 1));
}

#[test]
fn a_connection_sees_its_own_writes() {
    let mut world = World::new(2);
    add_row(&mut world, 100);
    let count = "RTREE.COUNT t 0 1 9 1\r\n";
    assert_eq!(world.call(0, count).0, ":0\r\n");
    assert_eq!(world.call(0, count), (":0\r\n".into(), 0));
    // The write is not executed yet when the count is parsed.
    let (replies, jobs) = world.call(0, &format!("RTREE.ADDPOINT t 5 5 1\r\n{count}{count}"));
    assert_eq!((replies.as_str(), jobs), (":0\r\n:1\r\n:1\r\n", 3));
    assert_eq!(world.call(0, count), (":1\r\n".into(), 0));
    // Another connection's write is awaited by nobody else.
    world.send(1, "RTREE.REM t 5\r\n");
    world.serve();
    world.send(0, count);
    world.serve();
    assert_eq!(world.written(0), ":1\r\n");
    world.execute();
    world.serve();
    assert_eq!((world.written(1), world.call(0, count).0), (":1\r\n".into(), ":0\r\n".into()));
}

#[test]
fn a_tree_that_went_is_not_read() {
    let mut world = World::new(1);
    let count = "RTREE.COUNT t 0 0 9 1\r\n";
    for drop in ["RTREE.DROP t\r\n", "FLUSHALL\r\n"] {
        add_row(&mut world, 500);
        for jobs in [2, 0] {
            assert_eq!(world.call(0, count), (":10\r\n".into(), jobs));
        }
        world.call(0, drop);
        let (reply, jobs) = world.call(0, count);
        assert!(reply.starts_with("-ERR no such tree") && jobs == 1, "{reply} {jobs}");
        // Who asks where nothing is learns nothing.
        let (reply, jobs) = world.call(0, count);
        assert!(reply.starts_with("-ERR no such tree") && jobs == 2, "{reply} {jobs}");
        // One of the same name lies where it was, perhaps; it is another.
        world.call(0, "RTREE.ADDPOINT t 1 5 0\r\n");
        for jobs in [2, 0] {
            assert_eq!(world.call(0, count), (":1\r\n".into(), jobs));
        }
        world.call(0, "RTREE.DROP t\r\n");
        world.call(0, count);
    }
}

#[test]
fn names_are_forgotten_before_they_are_too_many() {
    let mut world = World::new(1);
    let names = super::KEPT_NAMES + 10;
    for at in 0..names {
        world.call(0, &format!("RTREE.ADDPOINT t{at} 1 0 0\r\n"));
        for jobs in [2, 0] {
            let count = format!("RTREE.COUNT t{at} 0 0 0 0\r\n");
            assert_eq!(world.call(0, &count), (":1\r\n".into(), jobs));
        }
    }
    let long = "n".repeat(super::KEPT_NAME_BYTES + 1);
    world.call(0, &format!("RTREE.ADDPOINT {long} 1 0 0\r\n"));
    for _ in 0..2 {
        assert_eq!(world.call(0, &format!("RTREE.COUNT {long} 0 0 0 0\r\n")).1, 1);
    }
}

/// A large reply is written a piece a turn; in each turn the other connection
/// is served.
#[test]
fn others_are_served_between_the_pieces_of_a_reply() {
    let mut world = World::new(2);
    let objects = 20_000;
    add_row(&mut world, objects);
    world.send(0, "RTREE.SEARCH t -1 -1 99999 1 WITHRECT\r\nPING\r\n");
    world.serve();
    world.execute();
    let (mut reply, mut turns, mut longest) = (String::new(), 0, 0);
    while !reply.ends_with("+PONG\r\n") {
        world.send(1, "PING\r\n");
        world.serve();
        assert_eq!(world.written(1), "+PONG\r\n");
        let piece = world.written(0);
        longest = longest.max(piece.len());
        reply.push_str(&piece);
        turns += 1;
        assert!(turns < objects, "the reply goes on");
    }
    assert!(turns > objects / 1024 && longest < 128 << 10, "{turns} turns, {longest} bytes");
    assert!(reply.starts_with("*20000\r\n*5\r\n:"));
    assert_eq!(reply.matches("*5\r\n").count(), objects);
}

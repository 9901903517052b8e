//! Connections and one shard in one thread: what is read, what is asked, and
//! who is served in between.

use crate::jobs::{Job, Order};
use crate::large_jobs::LargeJobs;
use crate::resp::{Connection, Connections, Host, Sections};
use crate::thread_counts::ThreadCounts;
use remora_arena::{NoJournal, Owner, ReadView};
use remora_engine::{Now, Shard, ShardOptions};
use remora_layout::database::Database;
use remora_layout::limits::{RESP_CONNECTIONS_PER_TURN, RESP_REQUESTS_PER_TURN};
use remora_layout::pointer::RemotePointer;
use remora_layout::slot::SlotTable;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

/// A stream.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Ends>>);

/// Its two ends.
struct Ends {
    /// What is to be read.
    input: VecDeque<u8>,
    /// What was written.
    output: Vec<u8>,
    /// Bytes that the peer takes before it reads.
    room: usize,
    /// The peer has gone.
    is_cut: bool,
    /// How often the server looked for input.
    reads: usize,
}

impl Default for Ends {
    /// They never wait.
    fn default() -> Self {
        let (input, output) = Default::default();
        Self { input, output, room: usize::MAX, is_cut: false, reads: 0 }
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let ends = &mut *self.0.lock().unwrap();
        ends.reads += 1;
        if ends.is_cut {
            return Err(ErrorKind::ConnectionReset.into());
        }
        match ends.input.read(into)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let ends = &mut *self.0.lock().unwrap();
        if ends.is_cut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let bytes = &bytes[..bytes.len().min(ends.room - ends.output.len())];
        ends.output.extend_from_slice(bytes);
        match bytes.len() {
            0 => Err(ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Number of the only shard.
const SHARD: usize = 0;

/// A server of one shard, whose jobs wait until they are executed.
struct Fake {
    /// The number of the thread's own shard: [`SHARD`], or one that has no keys.
    home: usize,
    shard: Shard<NoJournal>,
    jobs: LargeJobs,
    words: ReadView,
    waiting: VecDeque<Job>,
    counts: ThreadCounts,
    /// The time of the connections' thread.
    now: Now,
}

impl Host for Fake {
    type Memory = ReadView;
    type Journal = NoJournal;

    fn home(&self) -> usize {
        self.home
    }

    fn now(&self) -> Now {
        self.now
    }

    fn with_own<R>(
        &mut self,
        act: impl FnOnce(&mut Shard<NoJournal>, &mut LargeJobs, Now) -> R,
    ) -> Option<R> {
        assert_eq!(self.home, SHARD, "asked of a shard that is none");
        Some(act(&mut self.shard, &mut self.jobs, Now::default()))
    }

    fn slots(&self) -> &SlotTable {
        static ALL_OF_ONE: SlotTable = SlotTable::even(1);
        &ALL_OF_ONE
    }

    fn keys_in(&self, _: usize, _: Database) -> u64 {
        1
    }

    fn hash_seed(&self) -> u64 {
        ShardOptions::default().hash_seed
    }

    fn memory(&self, _: usize) -> &ReadView {
        &self.words
    }

    fn own_memory(&self, shard: usize) -> Option<&Owner<NoJournal>> {
        (shard == self.home).then(|| self.shard.owner())
    }

    fn hand(&mut self, _: usize, job: Job) {
        self.waiting.push_back(job);
    }

    fn touched(&self, _: usize, _: RemotePointer) {}

    fn counts(&self) -> &ThreadCounts {
        &self.counts
    }

    fn note_end(&self) {}

    fn info(&self, _: &Sections<'_>) -> String {
        String::new()
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

pub(in crate::resp) struct World {
    connections: Connections<Pipe, Fake>,
    pipes: Vec<Pipe>,
}

impl World {
    /// Connections whose thread has another shard: it asks, or reads.
    pub fn new(connections: usize) -> Self {
        Self::with(connections, SHARD + 1)
    }

    /// Connections whose thread has the shard.
    pub fn at_home(connections: usize) -> Self {
        Self::with(connections, SHARD)
    }

    fn with(connections: usize, home: usize) -> Self {
        let shard = Shard::new(Owner::heap(64 << 20, NoJournal), ShardOptions::default());
        let host = Fake {
            home,
            words: shard.owner().view().clone(),
            shard,
            jobs: LargeJobs::default(),
            waiting: VecDeque::new(),
            counts: ThreadCounts::default(),
            now: Now::default(),
        };
        let mut world = Self { connections: Connections::new(host), pipes: vec![] };
        for serial in 1..=connections as u64 {
            let (pipe, peer) = (Pipe::default(), SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
            world.connections.add(pipe.clone(), Connection::new(peer, serial));
            world.pipes.push(pipe);
        }
        world
    }

    pub fn send(&mut self, connection: usize, lines: &str) {
        self.pipes[connection].0.lock().unwrap().input.extend(lines.as_bytes());
        self.connections.stir(connection);
    }

    /// One turn of the connections that have something to do.
    pub fn serve(&mut self) {
        while let Some((token, reply)) = self.connections.host_mut().jobs.pop_reply() {
            self.connections.take_reply(token, reply);
        }
        self.connections.serve(drop);
    }

    /// The server ends: what has arrived is still read.
    pub fn stop_reading(&mut self) {
        self.connections.stop_reading(drop);
    }

    /// The shard begins what it was asked, and does one turn.
    pub fn begin(&mut self) {
        let Fake { shard, jobs, waiting, .. } = self.connections.host_mut();
        waiting.drain(..).for_each(|job| jobs.execute(shard, job, Now::default()));
        jobs.turn(shard, Now::default());
    }

    /// The shard does all that it was asked.
    pub fn execute(&mut self) {
        let Fake { shard, jobs, waiting, .. } = self.connections.host_mut();
        while let Some(job) = waiting.pop_front() {
            jobs.execute(shard, job, Now::default());
        }
        while jobs.has_work() {
            jobs.turn(shard, Now::default());
            // As the shard's loop does.
            if shard.wants_release() {
                shard.release_some(Now::default());
            }
        }
    }

    /// What was written since the last time.
    pub fn written(&mut self, connection: usize) -> String {
        let bytes = std::mem::take(&mut self.pipes[connection].0.lock().unwrap().output);
        String::from_utf8(bytes).unwrap()
    }

    /// How often the server looked for input.
    pub fn looks(&self, connection: usize) -> usize {
        self.pipes[connection].0.lock().unwrap().reads
    }

    /// Bytes that the client has sent and the server has not read.
    pub fn unread(&self, connection: usize) -> usize {
        self.pipes[connection].0.lock().unwrap().input.len()
    }

    /// The client takes no more than so many bytes before it reads.
    pub fn bound(&mut self, connection: usize, bytes: usize) {
        self.pipes[connection].0.lock().unwrap().room = bytes;
    }

    /// How many connections are open, and how many were cut off.
    pub fn open(&self) -> (usize, u64) {
        let cut_off = self.connections.host().counts.output_cut_off.get();
        (self.connections.open(), cut_off)
    }

    /// The client goes, and takes no more.
    pub fn cut(&mut self, connection: usize) {
        self.pipes[connection].0.lock().unwrap().is_cut = true;
        self.call(connection, "");
    }

    /// Bytes on the heap that the shard keeps for objects and reads, once all that was
    /// removed is released.
    pub fn heap_bytes(&mut self) -> u64 {
        let shard = &mut self.connections.host_mut().shard;
        while shard.wants_release() {
            shard.release_some(Now::default());
        }
        shard.tick(Now::default());
        shard.stats().heap_bytes
    }

    /// Everything that the requests bring, and how many jobs they took.
    pub fn call(&mut self, connection: usize, lines: &str) -> (String, usize) {
        self.send(connection, lines);
        let mut jobs = 0;
        loop {
            self.serve();
            if self.is_done() {
                return (self.written(connection), jobs);
            }
            jobs += self.connections.host().waiting.len();
            self.execute();
        }
    }

    /// Whether nothing is asked, under way or to be served.
    pub fn is_done(&self) -> bool {
        let Fake { jobs, waiting, .. } = self.connections.host();
        let has_jobs = !waiting.is_empty() || jobs.has_replies() || jobs.has_work();
        self.connections.are_idle() && !has_jobs
    }

    /// Serves all connections; how many jobs wait for the shard then.
    pub fn serve_until_idle(&mut self) -> usize {
        while !self.connections.are_idle() {
            self.serve();
        }
        self.connections.host().waiting.len()
    }

    /// What INFO tells of bytes that jobs and replies hold: of connections, and of what
    /// the shard has found.
    pub fn pending_bytes(&self) -> (usize, usize) {
        let Fake { jobs, counts, .. } = self.connections.host();
        (counts.pending_bytes.get() as usize, jobs.found_bytes())
    }

    /// Keys of the jobs about many that wait for the shard, and bytes of these jobs.
    pub fn waiting_keys(&self) -> (usize, usize) {
        let jobs = self.connections.host().waiting.iter().map(|job| match &job.order {
            Order::ExecuteEach(batch) => (batch.keys(), batch.bytes()),
            _ => (0, 0),
        });
        jobs.fold((0, 0), |(keys, bytes), job| (keys + job.0, bytes + job.1))
    }

    /// Keys that were looked up so far or wait for the shard.
    pub fn keys_taken(&self) -> usize {
        let here = self.connections.host().counts.keys_here.get();
        (here + self.reads().0) as usize + self.waiting_keys().0
    }

    /// The connections' thread has this time, Unix ms.
    pub fn set_time(&mut self, unix_ms: u64) {
        self.connections.host_mut().now.unix_ms = unix_ms;
    }

    /// A second goes by, and requests may be idle for so many.
    pub fn pass_second(&mut self, upload_idle_s: u64) {
        self.connections.count_idle(upload_idle_s, drop);
    }

    /// Whether connections wait for the rest of large requests, and how many of
    /// those were given up.
    pub fn parts(&self) -> (bool, u64) {
        let abandoned = self.connections.host().counts.requests_abandoned.get();
        (self.connections.wait_for_parts(), abandoned)
    }

    /// Hits of reads in memory, and of the shard.
    pub fn hits(&self) -> (u64, u64) {
        let Fake { counts, shard, .. } = self.connections.host();
        (counts.hits.get(), shard.stats().hits)
    }

    pub fn reads(&self) -> (u64, u64) {
        let counts = &self.connections.host().counts;
        (counts.optimistic_reads.get(), counts.asked_reads.get())
    }
}

pub(in crate::resp) fn add_row(world: &mut World, count: usize) {
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
fn ids_that_are_no_integers_are_told_by_the_owner() {
    let mut world = World::new(1);
    add_row(&mut world, 100);
    let search = "RTREE.SEARCH t 7 0 8 1\r\n";
    (0..2).for_each(|_| drop(world.call(0, search)));
    assert_eq!(world.call(0, search), ("*2\r\n:7\r\n:8\r\n".into(), 0), "it is read");
    let add = "RTREE.ADD t bike:7 7 1 7 1 DATA hi FIELDS 2 state free load 3 EX 60\r\n";
    assert_eq!(world.call(0, add).0, ":1\r\n");
    let (found, jobs) = world.call(0, search);
    assert_eq!((jobs, found.len()), (1, "*3\r\n:7\r\n:8\r\n$6\r\nbike:7\r\n".len()));
    assert!(found.contains("$6\r\nbike:7\r\n") && found.contains(":7\r\n:8\r\n"), "{found}");
    assert_eq!(world.call(0, "RTREE.COUNT t 7 0 8 1\r\n"), (":3\r\n".into(), 1));
    let nearest = world.call(0, "RTREE.NEAREST t 7 1 1\r\n");
    assert_eq!(nearest, ("*1\r\n$6\r\nbike:7\r\n".into(), 1));
    let limited = world.call(0, "RTREE.SEARCH t 7 0 8 1 LIMIT 2\r\n").0;
    assert!(limited.starts_with("*2\r\n"), "{limited}");
    // Elsewhere it is read as before.
    assert_eq!(world.call(0, "RTREE.COUNT t 8 0 9 1\r\n"), (":2\r\n".into(), 0));
    let get = "RTREE.GET t bike:7 WITHFIELDS WITHEXPIRY\r\n";
    let told = "*7\r\n$1\r\n7\r\n$1\r\n1\r\n$1\r\n7\r\n$1\r\n1\r\n$2\r\nhi\r\n\
                *4\r\n$4\r\nload\r\n$1\r\n3\r\n$5\r\nstate\r\n$4\r\nfree\r\n:60000\r\n";
    assert_eq!(world.call(0, get).0, told);
    assert_eq!(world.call(0, "RTREE.FSET t bike:7 state taken x y\r\n").0, ":1\r\n");
    let fields = world.call(0, "RTREE.FGET t bike:7 state y x\r\n").0;
    assert_eq!(fields, "*3\r\n$5\r\ntaken\r\n$-1\r\n$1\r\ny\r\n");
    for wrong in ["RTREE.FGET t nobody x\r\n", "RTREE.FSET t nobody x y\r\n"] {
        assert_eq!(world.call(0, wrong).0, "-ERR the tree has no such object\r\n");
    }
    // An integer that expires is an integer still.
    assert_eq!(world.call(0, "RTREE.ADDPOINT t 8 8 0 PX 5\r\n").0, ":0\r\n");
    assert!(world.call(0, search).0.contains(":8\r\n"));
    assert_eq!(world.call(0, "RTREE.REM t bike:7 8 7 nobody\r\n").0, ":3\r\n");
    assert_eq!(world.call(0, search), ("*0\r\n".into(), 0), "nothing is left to ask about");
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

#[test]
fn a_thread_executes_commands_of_its_own_shard_at_once() {
    let mut world = World::at_home(1);
    let lines =
        "SET a 1\r\nINCR a\r\nGET a\r\nMSET b 1 c 2\r\nMGET a b x\r\nDEL a b x\r\nEXISTS c c\r\n";
    let replies = "+OK\r\n:2\r\n$1\r\n2\r\n+OK\r\n*3\r\n$1\r\n2\r\n$1\r\n1\r\n$-1\r\n:2\r\n:2\r\n";
    assert_eq!(world.call(0, lines), (replies.into(), 0));
    assert_eq!(world.reads(), (0, 0));
    let counts = &world.connections.host().counts;
    // Each command once, however many keys it names.
    assert_eq!((counts.executed_here.get(), counts.commands.get()), (7, 7));
    assert_eq!(counts.keys_here.get(), 3 + 3 + 2);
    assert_eq!(counts.writes.get(), 1, "the replies of a turn leave together");
}

/// A request that is no inline one: it may be long.
pub(in crate::resp) fn request(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let bulk = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n", words.len()) + &words.iter().map(bulk).collect::<String>()
}

/// A list that goes in pieces pauses at its shard until the client reads. What comes
/// behind it is not executed before, and nothing is lost of either.
#[test]
fn nothing_overtakes_the_rest_of_a_long_reply() {
    let mut world = World::at_home(2);
    let fields: String = (0..30_000).map(|field| format!(" field{field} value{field}")).collect();
    world.call(0, &request(&format!("HSET h{fields}")));
    let (whole, _) = world.call(0, "HGETALL h\r\n");
    world.bound(1, 20_000);
    let large = "v".repeat(300_000);
    world.call(0, &request(&format!("SET large {large}")));
    let lines = "HGETALL h\r\nGET large\r\nHGETALL h\r\nGET large\r\nINCR n\r\n";
    let (first, _) = world.call(1, lines);
    assert!(first.len() <= 20_000, "the client does not read yet");
    assert_eq!(world.call(0, "GET n\r\n").0, "$-1\r\n");
    world.bound(1, usize::MAX);
    let (rest, _) = world.call(1, "");
    let value = format!("$300000\r\n{large}\r\n");
    assert_eq!(first + &rest, format!("{whole}{value}{whole}{value}:1\r\n"));
}

#[test]
fn a_turn_of_a_connection_and_of_all_is_bounded() {
    let mut world = World::at_home(40);
    for connection in 0..40 {
        world.send(connection, &"PING\r\n".repeat(300));
    }
    let commands = |world: &World| world.connections.host().counts.commands.get() as usize;
    world.serve();
    assert_eq!(commands(&world), RESP_CONNECTIONS_PER_TURN * RESP_REQUESTS_PER_TURN);
    let quiet = 39;
    world.serve();
    world.serve();
    assert_eq!(world.written(quiet), "+PONG\r\n".repeat(RESP_REQUESTS_PER_TURN), "its turn came");
    let (rest, _) = world.call(quiet, "");
    assert_eq!(rest, "+PONG\r\n".repeat(300 - RESP_REQUESTS_PER_TURN));
}

#[test]
fn a_connection_that_waits_for_nothing_goes_on_elsewhere() {
    let (mut world, mut other) = (World::at_home(3), World::at_home(1));
    world.call(0, "SELECT 3\r\n");
    for _ in 0..10 {
        world.call(1, "PING\r\n");
    }
    // The third has sent half a request.
    for _ in 0..12 {
        world.call(2, "PING\r\n");
    }
    assert!(world.connections.take_out(0.0).is_none(), "each has a larger share");
    for connection in [0, 1, 1, 2, 2, 2] {
        world.call(connection, "PING\r\n");
    }
    world.call(2, "SET k");
    let (pipe, connection) = world.connections.take_out(0.7).expect("one of them");
    assert_eq!((connection.serial, world.connections.open()), (3, 2));
    other.connections.add(pipe.clone(), connection);
    other.pipes.push(pipe);
    assert_eq!(other.call(1, " v\r\n"), ("+OK\r\n".into(), 0), "it had sent the half of it");
    assert_eq!(world.call(2, ""), (String::new(), 0));
    world.call(0, "PING\r\n");
    assert!(world.connections.take_out(1.0).is_none(), "one alone stays");
}

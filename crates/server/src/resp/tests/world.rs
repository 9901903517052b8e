//! Connections and one shard in one thread: which requests are read, which are asked, and which
//! connections are served in between.

use crate::large_jobs::LargeJobs;
use crate::resp::{
    Host, Prefetch, RespConnections, RespExecutor, RoleFacts, RoleRequest, Save, Sections,
};
use crate::thread_counts::ThreadCounts;
use crate::waits::Waits;
use remora_arena::{NoJournal, Owner, ReadView};
use remora_engine::{Durability, Now, Shard, ShardOptions};
use remora_frontend::{
    ByteStream, Connection, ConnectionCounts, Executor, Here, Job, Order, ShardPort, Token,
};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::pointer::RemotePointer;
use remora_layout::slot::SlotTable;
use remora_protocol::Command;
use remora_resp::CommandError;
use remora_resp::cluster::ClusterFacts;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

/// A stream.
#[derive(Clone, Default)]
pub struct Pipe(Arc<Mutex<Ends>>);

/// Its two ends.
struct Ends {
    /// The bytes to read.
    input: VecDeque<u8>,
    /// The written bytes.
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

impl ByteStream for Pipe {}

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
pub struct Fake {
    /// The number of the thread's own shard: [`SHARD`], or one that has no keys.
    home: usize,
    shard: Shard<NoJournal>,
    jobs: LargeJobs,
    words: ReadView,
    waiting: VecDeque<Job>,
    pub counts: ThreadCounts,
    /// The time of the connections' thread.
    now: Now,
    /// What is known of the cluster.
    pub cluster: Option<Arc<ClusterFacts>>,
    /// The server is a replica.
    pub is_replica: bool,
    /// It answers no reads.
    pub refuses_reads: bool,
    pub refuses_changes: bool,
}

impl ShardPort for Fake {
    fn home(&self) -> usize {
        self.home
    }

    fn now_ms(&self) -> u64 {
        self.now.unix_ms
    }

    fn slots(&self) -> &SlotTable {
        static ALL_OF_ONE: SlotTable = SlotTable::even(1);
        &ALL_OF_ONE
    }

    fn hash_seed(&self) -> u64 {
        ShardOptions::default().hash_seed
    }

    fn hand(&mut self, _: usize, job: Job) {
        self.waiting.push_back(job);
    }

    fn is_free(&mut self, token: &Token) -> bool {
        self.jobs.is_free(token)
    }

    fn execute<R>(
        &mut self,
        command: (&Command<'_>, KeyHash),
        at: (Token, bool),
        take: impl FnOnce(Here<'_>) -> R,
    ) -> Option<R> {
        assert_eq!(self.home, SHARD, "asked of a shard that is none");
        Some(take(self.jobs.execute_here(&mut self.shard, command, at, Now::default())))
    }

    fn durable_sequence(&self) -> u64 {
        self.shard.durable_sequence()
    }

    fn counts(&self) -> &ConnectionCounts {
        &self.counts.frontend
    }

    fn note_end(&self) {}
}

impl Host for Fake {
    type Memory = ReadView;
    type Journal = NoJournal;

    fn keys_in(&self, _: usize, _: Database) -> u64 {
        1
    }

    fn memory(&self, _: usize) -> &ReadView {
        &self.words
    }

    fn own_memory(&self, shard: usize) -> Option<&Owner<NoJournal>> {
        (shard == self.home).then(|| self.shard.owner())
    }

    #[inline]
    fn prefetch(&mut self, what: Prefetch, keys: impl Iterator<Item = KeyHash>) {
        match what {
            Prefetch::Buckets => keys.for_each(|hash| self.shard.prefetch(hash)),
            Prefetch::Records => keys.for_each(|hash| self.shard.prefetch_record(hash)),
        }
    }

    fn touched(&self, _: usize, _: RemotePointer) {}

    fn with_waits<R>(&mut self, act: impl FnOnce(&mut Waits) -> R) -> Option<R> {
        let done = act(&mut self.jobs.waits);
        while let Some((_, job)) = self.jobs.waits.pop_job() {
            self.waiting.push_back(job);
        }
        Some(done)
    }

    fn thread_counts(&self) -> &ThreadCounts {
        &self.counts
    }

    fn is_replica(&self) -> bool {
        self.is_replica
    }

    fn is_guarded(&self) -> bool {
        self.is_replica || self.cluster.is_some()
    }

    fn cluster(&mut self) -> Option<&Arc<ClusterFacts>> {
        self.cluster.as_ref()
    }

    fn read_refusal(&self) -> Option<CommandError> {
        self.refuses_reads.then_some(CommandError::Fenced)
    }

    fn change_refusal(&self) -> Option<CommandError> {
        self.refuses_changes.then_some(CommandError::Fenced)
    }

    fn info(&self, _: &Sections<'_>) -> String {
        String::new()
    }

    fn begin_save(&self) -> Save {
        Save::NothingKept
    }

    fn change_role(&self, _: RoleRequest<'_>, _: Token) -> Result<(), String> {
        Err("ERR This shard has no server".into())
    }

    fn role(&self) -> RoleFacts {
        RoleFacts::Primary { offset: 0, replicas: Vec::new() }
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn last_save_s(&self) -> u64 {
        0
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

pub struct World {
    pub executor: RespExecutor<Fake>,
    pub connections: RespConnections<Pipe>,
    pub pipes: Vec<Pipe>,
}

impl World {
    /// Connections whose thread has another shard: it asks, or reads.
    pub fn new(connections: usize) -> Self {
        Self::with(connections, SHARD + 1, ShardOptions::default())
    }

    /// Connections whose thread has the shard.
    pub fn at_home(connections: usize) -> Self {
        Self::with(connections, SHARD, ShardOptions::default())
    }

    /// Connections whose thread has the shard, and changes that are durable once the test says so.
    pub fn told(connections: usize) -> Self {
        let options = ShardOptions { durability: Durability::Told, ..ShardOptions::default() };
        Self::with(connections, SHARD, options)
    }

    fn with(connections: usize, home: usize, options: ShardOptions) -> Self {
        let shard = Shard::new(Owner::heap(64 << 20, NoJournal), options);
        let host = Fake {
            home,
            words: shard.owner().view().clone(),
            shard,
            jobs: LargeJobs::default(),
            waiting: VecDeque::new(),
            counts: ThreadCounts::default(),
            now: Now::default(),
            cluster: None,
            is_replica: false,
            refuses_reads: false,
            refuses_changes: false,
        };
        let mut world = Self {
            executor: RespExecutor::new(host),
            connections: RespConnections::numbered_from(0),
            pipes: vec![],
        };
        for serial in 1..=connections as u64 {
            let (pipe, peer) = (Pipe::default(), SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
            world.connections.add(pipe.clone(), Connection::new(peer, serial));
            world.pipes.push(pipe);
        }
        world
    }

    /// The server, to change what it is.
    pub fn host(&mut self) -> &mut Fake {
        self.executor.port_mut()
    }

    /// The facts of the cluster have changed: connections are told.
    pub fn tell(&mut self, facts: ClusterFacts) {
        self.host().cluster = Some(Arc::new(facts));
        self.connections.tell(&mut self.executor, drop);
    }

    /// The shard's changes are durable up to this sequence.
    pub fn set_durable(&mut self, sequence: u64) {
        self.executor.port_mut().shard.set_durable(sequence);
    }

    pub fn send(&mut self, connection: usize, lines: &str) {
        self.pipes[connection].0.lock().unwrap().input.extend(lines.as_bytes());
        self.connections.stir(connection);
    }

    /// One turn of the connections that have something to do.
    pub fn serve(&mut self) {
        while let Some((token, reply)) = self.executor.port_mut().jobs.pop_reply() {
            self.connections.take_reply(&mut self.executor, token, reply);
        }
        self.connections.serve(&mut self.executor, drop);
    }

    /// The server ends: bytes that have arrived are still read.
    pub fn stop_reading(&mut self) {
        self.connections.stop_reading(&mut self.executor, drop);
    }

    /// The shard begins the jobs that it has, and does one turn.
    pub fn begin(&mut self) {
        let Fake { shard, jobs, waiting, .. } = self.executor.port_mut();
        waiting.drain(..).for_each(|job| jobs.execute(shard, job, Now::default()));
        jobs.turn(shard, Now::default());
    }

    /// The shard does all that it was asked.
    pub fn execute(&mut self) {
        let Fake { shard, jobs, waiting, .. } = self.executor.port_mut();
        while let Some(job) = waiting.pop_front() {
            jobs.execute(shard, job, Now::default());
        }
        // As the shard's loop does.
        while jobs.has_work() || shard.wants_release() {
            jobs.turn(shard, Now::default());
            shard.release_some(Now::default());
        }
    }

    /// The bytes written since the last call.
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
        let cut_off = self.executor.port().counts.frontend.output_cut_off.get();
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
        let shard = &mut self.executor.port_mut().shard;
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
            jobs += self.executor.port().waiting.len();
            self.execute();
        }
    }

    /// Whether nothing is asked, under way or to be served.
    pub fn is_done(&self) -> bool {
        let Fake { jobs, waiting, .. } = self.executor.port();
        let has_jobs = !waiting.is_empty() || jobs.has_replies() || jobs.has_work();
        self.connections.are_idle() && !has_jobs
    }

    /// Serves all connections; how many jobs wait for the shard then.
    pub fn serve_until_idle(&mut self) -> usize {
        while !self.connections.are_idle() {
            self.serve();
        }
        self.executor.port().waiting.len()
    }

    /// INFO's bytes of jobs and replies: those of connections, and those of the shard's results.
    pub fn pending_bytes(&self) -> (usize, usize) {
        let Fake { jobs, counts, .. } = self.executor.port();
        (counts.frontend.pending_bytes.get() as usize, jobs.found_bytes())
    }

    /// Keys of the jobs about many that wait for the shard, and bytes of these jobs.
    pub fn waiting_keys(&self) -> (usize, usize) {
        let jobs = self.executor.port().waiting.iter().map(|job| match &job.order {
            Order::ExecuteEach(batch) => (batch.keys(), batch.bytes()),
            _ => (0, 0),
        });
        jobs.fold((0, 0), |(keys, bytes), job| (keys + job.0, bytes + job.1))
    }

    /// Keys that were looked up so far or wait for the shard.
    pub fn keys_taken(&self) -> usize {
        let here = self.executor.port().counts.keys_here.get();
        (here + self.reads().0) as usize + self.waiting_keys().0
    }

    /// The connections' thread has this time, Unix ms.
    pub fn set_time(&mut self, unix_ms: u64) {
        self.executor.port_mut().now.unix_ms = unix_ms;
    }

    /// A second goes by, and requests may be idle for so many.
    pub fn pass_second(&mut self, upload_idle_s: u64) {
        self.connections.count_idle(&mut self.executor, upload_idle_s, drop);
    }

    /// Whether connections wait for the rest of large requests, and how many of
    /// those were given up.
    pub fn parts(&self) -> (bool, u64) {
        let abandoned = self.executor.port().counts.frontend.requests_abandoned.get();
        (self.connections.wait_for_parts(), abandoned)
    }

    /// Hits of reads in memory, and of the shard.
    pub fn hits(&self) -> (u64, u64) {
        let Fake { counts, shard, .. } = self.executor.port();
        (counts.hits.get(), shard.stats().hits)
    }

    pub fn reads(&self) -> (u64, u64) {
        let counts = &self.executor.port().counts;
        (counts.optimistic_reads.get(), counts.asked_reads.get())
    }
}

pub fn add_row(world: &mut World, count: usize) {
    let lines: String = (0..count).map(|id| format!("RTREE.ADDPOINT t {id} {id} 0\r\n")).collect();
    assert_eq!(world.call(0, &lines).0, ":1\r\n".repeat(count));
}

/// A request that is no inline one: it may be long.
pub fn request(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let bulk = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n", words.len()) + &words.iter().map(bulk).collect::<String>()
}

//! What replicas cost a SET in virtual time, beside HydraDB's Fig. 13: the state machines of both
//! ends and the shard are those of the server; links, cores and the wire cost what [`RDMA`] says.
//!
//! ```text
//!   clients --> [core: takes some requests, executes them] --WRITE--> ring of each replica
//!           <-- replies, once all have stored <-- completion, or (strict) acknowledgement <--
//! ```
//! Clients ask in a closed loop. The core is at one thing at a time: requests, WRITEs, completions
//! and acknowledgements. Each replica has a thread, which takes messages out of its ring.

use super::costs::RDMA;
use remora_arena::{NoJournal, Owner};
use remora_engine::{Durability, Now, Shard, ShardOptions};
use remora_layout::limits::FRAMES_PER_TURN;
use remora_log::LogKey;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};
use remora_replica::{AskFor, LogReceiver, LogSender, Received};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// For each WRITE that the core posts, and for its completion, ns ([`RDMA`]).
const POST_NS: u64 = 100;
const POLL_NS: u64 = 60;
/// From a message's arrival to a thread that sleeps until it runs, ns: an event of the device and a
/// switch of the scheduler.
const WAKE_NS: u64 = 5_000;
/// Idle time after which a replica's thread sleeps, ns.
const SPINS_NS: u64 = 20_000;
/// SETs that are measured.
const SETS: u64 = 20_000;
/// Bytes of a key and of a value, as YCSB's in the paper's other figures.
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 32;
const SECRET: u64 = 0x5e71;
const NOW: Now = Now { unix_ms: 1, since_start_s: 1 };

/// What was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Replicated {
    /// Mean time of a SET at its client, ns.
    pub mean_ns: f64,
    /// For each entry and replica: WRITEs of the primary ...
    pub writes: f64,
    /// ... times that the thread of the replica was woken ...
    pub wakes: f64,
    /// ... acknowledgements ...
    pub acknowledgements: f64,
    /// ... and bytes, without the wire's headers.
    pub bytes: f64,
}

enum Event {
    /// A request arrives at the shard.
    Request { client: usize },
    /// The core has done its turn.
    Free,
    /// A message arrives at a replica.
    Message { replica: usize, bytes: Vec<u8> },
    /// A WRITE has completed.
    Completed { replica: usize, write: u64 },
    /// A replica acknowledges.
    Acknowledged { replica: usize, told: remora_protocol::replication::Acknowledge },
}

struct Replica {
    sender: LogSender,
    receiver: LogReceiver,
    /// When its thread is free, and runs.
    free_ns: u64,
    writes: u64,
    wakes: u64,
    acknowledgements: u64,
    bytes: u64,
}

/// What waits for the core.
enum Work {
    Request { client: usize },
    Completed { replica: usize, write: u64 },
    Acknowledged { replica: usize, told: remora_protocol::replication::Acknowledge },
}

struct Model {
    shard: Shard,
    ask_for: AskFor,
    replicas: Vec<Replica>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    pending: BTreeMap<u64, Event>,
    posted: u64,
    work: VecDeque<Work>,
    is_busy: bool,
    /// Replies that wait, by the sequence of their entry.
    held: VecDeque<(u64, usize)>,
    asked_ns: Vec<u64>,
    asked: u64,
    answered: u64,
    total_ns: u64,
}

/// Runs so many clients, which SET all the time, at a primary with so many replicas.
pub fn replicate(clients: usize, replicas: usize, ask_for: AskFor) -> Replicated {
    let options = ShardOptions {
        log_secret: SECRET,
        durability: Durability::Told,
        buckets: 1 << 10,
        ..ShardOptions::default()
    };
    let mut shard = Shard::new(Owner::heap(32 << 20, NoJournal), options);
    let made = (0..replicas).map(|_| Replica {
        sender: LogSender::begin(&mut shard, 1, ask_for).expect("the log begins"),
        receiver: LogReceiver::new(LogKey::new(SECRET, 0), 1),
        free_ns: 0,
        writes: 0,
        wakes: 0,
        acknowledgements: 0,
        bytes: 0,
    });
    let replicas = made.collect();
    let mut model = Model {
        shard,
        ask_for,
        replicas,
        events: BinaryHeap::new(),
        pending: BTreeMap::new(),
        posted: 0,
        work: VecDeque::new(),
        is_busy: false,
        held: VecDeque::new(),
        asked_ns: vec![0; clients],
        asked: 0,
        answered: 0,
        total_ns: 0,
    };
    (0..clients).for_each(|client| model.ask(client, 0));
    while model.answered < SETS {
        let Reverse((now_ns, number)) = model.events.pop().expect("clients ask for ever");
        let event = model.pending.remove(&number).expect("it was scheduled");
        model.happens(now_ns, event);
    }
    model.result()
}

impl Model {
    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.posted += 1;
        self.events.push(Reverse((at_ns, self.posted)));
        self.pending.insert(self.posted, event);
    }

    fn ask(&mut self, client: usize, now_ns: u64) {
        self.asked += 1;
        self.asked_ns[client] = now_ns;
        self.schedule(now_ns + RDMA.latency_ns, Event::Request { client });
    }

    fn happens(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Request { client } => self.work.push_back(Work::Request { client }),
            Event::Completed { replica, write } => {
                self.work.push_back(Work::Completed { replica, write });
            }
            Event::Acknowledged { replica, told } => {
                self.work.push_back(Work::Acknowledged { replica, told });
            }
            Event::Free => self.is_busy = false,
            Event::Message { replica, bytes } => return self.take(now_ns, replica, &bytes),
        }
        if !self.is_busy && !self.work.is_empty() {
            self.turn(now_ns);
        }
    }

    /// A replica's thread takes a message out of its ring.
    fn take(&mut self, now_ns: u64, at: usize, bytes: &[u8]) {
        let replica = &mut self.replicas[at];
        let is_asleep = now_ns > replica.free_ns + SPINS_NS;
        replica.wakes += u64::from(is_asleep);
        let from_ns = if is_asleep { now_ns + WAKE_NS } else { now_ns.max(replica.free_ns) };
        let takes_ns = POLL_NS + (bytes.len() as u64 * RDMA.thread_byte_ps) / 1_000;
        replica.free_ns = from_ns + takes_ns;
        let took = replica.receiver.take(bytes).expect("the primary is honest");
        while replica.receiver.next_entry().is_some() {}
        if took == (Received::Entries { asks: true }) {
            replica.free_ns += POST_NS;
            replica.acknowledgements += 1;
            let told = replica.receiver.acknowledge(0, 0, 0);
            let at_ns = replica.free_ns + RDMA.latency_ns;
            self.schedule(at_ns, Event::Acknowledged { replica: at, told });
        }
    }

    /// The core does a turn.
    fn turn(&mut self, now_ns: u64) {
        let mut free_ns = now_ns;
        for _ in 0..FRAMES_PER_TURN {
            match self.work.pop_front() {
                None => break,
                Some(Work::Request { client }) => {
                    free_ns += RDMA.request_ns;
                    self.set(client);
                }
                Some(Work::Completed { replica, write }) => {
                    free_ns += POLL_NS;
                    self.replicas[replica].sender.completed(write);
                }
                Some(Work::Acknowledged { replica, told }) => {
                    free_ns += RDMA.request_ns;
                    let sender = &mut self.replicas[replica].sender;
                    let taken = sender.take(&mut self.shard, told);
                    taken.expect("it is honest").expect("the log keeps it");
                }
            }
        }
        free_ns = self.send(free_ns);
        self.reply(free_ns);
        self.is_busy = true;
        self.schedule(free_ns, Event::Free);
    }

    fn set(&mut self, client: usize) {
        let mut key = [b'k'; KEY_BYTES];
        key[..8].copy_from_slice(&(client as u64).to_le_bytes());
        let set = Command::Set {
            key: &key,
            value: &[b'v'; VALUE_BYTES],
            condition: Condition::Always,
            expiry: Expiry::Never,
            get: false,
        };
        let hash = self.shard.hash(&key);
        assert_eq!(self.shard.execute(&set, hash, NOW).status, Status::Ok);
        self.held.push_back((self.shard.last_sequence(), client));
    }

    /// Sends the new entries to each replica, at the end of a turn that ends then.
    fn send(&mut self, mut free_ns: u64) -> u64 {
        for at in 0..self.replicas.len() {
            let replica = &mut self.replicas[at];
            if !replica.sender.has_news(&self.shard) {
                continue;
            }
            let mut bytes = Vec::new();
            replica
                .sender
                .next_message(&mut self.shard, NOW, &mut bytes)
                .expect("the log keeps it");
            replica.writes += 1;
            replica.bytes += bytes.len() as u64;
            let write = replica.writes;
            replica.sender.posted(write);
            free_ns += POST_NS;
            let wire_ns = (bytes.len() as u64 + RDMA.header_bytes) * RDMA.server_byte_ps / 1_000;
            let there_ns = free_ns + RDMA.latency_ns + wire_ns;
            self.schedule(there_ns, Event::Message { replica: at, bytes });
            let completes_ns = there_ns + RDMA.latency_ns;
            self.schedule(completes_ns, Event::Completed { replica: at, write });
        }
        free_ns
    }

    /// Answers what all replicas have stored.
    fn reply(&mut self, now_ns: u64) {
        let stored = |of: &Replica| match self.ask_for {
            AskFor::Some => of.sender.stored(),
            AskFor::Each => of.sender.told().received.get(),
        };
        let durable = self.replicas.iter().map(stored).min().unwrap_or(u64::MAX);
        self.shard.set_durable(durable);
        while let Some(&(of, client)) = self.held.front()
            && of <= durable
        {
            self.held.pop_front();
            let there_ns = now_ns + RDMA.latency_ns + RDMA.thread_ask_ns;
            self.total_ns += there_ns - self.asked_ns[client];
            self.answered += 1;
            self.ask(client, there_ns + RDMA.thread_op_ns);
        }
    }

    fn result(&self) -> Replicated {
        let entries = self.shard.last_sequence() as f64 * self.replicas.len().max(1) as f64;
        let each = |count: fn(&Replica) -> u64| {
            self.replicas.iter().map(count).sum::<u64>() as f64 / entries
        };
        Replicated {
            mean_ns: self.total_ns as f64 / self.answered as f64,
            writes: each(|of| of.writes),
            wakes: each(|of| of.wakes),
            acknowledgements: each(|of| of.acknowledgements),
            bytes: each(|of| of.bytes),
        }
    }
}

/// The increase of the mean time of a SET over that without a replica, in percent.
pub fn increase(clients: usize, replicas: usize, ask_for: AskFor) -> f64 {
    let alone = replicate(clients, 0, ask_for).mean_ns;
    100.0 * (replicate(clients, replicas, ask_for).mean_ns / alone - 1.0)
}

/// All of it as a table.
pub fn table() -> String {
    let mut text =
        "clients  replicas  acks     SET us  more %  WRITEs  wake-ups  acks  bytes an entry\n"
            .to_owned();
    for clients in [1, 4, 16, 60] {
        let (relaxed, strict) = (AskFor::Some, AskFor::Each);
        for (replicas, ask_for) in
            [(0, relaxed), (1, relaxed), (2, relaxed), (1, strict), (2, strict)]
        {
            let it = replicate(clients, replicas, ask_for);
            let (us, more) = (it.mean_ns / 1e3, increase(clients, replicas, ask_for));
            let Replicated { writes, wakes, acknowledgements, bytes, .. } = it;
            text += &format!(
                "{clients:7}  {replicas:8}  {:7}  {us:6.2}  {more:6.1}  {writes:6.3}  {wakes:8.4}  {acknowledgements:4.2}  {bytes:14.1}\n",
                ask_for.name()
            );
        }
    }
    text
}

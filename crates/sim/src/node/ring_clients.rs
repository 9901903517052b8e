//! Client processes at a simulated server, over shared memory or as if over a network:
//! the production ring clients of each shard, with ready bits, marks, parking and
//! eventfds, in virtual time.
//!
//! The world replaces only the kernel's sleeps: a shard's thread and a client's thread say that
//! they sleep as in production, and a thread that signals wakes their task. Data over a network is
//! stored at once; the thread that receives for the client marks it some time later.

use crate::counts::RunCounts;
use crate::resp::lock;
use remora_arena::{AsleepWord, Mapping, ReadView, Words};
use remora_engine::{Now, Shard};
use remora_fabric::AnyLink;
use remora_fabric::remote::CLIENT_MAILBOX;
use remora_fabric::shm::mark::{ReadyMark, RungClients};
use remora_fabric::shm::{Bell, ShmLink, Sleeper, asleep};
use remora_fabric::sim::{SimJournal, SimWorld};
use remora_layout::session::{CLIENT_SIGNALS_WORD, mailbox_bytes, set_offset};
use remora_server::TurnView;
use remora_server::ring_clients::{RingClients, Served};
use remora_server::ring_session::{
    ClientEnd, RemoteEnd, RingParts, RingSession, SessionError, ShmEnd, StoredBy,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Clock = Box<dyn Fn() -> Instant>;

/// Bytes of the words by which shards' threads say that they sleep.
const ASLEEP_BYTES: usize = 4096;
/// Longest time between a store and its mark, ns.
const MARKED_AFTER_NS: u64 = 3_000;

/// A client process's part of the setup.
#[derive(Clone)]
pub struct Process {
    /// The mailbox that it writes.
    pub to_server: Words,
    /// The mailbox that the server writes.
    pub to_client: Words,
    /// Seed of its rings.
    pub seed: u64,
    /// Shards of the server.
    pub shards: usize,
    /// Its wake-up of each shard.
    pub bells: Vec<Bell>,
    /// For a process over a network: the marks that announce its frames to each shard.
    pub marks: Option<Arc<[ReadyMark]>>,
}

/// A client's thread that may sleep.
struct Sleeping {
    to_server: Words,
    /// The word that counts its signals, and the word's value when it fell asleep.
    word: usize,
    seen: u64,
    /// Arriving data wakes it.
    is_remote: bool,
    task: Arc<Mutex<Option<u64>>>,
}

/// The ring clients of all shards.
pub struct NodeRings {
    sleepers: Vec<Sleeper>,
    clients: Vec<RingClients<Clock>>,
    /// For each shard the clients over a network that rang while they were parked.
    rung: Vec<Arc<RungClients>>,
    /// Replies went out since sleeping threads were last woken.
    has_replied: bool,
    asleep: Words,
    began: Instant,
    sleeping: Vec<Sleeping>,
    /// The shards' task, if it sleeps.
    pub waiting: Arc<Mutex<Option<u64>>>,
    /// The shards' counters.
    pub counts: RunCounts,
}

impl NodeRings {
    /// The ring clients of a server with this many shards; without clients yet.
    pub fn new(world: &SimWorld, shards: usize) -> Self {
        let asleep = Words::new(Mapping::heap(ASLEEP_BYTES));
        let sleeper = |shard| Sleeper::new(AsleepWord::new(asleep.clone(), shard));
        let sleepers = (0..shards).map(sleeper).collect::<Result<_, _>>();
        let began = Instant::now();
        let rung: Vec<Arc<RungClients>> = (0..shards).map(|_| Arc::default()).collect();
        let clients = |shard: usize| {
            let world = world.clone();
            let clock = move || began + Duration::from_nanos(world.now_ns());
            RingClients::with_clock(Arc::clone(&rung[shard]), Box::new(clock) as Clock)
        };
        Self {
            sleepers: sleepers.expect("the kernel has epoll sets"),
            clients: (0..shards).map(clients).collect(),
            rung,
            has_replied: false,
            asleep,
            began,
            sleeping: Vec::new(),
            waiting: Arc::default(),
            counts: RunCounts::default(),
        }
    }

    /// A process with this many ring sets; with one, over a network, if `is_remote`.
    pub fn connect(
        &mut self,
        (incarnation, number, seed): (u64, u64, u64),
        arenas: &Arc<[ReadView]>,
        (ring_sets, is_remote): (usize, bool),
    ) -> Process {
        let shards = arenas.len();
        let mailbox = || Words::new(Mapping::heap(ring_sets * mailbox_bytes(shards)));
        let (to_server, to_client) = (mailbox(), mailbox());
        let mut bells = Vec::new();
        let marks: Option<Arc<[ReadyMark]>> =
            is_remote.then(|| (0..shards).map(|_| ReadyMark::default()).collect());
        for shard in 0..shards {
            let eventfd = Bell::eventfd().expect("the kernel has eventfds");
            bells.push(Bell::new(self.asleep.view(), shard, Arc::clone(&eventfd)));
            let mut link = ShmLink::new(None);
            link.add_writable(CLIENT_MAILBOX, to_client.clone());
            let client = match &marks {
                Some(marks) => {
                    let marks = Arc::clone(marks);
                    ClientEnd::Remote(RemoteEnd { marks, shard, stored_by: StoredBy::OtherThread })
                }
                None => ClientEnd::Shm(ShmEnd {
                    to_server: to_server.clone(),
                    to_client: to_client.clone(),
                    shard,
                    ring_sets,
                    eventfd,
                }),
            };
            let session = RingSession::new(RingParts {
                session: number,
                seed,
                shard,
                incarnation,
                arenas: Arc::clone(arenas),
                touched: Arc::default(),
                to_server: to_server.view(),
                link: AnyLink::Shm(link),
                client,
                large: None,
                violated: Arc::default(),
                threads: Arc::default(),
                searches: Arc::default(),
                view: TurnView::of_primary(),
            });
            let attached = self.clients[shard].attach(session, &self.sleepers[shard]);
            attached.map_err(|(_, error)| error).expect("the kernel watches an eventfd");
        }
        Process { to_server, to_client, seed, shards, bells, marks }
    }

    /// One turn of a shard. Whether there were frames.
    pub fn turn(
        &mut self,
        number: usize,
        (shard, now): (&mut Shard<SimJournal>, Now),
        now_ns: u64,
        mut failed: impl FnMut(SessionError),
    ) -> bool {
        let at = self.began + Duration::from_nanos(now_ns);
        let (clients, sleeper) = (&mut self.clients[number], &mut self.sleepers[number]);
        clients.look_around(at, sleeper);
        let served = clients.serve((shard, now, at), |_, error| failed(error));
        let Served { frames, looks, rings, .. } = served;
        self.has_replied |= frames > 0;
        if frames > 0 {
            self.counts.ring_frames += frames;
            self.counts.ring_turns += 1;
            self.counts.clients_looked_at += looks;
            self.counts.rings_looked_at += rings;
        }
        self.counts.ring_doorbells += clients.take_rung();
        frames > 0
    }

    /// Clients that are parked, over all shards.
    pub fn parked(&self) -> usize {
        self.clients.iter().map(RingClients::parked).sum()
    }

    /// Whether a shard has something to do.
    pub fn has_work(&self, shard: usize) -> bool {
        self.clients[shard].has_work()
    }

    /// The shards' threads say that they are about to sleep.
    pub fn announce(&self, shards: usize, task: u64) {
        *lock(&self.waiting) = Some(task);
        (0..shards).for_each(|shard| asleep::announce(self.asleep.word(shard)));
    }

    /// They sleep no more, and look at their doorbells.
    pub fn awake(&mut self) {
        *lock(&self.waiting) = None;
        let shards = self.clients.iter_mut().zip(&mut self.sleepers).enumerate();
        for (shard, (clients, sleeper)) in shards {
            asleep::awake(self.asleep.word(shard));
            sleeper.look();
            clients.take_doorbells(sleeper);
        }
    }

    /// A client's thread sleeps at its ring set until it is signalled.
    pub fn sleeps(&mut self, process: &Process, set: usize, task: Arc<Mutex<Option<u64>>>) {
        let word = set_offset(process.shards, set) / 8 + CLIENT_SIGNALS_WORD;
        let to_server = process.to_server.clone();
        let (seen, is_remote) = (to_server.load(word), process.marks.is_some());
        self.sleeping.push(Sleeping { to_server, word, seen, is_remote, task });
    }

    /// A process over a network has sent something to these shards.
    pub fn receive(&self, world: &SimWorld, marks: &Arc<[ReadyMark]>, shards: &[usize]) {
        for &shard in shards {
            let (marks, rung) = (Arc::clone(marks), Arc::clone(&self.rung[shard]));
            let (world_then, waiting) = (world.clone(), Arc::clone(&self.waiting));
            let after_ns = world.draw(|random| random.below(MARKED_AFTER_NS));
            world.schedule(after_ns, move || {
                marks[shard].tell(&rung);
                world_then.wake(&waiting);
            });
        }
    }

    /// The kernel wakes the threads that were signalled.
    pub fn wake_signalled(&mut self, world: &SimWorld) {
        let has_replied = std::mem::take(&mut self.has_replied);
        self.sleeping.retain(|sleeping| {
            let is_signalled = (sleeping.is_remote && has_replied)
                || sleeping.to_server.load(sleeping.word) != sleeping.seen;
            if is_signalled {
                world.wake(&sleeping.task);
            }
            !is_signalled
        });
    }
}

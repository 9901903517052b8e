//! One world: a server, its clients, what goes wrong, and the judgement.

use crate::check::keys::Keys;
use crate::client::{Mix, SimClient};
use crate::clock::HostClock;
use crate::faults::{Fault, Faults};
use crate::history::{History, Judgement, Violation};
use crate::node::{Node, NodeOptions};
use crate::probes::Probes;
use crate::resp::{Resp, RespClient, RespSwarm};
use crate::tasks::Coroutines;
use remora_client::{Error, Options, PointerCacheKind, Wake};
use remora_engine::ShardOptions;
use remora_engine::evict::Eviction;
use remora_fabric::sim::{Random, SimOptions, SimWorld, Tasks};
use remora_layout::message::Status;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// What a seed draws before its world begins.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// Operations to begin, all clients together.
    pub operations: u64,
    /// Clients.
    pub clients: u32,
    /// Keys.
    pub keys: u32,
    /// Most bytes with which a value is filled up.
    pub value_bytes: u64,
    /// What clients do.
    pub mix: Mix,
    /// By how much the server's clock gains, ppm.
    pub server_gains_ppm: i64,
    /// The same of each client's machine.
    pub client_gains_ppm: Vec<i64>,
    /// The fabric.
    pub fabric: SimOptions,
    /// The server.
    pub node: NodeOptions,
    /// Pointers that a session caches.
    pub cache_entries: usize,
    /// Chances of faults, in a million.
    pub faults: BTreeMap<Fault, u32>,
    /// RESP.
    pub resp: RespSwarm,
}

impl Swarm {
    /// The draw of a seed.
    pub fn of(seed: u64, with_faults: bool) -> Self {
        let mut random = Random::new(seed);
        let mut draw = |range: std::ops::RangeInclusive<u64>| random.within(&range);
        let clients = draw(1..=6) as u32;
        let keys = [1, 3, 10, 60, 400][draw(0..=4) as usize];
        let mix = Mix {
            get: 10 + draw(0..=60),
            get_batch: draw(0..=10),
            set: 5 + draw(0..=30),
            set_many: draw(0..=5),
            del: draw(0..=6),
            incr: draw(0..=10),
            submit: draw(0..=4),
            think: draw(0..=2),
            most_submitted: 20,
            expiring_percent: [0, 10, 50][draw(0..=2) as usize],
            think_ns: [MS, 100 * MS, 3_000 * MS][draw(0..=2) as usize],
        };
        let gains = |drawn: u64| drawn as i64 - 100_000;
        let server_gains_ppm = gains(draw(0..=200_000));
        let client_gains_ppm = (0..clients).map(|_| gains(draw(0..=200_000))).collect();
        let slow = draw(0..=3) == 0;
        let most = if slow { [200_000, 20_000_000][draw(0..=1) as usize] } else { 5_000 };
        let fabric = SimOptions {
            seed: draw(0..=u64::MAX - 1),
            request_ns: 200..=200 + draw(1..=most),
            effect_ns: 50..=50 + draw(1..=most),
            answer_ns: 200..=200 + draw(1..=most),
            tear_ppm: [0, 100_000, 1_000_000][draw(0..=2) as usize],
            loss_ppm: if with_faults { [0, 20, 500][draw(0..=2) as usize] } else { 0 },
        };
        let evicts = draw(0..=3) == 0;
        let shard = ShardOptions {
            hash_seed: draw(0..=u64::MAX - 1),
            record_secret: draw(0..=u64::MAX - 1),
            buckets: 1 << draw(0..=4),
            lease_min_s: 1,
            eviction: if evicts { Eviction::S3Fifo } else { Eviction::None },
            ..ShardOptions::default()
        };
        let node = NodeOptions {
            shards: draw(1..=3) as usize,
            arena_bytes: [1 << 20, 2 << 20, 8 << 20][draw(0..=2) as usize],
            shard,
            clock_gains_ppm: server_gains_ppm,
        };
        let mut faults = BTreeMap::new();
        if with_faults {
            for fault in Fault::ALL {
                let ppm = [0, 100, 1_000][draw(0..=2) as usize];
                // Once a millisecond a crash is drawn, most others more often; the
                // loss of a RESP connection once a pipeline.
                let ppm = match fault {
                    Fault::ServerCrash => ppm / 10,
                    Fault::RespLost => 20 * ppm,
                    _ => ppm,
                };
                faults.insert(fault, ppm);
            }
        }
        Self {
            operations: 2_000,
            clients,
            keys,
            value_bytes: [8, 100, 2_000, 30_000][draw(0..=3) as usize],
            mix,
            server_gains_ppm,
            client_gains_ppm,
            fabric,
            node,
            cache_entries: [0, 1, 64, 4_096][draw(0..=3) as usize],
            faults,
            resp: RespSwarm::of(&mut draw),
        }
    }
}

/// A world while it runs.
pub struct World {
    /// Time, network and randomness.
    pub sim: SimWorld,
    /// What the seed drew.
    pub swarm: Swarm,
    /// The server.
    pub node: Rc<RefCell<Node>>,
    /// Its RESP.
    pub resp: Resp,
    /// What clients saw.
    pub history: RefCell<History>,
    /// What goes wrong.
    pub faults: Rc<Faults>,
    /// Which rare paths ran.
    pub probes: RefCell<Probes>,
    number: Cell<i64>,
    over: Cell<bool>,
}

/// What came of a world.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations of its clients.
    pub operations: u64,
    /// Virtual time that passed, ns.
    pub virtual_ns: u64,
    /// Faults that struck.
    pub faults: BTreeMap<Fault, u64>,
    /// Hash of the history.
    pub hash: u64,
    /// Rare paths that ran.
    pub probes: Probes,
    /// Promises that were broken.
    pub violations: Vec<Violation>,
    /// Keys whose calls overlap in too many ways to be judged.
    pub undecided: u64,
    /// Keys of the history.
    pub keys: u64,
    /// What happened, if it was wanted.
    pub trace: Vec<String>,
}

impl World {
    /// Runs one seed's world to its end.
    pub fn run(swarm: Swarm, wants_trace: bool) -> Outcome {
        let sim = SimWorld::new(swarm.fabric.clone());
        sim.run_tasks_by(Coroutines);
        let faults = Rc::new(Faults::new(&sim, swarm.faults.clone()));
        let node = Node::new(&sim, swarm.node.clone(), Rc::clone(&faults));
        let node = Rc::new(RefCell::new(node));
        let world = Rc::new(Self {
            sim: sim.clone(),
            swarm,
            node: Rc::clone(&node),
            resp: Resp::default(),
            history: RefCell::new(History::new(wants_trace)),
            faults,
            probes: RefCell::default(),
            number: Cell::new(0),
            over: Cell::new(false),
        });
        world.start_server();
        Coroutines::spawn(&sim, move || Node::run(&node));
        let mut clients = world.spawn_clients();
        clients.extend(RespClient::spawn_all(&world));
        let breaker = Rc::clone(&world);
        Coroutines::spawn(&sim, move || breaker.break_things());
        world.drive(&clients);
        let virtual_ns = sim.now_ns();
        world.tell();
        Coroutines::forget_all();
        sim.forget_all();
        let world = Rc::into_inner(world).expect("all tasks are gone");
        world.judge(virtual_ns)
    }

    fn start_server(&self) {
        self.node.borrow_mut().start();
        let resp = self.swarm.resp;
        if resp.clients > 0 {
            self.resp.begin(&self.sim, &self.node.borrow(), &self.faults, resp.read_ns);
        }
    }

    /// The server's present life tells of itself.
    fn tell(&self) {
        self.node.borrow().tell(&mut self.probes.borrow_mut());
        self.resp.tell(&mut self.probes.borrow_mut());
    }

    fn spawn_clients(self: &Rc<Self>) -> Vec<u64> {
        (0..self.swarm.clients)
            .map(|number| {
                let gains_ppm = self.swarm.client_gains_ppm[number as usize];
                let base_ns = self.sim.draw(|random| random.within(&(1..=1 << 50)));
                let clock = HostClock::new(&self.sim, base_ns, gains_ppm);
                let options = Options {
                    wake: Wake::Event,
                    pointer_cache: PointerCacheKind::Private,
                    pointer_cache_entries: self.swarm.cache_entries,
                    timeout: Duration::from_secs(5),
                    ..Options::default()
                };
                SimClient::spawn(self, number, clock, options)
            })
            .collect()
    }

    /// Lets events happen until every client has come to its end.
    fn drive(&self, clients: &[u64]) {
        let is_alive = || clients.iter().any(|&task| Coroutines::is_alive(task));
        let mut calls_end_ns = None;
        while is_alive() {
            let over_ns = *calls_end_ns.get_or_insert(u64::MAX);
            if self.history.borrow().calls >= self.swarm.operations && !self.over.get() {
                self.over.set(true);
                self.faults.stop();
                // Timeouts of calls under way, and a restart.
                calls_end_ns = Some(self.sim.now_ns() + 20_000 * MS);
            }
            if !self.sim.step(over_ns) {
                let seen = format!("a client still waits at {} ns", self.sim.now_ns());
                self.history
                    .borrow_mut()
                    .violate("without faults every call comes to its end", seen);
                return;
            }
        }
    }

    /// The task that breaks what does not break by itself.
    fn break_things(self: &Rc<Self>) {
        let task = Coroutines.current().expect("it runs as a task");
        while !self.is_over() {
            self.faults.pause(&self.sim, task, 1..=MS);
            if self.faults.strikes(Fault::SessionLost) {
                let draw = self.sim.draw(|random| random.number());
                self.node.borrow_mut().lose_any_session(draw);
            }
            if self.faults.strikes(Fault::ServerCrash) {
                let from_ns = self.sim.now_ns();
                self.tell();
                let lose_links = self.node.borrow_mut().crash();
                self.resp.crash(&self.sim);
                let lingers_ns = self.sim.draw(|random| random.below(2) * random.below(600 * MS));
                let world = Rc::clone(self);
                Coroutines::spawn(&self.sim, move || {
                    let task = Coroutines.current().expect("it runs");
                    world.faults.pause(&world.sim, task, lingers_ns..=lingers_ns);
                    lose_links();
                });
                let wait_ns = self.node.borrow().clock_takes_ns(Node::waits_ns());
                let down_ns = wait_ns + self.sim.draw(|random| random.below(50 * MS));
                self.faults.pause(&self.sim, task, down_ns..=down_ns);
                self.start_server();
                self.history.borrow_mut().clear_all(from_ns, self.sim.now_ns());
            }
        }
    }

    /// Whether clients begin nothing more.
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    /// A number that no value stood for before.
    pub fn next_number(&self) -> i64 {
        // Apart from sums of counters, which stay small.
        let number = self.number.get() + 1;
        self.number.set(number);
        1_000_000 * number
    }

    /// Whether the server may refuse something so.
    pub fn may_refuse(&self, error: Error) -> bool {
        self.probes.borrow_mut().add_error(error);
        matches!(error, Error::Refused(Status::OutOfMemory))
    }

    /// A client's session came to its end.
    pub fn ended(&self, client: u32, error: Error) {
        self.probes.borrow_mut().add_error(error);
        let now_ns = self.sim.now_ns();
        self.history.borrow_mut().note(now_ns, client, 0, format_args!("session ended: {error}"));
        let is_ours = matches!(error, Error::Protocol(_) | Error::Forked);
        if is_ours {
            let seen = format!("client {client}: {error}");
            self.history.borrow_mut().violate("nobody breaks the protocol", seen);
        }
    }

    fn judge(self, virtual_ns: u64) -> Outcome {
        let mut history = self.history.into_inner();
        if self.node.borrow().violations > 0 {
            let seen = "the server ended a session for what its client wrote".to_owned();
            history.violate("nobody breaks the protocol", seen);
        }
        let trace = history.trace.take().unwrap_or_default();
        let (operations, hash) = (history.calls, history.hash());
        let evicts = self.swarm.node.shard.eviction != Eviction::None;
        let judgement = history.judge(Keys { evicts });
        let Judgement { violations, undecided, keys } = judgement;
        let (faults, probes) = (self.faults.struck(), self.probes.into_inner());
        Outcome { operations, virtual_ns, faults, hash, probes, violations, undecided, keys, trace }
    }
}

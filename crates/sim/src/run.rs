//! One world from its beginning to its end: the tasks of its clients, the faults meanwhile, and the
//! judgement.

use crate::check::keys::Keys;
use crate::client::SimClient;
use crate::clock::HostClock;
use crate::counts::RunCounts;
use crate::crowd;
use crate::faults::{Fault, Faults};
use crate::history::{History, Judgement, Violation};
use crate::node::{Node, Removed};
use crate::places::tree_named;
use crate::probes::{Probe, Probes};
use crate::replicas::{Gone, ReplicaCounts, ReplicaReader, Replicas};
use crate::resp::{ListClient, Resp, RespClient};
use crate::swarm::Swarm;
use crate::tasks::Coroutines;
use crate::world::World;
use remora_client_core::{
    Admission, ConcurrencyLimit, Database, Options, PointerCacheKind, Policy, Wake,
};
use remora_engine::evict::Eviction;
use remora_fabric::sim::{SimWorld, Tasks};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

const MS: u64 = 1_000_000;

/// The outcome of a world.
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
    /// The counters of the server's last incarnation.
    pub counts: RunCounts,
    /// What happened to its replicas.
    pub replicas: ReplicaCounts,
    /// Promises that were broken.
    pub violations: Vec<Violation>,
    /// Keys whose calls overlap in too many ways to be judged.
    pub undecided: u64,
    /// Keys of the history.
    pub keys: u64,
    /// Calls that showed something of a tree.
    pub looks: u64,
    /// The events, if the caller wants them.
    pub trace: Vec<String>,
}

impl World {
    /// Runs one seed's world to its end.
    pub fn run(swarm: Swarm, wants_trace: bool) -> Outcome {
        let sim = SimWorld::new(swarm.fabric_with_faults());
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
            moved: Cell::new(0),
            moved_trees: RefCell::default(),
            replicas: Replicas::default(),
            number: Cell::new(0),
            over: Cell::new(false),
            counts: Cell::default(),
        });
        world.begin_replicas();
        world.start_server(None);
        Coroutines::spawn(&sim, move || Node::run(&node));
        let mut clients = world.spawn_clients();
        clients.extend(RespClient::spawn_all(&world));
        clients.extend(ListClient::spawn_all(&world));
        clients.extend(crowd::spawn_all(&world));
        let (breaker, mut stoppable) = (Rc::clone(&world), clients.clone());
        stoppable.extend(ReplicaReader::spawn_all(&world));
        Coroutines::spawn(&sim, move || breaker.break_things(&stoppable));
        let ran = catch_unwind(AssertUnwindSafe(|| {
            world.drive(&clients);
            world.settle();
            world.tell();
            world.node.borrow_mut().close();
            Coroutines::forget_all();
            world.end_replicas();
            assert_eq!(Rc::strong_count(&world), 1, "all tasks are gone");
        }));
        if let Err(panic) = ran {
            Coroutines::abandon_all();
            let message = panic.downcast_ref::<String>().map(String::as_str);
            let message = message.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            world.history.borrow_mut().violate("nothing panics", message.to_owned());
        }
        sim.forget_all();
        world.judge()
    }

    /// The server begins, after one that is gone.
    fn start_server(&self, gone: Option<&Gone>) {
        self.node.borrow_mut().start();
        self.note_primary(gone);
        self.begin_resp();
    }

    fn begin_resp(&self) {
        let resp = self.swarm.resp;
        if resp.clients > 0 || self.swarm.lists.is_some() {
            self.resp.begin(&self.sim, &self.node, &self.faults, resp.read_ns);
        }
    }

    /// Adds the probes of the server's present incarnation.
    fn tell(&self) {
        self.node.borrow_mut().tell(&mut self.probes.borrow_mut());
        self.resp.tell(&mut self.probes.borrow_mut());
        let mut counts = self.node.borrow().ring_counts();
        self.resp.count(&mut counts);
        self.counts.set(counts);
    }

    fn spawn_clients(self: &Rc<Self>) -> Vec<u64> {
        let draw_base = || self.sim.draw(|random| random.within(&(1..=1 << 50)));
        let shared_base_ns = draw_base();
        // All clients of a world as the threads of one machine, or each alone.
        let coordination = match self.sim.draw(|random| random.below(4)) {
            0 => ConcurrencyLimit::With(Arc::new(Admission::at_most(1))),
            1 => ConcurrencyLimit::With(Arc::new(Admission::auto())),
            2 => ConcurrencyLimit::Auto,
            _ => ConcurrencyLimit::Off,
        };
        (0..self.swarm.clients)
            .map(|number| {
                let gains_ppm = self.swarm.client_gains_ppm[number as usize];
                let own = !self.swarm.shares_pointers;
                let base_ns = if own { draw_base() } else { shared_base_ns };
                let clock = HostClock::new(&self.sim, base_ns, gains_ppm);
                let options = Options {
                    wake: Wake::Event,
                    database: Database::of_bits(self.swarm.database_of(number).into()),
                    pointer_cache: match self.swarm.shares_pointers {
                        true => PointerCacheKind::Shared,
                        false => PointerCacheKind::Private,
                    },
                    pointer_cache_entries: self.swarm.cache_entries,
                    timeout: self.swarm.timeout,
                    policy: self.sim.draw(|random| {
                        Policy::ALL[random.below(Policy::ALL.len() as u64) as usize]
                    }),
                    concurrency_limit: coordination.clone(),
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
                // Pauses, stalls and timeouts that had begun, and a restart.
                calls_end_ns = Some(self.sim.now_ns() + 60_000 * MS);
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

    /// The task that causes the faults.
    fn break_things(self: &Rc<Self>, clients: &[u64]) {
        let task = Coroutines.current().expect("it runs as a task");
        while !self.is_over() || self.node.borrow().is_to_die() {
            self.faults.pause(&self.sim, task, 1..=self.swarm.chance_ns);
            if self.faults.strikes(Fault::ClientStall) {
                self.stop_one(clients);
            }
            if self.faults.strikes(Fault::SessionLost) {
                let draw = self.sim.draw(|random| random.number());
                self.node.borrow_mut().lose_any_session(draw);
            }
            if self.faults.strikes(Fault::RoleChange) {
                self.change_role();
            }
            self.break_replicas();
            let dies = self.node.borrow().dies_now();
            if self.faults.strikes(Fault::ServerCrash) || dies {
                let from_ns = self.sim.now_ns();
                self.tell();
                let gone = self.gone();
                let lose_links = self.node.borrow_mut().crash();
                self.resp.crash(&self.sim);
                if !self.node.borrow().has_disks() || self.swarm.replicas.is_some() {
                    self.history.borrow_mut().lists.begin_anew();
                }
                // On the client's host for as long as it is mapped there.
                let lingers_ns = self.sim.draw(|random| {
                    let most = [1, 600 * MS, 6_000 * MS][random.below(3) as usize];
                    random.below(most)
                });
                let world = Rc::clone(self);
                Coroutines::spawn(&self.sim, move || {
                    let task = Coroutines.current().expect("it runs");
                    world.faults.pause(&world.sim, task, lingers_ns..=lingers_ns);
                    lose_links();
                });
                let wait_ns = self.node.borrow().clock_takes_ns(Node::waits_ns());
                let down_ns = wait_ns + self.sim.draw(|random| random.below(50 * MS));
                self.faults.pause(&self.sim, task, down_ns..=down_ns);
                if self.promote(&gone) {
                    self.begin_resp();
                    continue;
                }
                let has_disks = self.node.borrow().has_disks();
                match (&self.swarm.replicas, has_disks) {
                    (None, _) => {}
                    (Some(_), true) => self.keep_replicas(),
                    (Some(_), false) => {
                        self.node.borrow_mut().forget_log();
                        self.restart_replicas();
                    }
                }
                self.start_server(Some(&gone));
                if !has_disks {
                    self.history.borrow_mut().clear_all(from_ns, self.sim.now_ns());
                }
            }
        }
    }

    /// The server's role changes, and changes back.
    fn change_role(&self) {
        let now_ns = self.sim.now_ns();
        self.history.borrow_mut().lists.role_changes_ns.push(now_ns);
        self.node.borrow_mut().give_up_waiting();
    }

    /// Stops one client for a while.
    fn stop_one(&self, clients: &[u64]) {
        let (stopped, for_ns) = self.sim.draw(|random| {
            let longest = [2 * MS, 500 * MS, 7_000 * MS][random.below(3) as usize];
            (random.below(clients.len() as u64) as usize, 1 + random.below(longest))
        });
        let stopped = clients[stopped];
        Coroutines::stop(stopped);
        self.sim.schedule(for_ns, move || Coroutines::go_on(stopped));
    }

    fn judge(&self) -> Outcome {
        let virtual_ns = self.sim.now_ns();
        let mut history = self.history.take();
        for error in &self.node.borrow().violations {
            let seen = format!("the server ended a session for what its client wrote: {error}");
            history.violate("nobody breaks the protocol", seen);
        }
        for misfit in std::mem::take(&mut self.node.borrow_mut().misfits) {
            history.violate("no slot is lost, and none is in two hands", misfit);
        }
        for (promise, seen) in self.broken_at_replicas() {
            history.violate(promise, seen);
        }
        for broken in self.node.borrow_mut().take_broken() {
            history.violate("what was durable is there after a crash, and nothing else", broken);
        }
        for removed in std::mem::take(&mut self.node.borrow_mut().removed) {
            let Removed { key, from_ns, to_ns } = removed;
            let tree_of = |(database, key): (Database, Vec<u8>)| {
                tree_named(&self.swarm.places, database.number(), &key)
            };
            match key.map(tree_of) {
                None => history.places.removed(None, (from_ns, to_ns)),
                Some(Some(tree)) => history.places.removed(Some(tree), (from_ns, to_ns)),
                Some(None) => {}
            }
        }
        let trace = history.trace.take().unwrap_or_default();
        let (operations, hash) = (history.calls, history.hash());
        let evicts = self.swarm.node.shard.eviction != Eviction::None;
        history.place_windows(|unix_ms| self.node.borrow().virtual_ns(unix_ms));
        let judgement = history.judge(Keys { evicts });
        let Judgement { violations, undecided, keys, looks, ordered } = judgement;
        self.probes.borrow_mut().add(Probe::ListOrdered, ordered);
        let (faults, probes) = (self.faults.struck(), self.probes.take());
        Outcome {
            operations,
            virtual_ns,
            faults,
            hash,
            probes,
            counts: self.counts.get(),
            replicas: self.replica_counts(),
            violations,
            undecided,
            keys,
            looks,
            trace,
        }
    }
}

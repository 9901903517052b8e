//! The operator of a world with replicas: what happens when a primary is gone, or a replica.
//!
//! Invariant, checked at each end of a primary: an acknowledged change lies in the memory of as many
//! replicas as was asked for, but for those that have died since, or get a copy.

use super::counts::ReplicaCounts;
use super::oracle::Oracle;
use super::server::{Gone, Order, Replica, ReplicaTask};
use crate::clock::HostClock;
use crate::faults::Fault;
use crate::tasks::Coroutines;
use crate::world::World;
use remora_layout::limits::SNAPSHOT_WAIT_S;
use remora_replica::AskFor;
use std::cell::RefCell;
use std::rc::Rc;

const MS: u64 = 1_000_000;
/// What a clock drifts at most, ppm.
const MOST_DRIFT_PPM: i64 = 100_000;
/// Longest wait for the workers of replicas to stop, ns: a stopped process goes on meanwhile.
const STOPS_NS: u64 = 20_000 * MS;
/// Longest time until the operator looks after a replica, ns.
const HELPS_NS: u64 = 3_000 * MS;
/// Longest time for replicas to get all that their primary has, ns: a copy may have to wait for what
/// a client has begun and left, and to begin anew.
const SETTLES_NS: u64 = 3 * SNAPSHOT_WAIT_S * 1_000 * MS;

impl World {
    /// Makes the replicas, and begins them.
    pub(crate) fn begin_replicas(self: &Rc<Self>) {
        let Some(swarm) = &self.swarm.replicas else { return };
        let oracle = Rc::new(RefCell::new(Oracle::new(self.swarm.node.shard)));
        self.node.borrow_mut().oracle = Some(Rc::clone(&oracle));
        *self.replicas.oracle.borrow_mut() = Some(Rc::clone(&oracle));
        for (at, &shards) in swarm.shards.iter().enumerate() {
            let base_ns = self.sim.draw(|random| random.within(&(1..=1 << 50)));
            let clock = HostClock::new(&self.sim, base_ns, swarm.gains_ppm[at]);
            let gains_ppm = self.swarm.node.clock_gains_ppm + swarm.clock_gains_ppm[at];
            let monotonic =
                HostClock::new(&self.sim, 0, gains_ppm.clamp(-MOST_DRIFT_PPM, MOST_DRIFT_PPM));
            let time = self.node.borrow().time().clone();
            let of = (shards, swarm.turn_ns, swarm.reads);
            let replica = Replica::new(&self.sim, time, (clock, monotonic), of);
            let place = ReplicaTask {
                replica: Rc::new(RefCell::new(replica)),
                node: Rc::clone(&self.node),
                oracle: Rc::clone(&oracle),
                faults: Rc::clone(&self.faults),
            };
            place.start();
            place.spawn();
            self.replicas.places.borrow_mut().push(place);
        }
    }

    /// The checker learns of a primary that has begun: with what its disk has of the one that is
    /// gone, or with nothing.
    pub(crate) fn note_primary(&self, gone: Option<&Gone>) {
        let node = self.node.borrow();
        if let (Some(oracle), Some(incarnation)) = (&*self.replicas.oracle.borrow(), node.present())
        {
            let mut oracle = oracle.borrow_mut();
            let before =
                gone.filter(|_| node.has_disks()).map(|of| (of.incarnation, node.kept().to_vec()));
            if let Some((of, kept)) = &before {
                oracle.keep(*of, kept);
            }
            oracle.begin(incarnation, node.shards(), before);
        }
    }

    /// Something may happen to a replica.
    pub(crate) fn break_replicas(self: &Rc<Self>) {
        let places = self.replicas.places.borrow();
        if places.is_empty() {
            return;
        }
        let any = || {
            let at = self.sim.draw(|random| random.below(places.len() as u64));
            &places[at as usize]
        };
        if self.faults.strikes(Fault::ReplicaStall) {
            let tasks = any().replica.borrow().tasks.clone();
            let (which, for_ns) = self.sim.draw(|random| {
                let longest = [2 * MS, 300 * MS, 3_000 * MS][random.below(3) as usize];
                (random.below(3) as usize, 1 + random.below(longest))
            });
            for task in tasks.into_iter().enumerate().filter(|(at, _)| *at != which).map(|of| of.1)
            {
                Coroutines::stop(task);
                self.sim.schedule(for_ns, move || Coroutines::go_on(task));
            }
        }
        if self.faults.strikes(Fault::ReplicaCrash) {
            let down_ns = self.sim.draw(|random| {
                let longest = [MS, 100 * MS, 2_000 * MS][random.below(3) as usize];
                random.below(longest)
            });
            self.restart_replica(any(), down_ns);
        }
        if self.faults.strikes(Fault::ReplicaResync) {
            let (place, counts) = (any().clone(), Rc::clone(&self.replicas.counts));
            Coroutines::spawn(&self.sim, move || {
                let did = place.resync();
                let anew_by_order = counts.get().anew_by_order + u64::from(did);
                counts.set(ReplicaCounts { anew_by_order, ..counts.get() });
            });
        }
    }

    /// The process of a replica dies, and a new one begins with nothing.
    fn restart_replica(&self, place: &ReplicaTask, down_ns: u64) {
        let node = self.node.borrow();
        let ends = node.shards().iter().map(|shard| shard.last_sequence()).collect();
        self.replicas
            .died
            .borrow_mut()
            .extend(node.present().map(|incarnation| (incarnation, ends)));
        drop(node);
        place.crash();
        self.start_replica(place, down_ns);
    }

    fn start_replica(&self, place: &ReplicaTask, in_ns: u64) {
        let place = place.clone();
        Coroutines::spawn(&self.sim, move || {
            place.pause(in_ns);
            place.start();
        });
    }

    /// The primary is about to die.
    pub(crate) fn gone(&self) -> Gone {
        let node = self.node.borrow();
        let incarnation = node.present().unwrap_or(0);
        Gone { incarnation, epoch: node.options().shard.epoch, logs: node.shards().len() }
    }

    /// The primary is gone, and the operator lets a replica take its place. False if there is none
    /// that can, or the primary has a disk: it comes back.
    pub(crate) fn promote(self: &Rc<Self>, gone: &Gone) -> bool {
        let places = self.replicas.places.borrow().clone();
        let min_replicas = self.swarm.node.min_replicas;
        if places.is_empty() || min_replicas == 0 {
            return false;
        }
        places.iter().for_each(ReplicaTask::stop);
        let until_ns = self.sim.now_ns() + STOPS_NS;
        while !places.iter().all(ReplicaTask::has_stopped) && self.sim.now_ns() < until_ns {
            places[0].pause(MS);
        }
        let positions: Vec<_> = places.iter().map(|place| place.positions(gone)).collect();
        self.check_holders(
            gone,
            &positions,
            "an acknowledged change is in the memory of enough replicas",
        );
        let mut counts = self.replicas.counts.get();
        if self.swarm.node.replica_acks == AskFor::Each {
            counts.strict += 1;
            let taken: Vec<_> = places.iter().map(|place| place.taken(gone)).collect();
            self.check_holders(
                gone,
                &taken,
                "a strict replica has taken what counts as stored there",
            );
        }
        let durable = self.oracle().borrow().durable(gone.incarnation);
        let has_all = |of: &Vec<u64>| of.iter().zip(&durable).all(|(has, wants)| has >= wants);
        let complete = (0..places.len())
            .filter(|&at| positions[at].as_ref().is_some_and(has_all))
            .max_by_key(|&at| positions[at].iter().flatten().sum::<u64>());
        let has_disk = self.node.borrow().has_disks();
        let wants = !has_disk && self.sim.draw(|random| random.below(4)) > 0;
        counts.split += u64::from(complete.is_none() && positions.iter().any(Option::is_some));
        counts.promotions += u64::from(wants && complete.is_some());
        self.replicas.counts.set(counts);
        if let Some(at) = complete.filter(|_| wants) {
            self.take_place(&places[at], gone);
        }
        let is_promoted = wants && complete.is_some();
        for place in &places {
            // The new primary's log is another one: a replica of the old one keeps what it has, until
            // it is told to follow the new one.
            let waits = !is_promoted || self.sim.draw(|random| random.below(4)) > 0;
            place.go_on(if waits { Order::GoOn } else { Order::Another });
            if is_promoted && waits {
                self.order_later(place, &[Order::Another]);
            }
        }
        is_promoted
    }

    fn oracle(&self) -> Rc<RefCell<Oracle>> {
        self.replicas.oracle.borrow().clone().expect("there are replicas")
    }

    /// Whether enough replicas have what was acknowledged.
    fn check_holders(&self, gone: &Gone, positions: &[Option<Vec<u64>>], promise: &'static str) {
        let durable = self.oracle().borrow().durable(gone.incarnation);
        let away = positions.iter().filter(|of| of.is_none()).count();
        for (log, &durable) in durable.iter().enumerate() {
            let died = self.replicas.died.borrow();
            let died = died.iter().filter(|(incarnation, ends)| {
                *incarnation == gone.incarnation && ends[log] >= durable
            });
            let wants = self.swarm.node.min_replicas.saturating_sub(away + died.count());
            let has = positions.iter().flatten().filter(|of| of[log] >= durable).count();
            if has < wants && durable > 0 {
                let seen = format!(
                    "entry {durable} of log {log} of {}: {has} replicas have it, of {wants}: {positions:?}",
                    gone.incarnation
                );
                self.history.borrow_mut().violate(promise, seen);
            }
        }
    }

    /// A replica becomes the primary, and its place gets a new one.
    fn take_place(&self, place: &ReplicaTask, gone: &Gone) {
        let (process, ends) = place.succeed();
        let oracle = self.oracle();
        process.compare(&mut oracle.borrow_mut());
        oracle.borrow_mut().forget(process.number);
        let (incarnation, mut node) = (process.number, self.node.borrow_mut());
        node.take_over((incarnation, process.began_ns), process.shards, process.journals);
        oracle.borrow_mut().begin(incarnation, node.shards(), Some((gone.incarnation, ends)));
        drop(node);
        let begins_ns = self.sim.draw(|random| random.below(100 * MS));
        self.start_replica(place, begins_ns);
    }

    /// The primary is about to come back with what its disk has: replicas find their place in its
    /// log. Those that cannot ask the operator for help.
    pub(crate) fn keep_replicas(&self) {
        let mut counts = self.replicas.counts.get();
        counts.restarts += 1;
        self.replicas.counts.set(counts);
        self.replicas.places.borrow().iter().for_each(|place| self.help_later(place));
    }

    /// The operator looks after a replica some time later.
    fn help_later(&self, place: &ReplicaTask) {
        let in_ns = self.sim.draw(|random| random.below(HELPS_NS));
        let (place, counts) = (place.clone(), Rc::clone(&self.replicas.counts));
        Coroutines::spawn(&self.sim, move || {
            place.pause(in_ns);
            if place.waits_for_order() {
                place.begin_anew(Order::Another);
                counts.set(ReplicaCounts { resyncs: counts.get().resyncs + 1, ..counts.get() });
            }
        });
    }

    /// The primary comes back with nothing: replicas keep what they have, until the operator
    /// restarts them.
    pub(crate) fn restart_replicas(&self) {
        let mut counts = self.replicas.counts.get();
        counts.anew += 1;
        self.replicas.counts.set(counts);
        for place in self.replicas.places.borrow().iter() {
            self.order_later(place, &[Order::GoOn, Order::Another, Order::Another]);
        }
    }

    /// The operator tells a replica one of these, some time later.
    fn order_later(&self, place: &ReplicaTask, orders: &[Order]) {
        let (in_ns, order) = self.sim.draw(|random| {
            let longest = [MS, 100 * MS, 2_000 * MS][random.below(3) as usize];
            let in_ns = random.below(longest);
            (in_ns, orders[random.below(orders.len() as u64) as usize])
        });
        let place = place.clone();
        Coroutines::spawn(&self.sim, move || {
            place.pause(in_ns);
            place.begin_anew(order);
        });
    }

    /// Nothing more goes wrong: all replicas have to get all that their primary has.
    pub(crate) fn settle(&self) {
        let until_ns = self.sim.now_ns() + SETTLES_NS;
        let places = self.replicas.places.borrow().clone();
        let is_settled = |place: &ReplicaTask| {
            let node = self.node.borrow();
            let last: Vec<_> = node.shards().iter().map(|shard| shard.last_sequence()).collect();
            let has_all = |incarnation| place.has_all_of(incarnation, &last) && place.is_fresh();
            node.present().is_some_and(has_all)
        };
        let mut helps_ns = self.sim.now_ns();
        while !places.iter().all(is_settled) {
            if self.sim.now_ns() >= helps_ns {
                helps_ns = self.sim.now_ns() + HELPS_NS;
                places.iter().for_each(|place| self.help_later(place));
            }
            if !self.sim.step(until_ns) {
                let stuck: Vec<_> = places.iter().filter(|of| !is_settled(of)).collect();
                let node = self.node.borrow();
                let had =
                    node.shards().iter().map(|of| (of.last_sequence(), of.durable_sequence()));
                let (had, incarnation): (Vec<_>, _) = (had.collect(), node.present());
                let (many, state) = (stuck.len(), stuck[0].state());
                let seen = format!(
                    "{many} replicas of {incarnation:?}, which has {had:?}, do not: {state}"
                );
                let promise = "without faults a replica gets all that its primary has";
                return self.history.borrow_mut().violate(promise, seen);
            }
        }
        for place in &places {
            place.compare_with(&self.node.borrow());
        }
    }

    /// What the checker has found.
    pub(crate) fn broken_at_replicas(&self) -> Vec<(&'static str, String)> {
        let oracle = self.replicas.oracle.borrow();
        oracle.as_ref().map_or(Vec::new(), |of| std::mem::take(&mut of.borrow_mut().broken))
    }

    /// What happened to the replicas.
    pub(crate) fn replica_counts(&self) -> ReplicaCounts {
        let mut counts = self.replicas.counts.get();
        if let Some(oracle) = &*self.replicas.oracle.borrow() {
            counts.compared = oracle.borrow().compared;
        }
        for place in self.replicas.places.borrow().iter() {
            counts += place.replica.borrow().counts();
        }
        counts
    }

    /// Forgets them, so that the world can end.
    pub(crate) fn end_replicas(&self) {
        self.replicas.counts.set(self.replica_counts());
        self.replicas.places.borrow_mut().clear();
    }
}

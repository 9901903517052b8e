//! A simulated client: the production library, which executes random operations and records their
//! results.

mod collections;
mod hashes;
mod key_links;
mod lists;
mod operations;
mod ordered;
mod places;
mod sets;
mod sorted;
mod submit;
mod views;

use crate::check::keys::KeyOp;
use crate::clock::HostClock;
use crate::history::Begun;
use crate::probes::Probe;
use crate::tasks::Coroutines;
use crate::values::{HashName, Register, decode};
use crate::world::World;
use remora_client_core::{Client, Error, Got, Options, Path, ServedBy, Session};
use remora_fabric::sim::Tasks;
use std::rc::Rc;
use views::{KeptLink, Views};

const MS: u64 = 1_000_000;

/// One client.
pub struct SimClient {
    number: u32,
    world: Rc<World>,
    clock: HostClock,
    options: Options,
    task: u64,
    views: Views,
    /// Links that it has read, at this server or at one before.
    links: Vec<KeptLink>,
}

/// Whether the effect of a call with this error is unknown.
fn is_open(error: Error) -> bool {
    error.is_final() || error == Error::TimedOut
}

/// Why a client left its session.
enum Left {
    Done,
    Ended(Error),
    /// To the next one of the connection, with requests under way.
    HandedOver,
}

impl SimClient {
    /// Begins a client's task.
    pub fn spawn(world: &Rc<World>, number: u32, clock: HostClock, options: Options) -> u64 {
        let inner = Rc::clone(world);
        Coroutines::spawn(&world.sim, move || {
            let task = Coroutines.current().expect("it runs");
            let views = Views::default();
            let links = Vec::new();
            SimClient { number, world: inner, clock, options, task, views, links }.run();
        })
    }

    fn draw(&self, below: u64) -> u64 {
        self.world.sim.draw(|random| random.below(below))
    }

    fn now_ns(&self) -> u64 {
        self.world.sim.now_ns()
    }

    fn pause(&self, ns: u64) {
        self.world.faults.pause(&self.world.sim, self.task, ns..=ns);
    }

    fn run(&mut self) {
        // Ends when the world has had its operations.
        while !self.world.is_over() {
            let parts = self.world.node.borrow_mut().connect(&self.clock);
            let Some(parts) = parts else {
                self.pause(5 * MS);
                continue;
            };
            let number = parts.hello.session.get();
            let client = Client::over(parts, &self.options).expect("no process forks here");
            if let Left::Ended(error) = self.use_client(&client) {
                self.world.ended(self.number, error);
            }
            drop(client);
            // The server hears of it some time later.
            let (world, hears_ns) = (Rc::clone(&self.world), self.draw(50 * MS));
            let unknown = std::mem::take(&mut self.views.unknown);
            Coroutines::spawn(&self.world.sim, move || {
                let task = Coroutines.current().expect("it runs");
                world.faults.pause(&world.sim, task, hears_ns..=hears_ns);
                world.node.borrow_mut().end_session(number);
                let (mut history, now_ns) = (world.history.borrow_mut(), world.sim.now_ns());
                unknown.into_iter().for_each(|act| history.places.bound(act, now_ns));
            });
            let backs_off_ns = 1 + self.draw(2 * MS);
            self.pause(backs_off_ns);
        }
    }

    /// One session after another on one connection.
    fn use_client(&mut self, client: &Client) -> Left {
        loop {
            let mut session = match client.session() {
                Ok(session) => session,
                Err(error) => return Left::Ended(error),
            };
            let left = self.use_session(&mut session);
            self.close_views();
            self.world.probes.borrow_mut().add_session(&session.totals());
            if !matches!(left, Left::HandedOver) {
                return left;
            }
        }
    }

    fn use_session(&mut self, session: &mut Session) -> Left {
        while !self.world.is_over() {
            if self.draw(1_000) < self.world.swarm.mix.hand_over {
                return match self.submit_only(session) {
                    Ok(()) => Left::HandedOver,
                    Err(Error::TimedOut) => {
                        self.world.timed_out(self.number);
                        Left::HandedOver
                    }
                    Err(error) => Left::Ended(error),
                };
            }
            match self.operate(session) {
                Ok(()) => {}
                // The outcome is unknown.
                Err(Error::TimedOut) => {
                    self.world.timed_out(self.number);
                    // The session's next requests wait for that reply too.
                    if self.world.node.borrow().is_to_die() && self.draw(2) == 0 {
                        return Left::HandedOver;
                    }
                }
                Err(error) => return Left::Ended(error),
            }
            if self.draw(100) < self.world.swarm.mix.think_percent {
                let thinks_ns = self.draw(self.world.swarm.mix.think_ns);
                self.pause(thinks_ns);
            }
        }
        Left::Done
    }

    fn operate(&mut self, session: &mut Session) -> Result<(), Error> {
        if let Some(links) = self.world.swarm.links
            && self.draw(100) < links.percent
        {
            return self.use_links(session, links);
        }
        if let Some(ordered) = self.world.swarm.ordered
            && self.draw(100) < ordered.percent
        {
            return self.use_ordered(session, ordered);
        }
        if let Some(sorted) = self.world.swarm.sorted
            && self.draw(100) < sorted.percent
        {
            return self.use_sorted(session, sorted);
        }
        if let Some(collections) = self.world.swarm.collections
            && self.draw(100) < collections.percent
        {
            return self.use_collection(session, collections);
        }
        let places = &self.world.swarm.places;
        if places.trees > 0 && self.draw(100) < places.percent {
            return self.use_tree(session);
        }
        let hashes = &self.world.swarm.hashes;
        if hashes.hashes > 0 && self.draw(100) < hashes.percent {
            return self.use_hash(session);
        }
        if let Some(lists) = &self.world.swarm.lists {
            match self.draw(100) {
                drawn if drawn < lists.sets_percent => return self.use_set(session),
                drawn if drawn < lists.sets_percent + lists.percent && self.database() == 0 => {
                    return self.use_list(session);
                }
                _ => {}
            }
        }
        let mix = self.world.swarm.mix;
        let weights = [
            mix.get,
            mix.get_batch,
            mix.set,
            mix.set_many,
            mix.del,
            mix.incr,
            mix.submit,
            mix.edit,
        ];
        let mut at = self.draw(weights.iter().sum());
        let chosen = weights.iter().position(|&weight| {
            let is_it = at < weight;
            at = at.saturating_sub(weight);
            is_it
        });
        match chosen {
            Some(0) => self.get(session),
            Some(1) => self.get_batch(session),
            Some(2) => self.set(session),
            Some(3) => self.set_many(session),
            Some(4) => self.del(session),
            Some(5) => self.incr(session),
            Some(6) => self.submit(session),
            _ => self.edit(session),
        }
    }

    /// A number below `count`: lower ones are more popular.
    fn popular(&self, count: u32) -> u32 {
        self.draw(1 + self.draw(count as u64)) as u32
    }

    fn key(&self) -> Register {
        let number = self.popular(self.world.swarm.keys);
        Register { database: self.database(), hash: None, number }
    }

    /// The database in which it works.
    fn database(&self) -> u8 {
        self.world.swarm.database_of(self.number)
    }

    fn path(&self) -> Path {
        [Path::Ask, Path::Read, Path::Choose][self.draw(3) as usize]
    }

    fn begin(&self, key: Register, op: KeyOp) -> Begun {
        self.begin_after(key, op, None)
    }

    /// Begins a call that takes effect after another of the same session.
    fn begin_after(&self, key: Register, op: KeyOp, follows: Option<Begun>) -> Begun {
        self.world.history.borrow_mut().begin(self.number, key, self.now_ns(), op, follows)
    }

    /// Whether so many calls of one of these keys have an unknown outcome that no more should come.
    fn are_unsettled(&self, keys: &[Register]) -> bool {
        let history = self.world.history.borrow();
        keys.iter().any(|&key| history.is_unsettled(key))
    }

    fn end(&self, begun: Begun, op: KeyOp) {
        self.world.history.borrow_mut().end(self.number, begun, self.now_ns(), op);
    }

    /// A call failed. If it was refused it had no effect, and the session
    /// lives on; if it timed out, it may have one yet.
    fn failed(&self, begun: Begun, error: Error) -> Result<(), Error> {
        if is_open(error) {
            return Err(error);
        }
        if !self.world.may_refuse(error) {
            let seen = format!("client {}: {error}", self.number);
            self.world.history.borrow_mut().violate("nothing is refused without a reason", seen);
        }
        self.world.history.borrow_mut().forget(self.number, begun, self.now_ns(), &error);
        Ok(())
    }

    /// A single read has come to its end.
    fn end_get(&self, begun: Begun, got: Result<Got<'_>, Error>) -> Result<(), Error> {
        match got {
            Ok(got) => {
                let after_all = got.served_by == ServedBy::AskedAfterRead;
                self.world.probes.borrow_mut().add(Probe::AskedAfterRead, after_all as u64);
                if got.value.is_some() {
                    let began_ns = self.world.history.borrow().began_ns(begun);
                    self.got_from(began_ns, got.served_by);
                }
                let found = self.number_of(begun.key, got.value);
                self.end(begun, KeyOp::Get { found });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    /// Something was found, in a call that began then.
    fn got_from(&self, began_ns: u64, via: ServedBy) {
        if self.world.node.borrow().had_failed(began_ns) {
            let probe = match via.is_read() {
                true => Probe::DiskFailedRead,
                false => Probe::DiskFailedAsked,
            };
            self.world.probes.borrow_mut().add(probe, 1);
        }
    }

    /// The number that was found in a register.
    fn number_of(&self, key: Register, value: Option<&[u8]>) -> Option<i64> {
        let value = value?;
        if let Some(HashName::Links(_)) = key.hash {
            return self.target_number(value);
        }
        let number = decode(key, value, self.world.swarm.lengths_of(key));
        if number.is_none() {
            let seen = format!("client {} read of {key}: {value:02x?}", self.number);
            let mut history = self.world.history.borrow_mut();
            history.violate("a value is one that was written to its key", seen);
        }
        number
    }
}

//! A simulated client: the production library, doing random operations and
//! writing down what it saw.

use crate::check::keys::{If, KeyOp, Value, Window};
use crate::clock::HostClock;
use crate::faults::Fault;
use crate::history::Begun;
use crate::probes::Probe;
use crate::tasks::Coroutines;
use crate::values::{decode, encode, key_bytes};
use crate::world::World;
use remora_client::{Client, Error, Options, Path, Session, SetOptions, Via};
use remora_engine::{Command, Condition, Expiry};
use remora_fabric::sim::Tasks;
use remora_layout::message::Status;
use std::collections::BTreeMap;
use std::rc::Rc;

const MS: u64 = 1_000_000;

/// Weights of what a client does, drawn by each seed.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Single GETs.
    pub get: u64,
    /// GETs of several keys at once.
    pub get_batch: u64,
    /// SETs, some conditional, some with an expiry.
    pub set: u64,
    /// SETs of several keys at once.
    pub set_many: u64,
    /// DELs.
    pub del: u64,
    /// INCRBYs.
    pub incr: u64,
    /// Runs of submitted requests.
    pub submit: u64,
    /// Most requests of such a run.
    pub most_submitted: u64,
    /// Times in which nothing is done.
    pub think: u64,
    /// How many of a hundred SETs carry an expiry.
    pub expiring_percent: u64,
    /// Longest time in which nothing is done, ns.
    pub think_ns: u64,
}

/// One client.
pub struct SimClient {
    number: u32,
    world: Rc<World>,
    clock: HostClock,
    options: Options,
    task: u64,
}

/// Why a client left its session.
enum Left {
    Done,
    Ended(Error),
}

impl SimClient {
    /// Begins a client's task.
    pub fn spawn(world: &Rc<World>, number: u32, clock: HostClock, options: Options) -> u64 {
        let inner = Rc::clone(world);
        Coroutines::spawn(&world.sim, move || {
            let task = Coroutines.current().expect("it runs");
            SimClient { number, world: inner, clock, options, task }.run();
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
            let mut session = client.session().expect("a fresh connection has room");
            if let Left::Ended(error) = self.use_session(&mut session) {
                self.world.ended(self.number, error);
            }
            self.world.probes.borrow_mut().add_session(&session.totals());
            drop(session);
            // The server hears of it some time later.
            let (world, hears_ns) = (Rc::clone(&self.world), self.draw(50 * MS));
            Coroutines::spawn(&self.world.sim, move || {
                let task = Coroutines.current().expect("it runs");
                world.faults.pause(&world.sim, task, hears_ns..=hears_ns);
                world.node.borrow_mut().end_session(number);
            });
            let backs_off_ns = 1 + self.draw(2 * MS);
            self.pause(backs_off_ns);
        }
    }

    fn use_session(&mut self, session: &mut Session) -> Left {
        while !self.world.is_over() {
            if self.world.faults.strikes(Fault::ClientStall) {
                let stalls_ns = self.draw(500 * MS);
                self.pause(stalls_ns);
            }
            if let Err(error) = self.operate(session) {
                return Left::Ended(error);
            }
        }
        Left::Done
    }

    fn operate(&mut self, session: &mut Session) -> Result<(), Error> {
        let mix = self.world.swarm.mix;
        let weights = [
            mix.get,
            mix.get_batch,
            mix.set,
            mix.set_many,
            mix.del,
            mix.incr,
            mix.submit,
            mix.think,
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
            _ => {
                let thinks_ns = self.draw(mix.think_ns);
                self.pause(thinks_ns);
                Ok(())
            }
        }
    }

    fn key(&self) -> u32 {
        // Two draws: lower numbers are more popular.
        let keys = self.world.swarm.keys as u64;
        self.draw(1 + self.draw(keys)) as u32
    }

    fn path(&self) -> Path {
        [Path::Ask, Path::Read, Path::Choose][self.draw(3) as usize]
    }

    fn begin(&self, key: u32, op: KeyOp) -> Begun {
        self.begin_after(key, op, None)
    }

    /// Begins a call that takes effect after another of the same session.
    fn begin_after(&self, key: u32, op: KeyOp, follows: Option<Begun>) -> Begun {
        self.world.history.borrow_mut().begin(self.number, key, self.now_ns(), op, follows)
    }

    fn end(&self, begun: Begun, op: KeyOp) {
        self.world.history.borrow_mut().end(self.number, begun, self.now_ns(), op);
    }

    /// A call failed. If it was refused it had no effect, and the session
    /// lives on.
    fn failed(&self, begun: Begun, error: Error) -> Result<(), Error> {
        if error.is_final() {
            return Err(error);
        }
        if !self.world.may_refuse(error) {
            let seen = format!("client {}: {error}", self.number);
            self.world.history.borrow_mut().violate("nothing is refused without a reason", seen);
        }
        self.world.history.borrow_mut().forget(self.number, begun, self.now_ns(), &error);
        Ok(())
    }

    /// The number that was found under a key.
    fn number_of(&self, key: u32, value: Option<&[u8]>) -> Option<i64> {
        let value = value?;
        let number = decode(key, value, self.world.swarm.value_bytes);
        if number.is_none() {
            let seen = format!("client {} read of key {key}: {value:02x?}", self.number);
            let mut history = self.world.history.borrow_mut();
            history.violate("a value is one that was written to its key", seen);
        }
        number
    }

    fn get(&mut self, session: &mut Session) -> Result<(), Error> {
        let (key, path) = (self.key(), self.path());
        self.get_after(session, key, path, None)
    }

    fn get_after(
        &mut self,
        session: &mut Session,
        key: u32,
        path: Path,
        follows: Option<Begun>,
    ) -> Result<(), Error> {
        let begun = self.begin_after(key, KeyOp::Nothing, follows);
        match session.get(&key_bytes(key), path) {
            Ok(got) => {
                let after_all = got.via == Via::AskedAfterRead;
                self.world.probes.borrow_mut().add(Probe::AskedAfterRead, after_all as u64);
                let found = self.number_of(key, got.value);
                self.end(begun, KeyOp::Get { found });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    fn get_batch(&mut self, session: &mut Session) -> Result<(), Error> {
        let count = 1 + self.draw(6);
        let keys: Vec<u32> = (0..count).map(|_| self.key()).collect();
        let names: Vec<Vec<u8>> = keys.iter().map(|&key| key_bytes(key)).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let begun: Vec<Begun> = keys.iter().map(|&key| self.begin(key, KeyOp::Nothing)).collect();
        let path = self.path();
        let mut found = vec![None; keys.len()];
        let result = session.get_batch(&names, path, &mut |index, value, _| {
            found[index] = Some(value.map(<[u8]>::to_vec));
        });
        let mut failed = result.err();
        for (at, found) in found.into_iter().enumerate() {
            match found {
                Some(value) => {
                    let found = self.number_of(keys[at], value.as_deref());
                    self.end(begun[at], KeyOp::Get { found });
                }
                None => match failed {
                    Some(error) if error.is_final() => {}
                    Some(error) => self.failed(begun[at], error)?,
                    None => {
                        let seen = format!("key {} of a batch was left out", keys[at]);
                        self.world.history.borrow_mut().violate("a batch answers every key", seen);
                    }
                },
            }
        }
        match failed.take_if(|error| error.is_final()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// A value that was never written before, and how it is written.
    fn new_value(&self) -> (i64, SetOptions, Option<Window>) {
        let number = self.world.next_number();
        let condition = match self.draw(6) {
            0 => Condition::IfAbsent,
            1 => Condition::IfPresent,
            _ => Condition::Always,
        };
        let expires = self.draw(100) < self.world.swarm.mix.expiring_percent;
        let at_ms = self.world.node.borrow().unix_ms() + 1 + self.draw(2_000);
        let expiry = if expires { Expiry::At(at_ms) } else { Expiry::Never };
        let window = expires.then(|| self.window(at_ms));
        (number, SetOptions { condition, expiry }, window)
    }

    /// When a key disappears that expires at this time of the server's clock:
    /// a tick of a millisecond either way.
    fn window(&self, at_ms: u64) -> Window {
        let at_ns = self.world.node.borrow().virtual_ns(at_ms);
        Window { from_ns: at_ns.saturating_sub(2 * MS), by_ns: at_ns + 2 * MS }
    }

    fn set(&mut self, session: &mut Session) -> Result<(), Error> {
        let key = self.key();
        let (number, options, expiry) = self.new_value();
        let condition = match options.condition {
            Condition::IfAbsent => If::Absent,
            Condition::IfPresent => If::Present,
            Condition::Always => If::Always,
        };
        let bytes = encode(key, number, self.world.swarm.value_bytes);
        let value = Value { number, expiry };
        let begun = self.begin(key, KeyOp::Set { value, condition, done: None });
        match session.set(&key_bytes(key), &bytes, options) {
            Ok(done) => {
                self.end(begun, KeyOp::Set { value, condition, done: Some(done) });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    fn set_many(&mut self, session: &mut Session) -> Result<(), Error> {
        let count = 1 + self.draw(5);
        let mut keys: Vec<u32> = (0..count).map(|_| self.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        let plain = |number| KeyOp::Set {
            value: Value { number, expiry: None },
            condition: If::Always,
            done: None,
        };
        let numbers: Vec<i64> = keys.iter().map(|_| self.world.next_number()).collect();
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = keys
            .iter()
            .zip(&numbers)
            .map(|(&key, &number)| {
                (key_bytes(key), encode(key, number, self.world.swarm.value_bytes))
            })
            .collect();
        let begun: Vec<Begun> = keys
            .iter()
            .zip(&numbers)
            .map(|(&key, &number)| self.begin(key, plain(number)))
            .collect();
        let pairs: Vec<(&[u8], &[u8])> =
            pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
        match session.set_many(&pairs) {
            Ok(()) => {
                for (&begun, &number) in begun.iter().zip(&numbers) {
                    self.end(begun, plain(number));
                }
                Ok(())
            }
            // Some may have been set.
            Err(error) if !error.is_final() && self.world.may_refuse(error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn del(&mut self, session: &mut Session) -> Result<(), Error> {
        let key = self.key();
        let begun = self.begin(key, KeyOp::Del { removed: None });
        match session.del(&key_bytes(key)) {
            Ok(removed) => {
                self.end(begun, KeyOp::Del { removed: Some(removed) });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    fn incr(&mut self, session: &mut Session) -> Result<(), Error> {
        let key = self.key() | 1;
        let by = 1 + self.draw(9) as i64;
        let begun = self.begin(key, KeyOp::Incr { by, sum: None });
        match session.incr(&key_bytes(key), by) {
            Ok(sum) => {
                self.end(begun, KeyOp::Incr { by, sum: Some(sum) });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    /// Several requests at once; a read of one of the keys in between must
    /// see this session's own write.
    fn submit(&mut self, session: &mut Session) -> Result<(), Error> {
        // Calls of one key that overlap are what makes judging slow.
        let keys = self.world.swarm.keys as u64;
        let most = (2 * keys).clamp(3, self.world.swarm.mix.most_submitted.max(3));
        let count = 1 + self.draw(most);
        let mut under_way = Vec::new();
        let mut last: BTreeMap<u32, Begun> = BTreeMap::new();
        let mut last_set: BTreeMap<u32, Begun> = BTreeMap::new();
        for _ in 0..count {
            let key = self.key();
            let name = key_bytes(key);
            let is_get = self.draw(2) == 0;
            let number = self.world.next_number();
            let value = encode(key, number, self.world.swarm.value_bytes);
            let set = KeyOp::Set {
                value: Value { number, expiry: None },
                condition: If::Always,
                done: None,
            };
            let op = if is_get { KeyOp::Nothing } else { set };
            let begun = self.begin_after(key, op, last.get(&key).copied());
            last.insert(key, begun);
            if !is_get {
                last_set.insert(key, begun);
            }
            let command = if is_get {
                Command::Get { key: &name }
            } else {
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                Command::Set { key: &name, value: &value, condition, expiry, get: false }
            };
            let ticket = session.submit(&command)?;
            under_way.push((ticket, key, begun, if is_get { None } else { Some(set) }));
        }
        if self.draw(3) == 0 {
            let (key, path) = (self.key(), self.path());
            // It may overtake a GET, but no write.
            self.get_after(session, key, path, last_set.get(&key).copied())?;
        }
        for (ticket, key, begun, set) in under_way {
            let mut answer = None;
            session.next_reply(&mut |found, reply| {
                answer = Some((found, reply.status, reply.value.map(<[u8]>::to_vec)));
            })?;
            let Some((found, status, value)) = answer else {
                let seen = format!("client {}: no reply to {ticket:?}", self.number);
                self.world.history.borrow_mut().violate("every request is answered", seen);
                continue;
            };
            if found != ticket {
                let seen = format!("client {}: {found:?} instead of {ticket:?}", self.number);
                self.world.history.borrow_mut().violate("replies come in order", seen);
            }
            match (status, set) {
                (Status::Ok | Status::NotFound, None) => {
                    let found = self.number_of(key, value.as_deref());
                    self.end(begun, KeyOp::Get { found });
                }
                (Status::Ok, Some(set)) => self.end(begun, set),
                (refused, _) => self.failed(begun, Error::Refused(refused))?,
            }
        }
        Ok(())
    }
}

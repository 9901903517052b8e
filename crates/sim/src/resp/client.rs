//! A simulated RESP client: pipelines of requests, and their replies.

use super::moves::{Mover, Moves};
use super::replies::{Came, SentRequest};
use super::requests::{Expect, Maker, Request};
use super::stream::{ClientEnd, Ended, StreamOptions};
use super::tree_moves::TreeMoves;
use crate::check::keys::KeyOp;
use crate::faults::Fault;
use crate::history::Begun;
use crate::probes::Probe;
use crate::tasks::Coroutines;
use crate::values::Register;
use crate::world::World;
use remora_client_core::Error;
use remora_fabric::sim::Tasks;
use remora_protocol::message::Status;
use remora_resp::wire::{ParsedValue, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

const MS: u64 = 1_000_000;

/// One client.
pub struct RespClient {
    number: u32,
    world: Rc<World>,
    maker: Maker,
    /// If it is the one that moves hashes, or trees.
    moves: Option<RefCell<Box<dyn Mover>>>,
    task: u64,
}

/// One connection of a client.
struct Pipeline {
    stream: ClientEnd,
    /// Bytes that have come and are no whole reply yet.
    input: Vec<u8>,
    asked: VecDeque<SentRequest>,
    /// The last call of each key: the next takes effect after it.
    last: BTreeMap<Register, Begun>,
}

impl RespClient {
    /// Begins the tasks of all RESP clients that the seed drew.
    pub fn spawn_all(world: &Rc<World>) -> Vec<u64> {
        let from = world.swarm.clients;
        let numbers = from..from + world.swarm.resp.clients;
        numbers.map(|number| Self::spawn(world, number)).collect()
    }

    fn spawn(world: &Rc<World>, number: u32) -> u64 {
        let inner = Rc::clone(world);
        Coroutines::spawn(&world.sim, move || {
            let task = Coroutines.current().expect("it runs");
            let database = inner.swarm.database_of(number);
            let maker = Maker { world: Rc::clone(&inner), database };
            let swarm = &inner.swarm;
            let is_last = number + 1 == swarm.clients + swarm.resp.clients;
            let moves: Option<Box<dyn Mover>> = match is_last {
                true if swarm.hashes.moves => Some(Box::<Moves>::default()),
                true if swarm.places.moves => Some(Box::<TreeMoves>::default()),
                _ => None,
            };
            let moves = moves.map(RefCell::new);
            Self { number, world: inner, maker, moves, task }.run();
        })
    }

    fn draw(&self, below: u64) -> u64 {
        self.world.sim.draw(|random| random.below(below))
    }

    fn with_moves(&self, act: impl FnOnce(&mut dyn Mover)) {
        if let Some(moves) = &self.moves {
            act(&mut **moves.borrow_mut());
        }
    }

    fn pause(&self, ns: u64) {
        self.world.faults.pause(&self.world.sim, self.task, ns..=ns);
    }

    fn violate(&self, promise: &'static str, what: &str) {
        let seen = format!("client {}, over RESP: {what}", self.number);
        self.world.history.borrow_mut().violate(promise, seen);
    }

    fn run(&self) {
        let swarm = self.world.swarm.resp;
        let options = StreamOptions { most_ns: swarm.most_ns, bytes: swarm.stream_bytes };
        while !self.world.is_over() {
            if let Some(stream) = self.world.resp.connect(&self.world.sim, options) {
                self.use_stream(stream);
            }
            self.pause(1 + self.draw([1, 5 * MS][self.draw(2) as usize]));
        }
    }

    fn use_stream(&self, stream: ClientEnd) {
        let (input, asked) = (Vec::new(), VecDeque::new());
        let last = BTreeMap::new();
        let mut pipeline = Pipeline { stream, input, asked, last };
        let incarnation = self.world.node.borrow().incarnation();
        self.with_moves(|moves| moves.note_connection(&self.maker, incarnation));
        let Err(ended) = self.operate(&mut pipeline) else { return };
        self.with_moves(|moves| moves.begin_anew(&self.maker));
        self.world.probes.borrow_mut().add(Probe::RespLost, pipeline.asked.len() as u64);
        if ended == Ended::Closed && !pipeline.asked.is_empty() {
            self.violate("every request is answered", "the server closed the connection");
        }
        for (begun, _) in pipeline.asked.iter().flat_map(|asked| &asked.calls) {
            self.world.history.borrow_mut().follow_nobody(*begun);
        }
    }

    fn operate(&self, pipeline: &mut Pipeline) -> Result<(), Ended> {
        // Overlapping calls of one key make judging slow.
        let keys = self.world.swarm.keys as u64;
        let most = match self.moves {
            None => (2 * keys).clamp(3, self.world.swarm.resp.most_under_way.max(3)),
            Some(_) => 1,
        };
        if self.draw(2) == 0 {
            self.send(pipeline, self.maker.hello());
        }
        if self.world.swarm.databases > 1 {
            self.send(pipeline, self.maker.select(self.maker.database));
        }
        let bursts = 1 + self.draw([4, 400][self.draw(2) as usize]);
        for _ in 0..bursts {
            if self.world.is_over() {
                break;
            }
            if self.world.faults.strikes(Fault::RespLost) {
                let (stream, hears_ns) = (pipeline.stream.clone(), self.draw(5 * MS));
                let breaks_ns = self.draw(MS);
                self.world.sim.schedule(breaks_ns, move || stream.break_off(hears_ns));
            }
            let mix = self.world.swarm.mix;
            if self.draw(100) < mix.think_percent {
                self.pause(self.draw(mix.think_ns));
            }
            self.ask(pipeline, 1 + self.draw(most));
            self.take(pipeline, self.draw(most) as usize)?;
        }
        self.leave(pipeline)
    }

    /// A client may close its side and take the last replies, take them and leave, or ignore them.
    fn leave(&self, pipeline: &mut Pipeline) -> Result<(), Ended> {
        match self.draw(6) {
            0 if !self.world.is_over() => self.give_up(pipeline),
            1 | 2 => {
                self.take(pipeline, 0)?;
                pipeline.stream.break_off(0);
                Ok(())
            }
            _ => {
                pipeline.stream.close();
                self.take(pipeline, 0)
            }
        }
    }

    fn give_up(&self, pipeline: &Pipeline) -> Result<(), Ended> {
        pipeline.stream.break_off(self.draw(MS));
        Err(Ended::Broken)
    }

    fn send(&self, pipeline: &mut Pipeline, request: Request) {
        let mut bytes = Vec::new();
        self.begin(pipeline, request, &mut bytes);
        pipeline.stream.send(&bytes);
    }

    /// Sends this many requests at once.
    fn ask(&self, pipeline: &mut Pipeline, count: u64) {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let moved = self.moves.as_ref().map(|moves| moves.borrow_mut().next(&self.maker));
            self.begin(pipeline, moved.unwrap_or_else(|| self.maker.next()), &mut bytes);
        }
        pipeline.stream.send(&bytes);
    }

    fn begin(&self, pipeline: &mut Pipeline, request: Request, bytes: &mut Vec<u8>) {
        let Request { words, expect, ops, expiry, clears, mut acts } = request;
        bytes.extend(format!("*{}\r\n", words.len()).into_bytes());
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        let asked_ms = self.world.node.borrow().unix_ms();
        let mut history = self.world.history.borrow_mut();
        let now_ns = self.world.sim.now_ns();
        let calls = ops.iter().map(|&(key, op)| (key, op, pipeline.last.get(&key).copied()));
        let begun = history.begin_all(self.number, now_ns, calls);
        pipeline.last.extend(begun.iter().map(|&begun| (begun.key, begun)));
        let calls = begun.into_iter().zip(ops).map(|(begun, (_, op))| (begun, op)).collect();
        let flushes_lists = clears.contains(&0);
        let trees = clears.flat_map(|database| self.world.swarm.places.trees_of(database));
        acts.extend(trees.map(|tree| history.places.clear(Some(tree), now_ns)));
        let flush = flushes_lists.then(|| history.lists.begin_flush(now_ns));
        drop(history);
        pipeline.asked.push_back(SentRequest { expect, calls, expiry, acts, flush, asked_ms });
    }

    /// Takes replies until no more than `keep` requests are under way.
    fn take(&self, pipeline: &mut Pipeline, keep: usize) -> Result<(), Ended> {
        let mut need = 1;
        while pipeline.asked.len() > keep {
            if pipeline.input.len() < need {
                let had = pipeline.input.len();
                pipeline.stream.take(&mut pipeline.input)?;
                if pipeline.input.len() == had && !self.wait(pipeline) {
                    return self.give_up(pipeline);
                }
                continue;
            }
            need = 1;
            let consumed = match Value::parse(&pipeline.input) {
                Ok(ParsedValue::Incomplete { need: more }) => {
                    need = more.max(pipeline.input.len() + 1);
                    continue;
                }
                Ok(ParsedValue::Value { value, consumed }) => {
                    let asked = pipeline.asked.pop_front().expect("more than none");
                    self.end(&asked, &value);
                    consumed
                }
                Err(error) => {
                    self.violate("nobody breaks the protocol", &error.to_string());
                    return Err(Ended::Broken);
                }
            };
            pipeline.input.drain(..consumed);
        }
        Ok(())
    }

    /// Waits until something has come. False if it took too long.
    fn wait(&self, pipeline: &Pipeline) -> bool {
        let timeout_ns = self.world.swarm.resp.timeout_ns;
        let until_ns = self.world.sim.now_ns().saturating_add(timeout_ns);
        pipeline.stream.set_waiting(Some(self.task));
        self.world.sim.suspend_until(self.task, until_ns);
        pipeline.stream.set_waiting(None);
        // At the end each client waits for its replies, which must come.
        self.world.sim.now_ns() < until_ns || self.world.is_over()
    }

    fn end(&self, asked: &SentRequest, reply: &Value<'_>) {
        let came = asked.judge(&self.world, reply);
        self.with_moves(|moves| moves.answered(&self.maker, matches!(came, Came::Of(_))));
        let now_ns = self.world.sim.now_ns();
        match came {
            Came::Of(ops) => {
                let mut history = self.world.history.borrow_mut();
                asked.acts.iter().for_each(|&act| history.places.done(act, now_ns));
                asked.flush.iter().for_each(|&flush| history.lists.end_flush(flush, now_ns));
                for (&(begun, _), op) in asked.calls.iter().zip(ops) {
                    history.end(self.number, begun, now_ns, op);
                }
            }
            Came::Refused(status) => {
                let error = Error::Refused(status);
                let is_given_up = status == Status::TryAgain && asked.may_be_given_up(&self.world);
                if !self.world.may_refuse(error) && !is_given_up {
                    let what = format!("{error} to {:?} {:?}", asked.expect, asked.calls);
                    self.violate("nothing is refused without a reason", &what);
                }
                let mut history = self.world.history.borrow_mut();
                for &act in &asked.acts {
                    match status {
                        // One shard may have kept it before another one could not.
                        Status::NotKept | Status::TooFewReplicas => {
                            history.places.bound(act, now_ns)
                        }
                        _ => history.places.refused(act),
                    }
                }
                for &(begun, op) in &asked.calls {
                    match op {
                        // Of several shards some may have had room.
                        KeyOp::Set { .. } if asked.expect == Expect::Ok => {
                            history.may_have_had_effect(begun);
                        }
                        _ if asked.calls.len() > 1 => history.may_have_had_effect(begun),
                        _ => history.forget(self.number, begun, now_ns, &error),
                    }
                }
            }
            Came::Wrong => {
                let what = format!("{reply:?} to {:?} {:?}", asked.expect, asked.calls);
                self.violate("a reply is one to its request, with values of its keys", &what);
            }
        }
    }
}

//! Simulated RESP clients that use lists: many of their requests wait.

use super::stream::{ClientEnd, Ended, StreamOptions};
use crate::check::keys::Window;
use crate::check::lists::{End, ListOp};
use crate::faults::Fault;
use crate::lists::{ListBegun, ListKey, Unblock};
use crate::probes::Probe;
use crate::tasks::Coroutines;
use crate::world::World;
use remora_client_core::Error;
use remora_fabric::sim::Tasks;
use remora_protocol::message::Status;
use remora_resp::wire::{ParsedValue, Value};
use std::rc::Rc;

const MS: u64 = 1_000_000;
/// Longest time between two looks of a client that waits, ns.
const LOOK_NS: u64 = 2 * MS;
/// Between two deaths of clients that wait.
const LEAVES_ONCE_IN: u64 = 15;

/// One client.
pub struct ListClient {
    number: u32,
    world: Rc<World>,
    task: u64,
}

/// One connection, with one request under way.
struct Connection {
    stream: ClientEnd,
    input: Vec<u8>,
    /// The server's incarnation, and the connection's number.
    name: (u64, u64),
}

/// What a request does, and so what its reply means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Push {
        end: End,
    },
    Pop {
        end: End,
    },
    PopMany {
        end: End,
    },
    /// BLPOP and BRPOP.
    Wait {
        end: End,
    },
    /// BLMPOP.
    WaitMany {
        end: End,
    },
    /// LMOVE and BLMOVE, to this end.
    Move {
        from: End,
        to: End,
    },
    Range,
    Insert,
    Remove,
    Del,
    Expire {
        ms: u64,
    },
}

/// A request.
struct Request {
    words: Vec<Vec<u8>>,
    kind: Kind,
    /// Its operations, as far as they are known before the reply.
    ops: Vec<(ListKey, ListOp)>,
    /// How long it waits, ms; 0: without end.
    waits_ms: Option<u64>,
}

/// A request under way.
struct Asked {
    kind: Kind,
    calls: Vec<(ListBegun, ListOp)>,
    waits_ms: Option<u64>,
    sent_ns: u64,
    sent_unix_ms: u64,
    has_parked: bool,
}

fn word(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn letter(end: End) -> &'static str {
    if end == End::Left { "L" } else { "R" }
}

fn name(end: End) -> Vec<u8> {
    word(if end == End::Left { "LEFT" } else { "RIGHT" })
}

impl ListClient {
    /// Begins the tasks of all that the seed drew.
    pub fn spawn_all(world: &Rc<World>) -> Vec<u64> {
        let Some(lists) = &world.swarm.lists else { return Vec::new() };
        let from = world.swarm.clients + world.swarm.resp.clients;
        let spawn = |number| {
            let inner = Rc::clone(world);
            Coroutines::spawn(&world.sim, move || {
                let task = Coroutines.current().expect("it runs");
                Self { number, world: inner, task }.run();
            })
        };
        (from..from + lists.clients).map(spawn).collect()
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

    fn violate(&self, promise: &'static str, what: &str) {
        let seen = format!("client {}, of lists: {what}", self.number);
        self.world.history.borrow_mut().violate(promise, seen);
    }

    fn run(&self) {
        let swarm = self.world.swarm.resp;
        let options = StreamOptions { most_ns: swarm.most_ns, bytes: swarm.stream_bytes };
        while !self.world.is_over() {
            if let Some(stream) = self.world.resp.connect(&self.world.sim, options) {
                let incarnation = self.world.node.borrow().incarnation();
                let name = (incarnation, u64::MAX);
                let mut connection = Connection { stream, input: Vec::new(), name };
                if self.operate(&mut connection).is_ok() {
                    connection.stream.close();
                }
                self.world.history.borrow_mut().lists.connections.remove(&self.number);
            }
            self.pause(1 + self.draw(5 * MS));
        }
    }

    fn operate(&self, connection: &mut Connection) -> Result<(), Ended> {
        self.send(connection, &[word("CLIENT"), word("ID")]);
        match self.reply(connection, u64::MAX)? {
            Some(Reply::Integer(serial)) => connection.name.1 = serial as u64,
            reply => {
                self.violate("a reply is one to its request", &format!("{reply:?} to CLIENT ID"));
                return Err(Ended::Broken);
            }
        }
        let mut history = self.world.history.borrow_mut();
        history.lists.connections.insert(self.number, connection.name);
        drop(history);
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        while !self.world.is_over() {
            if self.draw(3) == 0 {
                self.pause(self.draw(lists.think_ns));
            }
            match self.draw(20) {
                0 => self.unblock(connection)?,
                _ => self.ask(connection)?,
            }
        }
        self.look_at_all(connection)
    }

    /// What clients left in the lists.
    fn look_at_all(&self, connection: &mut Connection) -> Result<(), Ended> {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        let generation = self.world.history.borrow_mut().lists.generation(lists.keys);
        for number in 0..lists.keys {
            self.execute(connection, Self::range(ListKey { generation, number }))?;
        }
        Ok(())
    }

    fn key(&self) -> ListKey {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        let generation = self.world.history.borrow_mut().lists.generation(lists.keys);
        ListKey { generation, number: self.draw(lists.keys as u64) as u8 }
    }

    /// Some keys of one generation, each once, in any order.
    fn keys(&self) -> Vec<ListKey> {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        let first = self.key();
        let mut keys = vec![first];
        for _ in 0..[0, 0, 1, 3][self.draw(4) as usize] {
            let key = ListKey { number: self.draw(lists.keys as u64) as u8, ..first };
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    fn end(&self) -> End {
        [End::Left, End::Right][self.draw(2) as usize]
    }

    fn ask(&self, connection: &mut Connection) -> Result<(), Ended> {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        let request = match self.draw(100) {
            waits if waits < lists.waits_percent => match self.draw(10) {
                0..6 => self.wait(),
                6 | 7 => self.wait_many(),
                _ => self.go(true),
            },
            _ => match self.draw(100) {
                0..35 => self.push(),
                35..60 => self.pop(),
                60..70 => self.go(false),
                70..82 => Self::range(self.key()),
                82..86 => self.insert(),
                86..91 => self.remove(),
                91..95 => self.expire(),
                _ => {
                    let key = self.key();
                    let ops = vec![(key, ListOp::Del { done: None })];
                    let words = vec![word("DEL"), key.name()];
                    Request { words, kind: Kind::Del, ops, waits_ms: None }
                }
            },
        };
        self.execute(connection, request)
    }

    fn element(&self) -> (i64, Vec<u8>) {
        let number = self.world.next_number();
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        (number, lists.element(number))
    }

    /// An element that may be there.
    fn known_element(&self) -> i64 {
        let next = self.world.number.get().max(1) as u64;
        let number = next.saturating_sub(self.draw(next.min(12)));
        1_000_000 * number as i64
    }

    fn push(&self) -> Request {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        let (key, end) = (self.key(), self.end());
        let mut words = vec![word(&format!("{}PUSH", letter(end))), key.name()];
        let mut items = Vec::new();
        for _ in 0..1 + self.draw(lists.most_pushed) {
            let (number, bytes) = self.element();
            items.push(number);
            words.push(bytes);
        }
        let ops = vec![(key, ListOp::Push { end, items, length: None })];
        Request { words, kind: Kind::Push { end }, ops, waits_ms: None }
    }

    fn pop(&self) -> Request {
        let (key, end) = (self.key(), self.end());
        let mut words = vec![word(&format!("{}POP", letter(end))), key.name()];
        let is_many = self.draw(3) == 0;
        let count = if is_many { 1 + self.draw(12) } else { 1 };
        words.extend(is_many.then(|| word(&count.to_string())));
        let kind = if is_many { Kind::PopMany { end } } else { Kind::Pop { end } };
        let ops = vec![(key, ListOp::PopAny { end, count: count as usize })];
        Request { words, kind, ops, waits_ms: None }
    }

    fn waits_ms(&self) -> u64 {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        if self.draw(4) == 0 { 0 } else { 1 + self.draw(lists.waits_ms) }
    }

    fn seconds(waits_ms: u64) -> Vec<u8> {
        word(&format!("{}.{:03}", waits_ms / 1_000, waits_ms % 1_000))
    }

    fn wait(&self) -> Request {
        let (keys, end, waits_ms) = (self.keys(), self.end(), self.waits_ms());
        let mut words = vec![word(&format!("B{}POP", letter(end)))];
        words.extend(keys.iter().map(|key| key.name()));
        words.push(Self::seconds(waits_ms));
        let ops = keys.into_iter().map(|key| (key, ListOp::PopAny { end, count: 1 })).collect();
        Request { words, kind: Kind::Wait { end }, ops, waits_ms: Some(waits_ms) }
    }

    fn wait_many(&self) -> Request {
        let (keys, end, waits_ms) = (self.keys(), self.end(), self.waits_ms());
        let count = 1 + self.draw(3);
        let mut words = vec![word("BLMPOP"), Self::seconds(waits_ms)];
        words.push(word(&keys.len().to_string()));
        words.extend(keys.iter().map(|key| key.name()));
        words.extend([name(end), word("COUNT"), word(&count.to_string())]);
        let op = ListOp::PopAny { end, count: count as usize };
        let ops = keys.into_iter().map(|key| (key, op.clone())).collect();
        Request { words, kind: Kind::WaitMany { end }, ops, waits_ms: Some(waits_ms) }
    }

    /// A move to another list.
    fn go(&self, may_wait: bool) -> Request {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        if lists.keys < 2 {
            return if may_wait { self.wait() } else { self.pop() };
        }
        let (source, from, to) = (self.key(), self.end(), self.end());
        let further = 1 + self.draw(lists.keys as u64 - 1) as u8;
        let target = ListKey { number: (source.number + further) % lists.keys, ..source };
        let waits_ms = may_wait.then(|| self.waits_ms());
        let mut words = vec![word(if may_wait { "BLMOVE" } else { "LMOVE" })];
        words.extend([source.name(), target.name(), name(from), name(to)]);
        words.extend(waits_ms.map(Self::seconds));
        let ops = vec![
            (source, ListOp::PopAny { end: from, count: 1 }),
            (target, ListOp::PushAny { end: to }),
        ];
        Request { words, kind: Kind::Move { from, to }, ops, waits_ms }
    }

    fn range(key: ListKey) -> Request {
        let words = vec![word("LRANGE"), key.name(), word("0"), word("-1")];
        Request { words, kind: Kind::Range, ops: vec![(key, ListOp::Nothing)], waits_ms: None }
    }

    fn insert(&self) -> Request {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        let (key, pivot, before) = (self.key(), self.known_element(), self.draw(2) == 0);
        let (item, bytes) = self.element();
        let side = word(if before { "BEFORE" } else { "AFTER" });
        let words = vec![word("LINSERT"), key.name(), side, lists.element(pivot), bytes];
        let ops = vec![(key, ListOp::Insert { pivot, before, item, done: None })];
        Request { words, kind: Kind::Insert, ops, waits_ms: None }
    }

    fn remove(&self) -> Request {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        let (key, item) = (self.key(), self.known_element());
        let words = vec![word("LREM"), key.name(), word("0"), lists.element(item)];
        let ops = vec![(key, ListOp::Remove { item, done: None })];
        Request { words, kind: Kind::Remove, ops, waits_ms: None }
    }

    fn expire(&self) -> Request {
        let (key, ms) = (self.key(), 1 + self.draw(30));
        let words = vec![word("PEXPIRE"), key.name(), word(&ms.to_string())];
        let now_ms = self.world.node.borrow().unix_ms();
        let window = Window { by_ns: u64::MAX, ..Window::between_ms(now_ms + ms, now_ms) };
        let ops = vec![(key, ListOp::Expire { window, done: None })];
        Request { words, kind: Kind::Expire { ms }, ops, waits_ms: None }
    }

    fn send(&self, connection: &Connection, words: &[Vec<u8>]) {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        connection.stream.send(&bytes);
    }

    fn execute(&self, connection: &mut Connection, request: Request) -> Result<(), Ended> {
        let Request { words, kind, ops, waits_ms } = request;
        let sent_unix_ms = self.world.node.borrow().unix_ms();
        let sent_ns = self.now_ns();
        let mut history = self.world.history.borrow_mut();
        history.calls += 1;
        history.note(sent_ns, self.number, format_args!("begins {kind:?} {ops:?}"));
        let begin =
            |(key, op): (ListKey, ListOp)| (history.lists.begin(key, sent_ns, op.clone()), op);
        let calls: Vec<(ListBegun, ListOp)> = ops.into_iter().map(begin).collect();
        if matches!(kind, Kind::Move { .. }) && waits_ms.is_some() && self.crosses(&calls) {
            history.lists.hands_over(calls[0].0);
        }
        drop(history);
        let has_parked = false;
        let mut asked = Asked { kind, calls, waits_ms, sent_ns, sent_unix_ms, has_parked };
        self.send(connection, &words);
        if self.world.faults.strikes(Fault::RespLost) {
            let (stream, hears_ns) = (connection.stream.clone(), self.draw(5 * MS));
            self.world.sim.schedule(self.draw(MS), move || stream.break_off(hears_ns));
        }
        let came = match waits_ms {
            Some(_) => self.await_reply(connection, &mut asked),
            None => self.reply(connection, u64::MAX),
        };
        match came {
            Ok(Some(reply)) => {
                self.judge(&asked, &reply);
                Ok(())
            }
            Ok(None) => {
                connection.stream.break_off(self.draw(MS));
                self.lost(&asked);
                Err(Ended::Broken)
            }
            Err(ended) => {
                if ended == Ended::Closed {
                    self.violate("every request is answered", "the server closed the connection");
                }
                self.lost(&asked);
                Err(ended)
            }
        }
    }

    fn lost(&self, asked: &Asked) {
        let mut history = self.world.history.borrow_mut();
        history.note(self.now_ns(), self.number, format_args!("loses its connection"));
        asked.calls.iter().for_each(|(begun, _)| history.lists.lost(*begun));
    }

    /// The reply to a request that waits: the client looks now and then whether it does. `None`: it
    /// goes.
    fn await_reply(
        &self,
        connection: &mut Connection,
        asked: &mut Asked,
    ) -> Result<Option<Reply>, Ended> {
        let leaves = self.draw(LEAVES_ONCE_IN) == 0;
        let mut look_ns = 20_000;
        loop {
            let until_ns = self.now_ns() + look_ns;
            if let Some(reply) = self.reply(connection, until_ns)? {
                return Ok(Some(reply));
            }
            look_ns = (2 * look_ns).min(LOOK_NS);
            let (incarnation, serial) = connection.name;
            let is_parked = self.world.node.borrow().has_parked((incarnation, serial));
            if is_parked && !asked.has_parked {
                asked.has_parked = true;
                self.world.probes.borrow_mut().add(Probe::ListWaited, 1);
                let now_ns = self.now_ns();
                let mut history = self.world.history.borrow_mut();
                history.note(now_ns, self.number, format_args!("waits"));
                let sources =
                    asked.calls.iter().filter(|(_, op)| matches!(op, ListOp::PopAny { .. }));
                // A move between shards may find that a later request was faster, and waits again.
                let is_in_order =
                    !matches!(asked.kind, Kind::Move { .. }) || !self.crosses(&asked.calls);
                if let (1, Some((begun, _))) = (sources.clone().count(), sources.clone().next())
                    && is_in_order
                {
                    history.lists.waits(*begun, now_ns);
                }
            }
            let ends_never = asked.waits_ms == Some(0) && self.world.is_over();
            if ends_never || (leaves && asked.has_parked && self.draw(4) == 0) {
                return Ok(None);
            }
        }
    }

    /// Whether the keys of a move belong to two shards.
    fn crosses(&self, calls: &[(ListBegun, ListOp)]) -> bool {
        let node = self.world.node.borrow();
        let mut homes = calls.iter().map(|(begun, _)| node.shard_of(&begun.key.name()));
        let first = homes.next();
        homes.any(|home| Some(home) != first)
    }

    /// The next reply; `None` if none has come by this time.
    fn reply(&self, connection: &mut Connection, until_ns: u64) -> Result<Option<Reply>, Ended> {
        loop {
            match Value::parse(&connection.input) {
                Ok(ParsedValue::Value { value, consumed }) => {
                    let reply = Reply::of(&value);
                    connection.input.drain(..consumed);
                    return Ok(Some(reply));
                }
                Ok(ParsedValue::Incomplete { .. }) => {}
                Err(error) => {
                    self.violate("nobody breaks the protocol", &error.to_string());
                    return Err(Ended::Broken);
                }
            }
            let had = connection.input.len();
            connection.stream.take(&mut connection.input)?;
            if connection.input.len() > had {
                continue;
            }
            if self.now_ns() >= until_ns {
                return Ok(None);
            }
            connection.stream.set_waiting(Some(self.task));
            self.world.sim.suspend_until(self.task, until_ns);
            connection.stream.set_waiting(None);
        }
    }

    /// Ends the wait of another client.
    fn unblock(&self, connection: &mut Connection) -> Result<(), Ended> {
        let others: Vec<(u64, u64)> = {
            let history = self.world.history.borrow();
            let others = history.lists.connections.iter().filter(|of| *of.0 != self.number);
            others.map(|of| *of.1).filter(|name| name.0 == connection.name.0).collect()
        };
        if others.is_empty() {
            return Ok(());
        }
        let of = others[self.draw(others.len() as u64) as usize];
        let mut words = vec![word("CLIENT"), word("UNBLOCK"), word(&of.1.to_string())];
        words.extend(
            [None, Some(word("TIMEOUT")), Some(word("ERROR"))][self.draw(3) as usize].clone(),
        );
        let at = {
            let mut history = self.world.history.borrow_mut();
            let unblock = Unblock { connection: of, sent_ns: self.now_ns(), returned_ns: None };
            history.note(self.now_ns(), self.number, format_args!("unblocks {of:?}"));
            history.lists.unblocks.push(unblock);
            history.lists.unblocks.len() - 1
        };
        self.send(connection, &words);
        match self.reply(connection, u64::MAX)? {
            Some(Reply::Integer(0..=1)) => {
                let now_ns = self.now_ns();
                self.world.history.borrow_mut().lists.unblocks[at].returned_ns = Some(now_ns);
            }
            reply => {
                self.violate(
                    "a reply is one to its request",
                    &format!("{reply:?} to CLIENT UNBLOCK"),
                );
            }
        }
        Ok(())
    }
}

/// A reply, apart from the bytes that it came in.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Reply {
    Integer(i64),
    Null,
    Bytes(Vec<u8>),
    Array(Vec<Self>),
    Error(Vec<u8>),
    Other,
}

impl Reply {
    fn of(value: &Value<'_>) -> Self {
        match value {
            Value::Integer(number) => Self::Integer(*number),
            Value::Null => Self::Null,
            Value::Bulk(bytes) => Self::Bytes(bytes.to_vec()),
            Value::Array(values) => Self::Array(values.iter().map(Self::of).collect()),
            Value::Error(text) => Self::Error(text.to_vec()),
            _ => Self::Other,
        }
    }
}

/// What a reply says.
enum Came {
    /// The operations, in the order of the calls.
    Of(Vec<ListOp>),
    /// The wait ended without an element.
    Ended,
    Wrong,
}

impl ListClient {
    fn judge(&self, asked: &Asked, reply: &Reply) {
        let now_ns = self.now_ns();
        let mut history = self.world.history.borrow_mut();
        history.note(now_ns, self.number, format_args!("has {reply:?}"));
        drop(history);
        if let Reply::Error(text) = reply {
            return self.refused(asked, text);
        }
        match self.came(asked, reply) {
            Came::Of(ops) => {
                let took = ops
                    .iter()
                    .any(|op| matches!(op, ListOp::Pop { items, .. } if !items.is_empty()));
                let is_served = (took && asked.has_parked) as u64;
                self.world.probes.borrow_mut().add(Probe::ListServed, is_served);
                let mut history = self.world.history.borrow_mut();
                for ((begun, _), op) in asked.calls.iter().zip(ops) {
                    history.lists.end(*begun, now_ns, op);
                }
            }
            Came::Ended => match self.may_end_ns(asked) {
                Some(from_ns) => self.end_wait(asked, from_ns),
                None => self.violate("a wait ends in time", &format!("{:?}", asked.kind)),
            },
            Came::Wrong => {
                let what = format!("{reply:?} to {:?} {:?}", asked.kind, asked.calls);
                self.violate(
                    "a reply is one to its request, with elements that were pushed",
                    &what,
                );
            }
        }
    }

    fn end_wait(&self, asked: &Asked, from_ns: u64) {
        self.world.probes.borrow_mut().add(Probe::ListWaitEnded, 1);
        let now_ns = self.now_ns();
        let mut history = self.world.history.borrow_mut();
        for (begun, op) in &asked.calls {
            match op {
                ListOp::PopAny { .. } => history.lists.ended(*begun, (from_ns, now_ns)),
                _ => history.lists.end(*begun, now_ns, ListOp::Nothing),
            }
        }
    }

    /// Since when a wait may end without an element and without an error: its time, or another
    /// client's CLIENT UNBLOCK. `None`: it may not.
    fn may_end_ns(&self, asked: &Asked) -> Option<u64> {
        let name = self.world.history.borrow().lists.connections.get(&self.number).copied();
        let unblocked_ns = self.unblocked_ns(asked, name?);
        let node = self.world.node.borrow();
        let waits_ms = asked.waits_ms.filter(|ms| *ms > 0);
        // The clock may have been set, forwards or back.
        let over_ns =
            waits_ms.map(|ms| match self.world.swarm.faults.contains_key(&Fault::WallClock) {
                true => asked.sent_ns,
                false => node.virtual_ns((asked.sent_unix_ms + ms).saturating_sub(2)),
            });
        let over_ns = over_ns.filter(|over_ns| *over_ns <= self.now_ns());
        [unblocked_ns, over_ns].into_iter().flatten().min()
    }

    fn unblocked_ns(&self, asked: &Asked, name: (u64, u64)) -> Option<u64> {
        let history = self.world.history.borrow();
        let mut unblocks = history.lists.unblocks.iter().filter(|of| {
            of.connection == name && of.returned_ns.is_none_or(|ns| ns >= asked.sent_ns)
        });
        unblocks.next().map(|of| of.sent_ns)
    }

    fn refused(&self, asked: &Asked, text: &[u8]) {
        let now_ns = self.now_ns();
        let status = match text {
            text if text.starts_with(b"OOM ") => Status::OutOfMemory,
            text if text.starts_with(b"MISCONF ") => Status::NotKept,
            text if text.starts_with(b"NOREPLICAS ") => Status::TooFewReplicas,
            text if text.starts_with(b"UNBLOCKED ") => return self.unblocked(asked, text),
            _ => {
                let what = format!("{} to {:?}", text.escape_ascii(), asked.kind);
                return self.violate(
                    "a reply is one to its request, with elements that were pushed",
                    &what,
                );
            }
        };
        if !self.world.may_refuse(Error::Refused(status)) {
            let what = format!("{} to {:?}", text.escape_ascii(), asked.kind);
            self.violate("nothing is refused without a reason", &what);
        }
        let mut history = self.world.history.borrow_mut();
        for (begun, _) in &asked.calls {
            history.lists.end(*begun, now_ns, ListOp::Nothing);
        }
    }

    /// CLIENT UNBLOCK with ERROR, or a change of the role.
    fn unblocked(&self, asked: &Asked, text: &[u8]) {
        let name = self.world.history.borrow().lists.connections.get(&self.number).copied();
        let from_ns = match text.windows(5).any(|of| of == b"force") {
            false => name.and_then(|name| self.unblocked_ns(asked, name)),
            true => {
                let history = self.world.history.borrow();
                let mut changes = history.lists.role_changes_ns.iter();
                let change_ns = changes.find(|ns| **ns >= asked.sent_ns).copied();
                self.world.probes.borrow_mut().add(Probe::RoleEndedWait, 1);
                change_ns
            }
        };
        match from_ns {
            Some(from_ns) if asked.waits_ms.is_some() => self.end_wait(asked, from_ns),
            _ => self.violate("a wait ends in time", &text.escape_ascii().to_string()),
        }
    }

    fn items(&self, values: &[Reply]) -> Option<Vec<i64>> {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        let number = |value: &Reply| match value {
            Reply::Bytes(bytes) => lists.number_of(bytes),
            _ => None,
        };
        values.iter().map(number).collect()
    }

    fn came(&self, asked: &Asked, reply: &Reply) -> Came {
        let of = |op: Option<ListOp>| op.map_or(Came::Wrong, |op| Came::Of(vec![op]));
        let op = asked.calls[0].1.clone();
        match (asked.kind, reply) {
            (Kind::Push { .. }, Reply::Integer(length)) => {
                let ListOp::Push { end, items, .. } = op else { return Came::Wrong };
                of(Some(ListOp::Push { end, items, length: Some(*length as u64) }))
            }
            (Kind::Pop { end } | Kind::PopMany { end }, Reply::Null) => {
                of(Some(ListOp::Pop { end, items: Vec::new() }))
            }
            (Kind::Pop { end }, value @ Reply::Bytes(_)) => {
                of(self.items(std::slice::from_ref(value)).map(|items| ListOp::Pop { end, items }))
            }
            (Kind::PopMany { end }, Reply::Array(values)) => {
                of(self.items(values).map(|items| ListOp::Pop { end, items }))
            }
            (Kind::Range, Reply::Array(values)) => {
                of(self.items(values).map(|found| ListOp::Range { found }))
            }
            (Kind::Wait { .. } | Kind::WaitMany { .. } | Kind::Move { .. }, Reply::Null)
                if asked.waits_ms.is_some() =>
            {
                Came::Ended
            }
            (Kind::Move { from, .. }, Reply::Null) => {
                Came::Of(vec![ListOp::Pop { end: from, items: Vec::new() }, ListOp::Nothing])
            }
            (Kind::Move { from, to }, value @ Reply::Bytes(_)) => {
                let Some(items) = self.items(std::slice::from_ref(value)) else {
                    return Came::Wrong;
                };
                let push = ListOp::Push { end: to, items: items.clone(), length: None };
                Came::Of(vec![ListOp::Pop { end: from, items }, push])
            }
            (Kind::Wait { end } | Kind::WaitMany { end }, Reply::Array(values)) => {
                self.given(asked, end, values)
            }
            (_, Reply::Integer(told)) => self.told(op, *told, asked),
            _ => Came::Wrong,
        }
    }

    /// A key and its elements, of the first of several keys that had some.
    fn given(&self, asked: &Asked, end: End, values: &[Reply]) -> Came {
        let (name, items) = match values {
            [Reply::Bytes(name), Reply::Array(items)] => (name, self.items(items)),
            [Reply::Bytes(name), item] => (name, self.items(std::slice::from_ref(item))),
            _ => return Came::Wrong,
        };
        let Some(items) = items.filter(|items| !items.is_empty()) else { return Came::Wrong };
        if !asked.calls.iter().any(|(begun, _)| begun.key.name() == *name) {
            return Came::Wrong;
        }
        let op = |(begun, _): &(ListBegun, ListOp)| match begun.key.name() == *name {
            true => ListOp::Pop { end, items: items.clone() },
            false => ListOp::Nothing,
        };
        Came::Of(asked.calls.iter().map(op).collect())
    }

    /// A number that says whether something was done.
    fn told(&self, op: ListOp, told: i64, asked: &Asked) -> Came {
        let done = Some(told > 0);
        let now_ms = self.world.node.borrow().unix_ms();
        Came::Of(vec![match (op, asked.kind) {
            (ListOp::Insert { pivot, before, item, .. }, _) => {
                ListOp::Insert { pivot, before, item, done }
            }
            (ListOp::Remove { item, .. }, _) if told <= 1 => ListOp::Remove { item, done },
            (ListOp::Del { .. }, _) if told <= 1 => ListOp::Del { done },
            (ListOp::Expire { .. }, Kind::Expire { ms }) => {
                let window = Window::between_ms(asked.sent_unix_ms + ms, now_ms + ms);
                ListOp::Expire { window, done }
            }
            _ => return Came::Wrong,
        }])
    }
}

//! Requests of RESP clients, and their meaning for each key.

use super::swarm::Kind;
use crate::check::keys::{If, KeyOp, Left, Value, Window};
use crate::check::places::Act;
use crate::values::{Register, encode};
use crate::world::World;
use std::ops::Range;
use std::rc::Rc;

/// The expected reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// A value or null.
    Value,
    /// One of them for each key.
    Values,
    /// OK.
    Ok,
    /// OK, or null if nothing was done.
    OkOrNull,
    /// 1, or 0 if nothing was done.
    WasDone,
    /// The number of keys for which it holds.
    Sum,
    /// A number.
    Number,
    /// This number.
    Exactly(i64),
    /// ms, -1 or -2.
    TimeLeft,
    /// PONG.
    Pong,
    /// Facts about the server.
    Facts,
}

/// A request, ready to be sent.
pub struct Request {
    /// Command and arguments.
    pub words: Vec<Vec<u8>>,
    /// The expected reply.
    pub expect: Expect,
    /// Its operation on each key.
    pub ops: Vec<(Register, KeyOp)>,
    /// How it says when its key expires; `None`: it does not.
    pub expiry: Option<Px>,
    /// The databases whose trees it removes.
    pub clears: Range<u8>,
    /// Its other operations on trees.
    pub acts: Vec<Act>,
}

impl Request {
    /// One that says nothing of an expiry, and does nothing to trees.
    pub fn new(words: Vec<Vec<u8>>, expect: Expect, ops: Vec<(Register, KeyOp)>) -> Self {
        Self { words, expect, ops, expiry: None, clears: 0..0, acts: Vec::new() }
    }
}

/// How a SET says when its key expires, in ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Px {
    /// After this time.
    In(u64),
    /// At that time.
    At(u64),
}

impl Px {
    /// When the key disappears, if the server's clock was between these times, ms,
    /// when it took the request.
    pub fn window(self, from_ms: u64, by_ms: u64) -> Window {
        let (from_ms, by_ms) = match self {
            Self::In(ms) => (from_ms + ms, by_ms.saturating_add(ms)),
            Self::At(ms) => (ms, ms),
        };
        Window::between_ms(from_ms, by_ms)
    }
}

/// Makes requests.
pub struct Maker {
    /// The world they are for.
    pub world: Rc<World>,
    /// The database that they are about.
    pub database: u8,
}

impl Maker {
    pub(super) fn draw(&self, below: u64) -> u64 {
        self.world.sim.draw(|random| random.below(below))
    }

    fn key(&self) -> Register {
        // Two draws: lower numbers are more popular.
        let number = self.draw(1 + self.draw(self.world.swarm.keys as u64)) as u32;
        Register { database: self.database, hash: None, number }
    }

    /// Some keys, each once.
    fn keys(&self) -> Vec<Register> {
        let mut keys: Vec<Register> = (0..1 + self.draw(5)).map(|_| self.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn kind(&self) -> Kind {
        let weights = self.world.swarm.resp.weights;
        let mut at = self.draw(weights.iter().sum::<u64>().max(1));
        let chosen = weights.iter().position(|&weight| {
            let is_it = at < weight;
            at = at.saturating_sub(weight);
            is_it
        });
        chosen.map_or(Kind::Get, |chosen| Kind::ALL[chosen])
    }

    fn value(&self, key: Register) -> (i64, Vec<u8>) {
        let number = self.world.next_number();
        (number, encode(key, number, self.world.swarm.lengths))
    }

    /// The next request.
    pub fn next(&self) -> Request {
        match self.kind() {
            Kind::Get => self.each("GET", vec![self.key()], Expect::Value, KeyOp::Nothing),
            Kind::MGet => self.each("MGET", self.keys(), Expect::Values, KeyOp::Nothing),
            Kind::Set => self.set(),
            Kind::MSet => self.mset(),
            Kind::Del => self.each("DEL", self.keys(), Expect::Sum, KeyOp::Del { removed: None }),
            Kind::IncrBy => {
                let by = 1 + self.draw(9) as i64;
                let op = KeyOp::Incr { by, sum: None };
                let mut request =
                    self.each("INCRBY", vec![self.key().counter()], Expect::Number, op);
                request.words.push(by.to_string().into_bytes());
                request
            }
            Kind::Exists => self.each("EXISTS", self.keys(), Expect::Sum, KeyOp::Nothing),
            Kind::PTtl => self.each("PTTL", vec![self.key()], Expect::TimeLeft, KeyOp::Nothing),
            Kind::PExpire => {
                let ms = 1 + self.draw([30, 2_000][self.draw(2) as usize]);
                let op = KeyOp::Expire { expiry: self.open_window(Px::In(ms)), done: None };
                let mut request = self.each("PEXPIRE", vec![self.key()], Expect::WasDone, op);
                request.words.push(ms.to_string().into_bytes());
                request.expiry = Some(Px::In(ms));
                request
            }
            Kind::Ping => self.each("PING", Vec::new(), Expect::Pong, KeyOp::Nothing),
            Kind::FlushAll => self.flush(),
        }
    }

    /// FLUSHALL, or FLUSHDB where there is more than one database.
    fn flush(&self) -> Request {
        let swarm = &self.world.swarm;
        let is_of_one = swarm.databases > 1 && self.draw(2) == 0;
        let (name, databases) = match is_of_one {
            true => ("FLUSHDB", self.database..self.database + 1),
            false => ("FLUSHALL", 0..swarm.databases as u8),
        };
        let mut request = self.each(name, Vec::new(), Expect::Ok, KeyOp::Nothing);
        let registers = databases.clone().flat_map(|database| swarm.registers(database));
        request.ops = registers.map(|key| (key, KeyOp::Del { removed: None })).collect();
        request.clears = databases;
        request
    }

    /// Selects a database.
    pub fn select(&self, database: u8) -> Request {
        let words = vec![b"SELECT".to_vec(), database.to_string().into_bytes()];
        Request::new(words, Expect::Ok, Vec::new())
    }

    /// Asks for another form of replies.
    pub fn hello(&self) -> Request {
        Request::new(vec![b"HELLO".to_vec(), b"3".to_vec()], Expect::Facts, Vec::new())
    }

    fn each(&self, name: &str, keys: Vec<Register>, expect: Expect, op: KeyOp) -> Request {
        let mut words = vec![name.as_bytes().to_vec()];
        words.extend(keys.iter().map(|&key| key.name()));
        Request::new(words, expect, keys.into_iter().map(|key| (key, op)).collect())
    }

    fn set(&self) -> Request {
        let key = self.key();
        let (number, bytes) = self.value(key);
        let mut words = vec![b"SET".to_vec(), key.name(), bytes];
        let condition = match self.draw(6) {
            0 => If::Absent,
            1 => If::Present,
            _ => If::Always,
        };
        match condition {
            If::Absent => words.push(b"NX".to_vec()),
            If::Present => words.push(b"XX".to_vec()),
            If::Always => {}
        }
        let expires = self.draw(100) < self.world.swarm.mix.expiring_percent;
        let expiry = expires.then(|| {
            let ms = 1 + self.draw([30, 2_000][self.draw(2) as usize]);
            let now_ms = self.world.node.borrow().unix_ms();
            let (name, number, px) = match self.draw(3) {
                0 => ("PX", ms, Px::In(ms)),
                1 => ("EX", 1, Px::In(1_000)),
                _ => ("PXAT", now_ms + ms, Px::At(now_ms + ms)),
            };
            words.extend([name.as_bytes().to_vec(), number.to_string().into_bytes()]);
            px
        });
        let value = Value { number, expiry: expiry.map(|px| self.open_window(px)) };
        let op = KeyOp::Set { value, condition, done: None };
        Request { expiry, ..Request::new(words, Expect::OkOrNull, vec![(key, op)]) }
    }

    /// When a key disappears, of a request that is sent now: when it is taken is
    /// not known before it is answered.
    fn open_window(&self, px: Px) -> Window {
        let now_ms = self.world.node.borrow().unix_ms();
        Window { by_ns: u64::MAX, ..px.window(now_ms, now_ms) }
    }

    fn mset(&self) -> Request {
        let mut words = vec![b"MSET".to_vec()];
        let mut ops = Vec::new();
        for key in self.keys() {
            let (number, bytes) = self.value(key);
            words.extend([key.name(), bytes]);
            let value = Value { number, expiry: None };
            ops.push((key, KeyOp::Set { value, condition: If::Always, done: None }));
        }
        Request::new(words, Expect::Ok, ops)
    }
}

/// The result of PTTL between these times of the server's clock, ms.
pub fn time_left(told_ms: i64, from_ms: u64, by_ms: u64) -> Option<Left> {
    match told_ms {
        -2 => Some(Left::Absent),
        -1 => Some(Left::Forever),
        0.. => {
            let told_ms = told_ms as u64;
            Some(Left::Until(Window::between_ms(from_ms + told_ms, by_ms + told_ms)))
        }
        _ => None,
    }
}

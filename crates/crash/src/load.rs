//! Writers and readers at full load, until the server is gone.
//!
//! Each writer owns its keys. A key has one change under way at most, so that its states have an
//! order. After an error it is not known whether the change happened: the key is looked at before the
//! next one.

use crate::history::{History, Promise, Verdict};
use crate::state::{Change, State, head_digest};
use crate::types::{self, KeyType, ask};
use anyhow::Context;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use remora_client::{Address, Options, Path, Session};
use remora_command_line::Connection;
use remora_resp::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Commands of a RESP writer under way.
const MOST_IN_FLIGHT: usize = 16;
/// A client's request that waits longer counts as unanswered.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Before a connection is tried again while the server should be there.
const RECONNECT: Duration = Duration::from_millis(20);
/// Keys of one MSET at most.
const MOST_TOGETHER: usize = 3;

/// A key and its history, which readers and its writer share.
pub struct Key {
    /// Its name.
    pub name: Vec<u8>,
    /// Its type.
    pub of: &'static dyn KeyType,
    /// What was sent, acknowledged and seen.
    pub history: Mutex<History>,
}

impl Key {
    /// Its history.
    pub fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().expect("no thread panics with it")
    }
}

/// How a thread talks to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// RESP, in pipelines.
    Resp,
    /// The client: rings, and READs of the server's memory.
    Client,
}

impl By {
    /// Whether keys of this type can be changed and read so.
    pub fn can_use(self, of: &dyn KeyType) -> bool {
        self == Self::Resp || of.has_handle()
    }

    /// This, or RESP if no key can be read by the client, and the numbers of the keys that can be read so.
    pub fn readable(self, keys: &[Key]) -> (Self, Vec<usize>) {
        let of = |by: Self| {
            (0..keys.len()).filter(|at| by.can_use(keys[*at].of)).collect::<Vec<usize>>()
        };
        match of(self) {
            none if none.is_empty() => (Self::Resp, of(Self::Resp)),
            some => (self, some),
        }
    }
}

/// Where the server is.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    /// RESP.
    pub resp: SocketAddr,
    /// The client's socket.
    pub socket: PathBuf,
    /// Where the client connects instead, if the server gives sessions over TCP only.
    pub fabric: Option<SocketAddr>,
}

impl ServerAddress {
    /// A RESP connection.
    pub fn resp(&self) -> anyhow::Result<Connection> {
        Connection::connect(&self.resp.to_string())
    }

    /// A section of INFO.
    pub fn info(&self, section: &str) -> anyhow::Result<String> {
        let mut resp = self.resp()?;
        match ask(&mut resp, &[b"INFO", section.as_bytes()])? {
            Value::Bulk(text) => Ok(String::from_utf8_lossy(text).into_owned()),
            other => anyhow::bail!("unexpected reply to INFO: {other:?}"),
        }
    }

    /// A session of the client.
    pub fn session(&self, path: Path) -> anyhow::Result<Session> {
        let options = Options::default().path(path).timeout(REQUEST_LIMIT);
        let address = self.fabric.map_or_else(|| Address::unix(&self.socket), Address::tcp);
        Session::connect(&address, &options).context("connecting the client")
    }
}

/// What all threads of a round share.
pub struct Round<'a> {
    /// All keys.
    pub keys: &'a [Key],
    /// Where the server is.
    pub place: ServerAddress,
    /// The server is about to end: an error is its end.
    pub is_ending: AtomicBool,
    /// All threads are to end, though the server goes on.
    pub stops: AtomicBool,
    /// The disk is bad: refusals are expected.
    pub may_refuse: AtomicBool,
    /// Acknowledged changes.
    pub acknowledged: AtomicU64,
    /// Reads that saw an older state than they had to, or a state that never was.
    pub stale: AtomicU64,
    /// What should not be, in words.
    pub problems: Mutex<Vec<String>>,
}

impl Round<'_> {
    fn is_over(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed) || self.stops.load(Ordering::Relaxed)
    }

    /// An error once the threads are to end. The end of a server has to come at full load, so it is
    /// none.
    pub fn goes_on(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.stops.load(Ordering::Relaxed), "the round is over");
        Ok(())
    }

    /// Notes something that should not be, a few times.
    pub fn problem(&self, text: String) {
        let mut problems = self.problems.lock().expect("no thread panics with it");
        if problems.len() < 20 {
            problems.push(text);
        }
    }

    /// An error of a thread: the server's end, or worth a note. False once the round is over.
    fn goes_on_after(&self, error: &anyhow::Error) -> bool {
        if self.is_over() {
            return false;
        }
        if !self.may_refuse.load(Ordering::Relaxed) {
            // The end may come between the error and this look.
            std::thread::sleep(RECONNECT);
            if self.is_over() {
                return false;
            }
            self.problem(format!("an error, though nothing was wrong: {error:#}"));
        }
        std::thread::sleep(RECONNECT);
        true
    }

    /// Waits until a change is acknowledged; there has to be one by the limit, since `what`.
    pub fn waits_for_changes(&self, limit: Duration, what: &str) {
        let (began, before) = (Instant::now(), self.acknowledged.load(Ordering::Relaxed));
        while self.acknowledged.load(Ordering::Relaxed) == before {
            if began.elapsed() > limit {
                return self.problem(format!("nothing is acknowledged {limit:?} after {what}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn acknowledge(&self, key: usize, number: u64) {
        self.keys[key].history().acknowledged(number, Instant::now());
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

/// A writer: it lives through all rounds.
pub struct Writer {
    by: By,
    /// Its keys, by their place among all.
    own: Vec<usize>,
    /// What each of them holds once all that was sent has happened.
    states: Vec<State>,
    /// It is not known whether their last change happened.
    doubtful: Vec<bool>,
    rng: ChaCha8Rng,
}

/// Changes that one reply is about: a key of the writer's, and the number of its change.
type Sent = Vec<(usize, u64)>;

impl Writer {
    /// A writer of these keys.
    pub fn new(by: By, own: Vec<usize>, seed: u64) -> Self {
        let count = own.len();
        Self {
            by,
            own,
            states: vec![State::default(); count],
            doubtful: vec![false; count],
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Its keys, with what they hold once all that was sent has happened.
    pub fn states(&self) -> impl Iterator<Item = (usize, &State)> {
        self.own.iter().copied().zip(&self.states)
    }

    /// What a key was found to hold.
    pub fn settle(&mut self, key: usize, state: State) {
        if let Some(at) = self.own.iter().position(|own| *own == key) {
            self.states[at] = state;
            self.doubtful[at] = false;
        }
    }

    /// Writes until the server ends.
    pub fn run(&mut self, round: &Round<'_>) {
        loop {
            let ended = match self.by {
                By::Resp => self.write_by_resp(round),
                By::Client => self.write_by_client(round),
            };
            let Err(error) = ended;
            if !round.goes_on_after(&error) {
                return;
            }
        }
    }

    fn write_by_resp(&mut self, round: &Round<'_>) -> anyhow::Result<std::convert::Infallible> {
        let mut resp = round.place.resp()?;
        loop {
            round.goes_on()?;
            self.look_at_doubtful(&mut resp, round)?;
            let sent = self.send_batch(&mut resp, round);
            // Until its reply says more.
            for (at, _) in sent.iter().flatten() {
                self.doubtful[*at] = true;
            }
            resp.flush()?;
            for sent in sent {
                let reply = resp.reply()?;
                if let Value::Error(text) = reply {
                    self.refused(round, &String::from_utf8_lossy(text))?;
                    continue;
                }
                // A wait for elements whose time is over, while changes were refused: nothing was taken.
                if matches!(reply, Value::Null) {
                    continue;
                }
                for (at, number) in sent {
                    self.doubtful[at] = false;
                    round.acknowledge(self.own[at], number);
                }
            }
        }
    }

    /// A refusal is no end of the connection, but without a bad disk there should be none.
    fn refused(&self, round: &Round<'_>, text: &str) -> anyhow::Result<()> {
        if round.may_refuse.load(Ordering::Relaxed) || round.is_over() {
            return Ok(());
        }
        anyhow::bail!("the server refused a change: {text}")
    }

    /// Gathers commands about different keys; some of their SETs go together as one MSET.
    fn send_batch(&mut self, resp: &mut Connection, round: &Round<'_>) -> Vec<Sent> {
        let count = self.rng.random_range(1..=MOST_IN_FLIGHT.min(self.own.len()));
        let mut ats = rand::seq::index::sample(&mut self.rng, self.own.len(), count).into_vec();
        let mut sent: Vec<Sent> = Vec::new();
        let mut together: Vec<(usize, Vec<u8>)> = Vec::new();
        let gathers = self.rng.random_bool(0.3);
        while let Some(at) = ats.pop() {
            let key = &round.keys[self.own[at]];
            let change = key.of.draw(&self.states[at], &mut self.rng);
            match change {
                Change::Set(value) if gathers && together.len() < MOST_TOGETHER => {
                    together.push((at, value));
                }
                change => {
                    let before = &self.states[at];
                    let follow_up = key.of.follow_up(&key.name, before);
                    let command = types::command(key.of, &key.name, &change);
                    push(resp, &command);
                    sent.push(vec![(at, self.begin(round, at, &change))]);
                    if let Some(command) = follow_up {
                        push(resp, &command);
                        sent.push(Sent::new());
                    }
                }
            }
        }
        if !together.is_empty() {
            resp.push_header(1 + 2 * together.len());
            resp.push_part(b"MSET");
            let mut numbers = Sent::new();
            for (at, value) in together {
                resp.push_part(&round.keys[self.own[at]].name);
                resp.push_part(&value);
                numbers.push((at, self.begin(round, at, &Change::Set(value))));
            }
            sent.push(numbers);
        }
        sent
    }

    /// A change is about to be sent. Returns its number.
    fn begin(&mut self, round: &Round<'_>, at: usize, change: &Change) -> u64 {
        self.states[at].apply(change);
        round.keys[self.own[at]].history().sent(&self.states[at])
    }

    fn write_by_client(&mut self, round: &Round<'_>) -> anyhow::Result<std::convert::Infallible> {
        let mut session = round.place.session(Path::Ask)?;
        loop {
            round.goes_on()?;
            if self.doubtful.contains(&true) {
                self.look_at_doubtful(&mut round.place.resp()?, round)?;
            }
            let at = self.rng.random_range(0..self.own.len());
            let key = &round.keys[self.own[at]];
            let change = key.of.draw(&self.states[at], &mut self.rng);
            let number = self.begin(round, at, &change);
            match types::change(key.of, &mut session, &key.name, &change) {
                Ok(()) => round.acknowledge(self.own[at], number),
                Err(error) => {
                    self.doubtful[at] = true;
                    if error.is_final() {
                        return Err(error).context("writing by the client");
                    }
                    self.refused(round, &error.to_string())?;
                }
            }
        }
    }

    /// Finds out what keys hold whose last change may or may not have happened.
    fn look_at_doubtful(&mut self, resp: &mut Connection, round: &Round<'_>) -> anyhow::Result<()> {
        for at in 0..self.own.len() {
            if !self.doubtful[at] {
                continue;
            }
            let key = &round.keys[self.own[at]];
            let found = types::read(key.of, resp, &key.name)?;
            let mut history = key.history();
            if history.judge(&found, Promise::All) != Verdict::Fine {
                round.stale.fetch_add(1, Ordering::Relaxed);
                round.problem(format!(
                    "key {} holds after an error: {found}; last sent: {}",
                    key.name.escape_ascii(),
                    self.states[at]
                ));
            }
            history.settle(&found, Instant::now());
            drop(history);
            self.states[at] = found;
            self.doubtful[at] = false;
        }
        Ok(())
    }
}

fn push(resp: &mut Connection, command: &[Vec<u8>]) {
    resp.push_header(command.len());
    command.iter().for_each(|part| resp.push_part(part));
}

/// Reads keys at random until the server ends.
pub fn read_keys(by: By, round: &Round<'_>, seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (by, keys) = by.readable(round.keys);
    loop {
        let ended = match by {
            By::Resp => round.place.resp().and_then(|mut resp| {
                read_by((round, &keys), &mut rng, |key| key.of.head(&mut resp, &key.name))
            }),
            By::Client => round.place.session(Path::Choose).and_then(|mut session| {
                read_by((round, &keys), &mut rng, |key| {
                    Ok(key.of.head_by_client(&mut session, &key.name)?)
                })
            }),
        };
        let Err(error) = ended;
        if !round.goes_on_after(&error) {
            return;
        }
    }
}

fn read_by(
    (round, keys): (&Round<'_>, &[usize]),
    rng: &mut ChaCha8Rng,
    mut read: impl FnMut(&Key) -> anyhow::Result<Option<Vec<u8>>>,
) -> anyhow::Result<std::convert::Infallible> {
    loop {
        round.goes_on()?;
        let key = &round.keys[keys[rng.random_range(0..keys.len())]];
        let bound = key.history().newest_known();
        let head = read(key)?;
        let is_fine = key.history().saw(bound, head_digest(head.as_deref()), Instant::now());
        if !is_fine {
            round.stale.fetch_add(1, Ordering::Relaxed);
            let head = head.unwrap_or_else(|| b"nothing".to_vec());
            round.problem(format!(
                "a reader saw an older state of key {} than was known: {} ({} bytes)",
                key.name.escape_ascii(),
                head[..head.len().min(32)].escape_ascii(),
                head.len()
            ));
        }
    }
}

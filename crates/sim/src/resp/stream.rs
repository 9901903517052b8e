//! A stream of bytes each way, as TCP gives it: bytes arrive in order, in pieces, some time later;
//! a reader that takes nothing stops the writer (back-pressure); either end may close or break it.

use remora_fabric::sim::SimWorld;
use remora_frontend::{ByteStream, Connection};
use remora_resp::Resp;
use std::collections::{BTreeSet, VecDeque};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pieces in which bytes arrive that were sent at once, at most.
const MOST_PIECES: u64 = 3;

/// Locks. A world has one thread, and ends with its first panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How streams behave.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// Longest time that bytes are under way, ns.
    pub most_ns: u64,
    /// Bytes for the client that may be under way or unread.
    pub bytes: usize,
}

/// The events for which the server's thread waits, as poll(2) would report them.
pub struct Events {
    /// The thread's task, if it sleeps.
    pub waiting: Mutex<Option<u64>>,
    /// Streams that no thread has accepted yet, and those that another thread hands over.
    pub accepted: Mutex<VecDeque<Accepted>>,
    /// Slots to which something happened.
    pub stirred: Mutex<BTreeSet<usize>>,
    /// Slots whose peer has closed its side.
    pub ended: Mutex<BTreeSet<usize>>,
    /// Number of the server's next connection.
    pub serials: Arc<AtomicU64>,
    /// The process is dead: nothing it does has an effect.
    pub dead: AtomicBool,
}

impl Events {
    /// Nothing yet.
    pub fn new(serials: &Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            accepted: Mutex::default(),
            stirred: Mutex::default(),
            ended: Mutex::default(),
            serials: Arc::clone(serials),
            dead: AtomicBool::new(false),
        })
    }

    /// Whether the process is dead.
    pub fn are_over(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Direction {
    /// Bytes that have arrived and were not taken.
    arrived: VecDeque<u8>,
    /// When the last bytes arrive that were sent.
    last_ns: u64,
    /// The end of the stream has arrived.
    ended: bool,
}

#[derive(Default)]
struct State {
    to_server: Direction,
    to_client: Direction,
    /// Bytes for the client that it has not taken.
    unread: usize,
    /// The server could not write.
    blocked: bool,
    /// The client receives nothing from now on.
    client_gone: bool,
    /// Reading gives an error to the server.
    reset: bool,
    slot: Option<usize>,
}

struct Stream {
    world: SimWorld,
    options: StreamOptions,
    /// Of the thread that has it.
    events: Mutex<Arc<Events>>,
    state: Mutex<State>,
    /// The client's task, if it waits for bytes.
    client: Mutex<Option<u64>>,
}

impl Stream {
    /// When something arrives that is sent now, after all that was sent before.
    fn arrival(&self, last_ns: u64) -> u64 {
        let options = self.options;
        let takes_ns = self.world.draw(|random| random.within(&(200..=200 + options.most_ns)));
        last_ns.max(self.world.now_ns() + takes_ns)
    }

    fn pieces<'b>(&self, mut bytes: &'b [u8]) -> Vec<&'b [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() && (pieces.len() as u64) < MOST_PIECES - 1 {
            let most = 2 * bytes.len() as u64;
            let cut = self.world.draw(|random| random.within(&(1..=most))) as usize;
            let (piece, rest) = bytes.split_at(cut.min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces.extend(Some(bytes).filter(|rest| !rest.is_empty()));
        pieces
    }

    /// The server hears of something, unless it has not accepted the stream.
    fn stir(&self) {
        let slot = lock(&self.state).slot;
        if let Some(slot) = slot {
            let events = self.events();
            lock(&events.stirred).insert(slot);
            self.world.wake(&events.waiting);
        }
    }

    fn events(&self) -> Arc<Events> {
        Arc::clone(&lock(&self.events))
    }

    fn end_to_server(&self) {
        lock(&self.state).to_server.ended = true;
        let slot = lock(&self.state).slot;
        if let Some(slot) = slot {
            lock(&self.events().ended).insert(slot);
        }
        self.stir();
    }
}

/// A connection between a client and the thread that waits for these events.
pub fn connect(world: &SimWorld, options: StreamOptions, events: &Arc<Events>) -> ClientEnd {
    let stream = Arc::new(Stream {
        world: world.clone(),
        options,
        events: Mutex::new(Arc::clone(events)),
        state: Mutex::default(),
        client: Mutex::default(),
    });
    let accepted = Accepted { stream: ServerEnd(Arc::clone(&stream)), connection: None };
    lock(&events.accepted).push_back(accepted);
    world.wake(&events.waiting);
    ClientEnd(stream)
}

/// The client's end.
#[derive(Clone)]
pub struct ClientEnd(Arc<Stream>);

/// Why nothing more comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The server closed the stream while it lived.
    Closed,
    /// The connection broke, or the server died.
    Broken,
}

impl ClientEnd {
    /// Sends bytes.
    pub fn send(&self, bytes: &[u8]) {
        let stream = &self.0;
        for piece in stream.pieces(bytes) {
            let at_ns = stream.arrival(lock(&stream.state).to_server.last_ns);
            lock(&stream.state).to_server.last_ns = at_ns;
            let (to, piece) = (Arc::clone(stream), piece.to_vec());
            stream.world.schedule_at(at_ns, move || {
                let mut state = lock(&to.state);
                if !state.reset {
                    state.to_server.arrived.extend(piece);
                    drop(state);
                    to.stir();
                }
            });
        }
    }

    /// Sends nothing more.
    pub fn close(&self) {
        let stream = &self.0;
        let at_ns = stream.arrival(lock(&stream.state).to_server.last_ns);
        let to = Arc::clone(stream);
        stream.world.schedule_at(at_ns, move || to.end_to_server());
    }

    /// The connection breaks for the client. The server notices it after this time; until then it
    /// reads bytes under way, and its answers are lost.
    pub fn break_off(&self, server_hears_ns: u64) {
        let stream = &self.0;
        lock(&stream.state).client_gone = true;
        stream.world.wake(&stream.client);
        let of = Arc::clone(stream);
        stream.world.schedule(server_hears_ns, move || {
            lock(&of.state).reset = true;
            of.stir();
        });
    }

    /// Appends the arrived bytes to `into`; without any, returns whether more can come.
    pub fn take(&self, into: &mut Vec<u8>) -> std::result::Result<(), Ended> {
        let stream = &self.0;
        let mut state = lock(&stream.state);
        let taken = state.to_client.arrived.len();
        into.extend(state.to_client.arrived.drain(..));
        state.unread -= taken;
        let (over, ended) = (state.client_gone, state.to_client.ended);
        let was_blocked = taken > 0 && std::mem::take(&mut state.blocked);
        drop(state);
        if was_blocked {
            stream.stir();
        }
        match taken {
            0 if over || (ended && stream.events().are_over()) => Err(Ended::Broken),
            0 if ended => Err(Ended::Closed),
            _ => Ok(()),
        }
    }

    /// The next arriving data wakes this task.
    pub fn set_waiting(&self, task: Option<u64>) {
        *lock(&self.0.client) = task;
    }
}

/// The server's end. Dropping it closes the stream.
pub struct ServerEnd(Arc<Stream>);

/// A stream for a thread to serve.
pub struct Accepted {
    /// The stream.
    pub stream: ServerEnd,
    /// The state of the thread that served it before.
    pub connection: Option<Box<Connection<Resp>>>,
}

impl ServerEnd {
    /// Another thread serves the stream from now on: this one gets no more of its events.
    pub fn hand_over(self, to: &Arc<Events>, connection: Connection<Resp>) {
        let from = std::mem::replace(&mut *lock(&self.0.events), Arc::clone(to));
        let slot = lock(&self.0.state).slot.take();
        if let Some(slot) = slot {
            lock(&from.stirred).remove(&slot);
            lock(&from.ended).remove(&slot);
        }
        let world = self.0.world.clone();
        let accepted = Accepted { stream: self, connection: Some(Box::new(connection)) };
        lock(&to.accepted).push_back(accepted);
        world.wake(&to.waiting);
    }

    /// The server has accepted the stream.
    pub fn accept(&self, slot: usize) {
        let is_ended = {
            let mut state = lock(&self.0.state);
            state.slot = Some(slot);
            state.to_server.ended
        };
        if is_ended {
            self.0.end_to_server();
        }
    }

    fn is_cut(&self) -> bool {
        self.0.events().are_over()
    }
}

impl Read for ServerEnd {
    /// Less than asked for means that nothing more has arrived, as with a socket.
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let mut state = lock(&self.0.state);
        if state.reset || self.is_cut() {
            return Err(Error::from(ErrorKind::ConnectionReset));
        }
        let Direction { arrived, ended, .. } = &mut state.to_server;
        let bytes = arrived.len().min(into.len());
        if bytes == 0 && !*ended {
            return Err(Error::from(ErrorKind::WouldBlock));
        }
        into.iter_mut().zip(arrived.drain(..bytes)).for_each(|(to, byte)| *to = byte);
        Ok(bytes)
    }
}

impl ByteStream for ServerEnd {}

impl Write for ServerEnd {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let stream = &self.0;
        let room = {
            let mut state = lock(&stream.state);
            if state.reset || self.is_cut() {
                return Err(Error::from(ErrorKind::BrokenPipe));
            }
            let room = stream.options.bytes.saturating_sub(state.unread);
            state.blocked = room == 0;
            room
        };
        if room == 0 {
            return Err(Error::from(ErrorKind::WouldBlock));
        }
        let bytes = &bytes[..bytes.len().min(room)];
        lock(&stream.state).unread += bytes.len();
        for piece in stream.pieces(bytes) {
            let at_ns = stream.arrival(lock(&stream.state).to_client.last_ns);
            lock(&stream.state).to_client.last_ns = at_ns;
            let (to, piece) = (Arc::clone(stream), piece.to_vec());
            stream.world.schedule_at(at_ns, move || {
                let mut state = lock(&to.state);
                if !state.client_gone {
                    state.to_client.arrived.extend(piece);
                }
                drop(state);
                to.world.wake(&to.client);
            });
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Drop for ServerEnd {
    fn drop(&mut self) {
        let stream = Arc::clone(&self.0);
        let at_ns = stream.arrival(lock(&stream.state).to_client.last_ns);
        self.0.world.schedule_at(at_ns, move || {
            lock(&stream.state).to_client.ended = true;
            stream.world.wake(&stream.client);
        });
    }
}

//! An agent executes the READs and WRITEs of clients over TCP on the server's memory, takes the
//! entries of the completion queues of clients over RDMA, marks both kinds of clients as ready at
//! the shards to which they write, and wakes these shards.
//!
//! Each shard's thread drives one agent, with its own set of descriptors: the agent executes a
//! client's operations in the turn in which it receives them. Invariants of the agent:
//! * a connection belongs to one agent;
//! * a turn takes one bounded turn of each of some connections, round-robin: a
//!   busy one does not keep the others waiting, and all of them do not keep the
//!   shard from its other work;
//! * another shard is woken once for the frames of a turn, not once for each.

use crate::agent_inbox::{AgentInbox, Served};
use crate::shared::{AgentCounts, Shared};
use crate::thread_counts::{count, count_alone};
use remora_fabric::LinkError;
use remora_fabric::remote::RemoteConnection;
use remora_fabric::shm::Sleeper;
use remora_fabric::tcp::{Progress, ReceiveBuffer, State};
use remora_layout::limits::{
    AGENT_CONNECTIONS_PER_TURN, AGENT_READ_BYTES_PER_TURN, FRAMES_PER_TURN, MAX_SHARDS,
};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Chooses the agent of a new connection: the one with the fewest connections, which then counts
/// this one.
pub fn choose_agent(shared: &Shared) -> usize {
    let agents = shared.agents.iter().enumerate();
    let load = |(_, counts): &(usize, &AgentCounts)| counts.connections.load(Ordering::Relaxed);
    let (number, counts) = agents.min_by_key(load).expect("there is one for each shard");
    count(&counts.connections, 1);
    number
}

/// The descriptors that become ready when the agent has work. Other threads may end a queue pair,
/// which completes nothing: the end has a descriptor of its own.
fn watched(connection: &RemoteConnection) -> [Option<BorrowedFd<'_>>; 2] {
    match connection {
        RemoteConnection::Tcp(connection) => [Some(connection.as_fd()), None],
        RemoteConnection::Verbs(connection) => {
            [Some(connection.as_fd()), Some(connection.end_fd())]
        }
    }
}

/// One of its connections.
struct Client {
    served: Served,
    /// It is in the list of connections that may have more to do.
    is_queued: bool,
    /// An event has reported that the peer sends no more.
    is_hung_up: bool,
}

/// Shards to be woken, as bits, and the frames that are for them.
#[derive(Default)]
struct Rings {
    shards: u64,
    frames: usize,
}

const _: () = assert!(MAX_SHARDS <= u64::BITS as usize);

/// The outcome of a turn.
#[derive(Clone, Copy, Default)]
pub struct Moved {
    /// Connections that had their turn.
    pub connections: u64,
    /// Frames that they had sent.
    pub frames: usize,
    /// READ bytes that they were answered.
    read_bytes: usize,
}

/// The agent's names for descriptors begin here; those of the RESP connections of
/// its thread end below.
pub const FIRST_TOKEN: u64 = 1 << 32;

/// See the module's text.
pub struct Agent {
    shared: Arc<Shared>,
    /// The agent's number within the server.
    number: usize,
    clients: HashMap<u64, Client>,
    next_token: u64,
    /// Connections that may have more to do, in turn.
    queued: VecDeque<u64>,
    buffer: ReceiveBuffer,
    rings: Rings,
}

impl Agent {
    /// The agent of the shard with this number, without connections.
    pub fn new(shared: Arc<Shared>, number: usize) -> Self {
        Self {
            shared,
            number,
            clients: HashMap::new(),
            next_token: FIRST_TOKEN,
            queued: VecDeque::new(),
            buffer: ReceiveBuffer::default(),
            rings: Rings::default(),
        }
    }

    /// Whether it has no connections.
    pub fn is_idle(&self) -> bool {
        self.clients.is_empty()
    }

    /// Whether a turn would find something, as far as is known without an event.
    pub fn has_work(&self) -> bool {
        !self.queued.is_empty() || !self.inbox().is_empty()
    }

    fn inbox(&self) -> &Arc<AgentInbox> {
        &self.shared.shards[self.number].agent
    }

    /// A descriptor that was registered under this token is ready; its peer
    /// sends no more, if `is_hung_up`.
    pub fn on_event(&mut self, token: u64, is_hung_up: bool) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        client.is_hung_up |= is_hung_up;
        queue(&mut self.queued, token, client);
    }

    /// Takes in a new connection, then a bounded turn of each of some that may have
    /// something to do.
    pub fn turn(&mut self, sleeper: &Sleeper) -> Moved {
        if let Some(served) = self.inbox().next_served() {
            self.adopt(served, sleeper);
        }
        for _ in 0..AGENT_CONNECTIONS_PER_TURN {
            let Some(token) = self.inbox().next_wanted() else { break };
            self.on_event(token, false);
        }
        let mut moved = Moved::default();
        for _ in 0..self.queued.len().min(AGENT_CONNECTIONS_PER_TURN) {
            let Some(token) = self.queued.pop_front() else { break };
            self.serve(token, sleeper, &mut moved);
            if moved.read_bytes >= AGENT_READ_BYTES_PER_TURN {
                break;
            }
        }
        if moved.connections > 0 {
            self.wake_shards();
            count_alone(&self.shared.agents[self.number].turns, moved.connections);
        }
        moved
    }

    fn adopt(&mut self, served: Served, sleeper: &Sleeper) {
        let token = self.next_token;
        self.next_token += 1;
        for fd in watched(&served.connection).into_iter().flatten() {
            let watched = match &served.connection {
                RemoteConnection::Tcp(_) => sleeper.watch_stream(fd, token),
                RemoteConnection::Verbs(_) => sleeper.watch_source(fd, token),
            };
            if let Err(error) = watched {
                tracing::warn!(%error, session = served.session, "cannot watch a connection");
                return self.end(&served, sleeper);
            }
        }
        if let RemoteConnection::Tcp(connection) = &served.connection {
            let inbox = Arc::clone(self.inbox());
            connection.set_wake_agent(move || inbox.want(token));
        }
        let mut client = Client { served, is_queued: false, is_hung_up: false };
        // Data that has already arrived may raise no further event.
        queue(&mut self.queued, token, &mut client);
        self.clients.insert(token, client);
    }

    /// One bounded turn of a connection.
    fn serve(&mut self, token: u64, sleeper: &Sleeper, moved: &mut Moved) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        client.is_queued = false;
        moved.connections += 1;
        let (shared, rings) = (&self.shared, &mut self.rings);
        let marks = &client.served.marks;
        let (state, takes_more, completed) = match &client.served.connection {
            RemoteConnection::Tcp(connection) => {
                let told = &mut |imm| {
                    if let Some(shard) = shared.mark(marks, imm) {
                        rings.shards |= 1 << shard;
                        rings.frames += 1;
                    }
                };
                let Progress { state, frames, read_bytes } =
                    connection.serve(&mut self.buffer, client.is_hung_up, told);
                moved.frames += frames;
                moved.read_bytes += read_bytes;
                (state, connection.takes_more_again(), connection.take_completed())
            }
            RemoteConnection::Verbs(connection) => {
                connection.serve();
                let ended = connection.failure().map_or(State::Idle, State::Failed);
                (ended, connection.takes_more_again(), connection.take_completed())
            }
        };
        // Replicas have stored what these shards wait for.
        rings.shards |= completed;
        if takes_more {
            // Some shard has a large value for it.
            rings.shards |= u64::MAX >> (MAX_SHARDS - shared.shards.len());
        }
        match state {
            State::Failed(LinkError::Disconnected) => self.remove(token, sleeper),
            State::Idle => {}
            State::More => queue(&mut self.queued, token, client),
            State::Closed => self.remove(token, sleeper),
            State::Failed(reason) => {
                let session = client.served.session;
                tracing::warn!(session, %reason, "a connection broke off");
                self.remove(token, sleeper);
            }
        }
        // The other shards need not wait for the rest.
        if self.rings.frames >= FRAMES_PER_TURN {
            self.wake_shards();
        }
    }

    /// Wakes the other shards that something has come for. The agent's own is awake.
    fn wake_shards(&mut self) {
        let Rings { mut shards, .. } = std::mem::take(&mut self.rings);
        shards &= !(1 << self.number);
        let counts = &self.shared.agents[self.number];
        while shards != 0 {
            let shard = shards.trailing_zeros() as usize;
            shards &= shards - 1;
            let had_to_signal = self.shared.shards[shard].inbox.ring();
            count_alone(&counts.rings, 1);
            count_alone(&counts.signals, had_to_signal as u64);
        }
    }

    fn remove(&mut self, token: u64, sleeper: &Sleeper) {
        let Some(client) = self.clients.remove(&token) else { return };
        self.end(&client.served, sleeper);
    }

    /// Stops watching a connection, and ends it.
    fn end(&self, served: &Served, sleeper: &Sleeper) {
        for fd in watched(&served.connection).into_iter().flatten() {
            sleeper.forget(fd);
        }
        served.connection.close();
        served.has_ended.store(true, Ordering::Release);
        let counts = &self.shared.agents[self.number];
        counts.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.wake_control();
    }
}

/// Enters a connection among those that may have more to do.
fn queue(queued: &mut VecDeque<u64>, token: u64, client: &mut Client) {
    if !std::mem::replace(&mut client.is_queued, true) {
        queued.push_back(token);
    }
}

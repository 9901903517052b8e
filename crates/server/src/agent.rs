//! An agent: executes the READs and WRITEs of clients that come by TCP on the
//! server's memory, and wakes the shards that clients over TCP and RDMA write
//! to. So a READ over TCP costs the server's CPU, but not a shard's.
//!
//! An agent is driven by whoever waits for descriptors: today a thread of its
//! own (`agent_thread`). The driver registers what [`Agent::adopt`] asks for,
//! tells events by [`Agent::on_event`], and calls [`Agent::turn`] while
//! [`Agent::has_work`]. What it keeps true:
//! * a connection belongs to one agent;
//! * a turn takes one receive from each connection that may have something, so
//!   that a busy one does not keep the others waiting;
//! * a shard is woken once for the frames of a turn, not once for each.

use crate::shared::{AgentCounts, Shared, count};
use crossbeam_queue::SegQueue;
use remora_fabric::LinkError;
use remora_fabric::far::Carrier;
use remora_fabric::tcp::{ReceiveBuffer, State};
use remora_layout::limits::{FRAMES_PER_TURN, MAX_SHARDS};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A connection for an agent to serve.
pub struct Served {
    /// The connection.
    pub carrier: Carrier,
    /// The session's number.
    pub session: u64,
    /// Set by the agent when the connection is at its end.
    pub has_ended: Arc<AtomicBool>,
}

/// How other threads reach an agent.
pub struct AgentInbox {
    new: SegQueue<Served>,
    /// Connections that want a turn although no event says so.
    wanted: SegQueue<u64>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl AgentInbox {
    /// The inbox of an agent whose driver `wake` wakes.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { new: SegQueue::new(), wanted: SegQueue::new(), wake: Box::new(wake) })
    }

    /// Lets the agent look around.
    pub fn wake(&self) {
        (self.wake)();
    }
}

/// The agents of a server. A connection goes to the one that has the fewest.
pub struct Agents {
    shared: Arc<Shared>,
    inboxes: Vec<Arc<AgentInbox>>,
}

impl Agents {
    /// These, by number, one at least.
    pub fn new(shared: Arc<Shared>, inboxes: Vec<Arc<AgentInbox>>) -> Self {
        assert!(!inboxes.is_empty(), "a server has an agent");
        Self { shared, inboxes }
    }

    /// Gives an agent a connection.
    pub fn serve(&self, served: Served) {
        let agents = self.shared.agents.iter().zip(&self.inboxes);
        let load = |(counts, _): &(&AgentCounts, _)| counts.connections.load(Ordering::Relaxed);
        let (counts, inbox) = agents.min_by_key(load).expect("there is one");
        count(&counts.connections, 1);
        inbox.new.push(served);
        inbox.wake();
    }
}

/// What waits for an agent's descriptors.
pub trait Watcher {
    /// Tells of this descriptor, edge-triggered, under this token: readable, and
    /// writable if that is wanted.
    ///
    /// # Errors
    /// The kernel's.
    fn watch(&self, fd: BorrowedFd<'_>, token: u64, writable: bool) -> std::io::Result<()>;

    /// No longer tells of it.
    fn forget(&self, fd: BorrowedFd<'_>);
}

/// What becomes ready when there is something to do. The end of a queue pair,
/// which others than the agent may bring about, completes nothing: it has a
/// descriptor of its own.
fn watched(carrier: &Carrier) -> [Option<BorrowedFd<'_>>; 2] {
    match carrier {
        Carrier::Tcp(connection) => [Some(connection.as_fd()), None],
        Carrier::Verbs(connection) => [Some(connection.as_fd()), Some(connection.end_fd())],
    }
}

/// One of its connections.
struct Client {
    served: Served,
    /// It stands in the list of those that may have more to do.
    is_queued: bool,
    /// An event has told that the peer sends no more.
    is_hung_up: bool,
}

/// Shards to be woken, as bits, and the frames that are for them.
#[derive(Default)]
struct Rings {
    shards: u64,
    frames: usize,
}

const _: () = assert!(MAX_SHARDS <= u64::BITS as usize);

/// See the module's text.
pub struct Agent {
    shared: Arc<Shared>,
    /// Which of the server's agents it is.
    number: usize,
    inbox: Arc<AgentInbox>,
    clients: HashMap<u64, Client>,
    next_token: u64,
    /// Connections that may have more to do.
    queued: Vec<u64>,
    buffer: ReceiveBuffer,
    rings: Rings,
}

impl Agent {
    /// An agent without connections, whose tokens begin with this one.
    pub fn new(
        shared: Arc<Shared>,
        number: usize,
        inbox: Arc<AgentInbox>,
        first_token: u64,
    ) -> Self {
        Self {
            shared,
            number,
            inbox,
            clients: HashMap::new(),
            next_token: first_token,
            queued: Vec::new(),
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
        !self.queued.is_empty() || !self.inbox.new.is_empty() || !self.inbox.wanted.is_empty()
    }

    /// A descriptor that was registered under this token is ready; its peer
    /// sends no more, if `is_hung_up`.
    pub fn on_event(&mut self, token: u64, is_hung_up: bool) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        client.is_hung_up |= is_hung_up;
        queue(&mut self.queued, token, client);
    }

    /// Takes in new connections, then one bounded turn of each that may have
    /// something to do. Whether there was any.
    pub fn turn(&mut self, watcher: &impl Watcher) -> bool {
        while let Some(served) = self.inbox.new.pop() {
            self.adopt(served, watcher);
        }
        while let Some(token) = self.inbox.wanted.pop() {
            self.on_event(token, false);
        }
        let due = std::mem::take(&mut self.queued);
        for &token in &due {
            self.serve(token, watcher);
        }
        self.wake_shards();
        count(&self.shared.agents[self.number].turns, due.len() as u64);
        !due.is_empty()
    }

    fn adopt(&mut self, served: Served, watcher: &impl Watcher) {
        let token = self.next_token;
        self.next_token += 1;
        let is_writer = matches!(served.carrier, Carrier::Tcp(_));
        for fd in watched(&served.carrier).into_iter().flatten() {
            if let Err(error) = watcher.watch(fd, token, is_writer) {
                tracing::warn!(%error, session = served.session, "cannot watch a connection");
                return self.end(&served, watcher);
            }
        }
        if let Carrier::Tcp(connection) = &served.carrier {
            let inbox = Arc::clone(&self.inbox);
            connection.set_wake_agent(move || {
                inbox.wanted.push(token);
                inbox.wake();
            });
        }
        let mut client = Client { served, is_queued: false, is_hung_up: false };
        // What has already arrived may raise no further event.
        queue(&mut self.queued, token, &mut client);
        self.clients.insert(token, client);
    }

    /// One bounded turn of a connection.
    fn serve(&mut self, token: u64, watcher: &impl Watcher) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        client.is_queued = false;
        let (shared, rings) = (&self.shared, &mut self.rings);
        let (state, takes_more) = match &client.served.carrier {
            Carrier::Tcp(connection) => {
                let told = &mut |imm| {
                    if let Some(shard) = shared.shard_of(imm) {
                        rings.shards |= 1 << shard;
                        rings.frames += 1;
                    }
                };
                let progress = connection.serve(&mut self.buffer, client.is_hung_up, told);
                (progress.state, connection.takes_more_again())
            }
            Carrier::Verbs(connection) => {
                connection.serve();
                let ended = connection.failure().map_or(State::Idle, State::Failed);
                (ended, connection.takes_more_again())
            }
        };
        if takes_more {
            // Some shard has a large value for it.
            rings.shards |= u64::MAX >> (MAX_SHARDS - shared.shards.len());
        }
        match state {
            State::Failed(LinkError::Disconnected) => self.remove(token, watcher),
            State::Idle => {}
            State::More => queue(&mut self.queued, token, client),
            State::Closed => self.remove(token, watcher),
            State::Failed(reason) => {
                let session = client.served.session;
                tracing::warn!(session, %reason, "a connection broke off");
                self.remove(token, watcher);
            }
        }
        // The shards need not wait for what is still to be received.
        if self.rings.frames >= FRAMES_PER_TURN {
            self.wake_shards();
        }
    }

    /// Wakes the shards that something has come for.
    fn wake_shards(&mut self) {
        let Rings { mut shards, .. } = std::mem::take(&mut self.rings);
        let counts = &self.shared.agents[self.number];
        while shards != 0 {
            let shard = shards.trailing_zeros() as usize;
            shards &= shards - 1;
            let had_to_signal = self.shared.shards[shard].inbox.ring();
            count(&counts.rings, 1);
            count(&counts.signals, had_to_signal as u64);
        }
    }

    fn remove(&mut self, token: u64, watcher: &impl Watcher) {
        let Some(client) = self.clients.remove(&token) else { return };
        self.end(&client.served, watcher);
    }

    /// No longer watches a connection, and ends it.
    fn end(&self, served: &Served, watcher: &impl Watcher) {
        for fd in watched(&served.carrier).into_iter().flatten() {
            watcher.forget(fd);
        }
        served.carrier.close();
        served.has_ended.store(true, Ordering::Release);
        let counts = &self.shared.agents[self.number];
        counts.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.wake_control();
    }
}

/// Enters a connection among those that may have more to do.
fn queue(queued: &mut Vec<u64>, token: u64, client: &mut Client) {
    if !std::mem::replace(&mut client.is_queued, true) {
        queued.push(token);
    }
}

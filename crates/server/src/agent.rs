//! The agent of clients that come by TCP: executes their READs and WRITEs on
//! the server's memory, and wakes the shards that they write to. So a READ
//! over TCP costs the server's CPU, but not a shard's.

use crate::config::Wake;
use crate::polling::Polling;
use crate::shared::Shared;
use crossbeam_queue::SegQueue;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use remora_fabric::LinkError;
use remora_fabric::far::Carrier;
use remora_fabric::tcp::State;
use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WAKER: Token = Token(0);
const FIRST_CONNECTION: usize = 1;

/// A connection for the agent to serve.
pub struct Served {
    /// The connection.
    pub carrier: Carrier,
    /// The session's number.
    pub session: u64,
    /// Set by the agent when the connection is at its end.
    pub has_ended: Arc<AtomicBool>,
}

/// How the control thread reaches the agent.
pub struct AgentInbox {
    new: SegQueue<Served>,
    waker: Waker,
}

impl AgentInbox {
    /// Gives the agent a connection.
    pub fn serve(&self, served: Served) {
        self.new.push(served);
        self.wake();
    }

    /// Lets the agent look around.
    pub fn wake(&self) {
        // Fails only if the poll is gone, and then nobody waits.
        let _ = self.waker.wake();
    }
}

/// What becomes ready when there is something to do. The end of a queue pair,
/// which others than the agent may bring about, completes nothing: it has a
/// descriptor of its own.
fn watched(carrier: &Carrier) -> [Option<RawFd>; 2] {
    match carrier {
        Carrier::Tcp(connection) => [Some(connection.as_raw_fd()), None],
        Carrier::Verbs(connection) => {
            [connection.as_fd(), connection.end_fd()].map(|fd| Some(fd.as_raw_fd()))
        }
    }
}

/// The agent's state.
pub struct Agent {
    shared: Arc<Shared>,
    poll: Poll,
    inbox: Arc<AgentInbox>,
    connections: HashMap<Token, Served>,
    next_token: usize,
    /// Connections that may have more to do, although no event will say so.
    unfinished: BTreeSet<Token>,
}

impl Agent {
    /// An agent without connections.
    ///
    /// # Errors
    /// The kernel gives no poll or waker.
    pub fn new(shared: Arc<Shared>) -> std::io::Result<(Self, Arc<AgentInbox>)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let inbox = Arc::new(AgentInbox { new: SegQueue::new(), waker });
        let agent = Self {
            shared,
            poll,
            inbox: Arc::clone(&inbox),
            connections: HashMap::new(),
            next_token: FIRST_CONNECTION,
            unfinished: BTreeSet::new(),
        };
        Ok((agent, inbox))
    }

    /// Runs until the server is to end. The control thread, which ends first,
    /// has withdrawn and closed every connection by then.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(256);
        let mut polling = Polling::new(self.shared.config.wake != Wake::Event);
        while !self.shared.is_stopping() || !self.connections.is_empty() {
            let polls = !self.unfinished.is_empty() || polling.polls_on(Instant::now());
            let timeout = polls.then_some(Duration::ZERO);
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                panic!("the agent cannot poll: {error}");
            }
            self.unfinished.extend(events.iter().map(|event| event.token()));
            while let Some(served) = self.inbox.new.pop() {
                self.take(served);
            }
            if self.unfinished.is_empty() {
                continue;
            }
            for token in std::mem::take(&mut self.unfinished) {
                self.turn(token);
            }
            polling.worked(Instant::now());
        }
    }

    fn take(&mut self, served: Served) {
        let token = Token(self.next_token);
        self.next_token += 1;
        let interest = match served.carrier {
            Carrier::Tcp(_) => Interest::READABLE | Interest::WRITABLE,
            Carrier::Verbs(_) => Interest::READABLE,
        };
        for fd in watched(&served.carrier).into_iter().flatten() {
            if let Err(error) = self.poll.registry().register(&mut SourceFd(&fd), token, interest) {
                tracing::warn!(%error, session = served.session, "cannot watch a connection");
                return self.end(served);
            }
        }
        self.connections.insert(token, served);
        // What has already arrived raises no further event.
        self.unfinished.insert(token);
    }

    /// One bounded turn of a connection.
    fn turn(&mut self, token: Token) {
        let Some(served) = self.connections.get(&token) else { return };
        let shards = &self.shared.shards;
        let (state, takes_more) = match &served.carrier {
            Carrier::Tcp(connection) => {
                let progress = connection.serve(&mut |imm| self.shared.ring(imm));
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
            shards.iter().for_each(|shard| shard.inbox.ring());
        }
        match state {
            State::Failed(LinkError::Disconnected) => self.remove(token),
            State::Idle => {}
            State::More => {
                self.unfinished.insert(token);
            }
            State::Closed => self.remove(token),
            State::Failed(reason) => {
                tracing::warn!(session = served.session, %reason, "a connection broke off");
                self.remove(token);
            }
        }
    }

    fn remove(&mut self, token: Token) {
        let Some(served) = self.connections.remove(&token) else { return };
        self.end(served);
    }

    /// No longer watches a connection, and ends it.
    fn end(&self, served: Served) {
        for fd in watched(&served.carrier).into_iter().flatten() {
            // It fails where it was not watched.
            let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
        }
        served.carrier.close();
        served.has_ended.store(true, Ordering::Release);
        self.shared.wake_control();
    }
}

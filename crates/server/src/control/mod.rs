//! The control thread: grants sessions over the Unix socket, writes
//! heartbeats, and notices when a client has gone.
//!
//! A heartbeat copies the client's clock first, then checks that the server
//! is still the primary, then echoes: the reading right of the client counts
//! from the echoed clock (design, "What a late reader may do").

mod doors;
mod hello;

use crate::accept::ACCEPTS_PER_TURN;
use crate::agent::AgentInbox;
use crate::session::Session;
use crate::shared::{Shared, count};
use crate::utilisation::Utilisation;
use doors::{Arrival, Door, Listener, Socket};
use mio::net::{TcpListener, UnixListener};
use mio::{Events, Interest, Poll, Token};
use remora_fabric::detect::Offer;
use remora_fabric::refusal;
use remora_fabric::verbs::Welcome;
use remora_layout::hello::{Refusal, ServerHello};
use remora_layout::limits::{HEARTBEAT_MS, IDLE_HEARTBEAT_MS};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const UNIX_LISTENER: Token = Token(0);
/// Wakes the thread when the server or a session is to end.
pub const WAKER: Token = Token(1);
const TCP_LISTENER: Token = Token(2);
const FIRST_CLIENT: usize = 3;
/// A client that does not send its hello within this time is cut off.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Without any active client for this long, the server looks for one more
/// seldom. The first operation after a pause is asked, and its reply's right
/// outlasts the longer wait.
const IDLE_AFTER: Duration = Duration::from_secs(1);

struct Client {
    /// `None` once the agent serves it.
    socket: Option<Socket>,
    since: Instant,
    /// `None` until the hello is complete.
    session: Option<Session>,
    /// What it has said: its hello, or its side of a queue pair.
    said: Vec<u8>,
    /// It has said hello and is to tell of its side.
    welcome: Option<Box<Welcomed>>,
}

/// A client that gets a session over RDMA.
struct Welcomed {
    welcome: Welcome,
    granted: ServerHello,
    pid: u32,
}

/// The control thread's state.
pub struct Control {
    shared: Arc<Shared>,
    poll: Poll,
    doors: Vec<Door>,
    agent: Arc<AgentInbox>,
    clients: HashMap<Token, Client>,
    next_token: usize,
    next_session: u64,
    utilisation: Utilisation,
    /// When some client's clock was last seen to have moved.
    last_moved: Instant,
}

impl Control {
    /// A control thread for listening sockets. `poll` also carries the waker
    /// with the token [`WAKER`].
    pub fn new(
        shared: Arc<Shared>,
        poll: Poll,
        mut unix: UnixListener,
        mut tcp: Option<TcpListener>,
        agent: Arc<AgentInbox>,
    ) -> std::io::Result<Self> {
        poll.registry().register(&mut unix, UNIX_LISTENER, Interest::READABLE)?;
        if let Some(tcp) = &mut tcp {
            poll.registry().register(tcp, TCP_LISTENER, Interest::READABLE)?;
        }
        let listeners = [Some(Listener::Unix(unix)), tcp.map(Listener::Tcp)];
        let doors = listeners.into_iter().flatten().map(Door::new).collect();
        // Read once, while there are descriptors for it.
        let _ = Offer::of_this_process(true, true, false);
        Ok(Self {
            shared,
            poll,
            doors,
            agent,
            clients: HashMap::new(),
            next_token: FIRST_CLIENT,
            next_session: 1,
            utilisation: Utilisation::new(),
            last_moved: Instant::now(),
        })
    }

    /// Runs until the server is to end, then withdraws every session.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(256);
        let mut next_beat = Instant::now();
        while !self.shared.is_stopping() {
            // Without clients nobody needs heartbeats: sleep for ever.
            let timeout = (!self.clients.is_empty())
                .then(|| next_beat.saturating_duration_since(Instant::now()));
            let timeout = self.doors.iter().fold(timeout, |timeout, door| door.bound(timeout));
            if let Err(error) = self.poll.poll(&mut events, timeout) {
                if error.kind() == ErrorKind::Interrupted {
                    continue;
                }
                tracing::error!(%error, "the control thread cannot poll");
                break;
            }
            for event in &events {
                match event.token() {
                    UNIX_LISTENER => self.accept(0),
                    TCP_LISTENER => self.accept(1),
                    WAKER => self.end_sessions(),
                    token => self.read(token),
                }
            }
            for door in 0..self.doors.len() {
                if self.doors[door].is_due() {
                    self.accept(door);
                }
            }
            let now = Instant::now();
            if now >= next_beat {
                self.beat(now);
                let idle = now.duration_since(self.last_moved) > IDLE_AFTER;
                let pause_ms = if idle { IDLE_HEARTBEAT_MS } else { HEARTBEAT_MS };
                next_beat = now + Duration::from_millis(pause_ms);
            }
        }
        let tokens: Vec<Token> = self.clients.keys().copied().collect();
        for token in tokens {
            self.end(token, "the server is shutting down");
        }
    }

    /// Takes in who waits at a door, up to a bound.
    fn accept(&mut self, door: usize) {
        let no_resources = refusal(Refusal::NoResources, self.offer());
        for _ in 0..ACCEPTS_PER_TURN {
            let refused = &self.shared.counts.sessions_refused;
            let mut socket = match self.doors[door].accept(&no_resources, refused) {
                Arrival::Client(socket) => socket,
                Arrival::TurnedAway => continue,
                Arrival::Nobody => return,
            };
            let token = Token(self.next_token);
            self.next_token += 1;
            if let Err(error) =
                self.poll.registry().register(socket.source(), token, Interest::READABLE)
            {
                tracing::warn!(%error, "cannot watch a client");
                continue;
            }
            let client = Client {
                socket: Some(socket),
                since: Instant::now(),
                session: None,
                said: Vec::new(),
                welcome: None,
            };
            self.clients.insert(token, client);
            // What has already arrived raises no further event.
            self.read(token);
        }
        self.doors[door].turn_ended();
    }

    fn end(&mut self, token: Token, why: &str) {
        let Some(mut client) = self.clients.remove(&token) else { return };
        if let Some(socket) = &mut client.socket {
            let _ = self.poll.registry().deregister(socket.source());
        }
        let Some(session) = client.session else { return };
        session.withdraw(&self.shared);
        self.shared.counts.sessions_by(session.transport()).fetch_sub(1, Ordering::Relaxed);
        tracing::info!(session = session.number, why, "session ended");
    }

    /// Ends the sessions whose peers broke the protocol at a shard, and those
    /// whose connections have ended.
    fn end_sessions(&mut self) {
        let at_end = |(token, client): (&Token, &Client)| {
            Some((*token, client.session.as_ref().and_then(Session::end)?))
        };
        let ended: Vec<_> = self.clients.iter().filter_map(at_end).collect();
        for (token, why) in ended {
            self.end(token, why);
        }
    }

    /// Heartbeats for all who are active, and an end to those who never said
    /// hello.
    fn beat(&mut self, now: Instant) {
        self.utilisation.measure(&self.shared.shards, now);
        let tokens: Vec<Token> = self.clients.keys().copied().collect();
        for token in tokens {
            let client = &self.clients[&token];
            match &client.session {
                Some(session) if session.clock_has_moved() => {
                    self.last_moved = now;
                    self.beat_one(token);
                }
                Some(_) => {}
                None if now - client.since > HELLO_TIMEOUT => {
                    count(&self.shared.counts.hellos_timed_out, 1);
                    self.end(token, "it did not say hello");
                }
                None => {}
            }
        }
    }

    fn beat_one(&mut self, token: Token) {
        let session = self.clients.get_mut(&token).and_then(|client| client.session.as_mut());
        if let Some(session) = session {
            session.beat(&self.shared, self.utilisation.ppm());
        }
    }
}

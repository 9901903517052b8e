//! The control thread: grants sessions over the Unix socket, writes
//! heartbeats, and notices when a client has gone.
//!
//! A heartbeat copies the client's clock first, then checks that the server
//! is still the primary, then echoes: the reading right of the client counts
//! from the echoed clock (design, "What a late reader may do").

use crate::accept::{ACCEPTS_PER_TURN, Gate};
use crate::jobs::Message;
use crate::random::random_u64;
use crate::ring_session::{RingParts, RingSession};
use crate::shared::{Shared, count};
use crate::utilisation::Utilisation;
use mio::net::{UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Token};
use remora_arena::Words;
use remora_fabric::detect::{Offer, number_of};
use remora_fabric::shm::{Bell, Grant, SessionMemory, decline};
use remora_fabric::{answer, hello_of, refusal};
use remora_layout::hello::{
    ClientHello, HELLO_MAGIC, PROTOCOL_VERSION, Refusal, SOCKET_PATH_BYTES, ServerHello,
    TCP_ADDRESS_BYTES,
};
use remora_layout::limits::{HEARTBEAT_MS, IDLE_HEARTBEAT_MS, MAX_SESSIONS};
use remora_layout::session::{CLIENT_CLOCK_WORD, HEARTBEAT_WORD, Heartbeat};
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LISTENER: Token = Token(0);
/// Wakes the thread when the server or a session is to end.
pub const WAKER: Token = Token(1);
const FIRST_CLIENT: usize = 2;
/// A client that does not send its hello within this time is cut off.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Without any active client for this long, the server looks for one more
/// seldom. The first operation after a pause is asked, and its reply's right
/// outlasts the longer wait.
const IDLE_AFTER: Duration = Duration::from_secs(1);

struct Client {
    socket: UnixStream,
    since: Instant,
    /// `None` until the hello is complete.
    session: Option<Session>,
    hello: Vec<u8>,
}

struct Session {
    number: u64,
    memory: SessionMemory,
    to_server: Words,
    to_client: Words,
    /// By which the client wakes each shard.
    eventfds: Vec<Arc<OwnedFd>>,
    beats: u64,
    /// The client's clock as it was last echoed.
    echoed_ns: u64,
    violated: Arc<AtomicBool>,
}

/// The control thread's state.
pub struct Control {
    shared: Arc<Shared>,
    poll: Poll,
    listener: UnixListener,
    gate: Gate,
    clients: HashMap<Token, Client>,
    next_token: usize,
    next_session: u64,
    utilisation: Utilisation,
    /// When some client's clock was last seen to have moved.
    last_moved: Instant,
}

impl Control {
    /// A control thread for a listening socket. `poll` also carries the waker
    /// with the token [`WAKER`].
    pub fn new(
        shared: Arc<Shared>,
        poll: Poll,
        mut listener: UnixListener,
    ) -> std::io::Result<Self> {
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        // Known from now on, whether or not a descriptor is left for asking.
        let _ = offer();
        Ok(Self {
            shared,
            poll,
            listener,
            gate: Gate::new(),
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
            if let Err(error) = self.poll.poll(&mut events, self.gate.bound(timeout)) {
                if error.kind() == ErrorKind::Interrupted {
                    continue;
                }
                tracing::error!(%error, "the control thread cannot poll");
                break;
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    WAKER => self.end_violators(),
                    token => self.read(token),
                }
            }
            if self.gate.is_due() {
                self.accept();
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

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let mut socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.gate.emptied(),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    let counts = &self.shared.counts;
                    let turn_away = || {
                        let (socket, _) = self.listener.accept()?;
                        count(&counts.sessions_refused, 1);
                        // A client that has gone needs no reason.
                        let _ = decline(&socket, &refusal(Refusal::NoResources, offer()));
                        Ok(socket.into())
                    };
                    if self.gate.failed(&error, &self.listener, turn_away) {
                        continue;
                    }
                    return;
                }
            };
            self.gate.passed();
            let token = Token(self.next_token);
            self.next_token += 1;
            if let Err(error) =
                self.poll.registry().register(&mut socket, token, Interest::READABLE)
            {
                tracing::warn!(%error, "cannot watch a client");
                continue;
            }
            let client = Client { socket, since: Instant::now(), session: None, hello: Vec::new() };
            self.clients.insert(token, client);
            // What has already arrived raises no further event.
            self.read(token);
        }
        self.gate.turn_ended();
    }

    /// Reads the hello, or notices the end. After the hello a client has
    /// nothing to say: one that does breaks the protocol.
    fn read(&mut self, token: Token) {
        const HELLO: usize = size_of::<ClientHello>();
        let Some(client) = self.clients.get_mut(&token) else { return };
        let mut bytes = [0u8; HELLO];
        loop {
            let want = HELLO - client.hello.len();
            match client.socket.read(&mut bytes[..want.max(1)]) {
                Ok(0) => return self.end(token, "the client has gone"),
                Ok(_) if client.session.is_some() => {
                    count(&self.shared.counts.sessions_violated, 1);
                    return self.end(token, "it spoke after its hello");
                }
                Ok(read) => {
                    client.hello.extend_from_slice(&bytes[..read]);
                    if let Ok(hello) = <[u8; HELLO]>::try_from(&client.hello[..]) {
                        if let Err(refusal) = self.grant(token, &hello) {
                            self.refuse(token, refusal);
                        }
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.end(token, "its socket failed"),
            }
        }
    }

    fn refuse(&mut self, token: Token, why: Refusal) {
        if let Some(client) = self.clients.remove(&token) {
            count(&self.shared.counts.sessions_refused, 1);
            tracing::warn!(refusal = %why, "refused a session");
            // A client that has gone needs no answer.
            let _ = decline(&client.socket, &refusal(why, offer()));
        }
    }

    fn grant(
        &mut self,
        token: Token,
        hello: &[u8; size_of::<ClientHello>()],
    ) -> Result<(), Refusal> {
        let hello = hello_of(hello)?;
        let chosen = answer(&hello, offer())?;
        let client = self.clients.get_mut(&token).ok_or(Refusal::NotAHello)?;
        let peer = rustix::net::sockopt::socket_peercred(client.socket.as_fd());
        let peer = peer.map_err(|_| Refusal::OtherUser)?;
        if peer.uid != rustix::process::geteuid() {
            return Err(Refusal::OtherUser);
        }
        if self.shared.counts.sessions.load(Ordering::Relaxed) >= MAX_SESSIONS as u64 {
            return Err(Refusal::TooManySessions);
        }
        let shards = self.shared.shards.len();
        let memory = SessionMemory::create(shards).map_err(|error| {
            tracing::error!(%error, "no memory for a session");
            Refusal::NoResources
        })?;
        let number = self.next_session;
        self.next_session += 1;
        let seed = random_u64();
        let table = self.shared.pointer_table.as_ref();
        let answer = ServerHello {
            magic: HELLO_MAGIC.into(),
            version: PROTOCOL_VERSION.into(),
            refusal: 0.into(),
            session: number.into(),
            life: self.shared.life.into(),
            epoch: self.shared.epoch.into(),
            session_seed: seed.into(),
            hash_seed: self.shared.hash_seed.into(),
            shards: (shards as u32).into(),
            pid: std::process::id().into(),
            pointer_table_seed: table.map_or(0, |table| table.seed).into(),
            offer: offer().to_wire(),
            transport: number_of(chosen).into(),
            reserved: 0.into(),
            socket_path: [0; SOCKET_PATH_BYTES],
            padding: [0; 4],
            tcp_address: [0; TCP_ADDRESS_BYTES],
        };
        let mut eventfds = Vec::with_capacity(shards);
        for _ in 0..shards {
            eventfds.push(Bell::eventfd().map_err(|error| {
                tracing::error!(%error, "no eventfd for a session");
                Refusal::NoResources
            })?);
        }
        let violated = Arc::new(AtomicBool::new(false));
        let (to_server, to_client) = (memory.to_server(), memory.to_client());
        for (shard, handle) in self.shared.shards.iter().enumerate() {
            let parts = RingParts {
                session: number,
                seed,
                shard,
                life: self.shared.life,
                to_server: to_server.clone(),
                to_client: to_client.clone(),
                bell: memory.client_bell(),
                eventfd: Arc::clone(&eventfds[shard]),
                violated: Arc::clone(&violated),
            };
            handle.inbox.push(Message::Attach(Box::new(RingSession::new(parts))));
        }
        client.session = Some(Session {
            number,
            memory,
            to_server,
            to_client,
            eventfds,
            beats: 0,
            echoed_ns: 0,
            violated,
        });
        count(&self.shared.counts.sessions, 1);
        count(&self.shared.counts.sessions_total, 1);
        tracing::info!(
            session = number,
            pid = hello.pid.get(),
            transport = chosen.name(),
            "session granted"
        );
        self.beat_one(token);
        if let Err(error) = self.send_grant(token, &answer) {
            // Gone, or the kernel has too many descriptors under way already.
            tracing::warn!(%error, "a grant could not be sent");
            if let Some(client) = self.clients.get(&token) {
                let _ = decline(&client.socket, &refusal(Refusal::NoResources, offer()));
            }
            self.end(token, "it could not be granted");
        }
        Ok(())
    }

    fn send_grant(&self, token: Token, hello: &ServerHello) -> std::io::Result<()> {
        let Some(client) = self.clients.get(&token) else { return Ok(()) };
        let Some(session) = &client.session else { return Ok(()) };
        let shards: Vec<_> = self
            .shared
            .shards
            .iter()
            .zip(&session.eventfds)
            .map(|(shard, eventfd)| (shard.region.fd(), eventfd.as_fd()))
            .collect();
        let pointer_table = self.shared.pointer_table.as_ref().map(|table| table.region.fd());
        Grant { hello: *hello, memory: &session.memory, shards: &shards, pointer_table }
            .send(&client.socket)
    }

    fn end(&mut self, token: Token, why: &str) {
        let Some(mut client) = self.clients.remove(&token) else { return };
        let _ = self.poll.registry().deregister(&mut client.socket);
        let Some(session) = client.session else { return };
        session.memory.withdraw();
        for shard in &self.shared.shards {
            shard.inbox.push(Message::Detach(session.number));
        }
        self.shared.counts.sessions.fetch_sub(1, Ordering::Relaxed);
        tracing::info!(session = session.number, why, "session ended");
    }

    /// Ends the sessions whose peers broke the protocol at a shard.
    fn end_violators(&mut self) {
        let violators: Vec<Token> = self
            .clients
            .iter()
            .filter(|(_, client)| {
                client.session.as_ref().is_some_and(|s| s.violated.load(Ordering::Acquire))
            })
            .map(|(token, _)| *token)
            .collect();
        for token in violators {
            self.end(token, "it broke the protocol");
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
                Some(session) => {
                    // Who has not written its clock is not reading, and its
                    // right would not be renewed by an echo of the old one.
                    let moved = session.to_server.load(CLIENT_CLOCK_WORD) != session.echoed_ns;
                    if moved {
                        self.last_moved = now;
                        self.beat_one(token);
                    }
                }
                None if now - client.since > HELLO_TIMEOUT => {
                    count(&self.shared.counts.hellos_timed_out, 1);
                    self.end(token, "it did not say hello");
                }
                None => {}
            }
        }
    }

    fn beat_one(&mut self, token: Token) {
        let Some(session) = self.clients.get_mut(&token).and_then(|client| client.session.as_mut())
        else {
            return;
        };
        let echoed_client_clock_ns = session.to_server.load(CLIENT_CLOCK_WORD);
        Words::full_fence();
        // Still the primary? A server that stops is not.
        if self.shared.is_stopping() {
            return;
        }
        session.echoed_ns = echoed_client_clock_ns;
        session.beats += 1;
        let words = Heartbeat {
            sequence: session.beats,
            utilisation_ppm_plus_1: self.utilisation.ppm() + 1,
            life: self.shared.life,
            epoch: self.shared.epoch,
            server_unix_ms: self.shared.clock.now().unix_ms,
            echoed_client_clock_ns,
            session: session.number,
        }
        .to_words();
        let mut bytes = [0u8; Heartbeat::WORDS * 8];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        session.to_client.copy_in(HEARTBEAT_WORD * 8, &bytes);
    }
}

/// What this server offers to clients.
fn offer() -> Offer {
    Offer::of_this_process(true, false)
}

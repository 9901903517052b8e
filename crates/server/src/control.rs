//! The control thread: grants sessions over the Unix socket, writes
//! heartbeats, and notices when a client has gone.
//!
//! A heartbeat copies the client's clock first, then checks that the server
//! is still the primary, then echoes: the reading right of the client counts
//! from the echoed clock (design, "What a late reader may do").

use crate::accept::{ACCEPTS_PER_TURN, Gate};
use crate::agent::AgentInbox;
use crate::random::random_u64;
use crate::session::Session;
use crate::shared::{Shared, count};
use crate::utilisation::Utilisation;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Token};
use remora_fabric::detect::{Offer, Wanted, number_of};
use remora_fabric::shm::decline;
use remora_fabric::{Transport, answer, elsewhere, hello_of, refusal};
use remora_layout::hello::{
    ClientHello, HELLO_MAGIC, PROTOCOL_VERSION, Refusal, SOCKET_PATH_BYTES, ServerHello,
    TCP_ADDRESS_BYTES,
};
use remora_layout::limits::{HEARTBEAT_MS, IDLE_HEARTBEAT_MS, MAX_SESSIONS};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

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
    hello: Vec<u8>,
}

/// Where clients come in.
struct Door {
    listener: Listener,
    gate: Gate,
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn accept(&self) -> std::io::Result<Socket> {
        match self {
            Self::Unix(listener) => listener.accept().map(|(socket, _)| Socket::Unix(socket)),
            Self::Tcp(listener) => listener.accept().map(|(socket, _)| Socket::Tcp(socket)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// Where a client came from.
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        match socket {
            Socket::Unix(socket) => socket.into(),
            Socket::Tcp(socket) => socket.into(),
        }
    }
}

impl Socket {
    /// How its sessions are carried, unless another way is chosen.
    fn transport(&self) -> Transport {
        match self {
            Self::Unix(_) => Transport::Shm,
            Self::Tcp(_) => Transport::Tcp,
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(bytes),
            Self::Tcp(socket) => socket.read(bytes),
        }
    }

    fn source(&mut self) -> &mut dyn mio::event::Source {
        match self {
            Self::Unix(socket) => socket,
            Self::Tcp(socket) => socket,
        }
    }

    /// Sends an answer that grants nothing. A client that has gone needs none.
    fn answer(&mut self, hello: &ServerHello) {
        let sent = match self {
            Self::Unix(socket) => decline(&*socket, hello),
            Self::Tcp(socket) => socket.write_all(hello.as_bytes()),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a client did not wait for its answer");
        }
    }
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
        let door = |listener| Door { listener, gate: Gate::new() };
        let doors = listeners.into_iter().flatten().map(door).collect();
        // Read once, while there are descriptors for it.
        let _ = Offer::of_this_process(true, true);
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
            let timeout = self.doors.iter().fold(timeout, |timeout, door| door.gate.bound(timeout));
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
                if self.doors[door].gate.is_due() {
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

    fn accept(&mut self, door: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let no_resources = refusal(Refusal::NoResources, self.offer());
            let Door { listener, gate } = &mut self.doors[door];
            let mut socket = match listener.accept() {
                Ok(socket) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return gate.emptied(),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    let counts = &self.shared.counts;
                    let turn_away = || {
                        let mut socket = listener.accept()?;
                        count(&counts.sessions_refused, 1);
                        socket.answer(&no_resources);
                        Ok(socket.into())
                    };
                    if gate.failed(&error, &*listener, turn_away) {
                        continue;
                    }
                    return;
                }
            };
            gate.passed();
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
                hello: Vec::new(),
            };
            self.clients.insert(token, client);
            // What has already arrived raises no further event.
            self.read(token);
        }
        self.doors[door].gate.turn_ended();
    }

    /// Reads the hello, or notices the end. After the hello a client over
    /// shared memory has nothing to say: one that does breaks the protocol.
    fn read(&mut self, token: Token) {
        const HELLO: usize = size_of::<ClientHello>();
        let Some(client) = self.clients.get_mut(&token) else { return };
        let Some(socket) = &mut client.socket else { return };
        let mut bytes = [0u8; HELLO];
        loop {
            let want = HELLO - client.hello.len();
            match socket.read(&mut bytes[..want.max(1)]) {
                Ok(0) => return self.end(token, "the client has gone"),
                Ok(_) if client.session.is_some() => {
                    count(&self.shared.counts.sessions_violated, 1);
                    return self.end(token, "it spoke after its hello");
                }
                Ok(read) => {
                    client.hello.extend_from_slice(&bytes[..read]);
                    if let Ok(hello) = <[u8; HELLO]>::try_from(&client.hello[..]) {
                        if let Err(why) = self.welcome(token, &hello) {
                            tracing::warn!(refusal = %why, "refused a session");
                            let refused = refusal(why, self.offer());
                            self.dismiss(token, &refused);
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

    /// What this server offers.
    fn offer(&self) -> Offer {
        let wanted = self.shared.config.transport;
        Offer::of_this_process(
            wanted != Wanted::Tcp,
            wanted != Wanted::Shm && self.shared.fabric_address.is_some(),
        )
    }

    /// Answers a client that gets no session here.
    fn dismiss(&mut self, token: Token, hello: &ServerHello) {
        if let Some(Client { socket: Some(mut socket), .. }) = self.clients.remove(&token) {
            let is_refusal = hello.refusal.get() != 0;
            count(&self.shared.counts.sessions_refused, is_refusal as u64);
            socket.answer(hello);
        }
    }

    /// A hello is complete: the client gets a session, or is sent where the
    /// chosen transport is to be had.
    fn welcome(
        &mut self,
        token: Token,
        hello: &[u8; size_of::<ClientHello>()],
    ) -> Result<(), Refusal> {
        let hello = hello_of(hello)?;
        let chosen = answer(&hello, self.offer())?;
        let client = self.clients.get_mut(&token).ok_or(Refusal::NotAHello)?;
        let came_by = client.socket.as_ref().map(Socket::transport);
        if came_by != Some(chosen) {
            let (path, address) = (&self.shared.config.socket_path, self.shared.fabric_address);
            let there = match chosen {
                Transport::Tcp => elsewhere(chosen, self.offer(), None, address),
                _ => elsewhere(chosen, self.offer(), Some(path), None),
            };
            let there = there.ok_or(Refusal::Unavailable)?;
            self.dismiss(token, &there);
            return Ok(());
        }
        if let Some(Socket::Unix(socket)) = &client.socket {
            let peer = rustix::net::sockopt::socket_peercred(socket.as_fd());
            let peer = peer.map_err(|_| Refusal::OtherUser)?;
            if peer.uid != rustix::process::geteuid() {
                return Err(Refusal::OtherUser);
            }
        }
        if self.shared.counts.sessions() >= MAX_SESSIONS as u64 {
            return Err(Refusal::TooManySessions);
        }
        self.grant(token, &hello, chosen)
    }

    fn grant(
        &mut self,
        token: Token,
        hello: &ClientHello,
        chosen: Transport,
    ) -> Result<(), Refusal> {
        let granted = self.granted(chosen);
        let client = self.clients.get_mut(&token).ok_or(Refusal::NotAHello)?;
        let (number, seed) = (granted.session.get(), granted.session_seed.get());
        let session = match chosen {
            Transport::Tcp => {
                let Some(Socket::Tcp(mut socket)) = client.socket.take() else {
                    return Err(Refusal::NotAHello);
                };
                // From now on the agent watches it.
                let _ = self.poll.registry().deregister(&mut socket);
                Session::over_tcp(&self.shared, &self.agent, socket.into(), granted)?
            }
            _ => Session::over_shm(&self.shared, number, seed)?,
        };
        client.session = Some(session);
        self.next_session += 1;
        count(self.shared.counts.sessions_by(chosen), 1);
        count(&self.shared.counts.sessions_total, 1);
        tracing::info!(
            session = number,
            pid = hello.pid.get(),
            transport = chosen.name(),
            "session granted"
        );
        self.beat_one(token);
        let Some(Client { socket, session: Some(session), .. }) = self.clients.get(&token) else {
            return Ok(());
        };
        if let Some(Socket::Unix(socket)) = socket
            && let Err(error) = session.grant_shm(&self.shared, socket, granted)
        {
            // Gone, or the kernel has too many descriptors under way already.
            tracing::warn!(%error, "a grant could not be sent");
            let _ = decline(socket, &refusal(Refusal::NoResources, self.offer()));
            self.end(token, "it could not be granted");
        }
        Ok(())
    }

    /// The answer that grants the next session.
    fn granted(&self, chosen: Transport) -> ServerHello {
        let table = self.shared.pointer_table.as_ref();
        ServerHello {
            magic: HELLO_MAGIC.into(),
            version: PROTOCOL_VERSION.into(),
            refusal: 0.into(),
            session: self.next_session.into(),
            life: self.shared.life.into(),
            epoch: self.shared.epoch.into(),
            session_seed: random_u64().into(),
            hash_seed: self.shared.hash_seed.into(),
            shards: (self.shared.shards.len() as u32).into(),
            pid: std::process::id().into(),
            pointer_table_seed: table.map_or(0, |table| table.seed).into(),
            offer: self.offer().to_wire(),
            transport: number_of(chosen).into(),
            reserved: 0.into(),
            socket_path: [0; SOCKET_PATH_BYTES],
            padding: [0; 4],
            tcp_address: [0; TCP_ADDRESS_BYTES],
        }
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

//! The control thread: grants sessions, writes heartbeats, and notices when a
//! client has gone.
//!
//! The thread does its long work, making queue pairs and ending sessions, in steps, and looks at
//! its heartbeats every few milliseconds between them ([`admission`]): read leases depend on these
//! (M30).
//!
//! A heartbeat copies the client's clock first, then checks that the server
//! is still the primary, then echoes: the read lease of the client counts
//! from the echoed clock (design, "What a late reader may do").

mod admission;
mod hello;
mod listeners;
mod set_up;

use crate::accept::{ACCEPTS_PER_TURN, Arrival};
use crate::address_limit::AddressPermit;
use crate::fabric_acceptor::Handshaken;
use crate::ring_session::SessionRights;
use crate::session::Session;
use crate::shared::Shared;
use crate::thread_counts::count;
use crate::utilisation::Utilisation;
use admission::{Admission, Step};
use listeners::{Listener, ListeningSocket, Socket};
use mio::net::{TcpListener, UnixListener};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use remora_acl::Login;
use remora_fabric::detect::Offer;
use remora_fabric::verbs::Welcome;
use remora_fabric::{Transport, refusal};
use remora_layout::hello::{Refusal, ServerHello};
use remora_layout::limits::{
    CLOCK_LOOK_MS, HEARTBEAT_MS, IDLE_HEARTBEAT_MS, MAX_HALF_OPEN, MAX_SET_UPS_WAITING,
    MAX_SILENT_CLIENTS, SET_UP_TURN_US, SET_UP_WAIT_MS,
};
use remora_protocol::ClockFollower;
use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

const UNIX_LISTENER: Token = Token(0);
/// Wakes the thread when the server or a session is to end.
pub const WAKER: Token = Token(1);
const TCP_LISTENER: Token = Token(2);
const FIRST_CLIENT: usize = 3;
/// A client that does not send its hello, or its side of a queue pair, within
/// this time is cut off.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Without any active client for this long, the server looks for one more
/// seldom. The first operation after a pause is asked, and its reply's read lease
/// outlasts the longer wait.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The number of a client's process, for the log.
type Pid = u32;

struct Client {
    /// `None` once the agent serves it.
    socket: Option<Socket>,
    stage: Stage,
    /// Since when.
    since: Instant,
    /// The client's incomplete message: its hello, or its side of a queue pair.
    said: Vec<u8>,
    /// Its user, once it has said hello; before that what its certificate says.
    login: Login,
    /// What it may do since then.
    rights: SessionRights,
    /// It counts among those of its address.
    _permit: AddressPermit,
    /// Why it is about to end, if it is.
    ends: Option<&'static str>,
}

/// How far a client has come.
enum Stage {
    /// Its hello is not complete.
    Silent,
    /// It waits for a queue pair.
    Waiting(Pid),
    /// It has one, and must send its side.
    Greeted(Box<Welcomed>),
    /// The client has sent its end, and waits for the connection.
    Told(Box<Welcomed>, Vec<u8>),
    /// It has a session.
    Served(Box<Session>),
}

impl Client {
    fn new(socket: Socket, login: Login, permit: AddressPermit) -> Self {
        let (stage, since) = (Stage::Silent, Instant::now());
        let (said, rights) = (Vec::new(), SessionRights::Asks);
        let socket = Some(socket);
        Self { socket, stage, since, said, login, rights, _permit: permit, ends: None }
    }

    /// Its session, if it has one that is not about to end.
    fn session(&self) -> Option<&Session> {
        match &self.stage {
            Stage::Served(session) if self.ends.is_none() => Some(session),
            _ => None,
        }
    }

    fn enter(&mut self, stage: Stage) {
        (self.stage, self.since) = (stage, Instant::now());
    }
}

/// A client that gets a session over RDMA.
struct Welcomed {
    welcome: Welcome,
    granted: ServerHello,
    pid: u32,
}

/// Where clients over TCP come from.
pub enum Network {
    /// A listener.
    Plain(TcpListener),
    /// The thread that makes their TLS handshakes; it rings the waker.
    Tls(Receiver<Handshaken>),
}

/// The control thread's state.
pub struct Control {
    shared: Arc<Shared>,
    poll: Poll,
    listeners: Vec<Listener>,
    /// Clients over TCP whose TLS handshakes are over, where there is TLS.
    handshaken: Option<Receiver<Handshaken>>,
    clients: HashMap<Token, Client>,
    /// Those that have not said hello, the oldest first: those on the Unix socket, and the others.
    silent: [BTreeSet<Token>; 2],
    admission: Admission<Token>,
    next_token: usize,
    next_session: u64,
    utilisation: Utilisation,
    /// Leads the server's clock after the wall clock.
    follower: ClockFollower,
    /// When some client's clock was last seen to have moved.
    last_moved: Instant,
    /// The version of the users at which its clients were last looked at.
    users_version: u64,
}

impl Control {
    /// A control thread for listening sockets. `poll` also carries the waker
    /// with the token [`WAKER`].
    pub fn new(
        shared: Arc<Shared>,
        poll: Poll,
        mut unix: UnixListener,
        network: Option<Network>,
    ) -> std::io::Result<Self> {
        poll.registry().register(&mut unix, UNIX_LISTENER, Interest::READABLE)?;
        let (tcp, handshaken) = match network {
            Some(Network::Plain(mut tcp)) => {
                poll.registry().register(&mut tcp, TCP_LISTENER, Interest::READABLE)?;
                (Some(tcp), None)
            }
            Some(Network::Tls(handshaken)) => (None, Some(handshaken)),
            None => (None, None),
        };
        let listeners = [Some(ListeningSocket::Unix(unix)), tcp.map(ListeningSocket::Tcp)];
        let listeners = listeners.into_iter().flatten().map(Listener::new).collect();
        // Read once, while there are descriptors for it.
        let _ = Offer::of_this_process(true, true, false);
        Ok(Self {
            shared,
            poll,
            listeners,
            handshaken,
            clients: HashMap::new(),
            silent: Default::default(),
            admission: Admission::new(MAX_SET_UPS_WAITING, MAX_HALF_OPEN),
            next_token: FIRST_CLIENT,
            next_session: 1,
            utilisation: Utilisation::new(),
            follower: ClockFollower::default(),
            last_moved: Instant::now(),
            users_version: 0,
        })
    }

    /// Runs until the server is to end, then withdraws every session.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(256);
        let (mut next_beat, mut next_look) = (Instant::now(), Instant::now());
        while !self.shared.is_stopping() {
            // Without clients there are no heartbeats; the thread still looks at the clock.
            let due = if self.clients.is_empty() { next_look } else { next_beat.min(next_look) };
            let timeout = Some(due.saturating_duration_since(Instant::now()));
            let timeout = if self.admission.has_step() { Some(Duration::ZERO) } else { timeout };
            let timeout =
                self.listeners.iter().fold(timeout, |timeout, listener| listener.bound(timeout));
            if let Err(error) = self.poll.poll(&mut events, timeout) {
                if error.kind() == ErrorKind::Interrupted {
                    continue;
                }
                panic!("the control thread cannot poll: {error}");
            }
            for event in &events {
                match event.token() {
                    UNIX_LISTENER => self.accept(0),
                    TCP_LISTENER => self.accept(1),
                    WAKER => {
                        self.end_sessions();
                        self.take_handshaken();
                    }
                    token => self.read(token),
                }
            }
            for listener in 0..self.listeners.len() {
                if self.listeners[listener].is_due() {
                    self.accept(listener);
                }
            }
            self.review_users();
            self.work();
            let now = Instant::now();
            if now >= next_beat {
                self.beat(now);
                let idle = now.duration_since(self.last_moved) > IDLE_AFTER;
                let pause_ms = if idle { IDLE_HEARTBEAT_MS } else { HEARTBEAT_MS };
                next_beat = now + Duration::from_millis(pause_ms);
            }
            // After the heartbeats: a heartbeat must not carry a time from before a step and be
            // written after the step counts.
            if !self.clients.is_empty() || now >= next_look {
                self.follow_clock();
                // A replica shows nothing before its clock is its primary's.
                let stepping = self.follower.is_stepping() || self.shared.view.is_replica();
                let pause_ms = if stepping { IDLE_HEARTBEAT_MS } else { CLOCK_LOOK_MS };
                next_look = now + Duration::from_millis(pause_ms);
            }
        }
        let tokens: Vec<Token> = self.clients.keys().copied().collect();
        for token in tokens {
            self.end(token, "the server is shutting down");
            self.finish(token);
        }
    }

    /// Leads the server's clock after the wall clock, or at a replica after its primary's.
    fn follow_clock(&mut self) {
        let Self { shared, follower, .. } = self;
        match (shared.view.is_replica(), shared.view.primary_unix_ms()) {
            (false, _) => shared.clock.follow(follower),
            (true, Some(unix_ms)) => shared.clock.follow_primary(follower, unix_ms),
            (true, None) => {}
        }
    }

    /// Some steps of long work: as many as fit between two looks at the heartbeats, and at least
    /// one.
    fn work(&mut self) {
        let began = Instant::now();
        while let Some(step) = self.admission.next() {
            match step {
                Step::Greet(token) => self.greet(token),
                Step::Connect(token) => self.connect(token),
                Step::End(token) => self.finish(token),
            }
            let half_open = self.admission.half_open() as u64;
            self.shared.counts.half_open.store(half_open, Ordering::Relaxed);
            if began.elapsed() >= Duration::from_micros(SET_UP_TURN_US) {
                return;
            }
        }
    }

    /// Accepts clients from a listener, up to a bound.
    fn accept(&mut self, listener: usize) {
        let no_resources = refusal(Refusal::NoResources, self.offer());
        for _ in 0..ACCEPTS_PER_TURN {
            let refused = &self.shared.counts.sessions_refused;
            let socket = match self.listeners[listener].accept(&no_resources, refused) {
                Arrival::Client(socket) => socket,
                Arrival::TurnedAway => continue,
                Arrival::NoClient => return,
            };
            self.admit(socket, Login::default());
        }
        self.listeners[listener].turn_ended();
    }

    /// Takes in clients whose TLS handshakes are over, up to a bound.
    fn take_handshaken(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(Ok((stream, login))) = self.handshaken.as_ref().map(Receiver::try_recv) else {
                return;
            };
            self.admit(Socket::Tcp(stream), login);
        }
        // There may be more: another turn.
        self.shared.wake_control();
    }

    /// A client is there, and is to say hello.
    fn admit(&mut self, mut socket: Socket, login: Login) {
        let Some(permit) = self.enter(&socket) else {
            count(&self.shared.counts.sessions_refused, 1);
            return socket.answer(&refusal(Refusal::TooManyOfAddress, self.offer()));
        };
        let token = Token(self.next_token);
        self.next_token += 1;
        let watched =
            self.poll.registry().register(&mut SourceFd(&socket.fd()), token, Interest::READABLE);
        if let Err(error) = watched {
            return tracing::warn!(%error, "cannot watch a client");
        }
        let is_far = socket.transport() != Transport::Shm;
        self.clients.insert(token, Client::new(socket, login, permit));
        let silent = &mut self.silent[usize::from(is_far)];
        silent.insert(token);
        if silent.len() > MAX_SILENT_CLIENTS
            && let Some(oldest) = silent.pop_first()
        {
            count(&self.shared.counts.hellos_dropped, 1);
            self.end(oldest, "it said nothing, and others came");
        }
        // Data that has already arrived raises no further event.
        self.read(token);
    }

    /// A client has said hello, or has gone.
    fn is_silent_no_more(&mut self, token: Token) {
        self.silent.iter_mut().for_each(|silent| {
            silent.remove(&token);
        });
    }

    /// One more of a client's address, if it may have one. Clients on the Unix socket have none.
    fn enter(&self, socket: &Socket) -> Option<AddressPermit> {
        match socket {
            Socket::Unix(_) => Some(AddressPermit::default()),
            Socket::Tcp(stream) => match stream.socket().peer_addr() {
                Ok(peer) => self.shared.users.addresses.enter(peer),
                // It has gone, and is noticed soon.
                Err(_) => Some(AddressPermit::default()),
            },
        }
    }

    /// A client is to end; at once if it holds nothing that takes long.
    fn end(&mut self, token: Token, why: &'static str) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        if client.ends.replace(why).is_some() {
            return;
        }
        if let Some(socket) = &client.socket {
            let _ = self.poll.registry().deregister(&mut SourceFd(&socket.fd()));
        }
        match client.stage {
            Stage::Silent | Stage::Waiting(_) => self.finish(token),
            _ => self.admission.end(token),
        }
    }

    /// Ends a client, and gives back all that it holds.
    fn finish(&mut self, token: Token) {
        self.is_silent_no_more(token);
        let Some(client) = self.clients.remove(&token) else { return };
        if let Stage::Served(session) = client.stage {
            session.withdraw(&self.shared);
            self.shared.counts.sessions_by(session.transport()).fetch_sub(1, Ordering::Relaxed);
            let why = client.ends.unwrap_or_default();
            tracing::info!(session = session.number, why, "session ended");
        }
        self.admission.settle(token);
    }

    /// Ends clients whose users may do less than they might, once for each change of the users: those
    /// that were removed, that may not read everything any more, or not do all. An ended session gets no
    /// heartbeat, so that what it still reads by itself ends with its read lease.
    fn review_users(&mut self) {
        let published = self.shared.users.published();
        let version = published.version();
        if std::mem::replace(&mut self.users_version, version) == version {
            return;
        }
        let mut ended = Vec::new();
        for (token, client) in &mut self.clients {
            let has_said_hello = !matches!(client.stage, Stage::Silent) && client.ends.is_none();
            if !has_said_hello
                || (client.login.review(published)
                    && client.login.is_logged_in()
                    && SessionRights::of(&client.login) >= client.rights)
            {
                continue;
            }
            if let Stage::Served(session) = &client.stage {
                // Its requests before its end, which may have to wait for others.
                session.detach(&self.shared);
                count(&self.shared.counts.sessions_revoked, 1);
            }
            ended.push(*token);
        }
        for token in ended {
            tracing::info!(target: "audit", "a session ends: the rights of its user have changed");
            match self.clients.get(&token).map(|client| &client.stage) {
                Some(Stage::Waiting(_)) => self.refuse(token, Refusal::RestrictedUser),
                _ => self.end(token, "the rights of its user have changed"),
            }
        }
    }

    /// Ends the sessions whose peers broke the protocol at a shard, and those whose connections
    /// have ended.
    fn end_sessions(&mut self) {
        let at_end = |(token, client): (&Token, &Client)| Some((*token, client.session()?.end()?));
        let ended: Vec<_> = self.clients.iter().filter_map(at_end).collect();
        for (token, why) in ended {
            self.end(token, why);
        }
    }

    /// Writes heartbeats for all active clients, and ends those whose message does not come in
    /// time.
    fn beat(&mut self, now: Instant) {
        self.utilisation.measure(&self.shared.shards, now);
        let tokens: Vec<Token> = self.clients.keys().copied().collect();
        for token in tokens {
            let Some(client) = self.clients.get_mut(&token) else { continue };
            let silence = now.saturating_duration_since(client.since);
            match &mut client.stage {
                _ if client.ends.is_some() => {}
                Stage::Served(session) => {
                    session.count_threads(&self.shared);
                    if session.clock_has_moved() {
                        self.last_moved = now;
                        session.beat(&self.shared, &self.utilisation);
                    }
                }
                Stage::Silent | Stage::Greeted(_) if silence > HELLO_TIMEOUT => {
                    count(&self.shared.counts.hellos_timed_out, 1);
                    self.cut_off(token);
                }
                Stage::Waiting(_) if silence.as_millis() > SET_UP_WAIT_MS.into() => {
                    self.refuse(token, Refusal::Busy);
                }
                Stage::Silent | Stage::Greeted(_) | Stage::Waiting(_) | Stage::Told(..) => {}
            }
        }
    }
}

//! The thread that accepts RESP clients. It gives each to the shard's thread that
//! has the fewest, and never serves one itself. With TLS it makes the handshakes first.

use super::stream::ClientStream;
use crate::accept::{ACCEPTS_PER_TURN, AcceptLimiter};
use crate::handshakes::Handshakes;
use crate::inbox::{Handed, Message};
use crate::shared::Shared;
use crate::thread_counts::count;
use mio::{Events, Interest, Poll, Token, Waker};
use remora_frontend::Connection;
use remora_layout::limits::{
    RESP_MAX_CONNECTIONS, TCP_KEEPALIVE_IDLE_S, TCP_KEEPALIVE_INTERVAL_S, TCP_KEEPALIVE_PROBES,
};
use remora_resp::RespClient;
use remora_tls::TlsStream;
use rustix::net::sockopt;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_HANDSHAKE: usize = 2;

/// The reply to a client that is one too many (in Redis's words).
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
/// The reply to a client that is one too many of its address.
const TOO_MANY_OF_ADDRESS: &[u8] = b"-ERR max number of clients of this address reached\r\n";
/// The reply to a client whose certificate names a user as whom enough are logged in.
const TOO_MANY_OF_USER: &[u8] = b"-ERR max number of logins of this user reached\r\n";
/// The reply to a client for which the process has no descriptor.
const NO_DESCRIPTOR: &[u8] = b"-ERR the server has no file descriptor left for another client: \
close some, or raise its limit of open files (ulimit -n)\r\n";

/// Small replies must not wait for acknowledgements. A peer whose machine has died closes nothing:
/// keep-alive probes detect that, so that it does not keep its slot for ever. (These options do not
/// fail on a fresh socket, and no failure justifies losing a client.)
fn set_options(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(TCP_KEEPALIVE_IDLE_S));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(TCP_KEEPALIVE_INTERVAL_S));
    let _ = sockopt::set_tcp_keepcnt(socket, TCP_KEEPALIVE_PROBES);
    let _ = sockopt::set_socket_keepalive(socket, true);
}

/// The thread's state.
pub struct Acceptor {
    shared: Arc<Shared>,
    poll: Poll,
    listener: TcpListener,
    limiter: AcceptLimiter,
    handshakes: Handshakes,
    next_serial: u64,
}

impl Acceptor {
    /// A thread for a listening socket, and its wake-up for the server's end.
    ///
    /// # Errors
    /// The kernel gives no poll or waker.
    pub fn new(shared: Arc<Shared>, listener: TcpListener) -> std::io::Result<(Self, Waker)> {
        listener.set_nonblocking(true)?;
        let poll = Poll::new()?;
        let mut watched = mio::unix::SourceFd(&std::os::fd::AsRawFd::as_raw_fd(&listener));
        poll.registry().register(&mut watched, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let (limiter, handshakes) = (AcceptLimiter::new(), Handshakes::new(FIRST_HANDSHAKE));
        Ok((Self { shared, poll, listener, limiter, handshakes, next_serial: 1 }, waker))
    }

    /// Runs until the server is to end.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(256);
        while !self.shared.is_stopping() {
            let timeout = self.handshakes.timeout();
            if let Err(error) = self.poll.poll(&mut events, self.limiter.bound(timeout))
                && error.kind() != ErrorKind::Interrupted
            {
                panic!("the acceptor cannot poll: {error}");
            }
            for event in &events {
                self.shake(event.token().0);
            }
            if let Some(tls) = &self.shared.tls {
                self.handshakes.end_late(self.poll.registry(), &tls.counts);
            }
            if self.limiter.is_due() || events.iter().any(|event| event.token() == LISTENER) {
                self.accept();
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listener.accept() {
                Ok((socket, peer)) => {
                    self.limiter.passed();
                    self.take(socket, peer);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.limiter.emptied();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let (listener, counts) = (&self.listener, &self.shared.counts);
                    let turn_away = || {
                        let (mut socket, _) = listener.accept()?;
                        count(&counts.connections_rejected, 1);
                        // The client may have gone already; sending the reason is a courtesy.
                        let _ = socket.write(NO_DESCRIPTOR);
                        Ok(socket.into())
                    };
                    if !self.limiter.failed(&error, listener, turn_away) {
                        return;
                    }
                }
            }
        }
        self.limiter.turn_ended();
    }

    /// Takes a client in, or turns it away if there are too many.
    fn take(&mut self, mut socket: TcpStream, peer: SocketAddr) {
        if self.is_full() {
            count(&self.shared.counts.connections_rejected, 1);
            // A client of TLS cannot read it before the handshake.
            if self.shared.tls.is_none() {
                let _ = socket.write(TOO_MANY);
            }
            return;
        }
        if let Err(error) = socket.set_nonblocking(true) {
            return tracing::warn!(%error, "cannot serve a connection");
        }
        set_options(&socket);
        let Some(tls) = &self.shared.tls else {
            let Some(permit) = self.shared.users.addresses.enter(peer) else {
                let _ = socket.write(TOO_MANY_OF_ADDRESS);
                return;
            };
            return self.hand_over(
                ClientStream::Plain(socket, permit),
                peer,
                RespClient::default(),
            );
        };
        let Some(session) = tls.begin() else { return };
        let begun =
            self.handshakes.begin(self.poll.registry(), (socket, session, peer), &tls.counts);
        if let Err(error) = begun {
            tracing::warn!(%error, "cannot watch a connection");
        }
    }

    fn is_full(&self) -> bool {
        let shards = self.shared.shards.iter();
        let open: u64 = shards.map(|shard| shard.connections.load(Ordering::Relaxed)).sum();
        open >= RESP_MAX_CONNECTIONS as u64
    }

    /// A step of a handshake. A client that has come through it is given to a thread.
    fn shake(&mut self, token: usize) {
        let Some(tls) = &self.shared.tls else { return };
        let done = self.handshakes.step(self.poll.registry(), token, &tls.counts);
        let Some((socket, session, peer)) = done else { return };
        let login = tls.login(&session, &self.shared.users);
        let mut stream = TlsStream::new(socket, session);
        let Ok(login) = login else {
            let _ = stream.write(TOO_MANY_OF_USER);
            return;
        };
        if self.is_full() {
            count(&self.shared.counts.connections_rejected, 1);
            let _ = stream.write(TOO_MANY);
            return;
        }
        let Some(permit) = self.shared.users.addresses.enter(peer) else {
            let _ = stream.write(TOO_MANY_OF_ADDRESS);
            return;
        };
        let client = RespClient { login, ..RespClient::default() };
        self.hand_over(ClientStream::Tls(Box::new(stream), permit), peer, client);
    }

    /// Gives a client to the thread that has the fewest.
    fn hand_over(&mut self, stream: ClientStream, peer: SocketAddr, client: RespClient) {
        let shards = self.shared.shards.iter();
        let Some(shard) = shards.min_by_key(|shard| shard.connections.load(Ordering::Relaxed))
        else {
            return;
        };
        shard.connections.fetch_add(1, Ordering::Relaxed);
        count(&self.shared.counts.connections_total, 1);
        let connection = Connection::new(peer, self.next_serial).of_client(client);
        self.next_serial += 1;
        shard.inbox.push(Message::Serve(Box::new(Handed { stream, connection })));
    }
}

//! The thread of a listening TCP socket: it accepts clients, makes their TLS handshakes where the server
//! has TLS, and gives each to a [`ClientHandler`]. It serves no client itself.
//!
//! Invariant: every client that is accepted reaches the handler once as accepted, and once more if it
//! comes through its handshake.

use crate::accept::{ACCEPTS_PER_TURN, AcceptLimiter, Arrival};
use crate::handshakes::Handshakes;
use crate::shared::Shared;
use crate::tls::Tls;
use mio::{Events, Interest, Poll, Token, Waker};
use remora_tls::TlsSession;
use std::io::{ErrorKind, Result};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_HANDSHAKE: usize = 2;

/// What differs between the listening sockets: what happens to their clients.
pub trait ClientHandler {
    /// The loop's name in its panic.
    const NAME: &'static str;

    /// Takes a client that has connected, over a socket that blocks. Returns the socket, which no longer
    /// blocks, if the client is to make its handshake; else the client is served or turned away.
    ///
    /// # Errors
    /// The kernel refuses the options of the socket.
    fn accepted(
        &mut self,
        shared: &Shared,
        socket: TcpStream,
        peer: SocketAddr,
    ) -> Result<Option<TcpStream>>;

    /// Takes a client that has come through its handshake.
    fn handshaken(
        &mut self,
        shared: &Shared,
        tls: &Tls,
        client: (TcpStream, TlsSession, SocketAddr),
    );

    /// Counts a client that is turned away for want of a descriptor, and sends it the reason if it can.
    fn turn_away(&self, shared: &Shared, socket: &mut TcpStream);
}

/// See the module's text.
pub struct AcceptLoop<H> {
    shared: Arc<Shared>,
    poll: Poll,
    listener: TcpListener,
    limiter: AcceptLimiter,
    handshakes: Handshakes,
    handler: H,
}

impl<H: ClientHandler> AcceptLoop<H> {
    /// A loop for a listening socket, and its wake-up for the server's end.
    ///
    /// # Errors
    /// The kernel gives no poll or waker.
    pub fn new(shared: Arc<Shared>, listener: TcpListener, handler: H) -> Result<(Self, Waker)> {
        listener.set_nonblocking(true)?;
        let poll = Poll::new()?;
        let mut watched = mio::unix::SourceFd(&listener.as_raw_fd());
        poll.registry().register(&mut watched, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let (limiter, handshakes) = (AcceptLimiter::new(), Handshakes::new(FIRST_HANDSHAKE));
        Ok((Self { shared, poll, listener, limiter, handshakes, handler }, waker))
    }

    /// Runs until the server is to end.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(256);
        while !self.shared.is_stopping() {
            let timeout = self.handshakes.timeout();
            if let Err(error) = self.poll.poll(&mut events, self.limiter.bound(timeout))
                && error.kind() != ErrorKind::Interrupted
            {
                panic!("{} cannot poll: {error}", H::NAME);
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

    /// Accepts clients, up to a bound.
    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let (listener, handler, shared) = (&self.listener, &self.handler, &self.shared);
            let turn_away = |(mut socket, _)| {
                handler.turn_away(shared, &mut socket);
                socket.into()
            };
            match self.limiter.accept(listener, || listener.accept(), turn_away) {
                Arrival::Client((socket, peer)) => self.take(socket, peer),
                Arrival::TurnedAway => {}
                Arrival::NoClient => return,
            }
        }
        self.limiter.turn_ended();
    }

    /// Gives a client to the handler, and begins its handshake if it is to make one.
    fn take(&mut self, socket: TcpStream, peer: SocketAddr) {
        let socket = match self.handler.accepted(&self.shared, socket, peer) {
            Ok(Some(socket)) => socket,
            Ok(None) => return,
            Err(error) => return tracing::warn!(%error, "cannot serve a connection"),
        };
        let Some(tls) = &self.shared.tls else { return };
        let Some(session) = tls.begin() else { return };
        let begun =
            self.handshakes.begin(self.poll.registry(), (socket, session, peer), &tls.counts);
        if let Err(error) = begun {
            tracing::warn!(%error, "cannot watch a connection");
        }
    }

    /// A step of a handshake. A client that has come through it is given to the handler.
    fn shake(&mut self, token: usize) {
        let Some(tls) = &self.shared.tls else { return };
        if let Some(client) = self.handshakes.step(self.poll.registry(), token, &tls.counts) {
            self.handler.handshaken(&self.shared, tls, client);
        }
    }
}

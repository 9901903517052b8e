//! The thread that accepts clients of `fabric_address` where that speaks TLS. It makes the handshakes,
//! which take a signature each, and gives the clients that have come through to the control thread,
//! whose heartbeats must not wait.
//!
//! Invariant: at most [`MAX_HANDSHAKES`] clients wait for the control thread; one too many is dropped.

use crate::accept::{ACCEPTS_PER_TURN, AcceptLimiter};
use crate::handshakes::Handshakes;
use crate::shared::Shared;
use crate::thread_counts::count;
use crate::tls::Tls;
use mio::{Events, Interest, Poll, Token, Waker};
use remora_acl::Login;
use remora_fabric::HelloStream;
use remora_layout::limits::MAX_HANDSHAKES;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_HANDSHAKE: usize = 2;

/// A client whose handshake is over, and its login by its certificate.
pub type Handshaken = (HelloStream, Login);

/// See the module's text.
pub struct FabricAcceptor {
    shared: Arc<Shared>,
    tls: Arc<Tls>,
    poll: Poll,
    listener: TcpListener,
    limiter: AcceptLimiter,
    handshakes: Handshakes,
    handshaken: SyncSender<Handshaken>,
}

impl FabricAcceptor {
    /// A thread for a listening socket, its wake-up for the server's end, and what comes through it.
    ///
    /// # Errors
    /// The kernel gives no poll or waker.
    pub fn new(
        shared: Arc<Shared>,
        tls: Arc<Tls>,
        listener: TcpListener,
    ) -> std::io::Result<(Self, Waker, Receiver<Handshaken>)> {
        listener.set_nonblocking(true)?;
        let poll = Poll::new()?;
        let mut watched = mio::unix::SourceFd(&listener.as_raw_fd());
        poll.registry().register(&mut watched, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let (handshaken, clients) = sync_channel(MAX_HANDSHAKES);
        let (limiter, handshakes) = (AcceptLimiter::new(), Handshakes::new(FIRST_HANDSHAKE));
        Ok((Self { shared, tls, poll, listener, limiter, handshakes, handshaken }, waker, clients))
    }

    /// Runs until the server is to end.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(256);
        while !self.shared.is_stopping() {
            let timeout = self.handshakes.timeout();
            if let Err(error) = self.poll.poll(&mut events, self.limiter.bound(timeout))
                && error.kind() != ErrorKind::Interrupted
            {
                panic!("the acceptor of fabric_address cannot poll: {error}");
            }
            for event in &events {
                self.shake(event.token().0);
            }
            self.handshakes.end_late(self.poll.registry(), &self.tls.counts);
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
                    if let Err(error) = self.begin(socket, peer) {
                        tracing::warn!(%error, "cannot serve a connection");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.limiter.emptied();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let (listener, counts) = (&self.listener, &self.shared.counts);
                    // Without a handshake it can be told nothing.
                    let turn_away = || {
                        let (socket, _) = listener.accept()?;
                        count(&counts.sessions_refused, 1);
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

    fn begin(&mut self, socket: TcpStream, peer: SocketAddr) -> std::io::Result<()> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let Some(session) = self.tls.begin() else { return Ok(()) };
        self.handshakes.begin(self.poll.registry(), (socket, session, peer), &self.tls.counts)
    }

    /// A step of a handshake. A client that has come through it is given to the control thread.
    fn shake(&mut self, token: usize) {
        let done = self.handshakes.step(self.poll.registry(), token, &self.tls.counts);
        let Some((socket, session, _)) = done else { return };
        let Ok(login) = self.tls.login(&session, &self.shared.users) else { return };
        let client = (HelloStream::encrypted(socket, session), login);
        match self.handshaken.try_send(client) {
            Ok(()) => self.shared.wake_control(),
            Err(_) => count(&self.tls.counts.dropped, 1),
        }
    }
}

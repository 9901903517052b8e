//! The RESP thread: accepts connections, waits for what happens to their
//! sockets and for the shards' replies, and serves them.

use super::connections::Connections;
use crate::accept::{ACCEPTS_PER_TURN, Gate};
use crate::jobs::ReplyQueue;
use crate::shared::{Counts, Shared, count};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use remora_layout::limits::{
    RESP_MAX_CONNECTIONS, TCP_KEEPALIVE_IDLE_S, TCP_KEEPALIVE_INTERVAL_S, TCP_KEEPALIVE_PROBES,
};
use rustix::net::sockopt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_CONNECTION: usize = 2;
/// How long a stopping server waits for replies to be taken.
const DRAIN: Duration = Duration::from_secs(2);
/// How often it looks for requests of which no more comes.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// What a client is told that is one too many (in Redis's words).
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
/// What a client is told for which the process has no descriptor.
const NO_DESCRIPTOR: &[u8] = b"-ERR the server has no file descriptor left for another client: \
close some, or raise its limit of open files (ulimit -n)\r\n";

/// Turns a client away. It may be gone already; the reason is a courtesy.
fn reject(counts: &Counts, socket: &mut TcpStream, why: &[u8]) {
    count(&counts.connections_rejected, 1);
    let _ = std::io::Write::write(socket, why);
}

/// Small replies must not wait for acknowledgements; and a peer whose machine
/// died says no farewell: probes find out, so that it does not keep its place
/// for ever. (No option fails on a fresh socket, and none is worth a client.)
fn set_options(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(TCP_KEEPALIVE_IDLE_S));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(TCP_KEEPALIVE_INTERVAL_S));
    let _ = sockopt::set_tcp_keepcnt(socket, TCP_KEEPALIVE_PROBES);
    let _ = sockopt::set_socket_keepalive(socket, true);
}

/// The socket of a connection that is over is watched no more.
fn forget(poll: &Poll, mut gone: TcpStream) {
    let _ = poll.registry().deregister(&mut gone);
}

/// The thread's state.
pub struct RespThread {
    shared: Arc<Shared>,
    poll: Poll,
    listener: Option<TcpListener>,
    gate: Gate,
    replies: Arc<ReplyQueue>,
    connections: Connections<TcpStream, Shared>,
}

impl RespThread {
    /// A thread for a listening socket, and the queue that wakes it.
    pub fn new(
        shared: Arc<Shared>,
        mut listener: TcpListener,
    ) -> std::io::Result<(Self, Arc<ReplyQueue>)> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let replies = Arc::new(ReplyQueue::new(move || {
            // Fails only if the poll is gone, and then nobody waits.
            let _ = waker.wake();
        }));
        let thread = Self {
            connections: Connections::new(Arc::clone(&shared), Arc::clone(&replies)),
            replies: Arc::clone(&replies),
            shared,
            poll,
            listener: Some(listener),
            gate: Gate::new(),
        };
        Ok((thread, replies))
    }

    /// Runs until the server is to end and what was accepted is answered.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        let mut drain_until = None;
        let mut looked_at = Instant::now();
        loop {
            if self.shared.is_stopping() && drain_until.is_none() {
                drain_until = Some(Instant::now() + DRAIN);
                self.listener = None;
                self.connections.stop_reading(|gone| forget(&self.poll, gone));
            }
            if let Some(until) = drain_until
                && (self.connections.open() == 0 || Instant::now() >= until)
            {
                return;
            }
            let may_sleep = self.replies.may_sleep() && self.connections.are_idle();
            let timeout = match (may_sleep, drain_until) {
                (false, _) => Some(Duration::ZERO),
                (true, Some(_)) => Some(Duration::from_millis(10)),
                (true, None) => self.connections.wait_for_parts().then_some(IDLE_LOOK),
            };
            let polled = self.poll.poll(&mut events, self.gate.bound(timeout));
            self.replies.awake();
            if let Err(error) = polled
                && error.kind() != ErrorKind::Interrupted
            {
                panic!("the RESP thread cannot poll: {error}");
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    WAKER => {}
                    Token(token) => {
                        let slot = token - FIRST_CONNECTION;
                        if event.is_read_closed() {
                            self.connections.announce_end(slot);
                        }
                        self.connections.stir(slot);
                    }
                }
            }
            if self.gate.is_due() {
                self.accept();
            }
            self.connections.take_replies();
            self.connections.serve(|gone| forget(&self.poll, gone));
            if self.connections.wait_for_parts() && looked_at.elapsed() >= IDLE_LOOK {
                looked_at = Instant::now();
                let upload_idle_s = self.shared.config.upload_idle_s;
                self.connections.count_idle(upload_idle_s, |gone| forget(&self.poll, gone));
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = &self.listener else { return self.gate.emptied() };
            let (mut socket, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.gate.emptied(),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    let counts = &self.shared.counts;
                    let turn_away = || {
                        let (mut socket, _) = listener.accept()?;
                        reject(counts, &mut socket, NO_DESCRIPTOR);
                        Ok(socket.into())
                    };
                    if self.gate.failed(&error, listener, turn_away) {
                        continue;
                    }
                    return;
                }
            };
            self.gate.passed();
            if self.connections.open() >= RESP_MAX_CONNECTIONS {
                reject(&self.shared.counts, &mut socket, TOO_MANY);
                continue;
            }
            set_options(&socket);
            let interest = Interest::READABLE | Interest::WRITABLE;
            let token = Token(self.connections.next_slot() + FIRST_CONNECTION);
            if let Err(error) = self.poll.registry().register(&mut socket, token, interest) {
                tracing::warn!(%error, "cannot watch a connection");
                continue;
            }
            self.connections.add(socket, peer);
        }
        self.gate.turn_ended();
    }
}

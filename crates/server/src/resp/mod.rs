//! The RESP thread: accepts connections, parses, reads optimistically,
//! hands the rest to the shards, and writes replies in order.

mod ask;
mod connection;
mod execute;
mod info;
mod own;
mod pending;
mod read;

use crate::accept::{ACCEPTS_PER_TURN, Gate};
use crate::jobs::{OwnedReply, ReplyQueue, Token as JobToken};
use crate::shared::{Counts, Shared, count};
use connection::{Connection, Flow};
use execute::Executor;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use remora_layout::limits::{
    RESP_MAX_CONNECTIONS, TCP_KEEPALIVE_IDLE_S, TCP_KEEPALIVE_INTERVAL_S, TCP_KEEPALIVE_PROBES,
};
use rustix::net::sockopt;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_CONNECTION: usize = 2;
/// How long a stopping server waits for replies to be taken.
const DRAIN: Duration = Duration::from_secs(2);

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

/// The thread's state.
pub struct RespThread {
    shared: Arc<Shared>,
    poll: Poll,
    listener: Option<TcpListener>,
    gate: Gate,
    executor: Executor,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Connections that may have more to read or parse, although no event
    /// will say so: their turn had ended.
    unfinished: BTreeSet<usize>,
    next_serial: u64,
}

impl RespThread {
    /// A thread for a listening socket, and the queue that wakes it.
    pub fn new(
        shared: Arc<Shared>,
        mut listener: TcpListener,
    ) -> std::io::Result<(Self, Arc<ReplyQueue>)> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let replies = Arc::new(ReplyQueue::new(Waker::new(poll.registry(), WAKER)?));
        let thread = Self {
            executor: Executor::new(Arc::clone(&shared), Arc::clone(&replies)),
            shared,
            poll,
            listener: Some(listener),
            gate: Gate::new(),
            connections: Vec::new(),
            free: Vec::new(),
            unfinished: BTreeSet::new(),
            next_serial: 1,
        };
        Ok((thread, replies))
    }

    /// Runs until the server is to end and what was accepted is answered.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        let mut drain_until = None;
        loop {
            if self.shared.is_stopping() && drain_until.is_none() {
                drain_until = Some(Instant::now() + DRAIN);
                self.listener = None;
                for slot in 0..self.connections.len() {
                    // What has arrived is still read; nothing after it.
                    self.with(slot, |connection, executor| {
                        let flow = connection.serve(executor);
                        connection.stop_reading();
                        if flow == Flow::Close { Flow::Close } else { Flow::Again }
                    });
                }
            }
            if let Some(until) = drain_until {
                let open = self.connections.iter().any(Option::is_some);
                if !open || Instant::now() >= until {
                    return;
                }
            }
            let replies = Arc::clone(&self.executor.replies);
            let timeout = match (replies.may_sleep() && self.unfinished.is_empty(), drain_until) {
                (false, _) => Some(Duration::ZERO),
                (true, Some(_)) => Some(Duration::from_millis(10)),
                (true, None) => None,
            };
            let polled = self.poll.poll(&mut events, self.gate.bound(timeout));
            replies.awake();
            if let Err(error) = polled
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!(%error, "the RESP thread cannot poll");
                return;
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    WAKER => {}
                    Token(token) => {
                        let slot = token - FIRST_CONNECTION;
                        if event.is_read_closed()
                            && let Some(Some(connection)) = self.connections.get_mut(slot)
                        {
                            connection.announce_end();
                        }
                        self.unfinished.insert(slot);
                    }
                }
            }
            if self.gate.is_due() {
                self.accept();
            }
            self.take_replies();
            for slot in std::mem::take(&mut self.unfinished) {
                self.with(slot, Connection::serve);
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = &self.listener else { return self.gate.emptied() };
            let mut socket = match listener.accept() {
                Ok((socket, _)) => socket,
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
            let open = self.connections.len() - self.free.len();
            if open >= RESP_MAX_CONNECTIONS {
                reject(&self.shared.counts, &mut socket, TOO_MANY);
                continue;
            }
            set_options(&socket);
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            let token = Token(slot + FIRST_CONNECTION);
            if let Err(error) = self.poll.registry().register(&mut socket, token, interest) {
                tracing::warn!(%error, "cannot watch a connection");
                self.free.push(slot);
                continue;
            }
            let serial = self.next_serial;
            self.next_serial += 1;
            self.connections[slot] =
                Some(Connection::new(socket, slot, serial, self.shared.shards.len()));
            count(&self.shared.counts.connections, 1);
            count(&self.shared.counts.connections_total, 1);
            self.unfinished.insert(slot);
        }
        self.gate.turn_ended();
    }

    /// Lets a connection do something, and closes it if it is done.
    fn with(&mut self, slot: usize, act: impl FnOnce(&mut Connection, &mut Executor) -> Flow) {
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        match act(connection, &mut self.executor) {
            Flow::Go => {}
            Flow::Again => {
                self.unfinished.insert(slot);
            }
            Flow::Close => {
                if let Some(mut gone) = self.connections[slot].take() {
                    let _ = self.poll.registry().deregister(&mut gone.socket);
                }
                self.free.push(slot);
                self.shared.counts.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn take_replies(&mut self) {
        while let Some((token, reply)) = self.executor.replies.pop() {
            self.take_reply(token, reply);
        }
    }

    fn take_reply(&mut self, token: JobToken, reply: OwnedReply) {
        let Some(connection) = self.connections.get_mut(token.connection).and_then(Option::as_mut)
        else {
            return;
        };
        // A connection that has gone needs no reply; its slot may have a new one.
        if connection.serial == token.serial {
            connection.answer(token, reply);
            self.unfinished.insert(token.connection);
        }
    }
}

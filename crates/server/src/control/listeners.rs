//! Two listeners, and the sockets of the clients that they accept.

use crate::accept::{AcceptLimiter, Arrival};
use crate::thread_counts::count;
use mio::net::{TcpListener, UnixListener, UnixStream};
use remora_fabric::shm::decline;
use remora_fabric::{HelloStream, Transport};
use remora_layout::hello::ServerHello;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use zerocopy::IntoBytes;

/// A listener, with its state for the time when descriptors run out.
pub struct Listener {
    listener: ListeningSocket,
    limiter: AcceptLimiter,
}

impl Listener {
    /// A listener without pending connections.
    pub fn new(listener: ListeningSocket) -> Self {
        Self { listener, limiter: AcceptLimiter::new() }
    }

    /// Whether to try again although no event says so.
    pub fn is_due(&self) -> bool {
        self.limiter.is_due()
    }

    /// How long the thread may sleep that wants to sleep for `timeout`.
    pub fn bound(&self, timeout: Option<Duration>) -> Option<Duration> {
        self.limiter.bound(timeout)
    }

    /// The turn has ended, perhaps before the queue.
    pub fn turn_ended(&mut self) {
        self.limiter.turn_ended();
    }

    /// Accepts one client. A client that is turned away for want of descriptors gets this answer,
    /// and is counted in `refused`.
    pub fn accept(&mut self, no_resources: &ServerHello, refused: &AtomicU64) -> Arrival<Socket> {
        let Self { listener, limiter } = self;
        let turn_away = |mut socket: Socket| {
            count(refused, 1);
            socket.answer(no_resources);
            socket.into()
        };
        limiter.accept(&*listener, || listener.accept(), turn_away)
    }
}

/// A listening socket.
pub enum ListeningSocket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl ListeningSocket {
    fn accept(&self) -> std::io::Result<Socket> {
        match self {
            Self::Unix(listener) => listener.accept().map(|(socket, _)| Socket::Unix(socket)),
            Self::Tcp(listener) => {
                listener.accept().map(|(socket, _)| Socket::Tcp(TcpStream::from(socket).into()))
            }
        }
    }
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// The origin of a client.
pub enum Socket {
    Unix(UnixStream),
    Tcp(HelloStream),
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        match socket {
            Socket::Unix(socket) => socket.into(),
            Socket::Tcp(stream) => stream.into_parts().0.into(),
        }
    }
}

impl Socket {
    /// How its sessions are payload, unless another way is chosen.
    pub fn transport(&self) -> Transport {
        match self {
            Self::Unix(_) => Transport::Shm,
            Self::Tcp(_) => Transport::Tcp,
        }
    }

    /// Where the client is, for logs.
    pub fn peer_text(&self) -> String {
        match self {
            Self::Unix(socket) => {
                let peer = rustix::net::sockopt::socket_peercred(socket);
                peer.map_or_else(|_| "unix".into(), |peer| format!("uid={}", peer.uid.as_raw()))
            }
            Self::Tcp(stream) => stream
                .socket()
                .peer_addr()
                .map_or_else(|_| "tcp".into(), |address| format!("addr={address}")),
        }
    }

    pub fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }

    /// Whether more may be read although no event tells of it.
    pub fn has_more(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Tcp(stream) => stream.has_more(),
        }
    }

    /// What to watch.
    pub fn fd(&self) -> RawFd {
        match self {
            Self::Unix(socket) => socket.as_raw_fd(),
            Self::Tcp(stream) => stream.socket().as_raw_fd(),
        }
    }

    /// Sends an answer that grants nothing. A client that has gone needs none.
    pub fn answer(&mut self, hello: &ServerHello) {
        let sent = match self {
            Self::Unix(socket) => decline(&*socket, hello),
            Self::Tcp(stream) => stream.write_all(hello.as_bytes()),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a client did not wait for its answer");
        }
    }
}

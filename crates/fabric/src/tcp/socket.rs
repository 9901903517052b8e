//! The system calls of a connection. The library's own tests replace them by a kernel of a few
//! lines, see `models`.

use crate::HelloStream;
use crate::locks::lock;
use remora_layout::limits::{
    TCP_KEEPALIVE_IDLE_S, TCP_KEEPALIVE_INTERVAL_S, TCP_KEEPALIVE_PROBES, TCP_USER_TIMEOUT_MS,
};
use remora_tls::TlsSession;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, Result};
use rustix::net::{RecvFlags, SendFlags, sockopt};
use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

/// A stream that never blocks, and the descriptor that wakes a thread sleeping on it.
///
/// With TLS the thread that sends and the thread that receives share the session: one may wait for the
/// other's system call, never for the peer.
pub(super) struct Socket {
    stream: TcpStream,
    /// With TLS.
    session: Option<Mutex<TlsSession>>,
    /// Ends a sleep; `None` if no thread sleeps here.
    kick: Option<OwnedFd>,
}

impl Socket {
    /// A socket; `sleeps` says whether threads may sleep on it.
    pub fn new(stream: HelloStream, sleeps: bool) -> std::io::Result<Self> {
        let (stream, session) = stream.into_parts();
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, Duration::from_secs(TCP_KEEPALIVE_IDLE_S))?;
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(TCP_KEEPALIVE_INTERVAL_S))?;
        sockopt::set_tcp_keepcnt(&stream, TCP_KEEPALIVE_PROBES)?;
        sockopt::set_tcp_user_timeout(&stream, TCP_USER_TIMEOUT_MS)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let kick = if sleeps { Some(eventfd(0, flags)?) } else { None };
        Ok(Self { stream, session: session.map(Mutex::new), kick })
    }

    /// One receive; 0 at the stream's end.
    pub fn receive(&self, into: &mut [u8]) -> Result<usize> {
        if let Some(session) = &self.session {
            return lock(session).receive(&mut &self.stream, into).map_err(number_of);
        }
        rustix::net::recv(&self.stream, into, RecvFlags::DONTWAIT).map(|(received, _)| received)
    }

    /// Whether the next receive may give something although no event tells of it: the session has
    /// bytes, or the end of a peer that has hung up comes behind bytes that were no whole record.
    pub fn has_more(&self, is_hung_up: bool) -> bool {
        self.session.as_ref().is_some_and(|session| is_hung_up || lock(session).has_more())
    }

    /// One send: as many bytes as the kernel took. With TLS the next one after a refusal is to offer
    /// the same bytes.
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        if let Some(session) = &self.session {
            return lock(session).send(&mut &self.stream, bytes).map_err(number_of);
        }
        rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL)
    }

    /// How many bytes of those that the last send refused may have reached the peer: see
    /// [`TlsSession::in_doubt`].
    pub fn in_doubt(&self) -> usize {
        self.session.as_ref().map_or(0, |session| lock(session).in_doubt())
    }

    /// Ends the stream in both directions.
    pub fn shut_down(&self) {
        if let Some(session) = &self.session {
            lock(session).close(&mut &self.stream);
        }
        // It may have ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Ends the present sleep, or the next one.
    pub fn kick(&self) {
        if let Some(kick) = &self.kick {
            // A full counter means that a kick is already due.
            let _ = rustix::io::write(kick, &1u64.to_ne_bytes());
        }
    }

    /// Sleeps until something comes, or there is room and it is wanted.
    pub fn sleep(&self, wants_room: bool, timeout: Option<Duration>) {
        let mut interest = PollFlags::IN;
        interest.set(PollFlags::OUT, wants_room);
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let kick = self.kick.as_ref().expect("links pump, so there is one");
        let mut fds = [PollFd::new(&self.stream, interest), PollFd::new(kick, PollFlags::IN)];
        // Interrupted: the caller looks and comes again.
        let _ = poll(&mut fds, timeout.as_ref());
        // One that comes only now ends the next sleep, and is taken there.
        if !fds[1].revents().is_empty() {
            let _ = rustix::io::read(kick, &mut [0u8; 8]);
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The kernel's number of an error; of those that TLS finds, one that ends the connection.
fn number_of(error: std::io::Error) -> Errno {
    match error.kind() {
        ErrorKind::WouldBlock => Errno::AGAIN,
        ErrorKind::Interrupted => Errno::INTR,
        _ => {
            tracing::debug!(%error, "a connection with TLS ends");
            Errno::from_io_error(&error).unwrap_or(Errno::BADMSG)
        }
    }
}

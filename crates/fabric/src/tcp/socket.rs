//! The system calls of a connection. The library's own tests replace them by a kernel of a few
//! lines, see `models`.

use remora_layout::limits::{
    TCP_KEEPALIVE_IDLE_S, TCP_KEEPALIVE_INTERVAL_S, TCP_KEEPALIVE_PROBES, TCP_USER_TIMEOUT_MS,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Result;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A stream that never blocks, and the descriptor that wakes a thread sleeping on it.
pub(super) struct Socket {
    stream: TcpStream,
    /// Ends a sleep; `None` if no thread sleeps here.
    kick: Option<OwnedFd>,
}

impl Socket {
    /// A socket; `sleeps` says whether threads may sleep on it.
    pub fn new(stream: TcpStream, sleeps: bool) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, Duration::from_secs(TCP_KEEPALIVE_IDLE_S))?;
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(TCP_KEEPALIVE_INTERVAL_S))?;
        sockopt::set_tcp_keepcnt(&stream, TCP_KEEPALIVE_PROBES)?;
        sockopt::set_tcp_user_timeout(&stream, TCP_USER_TIMEOUT_MS)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let kick = if sleeps { Some(eventfd(0, flags)?) } else { None };
        Ok(Self { stream, kick })
    }

    /// One receive; 0 at the stream's end.
    pub fn receive(&self, into: &mut [u8]) -> Result<usize> {
        rustix::net::recv(&self.stream, into, RecvFlags::DONTWAIT).map(|(received, _)| received)
    }

    /// One send: as many bytes as the kernel took.
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL)
    }

    /// Ends the stream in both directions.
    pub fn shut_down(&self) {
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

//! A session with its socket, for one thread.

use crate::session::TlsSession;
use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// A socket and its session, whose handshake is over. Its end is announced when it is dropped.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    session: TlsSession,
    waits: bool,
}

impl TlsStream {
    /// A socket that never blocks.
    pub const fn new(socket: TcpStream, session: TlsSession) -> Self {
        Self { socket, session, waits: false }
    }

    /// A socket that blocks.
    pub const fn waiting(socket: TcpStream, session: TlsSession) -> Self {
        Self { socket, session, waits: true }
    }

    /// The socket.
    pub const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Announces the end of what this side sends: it may still read.
    pub fn end_sending(&mut self) {
        self.session.close(&mut &self.socket);
    }

    /// The session.
    pub const fn session(&self) -> &TlsSession {
        &self.session
    }
}

impl Read for TlsStream {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        match self.waits {
            true => self.session.receive_waiting(&mut &self.socket, into),
            false => self.session.receive(&mut &self.socket, into),
        }
    }
}

impl Write for TlsStream {
    /// After [`std::io::ErrorKind::WouldBlock`] the next call is to offer the same bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.session.send(&mut &self.socket, bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.session.close(&mut &self.socket);
    }
}

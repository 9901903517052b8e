//! The TCP stream on which the hellos are said.

use remora_tls::TlsSession;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;

/// A TCP stream until links use it, plain or with TLS.
#[derive(Debug)]
pub struct HelloStream {
    socket: TcpStream,
    session: Option<Box<TlsSession>>,
    /// The socket blocks.
    waits: bool,
}

impl From<TcpStream> for HelloStream {
    fn from(socket: TcpStream) -> Self {
        Self { socket, session: None, waits: false }
    }
}

impl HelloStream {
    /// A socket that never blocks, and its session, whose handshake is over.
    pub fn encrypted(socket: TcpStream, session: TlsSession) -> Self {
        Self { socket, session: Some(Box::new(session)), waits: false }
    }

    /// The same, of a socket that blocks.
    pub fn encrypted_waiting(socket: TcpStream, session: TlsSession) -> Self {
        Self { waits: true, ..Self::encrypted(socket, session) }
    }

    /// The socket.
    pub const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether more may be read although no event of the socket tells of it.
    pub fn has_more(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_more())
    }

    /// Both of them.
    pub fn into_parts(self) -> (TcpStream, Option<TlsSession>) {
        (self.socket, self.session.map(|session| *session))
    }
}

impl Read for HelloStream {
    /// With TLS, too, an end that was not announced is 0 bytes: each message has a length.
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let Some(session) = &mut self.session else { return self.socket.read(into) };
        let read = match self.waits {
            true => session.receive_waiting(&mut self.socket, into),
            false => session.receive(&mut self.socket, into),
        };
        match read {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }
}

impl Write for HelloStream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match &mut self.session {
            Some(session) => session.send(&mut self.socket, bytes),
            None => self.socket.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

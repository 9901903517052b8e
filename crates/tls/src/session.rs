//! One session: a handshake, then bytes both ways.

use crate::error::TlsError;
use rustls::{Connection, ProtocolVersion};
use std::cell::RefCell;
use std::io::{Error, ErrorKind, Read, Result, Write};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Bytes of one read of a socket: what a short read leaves, the socket does not have.
const SOCKET_READ: usize = 16 << 10;
/// Decrypted bytes that a session may hold before it takes no more: no more than rustls allows.
const DECRYPTED_AHEAD: usize = 16 << 10;
/// Bytes that one call takes from the socket, and those of them that may hold nothing for the caller, more
/// than a record has: records without bytes cost the thread as much as others.
const TAKEN_AT_ONCE: usize = 64 << 10;
const TAKEN_FOR_NOTHING: usize = 2 * SOCKET_READ;
/// Bytes that are encrypted before the socket has to take them.
const SENT_AT_ONCE: usize = 64 << 10;

thread_local! {
    /// What sockets are read into, for all sessions of a thread.
    static READ_INTO: RefCell<Box<[u8; SOCKET_READ]>> = RefCell::new(Box::new([0; SOCKET_READ]));
}

/// How far a handshake has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It is over.
    Done,
    /// It goes on once the socket can be read.
    WantsRead,
    /// It goes on once the socket can be written.
    WantsWrite,
}

/// One end of a session, without its socket. Invariants:
/// * a call reads from the socket until the socket has no more, the caller's buffer is full, or it has
///   taken much; then it says that there is more ([`TlsSession::has_more`]), so an edge-triggered event
///   is never lost;
/// * bytes count as sent once the socket has all of their ciphertext: until then the caller keeps them
///   and offers them again, as on a socket that takes nothing. So a caller that has nothing more to
///   send has nothing under way.
pub struct TlsSession {
    connection: Connection,
    /// Ciphertext that was read from the socket and found no room yet.
    read_ahead: Vec<u8>,
    /// Bytes that are encrypted, and not yet said to be sent.
    encrypted: usize,
    /// Why nothing more can be decrypted.
    broken: Option<rustls::Error>,
    /// See [`Self::has_more`].
    has_more: bool,
}

impl std::fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsSession(..)")
    }
}

fn retried<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl TlsSession {
    pub(crate) const fn new(connection: Connection) -> Self {
        Self { connection, read_ahead: Vec::new(), encrypted: 0, broken: None, has_more: false }
    }

    /// As much of the handshake as the socket has, and all of it on one that blocks. At a server it
    /// takes a signature.
    ///
    /// # Errors
    /// The peer speaks no TLS, shows no certificate that is trusted, or has gone. Where it can be told
    /// why, it is.
    pub fn handshake(
        &mut self,
        socket: &mut (impl Read + Write),
    ) -> std::result::Result<Progress, TlsError> {
        loop {
            match self.send_ciphertext(socket) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Progress::WantsWrite);
                }
                Err(error) => return Err(error.into()),
            }
            if !self.connection.is_handshaking() {
                return Ok(Progress::Done);
            }
            match retried(|| self.connection.read_tls(socket)) {
                Ok(0) => return Err(Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Progress::WantsRead);
                }
                Err(error) => return Err(error.into()),
            }
            if let Err(error) = self.connection.process_new_packets() {
                // The alert that says why.
                let _ = self.send_ciphertext(socket);
                return Err(TlsError::Handshake(error));
            }
        }
    }

    /// As [`Read::read`] of the socket: the bytes that are there, 0 at the end that the peer has
    /// announced.
    ///
    /// # Errors
    /// As that, and [`ErrorKind::UnexpectedEof`] for an end without an announcement,
    /// [`ErrorKind::InvalidData`] for bytes that are not the peer's.
    pub fn receive(&mut self, socket: &mut (impl Read + Write), into: &mut [u8]) -> Result<usize> {
        self.receive_by(socket, into, false)
    }

    /// The same on a socket that blocks: it waits for one byte at least.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn receive_waiting(
        &mut self,
        socket: &mut (impl Read + Write),
        into: &mut [u8],
    ) -> Result<usize> {
        self.receive_by(socket, into, true)
    }

    fn receive_by(
        &mut self,
        socket: &mut (impl Read + Write),
        into: &mut [u8],
        waits: bool,
    ) -> Result<usize> {
        READ_INTO.with_borrow_mut(|read_into| {
            self.receive_into(socket, into, (&mut read_into[..], waits))
        })
    }

    fn receive_into(
        &mut self,
        socket: &mut (impl Read + Write),
        into: &mut [u8],
        (read_into, waits): (&mut [u8], bool),
    ) -> Result<usize> {
        let (mut received, mut taken, mut is_drained) = (0, 0, false);
        self.has_more = false;
        let end = loop {
            if received == into.len() {
                self.has_more = true;
                return Ok(received);
            }
            match self.connection.reader().read(&mut into[received..]) {
                Ok(0) => break Ok(0),
                Ok(more) => {
                    received += more;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => break Err(error),
            }
            if let Some(why) = &self.broken {
                break Err(Error::new(ErrorKind::InvalidData, why.clone()));
            }
            if !self.read_ahead.is_empty() {
                let read_ahead = std::mem::take(&mut self.read_ahead);
                self.decrypt(socket, &read_ahead)?;
                continue;
            }
            let is_much = taken >= TAKEN_AT_ONCE || (received == 0 && taken >= TAKEN_FOR_NOTHING);
            self.has_more = is_much && !waits && !is_drained;
            if is_drained || self.has_more || (waits && received > 0) {
                return if received > 0 { Ok(received) } else { Err(ErrorKind::WouldBlock.into()) };
            }
            match retried(|| socket.read(read_into)) {
                Ok(0) => drop(self.connection.read_tls(&mut std::io::empty())?),
                Ok(read) => {
                    taken += read;
                    is_drained = read < read_into.len() && !waits;
                    self.decrypt(socket, &read_into[..read])?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => is_drained = true,
                Err(error) => break Err(error),
            }
        };
        // It comes behind the bytes before it.
        if received > 0 {
            self.has_more = true;
            return Ok(received);
        }
        end
    }

    /// Whether the next [`Self::receive`] gives something although the socket may not be ready again:
    /// bytes that the last one left, the end or an error behind those that it took.
    pub const fn has_more(&self) -> bool {
        self.has_more
    }

    /// Decrypts as much of `bytes` as there is room for; the rest waits.
    fn decrypt(&mut self, socket: &mut impl Write, mut bytes: &[u8]) -> Result<()> {
        let mut has_room = true;
        while !bytes.is_empty() && has_room {
            self.connection.read_tls(&mut bytes)?;
            let state = match self.connection.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // The alert that says why.
                    let _ = self.connection.write_tls(socket);
                    self.broken = Some(error);
                    return Ok(());
                }
            };
            let decrypted = state.plaintext_bytes_to_read();
            has_room = decrypted < DECRYPTED_AHEAD && !state.peer_has_closed();
        }
        self.read_ahead.extend_from_slice(bytes);
        Ok(())
    }

    /// As [`Write::write`] of the socket: how many of these bytes it has taken. After
    /// [`ErrorKind::WouldBlock`] the next call is to offer the same bytes, and may offer more.
    ///
    /// # Errors
    /// As that.
    pub fn send(&mut self, socket: &mut impl Write, bytes: &[u8]) -> Result<usize> {
        self.send_ciphertext(socket)?;
        if self.encrypted == 0 {
            let some = &bytes[..bytes.len().min(SENT_AT_ONCE)];
            self.encrypted = self.connection.writer().write(some)?;
            self.send_ciphertext(socket)?;
        }
        // A caller may offer fewer bytes than before: only these count now.
        let sent = self.encrypted.min(bytes.len());
        self.encrypted -= sent;
        Ok(sent)
    }

    fn send_ciphertext(&mut self, socket: &mut impl Write) -> Result<()> {
        while self.connection.wants_write() {
            if retried(|| self.connection.write_tls(socket))? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// How many bytes of those offered last may have reached the peer although they do not count as
    /// sent: the socket has taken a part of their ciphertext.
    pub const fn in_doubt(&self) -> usize {
        self.encrypted
    }

    /// Announces the end to the peer, if the socket takes it now.
    pub fn close(&mut self, socket: &mut impl Write) {
        self.connection.send_close_notify();
        let _ = self.send_ciphertext(socket);
    }

    /// The common name of the peer's certificate, which is one of the authorities'.
    pub fn peer_name(&self) -> Option<String> {
        let shown = self.connection.peer_certificates()?.first()?;
        let (_, certificate) = X509Certificate::from_der(shown).ok()?;
        let mut names = certificate.subject().iter_common_name();
        // More than one would leave open which is meant.
        let name = names.next()?;
        names.next().is_none().then_some(())?;
        Some(name.as_str().ok()?.to_owned())
    }

    /// The version that is spoken: `TLSv1.3`.
    pub fn version(&self) -> &'static str {
        match self.connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "none",
        }
    }
}

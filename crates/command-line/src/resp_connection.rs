//! A small blocking RESP client: commands are gathered, sent together, and
//! their replies read one after the other.

use crate::credentials::{credentials, tls};
use crate::resp_stream::RespStream;
use anyhow::{Context, anyhow, bail};
use remora_client_core::Credentials;
use remora_resp::Value;
use remora_resp::wire::{ParsedValue, encode};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A peer that is silent for so long is not coming back.
const BACKOFF: Duration = Duration::from_secs(10);
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Room for several replies to a pipeline of small values.
const FIRST_BUFFER_BYTES: usize = 64 << 10;

/// A blocking connection, over TCP, plain or with TLS.
#[derive(Debug)]
pub struct Connection<S = RespStream> {
    stream: S,
    out: Vec<u8>,
    buffer: Vec<u8>,
    /// Unread bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    sent_bytes: u64,
    received_bytes: u64,
    flushes: u64,
}

impl Connection {
    /// Connects to `HOST:PORT`.
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        let addresses: Vec<SocketAddr> = address
            .to_socket_addrs()
            .with_context(|| format!("\"{address}\" is no HOST:PORT"))?
            .collect();
        let (mut last, tls) = (None, tls()?);
        for candidate in addresses {
            match TcpStream::connect_timeout(&candidate, CONNECT_LIMIT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(BACKOFF))?;
                    stream.set_write_timeout(Some(BACKOFF))?;
                    let stream = RespStream::over(stream, (address, tls.as_ref()))?;
                    let mut connection = Self::over(stream);
                    connection.log_in(&credentials())?;
                    return Ok(connection);
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) => Err(error).with_context(|| format!("cannot connect to {address}")),
            None => bail!("\"{address}\" names no host"),
        }
    }

    /// AUTH, if there is a user or a password.
    fn log_in(&mut self, login: &Credentials) -> anyhow::Result<()> {
        if login.are_none() {
            return Ok(());
        }
        let user = if login.user().is_empty() { b"default" } else { login.user() };
        self.push(&[b"AUTH", user, login.password()]);
        self.flush()?;
        match self.reply()? {
            Value::Error(error) => {
                let error = String::from_utf8_lossy(error).into_owned();
                bail!("REMORA_USER and REMORA_PASSWORD: {error}")
            }
            _ => Ok(()),
        }
    }

    /// A reply, or room to send, that takes longer is an error from now on; of a reply it may be asked
    /// for again.
    ///
    /// # Errors
    /// The limit is 0, or the socket is gone.
    pub fn limit_waiting(&self, limit: Duration) -> anyhow::Result<()> {
        self.stream.socket().set_read_timeout(Some(limit))?;
        self.stream.socket().set_write_timeout(Some(limit))?;
        Ok(())
    }

    /// Sends nothing more: the server closes the connection behind its last reply.
    ///
    /// # Errors
    /// The socket is gone.
    pub fn end_sending(&mut self) -> anyhow::Result<()> {
        Ok(self.stream.end_sending()?)
    }

    /// Whether the peer is on this machine.
    pub fn peer_is_local(&self) -> bool {
        self.stream.socket().peer_addr().is_ok_and(|address| address.ip().is_loopback())
    }
}

impl<S: Read + Write> Connection<S> {
    /// A connection over any stream.
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            out: Vec::with_capacity(FIRST_BUFFER_BYTES),
            buffer: vec![0; FIRST_BUFFER_BYTES],
            start: 0,
            end: 0,
            sent_bytes: 0,
            received_bytes: 0,
            flushes: 0,
        }
    }

    /// Adds a command to those that the next [`Self::flush`] sends.
    #[inline]
    pub fn push(&mut self, parts: &[&[u8]]) {
        self.push_header(parts.len());
        for part in parts {
            self.push_part(part);
        }
    }

    /// Begins a command of so many parts; they follow by [`Self::push_part`].
    #[inline]
    pub fn push_header(&mut self, parts: usize) {
        encode::array(&mut self.out, parts);
    }

    /// Adds one part of a command.
    #[inline]
    pub fn push_part(&mut self, part: &[u8]) {
        encode::bulk(&mut self.out, part);
    }

    /// Sends the gathered requests.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.out).context("sending to the server")?;
        self.sent_bytes += self.out.len() as u64;
        self.flushes += 1;
        self.out.clear();
        Ok(())
    }

    /// The next reply.
    #[inline]
    pub fn reply(&mut self) -> anyhow::Result<Value<'_>> {
        let used = loop {
            // Parsed twice, here for its length only: the borrow of a reply
            // that is returned must not hold over the reading below.
            let bytes = &self.buffer[self.start..self.end];
            match Value::parse(bytes).map_err(|error| no_reply(bytes, error))? {
                ParsedValue::Value { consumed, .. } => break consumed,
                ParsedValue::Incomplete { need } => {
                    // At least this many bytes: otherwise a long reply is parsed too often.
                    while self.end - self.start < need {
                        self.receive()?;
                    }
                }
            }
        };
        let from = self.start;
        self.start += used;
        match Value::parse(&self.buffer[from..self.end])? {
            ParsedValue::Value { value, .. } => Ok(value),
            ParsedValue::Incomplete { .. } => bail!("a whole reply became a part of one"),
        }
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            // Bounded by the longest value that is taken for one.
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
        loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(read) => {
                    self.end += read;
                    self.received_bytes += read as u64;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("waiting for the server's reply"),
            }
        }
    }

    /// Bytes sent and received so far.
    pub fn bytes(&self) -> u64 {
        self.sent_bytes + self.received_bytes
    }

    /// Times that commands were sent and their replies awaited.
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Value of a key.
    pub fn get(&mut self, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        self.ask_for_bulk(&[b"GET", key])
    }

    /// A setting of the server, `None` if it does not know the name.
    pub fn config_get(&mut self, name: &str) -> anyhow::Result<Option<String>> {
        self.push(&[b"CONFIG", b"GET", name.as_bytes()]);
        self.flush()?;
        match self.reply()? {
            Value::Array(pair) => match pair[..] {
                [] => Ok(None),
                [_, Value::Bulk(value)] => Ok(Some(String::from_utf8_lossy(value).into_owned())),
                _ => bail!("unexpected reply to CONFIG GET: {pair:?}"),
            },
            Value::Error(_) => Ok(None),
            other => bail!("unexpected reply to CONFIG GET: {other:?}"),
        }
    }

    /// A field of INFO, of the section `server`.
    pub fn info(&mut self, field: &str) -> anyhow::Result<Option<String>> {
        self.info_of("server", field)
    }

    /// A field of a section of INFO.
    pub fn info_of(&mut self, section: &str, field: &str) -> anyhow::Result<Option<String>> {
        Ok(self.info_section(section)?.remove(field))
    }

    /// All fields of a section of INFO.
    pub fn info_section(&mut self, section: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let text = self.ask_for_bulk(&[b"INFO", section.as_bytes()])?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    fn ask_for_bulk(&mut self, command: &[&[u8]]) -> anyhow::Result<Option<Vec<u8>>> {
        self.push(command);
        self.flush()?;
        match self.reply()? {
            Value::Bulk(value) => Ok(Some(value.to_vec())),
            Value::Null => Ok(None),
            Value::Error(text) => bail!("the server says: {}", String::from_utf8_lossy(text)),
            other => bail!("unexpected reply: {other:?}"),
        }
    }
}

/// Why these bytes are no reply: a server with TLS answers to a client without it by an alert.
fn no_reply(bytes: &[u8], error: impl Into<anyhow::Error>) -> anyhow::Error {
    match bytes.starts_with(&[21, 3]) {
        true => anyhow!("the server speaks TLS: name the file of its authority in REMORA_TLS_CA"),
        false => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Returns its bytes in pieces of the stated sizes.
    struct Pieces {
        pieces: VecDeque<Vec<u8>>,
        written: Vec<u8>,
    }

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let Some(piece) = self.pieces.pop_front() else { return Ok(0) };
            into[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.written.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    const REPLIES: &[u8] = b"+OK\r\n:12\r\n*2\r\n$-1\r\n$7\r\na\r\n$1\r\n\r\n-ERR x\r\n";

    fn check(mut connection: Connection<Pieces>, how: &str) {
        let expected = [
            Value::Simple(b"OK"),
            Value::Integer(12),
            Value::Array(vec![Value::Null, Value::Bulk(b"a\r\n$1\r\n")]),
            Value::Error(b"ERR x"),
        ];
        for reply in expected {
            assert_eq!(connection.reply().unwrap(), reply, "{how}");
        }
        assert!(connection.reply().is_err());
        assert_eq!(connection.bytes(), REPLIES.len() as u64);
    }

    #[test]
    fn replies_survive_a_split_at_every_byte() {
        for cut in 0..=REPLIES.len() {
            let halves = [&REPLIES[..cut], &REPLIES[cut..]];
            let pieces =
                halves.iter().filter(|half| !half.is_empty()).map(|half| half.to_vec()).collect();
            let stream = Pieces { pieces, written: Vec::new() };
            check(Connection::over(stream), &format!("cut at {cut}"));
        }
        let pieces = REPLIES.iter().map(|byte| vec![*byte]).collect();
        check(Connection::over(Pieces { pieces, written: Vec::new() }), "byte by byte");
    }

    #[test]
    fn commands_are_gathered_and_sent_once() {
        let stream = Pieces { pieces: VecDeque::new(), written: Vec::new() };
        let mut connection = Connection::over(stream);
        connection.push(&[b"GET", b"k"]);
        connection.push(&[b"SET", b"k", b"0123456789"]);
        assert!(connection.stream.written.is_empty());
        connection.flush().unwrap();
        assert_eq!(
            connection.stream.written,
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10\r\n0123456789\r\n"
        );
        assert_eq!(connection.flushes(), 1);
    }
}

//! A RESP client of the plainest kind: it shares no code with the server.

use crate::wait::DEADLINE;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `+`
    Simple(String),
    /// `-`
    Error(String),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1`, `*-1`, `_`
    Null,
    /// `*`
    Array(Vec<Value>),
}

impl Value {
    /// The value of a bulk string.
    pub fn bulk(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(bytes.into())
    }

    /// `+OK`
    pub fn ok() -> Self {
        Self::Simple("OK".into())
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

/// A connection.
pub struct Resp {
    /// For what has to be done by hand.
    pub socket: TcpStream,
    reader: BufReader<TcpStream>,
}

/// A request as an array of bulk strings.
pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Resp {
    /// Connects. A reply that does not come by the deadline is an error.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(DEADLINE))?;
        socket.set_write_timeout(Some(DEADLINE))?;
        let reader = BufReader::with_capacity(1 << 16, socket.try_clone()?);
        Ok(Self { socket, reader })
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes)
    }

    /// Sends a request.
    pub fn send(&mut self, words: &[&[u8]]) -> Result<()> {
        self.socket.write_all(&encode(words))
    }

    /// Takes the next reply.
    pub fn receive(&mut self) -> Result<Value> {
        let line = self.line()?;
        let bad = || Error::new(ErrorKind::InvalidData, format!("not a reply: {line:?}"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(bad)?;
        let number = || rest.parse::<i64>().map_err(|_| bad());
        Ok(match kind {
            "+" => Value::Simple(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Integer(number()?),
            "_" => Value::Null,
            "$" => match number()? {
                -1 => Value::Null,
                bytes => Value::Bulk(self.exactly(bytes as usize)?),
            },
            "*" => match number()? {
                -1 => Value::Null,
                count => Value::Array((0..count).map(|_| self.receive()).collect::<Result<_>>()?),
            },
            _ => return Err(bad()),
        })
    }

    /// Waits until a reply has begun to come; takes nothing of it.
    pub fn wait_for_reply(&mut self) -> Result<()> {
        let has_ended = self.reader.fill_buf()?.is_empty();
        if has_ended { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Sends a request and takes its reply.
    pub fn try_call(&mut self, words: &[&[u8]]) -> Result<Value> {
        self.send(words)?;
        self.receive()
    }

    /// As [`Resp::try_call`], with words split at spaces; it has to work.
    pub fn call(&mut self, request: &str) -> Value {
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        self.try_call(&words).unwrap_or_else(|error| panic!("{request}: {error}"))
    }

    /// Everything until the server closes.
    pub fn rest(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A field of INFO, as a number.
    pub fn info(&mut self, name: &str) -> u64 {
        let Value::Bulk(text) = self.call("INFO") else { panic!("INFO gives no text") };
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let line = line.unwrap_or_else(|| panic!("INFO has no {name}"));
        line.trim().parse().unwrap_or_else(|_| panic!("{name} is no number: {line}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') || line.pop() != Some(b'\r') {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn exactly(&mut self, bytes: usize) -> Result<Vec<u8>> {
        let mut value = vec![0; bytes + 2];
        self.reader.read_exact(&mut value)?;
        value.truncate(bytes);
        Ok(value)
    }
}

//! A real redis-server, and replies as the bytes that they are, so that ours
//! and its can be held against each other.

use crate::resp::encode;
use crate::server::ServerProcess;
use crate::wait::DEADLINE;
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A redis-server on a Unix socket in a directory of its own; it keeps nothing
/// and is killed when this is dropped.
pub struct RedisServer {
    directory: TempDir,
    child: Child,
}

impl RedisServer {
    /// Starts one and waits until it can be connected to.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", "s"]);
        // One database, as ours.
        command.args(["--databases", "16"]);
        command.arg("--dir").arg(directory.path()).current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("redis-server is installed");
        let server = Self { directory, child };
        crate::wait_until("redis-server listens", || server.socket().is_ok());
        server
    }

    /// A stream to it.
    ///
    /// # Errors
    /// It does not listen.
    pub fn socket(&self) -> Result<UnixStream> {
        UnixStream::connect(self.directory.path().join("s"))
    }

    /// A connection.
    pub fn connect(&self) -> Bytes {
        let socket = self.socket().expect("redis-server listens");
        socket.set_read_timeout(Some(DEADLINE)).expect("a limit");
        let reader = socket.try_clone().expect("another handle");
        Bytes { writer: Box::new(socket), reader: BufReader::new(Box::new(reader)) }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The reply to a call with GT or LT depends on whether a millisecond has passed
/// since the expiry was set that it compares with. Waits until one has, for both
/// servers.
pub fn let_clocks_go_on(call: &[Vec<u8>]) {
    let compares =
        |word: &Vec<u8>| word.eq_ignore_ascii_case(b"GT") || word.eq_ignore_ascii_case(b"LT");
    if call.iter().any(compares) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A RESP connection that gives replies as bytes.
pub struct Bytes {
    writer: Box<dyn Write>,
    reader: BufReader<Box<dyn Read>>,
}

impl Bytes {
    /// Connects over TCP. A reply that does not come by the deadline is an error.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(DEADLINE))?;
        let reader = socket.try_clone()?;
        Ok(Self { writer: Box::new(socket), reader: BufReader::new(Box::new(reader)) })
    }

    /// Connections to a server of ours and to Redis, by this protocol. Each says
    /// its own name in reply to HELLO: that is not compared.
    pub fn pair(ours: &ServerProcess, redis: &RedisServer, protocol: &str) -> [Self; 2] {
        let mut both = [Self::connect(ours.resp_address()).expect("a connection"), redis.connect()];
        for connection in &mut both {
            let hello = connection.call(&[b"HELLO", protocol.as_bytes()]).expect("a reply");
            assert!(!hello.starts_with(b"-"), "{}", hello.escape_ascii());
        }
        both
    }

    /// Sends a request and gives the bytes of its reply.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Vec<u8>> {
        self.writer.write_all(&encode(words))?;
        let mut reply = Vec::new();
        self.take(&mut reply)?;
        Ok(reply)
    }

    /// Appends one whole reply, with all that is in it.
    fn take(&mut self, reply: &mut Vec<u8>) -> Result<()> {
        let from = reply.len();
        self.reader.read_until(b'\n', reply)?;
        let line = String::from_utf8_lossy(&reply[from..]).into_owned();
        let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
        let number = rest.trim_end().parse::<i64>().unwrap_or(-1);
        match kind {
            "$" | "!" | "=" if number >= 0 => {
                let from = reply.len();
                reply.resize(from + number as usize + 2, 0);
                self.reader.read_exact(&mut reply[from..])?;
            }
            "*" | "~" | ">" => (0..number).try_for_each(|_| self.take(reply))?,
            "%" => (0..2 * number).try_for_each(|_| self.take(reply))?,
            "$" | "+" | "-" | ":" | "_" | "#" | "," | "(" => {}
            _ => panic!("not a reply: {line:?}"),
        }
        Ok(())
    }
}

//! A RESP client by script against a whole server in this process: its RESP
//! thread, its shards, and a real socket between.
//!
//! The same bytes are sent twice: at once, and in pieces. What must hold:
//! * each whole request is answered by one well-formed value, in order; what
//!   is no request by one error, and the connection ends;
//! * the replies are what a map says that they must be;
//! * how the bytes were cut makes no difference;
//! * DBSIZE is the number of keys that the map holds.

mod model;
mod stream;

use super::{Script, await_any};
use crate::Resp;
use model::Model;
use remora_layout::limits::MAX_REQUEST_BYTES;
use remora_resp::wire::ParsedValue;
use remora_resp::{Args, Parsed, Value, parse};
use remora_server::{Config, Eviction, Packets, Server, Wake};
use rustix::event::{PollFd, PollFlags};
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Mutex, OnceLock, PoisonError};

const PIECES: [usize; 6] = [1, 2, 7, 60, 1_000, 1 << 16];

/// What came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Requests that were answered.
    pub requests: usize,
    /// Replies whose value the map foretold.
    pub foretold: usize,
    /// Whether the client said what is no request.
    pub broke: bool,
    /// Replies that were the same both times.
    pub compared: usize,
}

/// The server, and a connection of the test's own. It runs until the process
/// ends.
struct Host {
    _server: Server,
    address: SocketAddr,
    control: Resp,
}

fn host() -> &'static Mutex<Host> {
    static HOST: OnceLock<Mutex<Host>> = OnceLock::new();
    HOST.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let server = Server::start(Config {
            data: None,
            replica_of: None,
            cluster: None,
            replica_reads: Default::default(),
            min_replicas: 0,
            replica_acks: remora_server::AskFor::default(),
            users: Default::default(),
            tls: None,
            shm_users: Vec::new(),
            peer_login: Default::default(),
            peer_tls: None,
            replica_backlog_bytes: 64 << 20,
            resp_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            mongo_address: None,
            socket_path: directory.path().join("socket"),
            fabric_address: None,
            rdma_devices: Vec::new(),
            rdma_packets: Packets::default(),
            transport: remora_client_core::Wanted::Auto,
            shards: 2,
            max_memory_bytes: 64 << 20,
            buckets: 0,
            wake: Wake::Event,
            pin: false,
            lease_min_ms: 1_000,
            pointer_sharing: false,
            quarantine_bytes: 0,
            upload_idle_s: remora_layout::limits::UPLOAD_IDLE_S,
            eviction: Eviction::None,
            max_queue_pairs: 1,
            reads_per_client: 1,
        });
        let server = server.expect("a server");
        let address = server.resp_address();
        let control = Resp::connect(address).expect("it listens");
        Mutex::new(Host { _server: server, address, control })
    })
}

/// Plays a client.
pub fn run(script: &[u8]) -> Seen {
    let mut script = Script::new(script);
    let piece = script.pick(&PIECES);
    let stream = stream::stream(&mut script);
    let expected = Expected::of(&stream);

    let mut host = host().lock().unwrap_or_else(PoisonError::into_inner);
    let whole = host.exchange(&stream, stream.len(), &expected);
    let pieces = host.exchange(&stream, piece.max(stream.len() / 64), &expected);
    let mut compared = 0;
    for (one, other) in whole.replies.iter().zip(&pieces.replies) {
        if let (Some(one), Some(other)) = (one, other) {
            let (at_once, in_pieces) = (one.escape_ascii(), other.escape_ascii());
            assert!(one == other, "at once {at_once:.200}, in pieces {in_pieces:.200}");
            compared += 1;
        }
    }
    let foretold = whole.model.foretold;
    Seen { requests: expected.requests, foretold, broke: expected.breaks, compared }
}

/// What a stream of bytes is, request by request.
struct Expected {
    /// Requests that are to be answered.
    requests: usize,
    /// Something that is no request follows them, and is answered too.
    breaks: bool,
    /// The server is to close the connection.
    ends: bool,
    /// Bytes up to the end of the last request, or of what is none.
    bytes: usize,
}

impl Expected {
    fn of(stream: &[u8]) -> Self {
        let mut expected = Self { requests: 0, breaks: false, ends: false, bytes: 0 };
        let mut args = Args::new();
        loop {
            let rest = &stream[expected.bytes..];
            match parse(rest, &mut args) {
                Ok(Parsed::Request { consumed }) => {
                    expected.bytes += consumed;
                    expected.requests += !args.is_empty() as usize;
                    if !args.is_empty() && args.get(0, rest).eq_ignore_ascii_case(b"quit") {
                        expected.ends = true;
                        return expected;
                    }
                }
                Ok(Parsed::Incomplete { need }) if need <= MAX_REQUEST_BYTES => {
                    return expected;
                }
                _ => {
                    expected.breaks = true;
                    expected.ends = true;
                    return expected;
                }
            }
        }
    }
}

/// What came back.
struct Judged {
    /// The bytes of each reply that is the same every time.
    replies: Vec<Option<Vec<u8>>>,
    model: Model,
}

impl Host {
    /// Sends a stream in pieces to an empty server, and judges what comes back.
    fn exchange(&mut self, stream: &[u8], piece: usize, expected: &Expected) -> Judged {
        assert_eq!(self.control.call("FLUSHALL"), crate::Value::ok());
        let replies = send(self.address, stream, piece.max(1));
        let judged = judge(stream, &replies, expected);
        let has_all = judged.replies.len() == expected.requests;
        if has_all && let Some(keys) = judged.model.keys_of_first() {
            let size = self.control.call("DBSIZE");
            assert_eq!(size, crate::Value::Integer(keys as i64), "DBSIZE");
        }
        judged
    }
}

/// Sends a stream in pieces, closes this side, and takes what comes until the
/// other side is closed too.
fn send(address: SocketAddr, stream: &[u8], piece: usize) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.set_nonblocking(true).expect("an option");
    socket.set_nodelay(true).expect("an option");
    let mut replies = Vec::new();
    let mut buffer = [0; 1 << 16];
    let mut sent = 0;
    let mut is_closed = false;
    loop {
        if sent < stream.len() {
            match socket.write(&stream[sent..stream.len().min(sent + piece)]) {
                Ok(bytes) => sent += bytes,
                Err(error) if is_passing(&error) => {}
                // It was cut off; what it was told may still be there.
                Err(_) => sent = stream.len(),
            }
        }
        if sent == stream.len() && !std::mem::replace(&mut is_closed, true) {
            let _ = socket.shutdown(Shutdown::Write);
        }
        match socket.read(&mut buffer) {
            Ok(0) => return replies,
            Ok(bytes) => replies.extend_from_slice(&buffer[..bytes]),
            Err(error) if is_passing(&error) => {
                let out = if is_closed { PollFlags::empty() } else { PollFlags::OUT };
                let mut fds = [PollFd::new(&socket, PollFlags::IN | out)];
                await_any(&mut fds, "the server neither answers nor closes");
            }
            Err(_) => return replies,
        }
    }
}

fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Holds replies against requests.
fn judge(stream: &[u8], replies: &[u8], expected: &Expected) -> Judged {
    let mut judged = Judged { replies: Vec::new(), model: Model::new() };
    let mut args = Args::new();
    let (mut from, mut at) = (0, 0);
    while judged.replies.len() < expected.requests {
        let Ok(Parsed::Request { consumed }) = parse(&stream[from..], &mut args) else {
            panic!("it was a request before");
        };
        let request = &stream[from..from + consumed];
        from += consumed;
        if args.is_empty() {
            continue;
        }
        let before = at;
        let Some(reply) = next(replies, &mut at, expected, stream) else { return judged };
        let is_repeatable = judged.model.check(&args, request, &reply, &replies[before..at]);
        judged.replies.push(is_repeatable.then(|| replies[before..at].to_vec()));
    }
    if expected.breaks {
        let Some(reply) = next(replies, &mut at, expected, stream) else { return judged };
        let text = reply.error().expect("an error");
        assert!(text.starts_with(b"ERR Protocol error"), "{reply:?}");
    }
    assert_eq!(at, replies.len(), "more replies than requests");
    judged
}

/// The next reply. None is missing, but where the client was cut off while it
/// went on to send: its system may have thrown away what it had received.
fn next<'r>(
    replies: &'r [u8],
    at: &mut usize,
    expected: &Expected,
    stream: &[u8],
) -> Option<Value<'r>> {
    match Value::parse(&replies[*at..]) {
        Ok(ParsedValue::Value { value, consumed }) => {
            *at += consumed;
            Some(value)
        }
        Ok(ParsedValue::Incomplete { .. }) => {
            let may_miss = expected.ends && expected.bytes < stream.len() || expected.breaks;
            assert!(may_miss, "a reply is missing");
            None
        }
        Err(error) => panic!("what came back is no RESP: {error}"),
    }
}

//! A single-threaded epoll server that parses nothing: the lower bound of what
//! a RESP server of one thread can cost. `bench/cores.sh` runs it beside real ones.
//!
//! `remora-bench-echo PORT get | set`
//!
//! All requests of one run of redis-benchmark have the same length, so it counts
//! bytes. For each read it sends as many fixed replies as requests were
//! completed, in one write: `+OK` to a SET, a value of 32 bytes to a GET. Per
//! ready connection that is one read and one write, as in Redis.

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{Errno, read, write};
use std::net::TcpListener;

/// Bytes of one read, as of Redis.
const READ_BYTES: usize = 16 << 10;
/// Connections that one wait reports.
const EVENTS: usize = 1024;
/// The listener among the numbers of connections, which are descriptors.
const LISTENER: u64 = u64::MAX;

/// What redis-benchmark sends, and what it expects.
struct Kind {
    /// `*2`, `GET` and a key of 16 bytes; `*3`, `SET`, the key and 32 bytes.
    request_bytes: usize,
    /// Where a connection begins otherwise, it asks for the configuration.
    beginning: &'static [u8],
    reply: Vec<u8>,
}

impl Kind {
    fn named(name: &str) -> Self {
        match name {
            "get" => Self {
                request_bytes: 36,
                beginning: b"*2\r\n$3\r\nGET",
                reply: [b"$32\r\n".as_slice(), &[b'x'; 32], b"\r\n"].concat(),
            },
            "set" => Self {
                request_bytes: 75,
                beginning: b"*3\r\n$3\r\nSET",
                reply: b"+OK\r\n".to_vec(),
            },
            _ => panic!("get or set, not {name}"),
        }
    }
}

struct Connection {
    socket: OwnedFd,
    /// Bytes that have come.
    bytes: usize,
}

impl Connection {
    /// Reads once and answers. `false`: it has ended.
    fn serve(&mut self, kind: &Kind, buffer: &mut Vec<u8>, replies: &[u8]) -> bool {
        buffer.clear();
        match read(&self.socket, spare_capacity(buffer)) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
        let first = self.bytes < kind.beginning.len();
        if first && !buffer.starts_with(kind.beginning) {
            return false;
        }
        let before = self.bytes / kind.request_bytes;
        self.bytes += buffer.len();
        let completed = self.bytes / kind.request_bytes - before;
        let reply = &replies[..completed * kind.reply.len()];
        // redis-benchmark waits for its replies, so that they always fit.
        reply.is_empty() || write(&self.socket, reply) == Ok(reply.len())
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().and_then(|text| text.parse().ok()).expect("PORT");
    let kind = Kind::named(&arguments.next().unwrap_or_default());
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    listener.set_nonblocking(true).expect("a listener");
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let listening = epoll::EventData::new_u64(LISTENER);
    epoll::add(&poll, &listener, listening, epoll::EventFlags::IN).expect("epoll");
    let replies = kind.reply.repeat(READ_BYTES / kind.request_bytes + 1);
    let mut buffer = Vec::with_capacity(READ_BYTES);
    // By descriptor.
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("epoll: {error}"),
        }
        for event in &events {
            let number = event.data.u64();
            if number == LISTENER {
                accept_all(&listener, &poll, &mut connections);
            } else if let Some(slot) = connections.get_mut(number as usize)
                && let Some(connection) = slot
                && !connection.serve(&kind, &mut buffer, &replies)
            {
                *slot = None;
            }
        }
    }
}

fn accept_all(listener: &TcpListener, poll: &OwnedFd, connections: &mut Vec<Option<Connection>>) {
    while let Ok((stream, _)) = listener.accept() {
        stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).expect("a socket");
        let socket = OwnedFd::from(stream);
        let number = socket.as_raw_fd() as usize;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(poll, &socket, data, epoll::EventFlags::IN).expect("epoll");
        if connections.len() <= number {
            connections.resize_with(number + 1, || None);
        }
        connections[number] = Some(Connection { socket, bytes: 0 });
    }
}

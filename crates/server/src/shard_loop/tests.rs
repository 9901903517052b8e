//! Connections that go from one thread to another while the server ends.

use super::*;
use crate::address_limit::AddressPermit;
use crate::config::Config;
use crate::server::Server;
use remora_arena::{AsleepWord, Mapping, Owner, Words};
use remora_engine::ShardOptions;
use remora_frontend::Connection;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(20);

fn server(directory: &Path) -> Server {
    Server::start(Config::for_tests(directory)).unwrap()
}

/// A client that has sent a request, and its connection, which no thread serves.
fn connection() -> (TcpStream, Handed) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    let (stream, peer) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    (
        client,
        Handed {
            stream: ClientStream::Plain(stream, AddressPermit::default()),
            connection: Connection::new(peer, 1_000),
        },
    )
}

#[test]
fn a_connection_that_comes_while_its_new_thread_drains_is_drained() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path());
    let to = &server.shared().shards[1];
    // As the thread of shard 0 does when it hands one over.
    to.connections.fetch_add(1, Ordering::SeqCst);
    let (done, drained) = channel();
    to.inbox.push(Message::Drain(done));
    let early = drained.recv_timeout(DRAIN / 20);
    assert_eq!(early, Err(RecvTimeoutError::Timeout), "it waits for what is under way");
    let (mut client, handed) = connection();
    to.inbox.push(Message::Serve(Box::new(handed)));
    let mut said = String::new();
    client.read_to_string(&mut said).expect("the connection ends");
    assert_eq!(said, "+PONG\r\n", "what has arrived is answered");
    assert_eq!(drained.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
    assert_eq!(to.connections.load(Ordering::SeqCst), 0);
    server.shutdown();
}

#[test]
fn no_connection_moves_while_the_server_ends() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path());
    let shared = server.shared();
    let [own, other] = [0, 1].map(|shard| &shared.shards[shard]);
    // Beside the thread of shard 0, and with its counts.
    let sleeper = Sleeper::new(AsleepWord::new(Words::new(Mapping::heap(8)), 0)).unwrap();
    let shard = Shard::new(Owner::heap(1 << 20, NoJournal), ShardOptions::default());
    let mut beside = ShardLoop::new(Arc::clone(shared), 0, shard, sleeper);
    let counts = || [own, other].map(|shard| shard.connections.load(Ordering::SeqCst));

    let (mut moved, handed) = connection();
    beside.hand_over(1, handed);
    let mut said = [0; 7];
    moved.read_exact(&mut said).unwrap();
    assert_eq!((&said, counts()), (b"+PONG\r\n", [0, 1]));
    assert_eq!(own.thread.connections_moved.get(), 1);

    shared.stopping.store(true, Ordering::SeqCst);
    let (_kept, handed) = connection();
    beside.hand_over(1, handed);
    assert_eq!((beside.connections.open(), counts()), (1, [1, 1]), "it stays");
    assert_eq!(own.thread.connections_moved.get(), 1);
    own.connections.fetch_sub(1, Ordering::SeqCst);
    server.shutdown();
    let mut end = [0];
    assert_eq!(moved.read(&mut end).unwrap(), 0, "the other one ended with its thread");
}

//! What one client, one address and one user may take at the port of MongoDB's protocol.

use crate::mongo_hostile::message;
use remora_mongo::bson::{Document, doc};
use remora_mongo::wire::HEADER_BYTES;
use remora_tests::{DEADLINE, ServerProcess, Value, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;

const MIB: usize = 1 << 20;

fn connect(server: &ServerProcess) -> TcpStream {
    let stream = TcpStream::connect(server.mongo_address()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// The reply to a command.
fn call(stream: &mut TcpStream, body: &Document) -> Document {
    stream.write_all(&message(1, body)).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut rest = vec![0; i32::from_le_bytes(length) as usize - 4];
    stream.read_exact(&mut rest).unwrap();
    Document::from_reader(&rest[HEADER_BYTES + 1..]).unwrap()
}

/// How many bytes come before the server closes the connection.
fn bytes_to_the_end(stream: &mut TcpStream) -> usize {
    let mut bytes = Vec::new();
    // It may be reset behind them.
    let _ = stream.read_to_end(&mut bytes);
    bytes.len()
}

/// Begins an insertion of so many bytes, all but the last ones, or sends as much as the server takes.
fn begin(stream: &mut TcpStream, bytes: usize) {
    let document = doc! { "_id": 1, "text": "x".repeat(bytes) };
    let whole = message(1, &doc! { "insert": "c", "documents": [document], "$db": "db" });
    let _ = stream.write_all(&whole[..bytes]);
}

#[test]
fn connections_count_for_their_address_with_those_of_resp() {
    let server = ServerProcess::start(&["--mongo-port=0", "--max-clients-per-address=3"]);
    let mut resp = server.resp();
    let ping = doc! { "ping": 1, "$db": "admin" };
    let mut clients = [connect(&server), connect(&server)];
    for client in &mut clients {
        assert_eq!(call(client, &ping).get_f64("ok").unwrap(), 1.0);
    }
    assert_eq!(bytes_to_the_end(&mut connect(&server)), 0);
    assert_eq!(resp.info("rejected_connections_of_address"), 1);
    drop(clients);
    wait_until("there is room again", || {
        let mut client = connect(&server);
        let _ = client.write_all(&message(1, &ping));
        bytes_of_one(&mut client) > 0
    });
}

/// How many bytes one read gives.
fn bytes_of_one(stream: &mut TcpStream) -> usize {
    stream.read(&mut [0; 64]).unwrap_or(0)
}

#[test]
fn what_buffers_hold_is_bounded_for_an_address() {
    let flags = ["--mongo-port=0", "--shards=2", "--max-client-memory-per-address=6MiB"];
    let server = ServerProcess::start(&flags);
    let mut resp = server.resp();
    let mut first = connect(&server);
    begin(&mut first, 4 * MIB);
    wait_until("the server has taken it", || resp.info("client_buffer_bytes") >= 4 * MIB as u64);
    let mut second = connect(&server);
    begin(&mut second, 4 * MIB);
    bytes_to_the_end(&mut second);
    assert_eq!(resp.info("client_memory_disconnections_of_address"), 1);
    // Small messages go on.
    let mut third = connect(&server);
    let insert = doc! { "insert": "c", "documents": [{ "_id": 2 }], "$db": "db" };
    assert_eq!(call(&mut third, &insert).get_i32("n").unwrap(), 1);
    drop((first, third));
    wait_until("nothing is held", || resp.info("client_buffer_bytes") == 0);
}

#[test]
fn a_client_that_has_not_logged_in_sends_short_messages() {
    let server = ServerProcess::start(&["--mongo-port=0", "--requirepass=top"]);
    let mut client = connect(&server);
    let find = doc! { "find": "c", "$db": "db" };
    assert_eq!(call(&mut client, &find).get_i32("code").unwrap(), 13);
    // The rest of it never comes: the server does not wait for it.
    begin(&mut client, MIB);
    bytes_to_the_end(&mut client);
    let mut resp = server.resp();
    assert_eq!(resp.call("AUTH top"), Value::ok());
    wait_until("nothing is held", || resp.info("client_buffer_bytes") == 0);
    assert!(server.log().lines().all(|line| !line.contains("panic")), "{}", server.log());
}

//! What one client, one address and one user may take at the port of MongoDB's protocol.

use crate::mongo_hostile::message;
use remora_mongo::bson::{Document, doc};
use remora_mongo::wire::{Compressor, HEADER_BYTES, compress};
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

#[test]
fn a_user_with_few_rights_aggregates_many_documents() {
    let server = ServerProcess::start(&["--mongo-port=0", "--shards=2"]);
    let mut client = connect(&server);
    let documents: Vec<Document> = (0..1_000).map(|at| doc! { "_id": at }).collect();
    let insert = doc! { "insert": "c", "documents": documents, "$db": "db" };
    assert_eq!(call(&mut client, &insert).get_i32("n").unwrap(), 1_000);
    // Clients that do not log in have the rights of this user.
    let mut resp = server.resp();
    let rights = "ACL SETUSER default resetkeys ~db.* -@all +doc.find";
    assert_eq!(resp.call(rights), Value::ok());
    let group = doc! { "$group": { "_id": null, "sum": { "$sum": "$_id" } } };
    let pipeline = vec![group.clone()];
    let aggregate = doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {}, "$db": "db" };
    let reply = call(&mut client, &aggregate);
    let cursor = reply.get_document("cursor").unwrap_or_else(|_| panic!("{reply}"));
    let found = cursor.get_array("firstBatch").unwrap()[0].as_document().unwrap();
    assert_eq!(found.get_i32("sum").unwrap(), 499_500);
    let other = doc! { "aggregate": "c", "pipeline": [group], "cursor": {}, "$db": "other" };
    assert_eq!(call(&mut client, &other).get_i32("code").unwrap(), 13);
}

#[test]
fn a_user_with_few_rights_sees_its_own_collections() {
    let server = ServerProcess::start(&["--mongo-port=0", "--shards=2"]);
    let mut client = connect(&server);
    for (database, collection) in [("db", "own"), ("db", "hidden"), ("other", "hidden")] {
        let insert = doc! { "insert": collection, "documents": [{ "_id": 1 }], "$db": database };
        assert_eq!(call(&mut client, &insert).get_i32("n").unwrap(), 1);
    }
    // It may not SCAN.
    let mut resp = server.resp();
    let rights = "ACL SETUSER default resetkeys ~db.own -@all +doc.info +doc.update";
    assert_eq!(resp.call(rights), Value::ok());
    let databases = call(&mut client, &doc! { "listDatabases": 1, "$db": "admin" });
    let databases = databases.get_array("databases").unwrap_or_else(|_| panic!("{databases}"));
    let names = databases.iter().map(|of| of.as_document().unwrap().get_str("name").unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["db"]);
    let mut list = doc! { "listCollections": 1, "nameOnly": true, "$db": "db" };
    assert_eq!(call(&mut client, &list).get_i32("code").unwrap(), 13);
    list.insert("authorizedCollections", true);
    let reply = call(&mut client, &list);
    let found = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let names = found.iter().map(|of| of.as_document().unwrap().get_str("name").unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["own"]);
    assert_eq!(call(&mut client, &doc! { "dbStats": 1, "$db": "db" }).get_i32("code").unwrap(), 13);
    // A changed document would be given to a user that may not find it.
    let modify = doc! { "findAndModify": "own", "query": {}, "remove": true, "$db": "db" };
    assert_eq!(call(&mut client, &modify).get_i32("code").unwrap(), 13);
}

#[test]
fn a_client_that_has_not_logged_in_sends_messages_that_are_short_before_they_are_compressed() {
    let server = ServerProcess::start(&["--mongo-port=0", "--requirepass=top"]);
    let document = doc! { "_id": 1, "text": "x".repeat(4 * MIB) };
    let long = message(1, &doc! { "insert": "c", "documents": [document], "$db": "db" });
    let mut compressed = Vec::new();
    compress(&long, Compressor::Zlib, &mut compressed).unwrap();
    // The server does not look at the length of the compressed message alone.
    assert!(compressed.len() < 8 << 10, "{}", compressed.len());
    let mut client = connect(&server);
    client.write_all(&compressed).unwrap();
    bytes_to_the_end(&mut client);
    // It closes the connection instead of asking for a login.
    let mut resp = server.resp();
    assert_eq!(resp.call("AUTH top"), Value::ok());
    assert_eq!(resp.info("protocol_errors"), 1);
    assert!(server.log().lines().all(|line| !line.contains("panic")), "{}", server.log());
}

//! Random bytes and damaged messages at the port of MongoDB's protocol: the server answers or closes, serves
//! others meanwhile, and keeps nothing of them.

use remora_mongo::bson::{Bson, Document, doc};
use remora_mongo::wire::{Compressor, HEADER_BYTES, Parsed, compress, opcode, parse};
use remora_tests::proc::{descriptors, resident_kib};
use remora_tests::{DEADLINE, Random, Resp, ServerProcess, wait_until};
use std::io::{ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

/// Connections with damaged messages, unless REMORA_MONGO_HOSTILE says how many.
const CONNECTIONS: u64 = 4_000;
/// Messages of one connection, at most.
const MESSAGES: u64 = 6;
/// Replies of one connection: more would be an error of the server's.
const MOST_REPLY_BYTES: u64 = 64 << 20;
/// What may be left on the server's heap: buffers that are kept, and cursors that nothing reads on.
const MOST_KEPT_KIB: u64 = 24 << 10;

/// An OP_MSG with this body.
pub(crate) fn message(number: i32, body: &Document) -> Vec<u8> {
    let body = body.to_vec().unwrap();
    let mut bytes = Vec::new();
    for word in [(HEADER_BYTES + 5 + body.len()) as i32, number, 0, opcode::MSG, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(&body);
    bytes
}

/// The handshake of old clients.
fn old_hello() -> Vec<u8> {
    let body = doc! {"isMaster": 1, "helloOk": true}.to_vec().unwrap();
    let mut rest = vec![0; 4];
    rest.extend_from_slice(b"admin.$cmd\0\0\0\0\0\xff\xff\xff\xff");
    rest.extend_from_slice(&body);
    let mut bytes = Vec::new();
    for word in [(HEADER_BYTES + rest.len()) as i32, 1, 0, opcode::QUERY] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    [bytes, rest].concat()
}

/// Commands as clients send them.
fn commands() -> Vec<Document> {
    let scram = Bson::Binary(remora_mongo::bson::Binary {
        subtype: remora_mongo::bson::spec::BinarySubtype::Generic,
        bytes: b"n,,n=ann,r=abcdefghijklmnop".to_vec(),
    });
    let document = doc! {"_id": 1, "a": [1, "x", {"b": Bson::Null}], "c": {"d": 2.5, "e": "text"}};
    let pipeline = vec![
        doc! {"$match": {"a": {"$gt": 0}}},
        doc! {"$unwind": "$a"},
        doc! {"$group": {"_id": "$c.d", "n": {"$sum": 1}}},
        doc! {"$sort": {"n": -1}},
    ];
    let update = doc! {"q": {"_id": 1}, "u": {"$inc": {"n": 1}, "$push": {"a": 7}}, "upsert": true};
    let staged = doc! {"q": {}, "u": [{"$set": {"x": {"$add": ["$n", 1]}}}], "multi": true};
    let index = doc! {"key": {"a": 1, "c.d": -1}, "name": "a_1", "sparse": true};
    vec![
        doc! {"hello": 1, "client": {"driver": {"name": "x"}}, "compression": ["snappy", "zlib"]},
        doc! {"insert": "c", "documents": [document.clone(), document], "ordered": false},
        doc! {"find": "c", "filter": {"$or": [{"a": 1}, {"c.e": {"$regex": "^t"}}]}, "batchSize": 1},
        doc! {"find": "c", "sort": {"c.d": 1}, "projection": {"a": {"$slice": 1}}, "limit": 3},
        doc! {"update": "c", "updates": [update, staged]},
        doc! {"aggregate": "c", "pipeline": pipeline, "cursor": {"batchSize": 2}},
        doc! {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"z": 1}}, "new": true},
        doc! {"createIndexes": "c", "indexes": [index]},
        doc! {"delete": "c", "deletes": [{"q": {"a": 1}, "limit": 1}]},
        doc! {"count": "c", "query": {"a": {"$exists": true}}},
        doc! {"distinct": "c", "key": "a", "query": {}},
        doc! {"getMore": 5_i64, "collection": "c", "batchSize": 10},
        doc! {"killCursors": "c", "cursors": [5_i64]},
        doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": scram},
        doc! {"explain": {"find": "c", "filter": {"a": 1}}, "verbosity": "queryPlanner"},
        doc! {"listCollections": 1, "filter": {"name": "c"}},
    ]
}

/// Messages as clients send them, some of them compressed.
fn messages() -> Vec<Vec<u8>> {
    let mut made = vec![old_hello()];
    for (number, mut command) in (1..).zip(commands()) {
        command.insert("$db", "hostile");
        let plain = message(number, &command);
        for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Noop] {
            let mut compressed = Vec::new();
            compress(&plain, compressor, &mut compressed).unwrap();
            made.push(compressed);
        }
        made.extend([plain.clone(), plain.clone(), plain]);
    }
    made
}

/// Numbers that are at the edges of what a length may be.
const EDGES: [i32; 9] = [0, 1, -1, 4, 5, 15, 16, i32::MAX, i32::MIN];

/// Changes a few bytes of a message. Mostly its length stays right, so that its inside is looked at.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.within(1..4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.bits() as u8,
            2 => {
                let number = random.pick(&EDGES).to_le_bytes();
                number.iter().zip(&mut bytes[at..]).for_each(|(from, to)| *to = *from);
            }
            3 => bytes.truncate(at.max(HEADER_BYTES)),
            4 => {
                let more = random.bytes(random.clone().below(40));
                bytes.splice(at..at, more);
            }
            _ => {
                let part = bytes[at..].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    if !random.one_in(4) && bytes.len() >= HEADER_BYTES {
        let length = bytes.len() as i32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
    }
}

/// What one client sends.
fn hostile_bytes(messages: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut sent = Vec::new();
    for _ in 0..=random.below(MESSAGES) {
        let mut bytes = messages[random.below(messages.len())].clone();
        match random.below(10) {
            0 => bytes = random.bytes(random.clone().below(400)),
            1 => {}
            _ => damage(&mut bytes, random),
        }
        sent.extend(bytes);
    }
    sent
}

/// Sends bytes and their end. What comes back until the server's end: it must end.
fn replies_to(server: SocketAddr, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut socket = TcpStream::connect(server)?;
    socket.set_read_timeout(Some(DEADLINE))?;
    socket.set_write_timeout(Some(DEADLINE))?;
    let mut replies = Vec::new();
    // The server may have closed before all was sent.
    let sent = socket.write_all(bytes).and_then(|()| socket.shutdown(Shutdown::Write));
    match sent.and_then(|()| socket.take(MOST_REPLY_BYTES).read_to_end(&mut replies)) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Err(error)
        }
        _ => Ok(replies),
    }
}

/// How many replies there are. All of them are whole messages, unless the connection was reset.
fn count_replies(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    // The form of replies to the old handshake is not one that a server reads.
    while let Some(head) = bytes.first_chunk::<HEADER_BYTES>() {
        let length = i32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let is_old = head[12..] == opcode::REPLY.to_le_bytes();
        match bytes.split_at_checked(length) {
            Some((message, rest)) => {
                let is_whole = matches!(parse(message), Ok(Parsed::Message { consumed, .. })
                    if consumed == length);
                assert!(is_old || is_whole, "{message:?}");
                (bytes, count) = (rest, count + 1);
            }
            None => break,
        }
    }
    count
}

/// An honest client, whose document is there all the while.
fn honest_round(server: SocketAddr, round: i32) {
    let mut insert = doc! {"insert": "honest", "documents": [{"_id": round}], "$db": "db"};
    let mut find = doc! {"find": "honest", "filter": {"_id": round}, "$db": "db"};
    let mut delete =
        doc! {"delete": "honest", "deletes": [{"q": {"_id": round}, "limit": 1}], "$db": "db"};
    let sent: Vec<u8> =
        [&mut insert, &mut find, &mut delete].iter().flat_map(|of| message(round, of)).collect();
    let replies = replies_to(server, &sent).unwrap();
    assert_eq!(count_replies(&replies), 3);
    let id = [&b"\x10_id\0"[..], &round.to_le_bytes()].concat();
    assert!(replies.windows(id.len()).any(|part| part == id), "{replies:?}");
}

fn attack(server: SocketAddr, (seed, connections): (u64, u64)) -> usize {
    let (messages, mut random, mut answers) = (messages(), Random::new(seed), 0);
    for number in 0..connections {
        let bytes = hostile_bytes(&messages, &mut random);
        let replies = replies_to(server, &bytes)
            .unwrap_or_else(|error| panic!("seed {seed}, connection {number}: {error}, {bytes:?}"));
        answers += count_replies(&replies);
        if number % 50 == 0 {
            // Each thread has documents of its own.
            honest_round(server, (seed * 1_000_000 + number) as i32);
        }
    }
    answers
}

#[test]
fn damaged_messages_are_answered_or_end_their_connection() {
    let mut server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB", "--mongo-port=0"]);
    let address = server.mongo_address();
    let mut resp: Resp = server.resp();
    // What is there once: buffers, collections, indexes.
    attack(address, (1, 300));
    let held = |resp: &mut Resp| resp.info("client_buffer_bytes");
    wait_until("all connections have ended", || resp.info("connected_clients") == 1);
    let (files, memory) = (descriptors(server.pid()), resident_kib(server.pid()));
    let buffers = held(&mut resp);
    let said = std::env::var("REMORA_MONGO_HOSTILE");
    let connections = said.map_or(CONNECTIONS, |many| many.parse().expect("a number"));
    let answers: usize = std::thread::scope(|scope| {
        let threads =
            [2, 3].map(|seed| scope.spawn(move || attack(address, (seed, connections / 2))));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(server.is_alive(), "{}", server.log());
    assert!(!server.log().contains("panic"), "{}", server.log());
    wait_until("all connections have ended", || resp.info("connected_clients") == 1);
    wait_until("descriptors are closed", || descriptors(server.pid()) <= files);
    wait_until("buffers are given back", || held(&mut resp) <= buffers);
    let kept = resident_kib(server.pid()).saturating_sub(memory);
    println!("{connections} connections, {answers} replies, {kept} KiB more afterwards");
    assert!(kept <= MOST_KEPT_KIB, "{kept} KiB");
    assert!(answers > connections as usize / 2, "most messages are answered: {answers}");
    honest_round(address, -1);
}

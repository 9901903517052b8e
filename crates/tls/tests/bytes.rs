//! Bytes after the handshake: they arrive in their order, whatever the sockets do.

use super::{Socket, handshake, sockets};
use remora_testing::{Authority, Random};
use remora_tls::{ClientTls, ServerTls, ServerTlsSettings, TlsSession};
use std::io::ErrorKind;

/// A client and a server after their handshake.
fn ends(seed: u64, room: usize, is_moody: bool) -> [(TlsSession, Socket); 2] {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path(), "ours");
    let identity = authority.certify("server");
    let settings = ServerTlsSettings::new(identity.certificate, identity.key);
    let mut server = ServerTls::load(settings).unwrap().begin().unwrap();
    let client = ClientTls::load(authority.file(), None).unwrap();
    let mut client = client.begin("localhost").unwrap();
    let (mut of_client, mut of_server) = sockets(seed, room, is_moody);
    handshake((&mut client, &mut of_client), (&mut server, &mut of_server)).unwrap();
    [(client, of_client), (server, of_server)]
}

/// One direction: what is to be sent, and what has come.
#[derive(Default)]
struct Stream {
    all: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
}

impl Stream {
    fn send(&mut self, (session, socket): &mut (TlsSession, Socket), most: usize) {
        let until = self.all.len().min(self.sent + most);
        match session.send(socket, &self.all[self.sent..until]) {
            Ok(sent) => self.sent += sent,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    fn receive(&mut self, (session, socket): &mut (TlsSession, Socket), most: usize) {
        let mut into = vec![0; most];
        match session.receive(socket, &mut into) {
            Ok(received) => self.received.extend(&into[..received]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    fn is_done(&self) -> bool {
        self.received.len() == self.all.len()
    }
}

#[test]
fn bytes_arrive_in_their_order_over_sockets_that_do_as_they_like() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let room = random.pick(&[100, 5_000, 200_000]);
        let [mut client, mut server] = ends(seed, room, true);
        let mut to_server = Stream { all: random.bytes(300_000), ..Stream::default() };
        let mut to_client = Stream { all: random.bytes(100_000), ..Stream::default() };
        let mut turns = 0;
        while !to_server.is_done() || !to_client.is_done() {
            // An attempt that took nothing is made again with the same bytes, and perhaps more.
            let most = random.pick(&[1, 1_000, 20_000, 400_000]);
            to_server.send(&mut client, most.max(400_000 * (turns % 2)));
            to_client.send(&mut server, usize::MAX / 2);
            to_server.receive(&mut server, random.within(1..100_000));
            to_client.receive(&mut client, random.within(1..5_000));
            turns += 1;
            assert!(turns < 1_000_000, "seed {seed}: it stands still");
        }
        assert!(to_server.received == to_server.all && to_client.received == to_client.all);
        // What is with the peer is said to be sent, if a caller that offered less asks again.
        while to_server.sent < to_server.all.len() {
            to_server.send(&mut client, usize::MAX / 2);
        }
        while to_client.sent < to_client.all.len() {
            to_client.send(&mut server, usize::MAX / 2);
        }
        assert_eq!((to_server.sent, to_client.sent), (to_server.all.len(), to_client.all.len()));
    }
}

#[test]
fn what_is_said_to_be_sent_is_with_the_socket_and_hidden() {
    let [mut client, mut server] = ends(1, 1 << 20, false);
    let secret = b"a password that nobody may see ".repeat(1500);
    assert_eq!(client.0.send(&mut client.1, &secret).unwrap(), secret.len());
    let passed = client.1.outgoing.borrow().passed.clone();
    assert!(passed.len() > secret.len());
    assert!(!passed.windows(10).any(|some| secret.starts_with(some)));
    // One call takes all of it, as an edge-triggered event wants: a shorter answer says that the
    // socket has no more.
    let mut into = vec![0; secret.len() + 1];
    assert_eq!(server.0.receive(&mut server.1, &mut into).unwrap(), secret.len());
    assert_eq!(into[..secret.len()], secret);
}

#[test]
fn a_socket_that_takes_nothing_leaves_the_bytes_to_the_caller() {
    let [mut client, mut server] = ends(1, 100, false);
    let mut stream = Stream { all: vec![7; 1000], ..Stream::default() };
    stream.send(&mut client, 1000);
    assert_eq!(stream.sent, 0, "the socket has a part of them only");
    while !stream.is_done() {
        stream.receive(&mut server, 2000);
        stream.send(&mut client, 2000);
    }
    assert_eq!((stream.sent, stream.received), (1000, stream.all));
}

#[test]
fn an_end_is_announced_and_one_that_is_not_is_an_error() {
    let [mut client, mut server] = ends(1, 1 << 20, false);
    client.0.send(&mut client.1, b"the last").unwrap();
    client.0.close(&mut client.1);
    client.1.end();
    let mut into = [0; 100];
    assert_eq!(server.0.receive(&mut server.1, &mut into).unwrap(), 8);
    assert_eq!(server.0.receive(&mut server.1, &mut into).unwrap(), 0);

    let [mut client, mut server] = ends(1, 1 << 20, false);
    client.0.send(&mut client.1, b"cut").unwrap();
    client.1.end();
    assert_eq!(server.0.receive(&mut server.1, &mut into).unwrap(), 3);
    let error = server.0.receive(&mut server.1, &mut into).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn bytes_that_are_not_the_peers_end_the_session() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let [mut client, mut server] = ends(1, 1 << 20, false);
        client.0.send(&mut client.1, &[7; 5000]).unwrap();
        {
            let mut wire = server.1.incoming.borrow_mut();
            let at = random.below(wire.bytes.len());
            wire.bytes[at] ^= 1 << random.below(8u32);
        }
        client.1.end();
        let mut into = vec![0; 10_000];
        let mut ended = None;
        for _ in 0..10 {
            match server.0.receive(&mut server.1, &mut into) {
                Ok(received) => assert!(into[..received].iter().all(|&byte| byte == 7)),
                Err(error) => {
                    ended = Some(error.kind());
                    break;
                }
            }
        }
        let kinds = [ErrorKind::InvalidData, ErrorKind::UnexpectedEof];
        assert!(ended.is_some_and(|kind| kinds.contains(&kind)), "seed {seed}: {ended:?}");
    }
}

/// What was sent before is taken before the end, or the error, that came with it; nothing may be waited for
/// in between, as no event may follow.
#[test]
fn what_comes_with_an_end_or_an_error_says_that_there_is_more() {
    for breaks in [false, true] {
        let [mut client, mut server] = ends(1, 1 << 20, false);
        client.0.send(&mut client.1, b"the last").unwrap();
        if breaks {
            let record = [&b"\x17\x03\x03\x00\x20"[..], &[7; 32]].concat();
            client.1.outgoing.borrow_mut().bytes.extend(record);
        } else {
            client.0.close(&mut client.1);
        }
        let mut into = [0; 100];
        assert_eq!(server.0.receive(&mut server.1, &mut into).unwrap(), 8);
        assert!(server.0.has_more());
        let end = server.0.receive(&mut server.1, &mut into).map_err(|error| error.kind());
        assert_eq!(end, if breaks { Err(ErrorKind::InvalidData) } else { Ok(0) });
    }
}

/// Records that hold little cost the thread as much as others: one call takes a bounded number.
#[test]
fn a_flood_of_small_records_leaves_the_thread_to_others() {
    let [mut client, mut server] = ends(1, 100 << 20, false);
    let records = 20_000;
    for _ in 0..records {
        client.0.send(&mut client.1, b"x").unwrap();
    }
    let wire = server.1.incoming.borrow().bytes.len();
    let mut into = vec![0; 1 << 20];
    let (mut received, mut calls) = (0, 0);
    while received < records {
        received += server.0.receive(&mut server.1, &mut into).unwrap();
        calls += 1;
        assert_eq!(server.0.has_more(), received < records, "after {received}");
    }
    assert!(calls >= wire / (96 << 10), "{calls} calls for {wire} bytes");
}

#[test]
fn random_bytes_are_refused_with_a_reason_and_never_more() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let directory = tempfile::tempdir().unwrap();
        let identity = Authority::new(directory.path(), "ours").certify("server");
        let settings = ServerTlsSettings::new(identity.certificate, identity.key);
        let mut server = ServerTls::load(settings).unwrap().begin().unwrap();
        let (hostile, mut of_server) = sockets(seed, 1 << 20, false);
        let noise = random.bytes_up_to(3000);
        hostile.outgoing.borrow_mut().bytes.extend(noise);
        hostile.end();
        while server.handshake(&mut of_server).is_ok() {}
        if seed == 0 {
            assert!(server.handshake(&mut of_server).is_err(), "an ended session stays so");
        }
    }
}

//! Clients over real sockets: some speak TLS, some nothing, some anything.

use super::*;
use mio::{Events, Poll};
use remora_testing::Authority;
use remora_tls::{ClientTls, ServerTls, ServerTlsSettings, TlsStream};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::Ordering;

/// A thread's handshakes, and a listener for their clients.
struct House {
    server: ServerTls,
    client: ClientTls,
    listener: TcpListener,
    poll: Poll,
    handshakes: Handshakes,
    counts: HandshakeCounts,
}

impl House {
    fn new(directory: &std::path::Path) -> Self {
        let authority = Authority::new(directory, "ours");
        let identity = authority.certify("server");
        let settings = ServerTlsSettings::new(identity.certificate, identity.key);
        Self {
            server: ServerTls::load(settings).unwrap(),
            client: ClientTls::load(authority.file(), None).unwrap(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            poll: Poll::new().unwrap(),
            handshakes: Handshakes { most: (12, 10), ..Handshakes::new(7) },
            counts: HandshakeCounts::default(),
        }
    }

    /// A client that has connected and said nothing yet. The server takes it for one of this address.
    fn arrive(&mut self, from: IpAddr) -> TcpStream {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let arrived = (socket, self.server.begin().unwrap(), SocketAddr::new(from, 1));
        self.handshakes.begin(self.poll.registry(), arrived, &self.counts).unwrap();
        client
    }

    /// Serves until one handshake is done and this many have failed.
    fn serve(&mut self, failed: u64) -> Vec<TlsStream> {
        let mut done = Vec::new();
        let mut events = Events::with_capacity(16);
        loop {
            if done.len() == 1 && self.counted()[1] == failed {
                return done;
            }
            self.poll.poll(&mut events, Some(LONG)).unwrap();
            assert!(!events.is_empty(), "nothing happens");
            for event in &events {
                let token = event.token().0;
                let end = self.handshakes.step(self.poll.registry(), token, &self.counts);
                done.extend(end.map(|(socket, session, _)| TlsStream::new(socket, session)));
            }
        }
    }

    /// Done, failed, timed out, dropped.
    fn counted(&self) -> [u64; 4] {
        let HandshakeCounts { done, failed, timed_out, dropped } = &self.counts;
        [done, failed, timed_out, dropped].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

#[test]
fn who_speaks_tls_comes_through_beside_those_who_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut house = House::new(directory.path());
    let silent = house.arrive(HERE);
    let mut redis = house.arrive(HERE);
    redis.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    drop(house.arrive(HERE));
    let socket = house.arrive(HERE);
    let mut session = house.client.begin("localhost").unwrap();
    let client = std::thread::spawn(move || {
        session.handshake(&mut &socket).unwrap();
        session.send(&mut &socket, b"early").unwrap();
        socket
    });
    let mut done = house.serve(2);
    assert_eq!((done.len(), house.counted()), (1, [1, 2, 0, 0]));
    // What came with the end of the handshake is there.
    let mut into = [0; 10];
    let early = loop {
        match done[0].read(&mut into) {
            Ok(read) => break read,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(early, 5);
    // A client without TLS gets an alert.
    assert_eq!((redis.read(&mut into).unwrap(), into[0]), (7, 21));
    drop((silent, client.join().unwrap()));
}

#[test]
fn a_silent_one_ends_in_time_and_not_before() {
    let directory = tempfile::tempdir().unwrap();
    let mut house = House::new(directory.path());
    let clients = [house.arrive(HERE), house.arrive(HERE)];
    let deadline = house.handshakes.deadline().unwrap();
    let before = deadline - Duration::from_millis(1);
    house.handshakes.end_late_at(house.poll.registry(), before, &house.counts);
    assert_eq!(house.handshakes.open.len(), 2);
    let late = Instant::now() + Duration::from_millis(HANDSHAKE_MS);
    house.handshakes.end_late_at(house.poll.registry(), late, &house.counts);
    assert_eq!((house.counted(), house.handshakes.deadline()), ([0, 0, 2, 0], None));
    for mut client in clients {
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is closed");
    }
    assert!(house.handshakes.of_address.is_empty());
}

#[test]
fn a_flood_of_silent_clients_of_one_address_shuts_nobody_else_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut house = House::new(directory.path());
    let other = house.arrive(THERE);
    let flood: Vec<_> = (0..10).map(|_| house.arrive(HERE)).collect();
    assert_eq!(house.counted(), [0; 4]);
    let more: Vec<_> = (0..100).map(|_| house.arrive(HERE)).collect();
    assert_eq!(house.counted(), [0, 0, 0, 100]);
    assert_eq!((house.handshakes.of_address[&HERE], house.handshakes.open.len()), (10, 11));
    assert_eq!((&flood[0]).read(&mut [0]).unwrap(), 0, "the oldest of the flood has gone");
    let mut session = house.client.begin("localhost").unwrap();
    let client = std::thread::spawn(move || session.handshake(&mut &other).map(|_| other));
    assert_eq!(house.serve(0).len(), 1);
    drop((client.join().unwrap().unwrap(), more));
}

#[test]
fn a_flood_of_many_addresses_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let mut house = House::new(directory.path());
    let flood: Vec<_> = (0..50).map(|at| house.arrive([192, 0, 2, at].into())).collect();
    assert_eq!((house.handshakes.open.len(), house.handshakes.of_address.len()), (12, 12));
    assert_eq!(house.counted(), [0, 0, 0, 38]);
    drop(flood);
}

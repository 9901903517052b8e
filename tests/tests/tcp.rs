//! Sessions over TCP, and which transport a session gets.

use remora_arena::ReadView;
use remora_client_core::{
    Client, ConnectError, Error, Options, Path, ServedBy, Session, SetOptions, Wake, Wanted,
};
use remora_fabric::{AnyLink, Connected, Dialling, Link, RemoteAddress, Waited, Work};
use remora_layout::frame::ring_seed;
use remora_layout::immediate;
use remora_layout::session::ring_offset;
use remora_protocol::Command;
use remora_ring::{Poll, Receiver, Sender};
use remora_tests::{ServerProcess, Value, wait_until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a server may be silent before a test fails.
const DEADLINE: Duration = Duration::from_secs(120);

const FLAGS: [&str; 3] = ["--max-memory=32MiB", "--shards=2", "--fabric-address=127.0.0.1:0"];

fn options(transport: Wanted) -> Options {
    Options { transport, wake: Wake::Event, ..remora_tests::by_pointers() }
}

fn fabric(server: &ServerProcess) -> SocketAddr {
    let told = server.resp().call("CONFIG GET fabric_address");
    let Value::Array(pair) = &told else { panic!("{told:?}") };
    let Some(Value::Bulk(address)) = pair.get(1) else { panic!("{told:?}") };
    String::from_utf8_lossy(address).parse().unwrap()
}

#[test]
fn the_best_common_transport_is_taken_from_either_address() {
    let server = ServerProcess::start(&FLAGS);
    let (socket, address) = (server.socket(), fabric(&server));
    for (wanted, expected) in [(Wanted::Auto, "shm"), (Wanted::Shm, "shm"), (Wanted::Tcp, "tcp")] {
        for by_tcp in [false, true] {
            let options = options(wanted);
            let session = match by_tcp {
                true => Session::connect(address, &options),
                false => Session::connect(&socket, &options),
            };
            let mut session = session.unwrap();
            assert_eq!(session.transport().name(), expected, "{wanted:?}, by tcp: {by_tcp}");
            session.set(b"k", expected.as_bytes(), SetOptions::default()).unwrap();
            let got = session.get(b"k", Path::Read).unwrap();
            assert_eq!(got.value, Some(expected.as_bytes()));
        }
    }
    wait_until("all sessions have ended", || {
        let mut resp = server.resp();
        resp.info("connected_sessions_tcp") == 0 && resp.info("connected_sessions_shm") == 0
    });
}

#[test]
fn a_named_transport_that_cannot_be_had_says_why() {
    let without = ServerProcess::start(&FLAGS[..2]);
    let error = Session::connect(&without.socket(), &options(Wanted::Tcp)).unwrap_err();
    assert!(matches!(error, ConnectError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("set fabric_address"), "{error}");
    assert!(Session::connect(&without.socket(), &options(Wanted::Auto)).is_ok());

    let only = ServerProcess::start(&[&FLAGS[..], &["--transport=tcp"]].concat());
    let error = Session::connect(&only.socket(), &options(Wanted::Shm)).unwrap_err();
    assert!(error.to_string().contains("does not offer shared memory"), "{error}");
    let session = Session::connect(fabric(&only), &options(Wanted::Auto)).unwrap();
    assert_eq!(session.transport().name(), "tcp", "auto takes what there is");

    let out = remora_tests::remora().args(["serve", "--transport=tcp"]).output().unwrap();
    assert_eq!(out.status.code(), Some(3));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("set fabric_address"), "{said}");
    let out = remora_tests::remora().args(["serve", "--transport=verbs"]).output().unwrap();
    assert_eq!(out.status.code(), Some(3));
}

/// A READ is one round trip and tells that it costs the server's CPU.
#[test]
fn reads_over_tcp_are_reads() {
    let server = ServerProcess::start(&FLAGS);
    // A pointer whose lease has ended may give its line to another.
    let lasting = Options { transport: Wanted::Tcp, ..remora_tests::long_leases() };
    let mut session = Session::connect(fabric(&server), &lasting).unwrap();
    for key in 0..200u32 {
        session.set(&key.to_le_bytes(), &key.to_be_bytes(), SetOptions::default()).unwrap();
    }
    let (mut read, mut lapsed) = (0, 0);
    for key in 0..200u32 {
        let got = session.get(&key.to_le_bytes(), Path::Read).unwrap();
        assert_eq!(got.value, Some(&key.to_be_bytes()[..]));
        if got.served_by == ServedBy::Read {
            assert_eq!(got.counts.round_trips, 1, "{:?}", got.counts);
            read += 1;
        }
        lapsed += got.counts.read_lease_lapsed;
    }
    assert_eq!(read + lapsed, 200, "{read} were one READ, {lapsed} came too late");
    let keys: Vec<[u8; 4]> = (0..200u32).map(u32::to_le_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut seen = 0;
    let counts = session
        .get_batch(&keys, Path::Read, &mut |at, value, _| {
            assert_eq!(value, Some(&(at as u32).to_be_bytes()[..]));
            seen += 1;
        })
        .unwrap();
    assert_eq!(seen, 200);
    assert!(counts.round_trips <= 2, "{counts:?}");
}

#[test]
fn the_end_of_the_server_is_noticed_and_a_restarted_one_is_another_incarnation() {
    let mut server = ServerProcess::start(&FLAGS);
    let client = Client::connect(fabric(&server), &options(Wanted::Tcp)).unwrap();
    let mut session = client.session().unwrap();
    session.set(b"k", b"v", SetOptions::default()).unwrap();
    assert!(session.get(b"k", Path::Read).unwrap().value.is_some());
    server.kill();
    let error = (0..1000).find_map(|_| session.get(b"k", Path::Read).err());
    assert!(error.is_some_and(Error::is_final), "{error:?}");
    assert!(client.session().is_err());
}

#[test]
fn a_server_that_drains_withdraws_its_sessions() {
    let mut server = ServerProcess::start(&FLAGS);
    let mut session = Session::connect(fabric(&server), &options(Wanted::Tcp)).unwrap();
    session.set(b"k", b"v", SetOptions::default()).unwrap();
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    let error = (0..1000).find_map(|_| session.get(b"k", Path::Read).err());
    assert!(error.is_some_and(Error::is_final), "{error:?}");
}

/// Descriptors of a process.
fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn threads_of_rubbish() -> Vec<Vec<u8>> {
    let mut hello = remora_fabric::client_hello(Wanted::Tcp);
    let mut bytes = Vec::new();
    let mut all = vec![vec![], vec![0; 40], vec![0xff; 4000], b"GET / HTTP/1.1\r\n\r\n".to_vec()];
    for garbage in [0u8, 0x55, 0xff] {
        bytes.clear();
        bytes.extend_from_slice(zerocopy::IntoBytes::as_bytes(&hello));
        bytes.extend_from_slice(&[garbage; 5000]);
        all.push(bytes.clone());
    }
    hello.version = 999.into();
    all.push(zerocopy::IntoBytes::as_bytes(&hello).to_vec());
    all
}

#[test]
fn rubbish_and_silence_on_the_fabric_address_harm_nobody() {
    let server = ServerProcess::start(&FLAGS);
    let address = fabric(&server);
    let mut honest = Session::connect(address, &options(Wanted::Tcp)).unwrap();
    honest.set(b"k", b"v", SetOptions::default()).unwrap();
    let before = descriptors(server.pid());
    let mut silent = Vec::new();
    for round in 0..20 {
        for rubbish in threads_of_rubbish() {
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(&rubbish);
            if round % 2 == 0 {
                // Reads what there is, then goes.
                stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                let _ = stream.read(&mut [0; 4096]);
            } else if round == 1 {
                silent.push(stream);
            }
        }
        assert_eq!(honest.get(b"k", Path::Read).unwrap().value, Some(&b"v"[..]));
        assert_eq!(honest.incr(b"n", 1).unwrap(), round + 1);
    }
    drop(silent);
    wait_until("what they held has been given back", || descriptors(server.pid()) <= before + 1);
    assert_eq!(honest.get(b"k", Path::Ask).unwrap().value, Some(&b"v"[..]));
}

#[test]
fn a_client_that_does_not_say_hello_is_cut_off() {
    let server = ServerProcess::start(&FLAGS);
    let hello = remora_fabric::client_hello(Wanted::Tcp);
    let mut silent: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(fabric(&server)).unwrap()).collect();
    for (said, stream) in silent.iter_mut().enumerate() {
        stream.write_all(&zerocopy::IntoBytes::as_bytes(&hello)[..said]).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
    }
    let mut honest = Session::connect(fabric(&server), &options(Wanted::Tcp)).unwrap();
    honest.set(b"k", b"v", SetOptions::default()).unwrap();
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or_default(), 0, "cut off");
    }
    assert_eq!(server.resp().info("hellos_timed_out"), 20);
    assert_eq!(honest.get(b"k", Path::Ask).unwrap().value, Some(&b"v"[..]));
}

/// A client by hand, which sends nothing but what it is told to: no clock, so
/// no heartbeats come either.
struct ByHand {
    link: AnyLink,
    sender: Sender,
    receiver: Receiver,
    _to_client: ReadView,
}

impl ByHand {
    fn connect(address: SocketAddr) -> Self {
        let dialling =
            Dialling { wanted: Wanted::Tcp, hello_timeout: DEADLINE, ..Dialling::default() };
        let connected = remora_fabric::connect(&address.into(), &dialling).unwrap();
        let Connected::Remote(connected) = connected else { panic!("over TCP") };
        let (seed, ring) = (connected.hello.session_seed.get(), ring_offset(0));
        let mailbox = connected.hello.shards.get();
        let sender = Sender::new(mailbox, ring as u64, ring_seed(seed, 0, 0));
        let to_client = connected.to_client;
        Self {
            link: connected.link,
            sender: sender.with_immediate(immediate::of(immediate::Kind::Request, 0)),
            receiver: Receiver::new(to_client.clone(), ring, ring_seed(seed, 0, 1)),
            _to_client: to_client,
        }
    }

    /// So many requests in one WRITE, and their replies.
    fn ask(&mut self, requests: u32) {
        let frames: Vec<Vec<u8>> = (0..requests)
            .map(|id| {
                let mut frame = Vec::new();
                Command::Get { key: b"k" }.encode_within(Default::default(), id, &mut frame);
                frame
            })
            .collect();
        let sent = self.sender.send_run(&mut self.link, frames.iter().map(Vec::as_slice));
        assert_eq!(sent, Ok(frames.len()));
        let mut replies = 0;
        while replies < requests {
            while self.link.poll().is_some() {}
            match self.receiver.poll(&mut Vec::new()) {
                Poll::Frame(_) => replies += 1,
                Poll::Empty => assert_ne!(self.link.wait(Some(DEADLINE)), Waited::TimedOut),
                other => panic!("{other:?}"),
            }
        }
    }

    /// So many READs in one batch.
    fn read(&mut self, reads: u64) {
        self.link.reserve_landing(64);
        let from = RemoteAddress { region: 0, offset: 0 };
        let batch: Vec<Work<'_>> =
            (0..reads).map(|id| Work::Read { id, from, into: 0, bytes: 64 }).collect();
        self.link.post(&batch);
        let mut left = reads;
        while left > 0 {
            match self.link.poll() {
                // WRITEs of requests complete, too.
                Some(done) => left -= (done.result.is_ok() && done.id < reads) as u64,
                None => assert_ne!(self.link.wait(Some(DEADLINE)), Waited::TimedOut),
            }
        }
    }
}

/// Requests that come together are executed by the thread that receives them, and
/// their replies leave in one write; so do the answers to READs of one batch.
#[test]
fn what_comes_together_costs_one_receive_and_one_write() {
    const ROUNDS: u64 = 100;
    const FEW: u64 = ROUNDS / 5;
    let server =
        ServerProcess::start(&["--max-memory=32MiB", "--shards=1", "--fabric-address=127.0.0.1:0"]);
    let mut client = ByHand::connect(fabric(&server));
    let mut resp = server.resp();
    let mut counts = |does: &mut dyn FnMut()| {
        const NAMES: [&str; 5] =
            ["tcp_writes", "tcp_receives", "ring_frames", "agent_rings", "agent_signals"];
        let before = NAMES.map(|name| resp.info(name));
        (0..ROUNDS).for_each(|_| does());
        let mut after = NAMES.map(|name| resp.info(name)).into_iter();
        before.map(|before| after.next().unwrap() - before)
    };
    let [writes, receives, frames, rings, signals] = counts(&mut || client.ask(32));
    assert_eq!(frames, 32 * ROUNDS);
    assert_eq!((rings, signals), (0, 0), "no other thread has to do with it");
    // Heartbeats are written, and the client's clock is received, now and then.
    assert!((ROUNDS..ROUNDS + FEW).contains(&writes), "{writes} writes");
    assert!((ROUNDS..ROUNDS + FEW).contains(&receives), "{receives} receives");
    let [writes, receives, frames, rings, _] = counts(&mut || client.read(50));
    assert_eq!((frames, rings), (0, 0), "no ring has to do with it");
    assert!((ROUNDS..ROUNDS + FEW).contains(&writes), "{writes} writes");
    assert!((ROUNDS..ROUNDS + FEW).contains(&receives), "{receives} receives");
}

/// Connections spread over the agents, one for each shard.
#[test]
fn connections_spread_over_the_agents() {
    let server = ServerProcess::start(&FLAGS);
    let mut resp = server.resp();
    assert_eq!(resp.info("agents"), 2);
    let address = fabric(&server);
    let mut sessions: Vec<Session> =
        (0..8).map(|_| Session::connect(address, &options(Wanted::Tcp)).unwrap()).collect();
    for (number, session) in sessions.iter_mut().enumerate() {
        session.set(&[number as u8], b"v", SetOptions::default()).unwrap();
    }
    assert_eq!([0, 1].map(|agent| resp.info(&format!("agent{agent}_connections"))), [4, 4]);
    // Those of one agent go: new ones go where there is room.
    sessions.drain(..4);
    wait_until("four are left", || resp.info("connected_sessions_tcp") == 4);
    let mut more: Vec<Session> =
        (0..4).map(|_| Session::connect(address, &options(Wanted::Tcp)).unwrap()).collect();
    for session in sessions.iter_mut().chain(&mut more) {
        assert!(session.get(&[7], Path::Ask).unwrap().value.is_some());
    }
    assert_eq!([0, 1].map(|agent| resp.info(&format!("agent{agent}_connections"))), [4, 4]);
}

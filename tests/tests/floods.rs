//! Floods of RESP clients: half-open TLS handshakes, wrong passwords, thousands of TLS connections. Others are
//! served meanwhile, and what the server keeps is bounded.

use crate::tls::{Place, call, connect, info};
use remora_client_core::{Address, Options, Path, Session, SetOptions, Wanted};
use remora_layout::limits::{MAX_ACL_LOG_ENTRIES, MAX_SILENT_CLIENTS};
use remora_testing::in_own_process;
use remora_tests::proc::{anonymous_kib, tasks};
use remora_tests::{DEADLINE, Resp, ServerProcess, Value, wait_until};
use remora_tls::TlsStream;
use rustix::net::{AddressFamily, SocketType, bind, socket};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread::{ScopedJoinHandle, scope};
use std::time::Duration;

/// Addresses that a flood comes from, each with as many connections.
const FLOODING: [Ipv4Addr; 4] = [
    Ipv4Addr::new(127, 0, 0, 2),
    Ipv4Addr::new(127, 0, 0, 3),
    Ipv4Addr::new(127, 0, 0, 4),
    Ipv4Addr::new(127, 0, 0, 5),
];
/// Half-open handshakes of each: of all more than may be under way, and fewer than 4,096 open files.
const HALF_OPEN: usize = 700;
/// How a ClientHello of TLS 1.2 or 1.3 begins: a handshake record of 512 bytes.
const CLIENT_HELLO: [u8; 11] = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
/// Connections that come while the server stands still: more than the standard library would let wait.
const BURST: usize = 400;
/// Connections that send wrong passwords, and how many each of them sends.
const GUESSERS: usize = 200;
const GUESSES: usize = 100;
/// What a flood may leave behind on the server's heap, KiB.
const MOST_KEPT_KIB: u64 = 16 << 10;
/// Idle TLS connections, unless REMORA_TLS_CONNECTIONS says how many. One in ten is busy later.
const CONNECTIONS: usize = 2_000;
const ROUNDS: usize = 20;
/// How long the server is watched while all connections are idle, and how often its threads may wake meanwhile.
const WINDOW: Duration = Duration::from_secs(5);
const MOST_WAKE_UPS: u64 = 150;

fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// Connections from this address that begin a handshake, and do not go on.
fn half_open(from: Ipv4Addr, server: SocketAddr) -> Vec<TcpStream> {
    let begin = || {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&fd, &SocketAddr::from((from, 0))).unwrap();
        rustix::net::connect(&fd, &server).unwrap();
        let mut stream = TcpStream::from(fd);
        stream.write_all(&CLIENT_HELLO).unwrap();
        stream
    };
    (0..HALF_OPEN).map(|_| begin()).collect()
}

#[test]
fn half_open_handshakes_hold_up_nobody() {
    raise_open_files();
    let place = Place::new();
    let server = place.start(&["--shards=2"]);
    let (address, client) = (server.resp_address(), place.client(None));
    let mut established = connect(address, &client).unwrap();
    assert_eq!(call(&mut established, "SET k v").unwrap(), "+OK");
    let (mut gets, mut connects) = (0, 1);
    let flood: Vec<TcpStream> = scope(|scope| {
        let floods = FLOODING.map(|from| scope.spawn(move || half_open(from, address)));
        // A client that is there is served, and so is one that comes.
        while gets < 2_000 || !floods.iter().all(ScopedJoinHandle::is_finished) {
            for _ in 0..20 {
                assert_eq!(call(&mut established, "GET k").unwrap(), "v");
                gets += 1;
            }
            let mut fresh = connect(address, &client).unwrap();
            assert_eq!(call(&mut fresh, "GET k").unwrap(), "v");
            connects += 1;
        }
        floods.into_iter().flat_map(|flood| flood.join().unwrap()).collect()
    });
    let gone = |stream: &mut TlsStream| {
        (info(stream, "tls_handshakes_dropped"), info(stream, "tls_handshakes_timed_out"))
    };
    wait_until("none of the flood is left", || {
        let (dropped, timed_out) = gone(&mut established);
        assert_eq!(call(&mut established, "GET k").unwrap(), "v");
        dropped + timed_out == flood.len() as u64
    });
    let (dropped, timed_out) = gone(&mut established);
    println!("{gets} GETs and {connects} handshakes beside {dropped} dropped, {timed_out} late");
    assert_eq!(info(&mut established, "tls_handshakes"), connects);
    assert_eq!(info(&mut established, "tls_handshakes_failed"), 0);
    for mut stream in flood {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "it has ended, without a reply");
    }
}

#[test]
fn a_burst_of_connections_waits_to_be_accepted() {
    let server = ServerProcess::start(&["--shards=1", "--pin=false"]);
    // No connection is accepted meanwhile.
    server.signal(Signal::STOP);
    let connect = || TcpStream::connect_timeout(&server.resp_address(), DEADLINE);
    let burst: Result<Vec<TcpStream>, _> = (0..BURST).map(|_| connect()).collect();
    server.signal(Signal::CONT);
    for mut stream in burst.unwrap() {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    }
}

/// Sends wrong passwords of users of long names, a name for each, and takes the replies.
fn guess(server: SocketAddr, guesser: usize) {
    let mut resp = Resp::connect(server).unwrap();
    let names = (0..GUESSES).map(|guess| format!("{guesser}-{guess}-{}", "n".repeat(1_000)));
    for name in names {
        let reply = resp.try_call(&[b"AUTH", name.as_bytes(), b"wrong"]).unwrap();
        assert!(matches!(&reply, Value::Error(text) if text.starts_with("WRONGPASS")), "{reply:?}");
    }
}

#[test]
fn wrong_passwords_are_counted_and_leave_nothing() {
    let server = ServerProcess::start(&["--requirepass=top", "--shards=2", "--pin=false"]);
    let address = server.resp_address();
    let mut served = server.resp();
    assert_eq!(served.call("AUTH top"), Value::ok());
    assert_eq!(served.call("SET k v"), Value::ok());
    // What is there once: buffers, and a full log of refusals.
    (0..2).for_each(|guesser| guess(address, guesser));
    let before = anonymous_kib(server.pid());
    scope(|scope| {
        const THREADS: usize = 4;
        let guessers: Vec<_> = (0..THREADS)
            .map(|first| {
                scope.spawn(move || {
                    (2 + first..GUESSERS).step_by(THREADS).for_each(|at| guess(address, at));
                })
            })
            .collect();
        while !guessers.iter().all(|guesser| guesser.is_finished()) {
            assert_eq!(served.call("GET k"), Value::bulk("v"));
        }
    });
    let kept = anonymous_kib(server.pid()).saturating_sub(before);
    println!("{} wrong passwords, {kept} KiB more afterwards", GUESSERS * GUESSES);
    assert_eq!(served.info("acl_access_denied_auth"), (GUESSERS * GUESSES) as u64);
    let Value::Array(log) = served.call("ACL LOG 1000") else { panic!("no log") };
    assert_eq!(log.len(), MAX_ACL_LOG_ENTRIES);
    assert!(kept <= MOST_KEPT_KIB, "{kept} KiB");
    assert_eq!(served.call("GET k"), Value::bulk("v"));
}

/// Sends GET to all of them, and then takes all replies.
fn ask_all(streams: &mut [TlsStream]) {
    const REQUEST: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    const REPLY: &[u8] = b"$1\r\nv\r\n";
    streams.iter_mut().for_each(|stream| stream.write_all(REQUEST).unwrap());
    for stream in streams {
        let mut reply = [0; REPLY.len()];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, REPLY);
    }
}

/// Threads of the server woke so often, but for heartbeats.
fn wake_ups(server: &ServerProcess) -> u64 {
    let tasks = tasks(server.pid());
    tasks.iter().filter(|task| task.name != "control").map(|task| task.sleeps).sum()
}

#[test]
fn thousands_of_tls_connections_are_served_and_cost_nothing_idle() {
    in_own_process(|| {
        raise_open_files();
        let said = std::env::var("REMORA_TLS_CONNECTIONS");
        let connections = said.map_or(CONNECTIONS, |many| many.parse().expect("a number"));
        let place = Place::new();
        let server = place.start(&["--shards=2", "--wake=event", "--pin=false"]);
        let (address, client) = (server.resp_address(), place.client(None));
        let mut first = connect(address, &client).unwrap();
        assert_eq!(call(&mut first, "SET k v").unwrap(), "+OK");
        let before = anonymous_kib(server.pid());
        let mut streams: Vec<TlsStream> =
            (1..connections).map(|_| connect(address, &client).unwrap()).collect();
        ask_all(&mut streams);
        assert_eq!(info(&mut first, "connected_clients"), connections as u64);
        assert_eq!(info(&mut first, "tls_handshakes"), connections as u64);
        let grown = anonymous_kib(server.pid()).saturating_sub(before) * 1024;
        println!("{connections} connections, {} bytes each", grown / connections as u64);
        wait_until("all threads of the server sleep", || {
            tasks(server.pid()).iter().all(|task| task.is_asleep)
        });
        let begun = wake_ups(&server);
        std::thread::sleep(WINDOW);
        let woken = wake_ups(&server) - begun;
        assert!(woken < MOST_WAKE_UPS, "{woken} wake-ups of an idle server");
        // Some of them are busy, and all of them are still there.
        (0..ROUNDS).for_each(|_| ask_all(&mut streams[..connections / 10]));
        ask_all(&mut streams);
        assert_eq!(info(&mut first, "connected_clients"), connections as u64);
        assert_eq!(info(&mut first, "tls_handshakes_failed"), 0);
    });
}

/// Clients of `fabric_address` that connect and say nothing take no descriptors from the others: a client that
/// speaks has its session, and the oldest silent one ends.
#[test]
fn silent_clients_of_sessions_hold_up_nobody() {
    raise_open_files();
    let server = ServerProcess::start(&["--shards=1", "--fabric-address=127.0.0.1:0"]);
    let mut admin = server.resp();
    let Value::Array(told) = admin.call("CONFIG GET fabric_address") else { panic!("no array") };
    let Some(Value::Bulk(fabric)) = told.last() else { panic!("no address") };
    let fabric: SocketAddr = std::str::from_utf8(fabric).unwrap().parse().unwrap();
    let flood: Vec<_> =
        (0..MAX_SILENT_CLIENTS + 300).map(|_| TcpStream::connect(fabric).unwrap()).collect();
    let options = Options { transport: Wanted::Tcp, ..Options::default() };
    let mut session = Session::connect(Address::Tcp(fabric), &options).unwrap();
    session.set(b"k", b"v", SetOptions::default()).unwrap();
    wait_until("all have come", || admin.info("hellos_dropped") >= 300);
    for mut stream in &flood[..300] {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "it has ended, without a reply");
    }
    assert_eq!(session.get(b"k", Path::Ask).unwrap().value, Some(&b"v"[..]));
}

//! Sessions by real hellos: detection over both sockets, and thousands of connects that leave no
//! resources behind.

use remora_arena::{NoJournal, Region, RegionKind};
use remora_fabric::conformance::DEADLINE;
use remora_fabric::detect::{Offer, Unavailable, Wanted};
use remora_fabric::tcp::State;
use remora_fabric::{
    Address, ConnectError, Connected, Dialling, Link, RemoteAddress, Transport, Work, answer,
    connect, elsewhere, hello_of, refusal, shm, tcp,
};
use remora_layout::arena_header::{ARENA_MAGIC, word};
use remora_layout::hello::{ClientHello, PROTOCOL_VERSION, Refusal, ServerHello};
use remora_layout::limits::MIN_ARENA_BYTES;
use remora_layout::session::mailbox_bytes;
use remora_layout::verbs::{ArenaPlace, VerbsEnd};
use remora_testing::in_own_process;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use zerocopy::IntoBytes;

const INCARNATION: u64 = 99;
const PLANTED: u64 = 0x1122_3344_5566_7788;

/// The smallest server: one shard with an arena that no thread changes.
struct FakeServer {
    arena: Region,
    offer: Offer,
    socket: PathBuf,
    told_socket: PathBuf,
    tcp: SocketAddr,
    stop: AtomicBool,
    broken_rdma: Option<BrokenRdma>,
    /// Times that a client connected over TCP.
    came: AtomicU32,
}

/// How a server that chooses RDMA fails to make a queue pair.
#[derive(Clone, Copy)]
enum BrokenRdma {
    /// It announces that it chose RDMA, and closes.
    Goes,
    /// It describes an end and keys that do not exist.
    Lies,
    /// It refuses, for this reason.
    Refuses(Refusal),
    /// It says that it is busy, this many times.
    IsBusy(u32),
}

struct Server {
    place: Arc<FakeServer>,
    backoff: Duration,
    threads: Vec<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl FakeServer {
    fn hello(&self, chosen: Transport) -> ServerHello {
        let mut hello = elsewhere(chosen, self.offer, None, None).unwrap();
        hello.session = 1.into();
        hello.incarnation = INCARNATION.into();
        hello.shards = 1.into();
        hello
    }

    /// The choice, or the answer without a session.
    fn choose(&self, hello: &[u8], came_by: Transport) -> Result<(), Box<ServerHello>> {
        let refuse = |why| Box::new(refusal(why, self.offer));
        let hello = hello_of(hello.try_into().unwrap()).map_err(refuse)?;
        let chosen = answer(&hello, self.offer).map_err(refuse)?;
        if chosen == came_by {
            return Ok(());
        }
        let told = elsewhere(chosen, self.offer, Some(&self.told_socket), Some(self.tcp));
        Err(Box::new(told.unwrap()))
    }

    fn serve_unix(&self, mut socket: UnixStream) {
        let mut hello = [0; size_of::<ClientHello>()];
        if socket.read_exact(&mut hello).is_err() {
            return;
        }
        if let Err(answer) = self.choose(&hello, Transport::Shm) {
            let _ = shm::decline(&socket, &answer);
            return;
        }
        let memory = shm::SessionMemory::create(1, 1).unwrap();
        let eventfd = shm::Bell::eventfd().unwrap();
        let shards = [(self.arena.fd(), eventfd.as_fd())];
        let hello = self.hello(Transport::Shm);
        shm::Grant { hello, memory: &memory, shards: &shards, pointer_table: None }
            .send(&socket)
            .unwrap();
        // The socket's end is the session's end.
        let _ = socket.read(&mut [0]);
        memory.withdraw(1);
    }

    fn serve_tcp(&self, mut stream: TcpStream) {
        let mut hello = [0; size_of::<ClientHello>()];
        if stream.read_exact(&mut hello).is_err() {
            return;
        }
        let wanted = hello_of(&hello).unwrap().wanted.get();
        let came = self.came.fetch_add(1, Ordering::Relaxed);
        if let Some(how) = self.broken_rdma.filter(|_| wanted != Wanted::Tcp.number()) {
            let answer = match how {
                BrokenRdma::Refuses(why) => refusal(why, self.offer),
                BrokenRdma::IsBusy(times) if came < times => refusal(Refusal::Busy, self.offer),
                _ => self.hello(Transport::Verbs),
            };
            let more = [0xa5; size_of::<VerbsEnd>() + size_of::<ArenaPlace>() + size_of::<u32>()];
            let more = if matches!(how, BrokenRdma::Lies) { &more[..] } else { &[] };
            let _ = stream.write_all(&[answer.as_bytes(), more].concat());
            return;
        }
        if let Err(answer) = self.choose(&hello, Transport::Tcp) {
            let _ = stream.write_all(answer.as_bytes());
            return;
        }
        let mailbox = remora_arena::Mapping::heap(mailbox_bytes(1));
        let grant = tcp::Grant {
            hello: self.hello(Transport::Tcp),
            to_server: remora_arena::Words::new(mailbox),
            arenas: &[self.arena.view()],
        };
        let connection = grant.send(stream).unwrap();
        let mut buffer = tcp::ReceiveBuffer::default();
        loop {
            let _ = poll(&mut [PollFd::new(&*connection, PollFlags::IN)], None);
            match connection.serve(&mut buffer, true, &mut |_| {}).state {
                State::Idle | State::More => {}
                State::Closed => return,
                State::Failed(reason) => panic!("an honest client: {reason}"),
            }
        }
    }
}

impl Server {
    fn start(offer: impl FnOnce(&mut Offer), reachable: bool) -> Self {
        Self::start_with(offer, reachable, None)
    }

    fn start_with(
        offer: impl FnOnce(&mut Offer),
        reachable: bool,
        broken_rdma: Option<BrokenRdma>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let unix = UnixListener::bind(&socket).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bytes = MIN_ARENA_BYTES as usize;
        let arena = Region::create("remora-arena", RegionKind::Arena, bytes).unwrap();
        let mut owner = arena.owner(NoJournal).unwrap();
        owner.store(word::MAGIC, ARENA_MAGIC);
        owner.store(word::VERSION, PROTOCOL_VERSION as u64);
        owner.store(word::INCARNATION, INCARNATION);
        owner.store(word::REGION_BYTES, MIN_ARENA_BYTES);
        owner.store(512, PLANTED);
        let mut offered = Offer::of_this_process(true, true, false);
        offer(&mut offered);
        let told_socket = if reachable { socket.clone() } else { "/nowhere/s".into() };
        let place = Arc::new(FakeServer {
            arena,
            offer: offered,
            socket,
            told_socket,
            tcp: listener.local_addr().unwrap(),
            stop: AtomicBool::new(false),
            broken_rdma,
            came: AtomicU32::new(0),
        });
        let (by_unix, by_tcp) = (Arc::clone(&place), Arc::clone(&place));
        let threads = vec![
            std::thread::spawn(move || {
                for socket in unix.incoming().take_while(|_| !by_unix.stopped()) {
                    by_unix.serve_unix(socket.unwrap());
                }
            }),
            std::thread::spawn(move || {
                for stream in listener.incoming().take_while(|_| !by_tcp.stopped()) {
                    by_tcp.serve_tcp(stream.unwrap());
                }
            }),
        ];
        Self { place, backoff: DEADLINE, threads, _directory: directory }
    }

    fn connect(&self, by: Transport, wanted: Wanted) -> Result<Connected, ConnectError> {
        let address = match by {
            Transport::Tcp => Address::Tcp(self.place.tcp),
            _ => Address::Unix(self.place.socket.clone()),
        };
        let dialling = Dialling {
            wanted,
            backoff: self.backoff,
            hello_timeout: DEADLINE,
            ..Dialling::default()
        };
        connect(&address, &dialling)
    }

    fn stop(self) {
        self.place.stop.store(true, Ordering::Release);
        let _ = UnixStream::connect(&self.place.socket);
        let _ = TcpStream::connect(self.place.tcp);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

impl FakeServer {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// READs a planted word and WRITEs one: the session works.
fn works<L: Link>(link: &mut L) {
    link.reserve_landing(8);
    let from = RemoteAddress { region: 0, offset: 4096 };
    let to = RemoteAddress { region: 1, offset: 8192 };
    link.post(&[
        Work::Read { id: 1, from, into: 0, bytes: 8 },
        Work::Write { id: 2, to, bytes: &[1; 100], imm: None },
    ]);
    for id in 1..=2 {
        let completion = loop {
            match link.poll() {
                Some(completion) => break completion,
                None => drop(link.wait(None)),
            }
        };
        assert_eq!((completion.id, completion.result), (id, Ok(())));
    }
    assert_eq!(link.landed(0, 8), PLANTED.to_le_bytes());
}

fn used(connected: Result<Connected, ConnectError>) -> Transport {
    let mut connected = connected.unwrap();
    match &mut connected {
        Connected::Shm(connected) => works(&mut connected.link),
        Connected::Remote(connected) => {
            assert_eq!(connected.arenas[0].word(word::REGION_BYTES), MIN_ARENA_BYTES);
            works(&mut connected.link);
        }
    }
    connected.transport()
}

fn unavailable(connected: Result<Connected, ConnectError>) -> Unavailable {
    match connected.map(|connected| connected.transport()) {
        Err(ConnectError::Unavailable { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

use Transport::{Shm, Tcp};

#[test]
fn the_best_common_transport_is_found_by_either_address() {
    let server = Server::start(|_| {}, true);
    for by in [Shm, Tcp] {
        for (wanted, expected) in [(Wanted::Auto, Shm), (Wanted::Shm, Shm), (Wanted::Tcp, Tcp)] {
            assert_eq!(used(server.connect(by, wanted)), expected, "{wanted:?} by {by:?}");
        }
    }
    server.stop();
}

#[test]
fn another_host_is_reached_by_tcp_only() {
    let server = Server::start(|offer| offer.host ^= 1, true);
    for by in [Shm, Tcp] {
        assert_eq!(used(server.connect(by, Wanted::Auto)), Tcp);
        assert_eq!(used(server.connect(by, Wanted::Tcp)), Tcp);
        assert_eq!(unavailable(server.connect(by, Wanted::Shm)), Unavailable::ShmOtherHost);
    }
    server.stop();
}

#[test]
fn a_server_without_tcp_says_so() {
    let server = Server::start(|offer| offer.tcp = false, true);
    assert_eq!(unavailable(server.connect(Shm, Wanted::Tcp)), Unavailable::TcpNotAtServer);
    assert_eq!(used(server.connect(Shm, Wanted::Auto)), Shm);
    server.stop();
}

/// The same host, but its socket is not visible from here: `auto` falls back, a named transport is
/// an error.
#[test]
fn a_socket_out_of_reach_is_tcp_or_an_error() {
    let server = Server::start(|_| {}, false);
    assert_eq!(used(server.connect(Tcp, Wanted::Auto)), Tcp);
    assert_eq!(unavailable(server.connect(Tcp, Wanted::Shm)), Unavailable::ShmUnreachable);
    server.stop();
}

/// RDMA that both sides announce and that does not work: the session uses TCP, or fails where RDMA
/// was named. It never hangs.
#[test]
fn rdma_that_comes_to_nothing_is_tcp_or_an_error() {
    let full = BrokenRdma::Refuses(Refusal::TooManyQueuePairs);
    let refuses = BrokenRdma::Refuses(Refusal::Unavailable);
    for how in [BrokenRdma::Goes, BrokenRdma::Lies, refuses, full] {
        let server = Server::start_with(|offer| offer.host ^= 1, true, Some(how));
        assert_eq!(used(server.connect(Tcp, Wanted::Auto)), Tcp);
        let named = server.connect(Tcp, Wanted::Verbs).map(|connected| connected.transport());
        assert!(named.is_err(), "{named:?}");
        server.stop();
    }
}

/// A client connects to a busy server again and again, until the server has time or the client's
/// time is over.
#[test]
fn a_busy_server_is_come_to_again() {
    let busy = |times, backoff| {
        let how = BrokenRdma::IsBusy(times);
        let server = Server::start_with(|offer| offer.host ^= 1, true, Some(how));
        Server { backoff, ..server }
    };
    let server = busy(3, DEADLINE);
    // The fourth time the server chooses RDMA, and closes.
    let named = server.connect(Tcp, Wanted::Verbs).map(|connected| connected.transport());
    assert!(matches!(named, Err(ConnectError::Verbs { .. })), "{named:?}");
    assert_eq!(server.place.came.load(Ordering::Relaxed), 4);
    server.stop();
    // With little time, a client on a busy machine connects only once: then the client is given
    // more time.
    for time in [1, 10, 100].map(Duration::from_secs) {
        let server = busy(u32::MAX, time);
        let named = server.connect(Tcp, Wanted::Verbs).map(|connected| connected.transport());
        let is_busy = matches!(named, Err(ConnectError::Refused { refusal: Refusal::Busy, .. }));
        assert!(is_busy, "{named:?}");
        let came = server.place.came.load(Ordering::Relaxed);
        assert_eq!(used(server.connect(Tcp, Wanted::Auto)), Tcp);
        server.stop();
        if came >= 2 {
            return;
        }
    }
    panic!("it does not come again");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mapped_memfds() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("/memfd:remora-to-")).count()
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn thousands_of_sessions_leave_nothing_behind() {
    in_own_process(|| {
        let before = descriptors();
        let server = Server::start(|_| {}, true);
        for (by, wanted) in [(Shm, Wanted::Shm), (Tcp, Wanted::Tcp)] {
            assert_eq!(used(server.connect(by, wanted)), by);
        }
        let resident = resident_bytes();
        for (by, wanted) in [(Shm, Wanted::Shm), (Tcp, Wanted::Tcp)] {
            for _ in 0..2000 {
                assert_eq!(used(server.connect(by, wanted)), by);
            }
        }
        server.stop();
        assert_eq!(descriptors(), before, "descriptors are left");
        assert_eq!(mapped_memfds(), 0, "mappings are left");
        let grown = resident_bytes().saturating_sub(resident);
        assert!(grown < 64 << 20, "{grown} bytes are left");
    });
}

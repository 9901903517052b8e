//! A server and clients on real RDMA devices, for tests in the virtual machine of `make rxe`:
//! `REMORA_TEST_DEVICES=SERVER,CLIENT`.
//!
//! [`Raw`] is a client's end that posts any operation, with any address and any key. The library
//! checks none of them.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use remora_arena::{Mapping, Words};
use remora_fabric::conformance::DEADLINE;
use remora_fabric::verbs::{
    ClientSide, Connection, Domain, Host, Packets, Parts, PeerArena, PeerRegion, QueuePair,
    Registration, Request, Unconnected, Verb, Welcome, access, key_of, open, read_arenas,
};
use remora_layout::verbs::{RegionKey, VerbsEnd};
use remora_verbs_sys::*;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Length of the arena, and of a mailbox.
pub const ARENA_BYTES: usize = 64 << 10;
/// See above.
pub const MAILBOX_BYTES: usize = 8192;
/// Number of the arena on a client's connection, and of its mailbox.
pub const ARENA: u32 = 0;
/// See above.
pub const MAILBOX: u32 = 1;
/// The devices of the server and of the clients.
pub fn devices() -> (Vec<String>, Vec<String>) {
    let names = std::env::var("REMORA_TEST_DEVICES").unwrap_or_default();
    let mut names = names.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
    (Vec::from_iter(names.next()), Vec::from_iter(names.next()))
}

/// Two ends of a TCP connection.
pub fn control() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// A server with one arena, whose words are their own numbers.
pub struct Server {
    pub arena: Words,
    host: Host,
}

/// A session at the server.
pub struct Session {
    pub connection: Arc<Connection>,
    pub mailbox: Words,
    /// Immediates that have arrived.
    pub told: Arc<Mutex<Vec<u32>>>,
    /// Keeps the control connection open when the session has gone.
    pub control: TcpStream,
}

/// A client's knowledge and resources.
pub struct Raw {
    pub pair: QueuePair,
    pub domain: Arc<Domain>,
    /// The memory that it READs into and WRITEs from.
    pub memory: Registration,
    /// The arena's first piece: all of it, unless the server has several.
    pub arena: RegionKey,
    /// All of it, as the server described it.
    pub whole: PeerArena,
    pub mailbox: RegionKey,
    /// The memory that the server may write.
    pub own: Words,
    exposed: Vec<Registration>,
    pub control: TcpStream,
    next: u64,
}

impl Server {
    pub fn new() -> Self {
        Self::in_pieces(ARENA_BYTES)
    }

    /// One that registers its arena in pieces of this length.
    pub fn in_pieces(piece_bytes: usize) -> Self {
        let arena = Words::new(Mapping::heap(ARENA_BYTES));
        for at in 0..ARENA_BYTES / 8 {
            arena.store(at, at as u64);
        }
        let host = Host::in_pieces(&[arena.view()], &devices().0, &Packets::default(), piece_bytes)
            .unwrap();
        Self { arena, host }
    }

    pub fn welcome(&self) -> Welcome {
        self.host.welcome(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap()
    }

    /// A client's session, made as the binary does, and the client's end.
    pub fn session(&self) -> (Session, Raw) {
        self.session_telling(|_, _| {})
    }

    /// The same; `tell` is called for each immediate, before it is noted.
    pub fn session_telling(
        &self,
        tell: impl Fn(u32, &Words) + Send + Sync + 'static,
    ) -> (Session, Raw) {
        let (near, far) = control();
        let kept = far.try_clone().unwrap();
        let welcome = self.welcome();
        let (end, whole) = heard(&welcome);
        let (domain, place) = open(None, &devices().1).unwrap();
        let unconnected = Unconnected::new(&domain, &place).unwrap();
        let own_end = unconnected.end();
        let pair = unconnected.connect(&end).unwrap();
        let mut raw = Raw::new(pair, domain, near);
        let key = key_of(&raw.exposed[0], raw.exposed[0].rkey());
        let side = side(&own_end, key);
        let mailbox = Words::new(Mapping::heap(MAILBOX_BYTES));
        let told = Arc::new(Mutex::new(Vec::new()));
        let on_immediate = {
            let (told, mailbox) = (Arc::clone(&told), mailbox.clone());
            Box::new(move |imm| {
                tell(imm, &mailbox);
                told.lock().unwrap().push(imm);
            })
        };
        let (connection, ready) = welcome.accept(far, &side, &mailbox, on_immediate).unwrap();
        let first = whole.piece_bytes.min(whole.bytes);
        raw.arena = RegionKey {
            address: whole.address.into(),
            bytes: first.into(),
            rkey: whole.rkeys[0].into(),
            reserved: 0.into(),
        };
        (raw.whole, raw.mailbox) = (whole, ready.mailbox);
        (Session { connection, mailbox, told, control: kept }, raw)
    }
}

/// The ends of a bare connection without a session: the domain and the queue pair at the server's
/// device, and a client that knows no region. Returns the server's half of the control connection
/// as well.
pub fn bare() -> (Arc<Domain>, QueuePair, Raw, TcpStream) {
    let (near, far_control) = control();
    let (far_domain, far_place) = open(None, &devices().0).unwrap();
    let (domain, place) = open(None, &devices().1).unwrap();
    let far = Unconnected::new(&far_domain, &far_place).unwrap();
    let end = Unconnected::new(&domain, &place).unwrap();
    let (remote_end, near_end) = (far.end(), end.end());
    let (far, pair) = (far.connect(&near_end).unwrap(), end.connect(&remote_end).unwrap());
    (far_domain, far, Raw::new(pair, domain, near), far_control)
}

/// The content of the server's greeting.
pub fn heard(welcome: &Welcome) -> (VerbsEnd, PeerArena) {
    let greeting = welcome.greeting();
    let (end, mut rest) = VerbsEnd::read_from_prefix(&greeting).unwrap();
    let arena = read_arenas(&mut rest, 1).unwrap().remove(0);
    assert!(rest.is_empty(), "it tells of more");
    (end, arena)
}

/// A client's message, made from the bytes of its parts.
pub fn side(end: &VerbsEnd, mailbox: RegionKey) -> ClientSide {
    let bytes = [end.as_bytes(), mailbox.as_bytes()].concat();
    ClientSide::read_from_bytes(&bytes).unwrap()
}

impl Raw {
    /// A client's end with this queue pair, which knows no region yet.
    pub fn new(pair: QueuePair, domain: Arc<Domain>, control: TcpStream) -> Self {
        let own = Words::new(Mapping::heap(MAILBOX_BYTES));
        let exposed = vec![Registration::of(&domain, &own, access::WRITE).unwrap()];
        let memory = Registration::own(&domain, ARENA_BYTES).unwrap();
        let [arena, mailbox] = [RegionKey::new_zeroed(); 2];
        let whole = PeerArena { address: 0, bytes: 0, piece_bytes: 1, rkeys: [].into() };
        Self { pair, domain, memory, arena, whole, mailbox, own, exposed, control, next: 1 }
    }

    /// Keeps the memory that the peer may reach for as long as the queue pair.
    pub fn keep(&mut self, memory: Registration) {
        self.exposed.push(memory);
    }

    /// Posts one operation from the start of its memory; its number.
    pub fn post(&mut self, verb: Verb, at: u64, rkey: u32, bytes: usize) -> u64 {
        self.post_from(verb, at, rkey, 0, bytes)
    }

    /// The same from, or into, this byte of its memory.
    pub fn post_from(&mut self, verb: Verb, at: u64, rkey: u32, local: usize, bytes: usize) -> u64 {
        let id = self.next;
        self.next += 1;
        assert!(local + bytes <= self.memory.bytes());
        let request = Request {
            id,
            verb,
            local: (self.memory.address() + local as u64, self.memory.lkey()),
            remote: (at, rkey),
            bytes: bytes as u32,
            is_signalled: true,
        };
        self.post_all(&[request]);
        id
    }

    /// Posts operations on its own memory with one doorbell.
    pub fn post_all(&mut self, requests: &[Request]) {
        // SAFETY: the memory lives as long as `self`, the queue pair is
        // dropped before it, and it is looked at after completions.
        assert_eq!(unsafe { self.pair.post(requests) }, requests.len());
    }

    /// The next completion.
    pub fn completion(&mut self) -> ibv_wc {
        let end = Instant::now() + DEADLINE;
        // SAFETY: plain data, valid as zeros.
        let mut taken: [ibv_wc; 1] = unsafe { std::mem::zeroed() };
        while self.pair.completions.poll(&mut taken) == 0 {
            assert!(Instant::now() < end, "an operation does not end");
            std::thread::yield_now();
        }
        taken[0]
    }

    /// Does one operation; its status.
    pub fn run(&mut self, verb: Verb, at: u64, rkey: u32, bytes: usize) -> u32 {
        let id = self.post(verb, at, rkey, bytes);
        loop {
            let completion = self.completion();
            if completion.wr_id == id {
                return completion.status;
            }
        }
    }

    /// Writes a word; the status.
    pub fn write(&mut self, at: u64, rkey: u32, word: u64) -> u32 {
        self.memory.store(0, &word.to_le_bytes());
        self.run(Verb::Write(None), at, rkey, 8)
    }

    /// Reads a word.
    pub fn read(&mut self, at: u64, rkey: u32) -> Result<u64, u32> {
        match self.run(Verb::Read, at, rkey, 8) {
            IBV_WC_SUCCESS => Ok(self.landed(0)),
            status => Err(status),
        }
    }

    /// Lets the peer's device invalidate a key, by a message without content;
    /// the status.
    pub fn invalidate(&mut self, rkey: u32) -> u32 {
        // SAFETY: plain data, valid as zeros.
        let mut post: ibv_send_wr = unsafe { std::mem::zeroed() };
        post.wr_id = self.next;
        self.next += 1;
        post.opcode = IBV_WR_SEND_WITH_INV;
        post.send_flags = IBV_SEND_SIGNALED;
        post.__bindgen_anon_1.invalidate_rkey = rkey;
        let (pair, mut bad) = (self.pair.as_raw(), std::ptr::null_mut());
        // SAFETY: a live queue pair; the request names no memory and is copied.
        let code =
            unsafe { ((*(*pair).context).ops.post_send.unwrap())(pair, &mut post, &mut bad) };
        assert_eq!(code, 0);
        loop {
            let completion = self.completion();
            if completion.wr_id == post.wr_id {
                return completion.status;
            }
        }
    }

    /// A word of its memory; no READ into it is under way.
    pub fn landed(&self, at: usize) -> u64 {
        // SAFETY: the caller's word.
        let bytes = unsafe { self.memory.landed(at, 8) };
        u64::from_le_bytes(bytes.try_into().unwrap())
    }

    /// The memory that the server may write, as a request names it.
    pub fn own_key(&self) -> RegionKey {
        key_of(&self.exposed[0], self.exposed[0].rkey())
    }

    /// The library's connection over the same queue pair: an honest client.
    pub fn into_connection(self) -> Arc<Connection> {
        Connection::new(Parts {
            pair: self.pair,
            domain: self.domain,
            control: self.control,
            peer: vec![PeerRegion::Arena(self.whole), PeerRegion::Mailbox(self.mailbox)],
            shards: 1,
            exposed: self.exposed,
            windows: Vec::new(),
            on_immediate: Box::new(|_| {}),
        })
        .unwrap()
    }
}

/// From now on, a peer that finds no receive request here for an immediate has to try again
/// after 10 us.
pub fn be_asked_again_soon(pair: &QueuePair) {
    // SAFETY: plain data, valid as zeros.
    let mut attributes: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attributes.min_rnr_timer = 1;
    // SAFETY: the library that made the queue pair, which lives.
    let code = unsafe {
        let library = Ibverbs::new("libibverbs.so.1").unwrap();
        library.ibv_modify_qp(pair.as_raw(), &mut attributes, IBV_QP_MIN_RNR_TIMER as i32)
    };
    assert_eq!(code, 0);
}

/// Runs it in a forked child, which then ends, and waits for the end.
pub fn in_child(work: impl FnOnce()) {
    // SAFETY: the test's other threads are idle, so the child finds no lock
    // taken for ever.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            work();
            // SAFETY: ends the child at once.
            unsafe { nix::libc::_exit(41) }
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None).unwrap();
            assert!(matches!(status, WaitStatus::Exited(_, 41)), "{status:?}");
        }
    }
}

/// The content of the memory, word by word.
pub fn content(words: &Words) -> Vec<u64> {
    (0..words.bytes() / 8).map(|at| words.load_acquire(at)).collect()
}

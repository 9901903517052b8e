//! Beds of the conformance body in two halves, for backends that connect hosts:
//! a link here, and a [`Target`] in this process, or in another one that is
//! told over TCP what to do ([`remote`]). A [`Backend`] says how the halves are
//! made; both places of the target use the same ones.

pub mod remote;

use remora_arena::{Mapping, Words};
use remora_fabric::conformance::{DEADLINE, EchoBed, TestBed};
use remora_fabric::{Link, LinkError, RemoteAddress, Work};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Region of the initiator that the target writes.
pub const LOCAL: u32 = 0;
/// Length of that region.
const LOCAL_BYTES: usize = 4096;
/// Immediates that a target remembers: no test sends more between two looks. An
/// initiator that does finds the rest missing.
const MAX_TOLD: usize = 1024;

/// How the two halves of a bed are made.
pub trait Backend: Sized + 'static {
    /// The link under test.
    type Link: Link;
    /// The target's end of the connection.
    type Connection: Send + Sync + 'static;

    /// Number of the region that the target lets be read.
    const READABLE: u32;
    /// Number of the initiator's mailbox at the target.
    const MAILBOX: u32;
    /// What an echo carries, so that it wakes the initiator.
    const ECHO_IMMEDIATE: Option<u32>;

    /// The target's half, on a stream whose other end calls [`Self::initiator`].
    fn target(stream: TcpStream, shared: &Arc<Shared>) -> Arc<Self::Connection>;
    /// The target's thread: until `shared.stops()`, or the connection's end.
    fn serve(connection: &Arc<Self::Connection>, shared: &Shared);
    /// Takes what has come already.
    fn settle(connection: &Self::Connection);
    /// Withdraws the session.
    fn withdraw(connection: &Self::Connection);
    /// Ends the connection without a word.
    fn close(connection: &Self::Connection);
    /// The initiator's half, which lets the target write `local`.
    fn initiator(stream: TcpStream, region_bytes: usize, local: &Words) -> Self::Link;
}

/// What a target's thread and its owner share.
pub struct Shared {
    pub readable: Words,
    pub mailbox: Words,
    stop: AtomicBool,
    echo: AtomicBool,
    told: Mutex<Vec<(u32, u64)>>,
}

impl Shared {
    fn new(region_bytes: usize) -> Arc<Self> {
        let region = || Words::new(Mapping::heap(region_bytes));
        let (stop, echo, told) = Default::default();
        Arc::new(Self { readable: region(), mailbox: region(), stop, echo, told })
    }

    /// Whether the target's thread is to end.
    pub fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Notes an immediate, with the word of that number in the mailbox; of an
    /// echo with the first one.
    pub fn note(&self, imm: u32) {
        let at = if self.echo.load(Ordering::Relaxed) { 0 } else { imm as usize };
        // An initiator on another host may name any number.
        let is_word = at < self.mailbox.bytes() / 8;
        let word = if is_word { self.mailbox.load_acquire(at) } else { 0 };
        let mut told = self.told.lock().unwrap();
        if told.len() < MAX_TOLD {
            told.push((imm, word));
        }
    }

    fn take_told(&self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.told.lock().unwrap())
    }

    /// Answers the immediates that were noted, if it is to.
    pub fn answer<B: Backend>(&self, back: &mut B::Link) {
        if !self.echo.load(Ordering::Relaxed) {
            return;
        }
        for (_, word) in self.take_told() {
            let to = RemoteAddress { region: LOCAL, offset: 0 };
            let bytes = word.to_le_bytes();
            back.post(&[Work::Write { id: 0, to, bytes: &bytes, imm: B::ECHO_IMMEDIATE }]);
        }
        while back.poll().is_some() {}
    }
}

/// Where a bed's target is.
pub trait Peer<B: Backend>: Sized {
    /// A fresh target, with what connects it to `local`.
    fn new(region_bytes: usize, local: &Words) -> (Self, B::Link);
    /// See [`TestBed::target_store`].
    fn store(&mut self, offset: usize, bytes: &[u8]);
    /// See [`TestBed::target_load`].
    fn load(&mut self, offset: usize, bytes: usize) -> Vec<u8>;
    /// See [`TestBed::withdraw`].
    fn withdraw(&mut self);
    /// See [`TestBed::lose`].
    fn lose(&mut self);
    /// See [`TestBed::immediates`].
    fn immediates(&mut self) -> Vec<(u32, u64)>;
    /// See [`EchoBed::start_echo`].
    fn echo(&mut self);
}

/// A target in this process, served by a thread of its own.
pub struct Target<B: Backend> {
    pub shared: Arc<Shared>,
    pub connection: Arc<B::Connection>,
    agent: Option<JoinHandle<()>>,
}

impl<B: Backend> Target<B> {
    /// The target's half, on a stream from its initiator.
    pub fn on(stream: TcpStream, region_bytes: usize) -> Self {
        // Both halves may wait for each other's words while they are made.
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let shared = Shared::new(region_bytes);
        let connection = B::target(stream, &shared);
        let agent = std::thread::spawn({
            let (connection, shared) = (Arc::clone(&connection), Arc::clone(&shared));
            move || B::serve(&connection, &shared)
        });
        Self { shared, connection, agent: Some(agent) }
    }
}

impl<B: Backend> Peer<B> for Target<B> {
    fn new(region_bytes: usize, local: &Words) -> (Self, B::Link) {
        let (near, far) = pair();
        std::thread::scope(|scope| {
            let target = scope.spawn(move || Self::on(far, region_bytes));
            let link = B::initiator(near, region_bytes, local);
            (target.join().unwrap(), link)
        })
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        self.shared.readable.copy_in(offset, bytes);
    }

    fn load(&mut self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        self.shared.mailbox.copy_out(offset, &mut content);
        content
    }

    fn withdraw(&mut self) {
        B::withdraw(&self.connection);
    }

    fn lose(&mut self) {
        B::close(&self.connection);
    }

    fn immediates(&mut self) -> Vec<(u32, u64)> {
        B::settle(&self.connection);
        self.shared.take_told()
    }

    fn echo(&mut self) {
        self.shared.echo.store(true, Ordering::Relaxed);
    }
}

impl<B: Backend> Drop for Target<B> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        B::close(&self.connection);
        let agent = self.agent.take().unwrap();
        assert!(agent.join().is_ok() || std::thread::panicking(), "the agent panicked");
    }
}

/// A link, and its target wherever `P` has it.
pub struct Bed<B: Backend, P: Peer<B>> {
    pub link: B::Link,
    pub local: Words,
    pub peer: P,
}

impl<B: Backend, P: Peer<B>> TestBed for Bed<B, P> {
    type Link = B::Link;

    fn new(region_bytes: usize) -> Self {
        let local = Words::new(Mapping::heap(LOCAL_BYTES));
        let (peer, mut link) = P::new(region_bytes, &local);
        link.reserve_landing(region_bytes);
        Self { link, local, peer }
    }

    fn link(&mut self) -> &mut B::Link {
        &mut self.link
    }

    fn readable(&self) -> u32 {
        B::READABLE
    }

    fn mailbox(&self) -> u32 {
        B::MAILBOX
    }

    fn target_store(&mut self, offset: usize, bytes: &[u8]) {
        self.peer.store(offset, bytes);
    }

    fn target_load(&mut self, offset: usize, bytes: usize) -> Vec<u8> {
        self.peer.load(offset, bytes)
    }

    fn withdraw(&mut self) {
        self.peer.withdraw();
    }

    fn lose(&mut self) -> LinkError {
        self.peer.lose();
        LinkError::Disconnected
    }

    fn immediates(&mut self) -> Vec<(u32, u64)> {
        self.peer.immediates()
    }
}

impl<B: Backend, P: Peer<B>> EchoBed for Bed<B, P> {
    fn start_echo(&mut self, _rounds: u64) {
        self.peer.echo();
    }

    fn echoed(&self) -> u64 {
        self.local.load_acquire(0)
    }

    fn stop_echo(&mut self) -> u64 {
        0
    }
}

/// Two ends of a TCP connection.
pub fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

//! Connections: the hello and the grant of the product, one thread for each
//! that waits for the client's end.

use super::super::conversation::ends;
use super::super::ends::{Broken, Receiving, Sending, Side};
use super::super::form::Messages;
use super::rest::Rest;
use remora_arena::Region;
use remora_fabric::detect::{Offer, number_of};
use remora_fabric::shm::{Bell, Grant, SessionMemory, ThreadBell, decline};
use remora_fabric::{Transport, hello_of, refusal};
use remora_layout::hello::{
    ClientHello, HELLO_MAGIC, PROTOCOL_VERSION, Refusal, SOCKET_PATH_BYTES, ServerHello,
    TCP_ADDRESS_BYTES,
};
use remora_layout::limits::MAX_SHARDS;
use remora_layout::slot::SlotTable;
use std::io::Read;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A client that does not send its hello within this time is cut off.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// State of the thread that grants sessions.
pub struct Host {
    pub messages: Messages,
    pub message_bytes: usize,
    pub incarnation: u64,
    pub hash_seed: u64,
    pub posts: Vec<Post>,
}

/// One shard, as clients meet it.
pub struct Post {
    /// Its arena.
    pub region: Region,
    /// Its threads that take messages: a connection is at one of them.
    pub accept_queues: Vec<Arc<AcceptQueue>>,
}

/// New conversations wait here for the thread that will serve them.
pub struct AcceptQueue {
    waiting: Mutex<Vec<Conversation>>,
    is_open: AtomicBool,
    /// Wakes the thread.
    eventfd: Arc<OwnedFd>,
}

/// One client at one shard; `O` is the way back, alone or shared.
pub struct Conversation<O = Outgoing> {
    pub incoming: Box<dyn Receiving>,
    pub outgoing: O,
    /// Whether it continues.
    pub incarnation: Incarnation,
    /// The client's wake-up of the shard.
    eventfd: Arc<OwnedFd>,
}

/// The way back to one client.
pub struct Outgoing {
    sending: Box<dyn Sending>,
    /// Wakes the client; none where messages are only polled for.
    bell: Option<ThreadBell>,
    incarnation: Incarnation,
}

/// Whether a connection continues, at all shards: its flag is set when the client has gone, or has
/// broken the protocol.
#[derive(Clone)]
pub struct Incarnation(Arc<(AtomicBool, UnixStream)>);

impl Incarnation {
    fn begin(socket: UnixStream) -> Self {
        Self(Arc::new((AtomicBool::new(false), socket)))
    }

    /// Ends it, for its client too.
    #[cold]
    pub fn end(&self, broken: Broken) {
        let (has_ended, socket) = &*self.0;
        if !has_ended.swap(true, Ordering::AcqRel) {
            tracing::warn!(%broken, "connection ended");
            // Wakes the thread that watches it, here and at the peer.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Whether it has ended.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }
}

impl<O> Conversation<O> {
    /// Whether there is something to take.
    #[inline]
    pub fn has_message(&self) -> bool {
        !self.incarnation.has_ended() && self.incoming.has_message()
    }

    /// Takes up to `most` messages; passes each to `each`, with the way back and the object that
    /// gives its place back to the client.
    #[inline]
    pub fn take_turn(
        &mut self,
        most: usize,
        message: &mut Vec<u8>,
        mut each: impl FnMut(&mut Vec<u8>, &mut dyn Receiving, &mut O) -> Result<(), Broken>,
    ) {
        for _ in 0..most {
            let taken = match self.incoming.take(message) {
                Ok(false) => return,
                Ok(true) => each(message, &mut *self.incoming, &mut self.outgoing),
                Err(broken) => Err(broken),
            };
            if let Err(broken) = taken {
                return self.incarnation.end(broken);
            }
        }
    }
}

impl AcceptQueue {
    /// An empty accept_queue.
    pub fn new() -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            waiting: Mutex::default(),
            is_open: AtomicBool::new(false),
            eventfd: Bell::eventfd()?,
        }))
    }

    /// Adds new conversations and removes those that have ended.
    pub fn pass<O>(
        &self,
        inside: &mut Vec<Conversation<O>>,
        rest: &Rest,
        way_back: impl Fn(Outgoing) -> O,
    ) {
        self.is_open.store(false, Ordering::SeqCst);
        let came =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for Conversation { incoming, outgoing, incarnation, eventfd } in came {
            match rest.watch(eventfd.as_fd()) {
                Ok(()) => {
                    let outgoing = way_back(outgoing);
                    inside.push(Conversation { incoming, outgoing, incarnation, eventfd });
                }
                Err(_) => incarnation.end(Broken("cannot wait for it")),
            }
        }
        inside.retain(|conversation| {
            let stays = !conversation.incarnation.has_ended();
            if !stays {
                rest.forget(conversation.eventfd.as_fd());
            }
            stays
        });
    }

    fn push(&self, conversation: Conversation) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(conversation);
        self.knock();
    }

    /// Wakes the thread: a client came or went.
    fn knock(&self) {
        self.is_open.store(true, Ordering::Release);
        // A full counter means that a wake-up is already due.
        let _ = rustix::io::write(&*self.eventfd, &1u64.to_ne_bytes());
    }

    /// Whether a client came or went.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }
}

impl AsFd for AcceptQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

impl Outgoing {
    /// Sends a reply and wakes the client. An error ends the connection: an honest client has left
    /// room for the reply.
    #[inline]
    pub fn send(&mut self, parts: &[&[u8]]) {
        match self.sending.try_send(parts) {
            Ok(true) => {
                if let Some(bell) = &self.bell {
                    bell.ring();
                }
            }
            Ok(false) => self.incarnation.end(Broken("it left no room for a reply")),
            Err(broken) => self.incarnation.end(broken),
        }
    }
}

/// Takes clients, for as long as the process lives.
pub fn accept(host: &Host, listener: &UnixListener) {
    std::thread::scope(|scope| {
        for (number, socket) in listener.incoming().enumerate() {
            let Ok(socket) = socket else { continue };
            let watch = move || {
                if let Err(error) = serve(host, number as u64, &socket) {
                    tracing::warn!(%error, "no connection");
                }
            };
            let watcher = std::thread::Builder::new().name("client".into());
            if let Err(error) = watcher.spawn_scoped(scope, watch) {
                tracing::warn!(%error, "no thread for a client");
            }
        }
    });
}

/// Grants one connection and waits for its end.
fn serve(host: &Host, number: u64, mut socket: &UnixStream) -> anyhow::Result<()> {
    socket.set_read_timeout(Some(HELLO_TIMEOUT))?;
    let mut hello = [0u8; size_of::<ClientHello>()];
    socket.read_exact(&mut hello)?;
    let peer = rustix::net::sockopt::socket_peercred(socket.as_fd())?;
    let allowed = if peer.uid == rustix::process::geteuid() {
        hello_of(&hello).map(|_| ())
    } else {
        Err(Refusal::OtherUser)
    };
    if let Err(why) = allowed {
        decline(socket, &refusal(why, offer()))?;
        anyhow::bail!(why);
    }
    let incarnation = Incarnation::begin(socket.try_clone()?);
    let sent = grant(host, number, socket, &incarnation);
    if sent.is_ok() {
        // The client sends nothing more: the next read is its end.
        socket.set_read_timeout(None)?;
        let _ = socket.read(&mut [0u8; 1]);
    }
    incarnation.0.0.store(true, Ordering::Release);
    for post in &host.posts {
        post.door_of(number).knock();
    }
    sent
}

impl Post {
    fn door_of(&self, connection: u64) -> &AcceptQueue {
        &self.accept_queues[connection as usize % self.accept_queues.len()]
    }
}

/// Shared memory only.
fn offer() -> Offer {
    Offer::of_this_process(true, false, false)
}

fn grant(
    host: &Host,
    number: u64,
    socket: &UnixStream,
    incarnation: &Incarnation,
) -> anyhow::Result<()> {
    let shards = host.posts.len();
    let memory = SessionMemory::create(shards, 1)?;
    let seed = rand::random();
    let mut eventfds = Vec::with_capacity(shards);
    for (shard, post) in host.posts.iter().enumerate() {
        let eventfd = Bell::eventfd()?;
        let side = Side::of_server(memory.to_server(), memory.to_client(), shard, seed);
        let (incoming, sending) = ends(host.messages, &side, host.message_bytes);
        let bell = (host.messages != Messages::Indicator).then(|| memory.thread_bell(0));
        let outgoing = Outgoing { sending, bell, incarnation: incarnation.clone() };
        eventfds.push(Arc::clone(&eventfd));
        let incarnation = incarnation.clone();
        post.door_of(number).push(Conversation { incoming, outgoing, incarnation, eventfd });
    }
    let mut hello = ServerHello {
        magic: HELLO_MAGIC.into(),
        version: PROTOCOL_VERSION.into(),
        refusal: 0.into(),
        session: number.into(),
        incarnation: host.incarnation.into(),
        epoch: 1.into(),
        session_seed: seed.into(),
        hash_seed: host.hash_seed.into(),
        shards: 0.into(),
        pid: std::process::id().into(),
        pointer_table_seed: 0.into(),
        offer: offer().to_wire(),
        transport: number_of(Transport::Shm).into(),
        ring_sets: 1.into(),
        socket_path: [0; SOCKET_PATH_BYTES],
        asks_only: 0.into(),
        tcp_address: [0; TCP_ADDRESS_BYTES],
        regions: [0.into(); MAX_SHARDS],
        first_slots: [0.into(); MAX_SHARDS],
    };
    hello.tell_shards(0..shards as u32, &SlotTable::even(shards));
    let fds: Vec<_> = host
        .posts
        .iter()
        .zip(&eventfds)
        .map(|(post, eventfd)| (post.region.fd(), eventfd.as_fd()))
        .collect();
    Grant { hello, memory: &memory, shards: &fds, pointer_table: None }.send(socket)?;
    Ok(())
}

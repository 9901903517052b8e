//! Sessions with a server over the network: over TCP frames, or over RDMA after the two ends set up
//! the queue pairs over TCP.
//!
//! ```text
//! the client's regions, WRITE               the server's regions for this client
//! 0   to_client mailbox                    0 .. shards   arenas, READ
//! 1   buffer for large replies; over       shards        to_server mailbox, WRITE
//!     RDMA instead what requests name
//! ```

use crate::address::Address;
use crate::detect::Wanted;
use crate::dialling::Dialling;
use crate::hello::{ConnectError, Dialled, check_answer, hello_of};
use crate::tcp::{self, TcpLink};
use crate::verbs::{self, VerbsError, VerbsLink};
use crate::{AnyLink, HelloStream, Link, LinkError, RemoteAddress, Transport, Waited, Work};
use remora_arena::{Mapping, ReadView, Words};
use remora_layout::arena_header::{ARENA_HEADER_BYTES, ARENA_MAGIC, word};
use remora_layout::hello::{PROTOCOL_VERSION, ServerHello};
use remora_layout::limits::{MAX_ARENA_BYTES, MAX_SHARDS, MIN_ARENA_BYTES};
use remora_layout::session::mailbox_bytes;
use remora_tls::{Progress, TlsError};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

pub use crate::client_regions::{CLIENT_LARGE, CLIENT_MAILBOX};

/// The beginning of an alert of TLS (RFC 8446, 5.1 and 6): what a server with TLS answers to a hello
/// without it.
const TLS_ALERT: [u8; 2] = [21, 3];

/// The header page of an arena, as of the start of the session.
pub struct ArenaHeader {
    page: Box<[u8]>,
}

impl ArenaHeader {
    /// One of its words: see [`remora_layout::arena_header::word`].
    pub fn word(&self, index: usize) -> u64 {
        let bytes = &self.page[index * 8..index * 8 + 8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    /// All of it, `ARENA_HEADER_BYTES` long.
    pub fn page(&self) -> &[u8] {
        &self.page
    }
}

/// The connection of a session with a remote peer, at either end.
#[derive(Clone)]
pub enum RemoteConnection {
    /// Frames.
    Tcp(Arc<tcp::Connection>),
    /// A queue pair.
    Verbs(Arc<verbs::Connection>),
}

impl RemoteConnection {
    /// Its kind.
    pub fn transport(&self) -> Transport {
        match self {
            Self::Tcp(_) => Transport::Tcp,
            Self::Verbs(_) => Transport::Verbs,
        }
    }

    /// The RDMA device that it uses, if it uses one.
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::Tcp(_) => None,
            Self::Verbs(connection) => Some(connection.device()),
        }
    }

    /// A further link on it. Sessions wait for arrivals and for READs, never for the completions of
    /// their WRITEs.
    pub fn link(&self) -> AnyLink {
        match self {
            Self::Tcp(connection) => {
                AnyLink::Tcp(TcpLink::new(Arc::clone(connection)).unsignalled())
            }
            Self::Verbs(connection) => AnyLink::Verbs(VerbsLink::new(Arc::clone(connection))),
        }
    }

    /// Checks whether the peer has ended the session or has gone, for transports whose links notice
    /// this only when they post.
    ///
    /// # Errors
    /// The peer has.
    pub fn look_after_peer(&self) -> Result<(), LinkError> {
        match self {
            // Its links read the same stream.
            Self::Tcp(_) => Ok(()),
            Self::Verbs(connection) => {
                connection.look_after_peer();
                connection.failure().map_or(Ok(()), Err)
            }
        }
    }

    /// Times that threads have waited for each other at the parts that they share of it.
    pub fn lock_waits(&self) -> u64 {
        match self {
            Self::Tcp(connection) => connection.lock_waits(),
            Self::Verbs(connection) => connection.lock_waits(),
        }
    }

    /// Ends it in both directions.
    pub fn close(&self) {
        match self {
            Self::Tcp(connection) => connection.close(),
            Self::Verbs(connection) => connection.close(),
        }
    }

    /// Ends the session for the peer, and tells it: once this has returned, this end executes no
    /// further operation of the peer.
    pub fn withdraw(&self) {
        match self {
            Self::Tcp(connection) => connection.withdraw_all(),
            Self::Verbs(connection) => connection.withdraw(),
        }
    }
}

/// Memory of a client's own into which the server writes large replies.
pub enum LargeMemory {
    /// A region of the connection.
    Region(ReadView),
    /// Registered when it is needed, and named by the requests.
    Registered(Box<verbs::DataMemory>),
}

/// A client's end of a new session.
pub struct Connected {
    /// The server's hello.
    pub hello: ServerHello,
    /// Its end is the session's end.
    pub connection: RemoteConnection,
    /// The mailbox that the server writes; our own memory.
    pub to_client: ReadView,
    /// Where the server writes large replies.
    pub large: LargeMemory,
    /// Each shard's arena header.
    pub arenas: Vec<ArenaHeader>,
    /// A link: regions 0 .. shards are the arenas, region `shards` is the
    /// mailbox at the server.
    pub link: AnyLink,
}

/// Connects: to the first address of a name that answers within the time, which is for all of them.
fn reach(address: &Address, timeout: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + timeout;
    let mut failed = io::Error::from(io::ErrorKind::TimedOut);
    for candidate in address.resolved()? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&candidate, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The name that the server's certificate has to hold.
fn name_of(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.ip().to_canonical().to_string(),
        Address::Host(name, _) => name.clone(),
        Address::Unix(_) => String::new(),
    }
}

/// Connects, and makes the handshake if there is to be TLS.
fn open(address: &Address, dialling: &Dialling) -> Result<HelloStream, ConnectError> {
    let server = || address.clone();
    let no_tls = |why| match why {
        // It has gone, or does not answer.
        TlsError::Io(source) => ConnectError::Unreachable { server: server(), source },
        why => ConnectError::Tls { server: server(), why },
    };
    // Before the server begins to wait for it.
    let tls = dialling.tls.as_ref().map(|tls| tls.load()?.begin(&name_of(address)));
    let session = tls.transpose().map_err(no_tls)?;
    let stream = reach(address, dialling.hello_timeout)
        .map_err(|source| ConnectError::Unreachable { server: server(), source })?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(dialling.hello_timeout))?;
    stream.set_write_timeout(Some(dialling.hello_timeout))?;
    let Some(mut session) = session else { return Ok(stream.into()) };
    match session.handshake(&mut &stream).map_err(no_tls)? {
        Progress::Done => Ok(HelloStream::encrypted_waiting(stream, session)),
        // The socket blocks: its time is over.
        Progress::WantsRead | Progress::WantsWrite => {
            Err(no_tls(io::Error::from(io::ErrorKind::TimedOut).into()))
        }
    }
}

/// The first bytes of a server's hello.
fn read_magic(
    stream: &mut HelloStream,
    magic: &mut [u8],
    server: &dyn Fn() -> Address,
) -> Result<(), ConnectError> {
    let mut filled = 0;
    while filled < magic.len() {
        match stream.read(&mut magic[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ConnectError::of_stream(server(), error)),
        }
    }
    // The magic of a hello is an unknown command there, and more than the error does not come.
    if magic[..filled].starts_with(b"-ERR") {
        return Err(ConnectError::NotAServer {
            server: server(),
            what: "it answers as a server for RESP does; name its address for sessions, fabric_address",
        });
    }
    // An alert is shorter than the magic.
    if magic[..filled].starts_with(&TLS_ALERT) {
        return Err(ConnectError::NeedsTls { server: server() });
    }
    match filled == magic.len() {
        true => Ok(()),
        false => {
            let source = io::ErrorKind::UnexpectedEof.into();
            Err(ConnectError::Unreachable { server: server(), source })
        }
    }
}

/// Says hello at a TCP address: returns a session, or another address to dial.
pub(crate) fn dial(
    address: &Address,
    wanted: Wanted,
    dialling: &Dialling,
) -> Result<Dialled<Connected>, ConnectError> {
    let server = || address.clone();
    let failed = |error| ConnectError::of_stream(server(), error);
    let not_a_server = |what| ConnectError::NotAServer { server: server(), what };
    // Before the server begins to wait for it.
    let Dialling { credentials, packets, hello_timeout, .. } = dialling;
    let hello_timeout = *hello_timeout;
    let sent = hello_of(wanted, credentials)?;
    let mut stream = open(address, dialling)?;
    stream.write_all(sent.as_bytes()).map_err(failed)?;
    let mut hello = ServerHello::new_zeroed();
    let (magic, rest) = hello.as_mut_bytes().split_at_mut(size_of::<u64>());
    read_magic(&mut stream, magic, &server)?;
    stream.read_exact(rest).map_err(failed)?;
    let chosen = check_answer(&hello, &sent, &server)?;
    if !matches!(chosen, Transport::Tcp | Transport::Verbs) {
        return Ok(Dialled::Elsewhere(Box::new(hello)));
    }
    let shards = hello.shards.get() as usize;
    if shards == 0 || shards > MAX_SHARDS {
        return Err(not_a_server("it announces an impossible number of shards"));
    }
    if hello.slot_table().is_none() {
        return Err(not_a_server("its table of slots is impossible"));
    }
    let to_client = Words::new(Mapping::heap(mailbox_bytes(shards)));
    let (connection, large) = match chosen {
        Transport::Verbs => {
            let begun = verbs::begin(stream, shards, &to_client, packets);
            let (connection, large) = begun.map_err(|why| match why {
                verbs::BeginError::Verbs(why) => ConnectError::Verbs { server: server(), why },
                verbs::BeginError::Stream(why) => {
                    let why = VerbsError::Failed { step: "set up queue pairs by TCP", why };
                    ConnectError::Verbs { server: server(), why }
                }
                verbs::BeginError::Refused(refusal) => {
                    ConnectError::Refused { server: server(), refusal }
                }
            })?;
            (RemoteConnection::Verbs(connection), LargeMemory::Registered(Box::new(large)))
        }
        _ => {
            let (connection, large) = tcp::begin(stream, &to_client)?;
            (RemoteConnection::Tcp(connection), LargeMemory::Region(large))
        }
    };
    let mut link = connection.link();
    let arenas = read_headers(&mut link, shards, hello_timeout).map_err(|error| match chosen {
        Transport::Verbs => {
            ConnectError::Verbs { server: server(), why: VerbsError::NoReach(error) }
        }
        _ => error.into(),
    })?;
    for (shard, arena) in arenas.iter().enumerate() {
        check_header(arena, hello.region(shard), hello.incarnation.get()).map_err(not_a_server)?;
    }
    let to_client = to_client.view();
    Ok(Dialled::Session(Connected { hello, connection, to_client, large, arenas, link }))
}

/// READs all headers in one batch.
fn read_headers(
    link: &mut AnyLink,
    shards: usize,
    timeout: Duration,
) -> Result<Vec<ArenaHeader>, LinkError> {
    const BYTES: usize = ARENA_HEADER_BYTES;
    link.reserve_landing(shards * BYTES);
    let batch: Vec<Work<'_>> = (0..shards)
        .map(|shard| Work::Read {
            id: shard as u64,
            from: RemoteAddress { region: shard as u32, offset: 0 },
            into: shard * BYTES,
            bytes: BYTES,
        })
        .collect();
    link.post(&batch);
    let mut done = 0;
    while done < shards {
        let Some(completion) = link.poll() else {
            // Heartbeats may arrive in between; only silence is an end.
            if link.wait(Some(timeout)) == Waited::TimedOut {
                return Err(LinkError::Disconnected);
            }
            continue;
        };
        completion.result?;
        done += 1;
    }
    let page = |shard| ArenaHeader { page: link.landed(shard * BYTES, BYTES).into() };
    Ok((0..shards).map(page).collect())
}

fn check_header(arena: &ArenaHeader, region: u32, incarnation: u64) -> Result<(), &'static str> {
    if !(MIN_ARENA_BYTES..=MAX_ARENA_BYTES).contains(&arena.word(word::REGION_BYTES)) {
        return Err("an arena has an impossible size");
    }
    let expected = [
        (word::MAGIC, ARENA_MAGIC),
        (word::VERSION, PROTOCOL_VERSION as u64),
        (word::REGION, region as u64),
        (word::INCARNATION, incarnation),
    ];
    if expected.iter().any(|&(index, value)| arena.word(index) != value) {
        return Err("an arena's header is not as it should be");
    }
    Ok(())
}

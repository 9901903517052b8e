//! Making a session over TCP: the hellos, and the memory of both ends.
//!
//! ```text
//! the client's regions, READ or written    the server's regions for this client
//! by the server                            0 .. shards   arenas, READ
//! 0   to_client mailbox, WRITE             shards        to_server mailbox, WRITE
//! 1   buffer for large replies, WRITE
//! ```

use super::connection::{Connection, Pumping};
use super::link::TcpLink;
use super::regions::Access;
use crate::connect::{Address, ConnectError, Dialled, HELLO_TIMEOUT, check_answer, client_hello};
use crate::detect::Wanted;
use crate::{Link, LinkError, RemoteAddress, Transport, Waited, Work};
use remora_arena::{Mapping, Words};
use remora_layout::arena_header::{ARENA_HEADER_BYTES, ARENA_MAGIC, word};
use remora_layout::hello::{PROTOCOL_VERSION, ServerHello};
use remora_layout::limits::{LARGE_BUFFER_BYTES, MAX_ARENA_BYTES, MAX_SHARDS, MIN_ARENA_BYTES};
use remora_layout::session::mailbox_bytes;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// Region of the client's mailbox at the client.
const CLIENT_MAILBOX: u32 = 0;
/// Region of the client's buffer for large replies at the client.
const CLIENT_LARGE: u32 = 1;

/// The header page of an arena, as it was when the session was made.
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

/// A client's end of a new session.
pub struct Connected {
    /// What the server said.
    pub hello: ServerHello,
    /// The connection; its end is the session's end.
    pub connection: Arc<Connection>,
    /// The mailbox that the server writes; our own memory.
    pub to_client: Words,
    /// The buffer into which the server writes large replies; our own memory.
    pub large: Words,
    /// Each shard's arena header.
    pub arenas: Vec<ArenaHeader>,
    /// A link: regions 0 .. shards are the arenas, region `shards` is the
    /// mailbox at the server. Other threads make their own on `connection`.
    pub link: TcpLink,
}

/// Asks the server at `address` for a session over TCP.
pub fn connect(address: SocketAddr) -> Result<Connected, ConnectError> {
    match dial(address, Wanted::Tcp)? {
        Dialled::Session(connected) => Ok(connected),
        Dialled::Elsewhere(_) => Err(ConnectError::NotAServer {
            server: Address::Tcp(address),
            what: "it sends us elsewhere",
        }),
    }
}

/// Says hello at a TCP address: a session, or where else to go.
pub(crate) fn dial(
    address: SocketAddr,
    wanted: Wanted,
) -> Result<Dialled<Connected>, ConnectError> {
    let server = || Address::Tcp(address);
    let unreachable = |source| ConnectError::Unreachable { server: server(), source };
    let not_a_server = |what| ConnectError::NotAServer { server: server(), what };
    let mut stream = TcpStream::connect_timeout(&address, HELLO_TIMEOUT).map_err(unreachable)?;
    stream.set_read_timeout(Some(HELLO_TIMEOUT))?;
    stream.set_write_timeout(Some(HELLO_TIMEOUT))?;
    let sent = client_hello(wanted);
    stream.write_all(sent.as_bytes()).map_err(unreachable)?;
    let mut hello = ServerHello::new_zeroed();
    stream.read_exact(hello.as_mut_bytes()).map_err(unreachable)?;
    if check_answer(&hello, &sent, &server)? != Transport::Tcp {
        return Ok(Dialled::Elsewhere(Box::new(hello)));
    }
    let shards = hello.shards.get() as usize;
    if shards == 0 || shards > MAX_SHARDS {
        return Err(not_a_server("it announces an impossible number of shards"));
    }
    let to_client = Words::new(Mapping::heap(mailbox_bytes(shards)));
    let connection = Connection::new(stream, Pumping::ByLinks)?;
    connection.expose(CLIENT_MAILBOX, to_client.clone(), Access::Write);
    let large = Words::new(Mapping::heap(LARGE_BUFFER_BYTES));
    connection.expose(CLIENT_LARGE, large.clone(), Access::Write);
    let mut link = TcpLink::new(Arc::clone(&connection));
    let arenas = read_headers(&mut link, shards)?;
    for (shard, arena) in arenas.iter().enumerate() {
        check_header(arena, shard, hello.life.get()).map_err(not_a_server)?;
    }
    Ok(Dialled::Session(Connected { hello, connection, to_client, large, arenas, link }))
}

/// READs all headers in one batch.
fn read_headers(link: &mut TcpLink, shards: usize) -> Result<Vec<ArenaHeader>, ConnectError> {
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
    let mut arenas = Vec::with_capacity(shards);
    while arenas.len() < shards {
        let Some(completion) = link.poll() else {
            // Heartbeats may arrive meanwhile; only silence is an end.
            if link.wait(Some(HELLO_TIMEOUT)) == Waited::TimedOut {
                return Err(LinkError::Disconnected.into());
            }
            continue;
        };
        completion.result?;
        arenas.push(ArenaHeader { page: link.landed(arenas.len() * BYTES, BYTES).into() });
    }
    Ok(arenas)
}

fn check_header(arena: &ArenaHeader, shard: usize, life: u64) -> Result<(), &'static str> {
    if !(MIN_ARENA_BYTES..=MAX_ARENA_BYTES).contains(&arena.word(word::REGION_BYTES)) {
        return Err("an arena has an impossible size");
    }
    let expected = [
        (word::MAGIC, ARENA_MAGIC),
        (word::VERSION, PROTOCOL_VERSION as u64),
        (word::REGION, shard as u64),
        (word::LIFE, life),
    ];
    if expected.iter().any(|&(index, value)| arena.word(index) != value) {
        return Err("an arena's header is not as it should be");
    }
    Ok(())
}

/// What a server grants to a client that came by TCP.
pub struct Grant<'a> {
    /// The answer.
    pub hello: ServerHello,
    /// The mailbox that the client writes, [`mailbox_bytes`] long; plain
    /// memory of the server.
    pub to_server: Words,
    /// Each shard's arena.
    pub arenas: &'a [Words],
}

impl Grant<'_> {
    /// Takes the stream on which the client's hello was read, sends the answer
    /// and serves from then on: the agent has to call [`Connection::serve`].
    /// The server's links on it write the client's mailbox, region 0.
    pub fn send(self, stream: TcpStream) -> std::io::Result<Arc<Connection>> {
        let connection = Connection::new(stream, Pumping::ByAgent)?;
        for (region, arena) in (0u32..).zip(self.arenas) {
            connection.expose(region, arena.clone(), Access::Read);
        }
        connection.expose(self.arenas.len() as u32, self.to_server, Access::Write);
        connection.begin_with(self.hello.as_bytes());
        Ok(connection)
    }
}

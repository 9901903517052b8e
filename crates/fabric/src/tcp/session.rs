//! Making a session over TCP frames: the memory of both ends.

use super::connection::{Connection, Pumping};
use super::regions::Exposed;
use crate::HelloStream;
use crate::client_regions::{CLIENT_LARGE, CLIENT_MAILBOX};
use remora_arena::{Mapping, ReadView, Words};
use remora_layout::hello::ServerHello;
use remora_layout::limits::LARGE_BUFFER_BYTES;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The client's end on the stream on which the hellos were said, with the
/// buffer for large replies.
pub(crate) fn begin(
    stream: HelloStream,
    to_client: &Words,
) -> std::io::Result<(Arc<Connection>, ReadView)> {
    let connection = Connection::new(stream, Pumping::ByLinks)?;
    connection.expose(CLIENT_MAILBOX, Exposed::Writable(to_client.clone()));
    let large = Words::new(Mapping::heap(LARGE_BUFFER_BYTES));
    connection.expose(CLIENT_LARGE, Exposed::Writable(large.clone()));
    Ok((connection, large.view()))
}

/// A server's grant to a client that connected over TCP.
pub struct Grant<'a> {
    /// The answer.
    pub hello: ServerHello,
    /// The mailbox that the client writes, `mailbox_bytes` long; plain memory
    /// of the server.
    pub to_server: Words,
    /// Each shard's arena.
    pub arenas: &'a [ReadView],
}

impl Grant<'_> {
    /// Takes the stream on which the client's hello was read, sends the answer
    /// and serves from then on: the agent has to call [`Connection::serve`].
    /// The server's links on it write the client's mailbox, region 0.
    pub fn send(self, stream: impl Into<HelloStream>) -> std::io::Result<Arc<Connection>> {
        let connection = Connection::new(stream, Pumping::ByAgent)?;
        for (region, arena) in (0u32..).zip(self.arenas) {
            connection.expose(region, Exposed::Readable(arena.clone()));
        }
        connection.expose(self.arenas.len() as u32, Exposed::Writable(self.to_server));
        connection.begin_with(self.hello.as_bytes());
        Ok(connection)
    }
}

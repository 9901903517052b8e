//! RESP: connections that parse, execute in their thread's own shard, read other
//! shards optimistically, hand the rest to these, and reply in order. What they
//! need of the server is a [`Host`], what they need of the network a stream of
//! bytes each; the shard's loop has the sockets, which `acceptor` hands to it.

mod acceptor;
mod ahead;
mod ask;
mod connection;
mod connections;
mod execute;
mod geo;
mod hashes;
mod host;
mod info;
mod keys;
mod many_keys;
mod own;
mod pending;
mod read;
mod shard_host;
mod trees;
mod unanswered;

pub(crate) use acceptor::Acceptor;
pub use acceptor::Handed;
pub use connection::Connection;
pub use connections::Connections;
pub use host::Host;
pub use remora_resp::request::Sections;
pub(crate) use shard_host::ShardHost;

//! RESP: connections that parse, read optimistically, hand the rest to the
//! shards, and reply in order. What they need of the server is a [`Host`], what
//! they need of the network a stream of bytes each; `thread` has the sockets.

mod ask;
mod connection;
mod connections;
mod execute;
mod geo;
mod host;
mod info;
mod keys;
mod own;
mod pending;
mod read;
mod thread;
mod trees;
mod unanswered;

pub use connections::Connections;
pub use host::Host;
pub use remora_front::request::Sections;
pub(crate) use thread::RespThread;

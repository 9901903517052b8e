//! MongoDB's protocol: connections whose commands ask shards, one question after the other. A command is a
//! state machine of `remora_mongo`; here its questions go to shards, its own thread's at once if it may.

mod acceptor;
mod executor;
mod login;
mod thread;

pub(crate) use acceptor::MongoClients;
pub(crate) use thread::MongoThread;

/// The slots of these connections have numbers from here on, those of RESP's below.
pub(crate) const FIRST_SLOT: usize = 1 << 24;

const _: () = assert!(FIRST_SLOT > remora_layout::limits::RESP_MAX_CONNECTIONS);

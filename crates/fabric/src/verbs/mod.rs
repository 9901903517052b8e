//! READ and WRITE by RDMA: reliable connections over rdma-core's libibverbs,
//! which is loaded when it is first needed (Catfish 2.2, C11; RDMA_Mongo 3.2,
//! M3, M4).
//!
//! One queue pair carries the operations of all threads of a process with one
//! peer; each has a [`VerbsLink`] of its own on it. The device of the target
//! executes: a READ costs its CPU nothing.
//!
//! * The TCP connection over which the two ends set up the queue pairs stays open. Its end is the
//!   end of the session, and it reports whether the peer withdrew the session: a device only
//!   notices a missing answer.
//! * A failed operation fails the whole connection, as it fails the queue pair. No operation is
//!   repeated; a client that wants to continue makes a new connection.
//! * Landing memory of READs is registered once for each link, and grows.

#![allow(unsafe_code)]

mod arenas;
mod completions;
mod connection;
mod data_buffer;
mod driving;
mod errors;
mod events;
mod host;
mod known_places;
mod library;
mod link;
mod load;
mod loopback;
pub mod memlock;
mod objects;
mod outbound;
mod packets;
mod peer;
mod places;
mod posting;
mod pumping;
mod queue_pair;
mod reasons;
mod registration;
mod session;
mod setup;
mod traffic;
mod window;

pub use arenas::read_arenas;
pub use connection::{Connection, Parts};
pub use data_buffer::{DataBuffer, DataMemory};
pub use errors::VerbsError;
pub use host::{Host, Welcome};
pub use known_places::known_places;
pub use library::NoLibrary;
pub use link::VerbsLink;
pub use load::{Load, LoadMeter, buffer_bytes};
pub use loopback::{Loopback, LoopbackError, loopback};
pub use memlock::NotRegistered;
pub use objects::{Context, Domain};
pub use packets::{Mtu, Packets};
pub use peer::{PeerArena, PeerRegion};
pub use places::{Carriage, Gid, Port, is_listed, is_software, places, ports, ranked};
pub use queue_pair::{QueuePair, Request, Verb};
pub use registration::{Registration, access};
pub use session::ClientSide;
pub(crate) use session::{BeginError, begin};
pub use setup::{Unconnected, bind_window, key_of, open};
pub use traffic::Traffic;
pub use window::Window;

/// Whether libibverbs can be had on this machine.
///
/// # Errors
/// It cannot, for this reason.
pub fn check_library() -> Result<(), NoLibrary> {
    library::library().map(drop)
}

/// Whether this machine has RDMA devices and the requirements to use them; they may not be active
/// yet.
pub fn has_devices() -> bool {
    places::are_known() && check_library().is_ok()
}

/// Whether this machine can send and receive by RDMA now.
pub fn is_available() -> bool {
    !ranked(known_places(), None).is_empty() && check_library().is_ok()
}

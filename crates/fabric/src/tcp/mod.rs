//! READ and WRITE over one TCP connection, for any host.
//!
//! Frames ([`remora_layout::wire`]) go both ways; the thread that pumps a connection executes the
//! peer's requests, so a READ costs the target's CPU. Each end is initiator and target. One
//! connection carries the operations of all threads of a process: each has a [`TcpLink`] of its own
//! on it.
//!
//! The following keeps a connection alive and bounded, whatever the peer does:
//! * An initiator asks for READ bytes in pieces and never for more than a window at once. So a
//!   target can always buffer the requested bytes and always continues to read, and two ends that
//!   READ from each other cannot deadlock. A peer that asks for more breaks the protocol.
//! * Frames keep their order, so a large READ delays later frames by its window at most: WRITEs
//!   posted behind it do wait, because operations take effect in order.
//! * The posted bytes that the peer has not taken are bounded; beyond the bound the link fails.
//!
//! A failed operation fails the initiator's side of the whole connection, as on a queue pair; an
//! error that the initiator itself detects (no landing memory, an operation too long) fails that
//! one link only.

mod connection;
#[cfg(not(test))]
mod descriptor;
mod execute;
mod frame;
mod inbound;
mod link;
#[cfg(test)]
mod models;
mod outbound;
mod regions;
mod session;
#[cfg(not(test))]
mod socket;
mod traffic;

#[cfg(test)]
use models::socket;

pub use connection::{Connection, Progress, Pumping, State};
pub use frame::{Frame, Violation, parse};
pub use inbound::ReceiveBuffer;
pub use link::TcpLink;
pub use regions::Exposed;
pub use session::Grant;
pub(crate) use session::begin;
pub use traffic::Traffic;

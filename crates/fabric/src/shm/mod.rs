//! Shared memory between processes of one host.
//!
//! Memfds and eventfds are passed over a Unix socket; after that no system
//! call is on the data path. READs cost the server nothing. A mapping cannot
//! be taken away from a hostile process; SECURITY.md says what that means.

pub mod asleep;
mod bell;
mod connect;
mod doorbell;
mod link;
pub mod mark;
pub mod ready;
mod socket;
mod thread_bell;

pub use bell::{Bell, Sleeper, StreamEvent, Woken};
pub(crate) use connect::dial;
pub use connect::{Connected, Grant, SessionMemory, connect, decline};
pub use doorbell::Doorbell;
pub use link::ShmLink;
pub use thread_bell::ThreadBell;

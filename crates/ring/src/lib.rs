//! Message rings over the fabric (HydraDB 4.2.1, Catfish 3.1; H14, C14, C15).
//!
//! One side writes frames into a ring in the other side's mailbox by one-sided WRITE; the other
//! side polls its own memory. Invariants of this crate:
//! * the receiver never accepts a torn, stale or forged frame: sequence, bounds and a keyed
//!   checksum must agree on bytes that it copied once;
//! * the sender never overwrites bytes that the receiver has not consumed: credit is the receiver's
//!   count of consumed bytes, and the sender checks it for plausibility;
//! * frames arrive in the order in which the sender sent them.

#![forbid(unsafe_code)]

mod receive;
mod send;

pub use receive::{Poll, Receiver, Violation};
pub use send::{SendError, Sender, WRITE_ID};

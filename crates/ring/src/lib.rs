//! Message rings over the fabric (HydraDB 4.2.1, Catfish 3.1; H14, C14, C15).
//!
//! One side writes frames into a ring in the other side's mailbox by one-sided
//! WRITE; the other side polls its own memory. What this crate keeps true:
//! * a torn, stale or forged frame is never taken for a whole one: sequence,
//!   bounds and a keyed checksum must agree on bytes that were copied once;
//! * the sender never overwrites what has not been consumed: credit is the
//!   receiver's count of consumed bytes, and is checked for sense;
//! * frames arrive in the order in which they were sent.

#![forbid(unsafe_code)]

mod receive;
mod send;

pub use receive::{Poll, Receiver, Violation};
pub use send::{SendError, Sender, WRITE_ID};

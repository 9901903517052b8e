//! The members of a large object, each perhaps with a payload of a few bytes. Its short members lie in
//! *bins*: parts that hold several members each, so that a member costs few bytes beside its own. A
//! long member is a part of its own.
//!
//! ```text
//! bin         name: 0 | number 4      value: items, as the type packs them ([`Packing`])
//! own member  name: 1 | member        value: its payload
//! ```
//! A member's bin follows from its hash, as a key's bucket does: bins are split in order, one at a
//! time, so that a bin has [`BIN_MEMBERS`](remora_layout::limits::BIN_MEMBERS) members on average
//! (linear hashing, decision 0012). An empty bin has no part. Bins are never joined again.
//!
//! Invariant: a member is in one part. A short member is in its bin, or it *spilled*: that bin was
//! full, and the member is a part of its own until it is removed.

mod audit;
mod change;
mod dump;
mod find;
mod one;
mod packing;
mod plan;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use audit::audit;
pub(crate) use change::plan;
pub(crate) use dump::dump;
pub(crate) use find::{LOOKUPS, find, get, has, look_up, own_name};
pub(crate) use one::{Buffers, plan_one};
pub(crate) use packing::{Packing, Payload};
pub(crate) use plan::Planned;
pub(crate) use scan::scan;

//! Links: fields that name keys, with hints of where the records of those keys lie, and the READs that
//! follow them.
//!
//! Invariants: a hint costs a READ and proves nothing; what counts is the record that it leads to, which
//! has to pass every check that a record behind a bucket passes (`remora_index::hash::Lookup::begin_at`).
//! Read lease, expiry and the lag of replicas are those of every other read. That a key holds nothing is
//! its owner's word.

mod asked;
mod chase;
mod content;
mod mending;

pub use content::{FieldValue, HashContent, HashFields, Target};
pub use mending::MAX_STALE_LINKS;
pub use remora_plan::{LinkAt, LinkPlace, Place as Link};

pub(crate) use asked::ask_target;
pub(crate) use chase::{LinkSession, Sought, chase, chase_batch, read_many};
pub(crate) use content::{field_of, target_of, values_of};
pub(crate) use mending::{StaleLinks, mend};

use crate::counts::Counts;
use crate::path::ServedBy;

/// What a link led to.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Chased<'s> {
    /// What the key holds. Valid until the session is used again.
    pub target: Target<'s>,
    /// How it was fetched.
    pub served_by: ServedBy,
    /// What it cost; of one of a batch nothing but the operation.
    pub counts: Counts,
}

/// What a batch calls once for each link: the link's number, and what it led to.
pub type EachChased<'e> = dyn FnMut(usize, &Chased<'_>) + 'e;

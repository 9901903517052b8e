//! Trees of places: changes, and searches by either route.
//!
//! Invariants: changes go to the server only (Catfish 3.2, C9, C21); a search returns each object
//! once, however many replies it takes.

mod asked;
mod found;
mod names;
mod objects;
mod read;
mod records;
mod refine;
mod search;
mod view;

pub(crate) use asked::TreeSearcher;
pub use found::{RefinedCount, RefinedFound, TreeFound, TreeObject};
pub use remora_protocol::tree::TreeSettings;
pub use view::{Issue, OpenTree, TreeEvents, TreeRead};

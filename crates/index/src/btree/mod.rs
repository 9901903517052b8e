//! B+trees: ordered keys with values, which clients read (Fat-B+Tree III, IV).
//!
//! `tree` is the owner's interface to one key, `range` to many; `plan` computes a change on images
//! of nodes (`image`) and publishes it; `bulk` builds a tree of sorted entries; `check` looks for
//! broken invariants. `get` is the walk by which all others read a key, `scan` the one by which they
//! read a range.
//!
//! A change is published so that at every moment all nodes that a reader can believe and whose
//! fences hold a key agree about that key:
//!
//! 1. New nodes, whole. No path leads to them yet.
//! 2. Freed nodes are dead.
//! 3. Changed nodes, from the leaf up: at most one a level. A node that was split shows its new
//!    neighbour by its right link before a parent names it.
//! 4. The header, if the root is another.
//!
//! A reader compares its key with the fences of each node. Behind the high fence it follows the
//! right link. Before the low fence, or at a dead node, it restarts at the root: keys come to lie
//! further left by merges only, and these end a node.

mod bulk;
mod change;
mod check;
mod gathered;
mod get;
mod image;
mod mend;
mod pins;
mod plan;
mod range;
mod scan;
mod tree;

pub use crate::pool::Arena;
pub use crate::round::Round;
pub use change::Change;
pub use check::{Broken, Shape};
pub use get::{AskReason, Get, Want};
pub use range::{Direction, Range};
pub use scan::Scan;
pub use tree::{Options, Tree, TreeError};

//! Trees of places: Guttman's R-tree, the R*-tree and the Hilbert R-tree
//! (Catfish 2.1, 5.2.3, C1 to C7). They differ only in how they are written.
//!
//! `tree` is the owner's interface; `bulk` builds a tree of many objects in steps, sorted by
//! `sort`; `change` with `rstar`, `guttman`, `hilbert` computes a change on images of nodes;
//! `write_set` publishes it; `crate::pool` has the memory; `leaf_index` knows each object's leaf. The
//! owner reads by `search`, `ordered` and `nearest`, over plain references (`owned_node`); all others, and
//! small searches by RESP, read by `walk`; `local` is for threads that map the memory. The paper
//! locks nodes against other writers (C8); here there is one writer.

mod bulk;
mod change;
mod geometry;
mod guttman;
mod hilbert;
mod leaf_index;
mod local;
mod nearest;
mod ordered;
mod owned_node;
mod rstar;
mod scan;
mod search;
mod sort;
mod tree;
mod walk;
mod way;
mod write_set;

pub use crate::pool::Arena;
pub use crate::round::Round;
pub use bulk::Build;
pub use local::{LocalWalk, read_header, walk_locally};
pub use nearest::{Nearest, NearestTurn};
pub use ordered::{CurvePlace, InOrder, Meets};
pub use search::{Cursor, Object};
pub use tree::{Tree, TreeError, TreeOptions};
pub use walk::{AskReason, Query, Search, Want};

//! B+trees: ordered keys with values, which clients read (Fat-B+Tree III, IV).
//!
//! `tree` is the owner's interface to one key, `range` to many; `edit` makes the usual changes from the
//! bytes of nodes, `plan` all others on images of nodes (`image`); both publish them; `moves` gives an
//! entry another key, `reserve` takes memory for several changes; `bulk` builds a tree of sorted entries; `check` looks for broken invariants. `nodes` hands nodes out, `holding` lets
//! their addresses stay (`pins`), `mend` takes back what has become deeper meanwhile (`mending`),
//! `accesses` counts lookups, `shapes` what the levels hold.
//! `fat_root` chooses the inner nodes that are worth having at hand. `get` is the walk by which all
//! others read a key, `scan` the one by which they read a range.
//!
//! A change is published so that at every moment all nodes that a reader can believe and whose
//! fences hold a key agree about that key:
//!
//! 1. New nodes, whole. No path leads to them yet.
//! 2. Freed nodes are dead.
//! 3. Changed nodes, from the leaf up: at most one a level, and nodes whose right link alone is
//!    another. A node that was split shows its new neighbour by its right link before a parent names
//!    it.
//! 4. The header, if the root is another.
//!
//! A move is an insertion and a deletion, with the leaf of the deletion torn meanwhile (`moves`).
//!
//! A node whose address others hold is split in place: both halves are new nodes, and it becomes
//! *deep* and names them. Until it is stored no path leads to them, and its store is the moment of
//! the change. A deep node that takes the content of its only child is stored after that one is dead,
//! as a joined node is. One that gives its last child to its parent is stored before the parent: to
//! readers that is a split. A right link leads to the topmost node that begins where the other one
//! ends, and a new one leads to nodes with the same content as the former: so its moment is none.
//!
//! A reader compares its key with the fences of each node. Behind the high fence it follows the
//! right link. Before the low fence, or at a dead node, it restarts at the root: keys come to lie
//! further left by merges only, and these end a node.

mod accesses;
mod bulk;
mod change;
mod check;
mod edit;
mod fat_root;
mod gathered;
mod get;
mod holding;
mod image;
mod mend;
mod mending;
mod moves;
mod nodes;
mod pins;
mod plan;
mod range;
mod reserve;
mod scan;
mod shapes;
mod tree;

pub use crate::pool::Arena;
pub use crate::round::Round;
pub use change::Change;
pub use check::{Broken, Shape};
pub use fat_root::{FatRoot, FatRootLimits, Weighed};
pub use get::{AskReason, Get, Want};
pub use nodes::Hold;
pub use pins::Held;
pub use range::{Direction, Range};
pub use scan::Scan;
pub use tree::{Options, Tree, TreeError};

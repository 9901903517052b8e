//! The types of objects that a key can name, one folder each.
//!
//! A type's state beside the arena is in its folder, by the slot of the object's root record. The
//! shard reaches types only through this table.

mod arena;
pub(crate) mod collection;
pub(crate) mod content;
pub(crate) mod hash;
pub(crate) mod list;
pub(crate) mod object;
pub(crate) mod ordered;
pub(crate) mod rtree;
pub(crate) mod set;
pub(crate) mod sorted;
pub mod sought;
pub(crate) mod string;
mod tree_range;
mod tree_table;

use object::Type;
use remora_arena::{Journal, NoJournal};
use remora_layout::kind::Kind;

/// Every type but strings, one line each.
pub(crate) fn registry<J: Journal>() -> Vec<Box<dyn Type<J>>> {
    vec![
        Box::<rtree::Trees>::default(),
        Box::<hash::Hashes>::default(),
        Box::<list::Lists>::default(),
        Box::<set::Sets>::default(),
        Box::<ordered::OrderedTrees>::default(),
        Box::<sorted::SortedSets>::default(),
        Box::<collection::Collections>::default(),
    ]
}

/// The kinds of all types but strings.
pub fn kinds() -> Vec<Kind> {
    registry::<NoJournal>().iter().map(|of| of.id()).collect()
}

//! The table of commands, all groups' together: a command is found by its name, and
//! clients are told of it.

mod all;
mod answer;
mod index;

pub use all::{TABLE, all, groups};
pub use answer::{answer, write_help};
pub use index::lookup;

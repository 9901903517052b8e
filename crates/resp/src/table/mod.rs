//! The table of commands of all groups: it finds a command by its name, and describes commands to
//! clients.

mod all;
mod answer;
mod asked;
mod index;
mod rights;

pub use all::{TABLE, all, groups};
pub use answer::{answer, write_help};
pub use asked::{Asked, asked};
pub use index::lookup;
pub use rights::{Called, CommandTable, called};

//! Ordered trees: a view of one (`view`), long values (`long`), and what a session does with them
//! (`session`).

mod long;
mod session;
mod value;
mod view;

pub use value::OrderedValue;
pub use view::{OpenOrdered, OrderedEntries, OrderedFound, OrderedGot};

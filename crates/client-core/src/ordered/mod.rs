//! Ordered trees: a view of one (`view`), long values (`long`), the inner nodes that it keeps (`cache`), alone or with others
//! (`shared`), and what a session does with them (`session`).

mod cache;
mod long;
mod session;
mod shared;
mod value;
mod view;

pub use cache::{CachePolicy, OrderedCache};
pub use shared::SharedCache;
pub use value::OrderedValue;
pub use view::{OpenOrdered, OrderedEntries, OrderedEvents, OrderedFound, OrderedGot};

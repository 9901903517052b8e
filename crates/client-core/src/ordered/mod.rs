//! Ordered trees: a view of one (`view`), the inner nodes that it keeps (`cache`), alone or with others
//! (`shared`), and what a session does with them (`session`).

mod cache;
mod session;
mod shared;
mod view;

pub use cache::{CachePolicy, OrderedCache};
pub use shared::SharedCache;
pub use view::{
    OpenOrdered, OrderedEntries, OrderedEvents, OrderedFound, OrderedGot, OrderedValue,
};

//! B+trees that a client walks by READs, of ordered trees and of sorted sets: a view of one
//! (`view`), the inner nodes that it keeps (`cache`), alone or with others (`shared`), and how a
//! session takes the route (`route`).

mod cache;
mod route;
mod shared;
mod view;

pub use cache::{CachePolicy, OrderedCache};
pub(crate) use route::{MAX_KEYS_READ, RangeClasses, read_by};
pub use shared::SharedCache;
pub use view::{BtreeView, OrderedEvents};
pub(crate) use view::{TreeOf, Walked};

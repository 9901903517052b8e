//! The hash index: 64-byte buckets with overflow chains that store locations,
//! not data (HydraDB 4.1.3, H6 to H11), in a table that grows bucket by bucket.
//!
//! `table` and `grow` are its writer; `view` and `walk` its reader.

mod grow;
mod object;
mod table;
mod view;
mod walk;

pub use object::ObjectRef;
pub use table::{SlotIndex, Table, record_field, record_key, record_value};
pub use view::TableRef;
pub use walk::{AskReason, Found, Lookup, LookupTarget, Want, find_locally, walk_locally};

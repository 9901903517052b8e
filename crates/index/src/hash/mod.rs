//! The hash index: an array of 64-byte buckets with overflow chains that
//! stores locations, not data (HydraDB 4.1.3, H6 to H10).
//!
//! The table has a fixed size; `table` is its writer, `walk` its reader.

mod table;
mod walk;

pub use table::{OVERFLOW_CLASS, Place, Table, record_key, record_value};
pub use walk::{AskReason, Step, TableRef, Walk, Want, walk_locally};

//! The state of a collection's root record.
//!
//! ```text
//!  state of the root   B+tree header | table of parts
//! ```
//! The parts are documents: a part's name is the encoded `_id`, its value the BSON. The B+tree has the encoded
//! `_id`s of all of them, with empty values. The header of each further index lies in the state of a record
//! of its own, which stays where it is while the index lives.

use crate::btree::ORDERED_ROOT_BYTES;
use crate::limits::SLOT_UNIT_BYTES;

/// Where the table of parts begins in the state; the B+tree's header begins with the state.
pub const COLLECTION_PARTS_AT: usize = ORDERED_ROOT_BYTES.next_multiple_of(SLOT_UNIT_BYTES);

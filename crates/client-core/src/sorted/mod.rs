//! Sorted sets: the score of a member (`score`) and ranges (`range`, `bounds`) by either route, and
//! what a session asks of them (`session`, `asked`).
//!
//! Invariants:
//! * a score counts as an element of an object does (`elements`): with its whole record, or with
//!   its bin and the root record;
//! * a range of a small set is of one moment. A range of a large one counts as a walk of its B+tree
//!   does (`btree`); a member that changes its score meanwhile is in it once, or the client asks;
//! * a tree has no -0: such a score is read as 0. Of a member that its key does not hold whole only
//!   the owner knows.

mod asked;
mod bounds;
mod range;
mod score;
mod session;

pub use asked::{SortedFound, SortedMember};
pub use range::OpenSorted;
pub use score::SortedScore;

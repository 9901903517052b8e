//! Values that were found.

use crate::counts::Counts;
use crate::path::ServedBy;

/// The result of a GET.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Got<'s> {
    /// The value, if the key exists. Valid until the session is used again.
    pub value: Option<&'s [u8]>,
    /// How it was fetched.
    pub served_by: ServedBy,
    /// What it cost.
    pub counts: Counts,
}

impl Got<'_> {
    /// The same result, with the value at another place.
    pub fn with_value<'o>(self, value: Option<&'o [u8]>) -> Got<'o> {
        let Self { served_by, counts, .. } = self;
        Got { value, served_by, counts }
    }
}

/// What a batch calls once for each key: the key's index, its value if it
/// exists, and how it was fetched.
pub type Each<'e> = dyn FnMut(usize, Option<&[u8]>, ServedBy) + 'e;

/// A value that was found, and where it stands until the session is used again.
pub(crate) struct Found {
    pub at: FoundAt,
    pub served_by: ServedBy,
    pub counts: Counts,
}

/// A value that READs have found, in the landing memory. It is apart from [`Found`], so that the most
/// frequent result is not copied together with that of a request.
pub(crate) struct Landed {
    pub from: usize,
    pub bytes: usize,
    pub served_by: ServedBy,
}

/// Where a value stands.
pub(crate) enum FoundAt {
    /// In the landing memory.
    Landed { from: usize, bytes: usize },
    /// In the reply; `None`: the key does not exist.
    Reply(Option<(usize, usize)>),
}

/// The result of reading.
pub(crate) enum Reading {
    /// The value's range in the landing memory, after this many retries.
    Value { from: usize, bytes: usize, retries: u32 },
    /// What was read proves that there is none, after this many retries.
    Absent { retries: u32 },
    /// There is no usable pointer.
    NoPointer,
    /// Only the owner knows.
    Ask,
}

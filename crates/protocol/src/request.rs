//! Operations on objects of a type, as they stand in messages.
//!
//! Each type has 256 numbers of its own. A table of the types says what a
//! number means; nobody else looks into a request but the type itself.

use crate::message::Status;
use crate::{geo, hash, tree};

/// Every type that has operations, one line each.
static OPERATIONS: [&Operations; 3] = [&tree::OPERATIONS, &geo::OPERATIONS, &hash::OPERATIONS];

/// What is asked of an object, checked: one type's operation in its encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    pub(crate) operations: &'static Operations,
    pub(crate) op: u8,
    pub(crate) flags: u8,
    pub(crate) argument: i64,
    pub(crate) value: &'a [u8],
}

/// A [`Request`] whose value was made for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedRequest {
    pub(crate) operations: &'static Operations,
    pub(crate) op: u8,
    pub(crate) flags: u8,
    pub(crate) argument: i64,
    pub(crate) value: Vec<u8>,
}

impl OwnedRequest {
    /// The same, borrowed.
    pub fn request(&self) -> Request<'_> {
        let &Self { operations, op, flags, argument, ref value } = self;
        Request { operations, op, flags, argument, value }
    }
}

impl From<Request<'_>> for OwnedRequest {
    fn from(request: Request<'_>) -> Self {
        let Request { operations, op, flags, argument, value } = request;
        Self { operations, op, flags, argument, value: value.to_vec() }
    }
}

/// One type's operations.
pub struct Operations {
    /// The type: the kind of its root records.
    pub type_id: u8,
    /// How many operations it has: their numbers are below.
    pub count: u8,
    /// Whether a message makes sense; else the status to reply with.
    pub check: fn(op: u8, flags: u8, argument: i64, value: &[u8]) -> Result<(), Status>,
    /// Whether an operation may change anything.
    pub is_write: fn(op: u8) -> bool,
    /// Whether an operation may need more of the heap: it is refused where memory
    /// is full.
    pub grows: fn(op: u8) -> bool,
    /// Whether an operation is answered in turns of the shard.
    pub is_long: fn(op: u8) -> bool,
    /// Whether it may be asked over rings; else it is for RESP.
    pub over_rings: bool,
}

impl PartialEq for Operations {
    fn eq(&self, other: &Self) -> bool {
        self.type_id == other.type_id
    }
}

impl Eq for Operations {}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Operations").field(&self.type_id).finish()
    }
}

impl Operations {
    /// Every type that has operations.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        OPERATIONS.into_iter()
    }
}

/// A type's operations; `None` if there is no such type.
fn operations_of(type_id: u8) -> Option<&'static Operations> {
    OPERATIONS.into_iter().find(|operations| operations.type_id == type_id)
}

impl<'a> Request<'a> {
    /// Checks the parts of a message.
    ///
    /// # Errors
    /// The status to reply with.
    pub(crate) fn check(
        (type_id, op): (u8, u8),
        flags: u8,
        argument: i64,
        value: &'a [u8],
    ) -> Result<Self, Status> {
        let operations = operations_of(type_id).ok_or(Status::Malformed)?;
        (operations.check)(op, flags, argument, value)?;
        Ok(Self { operations, op, flags, argument, value })
    }

    /// The type whose operation it is.
    #[inline]
    pub fn type_id(&self) -> u8 {
        self.operations.type_id
    }

    /// Whether it may change anything.
    pub fn is_write(&self) -> bool {
        (self.operations.is_write)(self.op)
    }

    /// Whether it may need more of the heap.
    pub fn grows(&self) -> bool {
        (self.operations.grows)(self.op)
    }

    /// Whether the shard answers it in turns.
    pub fn is_long(&self) -> bool {
        (self.operations.is_long)(self.op)
    }

    /// Whether it may be asked over rings.
    pub fn is_for_rings(&self) -> bool {
        self.operations.over_rings
    }
}

//! Operations on objects of a type: a file or a folder for each type, and a line in the
//! list below.
//!
//! Invariant: each type has 256 numbers of its own; an operation is decoded once, where it comes
//! from a message, and is encoded where it goes into one. The type that executes it gets it typed.

pub mod collection;
pub mod elements;
pub mod geo;
pub mod hash;
pub mod list;
mod operation;
pub mod ordered;
pub mod set;
pub mod sorted;
pub mod tree;

use crate::message::Status;
pub use operation::{Encoded, Operation};
use remora_layout::kind::Kind;

/// The types that have operations, one line each.
macro_rules! types {
    ($($(#[$doc:meta])* $type:ident($command:ty),)*) => {
        /// An operation on an object, of one type.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub enum Request<'a> {
            $($(#[$doc])* $type($command),)*
        }

        $(impl<'a> From<$command> for Request<'a> {
            #[inline]
            fn from(command: $command) -> Self {
                Self::$type(command)
            }
        }

        impl<'a> $command {
            /// This operation as a request.
            #[inline]
            pub fn request(self) -> Request<'a> {
                self.into()
            }

            /// The operation of a request of this type.
            ///
            /// # Panics
            /// It is one of another type.
            #[inline]
            pub fn of(request: Request<'a>) -> Self {
                match request {
                    Request::$type(command) => command,
                    other => unreachable!("{:?} is no operation of this type", other.kind()),
                }
            }
        })*

        impl<'a> Request<'a> {
            /// Every type, and how many operations it has.
            pub const TYPES: &'static [(Kind, u8)] =
                &[$((<$command>::KIND, <$command>::COUNT)),*];

            /// The operation of a message about an object of this type.
            ///
            /// # Errors
            /// The status to reply with.
            #[inline]
            pub(crate) fn decode(kind: Kind, from: Encoded<'a>) -> Result<Self, Status> {
                $(if kind == <$command>::KIND {
                    return <$command>::decode(from).map(Self::$type);
                })*
                Err(Status::Malformed)
            }

            /// The operation for a message; `scratch` is overwritten if it is needed.
            pub fn encode<'s>(&'s self, scratch: &'s mut Vec<u8>) -> Encoded<'s> {
                match self {
                    $(Self::$type(command) => command.encode(scratch),)*
                }
            }

            /// The type of the operation.
            #[inline]
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$type(_) => <$command>::KIND,)*
                }
            }

            /// Whether it may change anything.
            #[inline]
            pub fn is_write(&self) -> bool {
                match self {
                    $(Self::$type(command) => command.is_write(),)*
                }
            }

            /// The command of RESP that does this, in lower case: users' rights are about its name.
            pub fn command_name(&self) -> &'static str {
                match self {
                    $(Self::$type(command) => command.command_name(),)*
                }
            }

            /// Whether it may need more of the heap.
            pub fn grows(&self) -> bool {
                match self {
                    $(Self::$type(command) => command.grows(),)*
                }
            }

            /// Whether the shard answers it in turns.
            #[inline]
            pub fn is_long(&self) -> bool {
                match self {
                    $(Self::$type(command) => command.is_long(),)*
                }
            }

            /// Whether it concerns other keys beside the command's own.
            pub fn has_other_keys(&self) -> bool {
                match self {
                    $(Self::$type(command) => command.has_other_keys(),)*
                }
            }

            /// Those other keys.
            pub fn other_keys(&self) -> Vec<&'a [u8]> {
                match self {
                    $(Self::$type(command) => command.other_keys(),)*
                }
            }

            /// Whether it may have several replies: it is long, or a read whose answer may be too long
            /// for one step. The shard says `NeedsBuffer` then, and it is begun as a long one.
            #[inline]
            pub fn may_have_parts(&self) -> bool {
                match self {
                    $(Self::$type(command) => command.may_have_parts(),)*
                }
            }
        }
    };
}

types! {
    /// Of a tree of places.
    Tree(tree::TreeCommand<'a>),
    /// Of a hash.
    Hash(hash::HashCommand<'a>),
    /// Of a list.
    List(list::ListCommand<'a>),
    /// Of a set.
    Set(set::SetCommand<'a>),
    /// Of a sorted set.
    Sorted(sorted::SortedCommand<'a>),
    /// Of an ordered tree.
    Ordered(ordered::OrderedCommand<'a>),
    /// Of a collection of documents.
    Collection(collection::CollectionCommand<'a>),
}

//! OpenStreetMap's PBF files (<https://wiki.openstreetmap.org/wiki/PBF_Format>)
//! as objects, and objects as such files: an id, a geometry, tags.
//!
//! What it keeps true: no file makes anything here panic; a block takes at
//! most what the format allows it, 32 MiB, and its table of texts; what is kept
//! of the file between blocks is bounded by [`Limits`]. What breaks the format
//! ends the reading with an error; what is only unusable, such as a way whose
//! nodes are missing, is told and left out.
//!
//! The decoder is its own: it goes over a block's bytes and makes no copy of
//! them, so that a hostile block cannot grow in memory. What [`Writer`] writes,
//! [`read`] reads as the same objects; what would come back as something else
//! is refused.

#![forbid(unsafe_code)]

mod area;
mod blob;
mod block;
mod element;
mod gather;
mod nodes;
mod read;
mod rings;
mod wire;
mod write;

pub use area::is_area;
pub use element::{Element, ElementKind, ID_TAG, Unusable};
pub use gather::Limits;
pub use read::{Filter, Object, read};
pub use write::{Unwritable, WriteError, Writer};

/// Why a file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The bytes break the format.
    #[error("{why} (in the part of the file that begins at byte {at})")]
    Broken {
        /// Where the blob begins, in bytes from the file's start.
        at: u64,
        /// What is wrong.
        why: Broken,
    },
    /// What the objects are given to failed.
    #[error(transparent)]
    Sink(Box<dyn std::error::Error + Send + Sync>),
    /// More nodes, ways and relations have to be kept than there may be.
    #[error(
        "what has to be kept of nodes, ways and relations takes more than {0} bytes: filter for less"
    )]
    TooMuch(usize),
}

/// How bytes break the format.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Broken {
    /// It ends too early.
    #[error("the bytes end too early")]
    Short,
    /// A number that takes more than ten bytes, or a field without a number.
    #[error("a number or a field's number is malformed")]
    Number,
    /// A field is of another type than the format says.
    #[error("a field is of the wrong type")]
    FieldType,
    /// A list comes in two parts.
    #[error("a list comes in more than one part")]
    SplitList,
    /// Lists that go together are not of one length.
    #[error("lists that go together are of different lengths")]
    Lists,
    /// A length beyond what the format allows.
    #[error("a length is beyond the format's limit")]
    TooLong,
    /// A blob holds more or fewer bytes than it says.
    #[error("a blob holds another number of bytes than it says, or cannot be unpacked")]
    Size,
    /// Packed in a way that is not known.
    #[error("a blob is packed by a method other than zlib")]
    Packing,
    /// The file does not begin with its header.
    #[error("this is no OSM PBF file: its first blob is no OSMHeader")]
    NoHeader,
    /// A feature that a reader has to know.
    #[error("the file needs a feature that is not known: {0}")]
    Feature(String),
    /// The number of a text that is not there.
    #[error("a tag's text is missing or no UTF-8")]
    Text,
    /// Too many tags.
    #[error("an element has more than {} tags", block::MAX_TAGS)]
    Tags,
    /// Texts too long.
    #[error("an element's texts are longer than {} bytes", block::MAX_TAG_BYTES)]
    LongTexts,
    /// Too many members.
    #[error("a relation has more than {} members", block::MAX_MEMBERS)]
    Members,
    /// A sum of differences runs over.
    #[error("a sum of differences is beyond 64 bits")]
    Overflow,
    /// A member that is no node, way or relation.
    #[error("a member is of no known kind")]
    Member,
}

/// Why a block is not read on; [`Error`] says besides where it is.
enum Stop {
    Broken(Broken),
    Other(Error),
}

impl From<Broken> for Stop {
    fn from(why: Broken) -> Self {
        Self::Broken(why)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

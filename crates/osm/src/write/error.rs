//! Why an object is not in a file that is written.

use std::{fmt, io};

/// Why an object cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unwritable {
    /// OpenStreetMap has no elements for several points or lines.
    Kind,
    /// Longitude or latitude out of range.
    OffGlobe,
    /// A tag that other programs do not read.
    Text,
    /// More tags than are read.
    Tags,
    /// The tag that this writer gives.
    IdTag,
    /// A line that would be read as an area.
    ClosedLine,
    /// An area that would be read as a relation of another type.
    Type,
    /// Rings that a reader would put together in another way.
    Rings,
}

impl Unwritable {
    /// The same in words.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Kind => "only points, lines and areas are elements of OpenStreetMap",
            Self::OffGlobe => "its place is not on the globe",
            Self::Text => "a tag is longer than 255 characters, or has a zero byte in it",
            Self::Tags => "it has too many tags",
            Self::IdTag => "it has a tag remora:id of its own",
            Self::ClosedLine => "it is a closed line whose tags say that it is an area",
            Self::Type => "it is an area whose tag type says that it is none",
            Self::Rings => "it would not be clear which of its rings are holes of which",
        }
    }
}

impl fmt::Display for Unwritable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.reason())
    }
}

impl std::error::Error for Unwritable {}

/// Why an object is not in the file.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It cannot be; the file goes on without it.
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
    /// The file cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

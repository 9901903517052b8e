//! Geometries of objects in trees: points, lines, polygons and collections of
//! them, in a plane. Their bytes (WKB) inside, their texts (WKT, GeoJSON) at
//! the edges, and the predicates by which a search is refined.
//!
//! What it keeps true: no bytes and no text make anything here panic, nor
//! take more memory than a small multiple of their length.

#![forbid(unsafe_code)]

#[cfg(test)]
mod hostile;
mod orientation;
mod parts;
mod predicate;
mod refine;
mod ring;
mod segment;
mod segment_overlap;
mod shape;
mod text;
mod wkb;

pub use geo_types;
pub use refine::{Comparison, Refine, is_point, work_done};
pub use shape::{Shape, Wkb};

use remora_layout::limits::{MAX_GEOMETRY_BYTES, MAX_GEOMETRY_COORDINATE, MAX_GEOMETRY_DEPTH};

/// Why bytes or a text are no geometry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShapeError {
    /// It ends too early, or says that it has more than it has.
    #[error("the geometry's bytes end too early")]
    Short,
    /// Something follows it.
    #[error("something follows the geometry")]
    Trailing,
    /// Its first byte is neither 0 nor 1.
    #[error("the geometry's byte order is neither 0 nor 1")]
    ByteOrder,
    /// A number that is no kind of geometry, or one of more than two
    /// dimensions, or with a reference system.
    #[error("{0} is no kind of geometry in the plane (1 to 7)")]
    Kind(u32),
    /// A collection has a member of a kind that it cannot have.
    #[error("a member of the collection is of another kind")]
    Member,
    /// A coordinate is no number, or infinite.
    #[error("a coordinate is nan or infinite, which is no place: give a finite number")]
    NotFinite,
    /// A coordinate is too great.
    #[error("a coordinate is beyond {MAX_GEOMETRY_COORDINATE:e}")]
    TooFar,
    /// It has no points, or a part of it has none.
    #[error("the geometry, or a part of it, is empty")]
    Empty,
    /// A line of one point.
    #[error("a line needs two points")]
    ShortLine,
    /// A ring of fewer than four points.
    #[error("a ring needs four points, of which the last is the first")]
    ShortRing,
    /// A ring's last point is not its first.
    #[error("a ring is not closed")]
    OpenRing,
    /// Collections in collections, too many.
    #[error("collections are nested deeper than {MAX_GEOMETRY_DEPTH}")]
    TooDeep,
    /// Too many coordinates.
    #[error("the geometry is longer than {MAX_GEOMETRY_BYTES} bytes of WKB")]
    TooLong,
    /// The bytes name no predicate, or a distance that makes no sense.
    #[error("not a predicate of a search")]
    Refinement,
    /// A text that is no geometry; what is wrong with it.
    #[error("not a geometry: {0}")]
    Text(String),
}

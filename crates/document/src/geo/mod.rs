//! Geometries as MongoDB has them: pairs of coordinates in a plane, and GeoJSON on the sphere.
//!
//! On the sphere an edge is an arc of a great circle, and edges belong to what they bound. A place that is
//! less than about a micrometre (1e-13 radians) from an edge counts as on it. The inside of a ring is the
//! smaller part of the sphere. In the plane edges are straight, and a comparison is that of doubles.
//!
//! A geometry of a document that is malformed has no place: it matches nothing. What differs from MongoDB:
//!
//! * An argument has 65,536 points at most, about.
//! * Whether rings cross themselves is checked in arguments only, and for 131,072 pairs of edges: a ring of 512
//!   points.
//! * A filter has 8 regions at most.
//! * Holes are not checked to lie in their polygon.
//! * A polygon cannot be larger than a hemisphere: the reference system with strict winding is an error.

mod bounds;
mod geo_near;
mod near;
mod read;
mod region;
mod ring;
mod shape;
mod steps;
mod vector;

pub use bounds::GeoKind;
pub use geo_near::{GeoNear, Located};
pub use near::Near;
pub(crate) use region::{Region, Relation};

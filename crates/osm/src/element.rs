//! Elements of a file: their ids, what their tags say, and why one is no object.

use remora_geometry::ShapeError;
use std::fmt;

/// Kinds of elements; the number is the lowest two bits of an object's id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementKind {
    /// A point.
    Node = 0,
    /// A line, or an area.
    Way = 1,
    /// An area of several rings.
    Relation = 2,
}

/// An element: nodes, ways and relations have ids of their own each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element {
    /// What it is.
    pub kind: ElementKind,
    /// Its id in OpenStreetMap.
    pub id: i64,
}

impl Element {
    /// The object's id: four times OpenStreetMap's, and the kind.
    pub fn object_id(self) -> Option<u64> {
        Some(u64::try_from(self.id).ok()?.checked_mul(4)? + self.kind as u64)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ElementKind::Node => "node",
            ElementKind::Way => "way",
            ElementKind::Relation => "relation",
        };
        write!(out, "{kind} {}", self.id)
    }
}

/// The tag that says an object's id where an element's own cannot; see
/// [`crate::Writer`].
pub const ID_TAG: &str = "remora:id";

/// Why an element cannot become an object.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unusable {
    /// Its id is negative, or four times it is beyond 64 bits.
    #[error("its id is negative or too large")]
    Id,
    /// Longitude or latitude out of range.
    #[error("its place is not on the globe")]
    OffGlobe,
    /// An extract has been cut through it.
    #[error("some of its nodes are not in the file")]
    NodesMissing,
    /// An extract has been cut through it.
    #[error("some of its ways are not in the file")]
    WaysMissing,
    /// Its ways' ends do not meet.
    #[error("its ways make no closed rings")]
    Open,
    /// It has inner rings at most.
    #[error("it has no outer ring")]
    NoOuter,
    /// An inner ring is in none of the outer ones.
    #[error("an inner ring of it lies in no outer one")]
    LostHole,
    /// What else a geometry may not be.
    #[error("its geometry is too long, or none: {0}")]
    Shape(#[from] ShapeError),
}

/// What an element's tags say.
pub struct Description {
    /// What [`ID_TAG`] says, if it is a number.
    pub id: Option<u64>,
    /// The other tags as JSON. Of two with one key the later one counts.
    pub json: Box<[u8]>,
}

impl Description {
    /// What these tags say.
    pub fn of(tags: &[(&str, &str)]) -> Self {
        let mut id = None;
        let mut map = serde_json::Map::new();
        for (key, value) in tags {
            match value.parse() {
                Ok(number) if *key == ID_TAG => id = Some(number),
                _ => {
                    map.insert((*key).to_owned(), (*value).into());
                }
            }
        }
        Self { id, json: serde_json::Value::Object(map).to_string().into_bytes().into() }
    }
}

//! A file as objects. It is read four times: for relations, for ways, for
//! nodes, for ways again; so that only those nodes are kept that are wanted,
//! whatever the order of the file. Blobs without what is looked for are passed
//! over from the second time on.

use crate::area::is_area;
use crate::blob::Blobs;
use crate::block::{self, Element as Decoded, Kinds};
use crate::gather::{Kept, Relation};
use crate::nodes::{Nodes, degrees, on_globe};
use crate::rings::{Placed, join, nest};
use crate::{Error, Stop};
use remora_geometry::geo_types::{Geometry, LineString, MultiPolygon, Point, Polygon};
use remora_geometry::{Shape, ShapeError};
use remora_layout::limits::MAX_GEOMETRY_BYTES;
use std::fmt;
use std::io::{Read, Seek};
use std::str::FromStr;

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

/// An object of the file.
#[derive(Clone, PartialEq, Debug)]
pub struct Object<'a> {
    /// Its id: what its tag [`ID_TAG`] says, else [`Element::object_id`].
    pub id: u64,
    /// Where it is, in degrees: longitude, then latitude.
    pub shape: Shape,
    /// Its tags, as a JSON object of texts, sorted by their keys; without
    /// [`ID_TAG`].
    pub tags: &'a [u8],
}

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

/// Keeps an element if it has this key, and this value if one is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    key: String,
    value: Option<String>,
}

impl FromStr for Filter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (text, None),
        };
        if key.is_empty() {
            return Err("write KEY or KEY=VALUE");
        }
        Ok(Self { key: key.to_owned(), value })
    }
}

impl Filter {
    fn keeps(&self, tags: &[(&str, &str)]) -> bool {
        let wanted = self.value.as_deref();
        tags.iter().any(|(key, value)| *key == self.key && wanted.is_none_or(|it| it == *value))
    }
}

/// What may be kept of a file while it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes for nodes (16 each), for relations and their ways.
    pub kept_bytes: usize,
}

/// What is given the objects, and what could not become one.
pub type Sink<'s> = dyn FnMut(
        Element,
        Result<Object<'_>, Unusable>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
    + 's;

/// Reads a file's objects: elements with tags, of which one filter keeps at
/// least one; without a filter all. Nodes come first, then ways, then
/// relations of the types `multipolygon` and `boundary`; of others nothing is
/// seen.
///
/// # Errors
/// See [`Error`]. What was given to `sink` before stands.
pub fn read<R: Read + Seek>(
    input: R,
    filters: &[Filter],
    limits: Limits,
    sink: &mut Sink<'_>,
) -> Result<(), Error> {
    let mut file = File { blobs: Blobs::new(input), kinds: Vec::new() };
    let is_wanted = |tags: &[(&str, &str)]| {
        !tags.is_empty() && (filters.is_empty() || filters.iter().any(|it| it.keeps(tags)))
    };
    let mut kept = Kept::new(limits);
    let relations = Kinds { relations: true, ..Kinds::default() };
    file.pass(relations, &mut |element| {
        if let Decoded::Relation(id, members, tags) = element
            && is_area_relation(tags)
            && is_wanted(tags)
        {
            let ways =
                members.iter().filter(|(_, role)| !matches!(*role, "label" | "admin_centre"));
            let ways = ways.map(|(way, role)| (*way, *role == "inner")).collect();
            let tags = Description::of(tags);
            kept.relation(Relation { id, ways, tags })?;
        }
        Ok(())
    })?;
    let ways = Kinds { ways: true, ..Kinds::default() };
    file.pass(ways, &mut |element| match element {
        Decoded::Way(id, nodes, tags) => kept.way(id, nodes, is_wanted(tags)),
        _ => Ok(()),
    })?;
    let mut nodes = Nodes::new(std::mem::take(&mut kept.nodes));
    let mut give = |element: Element, shape: Result<Shape, Unusable>, tags: &Description| {
        let object = tags.id.or_else(|| element.object_id()).ok_or(Unusable::Id);
        let object = object.and_then(|id| Ok(Object { id, shape: shape?, tags: &tags.json }));
        sink(element, object).map_err(Error::Sink)
    };
    file.pass(Kinds { nodes: true, ..Kinds::default() }, &mut |element| {
        let Decoded::Node(id, place, tags) = element else { return Ok(()) };
        let place = on_globe(place);
        if let Some(place) = place {
            nodes.set(id, place);
        }
        if is_wanted(tags) {
            let point = place.map(|place| Geometry::Point(Point(degrees(place))));
            let shape = point.ok_or(Unusable::OffGlobe).and_then(|point| Ok(Shape::new(point)?));
            give(Element { kind: ElementKind::Node, id }, shape, &Description::of(tags))?;
        }
        Ok(())
    })?;
    let mut ids = Vec::new();
    file.pass(ways, &mut |element| {
        if let Decoded::Way(id, mut list, tags) = element
            && is_wanted(tags)
        {
            ids.clear();
            while let Some(node) = list.next()? {
                ids.push(node);
            }
            let shape = way(&ids, is_area(tags), &nodes);
            give(Element { kind: ElementKind::Way, id }, shape, &Description::of(tags))?;
        }
        Ok(())
    })?;
    for relation in &kept.relations {
        let element = Element { kind: ElementKind::Relation, id: relation.id };
        give(element, area(relation, &kept, &nodes), &relation.tags)?;
    }
    Ok(())
}

/// A file, and which kinds of elements each of its blobs has, once it is known.
struct File<R> {
    blobs: Blobs<R>,
    kinds: Vec<Kinds>,
}

impl<R: Read + Seek> File<R> {
    /// Goes once over the file, and gives `each` the elements that are wanted.
    fn pass(&mut self, wanted: Kinds, each: &mut block::Each<'_>) -> Result<(), Error> {
        self.blobs.rewind()?;
        let mut number = 0;
        loop {
            let known = self.kinds.get(number).copied();
            let Some(bytes) = self.blobs.next(known.is_none_or(|kinds| kinds.meet(wanted)))? else {
                return Ok(());
            };
            let kinds = match block::elements(bytes, wanted, each) {
                Ok(kinds) => kinds,
                Err(Stop::Broken(why)) => return Err(self.blobs.broken(why)),
                Err(Stop::Other(error)) => return Err(error),
            };
            if known.is_none() {
                self.kinds.push(kinds);
            }
            number += 1;
        }
    }
}

/// Whether a relation with these tags is an area.
pub fn is_area_relation(tags: &[(&str, &str)]) -> bool {
    tags.iter().any(|tag| matches!(*tag, ("type", "multipolygon" | "boundary")))
}

/// What an element's tags say.
pub struct Description {
    /// What [`ID_TAG`] says, if it is a number.
    pub id: Option<u64>,
    /// The other tags as JSON. Of two with one key the later one counts.
    pub json: Box<[u8]>,
}

impl Description {
    fn of(tags: &[(&str, &str)]) -> Self {
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

fn way(ids: &[i64], is_area: bool, nodes: &Nodes) -> Result<Shape, Unusable> {
    let line = LineString(nodes.line(ids).ok_or(Unusable::NodesMissing)?);
    let is_ring = ids.len() >= 4 && ids.first() == ids.last();
    Ok(Shape::new(if is_ring && is_area {
        Geometry::Polygon(Polygon::new(line, Vec::new()))
    } else {
        Geometry::LineString(line)
    })?)
}

/// The area of a relation: outer rings with holes.
fn area(relation: &Relation, kept: &Kept, nodes: &Nodes) -> Result<Shape, Unusable> {
    let mut ways: [Vec<&[i64]>; 2] = [Vec::new(), Vec::new()];
    let mut length = 0;
    for (way, is_inner) in &relation.ways {
        let ids = &kept.ways[way];
        if ids.is_empty() {
            return Err(Unusable::WaysMissing);
        }
        length += ids.len();
        if length > MAX_COORDINATES {
            return Err(ShapeError::TooLong.into());
        }
        ways[usize::from(*is_inner)].push(ids);
    }
    let placed = |ways: &[&[i64]]| {
        let rings = join(ways).ok_or(Unusable::Open)?;
        let placed = rings.into_iter().map(|nodes_of| {
            let line = nodes.line(&nodes_of).ok_or(Unusable::NodesMissing)?;
            Ok(Placed { nodes: nodes_of, line })
        });
        placed.collect::<Result<Vec<Placed>, Unusable>>()
    };
    let [outer, inner] = [placed(&ways[0])?, placed(&ways[1])?];
    if outer.is_empty() {
        return Err(Unusable::NoOuter);
    }
    let MultiPolygon(mut polygons) = nest(outer, inner)?;
    Ok(Shape::new(match polygons.len() {
        1 => Geometry::Polygon(polygons.remove(0)),
        _ => Geometry::MultiPolygon(MultiPolygon(polygons)),
    })?)
}

/// More coordinates than this no geometry has; it is looked at before the
/// rings, so that a relation's work is bounded.
const MAX_COORDINATES: usize = MAX_GEOMETRY_BYTES / 16;

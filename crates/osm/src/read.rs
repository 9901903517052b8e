//! A file as objects. It is read four times: for relations, for ways, for
//! nodes, for ways again; so that only those nodes are kept that are wanted,
//! whatever the order of the file. Blobs without what is looked for are passed
//! over from the second time on.

use crate::area::{is_area, is_area_relation};
use crate::blob::Blobs;
use crate::block::{self, Element as Decoded, Kinds};
use crate::element::{Description, Element, ElementKind, Unusable};
use crate::gather::{Kept, Limits, Relation};
use crate::nodes::{Nodes, degrees, on_globe};
use crate::rings::{Placed, join, nest};
use crate::{Error, Stop};
use remora_geometry::geo_types::{Geometry, LineString, MultiPolygon, Point, Polygon};
use remora_geometry::{Shape, ShapeError};
use remora_layout::limits::MAX_GEOMETRY_BYTES;
use std::io::{Read, Seek};
use std::str::FromStr;

/// An object of the file.
#[derive(Clone, PartialEq, Debug)]
pub struct Object<'a> {
    /// Its id: what its tag [`ID_TAG`](crate::ID_TAG) says, else [`Element::object_id`].
    pub id: u64,
    /// Where it is, in degrees: longitude, then latitude.
    pub shape: Shape,
    /// Its tags, as a JSON object of texts, sorted by their keys; without
    /// [`ID_TAG`](crate::ID_TAG).
    pub tags: &'a [u8],
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

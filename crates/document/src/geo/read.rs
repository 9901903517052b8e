//! Geometries from BSON: pairs of coordinates, and GeoJSON.

use super::ring::{Polygon, Ring};
use super::shape::{Geometry, Place, Shape};
use super::vector::{Arc, Vector};
use crate::raw::{elements, fields};
use crate::value::{shown, to_double};
use bson::raw::{RawArray, RawBsonRef, RawDocument};

/// A result, or what is wrong.
pub(super) type Read<T> = Result<T, String>;

/// Kinds of GeoJSON.
const KINDS: &[&str] = &[
    "Point",
    "LineString",
    "Polygon",
    "MultiPoint",
    "MultiLineString",
    "MultiPolygon",
    "GeometryCollection",
];
/// The names of the reference system of longitude and latitude.
const REFERENCE_SYSTEMS: &[&str] = &["urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326"];
const STRICT_WINDING: &str = "urn:x-mongodb:crs:strictwinding:EPSG:4326";
/// Pairs of edges of a geometry that are compared, to find rings that cross themselves: those of one ring of 512
/// points, in some milliseconds. Each step of a search parses its filter.
const MOST_PAIRS: usize = 512 * 512 / 2;

/// A field of a document.
pub(super) fn field<'d>(document: &'d RawDocument, wanted: &str) -> Option<RawBsonRef<'d>> {
    fields(document).find_map(|(name, value)| (name == wanted).then_some(value))
}

/// The geometry that a value of a document is.
pub(super) fn stored(value: RawBsonRef<'_>) -> Option<Geometry> {
    match value {
        RawBsonRef::Document(_) | RawBsonRef::Array(_) => stored_or_error(value).ok(),
        _ => None,
    }
}

/// The geometry that a value of a document is, or what is wrong.
pub(super) fn stored_or_error(value: RawBsonRef<'_>) -> Read<Geometry> {
    match value {
        RawBsonRef::Document(document) if is_geojson(document) => geojson(document),
        value => pair(value).map(Geometry::Place),
    }
}

fn is_geojson(document: &RawDocument) -> bool {
    matches!(field(document, "type"), Some(RawBsonRef::String(kind)) if KINDS.contains(&kind))
}

/// The numbers that a value begins with, if it is a document or an array: two, or three.
pub(super) fn numbers(value: RawBsonRef<'_>) -> Read<Vec<f64>> {
    let number = |value| to_double(value).filter(|number| number.is_finite());
    let numbers: Vec<Option<f64>> = match value {
        RawBsonRef::Array(array) => elements(array).take(3).map(number).collect(),
        RawBsonRef::Document(document) => {
            fields(document).take(3).map(|(_, value)| number(value)).collect()
        }
        _ => return Err("Point must be an array or object".to_owned()),
    };
    match numbers[..] {
        [Some(x), Some(y)] | [Some(x), Some(y), None] => Ok(vec![x, y]),
        [Some(x), Some(y), Some(further)] => Ok(vec![x, y, further]),
        _ => Err(format!("Point must begin with two finite numbers: {}", shown(value))),
    }
}

/// A pair of coordinates. What follows them has no meaning.
pub(super) fn pair(value: RawBsonRef<'_>) -> Read<Place> {
    let numbers = numbers(value)?;
    Ok(Place { x: numbers[0], y: numbers[1] })
}

/// A longitude and a latitude.
pub(super) fn on_sphere(place: Place) -> Read<Vector> {
    place.on_sphere().ok_or_else(|| {
        let Place { x, y } = place;
        format!("Longitude/latitude is out of bounds, lng: {x} lat: {y}")
    })
}

/// A geometry of GeoJSON.
pub(super) fn geojson(document: &RawDocument) -> Read<Geometry> {
    check_reference_system(document)?;
    let kind = match field(document, "type") {
        Some(RawBsonRef::String(kind)) => kind,
        _ => return Err("GeoJSON needs a type that is a string".to_owned()),
    };
    if kind == "GeometryCollection" {
        return collection(document).map(Geometry::Shape);
    }
    if !KINDS.contains(&kind) {
        return Err(format!("unknown GeoJSON type: {kind}"));
    }
    let Some(coordinates @ RawBsonRef::Array(array)) = field(document, "coordinates") else {
        return Err(format!("{kind} coordinates must be an array"));
    };
    if kind == "Point" {
        let place = pair(coordinates)?;
        return on_sphere(place).map(|_| Geometry::Place(place));
    }
    shape(kind, array).map(Geometry::Shape)
}

fn shape(kind: &str, array: &RawArray) -> Read<Shape> {
    let mut shape = Shape::default();
    match kind {
        "MultiPoint" => shape.points = places(array)?,
        "LineString" => shape.append(line(array)?),
        "Polygon" => shape.polygons.push(polygon(array)?),
        "MultiLineString" => each(kind, array, |part| {
            shape.append(line(part)?);
            Ok(())
        })?,
        _ => each(kind, array, |part| {
            shape.polygons.push(polygon(part)?);
            Ok(())
        })?,
    }
    let is_empty = shape.size() == 0;
    (!is_empty).then_some(shape).ok_or_else(|| format!("{kind} must have at least 1 element"))
}

/// The geometries of a collection, which are no collections.
fn collection(document: &RawDocument) -> Read<Shape> {
    let Some(RawBsonRef::Array(array)) = field(document, "geometries") else {
        return Err("GeometryCollection geometries must be an array".to_owned());
    };
    let mut all = Shape::default();
    for part in elements(array) {
        let RawBsonRef::Document(part) = part else {
            return Err("GeometryCollection geometries must be objects".to_owned());
        };
        if matches!(field(part, "type"), Some(RawBsonRef::String("GeometryCollection"))) {
            return Err("GeometryCollections cannot be nested".to_owned());
        }
        all.append(geojson(part)?.into_shape().ok_or("a point is out of bounds")?);
    }
    let is_empty = all.size() == 0;
    (!is_empty).then_some(all).ok_or_else(|| "GeometryCollection is empty".to_owned())
}

fn check_reference_system(document: &RawDocument) -> Read<()> {
    let Some(system) = field(document, "crs") else { return Ok(()) };
    let properties = system.as_document().and_then(|system| field(system, "properties"));
    let name = properties.and_then(RawBsonRef::as_document).and_then(|all| field(all, "name"));
    match name {
        Some(RawBsonRef::String(name)) if REFERENCE_SYSTEMS.contains(&name) => Ok(()),
        Some(RawBsonRef::String(STRICT_WINDING)) => {
            Err("polygons larger than a hemisphere are not supported".to_owned())
        }
        _ => Err(format!("Unknown CRS: {}", shown(system))),
    }
}

/// Passes on the arrays in an array.
fn each(kind: &str, array: &RawArray, mut see: impl FnMut(&RawArray) -> Read<()>) -> Read<()> {
    elements(array).try_for_each(|part| match part {
        RawBsonRef::Array(part) => see(part),
        _ => Err(format!("{kind} coordinates must be an array of arrays")),
    })
}

fn places(array: &RawArray) -> Read<Vec<Vector>> {
    elements(array).map(|value| on_sphere(pair(value)?)).collect()
}

/// Arcs from each place to the next one; none between equal ones.
fn arcs(places: &[Vector]) -> Read<Vec<Arc>> {
    let mut arcs = Vec::with_capacity(places.len());
    let mut before: Option<Vector> = None;
    for place in places.iter().copied() {
        match before {
            // The start stays, so that small steps add up.
            Some(from) if from.is_at(place) => continue,
            Some(from) => {
                let arc = Arc::new(from, place);
                arcs.push(arc.ok_or("an edge joins two places that are antipodal")?);
            }
            None => {}
        }
        before = Some(place);
    }
    Ok(arcs)
}

/// The arcs of a line; a line without length is a point.
fn line(array: &RawArray) -> Read<Shape> {
    let places = places(array)?;
    if places.len() < 2 {
        return Err("LineString must have at least 2 vertices".to_owned());
    }
    let arcs = arcs(&places)?;
    let points = if arcs.is_empty() { places[..1].to_vec() } else { Vec::new() };
    Ok(Shape { points, arcs, ..Shape::default() })
}

fn polygon(array: &RawArray) -> Read<Polygon> {
    let mut rings = Vec::new();
    each("Polygon", array, |part| {
        rings.push(ring(part)?);
        Ok(())
    })?;
    if rings.is_empty() {
        return Err("Polygon has no loops".to_owned());
    }
    let outer = rings.remove(0);
    Ok(Polygon { outer, holes: rings })
}

fn ring(array: &RawArray) -> Read<Ring> {
    let mut places = places(array)?;
    let (Some(first), Some(last)) = (places.first().copied(), places.last_mut()) else {
        return Err("Loop must have at least 3 different vertices: it has none".to_owned());
    };
    if !last.is_at(first) {
        return Err(format!("Loop is not closed: {}", shown(RawBsonRef::Array(array))));
    }
    *last = first;
    let arcs = arcs(&places)?;
    if arcs.len() < 3 {
        let array = shown(RawBsonRef::Array(array));
        return Err(format!("Loop must have at least 3 different vertices: {array}"));
    }
    Ok(Ring::new(arcs))
}

/// Whether no ring of a shape crosses itself. Those behind [`MOST_PAIRS`] are not checked.
///
/// # Errors
/// Which edges do.
pub(super) fn check_rings(shape: &Shape) -> Read<()> {
    let rings = shape.polygons.iter().flat_map(|of| std::iter::once(&of.outer).chain(&of.holes));
    let mut pairs = 0;
    for ring in rings {
        pairs += ring.arcs.len() * ring.arcs.len() / 2;
        if pairs > MOST_PAIRS {
            break;
        }
        check_ring(&ring.arcs)?;
    }
    Ok(())
}

fn check_ring(arcs: &[Arc]) -> Read<()> {
    for (at, arc) in arcs.iter().enumerate() {
        for (other, with) in arcs.iter().enumerate().skip(at + 2) {
            let are_neighbours = at == 0 && other + 1 == arcs.len();
            if !are_neighbours && arc.meets(*with) {
                return Err(format!("Loop is not valid: edges {at} and {other} cross"));
            }
        }
    }
    Ok(())
}

//! Arguments of `$geoWithin` and `$geoIntersects`, and whether a value meets them.

use super::bounds::{around_cap, around_circle, around_places, around_shape};
use super::read::{Read, check_rings, geojson, on_sphere, pair, stored};
use super::ring::Cap;
use super::shape::{Geometry, Place, Shape};
use super::steps::Steps;
use crate::error::DocumentError;
use crate::raw::{elements, fields};
use crate::value::{shown, to_double};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use remora_layout::rect::Rect;

/// Points of an argument at most, about: a match looks at all of them.
const MOST_POINTS: usize = 1 << 16;

/// What the operators ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// `$geoWithin`: all of the value lies in the region.
    Within,
    /// `$geoIntersects`: the value and the region share a place.
    Intersects,
}

impl Relation {
    fn name(self) -> &'static str {
        match self {
            Relation::Within => "$geoWithin",
            Relation::Intersects => "$geoIntersects",
        }
    }
}

/// A region and what a value has to do with it.
#[derive(Debug)]
pub(crate) struct Region {
    relation: Relation,
    area: Area,
    /// Steps of the values of one document so far.
    steps: Steps,
}

#[derive(Debug, Clone)]
enum Area {
    /// `$box`: the least and the greatest corner.
    Box(Place, Place),
    /// `$polygon`.
    Polygon(Vec<Place>),
    /// `$center`.
    Circle(Place, f64),
    /// `$centerSphere`.
    Cap(Cap),
    /// `$geometry`.
    Shape(Shape),
}

impl Region {
    /// Parses the argument of an operator.
    ///
    /// # Errors
    /// As MongoDB, with the code of a bad value.
    pub(crate) fn parse(relation: Relation, value: RawBsonRef<'_>) -> Result<Self, DocumentError> {
        parse(relation, value).map_err(DocumentError::bad_value)
    }

    /// Whether the values of one document took more steps than they may, so that [`Self::holds`] has not looked at
    /// some. The next document begins.
    pub(crate) fn has_given_up(&self) -> bool {
        self.steps.begin_anew()
    }

    /// Counts what comparing a geometry takes: each point of it with each one of the region.
    fn may_compare(&self, geometry: &Geometry) -> bool {
        let points = match &self.area {
            Area::Box(..) | Area::Circle(..) | Area::Cap(_) => 1,
            Area::Polygon(corners) => corners.len(),
            Area::Shape(area) => area.size(),
        };
        self.steps.take(points * geometry.size())
    }

    /// Rectangles: the one around a geometry that meets it shares a point with one of them.
    pub(crate) fn windows(&self) -> Vec<Rect> {
        match &self.area {
            Area::Box(least, greatest) => vec![around_places(&[*least, *greatest])],
            Area::Polygon(corners) => vec![around_places(corners)],
            Area::Circle(centre, radius) => vec![around_circle(*centre, *radius)],
            Area::Cap(cap) => around_cap(*cap),
            Area::Shape(shape) => around_shape(shape),
        }
    }

    /// Whether a value meets it. One that is no geometry does not.
    pub(crate) fn holds(&self, value: RawBsonRef<'_>) -> bool {
        let Some(geometry) = stored(value).filter(|of| self.may_compare(of)) else { return false };
        let place = match &geometry {
            Geometry::Place(place) => Some(*place),
            Geometry::Shape(_) => None,
        };
        match &self.area {
            Area::Box(least, greatest) => place.is_some_and(|Place { x, y }| {
                (least.x..=greatest.x).contains(&x) && (least.y..=greatest.y).contains(&y)
            }),
            Area::Polygon(corners) => place.is_some_and(|place| is_inside(corners, place)),
            Area::Circle(centre, radius) => {
                place.is_some_and(|place| place.distance(*centre) <= *radius)
            }
            Area::Cap(cap) => geometry.into_shape().is_some_and(|shape| match self.relation {
                Relation::Within => shape.is_in(*cap),
                Relation::Intersects => shape.meets_cap(*cap),
            }),
            Area::Shape(area) => geometry.into_shape().is_some_and(|shape| match self.relation {
                Relation::Within => area.covers(&shape, &self.steps),
                Relation::Intersects => area.intersects(&shape),
            }),
        }
    }
}

/// Whether a place lies in a polygon of the plane or on an edge of it.
fn is_inside(corners: &[Place], place: Place) -> bool {
    let Place { x, y } = place;
    let mut is_inside = false;
    let next = corners.iter().cycle().skip(1);
    for (from, to) in corners.iter().zip(next) {
        let side = (to.x - from.x) * (y - from.y) - (to.y - from.y) * (x - from.x);
        let is_between =
            |one: f64, other: f64, at: f64| one.min(other) <= at && at <= one.max(other);
        if side == 0.0 && is_between(from.x, to.x, x) && is_between(from.y, to.y, y) {
            return true;
        }
        let goes_up = from.y <= y && y < to.y;
        let goes_down = to.y <= y && y < from.y;
        is_inside ^= (goes_up && side > 0.0) || (goes_down && side < 0.0);
    }
    is_inside
}

fn parse(relation: Relation, value: RawBsonRef<'_>) -> Read<Region> {
    let name = relation.name();
    let RawBsonRef::Document(document) = value else {
        return Err(format!("{name} needs an object, found: {}", shown(value)));
    };
    // It says nothing since MongoDB 2.6, and is allowed.
    let mut parts = fields(document).filter(|(name, _)| *name != "$uniqueDocs");
    let Some((kind, argument)) = parts.next() else {
        return Err("geo query doesn't have any geometry".to_owned());
    };
    if let Some((further, _)) = parts.next() {
        return Err(format!("can't parse extra field: {further}"));
    }
    let unsupported = || format!("{name} not supported with provided geometry: {}", shown(value));
    let is_flat = matches!(kind, "$box" | "$polygon" | "$center");
    if is_flat && relation == Relation::Intersects {
        return Err(unsupported());
    }
    let area = match kind {
        "$geometry" => Area::Shape(geometry(argument)?),
        "$box" => rectangle(argument)?,
        "$polygon" => polygon(argument)?,
        "$center" => {
            let (centre, radius) = circle(kind, argument)?;
            Area::Circle(centre, radius)
        }
        "$centerSphere" => {
            let (centre, radius) = circle(kind, argument)?;
            Area::Cap(Cap { centre: on_sphere(centre)?, radius })
        }
        _ => return Err(format!("unknown geo specifier: {kind}")),
    };
    match &area {
        Area::Shape(shape) if relation == Relation::Within && shape.polygons.is_empty() => {
            Err(unsupported())
        }
        _ => Ok(Region { relation, area, steps: Steps::default() }),
    }
}

fn geometry(value: RawBsonRef<'_>) -> Read<Shape> {
    let RawBsonRef::Document(document) = value else {
        return Err("$geometry must be an object".to_owned());
    };
    let shape = geojson(document)?.into_shape().ok_or("$geometry is out of bounds")?;
    if shape.size() > MOST_POINTS {
        return Err(format!("$geometry has more than {MOST_POINTS} points"));
    }
    check_rings(&shape)?;
    Ok(shape)
}

/// Values of an array, or of a document, whose names have no meaning.
fn values<'d>(kind: &str, value: RawBsonRef<'d>) -> Read<Vec<RawBsonRef<'d>>> {
    let all: Vec<RawBsonRef<'d>> = match value {
        RawBsonRef::Array(array) => of_array(array),
        RawBsonRef::Document(document) => of_document(document),
        _ => return Err(format!("{kind} needs an array or object, found: {}", shown(value))),
    };
    if all.len() > MOST_POINTS {
        return Err(format!("{kind} has more than {MOST_POINTS} points"));
    }
    Ok(all)
}

fn of_array(array: &RawArray) -> Vec<RawBsonRef<'_>> {
    elements(array).take(MOST_POINTS + 1).collect()
}

fn of_document(document: &RawDocument) -> Vec<RawBsonRef<'_>> {
    fields(document).take(MOST_POINTS + 1).map(|(_, value)| value).collect()
}

fn rectangle(value: RawBsonRef<'_>) -> Read<Area> {
    let [one, other] = values("$box", value)?[..] else {
        return Err(format!("$box needs two corners, found: {}", shown(value)));
    };
    let (one, other) = (pair(one)?, pair(other)?);
    Ok(Area::Box(
        Place { x: one.x.min(other.x), y: one.y.min(other.y) },
        Place { x: one.x.max(other.x), y: one.y.max(other.y) },
    ))
}

fn polygon(value: RawBsonRef<'_>) -> Read<Area> {
    let corners: Vec<Place> =
        values("$polygon", value)?.into_iter().map(pair).collect::<Read<_>>()?;
    if corners.len() < 3 {
        return Err("Polygon must have at least 3 points".to_owned());
    }
    Ok(Area::Polygon(corners))
}

/// A centre and a radius.
fn circle(kind: &str, value: RawBsonRef<'_>) -> Read<(Place, f64)> {
    let [centre, radius] = values(kind, value)?[..] else {
        return Err(format!("{kind} needs a centre and a radius, found: {}", shown(value)));
    };
    let centre = pair(centre)?;
    match to_double(radius) {
        Some(radius) if radius.is_finite() && radius >= 0.0 => Ok((centre, radius)),
        _ => Err(format!("radius must be a non-negative number: {}", shown(radius))),
    }
}

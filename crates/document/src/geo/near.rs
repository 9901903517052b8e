//! `$near` and `$nearSphere`: documents by their distance from a place.

use super::bounds::{GeoKind, PLANE, SPHERE, around_cap, around_circle};
use super::read::{Read, field, geojson, numbers, on_sphere, pair, stored};
use super::ring::Cap;
use super::shape::{Geometry, Place};
use super::vector::Vector;
use crate::error::DocumentError;
use crate::path::{Leaves, Path};
use crate::raw::fields;
use crate::value::{shown, to_double};
use bson::raw::{RawBsonRef, RawDocument};
use remora_layout::rect::Rect;
use std::f64::consts::PI;
use std::ops::ControlFlow;

/// Radius of the sphere, metres: that of MongoDB.
const EARTH_RADIUS: f64 = 6_378_100.0;

/// A condition `$near` or `$nearSphere`: which field, from where, and how far.
///
/// ```
/// use bson::rawdoc;
/// use remora_document::Filter;
///
/// let filter = Filter::parse(&rawdoc! { "at": { "$near": [0, 0], "$maxDistance": 5 } })?;
/// let near = filter.near().expect("the condition");
/// assert_eq!((near.field(), near.centre(), near.is_spherical()), ("at", [0.0, 0.0], false));
/// assert_eq!(near.distance(&rawdoc! { "at": [[30, 40], [3, 4]] }), Some(5.0));
/// assert_eq!(near.distance(&rawdoc! { "at": [30, 40] }), None);
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Near {
    path: Path,
    centre: Place,
    /// The centre on the sphere, if distances are those on it.
    on_sphere: Option<Vector>,
    unit: Unit,
    least: f64,
    most: Option<f64>,
}

/// What a distance is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Coordinates,
    Radians,
    Metres,
}

impl Near {
    /// The condition that a field's document of operators has.
    ///
    /// # Errors
    /// As MongoDB, with the code of a bad value.
    pub(crate) fn parse(path: &Path, operators: &RawDocument) -> Result<Near, DocumentError> {
        parse(path, operators).map_err(DocumentError::bad_value)
    }

    /// The field's path.
    #[must_use]
    pub fn field(&self) -> &str {
        self.path.as_str()
    }

    /// The place from which distances are measured: x and y, or longitude and latitude in degrees.
    #[must_use]
    pub fn centre(&self) -> [f64; 2] {
        [self.centre.x, self.centre.y]
    }

    /// Whether distances are metres on the sphere; otherwise they are those in the plane, in the
    /// coordinates' unit.
    #[must_use]
    pub fn is_spherical(&self) -> bool {
        self.on_sphere.is_some()
    }

    /// The least distance of a document that matches.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.least
    }

    /// The greatest distance of a document that matches, if there is one.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        self.most
    }

    /// What a distance of [`Near::distance`] is in the unit of the condition: `$nearSphere` with a pair of
    /// coordinates has radians.
    #[must_use]
    pub fn in_unit(&self, distance: f64) -> f64 {
        match self.unit {
            Unit::Radians => distance / EARTH_RADIUS,
            Unit::Metres | Unit::Coordinates => distance,
        }
    }

    /// Whether an index of this kind can answer it, as in MongoDB: metres need one on the sphere, distances of
    /// the plane one in it, and radians one of both.
    #[must_use]
    pub fn can_use(&self, kind: GeoKind) -> bool {
        match (self.unit, kind) {
            (Unit::Radians, _) => true,
            (Unit::Metres, kind) => kind == GeoKind::Sphere,
            (Unit::Coordinates, kind) => kind != GeoKind::Sphere,
        }
    }

    /// Rectangles: the one around a geometry that is so near, or nearer, shares a point with one of them.
    #[must_use]
    pub fn windows(&self, most: f64) -> Vec<Rect> {
        let most = self.most.map_or(most, |of| of.min(most));
        match self.on_sphere {
            Some(_) if !most.is_finite() => vec![SPHERE],
            None if !most.is_finite() => vec![PLANE],
            Some(centre) => around_cap(Cap { centre, radius: most / EARTH_RADIUS }),
            None => vec![around_circle(self.centre, most)],
        }
    }

    /// Two distances, between which those of all geometries in a rectangle lie.
    #[must_use]
    pub fn reach(&self, rect: &Rect) -> (f64, f64) {
        /// Rounding is no reason to miss one: a part of the distance, and metres on the sphere.
        const MARGIN: (f64, f64) = (1e-9, 1e-5);
        let Place { x, y } = self.centre;
        if self.on_sphere.is_some() {
            let least = angle_to(x, y, rect) * EARTH_RADIUS;
            // The farthest place is the nearest one to the opposite of the centre.
            let opposite = if x > 0.0 { x - 180.0 } else { x + 180.0 };
            let most = (PI - angle_to(opposite, -y, rect)) * EARTH_RADIUS;
            let (part, metres) = MARGIN;
            return (least * (1.0 - part) - metres, most * (1.0 + part) + metres);
        }
        let (least, most) = (rect.distance_squared(x, y), rect.farthest_squared(x, y));
        let part = MARGIN.0;
        (least.sqrt() * (1.0 - part), most.sqrt() * (1.0 + part))
    }

    /// The distance of a document: of several geometries that are within the limits the smallest one. None
    /// if none is within them.
    ///
    /// In the plane only points have a distance. On the sphere it is that of the nearest place of a geometry.
    #[must_use]
    pub fn distance(&self, document: &RawDocument) -> Option<f64> {
        self.nearest(document).map(|(distance, _)| distance)
    }

    /// The same with the geometry that is so near.
    pub(crate) fn nearest<'d>(&self, document: &'d RawDocument) -> Option<(f64, RawBsonRef<'d>)> {
        let mut nearest: Option<(f64, RawBsonRef<'d>)> = None;
        let _ = self.path.visit(document, Leaves::ElementsAndWhole, &mut |found| {
            let own = found.value().and_then(|value| Some((self.of_value(value)?, value)));
            if let Some(own) = own
                && nearest.is_none_or(|before| own.0 < before.0)
            {
                nearest = Some(own);
            }
            ControlFlow::<()>::Continue(())
        });
        nearest
    }

    /// Whether a value is a geometry within the limits.
    pub(crate) fn holds(&self, value: RawBsonRef<'_>) -> bool {
        self.of_value(value).is_some()
    }

    /// The distance of a value, if it is within the limits.
    fn of_value(&self, value: RawBsonRef<'_>) -> Option<f64> {
        let distance = match (stored(value)?, self.on_sphere) {
            (geometry, Some(centre)) => geometry.into_shape()?.angle(centre) * EARTH_RADIUS,
            (Geometry::Place(place), None) => place.distance(self.centre),
            (Geometry::Shape(_), None) => return None,
        };
        let is_within = self.least <= distance && self.most.is_none_or(|most| distance <= most);
        is_within.then_some(distance)
    }
}

fn parse(path: &Path, operators: &RawDocument) -> Read<Near> {
    let (mut limits, mut near) = (Limits::default(), None);
    for (name, value) in fields(operators) {
        match name {
            "$near" | "$nearSphere" if near.is_none() => near = Some((name, value)),
            _ if limits.take(name, value)? => {}
            _ => return Err(format!("invalid argument in geo near query: {name}")),
        }
    }
    let Some((name, value)) = near else {
        return Err("a distance needs $near or $nearSphere beside it".to_owned());
    };
    if let RawBsonRef::Document(document) = value
        && field(document, "$geometry").is_some()
    {
        for (name, value) in fields(document) {
            if name != "$geometry" && !limits.take(name, value)? {
                return Err(format!(
                    "geo near accepts just one argument when querying for a GeoJSON point. Extra field found: {name}"
                ));
            }
        }
        return limits.near(path, geometry_point(document)?, Unit::Metres);
    }
    if let RawBsonRef::Document(document) = value
        && field(document, "type").is_some()
    {
        let Geometry::Place(place) = geojson(document)? else {
            return Err(format!("$near requires a point, given {}", shown(value)));
        };
        return limits.near(path, place, Unit::Metres);
    }
    let centre = pair(value)?;
    if let Some(most) = numbers(value)?.get(2) {
        limits.take("$maxDistance", RawBsonRef::Double(*most))?;
    }
    let unit = if name == "$near" { Unit::Coordinates } else { Unit::Radians };
    limits.near(path, centre, unit)
}

/// The angle on the sphere from a place to the nearest one of a rectangle, in radians; all but that in degrees.
fn angle_to(x: f64, y: f64, rect: &Rect) -> f64 {
    let (low, high) = (rect.min_y, rect.max_y);
    if (rect.min_x..=rect.max_x).contains(&x) {
        return (low - y).max(y - high).max(0.0).to_radians();
    }
    let (place, (sin, cos)) = (Vector::of_degrees(x, y), y.to_radians().sin_cos());
    let to_edge = |edge: f64| {
        let angle = |latitude: f64| place.angle(Vector::of_degrees(edge, latitude));
        // The place of the edge's circle that is nearest, if it lies on the edge.
        let foot = sin.atan2(cos * (edge - x).to_radians().cos()).to_degrees();
        let ends = angle(low).min(angle(high));
        if (low..=high).contains(&foot) { ends.min(angle(foot)) } else { ends }
    };
    to_edge(rect.min_x).min(to_edge(rect.max_x))
}

/// The distances that stand beside a centre.
#[derive(Default)]
struct Limits {
    least: f64,
    most: Option<f64>,
}

impl Limits {
    /// Takes a limit. False if the field is none.
    fn take(&mut self, name: &str, value: RawBsonRef<'_>) -> Read<bool> {
        if name == "$uniqueDocs" {
            return Ok(true);
        }
        if !matches!(name, "$minDistance" | "$maxDistance") {
            return Ok(false);
        }
        let distance = to_double(value).ok_or_else(|| format!("{name} must be a number"))?;
        if distance.is_nan() || distance < 0.0 {
            return Err(format!("{name} must be non-negative"));
        }
        match name {
            "$minDistance" => self.least = distance,
            _ => self.most = Some(distance),
        }
        Ok(true)
    }

    fn near(self, path: &Path, centre: Place, unit: Unit) -> Read<Near> {
        let on_sphere = if unit == Unit::Coordinates { None } else { Some(on_sphere(centre)?) };
        let scale = if unit == Unit::Radians { EARTH_RADIUS } else { 1.0 };
        let (least, most) = (self.least * scale, self.most.map(|most| most * scale));
        Ok(Near { path: path.clone(), centre, on_sphere, unit, least, most })
    }
}

/// The point that the argument of `$near` names by `$geometry`.
fn geometry_point(document: &RawDocument) -> Read<Place> {
    let Some(RawBsonRef::Document(geometry)) = field(document, "$geometry") else {
        return Err("$geometry must be an object".to_owned());
    };
    match geojson(geometry) {
        Ok(Geometry::Place(place)) => Ok(place),
        Ok(Geometry::Shape(_)) => {
            let given = shown(RawBsonRef::Document(geometry));
            Err(format!("$near requires a point, given {given}"))
        }
        Err(why) => Err(format!("invalid point in geo near query $geometry argument: {why}")),
    }
}

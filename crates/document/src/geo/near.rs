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

    /// A distance that no geometry in a rectangle exceeds.
    #[must_use]
    pub fn farthest(&self, extent: &Rect) -> f64 {
        match self.on_sphere {
            Some(_) => std::f64::consts::PI * EARTH_RADIUS,
            None => {
                let square = extent.farthest_squared(self.centre.x, self.centre.y);
                // Rounding is no reason to miss one.
                if square.is_finite() { square.sqrt() * (1.0 + 1e-9) } else { f64::INFINITY }
            }
        }
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

//! Rectangles around geometries, for indexes: x and y, or longitude and latitude in degrees.
//!
//! Invariant: where a geometry of a document meets a condition, the rectangle of the document shares a point with
//! one of the rectangles of the condition. The other way round it may share one without meeting it.

use super::read::{stored, stored_or_error};
use super::ring::{Cap, Polygon};
use super::shape::{Geometry, Place, Shape};
use super::vector::{Arc, TOLERANCE, Vector};
use crate::error::DocumentError;
use crate::path::{Leaves, Path};
use crate::raw::elements;
use bson::raw::{RawBsonRef, RawDocument};
use remora_layout::rect::Rect;
use std::ops::ControlFlow;

const CANNOT_EXTRACT_GEO_KEYS: i32 = 16755;
const NOT_IN_INTERVAL: i32 = 13027;

/// Nearer to a pole than this, in degrees, all longitudes are taken.
const NEAR_POLE: f64 = 89.9;
/// What is added to each side on the sphere, degrees: more than the tolerance of comparisons comes to at
/// [`NEAR_POLE`].
const MARGIN: f64 = 1e-7;
/// The same in the plane, as a part of the coordinates.
const FLAT_MARGIN: f64 = 1e-12;
/// All of the sphere.
pub(super) const SPHERE: Rect = Rect { min_x: -180.0, max_x: 180.0, min_y: -90.0, max_y: 90.0 };
/// All of the plane.
pub(super) const PLANE: Rect =
    Rect { min_x: f64::MIN, max_x: f64::MAX, min_y: f64::MIN, max_y: f64::MAX };

/// Which geometries an index has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GeoKind {
    /// `2dsphere`: pairs of longitude and latitude, and GeoJSON.
    Sphere,
    /// `2d`: pairs of coordinates, each within these limits.
    Plane {
        /// The least coordinate.
        min: f64,
        /// The greatest one.
        max: f64,
    },
}

impl GeoKind {
    /// The rectangle that has all that may be in such an index.
    #[must_use]
    pub fn extent(self) -> Rect {
        match self {
            GeoKind::Sphere => SPHERE,
            GeoKind::Plane { min, max } => Rect { min_x: min, max_x: max, min_y: min, max_y: max },
        }
    }

    /// The rectangle around the geometries that a document has at a path. None without a geometry: where the
    /// field is missing, null or an array without elements.
    ///
    /// # Errors
    /// As MongoDB: a value at the path is no geometry, or none that an index of this kind can have.
    ///
    /// ```
    /// use bson::rawdoc;
    /// use remora_document::{GeoKind, Path};
    ///
    /// let (path, kind) = (Path::parse("at")?, GeoKind::Plane { min: -180.0, max: 180.0 });
    /// let rect = kind.rect(&path, &rawdoc! { "at": [[1, 2], [3, -4]] })?.expect("two places");
    /// assert_eq!((rect.min_x, rect.max_x, rect.min_y, rect.max_y), (1.0, 3.0, -4.0, 2.0));
    /// assert!(kind.rect(&path, &rawdoc! { "at": "here" }).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rect(self, path: &Path, document: &RawDocument) -> Result<Option<Rect>, DocumentError> {
        let (mut all, mut error) = (None, None);
        let _ = path.visit(document, Leaves::Whole, &mut |found| {
            let added = found.value().map_or(Ok(()), |value| self.add(value, &mut all));
            match added {
                Ok(()) => ControlFlow::Continue(()),
                Err(of) => {
                    error = Some(of);
                    ControlFlow::Break(())
                }
            }
        });
        error.map_or(Ok(all), Err)
    }

    /// Adds a value: a geometry, or an array of them.
    fn add(self, value: RawBsonRef<'_>, all: &mut Option<Rect>) -> Result<(), DocumentError> {
        if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) {
            return Ok(());
        }
        let mut take = |geometry: Geometry| {
            let own = self.of_geometry(geometry)?;
            *all = Some(all.map_or(own, |before| before.union(&own)));
            Ok(())
        };
        match (stored(value), value) {
            (Some(geometry), RawBsonRef::Array(pair)) => {
                take(geometry)?;
                // Filters look at the elements of any array, also of one that is a pair itself.
                let further = elements(pair).filter(|of| is_compound(*of)).filter_map(stored);
                further.into_iter().try_for_each(take)
            }
            (Some(geometry), _) => take(geometry),
            (None, RawBsonRef::Array(array)) if elements(array).all(is_compound) => {
                elements(array).try_for_each(|element| take(geometry_of(element)?))
            }
            (None, value) => geometry_of(value).and_then(take),
        }
    }

    fn of_geometry(self, geometry: Geometry) -> Result<Rect, DocumentError> {
        match (self, geometry) {
            (GeoKind::Plane { min, max }, Geometry::Place(Place { x, y })) => {
                if [x, y].iter().all(|at| (min..=max).contains(at)) {
                    return Ok(point(x, y));
                }
                let text = format!("point not in interval of [ {min}, {max} ]");
                Err(DocumentError::new(NOT_IN_INTERVAL, text))
            }
            (GeoKind::Plane { .. }, Geometry::Shape(_)) => {
                Err(cannot("a 2d index has pairs of coordinates only"))
            }
            (GeoKind::Sphere, Geometry::Place(place)) => match place.on_sphere() {
                Some(_) => Ok(point(place.x, place.y)),
                None => {
                    let Place { x, y } = place;
                    let text = format!("longitude/latitude is out of bounds, lng: {x} lat: {y}");
                    Err(cannot(text))
                }
            },
            (GeoKind::Sphere, Geometry::Shape(shape)) => Ok(Extent::of_shape(&shape).one()),
        }
    }
}

fn point(x: f64, y: f64) -> Rect {
    Rect { min_x: x, max_x: x, min_y: y, max_y: y }
}

fn is_compound(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::Document(_) | RawBsonRef::Array(_))
}

fn cannot(why: impl std::fmt::Display) -> DocumentError {
    DocumentError::new(CANNOT_EXTRACT_GEO_KEYS, format!("Can't extract geo keys: {why}"))
}

fn geometry_of(value: RawBsonRef<'_>) -> Result<Geometry, DocumentError> {
    stored_or_error(value).map_err(cannot)
}

/// The rectangle around a circle in the plane.
pub(super) fn around_circle(centre: Place, radius: f64) -> Rect {
    let by = |at: f64| radius + (at.abs() + radius) * FLAT_MARGIN;
    let (x, y) = (by(centre.x), by(centre.y));
    Rect {
        min_x: (centre.x - x).max(f64::MIN),
        max_x: (centre.x + x).min(f64::MAX),
        min_y: (centre.y - y).max(f64::MIN),
        max_y: (centre.y + y).min(f64::MAX),
    }
}

/// The rectangle around places in the plane.
pub(super) fn around_places(places: &[Place]) -> Rect {
    let mut all = places.iter().map(|place| point(place.x, place.y));
    let first = all.next().unwrap_or(PLANE);
    all.fold(first, |all, place| all.union(&place))
}

/// The rectangles around a circle on the sphere.
pub(super) fn around_cap(cap: Cap) -> Vec<Rect> {
    let (longitude, latitude) = cap.centre.degrees();
    let radius = (cap.radius + TOLERANCE).to_degrees();
    let mut extent = Extent::new(longitude, latitude);
    extent.latitudes(latitude - radius, latitude + radius);
    if latitude.abs() + radius > NEAR_POLE {
        extent.all_longitudes();
    } else {
        let ratio = radius.to_radians().sin() / latitude.to_radians().cos();
        let width = ratio.min(1.0).asin().to_degrees();
        extent.longitudes(longitude - width, longitude + width);
    }
    extent.windows()
}

/// The rectangles around a shape on the sphere.
pub(super) fn around_shape(shape: &Shape) -> Vec<Rect> {
    Extent::of_shape(shape).windows()
}

/// Degrees that something on the sphere takes. Longitudes may go beyond a half turn.
#[derive(Debug, Clone, Copy)]
struct Extent {
    from: (f64, f64),
    to: (f64, f64),
}

impl Extent {
    fn new(longitude: f64, latitude: f64) -> Self {
        let mut extent = Self { from: (longitude, latitude), to: (longitude, latitude) };
        extent.latitudes(latitude, latitude);
        extent
    }

    fn all_longitudes(&mut self) {
        (self.from.0, self.to.0) = (-180.0, 180.0);
    }

    fn longitudes(&mut self, from: f64, to: f64) {
        self.from.0 = self.from.0.min(from);
        self.to.0 = self.to.0.max(to);
    }

    fn latitudes(&mut self, from: f64, to: f64) {
        self.from.1 = self.from.1.min(from);
        self.to.1 = self.to.1.max(to);
        if self.from.1 < -NEAR_POLE || self.to.1 > NEAR_POLE {
            self.all_longitudes();
        }
    }

    fn of_shape(shape: &Shape) -> Self {
        let points = shape.points.iter().map(|at| {
            let (longitude, latitude) = at.degrees();
            Self::new(longitude, latitude)
        });
        let arcs = shape.arcs.iter().map(|arc| Self::of_arc(*arc));
        let polygons = shape.polygons.iter().map(Self::of_polygon);
        let all = points.chain(arcs).chain(polygons).reduce(Self::union);
        all.unwrap_or_else(|| Self::new(0.0, 0.0))
    }

    fn of_polygon(polygon: &Polygon) -> Self {
        let edges = polygon.arcs().map(|arc| Self::of_arc(*arc)).reduce(Self::union);
        let mut all = edges.unwrap_or_else(|| Self::new(0.0, 0.0));
        for pole in [-90.0, 90.0] {
            if polygon.contains(Vector::of_degrees(0.0, pole)) {
                all.latitudes(pole, pole);
            }
        }
        all
    }

    fn of_arc(arc: Arc) -> Self {
        /// Arcs that turn further pass near a pole, about.
        const WIDEST: f64 = 179.99;
        let ((from, start), (to, end)) = (arc.from.degrees(), arc.to.degrees());
        // The shorter way round.
        let turn = (to - from + 540.0).rem_euclid(360.0) - 180.0;
        let mut all = Self::new(from, start);
        all.latitudes(end, end);
        let top = Vector::of_degrees(0.0, 90.0);
        for pole in [top, -top] {
            // The place of the arc's circle that is nearest to the pole.
            let foot = (pole + arc.normal * -arc.normal.dot(pole)).unit();
            let highest = foot.filter(|_| arc.has_foot(pole)).map(Vector::degrees);
            if let Some((_, latitude)) = highest {
                all.latitudes(latitude, latitude);
            }
        }
        match turn.abs() < WIDEST {
            true => all.longitudes(from + turn.min(0.0), from + turn.max(0.0)),
            false => all.all_longitudes(),
        }
        all
    }

    /// Where longitudes of one of them go beyond a half turn, all are taken.
    fn union(self, other: Self) -> Self {
        let is_within = |of: &Self| of.from.0 >= -180.0 && of.to.0 <= 180.0;
        let mut all = self;
        all.longitudes(other.from.0, other.to.0);
        all.latitudes(other.from.1, other.to.1);
        if !is_within(&self) || !is_within(&other) {
            all.all_longitudes();
        }
        all
    }

    /// With a margin, in degrees of latitude and longitude.
    fn wider(self) -> Self {
        let (from, to) = (self.from, self.to);
        let from = (from.0 - MARGIN, (from.1 - MARGIN).max(-90.0));
        Self { from, to: (to.0 + MARGIN, (to.1 + MARGIN).min(90.0)) }
    }

    /// One rectangle around it.
    fn one(self) -> Rect {
        let Self { from, to } = self.wider();
        let all = Rect { min_x: from.0, max_x: to.0, min_y: from.1, max_y: to.1 };
        match from.0 < -180.0 || to.0 > 180.0 {
            true => Rect { min_x: -180.0, max_x: 180.0, ..all },
            false => all,
        }
    }

    /// Rectangles with all of it: two where longitudes go beyond a half turn.
    fn windows(self) -> Vec<Rect> {
        let Self { from, to } = self.wider();
        let rect = |from_x: f64, to_x: f64| Rect {
            min_x: from_x,
            max_x: to_x,
            min_y: from.1,
            max_y: to.1,
        };
        if to.0 - from.0 >= 360.0 {
            return vec![rect(-180.0, 180.0)];
        }
        if from.0 < -180.0 {
            return vec![rect(-180.0, to.0), rect(from.0 + 360.0, 180.0)];
        }
        if to.0 > 180.0 {
            return vec![rect(from.0, 180.0), rect(-180.0, to.0 - 360.0)];
        }
        vec![rect(from.0, to.0)]
    }
}

//! What a geometry is made of, and what two have to do with each other on the sphere.

use super::ring::{Cap, Polygon};
use super::steps::Steps;
use super::vector::{Arc, TOLERANCE, Vector};

/// A pair of coordinates: x and y, or longitude and latitude in degrees. Both are finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    pub(super) x: f64,
    pub(super) y: f64,
}

impl Place {
    /// The place on the sphere, if the coordinates are a longitude and a latitude.
    pub(super) fn on_sphere(self) -> Option<Vector> {
        let is_on_sphere = self.x.abs() <= 180.0 && self.y.abs() <= 90.0;
        is_on_sphere.then(|| Vector::of_degrees(self.x, self.y))
    }

    /// The distance in the plane.
    pub(super) fn distance(self, other: Place) -> f64 {
        (self.x - other.x).hypot(self.y - other.y)
    }
}

/// What a geometry of a document is.
#[derive(Debug, Clone)]
pub(super) enum Geometry {
    /// One place, which also lies in the plane.
    Place(Place),
    /// Anything else: on the sphere only.
    Shape(Shape),
}

/// Points, lines and polygons on the sphere.
#[derive(Debug, Clone, Default)]
pub(super) struct Shape {
    pub(super) points: Vec<Vector>,
    /// The arcs of all lines.
    pub(super) arcs: Vec<Arc>,
    pub(super) polygons: Vec<Polygon>,
}

impl Geometry {
    /// How many points it was made of, about.
    pub(super) fn size(&self) -> usize {
        match self {
            Geometry::Place(_) => 1,
            Geometry::Shape(shape) => shape.size(),
        }
    }

    /// The geometry on the sphere, if it lies there.
    pub(super) fn into_shape(self) -> Option<Shape> {
        match self {
            Geometry::Place(place) => {
                Some(Shape { points: vec![place.on_sphere()?], ..Shape::default() })
            }
            Geometry::Shape(shape) => Some(shape),
        }
    }
}

impl Shape {
    pub(super) fn append(&mut self, mut other: Shape) {
        self.points.append(&mut other.points);
        self.arcs.append(&mut other.arcs);
        self.polygons.append(&mut other.polygons);
    }

    /// Its arcs and the edges of its polygons.
    fn all_arcs(&self) -> impl Iterator<Item = &Arc> {
        self.arcs.iter().chain(self.polygons.iter().flat_map(Polygon::arcs))
    }

    fn contains(&self, place: Vector) -> bool {
        self.points.iter().any(|point| point.is_at(place))
            || self.arcs.iter().any(|arc| arc.contains(place))
            || self.polygons.iter().any(|polygon| polygon.contains(place))
    }

    /// Whether it shares a place with another one.
    pub(super) fn intersects(&self, other: &Shape) -> bool {
        let has_start = |own: &Shape, other: &Shape| {
            let starts = own.polygons.iter().filter_map(Polygon::start);
            let lines = own.arcs.iter().map(|arc| arc.from);
            own.points.iter().copied().chain(lines).chain(starts).any(|at| other.contains(at))
        };
        has_start(self, other)
            || has_start(other, self)
            || self.all_arcs().any(|arc| other.all_arcs().any(|with| arc.meets(*with)))
    }

    /// Whether each part of another one lies in one of its polygons.
    pub(super) fn covers(&self, other: &Shape, steps: &Steps) -> bool {
        let any = |holds: &dyn Fn(&Polygon) -> bool| self.polygons.iter().any(holds);
        let has_polygon = |inner| any(&|polygon| polygon.contains_polygon(inner, steps));
        other.points.iter().all(|point| any(&|polygon| polygon.contains(*point)))
            && other.arcs.iter().all(|arc| any(&|polygon| polygon.contains_arc(*arc, steps)))
            && other.polygons.iter().all(has_polygon)
    }

    /// Whether all of it lies in a circle.
    pub(super) fn is_in(&self, cap: Cap) -> bool {
        self.points.iter().all(|point| cap.contains(*point))
            && self.arcs.iter().all(|arc| cap.contains_arc(*arc))
            && self.polygons.iter().all(|polygon| cap.contains_polygon(polygon))
    }

    /// Whether it shares a place with a circle.
    pub(super) fn meets_cap(&self, cap: Cap) -> bool {
        self.angle(cap.centre) <= cap.radius + TOLERANCE
    }

    /// The angle from a place to the nearest one of it, in radians.
    pub(super) fn angle(&self, place: Vector) -> f64 {
        let points = self.points.iter().map(|point| point.angle(place));
        let arcs = self.arcs.iter().map(|arc| arc.angle(place));
        let polygons = self.polygons.iter().map(|polygon| polygon.angle(place));
        points.chain(arcs).chain(polygons).fold(f64::INFINITY, f64::min)
    }

    /// How many points it was made of, about.
    pub(super) fn size(&self) -> usize {
        self.points.len() + self.all_arcs().count()
    }
}

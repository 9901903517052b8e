//! Polygons on the sphere. Their edges are arcs of great circles, and belong to them.

use super::steps::Steps;
use super::vector::{Arc, TOLERANCE, Vector};

/// A closed line. Its inside is the smaller of the two parts into which it divides the sphere.
#[derive(Debug, Clone)]
pub(super) struct Ring {
    /// The inside is on the left.
    pub(super) arcs: Vec<Arc>,
}

/// Where a place lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Inside,
    Edge,
    Outside,
}

/// How many edges are tried as the end of a path whose crossings are counted.
const MOST_PATHS: usize = 8;
/// A path that ends nearer to an edge's circle than this is not used, radians.
const CLEAR: f64 = 1e-12;
/// How far from an edge a place inside is sought, as a part of the edge's length.
const INWARDS: f64 = 1e-4;

impl Ring {
    /// The ring through places, of which each two neighbours differ and are not opposite.
    pub(super) fn new(mut arcs: Vec<Arc>) -> Ring {
        // By Gauss and Bonnet the part on the left has the area 2 pi minus all turns.
        if turns(&arcs) < 0.0 {
            arcs.reverse();
            arcs.iter_mut().for_each(|arc| *arc = arc.reversed());
        }
        Ring { arcs }
    }

    fn position(&self, place: Vector) -> Position {
        if self.arcs.iter().any(|arc| arc.contains(place)) {
            return Position::Edge;
        }
        let paths = (0..self.arcs.len().min(MOST_PATHS)).find_map(|end| self.is_inside(place, end));
        if paths.unwrap_or(false) { Position::Inside } else { Position::Outside }
    }

    /// Whether a place lies inside, by the edges that the path to the middle of one edge crosses. None if
    /// that path does not say.
    fn is_inside(&self, place: Vector, end: usize) -> Option<bool> {
        let last = self.arcs.get(end)?;
        let middle = last.middle();
        let side = last.normal.dot(place);
        let normal = place.normal(middle).filter(|_| side.abs() > CLEAR)?;
        let mut is_inside = side > 0.0;
        for (at, arc) in self.arcs.iter().enumerate() {
            let [from, to] = [arc.from, arc.to].map(|end| normal.dot(end) >= 0.0);
            if at == end || from == to {
                continue;
            }
            // The two cross, and not in the opposite of a place of the other one.
            let [start, stop] = [place, middle].map(|end| arc.normal.dot(end) >= 0.0);
            is_inside ^= start == to && stop != to;
        }
        Some(is_inside)
    }
}

/// How far a ring turns to the left, in radians.
fn turns(arcs: &[Arc]) -> f64 {
    let next = arcs.iter().cycle().skip(1);
    let turn = |(one, two): (&Arc, &Arc)| {
        one.normal.cross(two.normal).dot(one.to).atan2(one.normal.dot(two.normal))
    };
    arcs.iter().zip(next).map(turn).sum()
}

/// An outer ring, and holes in it.
#[derive(Debug, Clone)]
pub(super) struct Polygon {
    pub(super) outer: Ring,
    pub(super) holes: Vec<Ring>,
}

impl Polygon {
    /// The edges of all rings.
    pub(super) fn arcs(&self) -> impl Iterator<Item = &Arc> {
        std::iter::once(&self.outer).chain(&self.holes).flat_map(|ring| &ring.arcs)
    }

    fn position(&self, place: Vector) -> Position {
        let mut position = self.outer.position(place);
        for hole in &self.holes {
            if position != Position::Inside {
                break;
            }
            position = match hole.position(place) {
                Position::Inside => Position::Outside,
                Position::Edge => Position::Edge,
                Position::Outside => Position::Inside,
            };
        }
        position
    }

    /// Whether a place lies in it or on an edge.
    pub(super) fn contains(&self, place: Vector) -> bool {
        self.position(place) != Position::Outside
    }

    /// Whether all of an arc lies in it. Once that has taken too many steps, nothing does.
    pub(super) fn contains_arc(&self, arc: Arc, steps: &Steps) -> bool {
        let edges = self.arcs().count();
        if !steps.take(2 * edges) || !self.contains(arc.from) || !self.contains(arc.to) {
            return false;
        }
        let mut places = Vec::new();
        for edge in self.arcs() {
            arc.meetings(*edge, &mut |place| places.push(place));
        }
        // An arc that meets many edges is divided into as many pieces.
        let mut pieces = arc.middles(&places).into_iter();
        pieces.all(|place| steps.take(edges) && self.contains(place))
    }

    /// Whether all of another polygon lies in it.
    pub(super) fn contains_polygon(&self, other: &Polygon, steps: &Steps) -> bool {
        if !other.arcs().all(|arc| self.contains_arc(*arc, steps)) {
            return false;
        }
        // No edge leaves it. So a hole of it lies in the other one, or has nothing of it.
        let edges = other.arcs().count();
        let has_hole_inside = self
            .holes
            .iter()
            .flat_map(|hole| &hole.arcs)
            .any(|arc| !steps.take(edges) || other.position(arc.middle()) == Position::Inside);
        let is_beside = other.inner_place().is_none_or(|place| self.contains(place));
        !has_hole_inside && is_beside
    }

    /// A place inside, near an edge.
    fn inner_place(&self) -> Option<Vector> {
        self.outer.arcs.iter().find_map(|arc| {
            let by = arc.from.angle(arc.to) * INWARDS;
            let place = (arc.middle() + arc.normal * by).unit()?;
            (self.position(place) == Position::Inside).then_some(place)
        })
    }

    /// A place of its edges.
    pub(super) fn start(&self) -> Option<Vector> {
        self.outer.arcs.first().map(|arc| arc.from)
    }

    /// The angle from a place to the polygon, in radians.
    pub(super) fn angle(&self, place: Vector) -> f64 {
        if self.contains(place) {
            return 0.0;
        }
        self.arcs().map(|arc| arc.angle(place)).fold(f64::INFINITY, f64::min)
    }
}

/// A circle on the sphere, and what lies in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cap {
    pub(super) centre: Vector,
    /// Radians.
    pub(super) radius: f64,
}

impl Cap {
    pub(super) fn contains(self, place: Vector) -> bool {
        self.centre.angle(place) <= self.radius + TOLERANCE
    }

    /// Whether all of an arc lies in it: no place of the arc is too near the opposite of the centre.
    pub(super) fn contains_arc(self, arc: Arc) -> bool {
        let farthest = std::f64::consts::PI - arc.angle(-self.centre);
        farthest <= self.radius + TOLERANCE
    }

    pub(super) fn contains_polygon(self, polygon: &Polygon) -> bool {
        let is_whole = self.radius >= std::f64::consts::PI;
        let has_edges = polygon.arcs().all(|arc| self.contains_arc(*arc));
        has_edges && (is_whole || !polygon.contains(-self.centre))
    }
}

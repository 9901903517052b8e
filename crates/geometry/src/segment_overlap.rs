//! What of a segment lies in polygons. All its crossings with edges are put in
//! order along it; how many of a polygon's follow tells of each place whether
//! it is inside. So no point between them has to be located.
//!
//! Which edges cross the segment, and in which direction, is told exactly, and
//! so is whether they do so before its start or beyond its end. The places of
//! the others are rounded.

use crate::orientation::{sides, steps};
use crate::parts::{Parts, Position};
use crate::segment::{Line, Segment};
use geo_types::Coord;

/// What is shorter than this, of its segment's length, is not looked at: it
/// comes from rounding.
const LEAST_STRETCH: f64 = 4.0 * f64::EPSILON;

/// A part of a segment: 0 is the segment's start, 1 its end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stretch {
    from: f64,
    to: f64,
}

/// All of a segment.
pub const WHOLE: Stretch = Stretch { from: 0.0, to: 1.0 };

/// What of a segment lies where among the edges of a geometry.
#[derive(Debug, Default)]
pub struct Along {
    /// Has a polygon's inside on its left, as near as one likes. In order and
    /// apart, if it is of one polygon.
    pub left: Vec<Stretch>,
    /// Lies on edges or lines.
    pub on_edges: Vec<Stretch>,
}

impl Along {
    /// Of a segment among a geometry's lines and polygons, or the edges of one
    /// of its polygons. Of one without extent all is where its point is.
    pub fn of(parts: &Parts, only: Option<u32>, segment: &Segment) -> Self {
        if segment.a == segment.b {
            return Self::of_point(parts, only, segment.a);
        }
        let (mut found, mut crossings) = (Self::default(), Vec::new());
        // Segments come in order, so a polygon's come together.
        let (mut current, mut line) = (None, Line::of(segment));
        parts.any_ahead(only, segment, |edge| {
            if edge.polygon != current {
                found.add_inside(&mut crossings);
                current = edge.polygon;
            }
            let (a, b) = line.sides(edge);
            if a == 0.0 && b == 0.0 {
                let (from, to) = (place(segment, edge.a), place(segment, edge.b));
                found.on_edges.push(Stretch { from: from.min(to), to: from.max(to) });
            } else if edge.polygon.is_some() && (a > 0.0) != (b > 0.0) {
                let is_right_on_line = a.min(b) == 0.0;
                let (right, left) = if a > 0.0 { (edge.b, edge.a) } else { (edge.a, edge.b) };
                crossings.extend(crossing(segment, right, left, is_right_on_line));
            }
            false
        });
        found.add_inside(&mut crossings);
        found
    }

    fn of_point(parts: &Parts, only: Option<u32>, point: Coord<f64>) -> Self {
        let position = match only {
            Some(_) => parts.locate(point, only),
            None if parts.has(point) => Position::Boundary,
            None => Position::Outside,
        };
        let (left, on_edges) = match position {
            Position::Inside => (vec![WHOLE], Vec::new()),
            Position::Boundary => (Vec::new(), vec![WHOLE]),
            Position::Outside => (Vec::new(), Vec::new()),
        };
        Self { left, on_edges }
    }

    /// Adds what is inside of a polygon whose edges cross at these places.
    /// Takes them away.
    fn add_inside(&mut self, crossings: &mut Vec<f64>) {
        // Beyond the last one is the outside.
        if crossings.len() % 2 == 1 {
            crossings.push(0.0);
        }
        self.left.append(&mut between(crossings));
        crossings.clear();
    }

    /// What has the inside of the one polygon on its right: as on the left, but
    /// for places between which an odd number of edges lie.
    pub fn right(&self) -> Vec<Stretch> {
        let stretches = self.left.iter().chain(&self.on_edges);
        between(&mut stretches.flat_map(|stretch| [stretch.from, stretch.to]).collect::<Vec<_>>())
    }

    /// Whether all of the segment lies in polygons, or on edges or lines.
    pub fn holds_whole(mut self) -> bool {
        self.left.append(&mut self.on_edges);
        is_covered(&[WHOLE], self.left)
    }
}

/// The stretches between the first and the second of an even number of places,
/// the third and the fourth, and so on.
fn between(places: &mut [f64]) -> Vec<Stretch> {
    steps(places.len());
    places.sort_unstable_by(f64::total_cmp);
    let pairs = places.as_chunks::<2>().0.iter();
    pairs.filter(|[from, to]| from < to).map(|&[from, to]| Stretch { from, to }).collect()
}

/// Where on the segment a point of its line lies; its nearer end for one
/// before or beyond it.
fn place(segment: &Segment, point: Coord<f64>) -> f64 {
    let (p, q) = (segment.a, segment.b);
    let (dx, dy) = (q.x - p.x, q.y - p.y);
    let t = if dx.abs() >= dy.abs() { (point.x - p.x) / dx } else { (point.y - p.y) / dy };
    t.clamp(0.0, 1.0)
}

/// Where an edge that has its ends right of a segment's line, or on it, and
/// left of it crosses the segment; its end if beyond. `None`: at or before its
/// start.
fn crossing(
    segment: &Segment,
    right: Coord<f64>,
    left: Coord<f64>,
    is_right_on_line: bool,
) -> Option<f64> {
    let (start, end) = sides(right, left, segment.a, segment.b);
    if start <= 0.0 {
        return None;
    }
    if end >= 0.0 {
        return Some(1.0);
    }
    let (one, two) = (place(segment, right), place(segment, left));
    if is_right_on_line {
        return Some(one);
    }
    Some((start / (start - end)).clamp(one.min(two), one.max(two)))
}

/// What of some stretches is long enough to be looked at.
pub fn wide(mut stretches: Vec<Stretch>) -> Vec<Stretch> {
    stretches.retain(|stretch| stretch.to - stretch.from > LEAST_STRETCH);
    stretches
}

/// Whether all of `wanted` lies in some of `by`. What is wanted is in order,
/// apart and wide. Its length hardly counts: it is searched for gaps of `by`.
pub fn is_covered(wanted: &[Stretch], mut by: Vec<Stretch>) -> bool {
    steps(by.len());
    by.sort_unstable_by(|one, two| one.from.total_cmp(&two.from));
    let is_free = |from: f64, to: f64| {
        let next = wanted.partition_point(|stretch| stretch.to <= from + LEAST_STRETCH);
        wanted
            .get(next)
            .is_none_or(|stretch| stretch.to.min(to) - stretch.from.max(from) <= LEAST_STRETCH)
    };
    let mut reached = 0.0_f64;
    let free_between = by.iter().all(|stretch| {
        let is_free = stretch.from <= reached || is_free(reached, stretch.from);
        reached = reached.max(stretch.to);
        is_free
    });
    free_between && is_free(reached, 1.0)
}

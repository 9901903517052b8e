//! Segments: their boxes, distances, and the sides of their lines.

use crate::orientation::{orientation, steps};
use geo_types::Coord;
use remora_layout::rect::Rect;

/// A square of a distance that has not lost digits.
const LEAST_SQUARE: f64 = 1e-280;

/// A segment, a line's or a polygon's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Segment {
    pub a: Coord<f64>,
    pub b: Coord<f64>,
    /// The polygon whose ring it is in.
    pub polygon: Option<u32>,
}

pub fn rect_of(a: Coord<f64>, b: Coord<f64>) -> Rect {
    Rect { min_x: a.x.min(b.x), max_x: a.x.max(b.x), min_y: a.y.min(b.y), max_y: a.y.max(b.y) }
}

impl Segment {
    pub fn rect(&self) -> Rect {
        rect_of(self.a, self.b)
    }

    /// Whether a point lies on it.
    pub fn has(&self, point: Coord<f64>) -> bool {
        self.rect().intersects(&rect_of(point, point)) && orientation(self.a, self.b, point) == 0.0
    }

    /// Whether two segments that do not meet are at most so far apart.
    pub fn is_near(&self, other: &Self, most: f64) -> bool {
        other.is_near_point(self.a, most)
            || other.is_near_point(self.b, most)
            || self.is_near_point(other.a, most)
            || self.is_near_point(other.b, most)
    }

    fn is_near_point(&self, point: Coord<f64>, most: f64) -> bool {
        steps(1);
        let (dx, dy) = (self.b.x - self.a.x, self.b.y - self.a.y);
        let along = (point.x - self.a.x) * dx + (point.y - self.a.y) * dy;
        // Of a segment without extent not a number: then its ends are all.
        let t = (along / (dx * dx + dy * dy)).clamp(0.0, 1.0);
        let t = if t.is_nan() { 0.0 } else { t };
        let (x, y) = (point.x - (self.a.x + t * dx), point.y - (self.a.y + t * dy));
        // Squares tell of most that they are too far, and cost less than a root.
        let square = x * x + y * y;
        let is_clear = square > LEAST_SQUARE && square > most * most * (1.0 + 1e-12);
        !is_clear && x.hypot(y) <= most
    }
}

/// A segment's line, on whose sides the ends of other segments lie: of those
/// that follow each other an end is looked at once.
pub struct Line<'a> {
    segment: &'a Segment,
    last: Option<(Coord<f64>, f64)>,
}

impl<'a> Line<'a> {
    pub fn of(segment: &'a Segment) -> Self {
        Self { segment, last: None }
    }

    /// On which sides the ends of a segment lie, as [`side`] tells.
    pub fn sides(&mut self, other: &Segment) -> (f64, f64) {
        let side = |point| orientation(self.segment.a, self.segment.b, point);
        let known = self.last.filter(|(point, _)| *point == other.a);
        let a = known.map_or_else(|| side(other.a), |(_, known)| known);
        let b = side(other.b);
        self.last = Some((other.b, b));
        (a, b)
    }

    /// Whether the segment shares a point with another one whose box meets its.
    pub fn meets(&mut self, other: &Segment) -> bool {
        // If neither lies on one side of the other they cross, or all four ends
        // are on one line, and then their boxes have told.
        let is_one = |(a, b): (f64, f64)| (a > 0.0 && b > 0.0) || (a < 0.0 && b < 0.0);
        !is_one(self.sides(other)) && !is_one(Line::of(other).sides(self.segment))
    }
}

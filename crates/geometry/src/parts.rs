//! A geometry as the predicates see it: segments in their order, with boxes
//! over runs of them, so that those near a place are found without looking at
//! all. A point is a segment without extent.

use crate::orientation::{look, orientation};
use crate::segment::{Segment, rect_of};
use geo_types::{Coord, Geometry, LineString, Polygon};
use remora_layout::rect::Rect;
use std::ops::Range;

/// Segments, or boxes, under one box.
const RUN: usize = 8;

/// Where a point lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    Outside,
    Boundary,
    Inside,
}

/// Where a polygon's segments are, and their box.
#[derive(Clone, PartialEq, Debug)]
struct Edges {
    range: Range<usize>,
    rect: Rect,
}

/// A geometry's segments, and where its parts begin.
#[derive(Clone, PartialEq, Debug)]
pub struct Parts {
    segments: Vec<Segment>,
    /// Boxes over runs of segments, then over runs of those, to one.
    boxes: Vec<Vec<Rect>>,
    /// A point of each point, line and polygon.
    starts: Vec<Coord<f64>>,
    polygons: Vec<Edges>,
}

impl Parts {
    pub fn of(geometry: &Geometry<f64>) -> Self {
        let mut parts = Self {
            segments: Vec::new(),
            boxes: Vec::new(),
            starts: Vec::new(),
            polygons: Vec::new(),
        };
        parts.add(geometry);
        let rects: Vec<Rect> = parts.segments.iter().map(Segment::rect).collect();
        let mut level = joined(&rects);
        while level.len() > 1 {
            let above = joined(&level);
            parts.boxes.push(std::mem::replace(&mut level, above));
        }
        parts.boxes.push(level);
        parts
    }

    fn add(&mut self, geometry: &Geometry<f64>) {
        match geometry {
            Geometry::Point(point) => self.line(&[point.0, point.0]),
            Geometry::LineString(line) => self.line(&line.0),
            Geometry::Polygon(polygon) => self.polygon(polygon),
            Geometry::MultiPoint(all) => all.0.iter().for_each(|point| {
                self.line(&[point.0, point.0]);
            }),
            Geometry::MultiLineString(all) => all.0.iter().for_each(|line| self.line(&line.0)),
            Geometry::MultiPolygon(all) => {
                all.0.iter().for_each(|polygon| self.polygon(polygon));
            }
            Geometry::GeometryCollection(all) => all.0.iter().for_each(|member| self.add(member)),
            Geometry::Line(_) | Geometry::Rect(_) | Geometry::Triangle(_) => {
                unreachable!("no checked geometry has one")
            }
        }
    }

    fn line(&mut self, coords: &[Coord<f64>]) {
        self.starts.extend(coords.first());
        self.segments.extend(coords.windows(2).map(|ends| Segment {
            a: ends[0],
            b: ends[1],
            polygon: None,
        }));
    }

    fn polygon(&mut self, polygon: &Polygon<f64>) {
        let (from, number) = (self.segments.len(), self.polygons.len() as u32);
        self.starts.extend(polygon.exterior().0.first());
        self.ring(polygon.exterior(), number);
        polygon.interiors().iter().for_each(|ring| self.ring(ring, number));
        let range = from..self.segments.len();
        let rects = self.segments[range.clone()].iter().map(Segment::rect);
        let rect = rects.reduce(|all, rect| all.union(&rect)).expect("a ring has segments");
        self.polygons.push(Edges { range, rect });
    }

    fn ring(&mut self, ring: &LineString<f64>, polygon: u32) {
        let polygon = Some(polygon);
        self.segments.extend(ring.0.windows(2).map(|ends| Segment {
            a: ends[0],
            b: ends[1],
            polygon,
        }));
    }

    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub fn starts(&self) -> &[Coord<f64>] {
        &self.starts
    }

    /// The numbers of its polygons.
    pub fn polygons(&self) -> Range<u32> {
        0..self.polygons.len() as u32
    }

    /// A polygon's segments.
    pub fn edges(&self, polygon: u32) -> &[Segment] {
        &self.segments[self.polygons[polygon as usize].range.clone()]
    }

    /// A polygon's box.
    pub fn rect_of_polygon(&self, polygon: u32) -> Rect {
        self.polygons[polygon as usize].rect
    }

    /// Hands the segments whose boxes meet the window to `each`, in order,
    /// until it says that it is enough: all of them, or those of one polygon.
    /// Whether it did.
    pub fn any_near(
        &self,
        only: Option<u32>,
        window: &Rect,
        each: impl FnMut(&Segment) -> bool,
    ) -> bool {
        self.any_in(only, window, |_| true, each)
    }

    /// The same for the segments that a ray from a segment's start through its
    /// end may meet, and some others.
    pub fn any_ahead(
        &self,
        only: Option<u32>,
        along: &Segment,
        each: impl FnMut(&Segment) -> bool,
    ) -> bool {
        let (p, q) = (along.a, along.b);
        let reach = |from: f64, to: f64| {
            (
                if to < from { f64::NEG_INFINITY } else { from },
                if to > from { f64::INFINITY } else { from },
            )
        };
        let ((min_x, max_x), (min_y, max_y)) = (reach(p.x, q.x), reach(p.y, q.y));
        let (is_right, is_up) = (q.x > p.x, q.y > p.y);
        let is_crossed = |rect: &Rect| {
            let (left, right) =
                if is_up { (rect.min_x, rect.max_x) } else { (rect.max_x, rect.min_x) };
            let (above, below) =
                if is_right { (rect.max_y, rect.min_y) } else { (rect.min_y, rect.max_y) };
            orientation(p, q, Coord { x: left, y: above }) >= 0.0
                && orientation(p, q, Coord { x: right, y: below }) <= 0.0
        };
        self.any_in(only, &Rect { min_x, max_x, min_y, max_y }, is_crossed, each)
    }

    /// Hands on the segments whose boxes meet the window, but for some under
    /// boxes that are not wanted.
    fn any_in(
        &self,
        only: Option<u32>,
        window: &Rect,
        is_wanted: impl Fn(&Rect) -> bool,
        mut each: impl FnMut(&Segment) -> bool,
    ) -> bool {
        let range = match only {
            Some(polygon) => self.polygons[polygon as usize].range.clone(),
            None => 0..self.segments.len(),
        };
        let mut each = |at: usize| {
            look();
            let segment = &self.segments[at];
            range.contains(&at) && segment.rect().intersects(window) && each(segment)
        };
        if range.len() <= 2 * RUN {
            return range.clone().any(each);
        }
        let is_wanted = |level: usize, at: usize| {
            look();
            let (span, rect) = (RUN.pow(level as u32), &self.boxes[level - 1][at]);
            let in_range = at * span < range.end && range.start < (at + 1) * span;
            in_range && rect.intersects(window) && is_wanted(rect)
        };
        self.any_below(self.boxes.len(), 0, &is_wanted, &mut each)
    }

    /// The same under one box, of a level counted from the segments.
    fn any_below(
        &self,
        level: usize,
        at: usize,
        is_wanted: &impl Fn(usize, usize) -> bool,
        each: &mut impl FnMut(usize) -> bool,
    ) -> bool {
        if level == 0 {
            return each(at);
        }
        if !is_wanted(level, at) {
            return false;
        }
        let below = if level == 1 { self.segments.len() } else { self.boxes[level - 2].len() };
        (at * RUN..below.min((at + 1) * RUN))
            .any(|child| self.any_below(level - 1, child, is_wanted, each))
    }

    /// Where a point lies among the polygons, or in relation to one of them.
    /// Inside is what an odd number of a polygon's edges has on one side: a
    /// valid polygon's interior.
    pub fn locate(&self, point: Coord<f64>, only: Option<u32>) -> Position {
        let ray = Rect { min_x: point.x, max_x: f64::INFINITY, min_y: point.y, max_y: point.y };
        // Segments come in order, so a polygon's come together.
        let (mut current, mut odd, mut on) = (None, false, false);
        let (mut inside, mut boundary) = (false, false);
        self.any_near(only, &ray, |segment| {
            if segment.polygon.is_none() {
                return false;
            }
            if segment.polygon != current {
                inside |= odd && !on;
                boundary |= on;
                (current, odd, on) = (segment.polygon, false, false);
            }
            on |= segment.has(point);
            let (a, b) = (segment.a, segment.b);
            if (a.y <= point.y) != (b.y <= point.y) {
                let (low, high) = if a.y < b.y { (a, b) } else { (b, a) };
                odd ^= orientation(low, high, point) > 0.0;
            }
            inside
        });
        inside |= odd && !on;
        boundary |= on;
        match (inside, boundary) {
            (true, _) => Position::Inside,
            (false, true) => Position::Boundary,
            (false, false) => Position::Outside,
        }
    }

    /// Whether a point is one of the geometry's.
    pub fn has(&self, point: Coord<f64>) -> bool {
        self.any_near(None, &rect_of(point, point), |segment| segment.has(point))
            || self.locate(point, None) != Position::Outside
    }
}

/// Boxes over runs of boxes.
fn joined(rects: &[Rect]) -> Vec<Rect> {
    let of_run = |run: &[Rect]| run[1..].iter().fold(run[0], |all, rect| all.union(rect));
    rects.chunks(RUN).map(of_run).collect()
}

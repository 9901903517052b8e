//! What two geometries have to do with each other, as sets of points of the
//! plane; edges belong to a polygon. Sides are told exactly, so that shapes
//! that share coordinates meet where they do. Where an edge crosses another
//! one between its ends, the place is rounded.

use crate::Shape;
use crate::parts::{Parts, Position, Segment, rect_of, side};
use geo_types::Coord;
use remora_layout::rect::Rect;

/// Parts of a segment shorter than this, of its length, are not looked at:
/// they come from rounding.
const LEAST_PIECE: f64 = 4.0 * f64::EPSILON;

/// Whether the two share a point (OGC's *intersects*).
pub fn intersects(a: &Shape, b: &Shape) -> bool {
    if !a.bounds().intersects(&b.bounds()) {
        return false;
    }
    let (a, b) = (a.parts(), b.parts());
    // Each part of one that lies in a polygon of the other has its start there.
    let begins_in = |inner: &Parts, outer: &Parts| {
        let mut starts = inner.starts().iter();
        starts.any(|&start| outer.locate(start, None) != Position::Outside)
    };
    a.segments().iter().any(|one| b.any_near(None, &one.rect(), |two| one.meets(two)))
        || begins_in(a, b)
        || begins_in(b, a)
}

/// Whether every point of `inner` is one of `outer` (OGC's *covers*). A polygon
/// has to lie in one polygon: several that share an edge are not one.
pub fn covers(outer: &Shape, inner: &Shape) -> bool {
    if !outer.bounds().contains(&inner.bounds()) {
        return false;
    }
    let (outer, inner) = (outer.parts(), inner.parts());
    let mut lines = inner.segments().iter().filter(|segment| segment.polygon.is_none());
    lines.all(|segment| has_segment(outer, None, segment))
        && (0..inner.polygons().len() as u32).all(|polygon| has_polygon(outer, inner, polygon))
}

/// Whether the two have points at most so far apart.
pub fn is_near(a: &Shape, b: &Shape, most: f64) -> bool {
    if !inflated(&a.bounds(), most).intersects(&b.bounds()) {
        return false;
    }
    intersects(a, b)
        || a.parts().segments().iter().any(|one| {
            let window = inflated(&one.rect(), most);
            b.parts().any_near(None, &window, |two| one.distance(two) <= most)
        })
}

/// The rectangle and what lies at most so far from it, and a little more.
pub fn inflated(rect: &Rect, by: f64) -> Rect {
    let finite = |edge: f64| edge.clamp(f64::MIN, f64::MAX);
    Rect {
        min_x: finite((rect.min_x - by).next_down()),
        max_x: finite((rect.max_x + by).next_up()),
        min_y: finite((rect.min_y - by).next_down()),
        max_y: finite((rect.max_y + by).next_up()),
    }
}

/// Whether every point of a segment is one of the geometry's, or of one of its
/// polygons.
fn has_segment(parts: &Parts, only: Option<u32>, segment: &Segment) -> bool {
    if segment.a == segment.b {
        return match only {
            Some(_) => parts.locate(segment.a, only) != Position::Outside,
            None => parts.has(segment.a),
        };
    }
    all_pieces(parts, only, segment, |middle, on_edge| {
        on_edge || parts.locate(middle, only) != Position::Outside
    })
}

/// Whether a polygon of `inner` lies in one of `outer`. One without an inside
/// is its edges.
fn has_polygon(outer: &Parts, inner: &Parts, polygon: u32) -> bool {
    let own = edges(inner, polygon);
    let Some(inside) = point_inside(inner, polygon) else {
        return own.iter().all(|edge| has_segment(outer, None, edge));
    };
    (0..outer.polygons().len() as u32).any(|way| is_in_polygon(outer, way, inner, polygon, inside))
}

fn edges(parts: &Parts, polygon: u32) -> &[Segment] {
    &parts.segments()[parts.polygons()[polygon as usize].clone()]
}

/// Whether a polygon of `inner`, with a point that is inside of it, lies in one
/// of `outer`.
fn is_in_polygon(outer: &Parts, way: u32, inner: &Parts, polygon: u32, inside: Coord<f64>) -> bool {
    edges(inner, polygon).iter().all(|edge| has_segment(outer, Some(way), edge))
        // No edge goes through it, a hole's neither.
        && edges(outer, way).iter().all(|edge| {
            all_pieces(inner, Some(polygon), edge, |middle, on_edge| {
                on_edge || inner.locate(middle, Some(polygon)) != Position::Inside
            })
        })
        // It is not what a hole is.
        && outer.locate(inside, Some(way)) != Position::Outside
}

/// Cuts a segment where edges of the geometry, or of one of its polygons, meet
/// it; hands over the middle of each piece, and whether the piece lies on an
/// edge. Whether `holds` held for all.
fn all_pieces(
    parts: &Parts,
    only: Option<u32>,
    segment: &Segment,
    holds: impl Fn(Coord<f64>, bool) -> bool,
) -> bool {
    let (p, q) = (segment.a, segment.b);
    let (dx, dy) = (q.x - p.x, q.y - p.y);
    // How far along a point on the segment lies.
    let along = |c: Coord<f64>| {
        let t = if dx.abs() >= dy.abs() { (c.x - p.x) / dx } else { (c.y - p.y) / dy };
        if t.is_nan() { 0.0 } else { t.clamp(0.0, 1.0) }
    };
    let (mut cuts, mut on_edge) = (vec![0.0, 1.0], Vec::new());
    parts.any_near(only, &rect_of(p, q), |edge| {
        let (a, b) = (side(p, q, edge.a), side(p, q, edge.b));
        if a == 0.0 && b == 0.0 {
            let (from, to) = (along(edge.a), along(edge.b));
            cuts.extend([from, to]);
            on_edge.push((from.min(to), from.max(to)));
        } else if a == 0.0 {
            cuts.push(along(edge.a));
        } else if b == 0.0 {
            cuts.push(along(edge.b));
        } else if (a > 0.0) != (b > 0.0) {
            let (from, to) = (side(edge.a, edge.b, p), side(edge.a, edge.b, q));
            // Its ends on both sides of the edge, or on it.
            if from == 0.0 || to == 0.0 || (from > 0.0) != (to > 0.0) {
                cuts.push((from / (from - to)).clamp(0.0, 1.0));
            }
        }
        false
    });
    cuts.sort_unstable_by(f64::total_cmp);
    cuts.windows(2).all(|ends| {
        let (from, to) = (ends[0], ends[1]);
        if to - from <= LEAST_PIECE {
            return true;
        }
        let half = f64::midpoint(from, to);
        let middle = Coord { x: p.x + half * dx, y: p.y + half * dy };
        holds(middle, on_edge.iter().any(|&(low, high)| low <= from && to <= high))
    })
}

/// A point inside of a polygon; `None` if no line across it finds one. Lines
/// are drawn between its corners, from below; the first does as a rule.
fn point_inside(parts: &Parts, polygon: u32) -> Option<Coord<f64>> {
    let edges = edges(parts, polygon);
    let mut heights: Vec<f64> = edges.iter().map(|edge| edge.a.y).collect();
    heights.sort_unstable_by(f64::total_cmp);
    heights.dedup();
    heights.windows(2).find_map(|ends| {
        let y = f64::midpoint(ends[0], ends[1]);
        let mut crossings: Vec<f64> = edges
            .iter()
            .filter(|edge| (edge.a.y <= y) != (edge.b.y <= y))
            .map(|Segment { a, b, .. }| a.x + (b.x - a.x) * ((y - a.y) / (b.y - a.y)))
            .collect();
        crossings.sort_unstable_by(f64::total_cmp);
        let pairs = crossings.as_chunks::<2>().0.iter();
        let [from, to] =
            *pairs.max_by(|one, two| (one[1] - one[0]).total_cmp(&(two[1] - two[0])))?;
        let middle = Coord { x: f64::midpoint(from, to), y };
        (parts.locate(middle, Some(polygon)) == Position::Inside).then_some(middle)
    })
}

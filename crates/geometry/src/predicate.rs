//! What two geometries have to do with each other, as sets of points of the
//! plane; edges belong to a polygon. Sides are told exactly, so that shapes
//! that share coordinates meet where they do. Where an edge crosses another
//! one between its ends, the place is rounded.
//!
//! What it keeps true: of two geometries that together have n coordinates each
//! pair of segments is looked at a small number of times, whatever they look
//! like (`hostile.rs`).

use crate::Shape;
use crate::along::{Along, is_covered, wide};
use crate::parts::{Parts, Position};
use crate::side::Line;
use remora_layout::rect::Rect;
use std::cell::LazyCell;

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
    let meets_any = |one| {
        let mut line = Line::of(one);
        b.any_near(None, &one.rect(), |two| line.meets(two))
    };
    a.segments().iter().any(meets_any) || begins_in(a, b) || begins_in(b, a)
}

/// Whether every point of `inner` is one of `outer` (OGC's *covers*). A polygon
/// has to lie in one polygon: several that share an edge are not one.
pub fn covers(outer: &Shape, inner: &Shape) -> bool {
    if !outer.bounds().contains(&inner.bounds()) {
        return false;
    }
    let (outer, inner) = (outer.parts(), inner.parts());
    let mut lines = inner.segments().iter().filter(|segment| segment.polygon.is_none());
    lines.all(|segment| Along::of(outer, None, segment).holds_whole())
        && inner.polygons().all(|polygon| has_polygon(outer, inner, polygon))
}

/// Whether the two have points at most so far apart.
pub fn is_near(a: &Shape, b: &Shape, most: f64) -> bool {
    if !inflated(&a.bounds(), most).intersects(&b.bounds()) {
        return false;
    }
    intersects(a, b)
        || a.parts().segments().iter().any(|one| {
            let window = inflated(&one.rect(), most);
            b.parts().any_near(None, &window, |two| one.is_near(two, most))
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

/// Whether a polygon of `inner` lies in one of `outer`. One without an inside
/// is its edges.
fn has_polygon(outer: &Parts, inner: &Parts, polygon: u32) -> bool {
    let (own, rect) = (inner.edges(polygon), inner.rect_of_polygon(polygon));
    let ways = outer.polygons().filter(|&way| outer.rect_of_polygon(way).contains(&rect));
    has_edges(outer, ways.collect(), inner, polygon)
        .into_iter()
        .any(|way| is_uncut(outer, way, inner, polygon))
        || (!has_inside(inner, polygon)
            && own.iter().all(|edge| Along::of(outer, None, edge).holds_whole()))
}

/// Those of some polygons of `outer` that have all edges of a polygon of
/// `inner`, and the inside where the edges have theirs.
fn has_edges(outer: &Parts, mut ways: Vec<u32>, inner: &Parts, polygon: u32) -> Vec<u32> {
    for edge in inner.edges(polygon) {
        // What does not depend on the way is found once.
        let own = LazyCell::new(|| {
            let along = Along::of(inner, Some(polygon), edge);
            let right = wide(along.right());
            (wide(along.left), right)
        });
        ways.retain(|&way| {
            let along = Along::of(outer, Some(way), edge);
            let is_beside_inside = along.on_edges.is_empty()
                || (is_covered(&own.0, along.left.clone()) && is_covered(&own.1, along.right()));
            is_beside_inside && along.holds_whole()
        });
    }
    ways
}

/// Whether no edge of a polygon of `outer`, a hole's neither, goes through the
/// inside of a polygon of `inner`.
fn is_uncut(outer: &Parts, way: u32, inner: &Parts, polygon: u32) -> bool {
    let rect = inner.rect_of_polygon(polygon);
    let mut near = outer.edges(way).iter().filter(|edge| edge.rect().intersects(&rect));
    near.all(|edge| {
        let along = Along::of(inner, Some(polygon), edge);
        is_covered(&wide(along.left), along.on_edges)
    })
}

/// Whether there is a place beside an edge that is inside.
fn has_inside(parts: &Parts, polygon: u32) -> bool {
    // One without extent has no sides.
    let mut edges = parts.edges(polygon).iter().filter(|edge| edge.a != edge.b);
    edges.any(|edge| {
        let along = Along::of(parts, Some(polygon), edge);
        let right = along.right();
        !wide(along.left).is_empty() || !wide(right).is_empty()
    })
}

//! What two geometries have to do with each other, as sets of points of the
//! plane; edges belong to a polygon. Sides are told exactly, so that shapes
//! that share coordinates meet where they do. Where an edge crosses another
//! one between its ends, the place is rounded.
//!
//! A comparison is a state machine, so that it can pause: it looks at one segment
//! after the other, and each at most at all segments of both.
//!
//! What it keeps true: of two geometries that together have n coordinates each
//! pair of segments is looked at a small number of times, whatever they look
//! like (`hostile.rs`).

use crate::orientation::{steps, work_done};
use crate::parts::{Parts, Position};
use crate::segment::Line;
use crate::segment_overlap::{Along, is_covered, wide};
use remora_layout::rect::Rect;
use std::cell::LazyCell;

/// When a turn ends: once this thread has done so much work.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    until: u64,
}

impl Budget {
    /// So much more work: sides told, boxes and segments looked at.
    pub fn of(work: u64) -> Self {
        Self { until: work_done().saturating_add(work) }
    }

    fn is_spent(self) -> bool {
        steps(1);
        work_done() > self.until
    }
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

/// Whether the two share a point (OGC's *intersects*).
#[derive(Clone, Copy, Debug)]
pub enum Intersects {
    /// Segments of the first that are looked at.
    Segments(usize),
    /// Each part of one that lies in a polygon of the other has its start there:
    /// those of the first.
    FirstStarts(usize),
    /// Those of the second.
    SecondStarts(usize),
}

impl Intersects {
    /// Goes on. `None` if the budget is spent.
    pub fn turn(&mut self, a: &Parts, b: &Parts, budget: Budget) -> Option<bool> {
        // Bounded: each round looks at one segment or start.
        while !budget.is_spent() {
            let (holds, next) = match *self {
                Self::Segments(at) => match a.segments().get(at) {
                    Some(one) => {
                        let mut line = Line::of(one);
                        let meets = b.any_near(None, &one.rect(), |two| line.meets(two));
                        (meets, Self::Segments(at + 1))
                    }
                    None => (false, Self::FirstStarts(0)),
                },
                Self::FirstStarts(at) => match begins_in(a, at, b) {
                    Some(holds) => (holds, Self::FirstStarts(at + 1)),
                    None => (false, Self::SecondStarts(0)),
                },
                Self::SecondStarts(at) => match begins_in(b, at, a) {
                    Some(holds) => (holds, Self::SecondStarts(at + 1)),
                    None => return Some(false),
                },
            };
            if holds {
                return Some(true);
            }
            *self = next;
        }
        None
    }
}

/// Whether the start of a part lies in a polygon of another geometry; `None` if
/// there is no such part.
fn begins_in(inner: &Parts, at: usize, outer: &Parts) -> Option<bool> {
    let start = *inner.starts().get(at)?;
    Some(outer.locate(start, None) != Position::Outside)
}

/// Whether the two have points at most so far apart.
#[derive(Clone, Copy, Debug)]
pub enum IsNear {
    /// They may share one.
    Meets(Intersects),
    /// Segments of the first that are looked at.
    Segments(usize),
}

impl IsNear {
    /// Goes on. `None` if the budget is spent.
    pub fn turn(&mut self, a: &Parts, b: &Parts, most: f64, budget: Budget) -> Option<bool> {
        if let Self::Meets(meets) = self {
            if meets.turn(a, b, budget)? {
                return Some(true);
            }
            *self = Self::Segments(0);
        }
        // Bounded: each round looks at one segment.
        while !budget.is_spent() {
            let Self::Segments(at) = self else { return None };
            let Some(one) = a.segments().get(*at) else { return Some(false) };
            let window = inflated(&one.rect(), most);
            if b.any_near(None, &window, |two| one.is_near(two, most)) {
                return Some(true);
            }
            *at += 1;
        }
        None
    }
}

/// Whether every point of `inner` is one of `outer` (OGC's *covers*). A polygon
/// has to lie in one polygon: several that share an edge are not one.
#[derive(Clone, Debug)]
pub enum Covers {
    /// Segments of `inner` that are looked at, those of lines.
    Lines(usize),
    /// A polygon of `inner`, and how far it is looked at.
    Polygon(u32, Within),
}

/// Whether a polygon of `inner` lies in one of `outer`. One without an inside is
/// its edges.
#[derive(Clone, Debug)]
pub enum Within {
    /// Its edges that are looked at, and those polygons of `outer` that have all
    /// of them, and the inside where the edges have theirs.
    Edges(usize, Vec<u32>),
    /// Whether no edge of the last of these polygons, a hole's neither, goes through
    /// the inside of the one of `inner`: the edges that are looked at.
    Cuts(Vec<u32>, usize),
    /// No polygon has it. Whether there is a place beside an edge that is inside:
    /// edges that are looked at.
    Inside(usize),
    /// Whether `outer` has its edges, as those of a line: which are looked at.
    Alone(usize),
}

impl Covers {
    /// Goes on. `None` if the budget is spent.
    pub fn turn(&mut self, outer: &Parts, inner: &Parts, budget: Budget) -> Option<bool> {
        // Bounded: each round looks at one segment, or goes on to the next polygon.
        while !budget.is_spent() {
            match self {
                Self::Lines(at) => {
                    let Some(segment) = inner.segments().get(*at) else {
                        *self = Self::polygon(outer, inner, 0);
                        continue;
                    };
                    let is_line = segment.polygon.is_none();
                    if is_line && !Along::of(outer, None, segment).holds_whole() {
                        return Some(false);
                    }
                    *at += 1;
                }
                Self::Polygon(polygon, _) if *polygon >= inner.polygons().end => {
                    return Some(true);
                }
                Self::Polygon(polygon, within) => match within.round(outer, inner, *polygon) {
                    None => {}
                    Some(true) => *self = Self::polygon(outer, inner, *polygon + 1),
                    Some(false) => return Some(false),
                },
            }
        }
        None
    }

    fn polygon(outer: &Parts, inner: &Parts, polygon: u32) -> Self {
        let ways = (polygon < inner.polygons().end).then(|| {
            let rect = inner.rect_of_polygon(polygon);
            outer.polygons().filter(|&way| outer.rect_of_polygon(way).contains(&rect)).collect()
        });
        Self::Polygon(polygon, Within::Edges(0, ways.unwrap_or_default()))
    }
}

impl Within {
    /// Looks at one edge. Whether it lies in one, once that is known.
    fn round(&mut self, outer: &Parts, inner: &Parts, polygon: u32) -> Option<bool> {
        let own = inner.edges(polygon);
        match self {
            Self::Edges(at, ways) if *at < own.len() && !ways.is_empty() => {
                keep_ways(outer, ways, inner, (polygon, *at));
                *at += 1;
            }
            Self::Edges(_, ways) => *self = Self::Cuts(std::mem::take(ways), 0),
            Self::Cuts(ways, at) => {
                let Some(&way) = ways.last() else {
                    *self = Self::Inside(0);
                    return None;
                };
                let Some(edge) = outer.edges(way).get(*at) else { return Some(true) };
                *at += 1;
                if edge.rect().intersects(&inner.rect_of_polygon(polygon)) {
                    let along = Along::of(inner, Some(polygon), edge);
                    if !is_covered(&wide(along.left), along.on_edges) {
                        ways.pop();
                        *at = 0;
                    }
                }
            }
            Self::Inside(at) => {
                let Some(edge) = own.get(*at) else {
                    *self = Self::Alone(0);
                    return None;
                };
                *at += 1;
                // One without extent has no sides.
                if edge.a != edge.b {
                    let along = Along::of(inner, Some(polygon), edge);
                    let right = along.right();
                    if !wide(along.left).is_empty() || !wide(right).is_empty() {
                        return Some(false);
                    }
                }
            }
            Self::Alone(at) => {
                let Some(edge) = own.get(*at) else { return Some(true) };
                *at += 1;
                if !Along::of(outer, None, edge).holds_whole() {
                    return Some(false);
                }
            }
        }
        None
    }
}

/// Keeps those polygons of `outer` that have an edge of a polygon of `inner`, and
/// the inside where that edge has it.
fn keep_ways(outer: &Parts, ways: &mut Vec<u32>, inner: &Parts, (polygon, at): (u32, usize)) {
    let edge = &inner.edges(polygon)[at];
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

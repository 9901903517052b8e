//! Which elements an object becomes.

use super::error::Unwritable;
use crate::area::{is_area, is_area_relation};
use crate::element::ElementKind;
use crate::nodes::{degrees, place};
use crate::rings::{Placed, nest};
use remora_geometry::geo_types::{Coord, Geometry, LineString, MultiPolygon, Polygon};
use std::collections::HashMap;
use std::slice;

/// A line over an object's places, by their numbers.
pub struct Line {
    pub corners: Vec<i64>,
    /// Whether it is a hole's ring.
    pub is_inner: bool,
}

impl Line {
    /// Its nodes, if the place of number 0 is the node `first`.
    pub fn ids(&self, first: i64) -> Vec<i64> {
        self.corners.iter().map(|corner| first + corner).collect()
    }
}

/// What an object becomes.
pub struct Plan {
    /// The element that has its tags.
    pub kind: ElementKind,
    /// Places, each once: two nodes in one place would part what touches.
    pub places: Vec<[i32; 2]>,
    /// Lines over them: one of a way, rings of a relation.
    pub lines: Vec<Line>,
    numbers: HashMap<[i32; 2], i64>,
}

/// An object's tags, and of a relation the one that makes it an area.
pub fn with_type<'a>(tags: &[(&'a str, &'a str)], plan: &Plan) -> Vec<(&'a str, &'a str)> {
    let mut tags = tags.to_vec();
    if plan.kind == ElementKind::Relation && !is_area_relation(&tags) {
        tags.push(("type", "multipolygon"));
    }
    tags
}

impl Plan {
    /// The elements of a geometry with these tags.
    pub fn of(geometry: &Geometry<f64>, tags: &[(&str, &str)]) -> Result<Self, Unwritable> {
        let mut plan = Self {
            kind: ElementKind::Node,
            places: Vec::new(),
            lines: Vec::new(),
            numbers: HashMap::new(),
        };
        match geometry {
            Geometry::Point(point) => {
                plan.corner(point.0)?;
            }
            Geometry::LineString(line) => {
                plan.kind = ElementKind::Way;
                plan.line(line, false)?;
                let corners = &plan.lines[0].corners;
                if corners.len() >= 4 && corners.first() == corners.last() && is_area(tags) {
                    return Err(Unwritable::ClosedLine);
                }
            }
            Geometry::Polygon(polygon) => plan.area(slice::from_ref(polygon), tags)?,
            Geometry::MultiPolygon(MultiPolygon(polygons)) => plan.area(polygons, tags)?,
            _ => return Err(Unwritable::Kind),
        }
        Ok(plan)
    }

    fn corner(&mut self, at: Coord<f64>) -> Result<i64, Unwritable> {
        let place = place(at).ok_or(Unwritable::OffGlobe)?;
        let next = self.places.len() as i64;
        let number = *self.numbers.entry(place).or_insert(next);
        if number == next {
            self.places.push(place);
        }
        Ok(number)
    }

    fn line(&mut self, line: &LineString<f64>, is_inner: bool) -> Result<(), Unwritable> {
        let corners = line.0.iter().map(|&at| self.corner(at)).collect::<Result<_, _>>()?;
        self.lines.push(Line { corners, is_inner });
        Ok(())
    }

    fn area(&mut self, polygons: &[Polygon<f64>], tags: &[(&str, &str)]) -> Result<(), Unwritable> {
        for polygon in polygons {
            self.line(polygon.exterior(), false)?;
            polygon.interiors().iter().try_for_each(|ring| self.line(ring, true))?;
        }
        self.kind = match &self.lines[..] {
            [_] if is_area(tags) && !is_area_relation(tags) => ElementKind::Way,
            _ => ElementKind::Relation,
        };
        if self.kind == ElementKind::Relation {
            let has_type = tags.iter().any(|(key, _)| *key == "type");
            if has_type && !is_area_relation(tags) {
                return Err(Unwritable::Type);
            }
            self.check_rings(polygons)?;
        }
        Ok(())
    }

    /// A relation says which rings are holes, but not whose: a reader finds
    /// that out as ours does here.
    fn check_rings(&self, polygons: &[Polygon<f64>]) -> Result<(), Unwritable> {
        let placed = |wanted: bool| {
            let lines = self.lines.iter().filter(move |line| line.is_inner == wanted);
            lines.map(|line| Placed { nodes: line.corners.clone(), line: self.degrees(line) })
        };
        let read = nest(placed(false).collect(), placed(true).collect());
        let mut rings = self.lines.iter().map(|line| LineString(self.degrees(line)));
        let is_same = read.is_ok_and(|MultiPolygon(read)| {
            let counts = polygons.iter().map(|polygon| polygon.interiors().len());
            counts.eq(read.iter().map(|polygon| polygon.interiors().len()))
                && read.iter().all(|polygon| {
                    rings.next().as_ref() == Some(polygon.exterior())
                        && polygon
                            .interiors()
                            .iter()
                            .all(|ring| rings.next().as_ref() == Some(ring))
                })
        });
        if is_same { Ok(()) } else { Err(Unwritable::Rings) }
    }

    fn degrees(&self, line: &Line) -> Vec<Coord<f64>> {
        line.corners.iter().map(|&corner| degrees(self.places[corner as usize])).collect()
    }
}

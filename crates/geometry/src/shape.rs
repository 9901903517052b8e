//! A geometry that has passed every check.

use crate::parts::Parts;
use crate::{ShapeError, wkb};
use geo_types::{Coord, Geometry, LineString, Polygon};
use remora_layout::limits::{MAX_GEOMETRY_BYTES, MAX_GEOMETRY_COORDINATE, MAX_GEOMETRY_DEPTH};
use remora_layout::rect::Rect;

/// A point, a line, a polygon, several of one kind, or a collection: not
/// empty, its coordinates finite, its rings closed, its length bounded. It
/// need not be valid beyond that: a polygon may cross itself.
#[derive(Clone, PartialEq, Debug)]
pub struct Shape {
    geometry: Geometry<f64>,
    bounds: Rect,
    parts: Parts,
}

impl Shape {
    /// A geometry, if it is a good one. A line, rectangle or triangle of
    /// `geo_types` becomes what it is in WKB.
    pub fn new(geometry: Geometry<f64>) -> Result<Self, ShapeError> {
        let geometry = match geometry {
            Geometry::Line(line) => Geometry::LineString(line.into()),
            Geometry::Rect(rect) => Geometry::Polygon(rect.to_polygon()),
            Geometry::Triangle(triangle) => Geometry::Polygon(triangle.to_polygon()),
            other => other,
        };
        let bounds = checked(&geometry)?;
        Ok(Self { parts: Parts::of(&geometry), bounds, geometry })
    }

    /// What an object without a geometry of its own is: its rectangle, or a
    /// point. Coordinates beyond [`MAX_GEOMETRY_COORDINATE`] are taken for
    /// twice that: no geometry reaches there.
    pub fn of_rect(rect: &Rect) -> Self {
        let most = 2.0 * MAX_GEOMETRY_COORDINATE;
        let limit = |coordinate: f64| coordinate.clamp(-most, most);
        let least = Coord { x: limit(rect.min_x), y: limit(rect.min_y) };
        let greatest = Coord { x: limit(rect.max_x), y: limit(rect.max_y) };
        let geometry = if least == greatest {
            Geometry::Point(least.into())
        } else if least.x == greatest.x || least.y == greatest.y {
            Geometry::LineString(LineString(vec![least, greatest]))
        } else {
            Geometry::Polygon(geo_types::Rect::new(least, greatest).to_polygon())
        };
        let bounds = Rect { min_x: least.x, max_x: greatest.x, min_y: least.y, max_y: greatest.y };
        Self { parts: Parts::of(&geometry), bounds, geometry }
    }

    /// The geometry.
    pub fn geometry(&self) -> &Geometry<f64> {
        &self.geometry
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The smallest rectangle that contains it.
    pub fn bounds(&self) -> Rect {
        self.bounds
    }

    /// Whether it is one point.
    pub fn is_point(&self) -> bool {
        matches!(self.geometry, Geometry::Point(_))
    }

    /// The geometry that WKB encodes, in either byte order, of at most
    /// [`MAX_GEOMETRY_BYTES`]; of two dimensions, and without a reference
    /// system.
    pub fn from_wkb(bytes: &[u8]) -> Result<Self, ShapeError> {
        Self::new(wkb::read(bytes)?)
    }

    /// Its WKB, in little endian: equal geometries have equal bytes, but for
    /// the sign of zero.
    pub fn to_wkb(&self) -> Vec<u8> {
        let mut out = Vec::new();
        wkb::write(&self.geometry, &mut out);
        out
    }
}

/// WKB that has passed every check of a [`Shape`], and the bounds of its geometry.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wkb<'a> {
    bytes: &'a [u8],
    bounds: Rect,
}

impl<'a> Wkb<'a> {
    /// Checks the bytes, and keeps them as they are: [`Shape::from_wkb`] for a caller
    /// that does not compare the geometry.
    ///
    /// # Errors
    /// They are no good geometry.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ShapeError> {
        Ok(Self { bounds: checked(&wkb::read(bytes)?)?, bytes })
    }

    /// Bytes that were checked before, as those of an object's record or of
    /// [`Shape::to_wkb`], and the geometry's bounds.
    pub const fn known(bytes: &'a [u8], bounds: Rect) -> Self {
        Self { bytes, bounds }
    }

    /// The bytes.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The smallest rectangle that contains the geometry.
    pub const fn bounds(&self) -> Rect {
        self.bounds
    }
}

/// The bounds of a geometry, if it is a good one.
fn checked(geometry: &Geometry<f64>) -> Result<Rect, ShapeError> {
    let mut seen = Seen { bounds: None, bytes: 0 };
    seen.geometry(geometry, 0)?;
    seen.bounds.ok_or(ShapeError::Empty)
}

/// What has been seen of a geometry that is checked.
struct Seen {
    bounds: Option<Rect>,
    /// Of its WKB.
    bytes: usize,
}

impl Seen {
    fn geometry(&mut self, geometry: &Geometry<f64>, depth: usize) -> Result<(), ShapeError> {
        self.count(wkb::HEAD_BYTES)?;
        match geometry {
            Geometry::Point(point) => self.coord(point.0),
            Geometry::LineString(line) => self.line(line),
            Geometry::Polygon(polygon) => self.polygon(polygon),
            Geometry::MultiPoint(points) => {
                self.all(&points.0, wkb::HEAD_BYTES, |seen, point| seen.coord(point.0))
            }
            Geometry::MultiLineString(lines) => self.all(&lines.0, wkb::HEAD_BYTES, Self::line),
            Geometry::MultiPolygon(all) => self.all(&all.0, wkb::HEAD_BYTES, Self::polygon),
            Geometry::GeometryCollection(_) if depth == MAX_GEOMETRY_DEPTH => {
                Err(ShapeError::TooDeep)
            }
            Geometry::GeometryCollection(members) => {
                self.all(&members.0, 0, |seen, member| seen.geometry(member, depth + 1))
            }
            // In a collection too they have to be what WKB knows.
            Geometry::Line(_) | Geometry::Rect(_) | Geometry::Triangle(_) => {
                Err(ShapeError::Member)
            }
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), ShapeError> {
        self.bytes += bytes;
        if self.bytes > MAX_GEOMETRY_BYTES { Err(ShapeError::TooLong) } else { Ok(()) }
    }

    fn all<T>(
        &mut self,
        parts: &[T],
        head_bytes: usize,
        mut check: impl FnMut(&mut Self, &T) -> Result<(), ShapeError>,
    ) -> Result<(), ShapeError> {
        if parts.is_empty() {
            return Err(ShapeError::Empty);
        }
        self.count(wkb::COUNT_BYTES + parts.len() * head_bytes)?;
        parts.iter().try_for_each(|part| check(self, part))
    }

    fn line(&mut self, line: &LineString<f64>) -> Result<(), ShapeError> {
        self.count(wkb::COUNT_BYTES)?;
        match line.0.len() {
            0 => Err(ShapeError::Empty),
            1 => Err(ShapeError::ShortLine),
            _ => line.0.iter().try_for_each(|&coord| self.coord(coord)),
        }
    }

    fn polygon(&mut self, polygon: &Polygon<f64>) -> Result<(), ShapeError> {
        self.count(wkb::COUNT_BYTES)?;
        for ring in std::iter::once(polygon.exterior()).chain(polygon.interiors()) {
            self.count(wkb::COUNT_BYTES)?;
            match &ring.0[..] {
                [] => return Err(ShapeError::Empty),
                [_] | [_, _] | [_, _, _] => return Err(ShapeError::ShortRing),
                [first, .., last] if first != last => return Err(ShapeError::OpenRing),
                all => all.iter().try_for_each(|&coord| self.coord(coord))?,
            }
        }
        Ok(())
    }

    fn coord(&mut self, Coord { x, y }: Coord<f64>) -> Result<(), ShapeError> {
        self.count(wkb::COORD_BYTES)?;
        if !(x.is_finite() && y.is_finite()) {
            return Err(ShapeError::NotFinite);
        }
        if x.abs().max(y.abs()) > MAX_GEOMETRY_COORDINATE {
            return Err(ShapeError::TooFar);
        }
        let point = Rect { min_x: x, max_x: x, min_y: y, max_y: y };
        self.bounds = Some(self.bounds.map_or(point, |bounds| bounds.union(&point)));
        Ok(())
    }
}

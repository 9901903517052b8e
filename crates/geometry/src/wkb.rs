//! WKB, as OGC 06-103r4 (8.2) has it: byte order 1 | kind 4 | then
//!
//! ```text
//! 1 point                x 8 | y 8
//! 2 line                 count 4 | points
//! 3 polygon              count 4 | rings: count 4 | points
//! 4 5 6 of one kind      count 4 | members, each with order and kind
//! 7 collection           the same, of any kind
//! ```
//! A count is compared with the bytes that are left before anything is
//! allocated.

use crate::ShapeError;
use crate::ring::closed;
use geo_types::{
    Coord, Geometry, GeometryCollection, LineString, MultiLineString, MultiPoint, MultiPolygon,
    Point, Polygon,
};
use remora_layout::limits::{MAX_GEOMETRY_BYTES, MAX_GEOMETRY_DEPTH};

/// Bytes of a byte order and a kind.
pub const HEAD_BYTES: usize = 5;
/// Bytes of a count.
pub const COUNT_BYTES: usize = 4;
/// Bytes of a coordinate.
pub const COORD_BYTES: usize = 16;

const LITTLE_ENDIAN: u8 = 1;

mod kind {
    pub const POINT: u32 = 1;
    pub const LINE: u32 = 2;
    pub const POLYGON: u32 = 3;
    pub const POINTS: u32 = 4;
    pub const LINES: u32 = 5;
    pub const POLYGONS: u32 = 6;
    pub const COLLECTION: u32 = 7;
}

/// The one geometry that `bytes` are; its coordinates and rings unchecked.
pub fn read(bytes: &[u8]) -> Result<Geometry<f64>, ShapeError> {
    if bytes.len() > MAX_GEOMETRY_BYTES {
        return Err(ShapeError::TooLong);
    }
    let mut reader = Reader { rest: bytes, little: true };
    let geometry = reader.geometry(0)?;
    if reader.rest.is_empty() { Ok(geometry) } else { Err(ShapeError::Trailing) }
}

struct Reader<'a> {
    rest: &'a [u8],
    /// Of the geometry that is being read.
    little: bool,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ShapeError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(ShapeError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, ShapeError> {
        let bytes = self.take::<4>()?;
        Ok(if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn f64(&mut self) -> Result<f64, ShapeError> {
        let bytes = self.take::<8>()?;
        Ok(if self.little { f64::from_le_bytes(bytes) } else { f64::from_be_bytes(bytes) })
    }

    /// A byte order, which holds from here on, and a kind.
    fn head(&mut self) -> Result<u32, ShapeError> {
        self.little = match self.take::<1>()? {
            [0] => false,
            [LITTLE_ENDIAN] => true,
            _ => return Err(ShapeError::ByteOrder),
        };
        self.u32()
    }

    fn coord(&mut self) -> Result<Coord<f64>, ShapeError> {
        Ok(Coord { x: self.f64()?, y: self.f64()? })
    }

    /// So many parts as a count says, of at least `least` bytes each.
    fn parts<T>(
        &mut self,
        least: usize,
        mut part: impl FnMut(&mut Self) -> Result<T, ShapeError>,
    ) -> Result<Vec<T>, ShapeError> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / least {
            return Err(ShapeError::Short);
        }
        (0..count).map(|_| part(self)).collect()
    }

    fn line(&mut self) -> Result<LineString<f64>, ShapeError> {
        self.parts(COORD_BYTES, Self::coord).map(LineString)
    }

    fn polygon(&mut self) -> Result<Polygon<f64>, ShapeError> {
        let mut rings = self.parts(COUNT_BYTES, |reader| closed(reader.line()?))?;
        if rings.is_empty() {
            return Err(ShapeError::Empty);
        }
        let exterior = rings.remove(0);
        Ok(Polygon::new(exterior, rings))
    }

    /// A member of a collection that has members of one kind only.
    fn member<T>(
        &mut self,
        kind: u32,
        read: impl FnOnce(&mut Self) -> Result<T, ShapeError>,
    ) -> Result<T, ShapeError> {
        if self.head()? == kind { read(self) } else { Err(ShapeError::Member) }
    }

    fn geometry(&mut self, depth: usize) -> Result<Geometry<f64>, ShapeError> {
        let least = HEAD_BYTES + COUNT_BYTES;
        Ok(match self.head()? {
            kind::POINT => Point(self.coord()?).into(),
            kind::LINE => self.line()?.into(),
            kind::POLYGON => self.polygon()?.into(),
            kind::POINTS => MultiPoint(self.parts(HEAD_BYTES + COORD_BYTES, |reader| {
                reader.member(kind::POINT, |reader| reader.coord().map(Point))
            })?)
            .into(),
            kind::LINES => {
                MultiLineString(self.parts(least, |reader| reader.member(kind::LINE, Self::line))?)
                    .into()
            }
            kind::POLYGONS => MultiPolygon(
                self.parts(least, |reader| reader.member(kind::POLYGON, Self::polygon))?,
            )
            .into(),
            kind::COLLECTION if depth == MAX_GEOMETRY_DEPTH => return Err(ShapeError::TooDeep),
            kind::COLLECTION => {
                let members = self.parts(least, |reader| reader.geometry(depth + 1))?;
                Geometry::GeometryCollection(GeometryCollection(members))
            }
            other => return Err(ShapeError::Kind(other)),
        })
    }
}

fn head(kind: u32, out: &mut Vec<u8>) {
    out.push(LITTLE_ENDIAN);
    out.extend_from_slice(&kind.to_le_bytes());
}

fn count(count: usize, out: &mut Vec<u8>) {
    // A geometry's length is bounded.
    out.extend_from_slice(&(count as u32).to_le_bytes());
}

fn coord(coord: Coord<f64>, out: &mut Vec<u8>) {
    out.extend_from_slice(&coord.x.to_le_bytes());
    out.extend_from_slice(&coord.y.to_le_bytes());
}

fn coords(line: &LineString<f64>, out: &mut Vec<u8>) {
    count(line.0.len(), out);
    line.0.iter().for_each(|&point| coord(point, out));
}

fn point(point: &Point<f64>, out: &mut Vec<u8>) {
    head(kind::POINT, out);
    coord(point.0, out);
}

fn line(line: &LineString<f64>, out: &mut Vec<u8>) {
    head(kind::LINE, out);
    coords(line, out);
}

fn polygon(polygon: &Polygon<f64>, out: &mut Vec<u8>) {
    head(kind::POLYGON, out);
    count(1 + polygon.interiors().len(), out);
    coords(polygon.exterior(), out);
    polygon.interiors().iter().for_each(|ring| coords(ring, out));
}

fn members<T>(kind: u32, members: &[T], write: impl Fn(&T, &mut Vec<u8>), out: &mut Vec<u8>) {
    head(kind, out);
    count(members.len(), out);
    members.iter().for_each(|member| write(member, out));
}

/// Appends the WKB of a checked geometry.
pub fn write(geometry: &Geometry<f64>, out: &mut Vec<u8>) {
    match geometry {
        Geometry::Point(one) => point(one, out),
        Geometry::LineString(one) => line(one, out),
        Geometry::Polygon(one) => polygon(one, out),
        Geometry::MultiPoint(all) => members(kind::POINTS, &all.0, point, out),
        Geometry::MultiLineString(all) => members(kind::LINES, &all.0, line, out),
        Geometry::MultiPolygon(all) => members(kind::POLYGONS, &all.0, polygon, out),
        Geometry::GeometryCollection(all) => members(kind::COLLECTION, &all.0, write, out),
        Geometry::Line(_) | Geometry::Rect(_) | Geometry::Triangle(_) => {
            unreachable!("no checked geometry has one")
        }
    }
}

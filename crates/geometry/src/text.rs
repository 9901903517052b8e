//! WKT and GeoJSON (RFC 7946). A third dimension is dropped: searches are in
//! the plane. Rings have to be closed in either.

use crate::ring::closed;
use crate::{Shape, ShapeError};
use geo_types::{
    Coord, Geometry, GeometryCollection, LineString, MultiLineString, MultiPoint, MultiPolygon,
    Point, Polygon,
};
use geojson::{GeometryValue, Position};
use remora_layout::limits::{MAX_GEOMETRY_DEPTH, MAX_GEOMETRY_TEXT};
use wkt::{ToWkt, Wkt};

/// Brackets in each other that a polygon of several parts has.
const POLYGON_DEPTH: usize = 3;

fn polygon(rings: Vec<LineString<f64>>) -> Result<Polygon<f64>, ShapeError> {
    let mut rings = rings.into_iter().map(closed);
    let exterior = rings.next().ok_or(ShapeError::Empty)??;
    Ok(Polygon::new(exterior, rings.collect::<Result<_, _>>()?))
}

impl Shape {
    /// The geometry that WKT says, of at most [`MAX_GEOMETRY_TEXT`] bytes.
    pub fn from_wkt(text: &str) -> Result<Self, ShapeError> {
        if text.len() > MAX_GEOMETRY_TEXT {
            return Err(ShapeError::TooLong);
        }
        // The parser goes into brackets by calling itself, and does not look at
        // what follows the last one.
        let mut depth = 0_usize;
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                _ => continue,
            }
            if depth > MAX_GEOMETRY_DEPTH + POLYGON_DEPTH {
                return Err(ShapeError::TooDeep);
            }
            if depth == 0 && !text[at + 1..].trim().is_empty() {
                return Err(ShapeError::Trailing);
            }
        }
        // The parser takes these for words.
        if text.split([' ', '\t', '\r', '\n', '(', ')', ',']).any(is_not_finite) {
            return Err(ShapeError::NotFinite);
        }
        let parsed: Wkt<f64> =
            text.parse().map_err(|error: &str| ShapeError::Text(error.into()))?;
        Self::new(of_wkt(parsed)?)
    }

    /// Its WKT; numbers are read back exactly.
    pub fn to_wkt(&self) -> String {
        self.geometry().to_wkt().to_string()
    }

    /// The geometry of GeoJSON. Its bounding box and foreign members are not
    /// looked at.
    pub fn from_geojson(geometry: &geojson::Geometry) -> Result<Self, ShapeError> {
        Self::new(of_geojson(&geometry.value, 0)?)
    }

    /// The geometry that a text of GeoJSON says, of at most
    /// [`MAX_GEOMETRY_TEXT`] bytes.
    pub fn from_geojson_text(text: &str) -> Result<Self, ShapeError> {
        if text.len() > MAX_GEOMETRY_TEXT {
            return Err(ShapeError::TooLong);
        }
        let parsed = serde_json::from_str::<geojson::Geometry>(text);
        Self::from_geojson(&parsed.map_err(|error| ShapeError::Text(error.to_string()))?)
    }

    /// Its GeoJSON, without a bounding box.
    pub fn to_geojson(&self) -> geojson::Geometry {
        geojson::Geometry::new(to_geojson(self.geometry()))
    }

    /// The geometry of a text: GeoJSON if it begins with a brace, else WKT.
    pub fn from_text(text: &str) -> Result<Self, ShapeError> {
        if text.trim_start().starts_with('{') {
            Self::from_geojson_text(text)
        } else {
            Self::from_wkt(text)
        }
    }
}

/// Whether a word is what other programs write for a number that there is not.
fn is_not_finite(word: &str) -> bool {
    let letters = word.trim_start_matches(['+', '-']);
    ["nan", "inf", "infinity"].iter().any(|name| letters.eq_ignore_ascii_case(name))
}

fn wkt_line(line: wkt::types::LineString<f64>) -> LineString<f64> {
    let (coords, _) = line.into_inner();
    coords.into_iter().map(|coord| Coord { x: coord.x, y: coord.y }).collect()
}

fn wkt_point(point: wkt::types::Point<f64>) -> Result<Point<f64>, ShapeError> {
    let coord = point.into_inner().0.ok_or(ShapeError::Empty)?;
    Ok(Point::new(coord.x, coord.y))
}

fn wkt_polygon(of: wkt::types::Polygon<f64>) -> Result<Polygon<f64>, ShapeError> {
    polygon(of.into_inner().0.into_iter().map(wkt_line).collect())
}

/// As deep as its text's brackets, which have been counted.
fn of_wkt(wkt: Wkt<f64>) -> Result<Geometry<f64>, ShapeError> {
    Ok(match wkt {
        Wkt::Point(point) => wkt_point(point)?.into(),
        Wkt::LineString(line) => wkt_line(line).into(),
        Wkt::Polygon(polygon) => wkt_polygon(polygon)?.into(),
        Wkt::MultiPoint(all) => {
            let points = all.into_inner().0.into_iter().map(wkt_point);
            MultiPoint(points.collect::<Result<_, _>>()?).into()
        }
        Wkt::MultiLineString(all) => {
            MultiLineString(all.into_inner().0.into_iter().map(wkt_line).collect()).into()
        }
        Wkt::MultiPolygon(all) => {
            let polygons = all.into_inner().0.into_iter().map(wkt_polygon);
            MultiPolygon(polygons.collect::<Result<_, _>>()?).into()
        }
        Wkt::GeometryCollection(all) => {
            let members = all.into_inner().0.into_iter().map(of_wkt);
            Geometry::GeometryCollection(GeometryCollection(members.collect::<Result<_, _>>()?))
        }
    })
}

fn coord(position: &Position) -> Result<Coord<f64>, ShapeError> {
    match position.as_slice() {
        &[x, y, ..] => Ok(Coord { x, y }),
        _ => Err(ShapeError::Text("a position needs two numbers".into())),
    }
}

fn line(positions: &[Position]) -> Result<LineString<f64>, ShapeError> {
    positions.iter().map(coord).collect::<Result<_, _>>().map(LineString)
}

fn rings(rings: &[Vec<Position>]) -> Result<Polygon<f64>, ShapeError> {
    polygon(rings.iter().map(|ring| line(ring)).collect::<Result<_, _>>()?)
}

fn of_geojson(value: &GeometryValue, depth: usize) -> Result<Geometry<f64>, ShapeError> {
    Ok(match value {
        GeometryValue::Point { coordinates } => Point(coord(coordinates)?).into(),
        GeometryValue::LineString { coordinates } => line(coordinates)?.into(),
        GeometryValue::Polygon { coordinates } => rings(coordinates)?.into(),
        GeometryValue::MultiPoint { coordinates } => {
            let points = coordinates.iter().map(|position| coord(position).map(Point));
            MultiPoint(points.collect::<Result<_, _>>()?).into()
        }
        GeometryValue::MultiLineString { coordinates } => {
            let lines = coordinates.iter().map(|positions| line(positions));
            MultiLineString(lines.collect::<Result<_, _>>()?).into()
        }
        GeometryValue::MultiPolygon { coordinates } => {
            let polygons = coordinates.iter().map(|polygon| rings(polygon));
            MultiPolygon(polygons.collect::<Result<_, _>>()?).into()
        }
        GeometryValue::GeometryCollection { .. } if depth == MAX_GEOMETRY_DEPTH => {
            return Err(ShapeError::TooDeep);
        }
        GeometryValue::GeometryCollection { geometries } => {
            let members = geometries.iter().map(|member| of_geojson(&member.value, depth + 1));
            Geometry::GeometryCollection(GeometryCollection(members.collect::<Result<_, _>>()?))
        }
    })
}

fn position(coord: &Coord<f64>) -> Position {
    Position::from([coord.x, coord.y])
}

fn positions(line: &LineString<f64>) -> Vec<Position> {
    line.0.iter().map(position).collect()
}

fn ring_positions(polygon: &Polygon<f64>) -> Vec<Vec<Position>> {
    std::iter::once(polygon.exterior()).chain(polygon.interiors()).map(positions).collect()
}

fn to_geojson(geometry: &Geometry<f64>) -> GeometryValue {
    match geometry {
        Geometry::Point(point) => GeometryValue::Point { coordinates: position(&point.0) },
        Geometry::LineString(line) => GeometryValue::LineString { coordinates: positions(line) },
        Geometry::Polygon(polygon) => {
            GeometryValue::Polygon { coordinates: ring_positions(polygon) }
        }
        Geometry::MultiPoint(all) => {
            let coordinates = all.0.iter().map(|point| position(&point.0)).collect();
            GeometryValue::MultiPoint { coordinates }
        }
        Geometry::MultiLineString(all) => {
            GeometryValue::MultiLineString { coordinates: all.0.iter().map(positions).collect() }
        }
        Geometry::MultiPolygon(all) => {
            GeometryValue::MultiPolygon { coordinates: all.0.iter().map(ring_positions).collect() }
        }
        Geometry::GeometryCollection(all) => {
            let members = all.0.iter().map(|member| geojson::Geometry::new(to_geojson(member)));
            GeometryValue::GeometryCollection { geometries: members.collect() }
        }
        Geometry::Line(_) | Geometry::Rect(_) | Geometry::Triangle(_) => {
            unreachable!("no checked geometry has one")
        }
    }
}

//! Bounding boxes of GeoJSON's geometries, and boxes as geometries.

use crate::refusals::Refusal;
use geojson::{GeometryValue, Position};
use remora_client_core::Rect;

/// The reason for refusing an item that is not a feature.
pub const NO_FEATURE: &str = "it is no GeoJSON feature";

/// The corners of a box, as a ring: how one is written as a polygon.
pub fn box_ring(rect: &Rect) -> [[f64; 2]; 5] {
    let Rect { min_x, max_x, min_y, max_y } = *rect;
    [[min_x, min_y], [max_x, min_y], [max_x, max_y], [min_x, max_y], [min_x, min_y]]
}

/// Whether a geometry is its bounding box, or a point: an export writes an
/// object without a geometry so.
pub fn is_box(geometry: &GeometryValue, rect: &Rect) -> bool {
    match geometry {
        GeometryValue::Point { .. } => true,
        GeometryValue::Polygon { coordinates } => match &coordinates[..] {
            [ring] => {
                ring.iter().map(Position::as_slice).eq(box_ring(rect).iter().map(|at| &at[..]))
            }
            _ => false,
        },
        _ => false,
    }
}

/// The smallest rectangle around all positions of a geometry.
pub fn bounding_box(geometry: &GeometryValue) -> Result<Rect, Refusal> {
    let mut all: Option<Rect> = None;
    each_position(geometry, &mut |position| {
        let &[x, y, ..] = position.as_slice() else {
            return Err(Refusal::new(NO_FEATURE, "a position has fewer than two numbers"));
        };
        let point = Rect::point(x, y)?;
        all = Some(all.map_or(point, |all| all.union(&point)));
        Ok(())
    })?;
    all.ok_or(Refusal::new("its geometry has no position", ""))
}

fn each_position(
    geometry: &GeometryValue,
    see: &mut dyn FnMut(&Position) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    match geometry {
        GeometryValue::Point { coordinates } => see(coordinates),
        GeometryValue::MultiPoint { coordinates } | GeometryValue::LineString { coordinates } => {
            coordinates.iter().try_for_each(see)
        }
        GeometryValue::MultiLineString { coordinates } | GeometryValue::Polygon { coordinates } => {
            coordinates.iter().flatten().try_for_each(see)
        }
        GeometryValue::MultiPolygon { coordinates } => {
            coordinates.iter().flatten().flatten().try_for_each(see)
        }
        GeometryValue::GeometryCollection { geometries } => {
            geometries.iter().try_for_each(|geometry| each_position(&geometry.value, see))
        }
    }
}

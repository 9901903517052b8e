//! Rings of polygons.

use crate::ShapeError;
use geo_types::LineString;

/// A ring, if it is closed: `Polygon::new` would close it silently.
pub fn closed(ring: LineString<f64>) -> Result<LineString<f64>, ShapeError> {
    match &ring.0[..] {
        [] => Err(ShapeError::Empty),
        [first, .., last] if first != last => Err(ShapeError::OpenRing),
        _ => Ok(ring),
    }
}

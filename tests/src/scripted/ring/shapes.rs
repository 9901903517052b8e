//! Geometries by script, and what a search demands of them.

use crate::scripted::Script;
use remora_geometry::geo_types::{Coord, Geometry, LineString, MultiPolygon, Point, Polygon};
use remora_geometry::{Refine, Shape};

/// Coordinates of a line or ring.
const COUNTS: [usize; 6] = [2, 3, 3, 5, 9, 700];

fn coord(number: u8) -> Coord<f64> {
    Coord { x: f64::from(number % 8), y: f64::from(number / 8 % 8) }
}

fn coords(script: &mut Script<'_>) -> Vec<Coord<f64>> {
    let count = script.pick(&COUNTS);
    // A long one would use up the script.
    let mut byte = |at: usize| if at < 10 { script.byte() } else { (at * at) as u8 };
    (0..count).map(&mut byte).map(coord).collect()
}

fn polygon(script: &mut Script<'_>) -> Polygon<f64> {
    let ring = |script: &mut Script<'_>| {
        let mut ring = coords(script);
        // `Polygon::new` closes it.
        ring.push(coord(script.byte()));
        LineString(ring)
    };
    let holes = (0..script.below(3)).map(|_| ring(script)).collect();
    Polygon::new(ring(script), holes)
}

/// A geometry on a coarse grid, valid or not; `None` for a ring that is too
/// short.
fn shape(script: &mut Script<'_>) -> Option<Shape> {
    let geometry: Geometry<f64> = match script.below(4) {
        0 => Point(coord(script.byte())).into(),
        1 => LineString(coords(script)).into(),
        2 => polygon(script).into(),
        _ => MultiPolygon((0..=script.below(4)).map(|_| polygon(script)).collect()).into(),
    };
    Shape::new(geometry).ok()
}

/// An object's geometry, if the script wants one.
pub(super) fn geometry(script: &mut Script<'_>) -> Option<Shape> {
    if script.one_in(2) { shape(script) } else { None }
}

/// What a search demands, seldom of any bytes.
pub(super) fn refine(script: &mut Script<'_>) -> Vec<u8> {
    let kind = script.below(5);
    let Some(shape) = shape(script) else { return script.bytes().to_vec() };
    match kind {
        0 => Refine::Intersects(shape).to_bytes(),
        1 => Refine::Within(shape).to_bytes(),
        2 => Refine::Contains(shape).to_bytes(),
        3 => Refine::DistanceAtMost { from: shape, most: f64::from(script.byte() % 4) }.to_bytes(),
        _ => script.bytes().to_vec(),
    }
}

//! Sides of lines, told exactly.

use geo_types::Coord;
use robust::orient2d;
use std::cell::Cell;

/// From here on a product of differences keeps all its digits, its error's too.
const LEAST_PRODUCT: f64 = 1e-240;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// What this thread has done so far: sides told, distances measured, places
/// put in order.
#[cfg(test)]
pub fn steps_taken() -> u64 {
    STEPS.get()
}

/// The same, and boxes and segments looked at: what a comparison's turn is
/// bounded by. It counts per thread, as a comparison stays on one while it works.
pub fn work_done() -> u64 {
    STEPS.get() + LOOKS.get()
}

/// Counts steps.
#[inline]
pub fn steps(count: usize) {
    STEPS.set(STEPS.get() + count as u64);
}

/// Counts a look at a box or a segment.
#[inline]
pub fn look() {
    LOOKS.set(LOOKS.get() + 1);
}

/// On which side of the line from `a` to `b` a point lies: positive is left;
/// the sign is exact.
pub fn orientation(a: Coord<f64>, b: Coord<f64>, point: Coord<f64>) -> f64 {
    steps(1);
    if !is_small(a, b, point) {
        return told(a, b, point);
    }
    let scaled = scaling(&[a, b, point]);
    told(scaled(a), scaled(b), scaled(point))
}

/// The same for two points, so that what is told of one can be compared with
/// what is told of the other.
pub fn sides(a: Coord<f64>, b: Coord<f64>, one: Coord<f64>, two: Coord<f64>) -> (f64, f64) {
    if is_small(a, b, one) || is_small(a, b, two) {
        let scaled = scaling(&[a, b, one, two]);
        let size = |point| told(scaled(a), scaled(b), scaled(point)).abs();
        // The sign is exact if each has a scale of its own.
        let signed = |point| match orientation(a, b, point) {
            0.0 => 0.0,
            sign => size(point).max(f64::MIN_POSITIVE).copysign(sign),
        };
        return (signed(one), signed(two));
    }
    steps(2);
    (told(a, b, one), told(a, b, two))
}

fn told(a: Coord<f64>, b: Coord<f64>, point: Coord<f64>) -> f64 {
    let robust = |coord: Coord<f64>| robust::Coord { x: coord.x, y: coord.y };
    orient2d(robust(a), robust(b), robust(point))
}

fn is_small(a: Coord<f64>, b: Coord<f64>, point: Coord<f64>) -> bool {
    let one = (a.x - point.x) * (b.y - point.y);
    let two = (a.y - point.y) * (b.x - point.x);
    one.abs().max(two.abs()) < LEAST_PRODUCT
}

/// Makes small coordinates great ones, each axis by a power of two of its own:
/// that changes no side and no digit.
fn scaling(coords: &[Coord<f64>]) -> impl Fn(Coord<f64>) -> Coord<f64> + use<> {
    let x = scale(coords.iter().fold(0.0, |most, coord| coord.x.abs().max(most)));
    let y = scale(coords.iter().fold(0.0, |most, coord| coord.y.abs().max(most)));
    move |coord| Coord { x: coord.x * x, y: coord.y * y }
}

/// A power of two by which small numbers are made great ones.
fn scale(most: f64) -> f64 {
    const fn power_of_two(exponent: u64) -> f64 {
        f64::from_bits((1023 + exponent) << 52)
    }
    match most {
        _ if most < 1e-150 => power_of_two(900),
        _ if most < 1.0 => power_of_two(400),
        _ => 1.0,
    }
}

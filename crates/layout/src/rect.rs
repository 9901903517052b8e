//! Rectangles: the entries and the search windows of trees of places.
//!
//! ```text
//!   0        8        16       24       32
//!   +--------+--------+--------+--------+
//!   | min(x) | max(x) | min(y) | max(y) |   four f64 (Catfish 2.1, C1)
//!   +--------+--------+--------+--------+
//! ```
//! Coordinates have any unit that their user chooses; each i32 is exactly an f64. Edges belong to a
//! rectangle; a rectangle without extent is a point.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a rectangle.
pub const RECT_BYTES: usize = 32;

/// An axis-parallel rectangle. One made by [`Rect::new`] is finite and not inverted; one read from
/// elsewhere may hold any numbers.
#[derive(Clone, Copy, PartialEq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rect {
    /// Least x.
    pub min_x: f64,
    /// Greatest x.
    pub max_x: f64,
    /// Least y.
    pub min_y: f64,
    /// Greatest y.
    pub max_y: f64,
}

/// Why four numbers are no rectangle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadRect {
    /// A coordinate is not a number.
    #[error("a coordinate of the rectangle is not a number")]
    NotANumber,
    /// A coordinate is infinite.
    #[error("a coordinate of the rectangle is infinite")]
    Infinite,
    /// A minimum is greater than its maximum.
    #[error("the rectangle is inverted: a minimum is greater than its maximum")]
    Inverted,
}

impl Rect {
    /// A rectangle, if the numbers make one.
    pub fn new(min_x: f64, max_x: f64, min_y: f64, max_y: f64) -> Result<Self, BadRect> {
        Self { min_x, max_x, min_y, max_y }.checked()
    }

    /// A point.
    pub fn point(x: f64, y: f64) -> Result<Self, BadRect> {
        Self::new(x, x, y, y)
    }

    /// This rectangle, if its numbers make one.
    pub fn checked(self) -> Result<Self, BadRect> {
        let all = [self.min_x, self.max_x, self.min_y, self.max_y];
        if all.iter().any(|coordinate| coordinate.is_nan()) {
            return Err(BadRect::NotANumber);
        }
        if all.iter().any(|coordinate| coordinate.is_infinite()) {
            return Err(BadRect::Infinite);
        }
        if self.min_x > self.max_x || self.min_y > self.max_y {
            return Err(BadRect::Inverted);
        }
        Ok(self)
    }

    /// Whether the two share a point.
    #[inline(always)]
    pub fn intersects(&self, other: &Self) -> bool {
        // No short cuts: four comparisons cost less than a branch that misses.
        (self.min_x <= other.max_x)
            & (other.min_x <= self.max_x)
            & (self.min_y <= other.max_y)
            & (other.min_y <= self.max_y)
    }

    /// Whether every point of `other` is one of this rectangle.
    #[inline(always)]
    pub fn contains(&self, other: &Self) -> bool {
        (self.min_x <= other.min_x)
            & (other.max_x <= self.max_x)
            & (self.min_y <= other.min_y)
            & (other.max_y <= self.max_y)
    }

    /// The smallest rectangle that contains both.
    #[inline(always)]
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            min_x: least(self.min_x, other.min_x),
            max_x: most(self.max_x, other.max_x),
            min_y: least(self.min_y, other.min_y),
            max_y: most(self.max_y, other.max_y),
        }
    }

    /// Area; infinite where it is beyond an f64.
    #[inline(always)]
    pub fn area(&self) -> f64 {
        (self.max_x - self.min_x) * (self.max_y - self.min_y)
    }

    /// Half of the perimeter.
    #[inline(always)]
    pub fn margin(&self) -> f64 {
        (self.max_x - self.min_x) + (self.max_y - self.min_y)
    }

    /// Area that this rectangle and `other` share.
    #[inline(always)]
    pub fn shared_area(&self, other: &Self) -> f64 {
        let width = least(self.max_x, other.max_x) - most(self.min_x, other.min_x);
        let height = least(self.max_y, other.max_y) - most(self.min_y, other.min_y);
        if (width > 0.0) & (height > 0.0) { width * height } else { 0.0 }
    }

    /// Its centre; does not overflow for two coordinates far apart.
    #[inline(always)]
    pub fn centre(&self) -> (f64, f64) {
        (self.min_x * 0.5 + self.max_x * 0.5, self.min_y * 0.5 + self.max_y * 0.5)
    }

    /// Square of the distance from a point to the nearest point of this
    /// rectangle: 0 inside; infinite where it is beyond an f64.
    #[inline(always)]
    pub fn distance_squared(&self, x: f64, y: f64) -> f64 {
        let dx = (self.min_x - x).max(x - self.max_x).max(0.0);
        let dy = (self.min_y - y).max(y - self.max_y).max(0.0);
        dx * dx + dy * dy
    }

    /// Square of the distance of a point to the farthest one of the rectangle.
    #[inline(always)]
    pub fn farthest_squared(&self, x: f64, y: f64) -> f64 {
        let dx = (x - self.min_x).max(self.max_x - x);
        let dy = (y - self.min_y).max(self.max_y - y);
        dx * dx + dy * dy
    }
}

// Coordinates are never NaN, so plain comparisons suffice.
#[inline(always)]
fn least(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

#[inline(always)]
fn most(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

const _: () = assert!(size_of::<Rect>() == RECT_BYTES);

/// Which objects a window search returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Predicate {
    /// Those that share a point with the window.
    #[default]
    Intersects,
    /// Those that lie within the window.
    Within,
    /// Those that contain the window.
    Contains,
}

impl Predicate {
    /// The predicate that a byte encodes.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Intersects),
            1 => Some(Self::Within),
            2 => Some(Self::Contains),
            _ => None,
        }
    }

    /// Whether an object matches.
    #[inline(always)]
    pub fn holds(self, object: &Rect, window: &Rect) -> bool {
        match self {
            Self::Intersects => object.intersects(window),
            Self::Within => window.contains(object),
            Self::Contains => object.contains(window),
        }
    }

    /// Whether matching objects may lie below an entry with this rectangle.
    #[inline(always)]
    pub fn may_hold_below(self, way: &Rect, window: &Rect) -> bool {
        match self {
            Self::Intersects | Self::Within => way.intersects(window),
            Self::Contains => way.contains(window),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_rectangle_is_refused_with_its_reason() {
        assert_eq!(Rect::new(f64::NAN, 1.0, 0.0, 1.0), Err(BadRect::NotANumber));
        assert_eq!(Rect::new(0.0, 1.0, f64::INFINITY, f64::NAN), Err(BadRect::NotANumber));
        assert_eq!(Rect::new(0.0, f64::INFINITY, 0.0, 1.0), Err(BadRect::Infinite));
        assert_eq!(Rect::new(0.0, 1.0, f64::NEG_INFINITY, 1.0), Err(BadRect::Infinite));
        assert_eq!(Rect::new(2.0, 1.0, 0.0, 1.0), Err(BadRect::Inverted));
        assert_eq!(Rect::new(0.0, 1.0, 2.0, 1.0), Err(BadRect::Inverted));
        assert!(Rect::point(-0.0, f64::MAX).is_ok() && Rect::new(0.0, -0.0, 1.0, 1.0).is_ok());
    }

    #[test]
    fn edges_belong_to_a_rectangle() {
        let unit = Rect::new(0.0, 1.0, 0.0, 1.0).unwrap();
        let corner = Rect::point(1.0, 1.0).unwrap();
        assert!(unit.intersects(&corner) && unit.contains(&corner) && unit.contains(&unit));
        assert!(!corner.contains(&unit) && unit.shared_area(&corner) == 0.0);
        assert_eq!(unit.distance_squared(4.0, 5.0), 25.0);
        assert_eq!(unit.distance_squared(0.5, 1.0), 0.0);
        assert_eq!(unit.farthest_squared(4.0, 3.0), 25.0);
        assert_eq!(unit.farthest_squared(0.5, 0.5), 0.5);
        let apart = Rect::new(1.0 + f64::EPSILON, 2.0, 0.0, 1.0).unwrap();
        assert!(!unit.intersects(&apart) && unit.union(&apart).contains(&apart));
    }
}

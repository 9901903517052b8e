//! Places on the unit sphere, and arcs of great circles between them.

use std::ops::{Add, Mul, Neg, Sub};

/// Angles up to this one, in radians, count as none: about a micrometre on the earth. Rounding errors are
/// smaller by two orders of magnitude.
pub(super) const TOLERANCE: f64 = 1e-13;

/// A vector; a place on the sphere is one of length 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Vector {
    x: f64,
    y: f64,
    z: f64,
}

impl Add for Vector {
    type Output = Vector;

    fn add(self, other: Vector) -> Vector {
        Vector { x: self.x + other.x, y: self.y + other.y, z: self.z + other.z }
    }
}

impl Sub for Vector {
    type Output = Vector;

    fn sub(self, other: Vector) -> Vector {
        Vector { x: self.x - other.x, y: self.y - other.y, z: self.z - other.z }
    }
}

impl Mul<f64> for Vector {
    type Output = Vector;

    fn mul(self, by: f64) -> Vector {
        Vector { x: self.x * by, y: self.y * by, z: self.z * by }
    }
}

impl Neg for Vector {
    type Output = Vector;

    fn neg(self) -> Vector {
        self * -1.0
    }
}

impl Vector {
    /// The place at a longitude and a latitude, in degrees.
    pub(super) fn of_degrees(longitude: f64, latitude: f64) -> Vector {
        let (longitude, latitude) = (longitude.to_radians(), latitude.to_radians());
        let (sin, cos) = latitude.sin_cos();
        Vector { x: cos * longitude.cos(), y: cos * longitude.sin(), z: sin }
    }

    /// Its longitude and latitude, in degrees.
    pub(super) fn degrees(self) -> (f64, f64) {
        let latitude = self.z.atan2(self.x.hypot(self.y));
        (self.y.atan2(self.x).to_degrees(), latitude.to_degrees())
    }

    pub(super) fn dot(self, other: Vector) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    pub(super) fn cross(self, other: Vector) -> Vector {
        Vector {
            x: self.y * other.z - self.z * other.y,
            y: self.z * other.x - self.x * other.z,
            z: self.x * other.y - self.y * other.x,
        }
    }

    pub(super) fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    /// The vector with length 1, unless its own length is about 0.
    pub(super) fn unit(self) -> Option<Vector> {
        let length = self.length();
        (length > TOLERANCE).then(|| self * (1.0 / length))
    }

    /// The unit vector on the left of the great circle from one place to another one. None if they are
    /// equal or opposite. The sum and the difference keep the digits of places that are near.
    pub(super) fn normal(self, other: Vector) -> Option<Vector> {
        (other + self).cross(other - self).unit()
    }

    /// The angle to another place, in radians. It is precise near 0 and near a half turn.
    pub(super) fn angle(self, other: Vector) -> f64 {
        2.0 * (self - other).length().atan2((self + other).length())
    }

    /// Whether two places count as one.
    pub(super) fn is_at(self, other: Vector) -> bool {
        (self - other).length() <= TOLERANCE
    }
}

/// The shorter arc of the great circle through two places, which are neither equal nor opposite.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arc {
    pub(super) from: Vector,
    pub(super) to: Vector,
    /// The pole on the left of its circle.
    pub(super) normal: Vector,
}

impl Arc {
    pub(super) fn new(from: Vector, to: Vector) -> Option<Arc> {
        Some(Arc { from, to, normal: from.normal(to)? })
    }

    pub(super) fn reversed(self) -> Arc {
        Arc { from: self.to, to: self.from, normal: -self.normal }
    }

    pub(super) fn middle(self) -> Vector {
        let sum = self.from + self.to;
        sum.unit().unwrap_or(self.from)
    }

    /// Whether the foot of a place on the arc's circle lies on the arc.
    pub(super) fn has_foot(self, place: Vector) -> bool {
        self.normal.cross(self.from).dot(place) >= 0.0
            && self.normal.cross(self.to).dot(place) <= 0.0
    }

    /// Whether a place lies on the arc, ends included.
    pub(super) fn contains(self, place: Vector) -> bool {
        self.from.is_at(place)
            || self.to.is_at(place)
            || (self.normal.dot(place).abs() <= TOLERANCE && self.has_foot(place))
    }

    /// The angle from a place to the nearest one of the arc, in radians.
    pub(super) fn angle(self, place: Vector) -> f64 {
        if self.has_foot(place) {
            return self.normal.dot(place).abs().min(1.0).asin();
        }
        self.from.angle(place).min(self.to.angle(place))
    }

    /// The angle from the arc's start to one of its places, in radians.
    fn along(self, place: Vector) -> f64 {
        self.normal.cross(self.from).dot(place).atan2(self.from.dot(place))
    }

    /// The place at an angle from the arc's start.
    fn at(self, angle: f64) -> Vector {
        self.from * angle.cos() + self.normal.cross(self.from) * angle.sin()
    }

    /// The places where the arc meets another one: where they cross, and the ends of one on the other.
    pub(super) fn meetings(self, other: Arc, see: &mut dyn FnMut(Vector)) {
        let sides = [self.normal.dot(other.from), self.normal.dot(other.to)];
        if sides.iter().all(|side| *side > TOLERANCE) || sides.iter().all(|side| *side < -TOLERANCE)
        {
            return;
        }
        [other.from, other.to].into_iter().filter(|end| self.contains(*end)).for_each(&mut *see);
        [self.from, self.to].into_iter().filter(|end| other.contains(*end)).for_each(&mut *see);
        let Some(crossing) = self.normal.cross(other.normal).unit() else { return };
        let is_common = |place: &Vector| self.has_foot(*place) && other.has_foot(*place);
        [crossing, -crossing].into_iter().filter(is_common).for_each(see);
    }

    /// Whether the arc shares a place with another one.
    pub(super) fn meets(self, other: Arc) -> bool {
        let mut meets = false;
        self.meetings(other, &mut |_| meets = true);
        meets
    }

    /// The middles of the pieces into which the given places of the arc divide it.
    pub(super) fn middles(self, places: &[Vector]) -> Vec<Vector> {
        let end = self.along(self.to);
        let mut angles: Vec<f64> = places.iter().map(|place| self.along(*place)).collect();
        angles.extend([0.0, end]);
        angles.iter_mut().for_each(|angle| *angle = angle.clamp(0.0, end));
        angles.sort_unstable_by(f64::total_cmp);
        angles.windows(2).map(|two| self.at(f64::midpoint(two[0], two[1]))).collect()
    }
}

//! What a search demands of an object's geometry, beyond its rectangle (C10).
//!
//! ```text
//! 0 kind 1 | 0 7 | distance 8 | WKB
//! ```

use crate::predicate::{covers, inflated, intersects, is_near};
use crate::{Shape, ShapeError};
use remora_layout::rect::Rect;

/// Bytes before the WKB.
const HEAD_BYTES: usize = 16;

/// What an object's geometry has to do with a given one. In the plane, in the
/// unit of the tree's coordinates; both are closed sets of points, so that
/// edges count.
#[derive(Clone, PartialEq, Debug)]
pub enum Refine {
    /// They share a point (OGC's *intersects*).
    Intersects(Shape),
    /// Every point of the object is one of the shape (OGC's *coveredBy*). A
    /// polygon has to lie in one polygon of the shape.
    Within(Shape),
    /// Every point of the shape is one of the object (OGC's *covers*). A
    /// polygon has to lie in one polygon of the object.
    Contains(Shape),
    /// Their least distance is at most `most` (OGC's *dwithin*).
    DistanceAtMost {
        /// The shape.
        from: Shape,
        /// The distance, not negative.
        most: f64,
    },
}

/// Whether a rectangle is a point: then its object's geometry is that too.
pub fn is_point(rect: &Rect) -> bool {
    rect.min_x == rect.max_x && rect.min_y == rect.max_y
}

impl Refine {
    /// The shape that objects are compared with.
    pub fn shape(&self) -> &Shape {
        match self {
            Self::Intersects(shape) | Self::Within(shape) | Self::Contains(shape) => shape,
            Self::DistanceAtMost { from, .. } => from,
        }
    }

    /// The rectangle that a tree is searched for. An object that is one of
    /// those looked for has a rectangle that intersects it, for
    /// [`Refine::Within`] lies in it, for [`Refine::Contains`] contains it.
    pub fn window(&self) -> Rect {
        match self {
            Self::DistanceAtMost { from, most } => inflated(&from.bounds(), *most),
            _ => self.shape().bounds(),
        }
    }

    /// Whether an object with this geometry is one of those looked for.
    pub fn holds(&self, object: &Shape) -> bool {
        match self {
            Self::Intersects(shape) => intersects(shape, object),
            Self::Within(shape) => covers(shape, object),
            Self::Contains(shape) => covers(object, shape),
            Self::DistanceAtMost { from, most } => is_near(from, object, *most),
        }
    }

    /// Whether an object fits: by its geometry in WKB, or, if that is empty,
    /// by its rectangle. One whose rectangle is a point is that point, whatever
    /// its geometry. Bytes that are no geometry do not fit.
    pub fn fits(&self, rect: &Rect, wkb: &[u8]) -> bool {
        if wkb.is_empty() || is_point(rect) {
            return self.holds(&Shape::of_rect(rect));
        }
        Shape::from_wkb(wkb).is_ok_and(|shape| self.holds(&shape))
    }

    /// Its bytes in a request.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, distance) = match self {
            Self::Intersects(_) => (0, 0.0),
            Self::Within(_) => (1, 0.0),
            Self::Contains(_) => (2, 0.0),
            Self::DistanceAtMost { most, .. } => (3, *most),
        };
        let mut bytes = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&f64::to_le_bytes(distance));
        bytes.extend_from_slice(&self.shape().to_wkb());
        bytes
    }

    /// What the bytes of a request say.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ShapeError> {
        let (head, wkb) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(ShapeError::Short)?;
        let distance = f64::from_le_bytes(*head.last_chunk().expect("it is longer"));
        let shape = || Shape::from_wkb(wkb);
        match head[..HEAD_BYTES - 8] {
            [0, 0, 0, 0, 0, 0, 0, 0] if distance == 0.0 => Ok(Self::Intersects(shape()?)),
            [1, 0, 0, 0, 0, 0, 0, 0] if distance == 0.0 => Ok(Self::Within(shape()?)),
            [2, 0, 0, 0, 0, 0, 0, 0] if distance == 0.0 => Ok(Self::Contains(shape()?)),
            [3, 0, 0, 0, 0, 0, 0, 0] if distance.is_finite() && distance >= 0.0 => {
                Ok(Self::DistanceAtMost { from: shape()?, most: distance })
            }
            _ => Err(ShapeError::Refinement),
        }
    }
}

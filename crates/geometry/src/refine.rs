//! What a search demands of an object's geometry, beyond its rectangle (C10).
//!
//! ```text
//! 0 kind 1 | 0 7 | distance 8 | WKB
//! ```

use crate::predicate::{Budget, Covers, Intersects, IsNear, inflated};
use crate::{Shape, ShapeError, orientation};
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

/// One object that is compared, in turns: with long geometries that takes a while.
#[derive(Clone, Debug)]
pub struct Comparison {
    object: Shape,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Known(bool),
    Intersects(Intersects),
    Covers(Covers),
    IsNear(IsNear),
}

impl Comparison {
    /// Goes on, for so much `work` and what one more segment takes at the most: a
    /// look at all segments of both. `None` if that was not enough. `with` is what
    /// it was begun with.
    pub fn turn(&mut self, with: &Refine, work: u64) -> Option<bool> {
        let budget = Budget::of(work);
        let (shape, object) = (with.shape().parts(), self.object.parts());
        match (&mut self.state, with) {
            (State::Known(holds), _) => Some(*holds),
            (State::Intersects(state), _) => state.turn(shape, object, budget),
            (State::Covers(state), Refine::Contains(_)) => state.turn(object, shape, budget),
            (State::Covers(state), _) => state.turn(shape, object, budget),
            (State::IsNear(state), &Refine::DistanceAtMost { most, .. }) => {
                state.turn(shape, object, most, budget)
            }
            (State::IsNear(_), _) => Some(false),
        }
    }
}

/// Work that this thread has done to compare geometries, in the unit of
/// [`Comparison::turn`].
pub fn work_done() -> u64 {
    orientation::work_done()
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
        let mut comparison = self.compare(object.clone());
        let holds = comparison.turn(self, u64::MAX);
        holds.expect("the budget is never spent")
    }

    /// Begins to compare an object with this geometry.
    pub fn compare(&self, object: Shape) -> Comparison {
        let bounds = object.bounds();
        let may_hold = match self {
            Self::Intersects(shape) => bounds.intersects(&shape.bounds()),
            Self::Within(shape) => shape.bounds().contains(&bounds),
            Self::Contains(shape) => bounds.contains(&shape.bounds()),
            Self::DistanceAtMost { .. } => self.window().intersects(&bounds),
        };
        let state = match self {
            _ if !may_hold => State::Known(false),
            Self::Intersects(_) => State::Intersects(Intersects::Segments(0)),
            Self::Within(_) | Self::Contains(_) => State::Covers(Covers::Lines(0)),
            Self::DistanceAtMost { .. } => State::IsNear(IsNear::Meets(Intersects::Segments(0))),
        };
        Comparison { object, state }
    }

    /// Whether an object fits: by its geometry in WKB, or, if that is empty,
    /// by its rectangle. One whose rectangle is a point is that point, whatever
    /// its geometry. Bytes that are no geometry do not fit.
    pub fn fits(&self, rect: &Rect, wkb: &[u8]) -> bool {
        let mut comparison = self.compare_with(rect, wkb);
        let holds = comparison.turn(self, u64::MAX);
        holds.expect("the budget is never spent")
    }

    /// Begins to find out whether an object fits, as [`Refine::fits`] says.
    pub fn compare_with(&self, rect: &Rect, wkb: &[u8]) -> Comparison {
        let of_rect = wkb.is_empty() || is_point(rect);
        match (!of_rect).then(|| Shape::from_wkb(wkb)) {
            Some(Ok(shape)) => self.compare(shape),
            Some(Err(_)) => Comparison { object: Shape::of_rect(rect), state: State::Known(false) },
            None => self.compare(Shape::of_rect(rect)),
        }
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

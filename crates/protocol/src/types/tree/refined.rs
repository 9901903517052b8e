//! What a refined search looks for in its window, and what it cost.

use remora_geometry::Refine;
use remora_layout::rect::Predicate;

/// What a refined search cost: the number of its last reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refined {
    /// Nodes visited.
    pub nodes: u32,
    /// Objects whose geometries were looked at.
    pub candidates: u32,
}

impl Refined {
    /// As a reply's number.
    pub const fn to_number(self) -> i64 {
        (self.nodes as u64 | (self.candidates as u64) << 32) as i64
    }

    /// What a reply's number says.
    pub const fn from_number(number: i64) -> Self {
        Self { nodes: number as u32, candidates: (number as u64 >> 32) as u32 }
    }
}

/// What the rectangle of an object that fits has to do with the window of
/// [`Refine::window`].
pub const fn window_predicate(refine: &Refine) -> Predicate {
    match refine {
        Refine::Intersects(_) | Refine::DistanceAtMost { .. } => Predicate::Intersects,
        Refine::Within(_) => Predicate::Within,
        Refine::Contains(_) => Predicate::Contains,
    }
}

//! A refined search's window, and its cost.

use remora_geometry::Refine;
use remora_layout::rect::Predicate;

/// The cost of a refined search: the number of its last reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refined {
    /// Nodes visited.
    pub nodes: u32,
    /// Objects whose geometries were compared.
    pub candidates: u32,
}

impl Refined {
    /// As a reply's number.
    pub const fn to_number(self) -> i64 {
        (self.nodes as u64 | (self.candidates as u64) << 32) as i64
    }

    /// The cost from a reply's number.
    pub const fn from_number(number: i64) -> Self {
        Self { nodes: number as u32, candidates: (number as u64 >> 32) as u32 }
    }
}

/// The relation between the rectangle of an object that fits and the window of [`Refine::window`].
pub const fn window_predicate(refine: &Refine) -> Predicate {
    match refine {
        Refine::Intersects(_) | Refine::DistanceAtMost { .. } => Predicate::Intersects,
        Refine::Within(_) => Predicate::Within,
        Refine::Contains(_) => Predicate::Contains,
    }
}

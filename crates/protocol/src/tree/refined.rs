//! Refined searches in messages, and what they cost.

use crate::message::Status;
use crate::sized::take_sized;
use remora_geometry::{Refine, ShapeError};
use remora_layout::limits::MAX_REFINE_IDS;
use remora_layout::rect::Predicate;

/// Flag of a refined search: it is of some objects.
pub(super) const HAS_IDS: u8 = 1;
/// Flag of a refined search: its objects are counted, not given.
pub(super) const COUNTS: u8 = 2;

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

/// A refined search in a message.
pub(super) struct RefinedSearch<'a> {
    /// A [`Refine`]'s bytes.
    pub refine: &'a [u8],
    /// Words of the objects that it is of, if not of all.
    pub ids: Option<&'a [u8]>,
    /// The objects are counted, not given.
    pub counts: bool,
}

impl<'a> RefinedSearch<'a> {
    /// The search that flags and value encode.
    pub fn decode(flags: u8, value: &'a [u8]) -> Result<Self, Status> {
        let (refine, ids) = take_sized(value)?;
        match Refine::from_bytes(refine) {
            Ok(_) => {}
            Err(ShapeError::TooLong) => return Err(Status::TooLarge),
            Err(_) => return Err(Status::BadGeometry),
        }
        match flags {
            HAS_IDS if ids.len() > 8 * MAX_REFINE_IDS => Err(Status::TooLarge),
            HAS_IDS if ids.len().is_multiple_of(8) => {
                Ok(Self { refine, ids: Some(ids), counts: false })
            }
            0 | COUNTS if ids.is_empty() => Ok(Self { refine, ids: None, counts: flags == COUNTS }),
            _ => Err(Status::Malformed),
        }
    }
}

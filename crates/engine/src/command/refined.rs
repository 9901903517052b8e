//! Refined searches in messages: their cost, and parts with a length.

use super::tree::TreeCommand;
use remora_geometry::{Refine, ShapeError};
use remora_index::rtree::Predicate;
use remora_layout::limits::MAX_REFINE_IDS;
use remora_layout::message::Status;

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

/// The refined search that flags and value encode.
pub(super) fn decode_refine(flags: u8, value: &[u8]) -> Result<TreeCommand<'_>, Status> {
    let (refine, ids) = take_sized(value)?;
    match Refine::from_bytes(refine) {
        Ok(_) => {}
        Err(ShapeError::TooLong) => return Err(Status::TooLarge),
        Err(_) => return Err(Status::BadGeometry),
    }
    match flags {
        HAS_IDS if ids.len() > 8 * MAX_REFINE_IDS => Err(Status::TooLarge),
        HAS_IDS if ids.len().is_multiple_of(8) => {
            Ok(TreeCommand::Refine { refine, ids: Some(ids) })
        }
        0 if ids.is_empty() => Ok(TreeCommand::Refine { refine, ids: None }),
        COUNTS if ids.is_empty() => Ok(TreeCommand::CountRefined { refine }),
        _ => Err(Status::Malformed),
    }
}

/// Appends a part whose length stands before it.
pub(super) fn push_sized(scratch: &mut Vec<u8>, part: &[u8]) {
    // One that is too long is refused when it is checked.
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    scratch.extend_from_slice(&length.to_le_bytes());
    scratch.extend_from_slice(part);
}

/// A part whose length stands before it, and what follows.
pub(super) fn take_sized(value: &[u8]) -> Result<(&[u8], &[u8]), Status> {
    let (length, rest) = value.split_first_chunk::<4>().ok_or(Status::Malformed)?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(Status::Malformed)
}

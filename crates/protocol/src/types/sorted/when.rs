//! When a member gets a score.

use crate::command::Condition;
use crate::message::Status;

/// How a member's new score must compare with the one that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Comparison {
    /// Anyhow.
    #[default]
    Any = 0,
    /// Greater (GT).
    Greater = 1,
    /// Less (LT).
    Less = 2,
}

/// When a member gets a score.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct When {
    /// Only new members (NX), or only those that are there (XX).
    pub condition: Condition,
    /// Which scores members that are there may get; new members are added anyhow. Not with NX.
    pub comparison: Comparison,
}

impl When {
    /// Bits of the flags.
    pub(super) const MASK: u8 = 15;

    /// Whether a member gets the score `new`, which has the score `old` or is not there.
    ///
    /// ```
    /// use remora_protocol::Condition;
    /// use remora_protocol::sorted::{Comparison, When};
    ///
    /// let greater = When { condition: Condition::Always, comparison: Comparison::Greater };
    /// assert!(greater.permits(None, 1.0) && greater.permits(Some(0.5), 1.0));
    /// assert!(!greater.permits(Some(1.0), 1.0));
    /// ```
    #[inline]
    pub fn permits(self, old: Option<f64>, new: f64) -> bool {
        let Some(old) = old else { return self.condition != Condition::IfPresent };
        let compares = match self.comparison {
            Comparison::Any => true,
            Comparison::Greater => new > old,
            Comparison::Less => new < old,
        };
        compares && self.condition != Condition::IfAbsent
    }

    pub(super) const fn flags(self) -> u8 {
        self.condition as u8 | (self.comparison as u8) << 2
    }

    pub(super) fn decode(flags: u8) -> Result<Self, Status> {
        let condition = match flags & 3 {
            0 => Condition::Always,
            1 => Condition::IfAbsent,
            2 => Condition::IfPresent,
            _ => return Err(Status::Malformed),
        };
        let comparison = match flags >> 2 & 3 {
            0 => Comparison::Any,
            _ if condition == Condition::IfAbsent => return Err(Status::Malformed),
            1 => Comparison::Greater,
            2 => Comparison::Less,
            _ => return Err(Status::Malformed),
        };
        Ok(Self { condition, comparison })
    }
}

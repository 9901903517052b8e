//! Objects that an import or an export leaves out: counted by their reasons.

use remora_client_core::BadRect;
use remora_geometry::ShapeError;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::io::Write;

/// The shown characters of a detail.
const SHOWN: usize = 80;

/// Why an object is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// One of a few sentences; refusals are counted by it.
    pub reason: &'static str,
    /// The detail of this refusal.
    pub detail: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(reason: &'static str, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

impl Refusal {
    /// A refused geometry; `whose` names its object.
    pub fn of_shape(why: &ShapeError, whose: impl fmt::Display) -> Self {
        match why {
            ShapeError::TooLong => Self::new("its geometry is too long", format!("{whose}: {why}")),
            _ => Self::new("its geometry is not a good one", format!("{whose}: {why}")),
        }
    }
}

impl From<BadRect> for Refusal {
    fn from(why: BadRect) -> Self {
        let reason = match why {
            BadRect::NotANumber => "a coordinate is not a number",
            BadRect::Infinite => "a coordinate is infinite",
            BadRect::Inverted => "a minimum is greater than its maximum",
        };
        Self::new(reason, "")
    }
}

/// Refusals of one reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Refused {
    reason: &'static str,
    count: u64,
    /// The position of the first one.
    first_at: u64,
    detail: String,
}

/// Refusals, in the order in which their reasons came up.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Refusals {
    refused: Vec<Refused>,
    #[serde(skip)]
    by_reason: HashMap<&'static str, usize>,
}

impl Refusals {
    /// One more. It stands `at` a line of a table or of lines, else a feature's
    /// or element's number, from 1; of an export it is the object's id.
    pub fn add(&mut self, at: u64, Refusal { reason, detail }: Refusal) {
        let index = *self.by_reason.entry(reason).or_insert_with(|| {
            let detail = detail.chars().take(SHOWN).collect();
            self.refused.push(Refused { reason, count: 0, first_at: at, detail });
            self.refused.len() - 1
        });
        self.refused[index].count += 1;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.refused.iter().map(|refused| refused.count).sum()
    }

    /// Prints a line for each reason.
    pub fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        for Refused { reason, count, first_at, detail } in &self.refused {
            let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
            writeln!(out, "refused {count}: {reason} (first at {first_at}{detail})")?;
        }
        Ok(())
    }
}

//! What a run ends with.

use crate::limits::RESULT_PART_BYTES;
use crate::plan::Bytes;
use std::ops::AddAssign;
use std::sync::Arc;

/// The result of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The rows, in the order of the plan; those before the limit if it reached one.
    pub rows: Vec<Vec<Column>>,
    /// The limit that the run reached; `None` if the rows are all there are.
    pub limit: Option<Limit>,
    /// What it did.
    pub explain: Explain,
}

/// A column of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Column {
    /// The item has no such field.
    Nil,
    /// A value, or a key.
    Text(Bytes),
    /// Names and values of all fields, in the order of the names' bytes.
    Fields(Arc<[(Bytes, Bytes)]>),
}

impl Column {
    /// What it counts for [`crate::Limits::bytes`].
    pub fn bytes(&self) -> u64 {
        let texts = match self {
            Self::Nil => 0,
            Self::Text(text) => text.len(),
            Self::Fields(fields) => {
                fields.iter().map(|(name, value)| name.len() + value.len()).sum()
            }
        };
        RESULT_PART_BYTES + texts as u64
    }
}

/// A limit of [`crate::Limits`] or of a start that a run reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// It would visit more.
    Visits,
    /// There are more rows.
    Rows,
    /// The next row has too many bytes.
    Bytes,
    /// A step would remember more.
    Remembered,
    /// The time is over.
    Time,
    /// The window holds more than [`crate::limits::MAX_WINDOW_OBJECTS`]; there are no rows.
    Window,
    /// [`crate::limits::MAX_NEAREST`] objects were looked at, and the conditions have dropped too many.
    Nearest,
}

impl Limit {
    /// Its name in LIMIT, or the start that has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Visits => "VISITS",
            Self::Rows => "ROWS",
            Self::Bytes => "BYTES",
            Self::Remembered => "REMEMBERED",
            Self::Time => "MS",
            Self::Window => "WINDOW",
            Self::Nearest => "NEAREST",
        }
    }
}

/// Counts of a run: of what its rows needed, not of what it fetched ahead. If it reached a limit, what
/// lies between the last row and the limit counts in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Explain {
    /// Links and keys followed.
    pub hops: u64,
    /// Items visited: one for each row that came to an item and needed its content.
    pub items: u64,
    /// Lists, ordered trees and collections visited.
    pub lists: u64,
    /// Elements of lists, entries of ordered trees and documents visited, and fields that FIELDS has taken.
    pub elements: u64,
    /// Objects of trees visited.
    pub objects: u64,
    /// Rows of the result.
    pub rows: u64,
    /// Rows, elements and objects that went no further.
    pub skipped: Skipped,
    /// Batches of wants, fetched ahead or not: round trips, if a batch takes one. Pieces of a search's
    /// answer make more of them.
    pub batches: u64,
}

impl Explain {
    /// Visits, as [`crate::Limits::visits`] counts them.
    pub fn visits(&self) -> u64 {
        self.items + self.lists + self.elements + self.objects
    }
}

impl AddAssign<&Self> for Explain {
    fn add_assign(&mut self, other: &Self) {
        self.hops += other.hops;
        self.items += other.items;
        self.lists += other.lists;
        self.elements += other.elements;
        self.objects += other.objects;
        self.rows += other.rows;
        self.skipped += &other.skipped;
        self.batches += other.batches;
    }
}

/// How many rows, elements and objects went no further, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Skipped {
    /// The key holds nothing.
    pub gone: u64,
    /// The key holds another type than the step needs.
    pub other_type: u64,
    /// The field to follow is not there.
    pub missing_field: u64,
    /// The field or element is no link, and the step does not say KEY.
    pub not_a_link: u64,
    /// The text is too long for a key.
    pub not_a_key: u64,
    /// A condition does not hold.
    pub filtered: u64,
    /// The key was met before.
    pub met_before: u64,
}

impl AddAssign<&Self> for Skipped {
    fn add_assign(&mut self, other: &Self) {
        self.gone += other.gone;
        self.other_type += other.other_type;
        self.missing_field += other.missing_field;
        self.not_a_link += other.not_a_link;
        self.not_a_key += other.not_a_key;
        self.filtered += other.filtered;
        self.met_before += other.met_before;
    }
}

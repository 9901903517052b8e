//! Plans as data.

use crate::limits::*;
use remora_layout::rect::Rect;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes that several owners share: keys, names, values.
pub type Bytes = Arc<[u8]>;

/// A question over many keys: where it starts, its steps, its limits. It is within the bounds of
/// [`crate::limits`].
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    start: Start,
    steps: Vec<Step>,
    limits: Limits,
}

/// Where the rows of a plan start.
#[derive(Clone, PartialEq, Debug)]
pub enum Start {
    /// A row for each key.
    Keys(Vec<Bytes>),
    /// A row for each element of a list.
    List {
        /// The list's key.
        key: Bytes,
        /// The first element, as LRANGE counts: from 0, or from -1 at the end.
        start: i64,
        /// The last element, counted alike.
        stop: i64,
        /// Elements that are no links name keys too.
        by_key: bool,
    },
    /// A row for each object that shares a point with the window, in the order of their ids' bytes.
    Window {
        /// The window, finite and not inverted.
        window: Rect,
        /// Which objects of which tree.
        objects: Objects,
    },
    /// A row for each of the objects nearest to a point, nearest first.
    Nearest {
        /// The point's x and y.
        point: (f64, f64),
        /// So many objects that meet the conditions.
        count: u32,
        /// Which objects of which tree.
        objects: Objects,
    },
}

/// Objects of a tree of places, and the keys that they name.
#[derive(Clone, PartialEq, Debug)]
pub struct Objects {
    /// The tree's key.
    pub tree: Bytes,
    /// Conditions on the object's own fields; all must hold.
    pub conditions: Vec<Condition>,
    /// The row's key is this prefix and the object's id (an integer in decimal).
    pub prefix: Bytes,
}

/// What happens to each row. A step that needs the content of the row's item drops the row if the key
/// holds nothing, or another type, and the run counts why. A string is an item without fields.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Continues with the target of a link field.
    Follow {
        /// The field.
        field: Bytes,
        /// A value that is no link names a key too.
        by_key: bool,
    },
    /// The item is a list: continues with a row for each element that is a link, in order.
    Each {
        /// Elements that are no links name keys too.
        by_key: bool,
    },
    /// The item is a hash: continues with a row for each field that is a link, in the order of the names.
    Fields {
        /// Values that are no links name keys too.
        by_key: bool,
    },
    /// The item is an ordered tree: continues with a row for each entry of a range whose value is a link,
    /// in the order of the keys, or against it.
    Range(Range),
    /// The item is a collection of documents: continues with a row for each document that matches a filter.
    /// The document is the row's item until a step leaves it: its fields are those at its top, of a string the
    /// string itself, of another value its JSON. None of them is a link.
    Find(Find),
    /// Continues with all items within `depth` levels, breadth first and without the item itself. The
    /// next level of an item are the elements of the list that its field leads to: Follow, then Each.
    Walk {
        /// The field.
        via: Bytes,
        /// Levels, from 1.
        depth: u32,
        /// Each item once, where the walk from this row first meets it; otherwise on each path.
        once: bool,
        /// Values and elements that are no links name keys too.
        by_key: bool,
    },
    /// Continues with the key that is the row's key with these bytes behind: `user:7` and `:posts` give
    /// `user:7:posts`. Behind a link to a generation's name it stays in that generation.
    Suffix(Bytes),
    /// Drops rows whose item does not meet the condition.
    Where(Condition),
    /// Appends a column for each field: its value or, if it is a link, the key of its target.
    Get(Vec<Bytes>),
    /// Appends one column: the names and values of all fields, or the text of a string.
    GetAll,
    /// Appends the item's key as a column.
    GetKey,
    /// Appends a column, in decimal: the level at which the last WALK found the item to which, or from
    /// which, the row came; 0 before the first WALK.
    GetLevel,
    /// Drops rows whose item's key has passed this step before.
    Once,
    /// Drops the first rows.
    Skip(u64),
    /// Ends the plan after so many rows, at least one.
    Take(u64),
}

impl Step {
    /// The steps of a path of fields such as `supervisor.department`.
    ///
    /// ```
    /// use remora_plan::Step;
    /// let steps: Vec<_> = Step::path(b"supervisor.department", false).collect();
    /// assert_eq!(steps[0], Step::Follow { field: (*b"supervisor").into(), by_key: false });
    /// assert_eq!(steps.len(), 2);
    /// ```
    pub fn path(fields: &[u8], by_key: bool) -> impl Iterator<Item = Self> {
        let fields = fields.split(|byte| *byte == b'.');
        fields.map(move |field| Self::Follow { field: field.into(), by_key })
    }
}

/// The entries of an ordered tree that a RANGE takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// Their keys.
    pub keys: KeyRange,
    /// So many of them at most, at least one.
    pub count: u64,
    /// Appends the entry's key as a column.
    pub with_keys: bool,
    /// Values that are no links name keys too.
    pub by_key: bool,
}

/// The documents of a collection that a FIND takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Find {
    /// A filter as MongoDB has it, as Extended JSON. Only the owner of the collection parses it.
    pub filter: Bytes,
    /// So many documents at most, at least one.
    pub count: u64,
}

/// A part of the keys of an ordered tree, as users write them: of integers in decimal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// The smallest key.
    pub from: Bound<Bytes>,
    /// The greatest key.
    pub to: Bound<Bytes>,
    /// From the greatest key on.
    pub is_reverse: bool,
}

/// A test of one field.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    /// The field.
    pub field: Bytes,
    /// What must hold.
    pub test: Test,
}

/// What must hold for a field's value. The value of a link is the key of its target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Test {
    /// The field is there.
    Exists,
    /// The field is not there.
    Missing,
    /// The field is there, and its value compares so.
    Is(Comparison, Bytes),
}

/// How a value compares with another: as numbers if both are numbers, else as bytes. Two integers of
/// 64 bits compare exactly, other decimal numbers as `f64`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

impl Comparison {
    /// All of them, with their text forms.
    pub(crate) const ALL: [(Self, &str); 6] = [
        (Self::Equal, "="),
        (Self::NotEqual, "!="),
        (Self::Less, "<"),
        (Self::AtMost, "<="),
        (Self::Greater, ">"),
        (Self::AtLeast, ">="),
    ];
}

/// What ends a run before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Visits: each item that is fetched, each list or ordered tree, each element or entry of one, each object.
    pub visits: u64,
    /// Rows of the result.
    pub rows: u64,
    /// Bytes of the result: those of its columns, and [`RESULT_PART_BYTES`] for each column and row.
    pub bytes: u64,
    /// Keys that one ONCE, or one WALK from one row, remembers, by their lengths: see
    /// [`REMEMBERED_UNIT_BYTES`].
    pub remembered: u64,
    /// Time of the run in ms.
    pub time_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            visits: DEFAULT_VISITS,
            rows: DEFAULT_ROWS,
            bytes: DEFAULT_RESULT_BYTES,
            remembered: DEFAULT_REMEMBERED,
            time_ms: DEFAULT_TIME_MS,
        }
    }
}

/// Why there is no such plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadPlan {
    /// More than [`MAX_STEPS`].
    #[error("a plan has at most {MAX_STEPS} steps")]
    Steps,
    /// More than [`MAX_REMEMBERING_STEPS`].
    #[error("a plan has at most {MAX_REMEMBERING_STEPS} steps that remember keys (ONCE, WALK)")]
    RememberingSteps,
    /// None, or more than [`MAX_START_KEYS`].
    #[error("a plan starts from 1 to {MAX_START_KEYS} keys")]
    Keys,
    /// More than [`MAX_CONDITIONS`].
    #[error("a start has at most {MAX_CONDITIONS} conditions")]
    Conditions,
    /// None, or more than [`MAX_GET_FIELDS`].
    #[error("GET takes 1 to {MAX_GET_FIELDS} fields")]
    Fields,
    /// A key is longer than [`MAX_PLAN_KEY_BYTES`].
    #[error("a key has at most {MAX_PLAN_KEY_BYTES} bytes")]
    LongKey,
    /// A name or value is longer than [`MAX_WORD_BYTES`].
    #[error(
        "a field's name, a value to compare with and a filter have at most {MAX_WORD_BYTES} bytes"
    )]
    LongWord,
    /// The prefix is longer than [`MAX_PREFIX_BYTES`].
    #[error("a prefix of keys has at most {MAX_PREFIX_BYTES} bytes")]
    LongPrefix,
    /// The suffix is longer than [`MAX_PREFIX_BYTES`].
    #[error("a suffix of keys has at most {MAX_PREFIX_BYTES} bytes")]
    LongSuffix,
    /// The window is infinite, inverted or not a number.
    #[error("a window has finite corners, the lower one first")]
    Window,
    /// The point is infinite or not a number.
    #[error("a point has finite coordinates")]
    Point,
    /// None, or more than [`MAX_NEAREST`].
    #[error("NEAREST takes 1 to {MAX_NEAREST} objects")]
    Count,
    /// None, or more than [`MAX_DEPTH`].
    #[error("WALK goes 1 to {MAX_DEPTH} levels deep")]
    Depth,
    /// A RANGE of none.
    #[error("RANGE takes at least 1 entry")]
    Entries,
    /// A FIND of none.
    #[error("FIND takes at least 1 document")]
    Documents,
    /// A bound is longer than [`MAX_BOUND_BYTES`].
    #[error("a bound of RANGE has at most {MAX_BOUND_BYTES} bytes")]
    LongBound,
    /// TAKE of none.
    #[error("TAKE takes at least 1 row")]
    Take,
    /// Visits beyond [`MAX_VISITS`].
    #[error("LIMIT VISITS is at most {MAX_VISITS}")]
    Visits,
    /// Rows beyond [`MAX_ROWS`].
    #[error("LIMIT ROWS is at most {MAX_ROWS}")]
    Rows,
    /// Bytes beyond [`MAX_RESULT_BYTES`].
    #[error("LIMIT BYTES is at most {MAX_RESULT_BYTES}")]
    Bytes,
    /// Remembered keys beyond [`MAX_REMEMBERED`].
    #[error("LIMIT REMEMBERED is at most {MAX_REMEMBERED}")]
    Remembered,
    /// A time beyond [`MAX_TIME_MS`].
    #[error("LIMIT MS is at most {MAX_TIME_MS}")]
    Time,
}

impl Plan {
    /// A plan, if it is within the bounds.
    ///
    /// # Errors
    /// Which bound it is not within.
    pub fn new(start: Start, steps: Vec<Step>, limits: Limits) -> Result<Self, BadPlan> {
        start.check()?;
        demand(steps.len() <= MAX_STEPS, BadPlan::Steps)?;
        steps.iter().try_for_each(Step::check)?;
        let remembers = |step: &&Step| matches!(step, Step::Once | Step::Walk { .. });
        let remembering = steps.iter().filter(remembers).count();
        demand(remembering <= MAX_REMEMBERING_STEPS, BadPlan::RememberingSteps)?;
        limits.check()?;
        Ok(Self { start, steps, limits })
    }

    /// Where it starts.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// Its steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Its limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}

impl Start {
    /// The key that the plan reads first: the first of the keys, the list or the tree.
    pub fn first_key(&self) -> Option<&Bytes> {
        match self {
            Self::Keys(keys) => keys.first(),
            Self::List { key, .. } => Some(key),
            Self::Window { objects, .. } | Self::Nearest { objects, .. } => Some(&objects.tree),
        }
    }

    fn check(&self) -> Result<(), BadPlan> {
        match self {
            Self::Keys(keys) => {
                demand((1..=MAX_START_KEYS).contains(&keys.len()), BadPlan::Keys)?;
                keys.iter().try_for_each(|key| check_key(key))
            }
            Self::List { key, .. } => check_key(key),
            Self::Window { window, objects } => {
                demand(window.checked().is_ok(), BadPlan::Window)?;
                objects.check()
            }
            Self::Nearest { point: (x, y), count, objects } => {
                demand(x.is_finite() && y.is_finite(), BadPlan::Point)?;
                demand((1..=MAX_NEAREST).contains(count), BadPlan::Count)?;
                objects.check()
            }
        }
    }
}

impl Objects {
    fn check(&self) -> Result<(), BadPlan> {
        check_key(&self.tree)?;
        demand(self.prefix.len() <= MAX_PREFIX_BYTES, BadPlan::LongPrefix)?;
        demand(self.conditions.len() <= MAX_CONDITIONS, BadPlan::Conditions)?;
        self.conditions.iter().try_for_each(Condition::check)
    }
}

impl Step {
    fn check(&self) -> Result<(), BadPlan> {
        match self {
            Self::Follow { field, .. } => check_word(field),
            Self::Walk { via, depth, .. } => {
                demand((1..=MAX_DEPTH).contains(depth), BadPlan::Depth)?;
                check_word(via)
            }
            Self::Range(range) => range.check(),
            Self::Find(find) => {
                demand(find.count > 0, BadPlan::Documents)?;
                check_word(&find.filter)
            }
            Self::Where(condition) => condition.check(),
            Self::Get(fields) => {
                demand((1..=MAX_GET_FIELDS).contains(&fields.len()), BadPlan::Fields)?;
                fields.iter().try_for_each(|field| check_word(field))
            }
            Self::Suffix(suffix) => demand(suffix.len() <= MAX_PREFIX_BYTES, BadPlan::LongSuffix),
            Self::Take(count) => demand(*count > 0, BadPlan::Take),
            Self::Each { .. }
            | Self::Fields { .. }
            | Self::GetAll
            | Self::GetKey
            | Self::GetLevel
            | Self::Once
            | Self::Skip(_) => Ok(()),
        }
    }
}

impl Range {
    fn check(&self) -> Result<(), BadPlan> {
        demand(self.count > 0, BadPlan::Entries)?;
        let fits = |bound: &Bound<Bytes>| match bound {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => key.len() <= MAX_BOUND_BYTES,
        };
        demand(fits(&self.keys.from) && fits(&self.keys.to), BadPlan::LongBound)
    }
}

impl Condition {
    fn check(&self) -> Result<(), BadPlan> {
        check_word(&self.field)?;
        match &self.test {
            Test::Is(_, value) => check_word(value),
            Test::Exists | Test::Missing => Ok(()),
        }
    }
}

impl Limits {
    fn check(&self) -> Result<(), BadPlan> {
        demand(self.visits <= MAX_VISITS, BadPlan::Visits)?;
        demand(self.rows <= MAX_ROWS, BadPlan::Rows)?;
        demand(self.bytes <= MAX_RESULT_BYTES, BadPlan::Bytes)?;
        demand(self.remembered <= MAX_REMEMBERED, BadPlan::Remembered)?;
        demand(self.time_ms <= MAX_TIME_MS, BadPlan::Time)
    }
}

fn check_key(key: &[u8]) -> Result<(), BadPlan> {
    demand(key.len() <= MAX_PLAN_KEY_BYTES, BadPlan::LongKey)
}

fn check_word(word: &[u8]) -> Result<(), BadPlan> {
    demand(word.len() <= MAX_WORD_BYTES, BadPlan::LongWord)
}

fn demand(holds: bool, bad: BadPlan) -> Result<(), BadPlan> {
    if holds { Ok(()) } else { Err(bad) }
}

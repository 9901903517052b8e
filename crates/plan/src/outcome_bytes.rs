//! Outcomes as bytes, in messages. The layer of messages says which version they have.
//!
//! ```text
//! outcome   limit 1 | counts 14 * 8 | rows 4 | row ...
//! row       columns 4 | column ...
//! column    0                                  there is no such field
//!           1 | word                           a value, or a key
//!           2 | fields 4 | word, word ...      names and values
//! limit     0 none, 1 VISITS, 2 ROWS, 3 BYTES, 4 REMEMBERED, 5 MS, 6 WINDOW,
//!           7 NEAREST
//! word      length 4 | bytes
//! ```
//! Numbers are little-endian. The counts are those of [`Explain`], in its order.

use crate::bytes::{Input, Out};
use crate::outcome::{Column, Explain, Limit, Outcome, Skipped};

/// Limits in the order of their numbers, from 1.
const LIMITS: [Limit; 7] = [
    Limit::Visits,
    Limit::Rows,
    Limit::Bytes,
    Limit::Remembered,
    Limit::Time,
    Limit::Window,
    Limit::Nearest,
];

const NIL: u8 = 0;
const TEXT: u8 = 1;
const FIELDS: u8 = 2;

impl Outcome {
    /// The bytes of an outcome.
    ///
    /// ```
    /// use remora_plan::{Column, Outcome};
    ///
    /// let rows = vec![vec![Column::Nil, Column::Text((*b"Ann").into())]];
    /// let outcome = Outcome { rows, ..Outcome::default() };
    /// let mut bytes = outcome.to_bytes();
    /// assert_eq!(Outcome::from_bytes(&bytes), Some(outcome));
    /// bytes.pop();
    /// assert_eq!(Outcome::from_bytes(&bytes), None);
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = head(self);
        self.rows.iter().for_each(|row| push_row(&mut out, row));
        out.0
    }

    /// The outcome that the bytes encode, if they encode one.
    ///
    /// It takes memory in proportion to the bytes, whatever they say.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut input = Input(bytes);
        let (limit, explain, rows) = take_head(&mut input)?;
        let rows = input.list(rows, usize::MAX, take_row)?;
        input.0.is_empty().then_some(Self { rows, limit, explain })
    }
}

/// Makes the bytes of an outcome some rows at a time: it may have a million.
#[derive(Debug)]
pub struct OutcomeWriter {
    out: Out,
    rows: std::vec::IntoIter<Vec<Column>>,
}

impl OutcomeWriter {
    /// No row is written yet.
    pub fn new(outcome: Outcome) -> Self {
        Self { out: head(&outcome), rows: outcome.rows.into_iter() }
    }

    /// Writes so many rows. The bytes, once all are written.
    pub fn write(&mut self, rows: usize) -> Option<Vec<u8>> {
        self.rows.by_ref().take(rows).for_each(|row| push_row(&mut self.out, &row));
        let is_whole = self.rows.as_slice().is_empty();
        is_whole.then(|| std::mem::take(&mut self.out.0))
    }
}

/// Reads the bytes of an outcome a row at a time.
///
/// ```
/// use remora_plan::{Column, Outcome, OutcomeReader, OutcomeWriter};
///
/// let rows = vec![vec![Column::Nil], vec![Column::Text((*b"Ann").into())]];
/// let mut writer = OutcomeWriter::new(Outcome { rows: rows.clone(), ..Outcome::default() });
/// assert_eq!(writer.write(1), None);
/// let bytes = writer.write(1).unwrap();
/// let mut reader = OutcomeReader::new(bytes).unwrap();
/// assert_eq!((reader.rows(), reader.next_row()), (2, Some(rows[0].clone())));
/// assert_eq!((reader.next_row(), reader.next_row()), (Some(rows[1].clone()), None));
/// ```
#[derive(Debug)]
pub struct OutcomeReader {
    bytes: Vec<u8>,
    at: usize,
    left: usize,
    limit: Option<Limit>,
    explain: Explain,
}

impl OutcomeReader {
    /// No row is read yet. None: the bytes do not begin as those of an outcome.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        let mut input = Input(&bytes);
        let (limit, explain, left) = take_head(&mut input)?;
        let at = bytes.len() - input.0.len();
        Some(Self { at, left, limit, explain, bytes })
    }

    /// The limit that the run reached.
    pub const fn limit(&self) -> Option<Limit> {
        self.limit
    }

    /// What the run did.
    pub const fn explain(&self) -> &Explain {
        &self.explain
    }

    /// Rows that are not read yet.
    pub const fn rows(&self) -> usize {
        self.left
    }

    /// All bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The next row; none at the end, or where the bytes encode none.
    pub fn next_row(&mut self) -> Option<Vec<Column>> {
        self.left = self.left.checked_sub(1)?;
        let mut input = Input(&self.bytes[self.at..]);
        let row = take_row(&mut input)?;
        self.at = self.bytes.len() - input.0.len();
        Some(row)
    }
}

fn head(outcome: &Outcome) -> Out {
    let mut out = Out::default();
    let position = |limit| LIMITS.iter().position(|known| *known == limit);
    out.byte(outcome.limit.and_then(position).map_or(0, |at| at as u8 + 1));
    outcome.explain.numbers().iter().for_each(|number| out.word64(*number));
    out.word32(outcome.rows.len() as u32);
    out
}

fn take_head(input: &mut Input<'_>) -> Option<(Option<Limit>, Explain, usize)> {
    let limit = match input.byte()? {
        0 => None,
        number => Some(*LIMITS.get(usize::from(number) - 1)?),
    };
    let mut numbers = [0; NUMBERS];
    for number in &mut numbers {
        *number = input.word64()?;
    }
    Some((limit, Explain::of(numbers), input.word32()? as usize))
}

fn push_row(out: &mut Out, row: &[Column]) {
    out.word32(row.len() as u32);
    row.iter().for_each(|column| push(out, column));
}

fn take_row(input: &mut Input<'_>) -> Option<Vec<Column>> {
    let columns = input.word32()? as usize;
    input.list(columns, usize::MAX, column)
}

fn push(out: &mut Out, column: &Column) {
    match column {
        Column::Nil => out.byte(NIL),
        Column::Text(text) => {
            out.byte(TEXT);
            out.text(text);
        }
        Column::Fields(fields) => {
            out.byte(FIELDS);
            out.word32(fields.len() as u32);
            for (name, value) in fields.iter() {
                out.text(name);
                out.text(value);
            }
        }
    }
}

fn column(input: &mut Input<'_>) -> Option<Column> {
    Some(match input.byte()? {
        NIL => Column::Nil,
        TEXT => Column::Text(input.text()?),
        FIELDS => {
            let count = input.word32()? as usize;
            let fields = input.list(count, usize::MAX, |input| {
                let name = input.text()?;
                Some((name, input.text()?))
            })?;
            Column::Fields(fields.into())
        }
        _ => return None,
    })
}

/// The numbers of an [`Explain`].
const NUMBERS: usize = 14;

impl Explain {
    fn numbers(&self) -> [u64; NUMBERS] {
        let Self { hops, items, lists, elements, objects, rows, skipped, batches } = *self;
        let Skipped {
            gone,
            other_type,
            missing_field,
            not_a_link,
            not_a_key,
            filtered,
            met_before,
        } = skipped;
        [
            hops,
            items,
            lists,
            elements,
            objects,
            rows,
            gone,
            other_type,
            missing_field,
            not_a_link,
            not_a_key,
            filtered,
            met_before,
            batches,
        ]
    }

    fn of(numbers: [u64; NUMBERS]) -> Self {
        let [hops, items, lists, elements, objects, rows, gone, other_type, rest @ ..] = numbers;
        let [missing_field, not_a_link, not_a_key, filtered, met_before, batches] = rest;
        let skipped = Skipped {
            gone,
            other_type,
            missing_field,
            not_a_link,
            not_a_key,
            filtered,
            met_before,
        };
        Self { hops, items, lists, elements, objects, rows, skipped, batches }
    }
}

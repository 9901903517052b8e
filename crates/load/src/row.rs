//! Rows, and what takes them.

use std::borrow::Cow;

/// Longest line of JSON, or record of CSV, in bytes: what is held of a file at once.
pub const MAX_RECORD_BYTES: u64 = 16 << 20;

/// The value of a row in a column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cell<'a> {
    /// None: null, a member that is not there, an empty cell of a CSV file.
    Missing,
    /// Its text.
    Text(Cow<'a, [u8]>),
    /// The texts of the elements of a JSON array.
    Array(Vec<Cow<'a, [u8]>>),
}

/// What takes the rows of a table. Errors end the reading.
pub trait Rows {
    /// A row: a cell for each column that is wanted. `number`: its line in a file, else its number,
    /// from 1.
    fn row(&mut self, number: u64, cells: &[Cell<'_>]) -> anyhow::Result<()>;

    /// A row that cannot be read. `column`: that of the line, from 1, or the number of a wanted column.
    fn bad(&mut self, number: u64, at: Position, why: String) -> anyhow::Result<()>;

    /// Nothing has come for a while.
    fn idle(&mut self) -> anyhow::Result<()>;
}

/// Where in a row something is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// The row as a whole.
    Row,
    /// The character of this number, from 1, in the line.
    Character(usize),
    /// The cell of this number.
    Cell(usize),
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Keeps what it takes, as texts.
    #[derive(Default)]
    pub struct Taken {
        pub rows: Vec<String>,
        pub bad: Vec<String>,
    }

    impl Rows for Taken {
        fn row(&mut self, number: u64, cells: &[Cell<'_>]) -> anyhow::Result<()> {
            let cell = |cell: &Cell<'_>| match cell {
                Cell::Missing => "-".to_owned(),
                Cell::Text(text) => String::from_utf8_lossy(text).into_owned(),
                Cell::Array(texts) => {
                    let texts = texts.iter().map(|text| String::from_utf8_lossy(text));
                    format!("[{}]", texts.collect::<Vec<_>>().join(","))
                }
            };
            let cells: Vec<String> = cells.iter().map(cell).collect();
            self.rows.push(format!("{number}: {}", cells.join("|")));
            Ok(())
        }

        fn bad(&mut self, number: u64, at: Position, why: String) -> anyhow::Result<()> {
            self.bad.push(format!("{number} {at:?}: {why}"));
            Ok(())
        }

        fn idle(&mut self) -> anyhow::Result<()> {
            Ok(())
        }
    }
}

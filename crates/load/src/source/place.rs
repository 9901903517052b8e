//! Where rows are, for messages.

use crate::mapping::TableMapping;
use crate::row::Position;

/// How messages name a position in a table.
#[derive(Clone, Default, Debug)]
pub struct Place {
    /// The file, or the table.
    pub name: String,
    /// `line`, or `row`.
    pub row: &'static str,
    /// `column`, or `member`.
    pub column: &'static str,
    /// The numbers of the wanted columns in a CSV file, from 1; empty elsewhere.
    pub columns: Vec<usize>,
}

impl Place {
    /// Tells a position.
    pub fn tell(&self, table: &TableMapping, number: u64, at: Position) -> String {
        let row = format!("{}, {} {number}", self.name, self.row);
        match at {
            Position::Row => row,
            Position::Character(character) => format!("{row}, column {character}"),
            Position::Cell(cell) => {
                let (name, what) = (&table.columns[cell], self.column);
                match self.columns.get(cell) {
                    Some(column) => format!("{row}, {what} {column} ({name})"),
                    None => format!("{row}, {what} {name}"),
                }
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A table with these columns, of which nothing is made.
    pub fn table(columns: &[&str]) -> TableMapping {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        TableMapping { name: None, columns, items: Vec::new(), lists: Vec::new() }
    }
}

//! CSV: a line that names the columns, or a mapping that does, and a record for each row.

use crate::mapping::{CsvForm, TableMapping};
use crate::row::{Cell, MAX_RECORD_BYTES, Position, Rows};
use anyhow::bail;
use csv::{ByteRecord, Reader, ReaderBuilder};
use std::cell::Cell as Counter;
use std::io::{self, Read};
use std::rc::Rc;

/// Read at once.
const BUFFER_BYTES: usize = 1 << 16;

/// How a file is written, and where its columns are.
pub struct Form {
    separator: u8,
    has_quotes: bool,
    has_header: bool,
    /// The columns of a record.
    width: usize,
    /// The position of each wanted column.
    positions: Vec<usize>,
}

impl Form {
    /// Finds the columns in the first line, or in the mapping.
    ///
    /// # Errors
    /// The first line cannot be read, or a column is not there.
    pub fn find(
        input: impl Read,
        is_tabbed: bool,
        wanted: &CsvForm,
        table: &TableMapping,
    ) -> anyhow::Result<Self> {
        let usual = if is_tabbed { b'\t' } else { b',' };
        let separator = wanted.separator.as_ref().map_or(usual, |text| text.as_bytes()[0]);
        let mut form = Self {
            separator,
            has_quotes: !is_tabbed,
            has_header: wanted.columns.is_none(),
            width: 0,
            positions: Vec::new(),
        };
        let names = match &wanted.columns {
            Some(columns) => columns.clone(),
            None => form.header(input)?,
        };
        form.width = names.len();
        for column in &table.columns {
            let Some(at) = names.iter().position(|name| name == column) else {
                bail!("line 1: no column {column}, but {}", names.join(", "));
            };
            form.positions.push(at);
        }
        Ok(form)
    }

    fn header(&self, input: impl Read) -> anyhow::Result<Vec<String>> {
        let (mut reader, _) = self.reader(input);
        let mut record = ByteRecord::new();
        if !reader.read_byte_record(&mut record)? {
            bail!("line 1 has to name the columns; the file is empty");
        }
        // A mark of the byte order that some programs write is no part of the first name.
        let names = record.iter().map(|name| String::from_utf8_lossy(name));
        Ok(names.map(|name| name.trim_start_matches('\u{feff}').trim().to_owned()).collect())
    }

    fn reader<R: Read>(&self, input: R) -> (Reader<Bounded<R>>, Rc<Counter<u64>>) {
        let left = Rc::new(Counter::new(MAX_RECORD_BYTES));
        let input = Bounded { input, left: left.clone() };
        let reader = ReaderBuilder::new()
            .delimiter(self.separator)
            .quoting(self.has_quotes)
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(BUFFER_BYTES)
            .from_reader(input);
        (reader, left)
    }

    /// The numbers of the wanted columns, from 1.
    pub fn numbers(&self) -> Vec<usize> {
        self.positions.iter().map(|at| at + 1).collect()
    }

    /// Reads all records.
    ///
    /// # Errors
    /// The input cannot be read, a record is too long, or what `rows` returns.
    pub fn read(&self, input: impl Read, rows: &mut impl Rows) -> anyhow::Result<()> {
        let (mut reader, left) = self.reader(input);
        let mut record = ByteRecord::new();
        let mut is_header = self.has_header;
        while reader.read_byte_record(&mut record)? {
            left.set(MAX_RECORD_BYTES);
            if std::mem::take(&mut is_header) {
                continue;
            }
            let line = record.position().map_or(0, csv::Position::line);
            if record.len() != self.width {
                let why = format!("it has {} columns, not {}", record.len(), self.width);
                rows.bad(line, Position::Row, why)?;
                continue;
            }
            let cell = |at: &usize| match &record[*at] {
                b"" => Cell::Missing,
                text => Cell::Text(text.into()),
            };
            let cells: Vec<Cell<'_>> = self.positions.iter().map(cell).collect();
            rows.row(line, &cells)?;
        }
        Ok(())
    }
}

/// Ends a record that is too long: a quote without its partner would take the rest of the file.
struct Bounded<R> {
    input: R,
    left: Rc<Counter<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left.get() == 0 {
            let why = format!("a record is longer than {MAX_RECORD_BYTES} bytes: is a quote open?");
            return Err(io::Error::other(why));
        }
        let read = self.input.read(into)?;
        self.left.set(self.left.get().saturating_sub(read as u64));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::Taken;
    use crate::source::place::tests::table;

    fn read(text: &str, form: &CsvForm) -> anyhow::Result<Taken> {
        let table = table(&["to", "from"]);
        let form = Form::find(text.as_bytes(), false, form, &table)?;
        let mut taken = Taken::default();
        form.read(text.as_bytes(), &mut taken)?;
        Ok(taken)
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let text = "\u{feff}from,what, to\n1,x,2\n\"a\nb\",,\n7,8\n5,6,7\n";
        let taken = read(text, &CsvForm::default()).unwrap();
        assert_eq!(taken.rows, ["2: 2|1", "3: -|a\nb", "6: 7|5"]);
        assert_eq!(taken.bad, ["5 Row: it has 2 columns, not 3"]);
        let error = read("from,till\n", &CsvForm::default()).err().unwrap();
        assert_eq!(error.to_string(), "line 1: no column to, but from, till");
        assert!(read("", &CsvForm::default()).is_err());
    }

    #[test]
    fn a_mapping_may_name_the_columns_and_what_parts_them() {
        let columns = Some(vec!["from".to_owned(), "to".to_owned()]);
        let form = CsvForm { separator: Some(" ".to_owned()), columns };
        assert_eq!(read("1 2\n3 4\n", &form).unwrap().rows, ["1: 2|1", "2: 4|3"]);
    }

    #[test]
    fn a_quote_without_its_partner_is_bounded() {
        let table = table(&["a"]);
        let form = CsvForm { columns: Some(vec!["a".to_owned()]), ..CsvForm::default() };
        let form = Form::find(&b""[..], false, &form, &table).unwrap();
        let endless = Read::chain(&b"\"open"[..], io::repeat(b'x'));
        let error = form.read(endless, &mut Taken::default()).unwrap_err();
        assert!(error.to_string().contains("is a quote open"), "{error}");
    }
}

//! A dry run: what would be written, and all that is wrong, without a server.

use crate::convert::{NotWritten, Pass, Write, convert};
use crate::generation::Keys;
use crate::load::{places, progress_bar};
use crate::mapping::{Mapping, TableMapping};
use crate::row::{Cell, Position, Rows};
use crate::source::place::Place;
use crate::source::{NoSuchMember, Source};
use crate::writer::Counts;
use remora_command_line::note;
use serde::Serialize;

/// Examples that are shown of each table and pass.
const EXAMPLES: u64 = 3;
/// Bad rows that are told.
const TOLD: u64 = 20;

/// What a dry run found.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Found {
    /// Rows of all tables.
    pub rows: u64,
    /// Rows, or lines, that are bad.
    pub bad: u64,
    /// Tables of which no row has a column that the mapping names.
    pub lacking: u64,
    /// What would be written.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Reads all of a source.
///
/// # Errors
/// The source is away.
pub fn run(source: &str, mapping: &Mapping) -> anyhow::Result<Found> {
    let mut open = Source::open(source, mapping)?;
    let places = places(&open, mapping);
    let prefix = Keys::of(&mapping.name).generation(1) + ":";
    let mut found = Found::default();
    for (table, place) in mapping.tables.iter().zip(&places) {
        let bar = progress_bar(source, &place.name);
        let mut looking = Looking { table, place, prefix: prefix.as_bytes(), rows: 0, found };
        let read = open.read(table, &bar, &mut looking);
        found = looking.found;
        bar.finish_and_clear();
        match read {
            Err(error) if error.is::<NoSuchMember>() => {
                note(&format!("{error:#}"));
                found.lacking += 1;
            }
            other => other?,
        }
    }
    Ok(found)
}

/// A table that is looked at.
struct Looking<'a> {
    table: &'a TableMapping,
    place: &'a Place,
    prefix: &'a [u8],
    /// Good rows of this table.
    rows: u64,
    found: Found,
}

impl Rows for Looking<'_> {
    fn row(&mut self, number: u64, cells: &[Cell<'_>]) -> anyhow::Result<()> {
        self.found.rows += 1;
        self.rows += 1;
        let is_example = self.rows <= EXAMPLES;
        for pass in [Pass::Fields, Pass::Links] {
            let counts = &mut self.found.counts;
            let mut take = |write: Write<'_>| {
                if is_example {
                    note(&write.to_string());
                }
                match write {
                    Write::Fields(..) => counts.items += 1,
                    Write::Links(_, pairs) => counts.links += pairs.len() as u64 / 2,
                    Write::Push(..) => counts.elements += 1,
                }
                Ok(())
            };
            match convert(self.table, self.prefix, pass, cells, &mut take) {
                Ok(()) => {}
                Err(NotWritten::Bad(at, why)) => return self.bad(number, at, why),
                Err(NotWritten::Failed(error)) => return Err(error),
            }
        }
        Ok(())
    }

    fn bad(&mut self, number: u64, at: Position, why: String) -> anyhow::Result<()> {
        self.found.bad += 1;
        if self.found.bad <= TOLD {
            note(&format!("{}: {why}", self.place.tell(self.table, number, at)));
        }
        Ok(())
    }

    fn idle(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

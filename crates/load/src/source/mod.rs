//! Where rows come from: files of JSON lines or CSV, and PostgreSQL.

mod csv;
mod file;
mod json;
mod pgpass;
pub mod place;
mod postgres;

use crate::mapping::{Mapping, TableMapping};
use crate::row::Rows;
use file::Files;
use indicatif::ProgressBar;
pub use json::{NoSuchMember, array};
use place::Place;
use postgres::Database;
use std::path::Path;

/// A source, open.
pub enum Source {
    /// A file, or a directory of files.
    Files(Files),
    /// PostgreSQL.
    Database(Box<Database>),
}

impl Source {
    /// Whether it names PostgreSQL.
    pub fn is_database(source: &str) -> bool {
        ["postgres://", "postgresql://"].iter().any(|scheme| source.starts_with(scheme))
    }

    /// Opens a source, and looks whether all tables are there.
    ///
    /// # Errors
    /// Usage: it cannot be what it is said to be. Others: it is away.
    pub fn open(source: &str, mapping: &Mapping) -> anyhow::Result<Self> {
        if Self::is_database(source) {
            return Ok(Self::Database(Box::new(Database::connect(source, mapping)?)));
        }
        Ok(Self::Files(Files::find(Path::new(source), mapping)?))
    }

    /// Reads a table from its start to its end.
    ///
    /// # Errors
    /// The source is away, what `rows` returns, or, at the end of a table, [`NoSuchMember`].
    pub fn read(
        &mut self,
        table: &TableMapping,
        bar: &ProgressBar,
        rows: &mut impl Rows,
    ) -> anyhow::Result<()> {
        match self {
            Self::Files(files) => files.read(table, bar, rows),
            Self::Database(database) => database.read(table, rows),
        }
    }

    /// Where the rows of a table are, for messages.
    pub fn place(&self, table: &TableMapping) -> Place {
        match self {
            Self::Files(files) => files.place(table),
            Self::Database(_) => {
                let name = table.name.clone().unwrap_or_default();
                Place { name, row: "row", column: "column", columns: Vec::new() }
            }
        }
    }
}

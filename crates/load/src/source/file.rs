//! Files: found by the names of tables, opened, unpacked.

use super::json::NoSuchMember;
use super::place::Place;
use super::{csv, json};
use crate::mapping::{CsvForm, Mapping, TableMapping};
use crate::row::Rows;
use anyhow::{Context, bail};
use indicatif::ProgressBar;
use remora_command_line::usage;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Read at once from a file.
const BUFFER_BYTES: usize = 1 << 18;

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// Columns parted by a byte.
    Csv,
    /// The same with tabs, where quotes are plain characters.
    Tsv,
    /// An object on each line.
    JsonLines,
}

impl Format {
    /// The format that a file's name tells; `.txt` is a table too.
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        match name.strip_suffix(".xz").unwrap_or(&name).rsplit_once('.')?.1 {
            "csv" | "txt" => Some(Self::Csv),
            "tsv" => Some(Self::Tsv),
            "jsonl" | "ndjson" => Some(Self::JsonLines),
            _ => None,
        }
    }
}

/// The files of a mapping's tables.
pub struct Files(Vec<TableFile>);

/// The file of a table.
struct TableFile {
    table: Option<String>,
    path: PathBuf,
    form: Form,
}

enum Form {
    Csv(csv::Form),
    JsonLines,
}

impl Files {
    /// Finds a file for each table: the only one, or that of its name in a directory.
    ///
    /// # Errors
    /// A file is not there, or lacks a column.
    pub fn find(source: &Path, mapping: &Mapping) -> anyhow::Result<Self> {
        if !mapping.queries.is_empty() {
            return Err(usage("[queries] are for PostgreSQL"));
        }
        let metadata = std::fs::metadata(source)
            .with_context(|| format!("cannot read {}", source.display()))?;
        if !metadata.is_dir() && mapping.tables.len() > 1 {
            let names = mapping.tables.iter().filter_map(|table| table.name.as_deref());
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(usage(format!(
                "{} is one file, the mapping names several: {names}; name their directory",
                source.display()
            )));
        }
        let find = |table: &TableMapping| {
            let path = match (&table.name, metadata.is_dir()) {
                (_, false) => source.to_owned(),
                (Some(name), true) => find_in(source, name)?,
                (None, true) => {
                    return Err(usage(
                        "the source is a directory: each section names its table by from",
                    ));
                }
            };
            let form = form_of(&path, &mapping.csv, table)?;
            Ok(TableFile { table: table.name.clone(), path, form })
        };
        Ok(Self(mapping.tables.iter().map(find).collect::<anyhow::Result<_>>()?))
    }

    fn of(&self, table: &TableMapping) -> &TableFile {
        let mut files = self.0.iter();
        files.find(|file| file.table == table.name).expect("each table has its file")
    }

    /// Reads the file of a table.
    ///
    /// # Errors
    /// It cannot be read, what `rows` returns, or [`NoSuchMember`].
    pub fn read(
        &self,
        table: &TableMapping,
        bar: &ProgressBar,
        rows: &mut impl Rows,
    ) -> anyhow::Result<()> {
        let file = self.of(table);
        let input = open(&file.path, bar)?;
        let read = match &file.form {
            Form::Csv(form) => form.read(input, rows),
            Form::JsonLines => {
                json::read(BufReader::with_capacity(BUFFER_BYTES, input), table, rows)
            }
        };
        // Errors of rows name the file themselves.
        read.map_err(|error| {
            if error.is::<std::io::Error>() || error.is::<::csv::Error>() {
                error.context(format!("reading {}", file.path.display()))
            } else if error.is::<NoSuchMember>() {
                error.context(file.path.display().to_string())
            } else {
                error
            }
        })
    }

    /// Where the rows of a table are.
    pub fn place(&self, table: &TableMapping) -> Place {
        let file = self.of(table);
        let (column, columns) = match &file.form {
            Form::Csv(form) => ("column", form.numbers()),
            Form::JsonLines => ("member", Vec::new()),
        };
        Place { name: file.path.display().to_string(), row: "line", column, columns }
    }
}

/// The file of a table's name in a directory, whatever its format.
fn find_in(directory: &Path, table: &str) -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    let cannot_read = || format!("cannot read {}", directory.display());
    for entry in std::fs::read_dir(directory).with_context(cannot_read)? {
        let path = entry.with_context(cannot_read)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_its = name.strip_prefix(table).is_some_and(|rest| {
            rest.starts_with('.') && rest.trim_end_matches(".xz").matches('.').count() == 1
        });
        if is_its && Format::of(&path).is_some() {
            found.push(path);
        }
    }
    match &found[..] {
        [_] => Ok(found.swap_remove(0)),
        [] => bail!("no file {table}.csv, .tsv, .txt or .jsonl is in {}", directory.display()),
        _ => Err(usage(format!("several files of {} are called {table}", directory.display()))),
    }
}

fn form_of(path: &Path, wanted: &CsvForm, table: &TableMapping) -> anyhow::Result<Form> {
    let Some(format) = Format::of(path) else {
        return Err(usage(format!(
            "{} does not tell by its name how it is written: .csv, .tsv, .txt or .jsonl, and .xz",
            path.display()
        )));
    };
    if format == Format::JsonLines {
        return Ok(Form::JsonLines);
    }
    let input = open(path, &ProgressBar::hidden())?;
    let form = csv::Form::find(input, format == Format::Tsv, wanted, table);
    Ok(Form::Csv(form.with_context(|| path.display().to_string())?))
}

/// A file, unpacked; the bar shows how much of it is read.
fn open(path: &Path, bar: &ProgressBar) -> anyhow::Result<Box<dyn Read>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    bar.set_length(file.metadata().map_or(0, |metadata| metadata.len()));
    bar.set_position(0);
    let counted = bar.wrap_read(file);
    let is_packed = path.extension().is_some_and(|extension| extension == "xz");
    Ok(if is_packed {
        let buffered = BufReader::with_capacity(BUFFER_BYTES, counted);
        Box::new(liblzma::read::XzDecoder::new_multi_decoder(buffered))
    } else {
        Box::new(counted)
    })
}

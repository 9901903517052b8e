//! `remora export`: a tree of places into a file that `remora import` reads.

mod writer;

use crate::bench::Address;
use crate::failure::usage;
use crate::import::{DEFAULT_SERVER, open_session};
use crate::transport::Transport;
use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use indicatif::ProgressBar;
use remora_client::{Object, Predicate, Query, Rect};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use writer::Writer;

/// A window that every object touches.
const EVERYWHERE: Rect =
    Rect { min_x: f64::MIN, max_x: f64::MAX, min_y: f64::MIN, max_y: f64::MAX };
/// Objects between two words about progress.
const TELL_EVERY: u64 = 1 << 14;

/// What can be exported.
#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// The objects of a tree of places.
    Places(ExportArgs),
}

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExportFormat {
    /// id,min_x,min_y,max_x,max_y,data; bytes as they are, in quotes.
    Csv,
    /// One FeatureCollection.
    Geojson,
    /// A Feature on each line.
    Geojsonl,
}

impl ExportFormat {
    /// The format that a file's name tells.
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "geojson" | "json" => Some(Self::Geojson),
            "geojsonl" | "geojsons" | "ndjson" | "jsonl" => Some(Self::Geojsonl),
            _ => None,
        }
    }
}

/// Flags of `remora export places`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Name of the tree.
    pub tree: String,
    /// The file, which appears when it is complete; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// How it is written [default: as its name ends].
    #[arg(long, value_enum)]
    pub format: Option<ExportFormat>,
    /// A running server: HOST:PORT of its RESP port, or path of its Unix socket.
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_SERVER)]
    pub server: Address,
    /// What carries requests.
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub transport: Transport,
}

/// Runs an export.
pub fn run(command: ExportCommand) -> anyhow::Result<()> {
    let ExportCommand::Places(args) = command;
    let shown = args.to.display();
    let Some(format) = args.format.or_else(|| ExportFormat::of(&args.to)) else {
        return Err(usage(format!(
            "{shown} does not tell by its name how to write it: name a --format"
        )));
    };
    let count = if args.to == Path::new("-") {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let count = export(&args, format, &mut out)?;
        out.flush()?;
        count
    } else {
        let parent = args.to.parent().filter(|parent| *parent != Path::new(""));
        let file = NamedTempFile::new_in(parent.unwrap_or(Path::new(".")))
            .map_err(|error| usage(format!("cannot write {shown}: {error}")))?;
        let mut out = BufWriter::new(file);
        let count = export(&args, format, &mut out)?;
        let file = out.into_inner().with_context(|| format!("writing {shown}"))?;
        readable(file.as_file())?;
        file.persist(&args.to).with_context(|| format!("writing {shown}"))?;
        count
    };
    writeln!(std::io::stderr(), "{}: {count} objects", args.tree)?;
    Ok(())
}

/// A temporary file is its user's only; what it becomes is as others are.
fn readable(file: &std::fs::File) -> anyhow::Result<()> {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    rustix::fs::fchmod(file, rustix::fs::Mode::from_raw_mode(0o666) & !mask)?;
    Ok(())
}

/// Writes all objects of the tree, by their ids. They are those of one moment,
/// with the places and bytes that each has when it is written. Gives their number.
fn export(args: &ExportArgs, format: ExportFormat, out: &mut impl Write) -> anyhow::Result<u64> {
    let mut session = open_session(&args.server, args.transport)?;
    let name = args.tree.as_bytes();
    let info = session.tree_info(name)?.with_context(|| format!("no tree {}", args.tree))?;
    let mut tree = session.open_tree(name)?.with_context(|| format!("no tree {}", args.tree))?;
    let query = Query::Window { window: EVERYWHERE, predicate: Predicate::Intersects };
    let found = session.search_tree(&mut tree, &query, remora_client::Path::Ask)?;
    let mut objects = found.objects.to_vec();
    objects.sort_unstable_by_key(|object| object.word);
    let bar = ProgressBar::new(objects.len() as u64);
    let mut writer = Writer::begin(format, out)?;
    let mut count = 0u64;
    for Object { rect, word: id } in objects {
        if info.with_data == 0 {
            writer.object(id, &rect, None)?;
        } else if let Some(place) = session.place(name, id)? {
            writer.object(id, &place.rect, place.data)?;
        } else {
            // Removed since the search.
            continue;
        }
        count += 1;
        if count.is_multiple_of(TELL_EVERY) {
            bar.set_position(count);
        }
    }
    bar.finish_and_clear();
    writer.end()?;
    Ok(count)
}

//! `remora import`: files of objects into a tree of places, and files of documents into a collection.
//!
//! Invariant: every object of the file is in the tree or is counted as refused, with its reason; a
//! refusal does not affect other objects.

pub mod boxes;
pub mod documents;
pub mod geojson;
pub mod intake;
pub mod osm;
mod progress;
pub mod table;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressBarIter};
use intake::{Intake, Row, Sink};
use progress::progress_bar;
use remora_client_core::{ObjectId, Rect, TreeSettings};
use remora_command_line::{Address, DEFAULT_SERVER, PutCounts, Puts, Transport, TreeKind, usage};
use remora_layout::limits::{MAX_NODE_ENTRIES, MIN_NODE_ENTRIES, NODE_ENTRIES};
use remora_osm::Filter;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

/// Read at once from a file.
const BUFFER_BYTES: usize = 1 << 20;

/// What can be imported.
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Objects with a place each, into a tree of places.
    Places(Box<ImportArgs>),
    /// Documents, into a collection.
    Documents(documents::DocumentArgs),
}

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ImportFormat {
    /// Columns parted by commas; the first line names them.
    Csv,
    /// Columns parted by tabs, without quotes; the first line names them.
    Tsv,
    /// One FeatureCollection, or one Feature (RFC 7946).
    Geojson,
    /// A Feature on each line.
    Geojsonl,
    /// OpenStreetMap's PBF.
    Pbf,
}

impl ImportFormat {
    /// The format that a file's name tells.
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        match name.strip_suffix(".xz").unwrap_or(&name).rsplit_once('.')?.1 {
            "csv" => Some(Self::Csv),
            "tsv" => Some(Self::Tsv),
            "geojson" | "json" => Some(Self::Geojson),
            "geojsonl" | "geojsons" | "ndjson" | "jsonl" => Some(Self::Geojsonl),
            "pbf" => Some(Self::Pbf),
            _ => None,
        }
    }
}

/// The space that a tree is made for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds(pub Rect);

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Vec<f64> =
            text.split(',').map_while(|part| part.trim().parse().ok()).collect();
        match numbers[..] {
            [min_x, min_y, max_x, max_y] if text.split(',').count() == 4 => {
                Rect::new(min_x, max_x, min_y, max_y).map(Self).map_err(|why| why.to_string())
            }
            _ => Err("write MIN_X,MIN_Y,MAX_X,MAX_Y".into()),
        }
    }
}

/// Flags of `remora import places`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file, plain or .xz; - is standard input. A PBF file has to be a plain one.
    pub file: PathBuf,
    /// Name of the tree. One that is not there is made.
    #[arg(long, value_name = "NAME")]
    pub into: String,
    /// How the file is written [default: as its name ends].
    #[arg(long, value_enum)]
    pub format: Option<ImportFormat>,
    /// Column of a table that holds the ids, integers or any text [default: id, if
    /// there is one; else rows are numbered from 0].
    #[arg(long, value_name = "COLUMN")]
    pub id_column: Option<String>,
    /// Column of a table whose text becomes an object's bytes [default: data,
    /// if there is one].
    #[arg(long, value_name = "COLUMN")]
    pub data_column: Option<String>,
    /// Takes only elements of a PBF file with this key, and this value if one is
    /// named; given several times, those that one of them keeps.
    #[arg(long, value_name = "KEY[=VALUE]")]
    pub filter: Vec<Filter>,
    /// Keeps only the bounding boxes of geometries.
    #[arg(long)]
    pub boxes: bool,
    /// How a tree that is made is written.
    #[arg(long, value_enum, default_value_t = TreeKind::RStar)]
    pub tree: TreeKind,
    /// Entries that a node of a tree that is made has room for.
    #[arg(long, value_name = "N", default_value_t = NODE_ENTRIES)]
    pub capacity: usize,
    /// Where most objects of a tree that is made will lie; a Hilbert R-tree
    /// wants to know.
    #[arg(long, value_name = "MIN_X,MIN_Y,MAX_X,MAX_Y", default_value = "-180,-90,180,90")]
    #[arg(allow_hyphen_values = true)]
    pub bounds: Bounds,
    /// A running server: HOST:PORT of its RESP port, or path of its Unix socket.
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_SERVER)]
    pub server: Address,
    /// What carries requests.
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub transport: Transport,
    /// Prints the count as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Runs an import. Objects that were refused make it fail, after the others
/// are in.
pub fn run(command: ImportCommand) -> anyhow::Result<()> {
    match command {
        ImportCommand::Places(args) => places(&args),
        ImportCommand::Documents(args) => documents::run(&args),
    }
}

fn places(args: &ImportArgs) -> anyhow::Result<()> {
    if !(MIN_NODE_ENTRIES..=MAX_NODE_ENTRIES).contains(&args.capacity) {
        return Err(usage(format!(
            "--capacity: {} is not in {MIN_NODE_ENTRIES}..={MAX_NODE_ENTRIES}",
            args.capacity
        )));
    }
    let Some(format) = args.format.or_else(|| ImportFormat::of(&args.file)) else {
        return Err(usage(format!(
            "{} does not tell by its name how it is written: name a --format",
            args.file.display()
        )));
    };
    args.check(format)?;
    let bar = progress_bar(&args.file);
    let input = Input::open(&args.file, format, &bar)?;
    let mut sink = NewTree::begin(args)?;
    let began = Instant::now();
    let mut intake = Intake::new(&mut sink, |objects| {
        bar.set_message(format!("{objects} objects"));
    });
    let read = read(args, input, &mut intake);
    // Requests sent before an error count too.
    let settled = intake.settle();
    let summary = intake.finish(began.elapsed());
    let settled = settled.and_then(|()| match (&read, summary.refused()) {
        // A file without objects is a tree without any.
        (Ok(()), 0) => sink.make(),
        _ => Ok(()),
    });
    bar.finish_and_clear();
    summary.print(&args.into, args.json, &mut std::io::stdout().lock())?;
    read.and(settled).with_context(|| {
        format!("{}: what is counted above is in, the rest is not", args.file.display())
    })?;
    if summary.refused() > 0 {
        bail!("{} objects were refused; all others are in", summary.refused());
    }
    Ok(())
}

impl ImportArgs {
    /// Flags are for the formats that they are for.
    fn check(&self, format: ImportFormat) -> anyhow::Result<()> {
        let is_table = matches!(format, ImportFormat::Csv | ImportFormat::Tsv);
        if !is_table && (self.id_column.is_some() || self.data_column.is_some()) {
            return Err(usage("--id-column and --data-column are for tables"));
        }
        if format != ImportFormat::Pbf && !self.filter.is_empty() {
            return Err(usage("--filter is for PBF files"));
        }
        Ok(())
    }
}

/// A file that is open, in its format.
enum Input {
    /// Read once, from its start to its end.
    Stream(ImportFormat, Box<dyn Read>),
    /// A PBF file, read several times.
    Pbf(BufReader<ProgressBarIter<File>>),
}

/// Reads the whole file into the intake.
fn read<S: Sink>(
    args: &ImportArgs,
    input: Input,
    intake: &mut Intake<'_, S>,
) -> anyhow::Result<()> {
    let columns = |is_tabbed| table::Wanted {
        id: args.id_column.as_deref(),
        data: args.data_column.as_deref(),
        is_tabbed,
        boxes: args.boxes,
    };
    match input {
        Input::Pbf(file) => osm::read(file, &args.filter, args.boxes, intake),
        Input::Stream(ImportFormat::Geojson, stream) => {
            geojson::read_document(BufReader::new(stream), args.boxes, intake)
        }
        Input::Stream(ImportFormat::Geojsonl, stream) => {
            geojson::read_lines(BufReader::new(stream), args.boxes, intake)
        }
        Input::Stream(format, stream) => {
            table::read(stream, columns(format == ImportFormat::Tsv), intake)
        }
    }
}

impl Input {
    fn open(file: &Path, format: ImportFormat, bar: &ProgressBar) -> anyhow::Result<Self> {
        let is_pbf = format == ImportFormat::Pbf;
        if file == Path::new("-") {
            if is_pbf {
                return Err(usage("a PBF file is read several times: name a file"));
            }
            return Ok(Self::Stream(format, Box::new(bar.wrap_read(std::io::stdin()))));
        }
        let opened = File::open(file)
            .map_err(|error| usage(format!("cannot read {}: {error}", file.display())))?;
        let counted = BufReader::with_capacity(BUFFER_BYTES, bar.wrap_read(opened));
        if is_pbf {
            return Ok(Self::Pbf(counted));
        }
        let is_packed = file.extension().is_some_and(|extension| extension == "xz");
        Ok(Self::Stream(
            format,
            if is_packed {
                Box::new(liblzma::read::XzDecoder::new(counted))
            } else {
                Box::new(counted)
            },
        ))
    }
}

/// A tree that is made, if it is not there, when the first object comes: a
/// file that cannot be read leaves nothing behind.
struct NewTree<'a> {
    name: &'a str,
    settings: TreeSettings,
    puts: Puts,
    is_made: bool,
}

impl<'a> NewTree<'a> {
    /// Looks whether the server is there.
    fn begin(args: &'a ImportArgs) -> anyhow::Result<Self> {
        let session = args.server.session(args.transport)?;
        let settings =
            TreeSettings { kind: args.tree.into(), capacity: args.capacity, bounds: args.bounds.0 };
        let puts = Puts::new(session, args.into.as_bytes());
        Ok(Self { name: &args.into, settings, puts, is_made: false })
    }

    /// Makes it, if it is not made or there yet.
    fn make(&mut self) -> anyhow::Result<()> {
        if self.is_made {
            return Ok(());
        }
        self.is_made = true;
        if !self.puts.create_tree(&self.settings)? {
            let _ = writeln!(std::io::stderr(), "{} is there: objects are added to it", self.name);
        }
        Ok(())
    }
}

impl Sink for NewTree<'_> {
    fn put(&mut self, id: ObjectId<'_>, row: &Row<'_>) -> anyhow::Result<()> {
        self.make()?;
        // Empty ones take away those that an object of this id had.
        let data = Some(row.data.unwrap_or_default());
        self.puts.put_shape(id, row.rect, row.geometry, data)
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        self.puts.settle()
    }

    fn counts(&self) -> PutCounts {
        self.puts.counts()
    }
}

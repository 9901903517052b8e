//! `remora load`: files and PostgreSQL into items, links and lists of links, a generation at a time.
//!
//! A mapping file says what becomes of rows. Each load writes a new generation under keys
//! of its own, and then moves the root of the data set to it by one change; so a reader that starts at
//! the root sees the old or the new whole. The old generation goes when its readers have ended.
//! Key-Value-Links 5.1 and 5.2 (K7 to K10) load into new memory, too, but halt all connections.

#![forbid(unsafe_code)]

mod convert;
mod dry_run;
mod generation;
mod load;
mod mapping;
mod row;
mod server;
mod source;
mod writer;

use anyhow::bail;
use clap::Args;
use load::{Job, Loaded};
use mapping::Mapping;
use remora_command_line::{DEFAULT_SERVER, note, usage};
use remora_layout::limits::READ_LEASE_MS;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Flags of `remora load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// A file (.jsonl, .csv, .tsv, .txt, each also .xz), a directory of such files, or
    /// postgres://USER@HOST/DATABASE. A password is taken from PGPASSWORD or a .pgpass file.
    pub source: String,
    /// What becomes of the rows: a TOML file.
    #[arg(long, value_name = "FILE")]
    pub mapping: PathBuf,
    /// A running server: HOST:PORT of its RESP port.
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_SERVER)]
    pub server: String,
    /// What parts the columns of a CSV file, one byte [default: as the mapping says].
    #[arg(long, value_name = "BYTE")]
    pub separator: Option<String>,
    /// Loads again and again, so many seconds after the last beginning. The log says so if one fails, and the
    /// data stay as they were.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub every: Option<u64>,
    /// How long readers may stay in an old generation before it is removed.
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    pub grace_ms: u64,
    /// Takes a source without rows although the present generation has some. Else such a load fails.
    #[arg(long)]
    pub allow_empty: bool,
    /// Reads the source, shows what would be written, and tells all bad rows. Needs no server.
    #[arg(long, conflicts_with = "every")]
    pub dry_run: bool,
    /// Prints the count as one JSON object.
    #[arg(long, conflicts_with = "every")]
    pub json: bool,
}

/// Runs a load.
///
/// # Errors
/// Usage: mapping or flags make no sense. Others: the load failed, and the data are as they were.
pub fn run(args: &LoadArgs) -> anyhow::Result<()> {
    let mut mapping = Mapping::read(&args.mapping)?;
    if let Some(separator) = &args.separator {
        if separator.len() != 1 {
            return Err(usage("--separator: one byte parts two columns"));
        }
        mapping.csv.separator = Some(separator.clone());
    }
    if args.dry_run {
        return dry_run(args, &mapping);
    }
    let job = Job {
        source: &args.source,
        mapping: &mapping,
        server: &args.server,
        grace: Duration::from_millis(args.grace_ms.max(READ_LEASE_MS)),
        allow_empty: args.allow_empty,
    };
    match args.every {
        None => print(&job.run()?, args.json),
        Some(seconds) => repeat(&job, Duration::from_secs(seconds)),
    }
}

fn dry_run(args: &LoadArgs, mapping: &Mapping) -> anyhow::Result<()> {
    let found = dry_run::run(&args.source, mapping)?;
    let counts = found.counts;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&found)?)?;
    } else {
        writeln!(
            out,
            "{} would get {} items, {} links, {} elements of lists from {} rows",
            mapping.name, counts.items, counts.links, counts.elements, found.rows
        )?;
    }
    match (found.bad, found.lacking) {
        (0, 0) => Ok(()),
        (0, lacking) => bail!("{lacking} tables lack columns"),
        (bad, 0) => bail!("{bad} rows are bad"),
        (bad, lacking) => bail!("{bad} rows are bad, and {lacking} tables lack columns"),
    }
}

/// Loads again and again. What cannot get better ends it.
fn repeat(job: &Job<'_>, every: Duration) -> anyhow::Result<()> {
    loop {
        let began = Instant::now();
        match job.run() {
            Ok(loaded) => print(&loaded, false)?,
            Err(error) if error.downcast_ref::<remora_command_line::Usage>().is_some() => {
                return Err(error);
            }
            Err(error) => note(&format!("remora load: the data stay as they were: {error:#}")),
        }
        std::thread::sleep(every.saturating_sub(began.elapsed()));
    }
}

fn print(loaded: &Loaded, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(loaded)?)?;
        return Ok(());
    }
    let Loaded { name, generation, rows, counts, removed, elapsed_s } = loaded;
    writeln!(
        out,
        "{name}: generation {generation}: {} items, {} links, {} elements of lists from {rows} rows \
         in {elapsed_s:.2} s; {removed} old keys removed",
        counts.items, counts.links, counts.elements
    )?;
    Ok(())
}

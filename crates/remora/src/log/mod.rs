//! `remora log`: what a data directory holds. It changes nothing, so it may look at the directory of
//! a server that runs.

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use remora_log::Entry;
use remora_protocol::Command;
use remora_storage::{Directory, Found, Identity, LogNumber, StorageError, find, replay};
use serde_json::json;
use std::fmt::{self, Write as _};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Longest name of an operation, characters.
const NAME_CHARS: usize = 40;

/// What can be done with a data directory.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Tells which lives, segments and snapshots there are.
    Inspect(LogArgs),
    /// Reads every byte, and tells whether the directory is whole.
    Verify(LogArgs),
    /// Prints the log, a line for each entry.
    Dump(LogArgs),
}

/// Flags of `remora log`.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The data directory.
    pub directory: PathBuf,
    /// Prints one JSON object (not for dump).
    #[arg(long)]
    pub json: bool,
}

/// Looks at a directory. A damaged one is told by a line `corrupt FILE offset=N reason`.
pub fn run(command: &LogCommand) -> anyhow::Result<()> {
    let (LogCommand::Inspect(args) | LogCommand::Verify(args) | LogCommand::Dump(args)) = command;
    let looked = Data::open(args).and_then(|data| match command {
        LogCommand::Inspect(_) => data.inspect(args.json),
        LogCommand::Verify(_) => data.verify(args.json),
        LogCommand::Dump(_) => data.dump(),
    });
    looked.inspect_err(|error| {
        if let Some(corrupt @ StorageError::Corrupt { .. }) = error.downcast_ref() {
            // The reader may have gone; the exit code still tells.
            let _ = writeln!(std::io::stdout(), "{corrupt}");
        }
    })
}

struct Data {
    volume: Directory,
    identity: Identity,
    found: Found,
}

impl Data {
    fn open(args: &LogArgs) -> anyhow::Result<Self> {
        let volume = Directory::existing(&args.directory)?;
        let name = args.directory.display().to_string();
        let Some(identity) = Identity::read(&volume, &name)? else {
            bail!("{name} is empty: it is no data directory");
        };
        let found = find(&volume, &identity, (0, &[]))?;
        Ok(Self { volume, identity, found })
    }

    fn inspect(&self, is_json: bool) -> anyhow::Result<()> {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let lives = &self.found.lives;
        if is_json {
            let lives: Vec<_> = lives
                .iter()
                .map(|life| {
                    let segments = life.segments.iter();
                    let segments = segments
                        .map(|at| json!({"name": at.name, "bytes": at.bytes, "runs": at.runs}));
                    json!({
                        "epoch": life.epoch, "shards": life.first.len(), "first": life.first,
                        "last": life.last, "used_bytes": life.used_bytes.iter().sum::<u64>(),
                        "segments": segments.collect::<Vec<_>>(),
                    })
                })
                .collect();
            let torn: Vec<_> = self.found.notices.iter().map(ToString::to_string).collect();
            let cluster = format!("{:016x}", self.identity.cluster);
            writeln!(out, "{}", json!({"cluster": cluster, "lives": lives, "torn": torn}))?;
            return Ok(out.flush()?);
        }
        writeln!(out, "cluster {:016x}", self.identity.cluster)?;
        for life in lives {
            let used: u64 = life.used_bytes.iter().sum();
            let shards = life.first.len();
            writeln!(
                out,
                "epoch {}: {shards} shard(s), {used} bytes of memory at its end",
                life.epoch
            )?;
            for (shard, (first, last)) in life.first.iter().zip(&life.last).enumerate() {
                writeln!(out, "  shard {shard}: sequences {first} to {last}")?;
            }
            for segment in &life.segments {
                writeln!(
                    out,
                    "  {}: {} bytes, {} runs",
                    segment.name, segment.bytes, segment.runs
                )?;
            }
        }
        self.found.notices.iter().try_for_each(|notice| writeln!(out, "{notice}"))?;
        Ok(out.flush()?)
    }

    fn verify(&self, is_json: bool) -> anyhow::Result<()> {
        let mut entries = 0u64;
        self.each(|_, entry| {
            Command::decode_within(entry.operation)
                .map_err(|_| anyhow::anyhow!("entry {} is no operation", entry.sequence))?;
            entries += 1;
            Ok(())
        })?;
        let (segments, bytes) = (self.found.numbers().len(), self.found.bytes());
        let torn = self.found.notices.len();
        let mut out = std::io::stdout().lock();
        if is_json {
            let whole = json!({"whole": true, "entries": entries, "segments": segments, "bytes": bytes, "torn": torn});
            return Ok(writeln!(out, "{whole}")?);
        }
        for notice in &self.found.notices {
            writeln!(out, "{notice}")?;
        }
        Ok(writeln!(out, "whole: {entries} entries in {segments} segments, {bytes} bytes")?)
    }

    fn dump(&self) -> anyhow::Result<()> {
        let mut out = BufWriter::new(std::io::stdout().lock());
        self.each(|(_, shard), entry| {
            let Entry { sequence, epoch, operation, parts } = entry;
            let (database, command, _) = Command::decode_within(operation)
                .map_err(|_| anyhow::anyhow!("entry {sequence} is no operation"))?;
            let key = command.key().unwrap_or_default().escape_ascii();
            let (database, bytes, name) = (database.number(), operation.len(), name(&command));
            write!(out, "epoch={epoch} shard={shard} sequence={sequence} db={database} {name} key={key} bytes={bytes}")?;
            for part in parts.iter() {
                write!(out, " part={}:{}", part.shard(), part.sequence())?;
            }
            Ok(writeln!(out)?)
        })?;
        Ok(out.flush()?)
    }

    fn each(
        &self,
        mut each: impl FnMut(LogNumber, Entry<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Self { volume, identity, found } = self;
        replay(volume, identity, found, |_| true, |number, _, entry| each(number, entry))
            .context("the directory is damaged")
    }
}

/// The beginning of what Debug says of an operation, up to its values.
fn name(command: &Command<'_>) -> String {
    struct Name(String);
    impl fmt::Write for Name {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let end = text.find(['{', '[']).unwrap_or(text.len());
            self.0.push_str(text[..end].trim_end());
            let goes_on = end == text.len() && self.0.len() < NAME_CHARS;
            if goes_on { Ok(()) } else { Err(fmt::Error) }
        }
    }
    let mut name = Name(String::new());
    // It ends with an error, at the first value.
    let _ = match command {
        Command::Of { request, .. } => write!(name, "{request:?}"),
        command => write!(name, "{command:?}"),
    };
    name.0
}

//! `remora log`: what a data directory holds. It changes nothing, so it may look at the directory of
//! a server that runs.

mod data;

use anyhow::Context;
use clap::{Args, Subcommand};
pub use data::{Data, Operation};
use remora_log::Entry;
use remora_protocol::Command;
use remora_protocol::applied::LogPosition;
use remora_storage::{Incarnation, SnapshotAt, StorageError, snapshot_name};
use serde_json::{Value, json};
use std::fmt::{self, Write as _};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Longest name of an operation, characters.
const NAME_CHARS: usize = 40;

/// What can be done with a data directory.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Tells which incarnations, segments and snapshots there are.
    Inspect(LogArgs),
    /// Reads every byte, and tells whether the directory is whole.
    Verify(LogArgs),
    /// Prints the snapshot and the log, a line for each operation.
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

/// Looks at a directory. For a damaged one it prints a line `corrupt FILE offset=N reason`.
pub fn run(command: &LogCommand) -> anyhow::Result<()> {
    let (LogCommand::Inspect(args) | LogCommand::Verify(args) | LogCommand::Dump(args)) = command;
    let looked = Data::open(&args.directory).and_then(|data| match command {
        LogCommand::Inspect(_) if args.json => inspect_json(&data),
        LogCommand::Inspect(_) => inspect(&data),
        LogCommand::Verify(_) => verify(&data, args.json),
        LogCommand::Dump(_) => dump(&data),
    });
    looked.inspect_err(|error| {
        if let Some(corrupt @ StorageError::Corrupt { .. }) = error.downcast_ref() {
            // The reader may have gone; the exit code still tells.
            let _ = writeln!(std::io::stdout(), "{corrupt}");
        }
    })
}

fn inspect_json(data: &Data) -> anyhow::Result<()> {
    let of_incarnation = |incarnation: &Incarnation| {
        let segments = incarnation.segments.iter();
        let segments =
            segments.map(|at| json!({"name": at.name, "bytes": at.bytes, "runs": at.runs}));
        json!({
            "epoch": incarnation.epoch, "shards": incarnation.first.len(), "first": incarnation.first,
            "last": incarnation.last, "used_bytes": incarnation.used_bytes.iter().sum::<u64>(),
            "segments": segments.collect::<Vec<_>>(),
        })
    };
    let of_snapshot = |at: &SnapshotAt| {
        let sum =
            |of: fn(&remora_storage::ShardSnapshot) -> u64| at.shards.iter().map(of).sum::<u64>();
        json!({
            "name": snapshot_name(at.number), "epoch": at.epoch, "shards": at.shards.len(),
            "last": at.covered(), "operations": sum(|shard| shard.operations),
            "bytes": sum(|shard| shard.bytes), "used_bytes": sum(|shard| shard.used_bytes),
        })
    };
    let incarnations: Vec<Value> = data.found.incarnations.iter().map(of_incarnation).collect();
    let torn: Vec<String> = data.found.notices.iter().map(ToString::to_string).collect();
    let cluster = format!("{:016x}", data.identity.cluster);
    let snapshot = data.snapshot.as_ref().map(of_snapshot);
    let all = json!({"cluster": cluster, "snapshot": snapshot, "incarnations": incarnations, "torn": torn});
    Ok(writeln!(std::io::stdout(), "{all}")?)
}

fn inspect(data: &Data) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    writeln!(out, "cluster {:016x}", data.identity.cluster)?;
    if let Some(at) = &data.snapshot {
        let shards = at.shards.len();
        writeln!(out, "{}: {shards} shard(s), of epoch {}", snapshot_name(at.number), at.epoch)?;
        for (shard, of) in at.shards.iter().enumerate() {
            let (operations, bytes, sequence) = (of.operations, of.bytes, of.sequence);
            writeln!(
                out,
                "  shard {shard}: at sequence {sequence}, {operations} operations, {bytes} bytes"
            )?;
        }
    }
    for incarnation in &data.found.incarnations {
        let (used, shards) = (incarnation.used_bytes.iter().sum::<u64>(), incarnation.first.len());
        writeln!(
            out,
            "epoch {}: {shards} shard(s), {used} bytes of memory at its end",
            incarnation.epoch
        )?;
        for (shard, (first, last)) in incarnation.first.iter().zip(&incarnation.last).enumerate() {
            writeln!(out, "  shard {shard}: sequences {first} to {last}")?;
        }
        for segment in &incarnation.segments {
            writeln!(out, "  {}: {} bytes, {} runs", segment.name, segment.bytes, segment.runs)?;
        }
    }
    data.found.notices.iter().try_for_each(|notice| writeln!(out, "{notice}"))?;
    Ok(out.flush()?)
}

fn verify(data: &Data, is_json: bool) -> anyhow::Result<()> {
    let whole = data.verify()?;
    let (segments, bytes) = (data.found.numbers().len(), data.found.bytes());
    let (entries, operations) = (whole.entries, whole.operations);
    let torn = data.found.notices.len();
    let mut out = std::io::stdout().lock();
    if is_json {
        let whole = json!({
            "whole": true, "entries": entries, "segments": segments, "bytes": bytes, "torn": torn,
            "snapshot_operations": operations, "snapshot_bytes": whole.snapshot_bytes,
        });
        return Ok(writeln!(out, "{whole}")?);
    }
    for notice in &data.found.notices {
        writeln!(out, "{notice}")?;
    }
    write!(out, "whole: {entries} entries in {segments} segments, {bytes} bytes")?;
    if let Some(at) = &data.snapshot {
        let (name, bytes) = (snapshot_name(at.number), whole.snapshot_bytes);
        write!(out, "; {operations} operations in {name}, {bytes} bytes")?;
    }
    Ok(writeln!(out)?)
}

/// The snapshot first, a line for each shard and each operation, then the log.
fn dump(data: &Data) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for at in data.snapshot.iter() {
        for (shard, of) in at.shards.iter().enumerate() {
            let (number, epoch) = (at.number, at.epoch);
            let (sequence, operations) = (of.sequence, of.operations);
            writeln!(
                out,
                "snapshot={number} shard={shard} epoch={epoch} sequence={sequence} operations={operations}"
            )?;
        }
        data.each_operation(|shard, operation| {
            write!(out, "snapshot={} shard={shard} ", at.number)?;
            write_operation(&mut out, operation)?;
            Ok(writeln!(out)?)
        })?;
    }
    data.each_entry(|(_, shard), Entry { sequence, epoch, operation, parts }| {
        write!(out, "epoch={epoch} shard={shard} sequence={sequence} ")?;
        write_operation(&mut out, operation)?;
        for part in parts.iter() {
            write!(out, " part={}:{}", part.shard(), part.sequence())?;
        }
        Ok(writeln!(out)?)
    })?;
    Ok(out.flush()?)
}

fn write_operation(out: &mut impl Write, operation: &[u8]) -> anyhow::Result<()> {
    let decoded = Operation::decode(operation).context("this is no operation of this version")?;
    if let Some((step, position)) = decoded.applied {
        let LogPosition { log, logs, sequence, epoch, .. } = position;
        write!(out, "applied={step:?} of={log}/{logs} at={epoch}:{sequence} ")?;
    }
    if let Some((database, command)) = decoded.command {
        let key = command.key().unwrap_or_default().escape_ascii();
        let (database, name) = (database.number(), name(&command));
        write!(out, "db={database} {name} key={key} ")?;
    }
    Ok(write!(out, "bytes={}", operation.len())?)
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

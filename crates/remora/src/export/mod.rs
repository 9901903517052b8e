//! `remora export`: a tree of places, or a collection of documents, into a file that `remora import` reads.

mod documents;
mod format;
mod pbf;
mod properties;
mod to_file;
mod writer;

use crate::refusals::Refusals;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use format::ExportFormat;
use indicatif::ProgressBar;
use pbf::Pbf;
use remora_client_core::{Error, ObjectId, Predicate, Query, Rect, Session};
use remora_command_line::{Address, DEFAULT_SERVER, Transport, usage};
use remora_layout::object::Payload;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::tree::{HAS_DATA, HAS_GEOMETRY, TreeCommand};
use std::io::Write;
use std::path::{Path, PathBuf};
use to_file::to_file;
use writer::Writer;
use zerocopy::FromBytes;

/// A window that every object touches.
const EVERYWHERE: Rect =
    Rect { min_x: f64::MIN, max_x: f64::MAX, min_y: f64::MIN, max_y: f64::MAX };
/// Objects that are asked for at once.
const OUTSTANDING: usize = 64;

/// What can be exported.
#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// The objects of a tree of places.
    Places(ExportArgs),
    /// The documents of a collection.
    Documents(documents::DocumentArgs),
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
    match command {
        ExportCommand::Places(args) => places(&args),
        ExportCommand::Documents(args) => documents::run(&args),
    }
}

fn places(args: &ExportArgs) -> anyhow::Result<()> {
    let shown = args.to.display();
    let Some(format) = args.format.or_else(|| ExportFormat::of(&args.to)) else {
        return Err(usage(format!(
            "{shown} does not tell by its name how to write it: name a --format"
        )));
    };
    let written = to_file(&args.to, |spool, out| export(args, format, spool, out))?;
    let mut told = std::io::stderr();
    writeln!(told, "{}: {} objects", args.tree, written.count)?;
    if written.without > 0 {
        writeln!(told, "the fields and expiries of {} objects are not written", written.without)?;
    }
    written.refusals.print(&mut told)?;
    match written.refusals.count() {
        0 => Ok(()),
        refused => bail!("{refused} objects cannot be written so; all others are in {shown}"),
    }
}

/// The result of an export.
struct Written {
    /// Objects in the file.
    count: u64,
    /// Objects that its format cannot hold.
    refusals: Refusals,
    /// Objects with fields or an expiry, which no format has a place for.
    without: u64,
}

/// Writes all objects of the tree, by their ids. They are those of one moment, each with its
/// rectangle and bytes at the time when it is written. Data that is not written to `out` at once
/// waits in nameless files in the directory `spool`.
fn export(
    args: &ExportArgs,
    format: ExportFormat,
    spool: &Path,
    mut out: &mut dyn Write,
) -> anyhow::Result<Written> {
    let mut session = args.server.session(args.transport)?;
    let name = args.tree.as_bytes();
    let info = session.tree_info(name)?.with_context(|| format!("no tree {}", args.tree))?;
    let mut tree = session.open_tree(name)?.with_context(|| format!("no tree {}", args.tree))?;
    let query = Query::Window { window: EVERYWHERE, predicate: Predicate::Intersects };
    let found = session.search_tree(&mut tree, &query, remora_client_core::Path::Ask)?;
    let (mut texts, mut places) = (Vec::new(), Vec::new());
    for (id, rect) in found.iter() {
        let at = texts.len();
        id.with_text(|text| texts.extend_from_slice(text));
        places.push((at, texts.len(), rect));
    }
    let mut objects: Vec<(ObjectId<'_>, Rect)> =
        places.iter().map(|&(from, to, rect)| (texts[from..to].into(), rect)).collect();
    objects.sort_unstable_by_key(|(id, _)| *id);
    let bar = ProgressBar::new(objects.len() as u64);
    let mut writer = match format {
        ExportFormat::Pbf => {
            let numbers = objects.iter().filter_map(|(id, _)| match id {
                ObjectId::Number(number) => Some(*number),
                ObjectId::Name(_) => None,
            });
            let greatest = numbers.max().unwrap_or(0);
            Writer::Pbf(Box::new(Pbf::begin(&mut out, greatest, spool)?))
        }
        _ => Writer::begin(format, info.with_geometry > 0, &mut out)?,
    };
    let mut count = 0;
    for chunk in objects.chunks(OUTSTANDING) {
        count += if info.with_data + info.with_geometry == 0 {
            chunk.iter().try_for_each(|(id, rect)| writer.object(*id, rect, None, None))?;
            chunk.len() as u64
        } else {
            write_whole(&mut session, name, chunk, &mut writer)?
        };
        bar.inc(chunk.len() as u64);
    }
    bar.finish_and_clear();
    let refusals = writer.end()?;
    let without = info.with_fields.max(info.with_expiry);
    Ok(Written { count: count - refusals.count(), refusals, without })
}

/// Asks for objects with their geometries and bytes, all at once, and writes
/// them. Gives how many: some may have been removed.
fn write_whole(
    session: &mut Session,
    name: &[u8],
    objects: &[(ObjectId<'_>, Rect)],
    writer: &mut Writer<'_, impl Write>,
) -> anyhow::Result<u64> {
    for &(id, _) in objects {
        let get = TreeCommand::Get { id };
        let request = get.checked().map(TreeCommand::request).map_err(Error::Refused)?;
        session.submit(&Command::Of { key: name, request })?;
    }
    let mut count = 0;
    for &(id, _) in objects {
        let mut written = Ok(());
        session.next_reply(&mut |_, reply| {
            let place = reply.value.and_then(|value| Rect::read_from_prefix(value).ok());
            written = match (reply.status, place) {
                (Status::Ok, Some((rect, rest))) => {
                    count += 1;
                    write_one(writer, id, &rect, rest, reply.number)
                }
                // Removed since the search.
                (Status::Ok | Status::NotFound, _) => Ok(()),
                (status, _) => Err(Error::Refused(status).into()),
            };
        })?;
        written?;
    }
    Ok(count)
}

/// Writes an object from the server's reply: its payload follows its rectangle and its expiry, as
/// its flags say.
fn write_one(
    writer: &mut Writer<'_, impl Write>,
    id: ObjectId<'_>,
    rect: &Rect,
    rest: &[u8],
    flags: i64,
) -> anyhow::Result<()> {
    let has = |flag: u8| flags & i64::from(flag) != 0;
    let payload = rest.split_at_checked(8).and_then(|(_, payload)| Payload::parse(payload));
    let payload = payload.context("an object that cannot be")?;
    let geometry = has(HAS_GEOMETRY).then_some(payload.geometry);
    writer.object(id, rect, geometry, has(HAS_DATA).then_some(payload.data))
}

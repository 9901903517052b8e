//! `remora export documents`: the documents of a collection into a file that `remora import` reads.
//!
//! They are written in the order of their `_id`s, some at a time: a document that is there all the time is in
//! the file, as it was when it was read.

use super::to_file::to_file;
use crate::import::documents::{DocumentFormat, check_name};
use anyhow::{Context, bail};
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, cstr, rawdoc};
use clap::Args;
use remora_command_line::{Address, DEFAULT_SERVER, Transport, usage};
use remora_document::to_canonical_json;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};
use std::io::Write;
use std::path::PathBuf;

/// Flags of `remora export documents`.
#[derive(Debug, Args)]
pub struct DocumentArgs {
    /// The collection, as DATABASE.COLLECTION.
    pub collection: String,
    /// The file, which appears when it is complete; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// How it is written: json has canonical Extended JSON, a document in each line
    /// [default: as its name ends].
    #[arg(long, value_enum)]
    pub format: Option<DocumentFormat>,
    /// A running server: HOST:PORT of its RESP port, or path of its Unix socket.
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_SERVER)]
    pub server: Address,
    /// What carries requests.
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub transport: Transport,
}

/// Runs an export.
pub fn run(args: &DocumentArgs) -> anyhow::Result<()> {
    let shown = args.to.display();
    let Some(format) = args.format.or_else(|| DocumentFormat::of(&args.to)) else {
        return Err(usage(format!(
            "{shown} does not tell by its name how to write it: name a --format"
        )));
    };
    check_name(&args.collection)?;
    let count = to_file(&args.to, |_, out| export(args, format, out))?;
    writeln!(std::io::stderr(), "{}: {count} documents", args.collection)?;
    Ok(())
}

fn export(args: &DocumentArgs, format: DocumentFormat, out: &mut dyn Write) -> anyhow::Result<u64> {
    let mut session = args.server.session(args.transport)?;
    let key = args.collection.as_bytes();
    let request = CollectionCommand::Describe.request();
    match session.ask(&Command::Of { key, request })?.status {
        Status::Ok => {}
        Status::NotFound => bail!("no collection {}", args.collection),
        other => bail!("{}: {other:?}", args.collection),
    }
    let mut at: Option<Vec<u8>> = None;
    let mut count = 0;
    loop {
        let mut request: RawDocumentBuf = rawdoc! { "filter": {}, "hint": { "_id": 1 } };
        if let Some(bytes) = at.take() {
            request.append(cstr!("at"), Binary { subtype: BinarySubtype::Generic, bytes });
        }
        let request = CollectionCommand::Find { request: request.as_bytes() }.request();
        let reply = session.ask(&Command::Of { key, request })?;
        if reply.status != Status::Ok {
            bail!("{}: {:?}: the collection has changed meanwhile", args.collection, reply.status);
        }
        let list = reply.value.and_then(Items::parse).context("a reply that cannot be")?;
        let mut items = list.iter().flatten();
        let head = items.next().and_then(|head| RawDocument::from_bytes(head).ok());
        let head = head.context("a reply that cannot be")?;
        for document in items {
            count += 1;
            match format {
                DocumentFormat::Bson => out.write_all(document)?,
                DocumentFormat::Json => {
                    let document = RawDocument::from_bytes(document)?;
                    writeln!(out, "{}", to_canonical_json(document)?)?;
                }
            }
        }
        at = head.get_binary("at").ok().map(|at| at.bytes.to_vec());
        if at.is_none() {
            return Ok(count);
        }
    }
}

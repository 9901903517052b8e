//! `remora import documents`: files of documents into a collection.
//!
//! Invariant: every document of the file is in the collection or is counted as refused, with its reason.

use super::progress::progress_bar;
use crate::refusals::{Refusal, Refusals};
use anyhow::{Context, bail};
use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf, cstr};
use clap::{Args, ValueEnum};
use remora_client_core::Session;
use remora_command_line::{Address, DEFAULT_SERVER, Transport, usage};
use remora_document::{DocumentError, from_json_value};
use remora_layout::limits::{INSERT_STEP_BYTES, INSERT_STEP_DOCUMENTS, MAX_DOCUMENT_BYTES};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::{Command, Items};
use serde::de::{Deserializer as _, SeqAccess, Visitor};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// How a file of documents is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DocumentFormat {
    /// Extended JSON: one array of documents, or documents one after the other.
    Json,
    /// BSON documents one after the other, as mongodump writes them.
    Bson,
}

impl DocumentFormat {
    /// The format that a file's name tells.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" | "jsonl" | "ndjson" => Some(Self::Json),
            "bson" => Some(Self::Bson),
            _ => None,
        }
    }
}

/// Flags of `remora import documents`.
#[derive(Debug, Args)]
pub struct DocumentArgs {
    /// The file; - is standard input.
    pub file: PathBuf,
    /// The collection, as DATABASE.COLLECTION. One that is not there is made.
    #[arg(long, value_name = "DB.COLLECTION")]
    pub into: String,
    /// How the file is written [default: as its name ends].
    #[arg(long, value_enum)]
    pub format: Option<DocumentFormat>,
    /// A running server: HOST:PORT of its RESP port, or path of its Unix socket.
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_SERVER)]
    pub server: Address,
    /// What carries requests.
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub transport: Transport,
}

/// Runs an import. Documents that were refused make it fail, after the others are in.
pub fn run(args: &DocumentArgs) -> anyhow::Result<()> {
    let shown = args.file.display();
    let Some(format) = args.format.or_else(|| DocumentFormat::of(&args.file)) else {
        return Err(usage(format!(
            "{shown} does not tell by its name how it is written: name a --format"
        )));
    };
    check_name(&args.into)?;
    let bar = progress_bar(&args.file);
    let stream: Box<dyn Read> = match args.file == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(
            File::open(&args.file)
                .map_err(|error| usage(format!("cannot read {shown}: {error}")))?,
        ),
    };
    let mut stream = BufReader::new(bar.wrap_read(stream));
    let session = args.server.session(args.transport)?;
    let mut intake = Intake::new(session, args.into.as_bytes());
    let read = match format {
        DocumentFormat::Json => read_json(&mut stream, &mut intake),
        DocumentFormat::Bson => read_bson(&mut stream, &mut intake),
    };
    let sent = intake.send();
    bar.finish_and_clear();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}: {} added, {} refused", args.into, intake.added, intake.refusals.count())?;
    intake.refusals.print(&mut out)?;
    read.and(sent)
        .with_context(|| format!("{shown}: what is counted above is in, the rest is not"))?;
    match intake.refusals.count() {
        0 => Ok(()),
        refused => bail!("{refused} documents were refused; all others are in"),
    }
}

/// A collection's key is its database's name, a dot, and its own.
pub fn check_name(name: &str) -> anyhow::Result<()> {
    match name.split_once('.') {
        Some((database, collection)) if !database.is_empty() && !collection.is_empty() => Ok(()),
        _ => Err(usage(format!("{name} is no collection: write DATABASE.COLLECTION"))),
    }
}

/// Documents on their way to the server, some at a time.
struct Intake<'a> {
    session: Session,
    key: &'a [u8],
    /// The documents that are to be sent next, and the number of the first one in the file.
    list: Vec<u8>,
    count: u64,
    first: u64,
    added: u64,
    refusals: Refusals,
}

impl<'a> Intake<'a> {
    fn new(session: Session, key: &'a [u8]) -> Self {
        let refusals = Refusals::default();
        Self { session, key, list: Vec::new(), count: 0, first: 1, added: 0, refusals }
    }

    /// The next document of the file.
    fn add(&mut self, document: Result<RawDocumentBuf, DocumentError>) -> anyhow::Result<()> {
        let document = match document {
            Ok(document) => with_id(&document),
            Err(error) => {
                // What stands before it keeps its numbers.
                self.send()?;
                let refusal = Refusal::new("it is no document", error.message());
                self.refusals.add(self.first, refusal);
                self.first += 1;
                return Ok(());
            }
        };
        let bytes = document.as_bytes();
        let is_full = self.count == INSERT_STEP_DOCUMENTS as u64
            || self.list.len() + bytes.len() > INSERT_STEP_BYTES;
        if is_full && self.count > 0 {
            self.send()?;
        }
        Items::push(&mut self.list, bytes);
        self.count += 1;
        Ok(())
    }

    /// Sends what waits.
    fn send(&mut self) -> anyhow::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let documents = Items::parse(&self.list).expect("it was made here");
        let request = CollectionCommand::Insert { documents, ordered: false }.request();
        let reply = self.session.ask(&Command::Of { key: self.key, request })?;
        self.added += reply.number.max(0) as u64;
        let failures = reply.value.and_then(Items::parse);
        for failure in failures.into_iter().flat_map(Items::iter).flatten() {
            let failure = RawDocument::from_bytes(failure).context("a reply that cannot be")?;
            let index = failure.get_i32("index").unwrap_or_default();
            let text = failure.get_str("errmsg").unwrap_or("it was refused").to_owned();
            let refusal = Refusal::new("the server refused it", text);
            self.refusals.add(self.first + index.max(0) as u64, refusal);
        }
        self.first += self.count;
        self.count = 0;
        self.list.clear();
        Ok(())
    }
}

/// The document with an `_id` as its first field: one that has none gets an ObjectId.
fn with_id(document: &RawDocument) -> RawDocumentBuf {
    let mut made = RawDocumentBuf::new();
    match document.get("_id") {
        Ok(Some(id)) => made.append(cstr!("_id"), id),
        _ => made.append(cstr!("_id"), ObjectId::new()),
    }
    for field in document.iter_elements().filter_map(Result::ok) {
        if let Ok(value) = field.value()
            && field.key() != cstr!("_id")
        {
            made.append(field.key(), value);
        }
    }
    made
}

/// Documents one after the other: each begins with its length.
fn read_bson(stream: &mut impl Read, intake: &mut Intake<'_>) -> anyhow::Result<()> {
    let mut number = 0u64;
    loop {
        number += 1;
        let mut length = [0; 4];
        match stream.read(&mut length[..1])? {
            0 => return Ok(()),
            _ => stream.read_exact(&mut length[1..]),
        }
        .with_context(|| format!("document {number} ends early"))?;
        let bytes = usize::try_from(i32::from_le_bytes(length)).unwrap_or_default();
        if !(5..=MAX_DOCUMENT_BYTES).contains(&bytes) {
            bail!(
                "document {number} says that it has {bytes} bytes: it has 5 to {MAX_DOCUMENT_BYTES}"
            );
        }
        let mut document = vec![0; bytes];
        document[..4].copy_from_slice(&length);
        stream.read_exact(&mut document[4..]).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => anyhow::anyhow!("document {number} ends early"),
            _ => error.into(),
        })?;
        let document = RawDocumentBuf::from_bytes(document)
            .with_context(|| format!("document {number} is no BSON"))?;
        remora_document::validate(&document)
            .map_err(|error| anyhow::anyhow!("document {number} is no BSON: {error}"))?;
        intake.add(Ok(document))?;
    }
}

/// An array of documents, or documents one after the other.
fn read_json(stream: &mut impl BufRead, intake: &mut Intake<'_>) -> anyhow::Result<()> {
    // Bounded by the spaces at the beginning.
    while let Some(&byte) = stream.fill_buf()?.first() {
        if !byte.is_ascii_whitespace() {
            if byte == b'[' {
                let mut from = serde_json::Deserializer::from_reader(stream);
                let mut failed = None;
                let read = (&mut from).deserialize_seq(Elements { intake, failed: &mut failed });
                if let Some(error) = failed {
                    return Err(error);
                }
                read.context("the file is no JSON")?;
                return from.end().context("something stands behind the array");
            }
            break;
        }
        stream.consume(1);
    }
    for value in serde_json::Deserializer::from_reader(stream).into_iter() {
        intake.add(from_json_value(value.context("the file is no JSON")?))?;
    }
    Ok(())
}

/// Takes the elements of an array, one at a time.
struct Elements<'i, 'a> {
    intake: &'i mut Intake<'a>,
    failed: &'i mut Option<anyhow::Error>,
}

impl<'de> Visitor<'de> for Elements<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of documents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while let Some(value) = all.next_element()? {
            if let Err(error) = self.intake.add(from_json_value(value)) {
                *self.failed = Some(error);
                return Err(serde::de::Error::custom("it was not sent"));
            }
        }
        Ok(())
    }
}

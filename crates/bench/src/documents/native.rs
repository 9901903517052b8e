//! The documents by the native client: asked for, or read from the server's memory.

use super::args::DocumentsArgs;
use super::store::{Answer, COLLECTION, Catalog, DATABASE, INDEX, Refused, Store, Written};
use crate::costs::Costs;
use anyhow::{Context, anyhow, ensure};
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, cstr, rawdoc};
use remora_client::{
    Address, Client, CollectionKey, Error, Options, Path, Session, Transport, Wake,
};
use remora_client_core as core;
use remora_command_line::{login, tls_files, unavailable};
use remora_protocol::collection::CollectionCommand;
use std::path::PathBuf;
use std::time::Duration;

/// Hundreds of connections may begin together, and wait for each other: what is slow is measured, and does not
/// fail.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Options of each connection.
pub fn options(args: &DocumentsArgs) -> Options {
    let mut options = Options::default().policy(args.policy.into()).wake(match args.wake {
        remora_command_line::Wake::Poll => Wake::Poll,
        remora_command_line::Wake::Event => Wake::Event,
        remora_command_line::Wake::Hybrid => Wake::Hybrid,
    });
    options = options.timeout(TIMEOUT).connect_timeout(TIMEOUT);
    options = match args.transport {
        remora_command_line::Transport::Auto => options,
        remora_command_line::Transport::Shm => options.transport(Transport::Shm),
        remora_command_line::Transport::Tcp => options.transport(Transport::Tcp),
        remora_command_line::Transport::Verbs => options.transport(Transport::Verbs),
    };
    let (user, password) = login();
    if !user.is_empty() || !password.is_empty() {
        options = options.user(user.as_encoded_bytes(), password.as_encoded_bytes());
    }
    match tls_files() {
        None => options,
        Some(files) => match files.identity {
            Some((certificate, key)) => {
                options.tls_as(files.authorities, PathBuf::from(certificate), PathBuf::from(key))
            }
            None => options.tls(files.authorities),
        },
    }
}

/// A connection and its session.
pub struct Native {
    session: Session,
    path: Path,
}

/// The answer to a request: the session goes on after most errors.
fn answer<T>(result: Result<T, Error>) -> Answer<T> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) if error.is_final() => Err(error.into()),
        Err(error) => Ok(Err(Refused(error.to_string()))),
    }
}

impl Native {
    /// Connects.
    pub fn connect(address: &core::Address, options: &Options, path: Path) -> anyhow::Result<Self> {
        let address: Address = address.to_string().parse()?;
        let client = Client::connect(&address, options)
            .map_err(|error| unavailable(format!("{:#}", anyhow::Error::new(error))))?;
        Ok(Self { session: client.session()?, path })
    }

    fn collection(&mut self) -> Result<CollectionKey<'_>, Error> {
        let path = self.path;
        Ok(self.session.collection(DATABASE, COLLECTION)?.by(path))
    }
}

fn of_client(written: remora_client::Written) -> Written {
    Written { matched: written.matched, modified: written.modified }
}

impl Store for Native {
    fn insert(&mut self, documents: &[RawDocumentBuf]) -> Answer<()> {
        let documents: Vec<&RawDocument> = documents.iter().map(|document| &**document).collect();
        answer(self.collection().and_then(|mut of| of.insert(&documents)))
    }

    fn find(&mut self, id: i64, see: &mut dyn FnMut(Option<&RawDocument>)) -> Answer<()> {
        match answer(self.collection().and_then(|of| of.find_by_id(id)))? {
            Ok(got) => {
                see(got.value.map(RawDocument::from_bytes).transpose()?);
                Ok(Ok(()))
            }
            Err(refused) => Ok(Err(refused)),
        }
    }

    fn query(&mut self, code: i64, see: &mut dyn FnMut(Option<&RawDocument>)) -> Answer<()> {
        let filter = rawdoc! { "code": code };
        let found = answer(self.collection().and_then(|mut of| of.find(&filter, 1)))?;
        Ok(found.map(|found| see(found.documents.first().map(|document| &**document))))
    }

    fn update(&mut self, id: i64, update: &RawDocument) -> Answer<Written> {
        let filter = rawdoc! { "_id": id };
        let written = self.collection().and_then(|mut of| of.update_one(&filter, update));
        Ok(answer(written)?.map(of_client))
    }

    fn delete(&mut self, id: i64) -> Answer<u64> {
        let filter = rawdoc! { "_id": id };
        let written = self.collection().and_then(|mut of| of.remove_one(&filter));
        Ok(answer(written)?.map(|written| written.matched))
    }

    fn costs(&self) -> Costs {
        self.session.counts().into()
    }
}

/// The collection as a whole, by a session of the client's inside: the client makes no indexes.
pub struct NativeCatalog {
    session: core::Session,
    collection: core::OpenCollection,
}

impl NativeCatalog {
    /// Takes a session of this connection.
    pub fn open(client: &core::Client) -> anyhow::Result<Self> {
        let session = client.session()?;
        let collection = session.open_collection(format!("{DATABASE}.{COLLECTION}").as_bytes())?;
        Ok(Self { session, collection })
    }

    /// The document that a request is answered with.
    fn ask(&mut self, command: &CollectionCommand<'_>) -> anyhow::Result<RawDocumentBuf> {
        let reply = self.session.document_ask(&self.collection, command)?;
        let told = reply.value.context("a reply about a collection is empty")?;
        Ok(RawDocument::from_bytes(told)?.to_owned())
    }
}

impl Catalog for NativeCatalog {
    fn remove(&mut self) -> anyhow::Result<()> {
        self.session.del(self.collection.key())?;
        Ok(())
    }

    fn make_index(&mut self) -> anyhow::Result<()> {
        let spec = rawdoc! { "key": { "code": 1 }, "name": INDEX };
        let mut request = rawdoc! { "spec": spec.clone() };
        // Bounded: each step goes on behind the last one.
        loop {
            let command = CollectionCommand::CreateIndex { request: request.as_bytes() };
            let told = self.ask(&command)?;
            let Ok(at) = told.get_binary("at") else { return Ok(()) };
            let at = Binary { subtype: BinarySubtype::Generic, bytes: at.bytes.to_vec() };
            request = rawdoc! { "spec": spec.clone() };
            request.append(cstr!("at"), at);
        }
    }

    fn count(&mut self) -> anyhow::Result<u64> {
        let told = self.ask(&CollectionCommand::Describe)?;
        let count = told.get_i64("count").map_err(|error| anyhow!("count: {error}"))?;
        ensure!(count >= 0, "a collection has {count} documents");
        Ok(count as u64)
    }
}

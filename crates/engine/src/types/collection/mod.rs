//! Collections of documents, with indexes (docs/decisions/0089).
//!
//! A document is a part, named by its encoded `_id`; its value is the BSON. Beside the table of parts there is a
//! B+tree of all `_id`s, and one for each index.
//!
//! Invariant: a change of a document and of all its entries is one change. A collection without documents stays.
//! What is asked in steps leaves nothing behind: each step says where the next one begins.

mod audit;
mod build;
mod change;
mod entry;
mod expire;
mod failure;
mod find;
mod held;
mod insert;
mod places;
mod plan;
mod readable;
mod rings;
mod rows;
mod scan;
mod settings;
mod spec;
mod transfer;
mod write;

pub(crate) use held::Collections;

use super::content::Content;
use super::object::{DumpedPart, LongRead, On, Turn, Type, find_root};
use crate::store::{DumpAt, Now, ShardStats, Store};
use bson::{Bson, Document, doc};
use entry::ID_INDEX;
use failure::Refusal;
use held::Index;
use remora_arena::{Journal, Slot};
use remora_layout::kind::Kind;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply, Request};
use settings::{Settings, bytes_of, parse_document};

/// What a request comes to: a number, and perhaps a value, which is in the buffer then.
type Done = Result<(i64, bool), Refusal>;

impl<J: Journal> Type<J> for Collections {
    fn id(&self) -> Kind {
        Kind::COLLECTION
    }

    fn execute<'s>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let root = match find_root(store, on, Kind::COLLECTION) {
            Ok(root) => root,
            Err(status) => return Reply::status(status),
        };
        let mut value = std::mem::take(&mut self.scratch);
        value.clear();
        let done = self.carry_out(store, (on, root), CollectionCommand::of(request), &mut value);
        self.scratch = value;
        match done {
            Ok((number, has_value)) => {
                let value = has_value.then_some(&self.scratch[..]);
                Reply { value, ..Reply::number(number) }
            }
            Err(Refusal::Status(status)) => Reply::status(status),
            Err(Refusal::Full(number)) => Reply { number, ..Reply::status(Status::OutOfMemory) },
            Err(Refusal::Failure(failure)) => {
                self.scratch.clear();
                self.scratch.extend_from_slice(failure.text.as_bytes());
                let number = failure.code.into();
                Reply { number, value: Some(&self.scratch), ..Reply::status(Status::Refused) }
            }
        }
    }

    fn begin_read(
        &mut self,
        _store: &mut Store<J>,
        _on: On<'_>,
        _request: Request<'_>,
    ) -> Result<LongRead, Status> {
        Err(Status::Malformed)
    }

    fn read_turn(
        &self,
        _store: &Store<J>,
        _read: &mut LongRead,
        _found: &mut Vec<u8>,
        _now: Now,
    ) -> Result<Turn, Status> {
        Err(Status::Malformed)
    }

    fn release(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        self.release_some(store, root, now)
    }

    fn tick(&mut self, store: &mut Store<J>) {
        if !self.timed.is_empty() {
            self.end_idle_builds(store);
        }
    }

    fn sweep(&mut self, store: &mut Store<J>, now: Now) -> bool {
        !self.timed.is_empty() && self.expire_some(store, now)
    }

    fn bytes_of(&self, store: &Store<J>, root: u32) -> u64 {
        self.weight(store, root)
    }

    fn digest(&self, store: &Store<J>, slot: u32, content: &mut Content) -> bool {
        self.digest_documents(store, slot, content)
    }

    fn encoding(&self, _is_whole: bool) -> &'static str {
        "documents"
    }

    fn head(&self, _store: &Store<J>, root: u32, head: &mut Vec<u8>) {
        self.write_head(root, head);
    }

    fn dump(&self, store: &Store<J>, root: u32, at: &mut DumpAt, piece: &mut Vec<u8>) -> bool {
        self.dump_documents(store, root, at, piece)
    }

    fn begin_load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        head: &[u8],
    ) -> Result<Slot, Status> {
        self.begin_load_of(store, on, head)
    }

    fn load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        self.load_documents(store, (on, root), piece)
    }

    fn requests(&self, part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
        transfer::requests(part, each)
    }

    fn audit(&self, store: &Store<J>) -> Result<u64, String> {
        self.audit_all(store)
    }

    fn heap_bytes(&mut self) -> u64 {
        self.all_heap_bytes()
    }

    fn count(&self, stats: &mut ShardStats) {
        let counts = self.counts();
        stats.collections = self.by_root.len() as u64;
        stats.documents = counts.documents;
        stats.document_bytes = counts.document_bytes;
        stats.document_indexes = counts.indexes;
        stats.document_node_bytes = counts.node_bytes;
    }
}

impl Collections {
    fn carry_out<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        command: CollectionCommand<'_>,
        value: &mut Vec<u8>,
    ) -> Done {
        match command {
            CollectionCommand::Create { .. } if root.is_some() => Err(Status::NotDone.into()),
            CollectionCommand::Create { options } => {
                let entry = Command::Of { key: on.key, request: command.request() };
                let settings = Settings::parse(options)?;
                self.make(store, (on, settings), &entry, |_, _, _| Ok::<(), Refusal>(()))?;
                Ok((1, false))
            }
            CollectionCommand::SetOptions { options } => {
                let root = root.ok_or(Status::NotFound)?;
                let settings = Settings::parse(options)?;
                let entry = Command::Of { key: on.key, request: command.request() };
                store.commit(on.hash.database(), &entry, |_| {
                    self.on(root, |collection, _| collection.settings = settings);
                });
                Ok((1, false))
            }
            CollectionCommand::Insert { documents, ordered } => {
                let inserted = self.insert(store, (on, root), (documents, ordered))?;
                value.extend_from_slice(&inserted.failures);
                Ok((inserted.added, true))
            }
            CollectionCommand::Put { documents } => {
                Ok((self.put(store, (on, root), documents)?, false))
            }
            CollectionCommand::Remove { ids } => match root {
                Some(root) => Ok((self.remove(store, (on, root), ids)?, false)),
                None => Ok((0, false)),
            },
            CollectionCommand::Write { request } => {
                let (number, told) = self.write(store, (on, root), request)?;
                value.extend_from_slice(&bytes_of(&told));
                Ok((number, true))
            }
            CollectionCommand::Find { request } => {
                Ok((self.find(store, (root, on.now), request, value)?, true))
            }
            CollectionCommand::CreateIndex { request } => {
                let (number, told) = self.create_index(store, (on, root), request)?;
                value.extend_from_slice(&bytes_of(&told));
                Ok((number, true))
            }
            CollectionCommand::DropIndex { name } => {
                self.drop_index(store, (on, root), name)?;
                Ok((1, false))
            }
            CollectionCommand::Describe => {
                let told = self.describe(store, root.ok_or(Status::NotFound)?);
                value.extend_from_slice(&bytes_of(&told));
                Ok((self.named(root.ok_or(Status::NotFound)?).ids.keys() as i64, true))
            }
            CollectionCommand::Rows { filter, at, count } => {
                let root = root.ok_or(Status::NotFound)?;
                Ok((self.rows(store, (root, on.now), (filter, at, count), value)?, true))
            }
            CollectionCommand::Indexes => {
                let (version, told) = self.tell_indexes(store, root.ok_or(Status::NotFound)?);
                value.extend_from_slice(&bytes_of(&told));
                Ok((version as i64, true))
            }
        }
    }

    /// Bytes of the arena and of the heap that a collection takes beside its root record.
    fn weight<J: Journal>(&self, store: &Store<J>, root: u32) -> u64 {
        let collection = self.named(root);
        let nodes = collection.node_bytes();
        let headers = collection.indexes.iter().flat_map(Index::headers);
        let headers: u64 = headers.map(|header| store.slots.bytes_of(header)).sum();
        store.parts.of(root).weight() + nodes + headers + collection.heap_bytes()
    }

    fn describe<J: Journal>(&self, store: &Store<J>, root: u32) -> Document {
        let collection = self.named(root);
        let id = doc! { "v": 2, "key": { "_id": 1 }, "name": ID_INDEX };
        let mut indexes = vec![Bson::Document(id)];
        let ready = collection.indexes.iter().filter(|index| index.is_ready());
        indexes.extend(ready.map(|index| Bson::Document(index.spec.document.clone())));
        let sizes = collection.ready().map(|(name, bytes)| (name.to_owned(), bytes as i64));
        let sizes: Document = sizes.map(|(name, bytes)| (name, Bson::Int64(bytes))).collect();
        let options = parse_document(collection.settings.document.as_bytes()).ok();
        let options = options.and_then(|of| Document::try_from(of).ok()).unwrap_or_default();
        doc! {
            "options": options,
            "indexes": indexes,
            "count": collection.ids.keys() as i64,
            "size": collection.size as i64,
            "storageSize": store.parts.of(root).bytes() as i64,
            "indexSizes": sizes,
        }
    }
}

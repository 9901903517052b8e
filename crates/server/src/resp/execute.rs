//! What a request does: answered here, read optimistically, or handed to the
//! shards that own its keys.

use super::connection::Connection;
use super::geo::GeoAnswers;
use super::host::Host;
use super::trees::TreePlaces;
use crate::jobs::ReplyQueue;
use crate::shared::{Counts, count};
use remora_engine::command::{Command, TreeCommand};
use remora_front::request;
use remora_front::request::{Render, Request};
use remora_front::resp::Args;
use remora_index::hash::TableRef;
use std::sync::Arc;

/// Bytes read in one turn of a connection, so that a flood from one does not
/// hold up the others.
const READ_BYTES: usize = 64 << 10;

/// Room for a record that is kept between requests.
const KEEP_RECORD_BYTES: usize = 256 << 10;

/// Executes requests for all connections of a thread.
pub struct Executor<H> {
    pub(super) host: Arc<H>,
    /// Where the shards' replies come back.
    pub replies: Arc<ReplyQueue>,
    /// This thread's views of the shards' tables.
    pub(super) tables: Vec<TableRef>,
    /// The record that an optimistic read found.
    pub(super) record: Vec<u8>,
    /// What a command about a tree is encoded in.
    pub(super) tree_scratch: Vec<u8>,
    /// Where trees are to be read.
    pub(super) tree_places: TreePlaces,
    /// Where GEO keys are to be read, and what becomes of answers about them.
    pub(super) geo_answers: GeoAnswers,
    /// Where sockets are read into.
    pub scratch: Vec<u8>,
    /// Unix ms of the present turn's requests.
    pub(super) now_ms: u64,
}

impl<H: Host> Executor<H> {
    /// An executor whose replies come back through `replies`.
    pub fn new(host: Arc<H>, replies: Arc<ReplyQueue>) -> Self {
        let tables = (0..host.shards()).map(|shard| {
            TableRef::read(shard as u32, host.memory(shard)).expect("the shard wrote this page")
        });
        Self {
            tables: tables.collect(),
            host,
            replies,
            record: Vec::new(),
            tree_scratch: Vec::new(),
            tree_places: TreePlaces::default(),
            geo_answers: GeoAnswers::default(),
            scratch: vec![0; READ_BYTES],
            now_ms: 0,
        }
    }

    /// The server's counts.
    pub fn counts(&self) -> &Counts {
        self.host.counts()
    }

    /// Executes one request of a connection.
    pub fn request(&mut self, connection: &mut Connection, args: &Args, bytes: &[u8]) {
        count(&self.counts().commands, 1);
        self.now_ms = self.host.unix_ms();
        match request(args, bytes, self.now_ms) {
            Ok(request) => self.execute(connection, request),
            Err(error) => connection.reply(|out, _| error.write(out)),
        }
        if self.record.capacity() > KEEP_RECORD_BYTES {
            self.record = Vec::new();
        }
    }

    fn execute(&mut self, connection: &mut Connection, request: Request<'_>) {
        match request {
            Request::Key(command, render) => {
                if !self.look(connection, &command, render) {
                    self.ask_owner(connection, &command, render);
                }
            }
            Request::Del(keys) => {
                let commands = keys.map(|key| Command::Del { key });
                self.ask_each(connection, commands, Render::Sum);
            }
            Request::Exists(keys) => {
                self.read_each(connection, keys.map(|key| Command::Exists { key }), Render::Sum)
            }
            Request::MGet(keys) => {
                self.read_each(connection, keys.map(|key| Command::Get { key }), Render::Values);
            }
            Request::MSet(pairs) => self.multi_set(connection, pairs),
            Request::DbSize => self.ask_all(connection, &Command::Count, Render::Sum),
            Request::FlushAll => {
                self.ask_all(connection, &Command::Flush, Render::AllOk("flushall"));
            }
            Request::Tree { name, command, render, most } => {
                self.tree(connection, (name, &command), render, most);
            }
            Request::Geo(request) => self.geo(connection, &request),
            Request::TreeAddShape { name, id, shape, data } => {
                let (rect, wkb) = (shape.bounds(), shape.to_wkb());
                let put = TreeCommand::Put { id, rect, data, geometry: Some(&wkb) };
                self.tree(connection, (name, &put), Render::Number("rtree.add"), usize::MAX);
            }
            Request::TreeRefine { name, refine, form, most } => {
                let bytes = refine.to_bytes();
                let search = TreeCommand::Refine { refine: &bytes, ids: None };
                self.tree(connection, (name, &search), Render::TreeObjects(form), most);
            }
            Request::TreeCountRefined { name, refine } => {
                let bytes = refine.to_bytes();
                let count = TreeCommand::CountRefined { refine: &bytes };
                self.tree(connection, (name, &count), Render::Number("rtree.count"), usize::MAX);
            }
            Request::TreeRemove { name, ids } => self.remove_objects(connection, name, &ids),
            own => self.own_answer(connection, own),
        }
    }
}

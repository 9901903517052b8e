//! What a request does: answered here, read optimistically, or handed to the
//! shards that own its keys.

use super::ahead::Next;
use super::connection::Connection;
use super::geo::GeoAnswers;
use super::host::Host;
use super::keys::KeyAnswers;
use super::many_keys::Answers;
use super::trees::TreePlaces;
use crate::key_batch::{Each, KeyCommand, PartRequest};
use crate::thread_counts::ThreadCounts;
use remora_index::hash::TableRef;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_protocol::{Command, Request as On};
use remora_resp::ReplyForm;
use remora_resp::keys::Keys;
use remora_resp::request;
use remora_resp::request::Request;
use remora_resp::wire::{Args, Made};

/// Bytes read in one turn of a connection, so that a flood from one does not
/// hold up the others.
pub(super) const READ_BYTES: usize = 64 << 10;

/// Room for a record that is kept between requests.
const KEEP_RECORD_BYTES: usize = 256 << 10;

/// Address and length of some bytes, to compare; the address is never followed.
type BytesPlace = (usize, usize);

fn place_of(bytes: &[u8]) -> BytesPlace {
    (bytes.as_ptr().addr(), bytes.len())
}

/// Buffers that are lent to one connection after another.
#[derive(Default)]
pub struct Spare {
    /// For arguments.
    pub args: Args,
    /// For requests that are parsed and not executed.
    pub ahead: Vec<Next>,
    /// For replies.
    pub output: Vec<u8>,
}

/// Executes requests for all connections of a thread.
pub struct Executor<H> {
    pub(super) host: H,
    /// This thread's views of the shards' tables.
    pub(super) tables: Vec<TableRef>,
    /// What keys of a request were answered at once.
    pub(super) answers: Answers,
    /// The record that an optimistic read found.
    pub(super) record: Vec<u8>,
    /// Where trees are to be read.
    pub(super) tree_places: TreePlaces,
    /// Where GEO keys are to be read, and what becomes of answers about them.
    pub(super) geo_answers: GeoAnswers,
    /// What becomes of answers about which keys there are.
    pub(super) key_answers: KeyAnswers,
    /// Where sockets are read into: room for one long read, and for short ones of others.
    pub scratch: Vec<u8>,
    /// What the connection that is served works with, unless it has kept something
    /// in its own: idle connections have no buffers.
    pub spare: Spare,
    /// Unix ms of the present turn's requests.
    pub(super) now_ms: u64,
    /// The database of the present request.
    pub(super) database: Database,
    /// Where the first key of the present request stands, and its hash and shard.
    first_key: Option<(BytesPlace, (KeyHash, usize))>,
}

impl<H: Host> Executor<H> {
    /// An executor for the connections of this thread.
    pub fn new(host: H) -> Self {
        let tables = (0..host.shards())
            .map(|shard| TableRef::of(host.memory(shard)).expect("the shard wrote this page"));
        Self {
            tables: tables.collect(),
            host,
            answers: Answers::default(),
            record: Vec::new(),
            tree_places: TreePlaces::default(),
            geo_answers: GeoAnswers::default(),
            key_answers: KeyAnswers::default(),
            scratch: vec![0; 2 * READ_BYTES],
            spare: Spare::default(),
            now_ms: 0,
            database: Database::ZERO,
            first_key: None,
        }
    }

    /// Where the thread counts.
    pub fn counts(&self) -> &ThreadCounts {
        self.host.counts()
    }

    /// The hash of a key of the request's database, and the shard that owns it.
    #[inline]
    pub(super) fn route(&self, key: &[u8]) -> (KeyHash, usize) {
        match self.first_key {
            Some((first, at)) if first == place_of(key) && at.0.database() == self.database => at,
            _ => self.host.route(self.database, key),
        }
    }

    /// Executes one request of a connection. `at` is where the key that it names
    /// first is, if that is known.
    pub fn request(
        &mut self,
        connection: &mut Connection,
        args: &Args,
        bytes: &[u8],
        at: Option<(KeyHash, usize)>,
    ) {
        self.first_key = at.map(|at| (place_of(args.get(1, bytes)), at));
        self.counts().commands.add(1);
        self.now_ms = self.host.now().unix_ms;
        self.database = connection.database;
        let made = Made::default();
        match request(args, bytes, &made, self.now_ms) {
            Ok(request) => self.execute(connection, request),
            Err(error) => connection.reply(|out, _| error.write(out)),
        }
        self.first_key = None;
        if self.record.capacity() > KEEP_RECORD_BYTES {
            self.record = Vec::new();
        }
    }

    fn execute(&mut self, connection: &mut Connection, request: Request<'_>) {
        match request {
            Request::Key(command, render) => self.key_command(connection, &command, render),
            Request::Del(keys) => {
                self.change_each(connection, keys, |key| Command::Del { key });
            }
            Request::Touch(keys) => {
                self.change_each(connection, keys, |key| Command::Touch { key });
            }
            Request::Exists(keys) => {
                self.each_key(connection, keys, |key| Command::Exists { key }, ReplyForm::Sum);
            }
            Request::MGet(keys) => {
                self.each_key(connection, keys, |key| Command::Get { key }, ReplyForm::Values);
            }
            Request::MSet(pairs) => self.multi_set(connection, pairs),
            Request::Digest => {
                self.ask_all(connection, &Command::Digest { key: None }, ReplyForm::Digest);
            }
            Request::DigestValues(keys) => {
                let of: KeyCommand = |key| Command::Digest { key: Some(key) };
                self.each_key(connection, keys, of, ReplyForm::Digests);
            }
            Request::DbSize => self.ask_all(connection, &Command::Count, ReplyForm::Sum),
            Request::FlushDb => {
                self.ask_all(connection, &Command::Flush, ReplyForm::AllOk("flushdb"));
            }
            Request::Scan { cursor, count, filter } => {
                self.scan(connection, (cursor, count), filter);
            }
            Request::KeysOf(filter) => self.keys_of(connection, &filter),
            Request::RandomKey => self.random_key(connection),
            Request::Transfer(transfer) => self.transfer(connection, &transfer),
            Request::FlushAll => {
                self.ask_all(connection, &Command::FlushAll, ReplyForm::AllOk("flushall"));
            }
            Request::Object { key, request, form } => {
                self.object_command(connection, (key, request), form, None);
            }
            Request::Store { key, request, form, to } => {
                self.object_command(connection, (key, request), form, Some(to));
            }
            Request::EachPart { key, parts, request, form } => {
                self.change_each_part(connection, key, (parts, request), form);
            }
            own => self.own_answer(connection, own),
        }
    }

    /// One operation on the object of a key: executed, read or asked. What it finds may be
    /// stored at another key.
    fn object_command(
        &mut self,
        connection: &mut Connection,
        (key, request): (&[u8], On<'_>),
        form: ReplyForm,
        store_to: Option<&[u8]>,
    ) {
        match request {
            On::Geo(command) => self.geo(connection, (key, command), form, store_to),
            On::Tree(command) => self.tree(connection, (key, command), form),
            request => self.any_object(connection, (key, request), form),
        }
    }

    /// The same operation on each of several parts of an object; most requests name one.
    fn change_each_part(
        &mut self,
        connection: &mut Connection,
        key: &[u8],
        (parts, request): (Keys<'_>, PartRequest),
        form: ReplyForm,
    ) {
        match (parts.len(), parts.clone().next()) {
            (1, Some(part)) => self.object_command(connection, (key, request(part)), form, None),
            _ => self.each(connection, parts, Each::Part(key.into(), request), form),
        }
    }
}

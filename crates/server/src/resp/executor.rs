//! Executes the requests of all RESP connections of one thread: the executor's state, and where
//! keys are. The files beside have one group of requests each.

use super::geo::answers::GeoAnswers;
use super::host::{Host, Prefetch};
use super::key_answers::KeyAnswers;
use super::trees::places::TreePlaces;
use crate::client_memory::HeldMemory;
use remora_frontend::{Answers, Connections};
use remora_index::hash::TableRef;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::node::Home;
use remora_resp::Resp;
use remora_resp::subscriptions::{Announcer, Event};

/// The reply side of a RESP connection.
pub type Responder = remora_frontend::Responder<Resp>;

/// The RESP connections of one thread, over streams of this kind.
pub type RespConnections<S> = Connections<S, Resp, HeldMemory>;

/// Address and length of some bytes, to compare; the address is never followed.
type BytesPlace = (usize, usize);

fn place_of(bytes: &[u8]) -> BytesPlace {
    (bytes.as_ptr().addr(), bytes.len())
}

/// See the module's text.
pub struct RespExecutor<H> {
    pub(super) host: H,
    /// This thread's views of the shards' tables.
    pub(super) tables: Vec<TableRef>,
    /// Immediate answers for keys of a request.
    pub(super) answers: Answers,
    /// The record that an optimistic read found.
    pub(super) record: Vec<u8>,
    /// The places of trees for reads.
    pub(super) tree_places: TreePlaces,
    /// The places of GEO keys for reads, and the next steps after answers about them.
    pub(super) geo_answers: GeoAnswers,
    /// The next steps after answers about the key space.
    pub(super) key_answers: KeyAnswers,
    /// Finds what subscribers are told of the cluster.
    pub(super) announcer: Announcer,
    /// The last events, for them.
    pub(super) events: Vec<Event>,
    /// The server was the primary of its group when they were told last.
    pub(super) led: bool,
    /// The users as the connections were looked at last.
    pub(super) users_version: u64,
    /// Unix ms of the present turn's requests.
    pub(super) now_ms: u64,
    /// The database of the present request.
    pub(super) database: Database,
    /// The position of the present request's first key, and its hash and shard.
    first_key: Option<(BytesPlace, (KeyHash, usize))>,
}

impl<H: Host> RespExecutor<H> {
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
            announcer: Announcer::default(),
            events: Vec::new(),
            led: false,
            users_version: 0,
            now_ms: 0,
            database: Database::ZERO,
            first_key: None,
        }
    }

    /// A turn of a connection's requests begins, in this database.
    #[inline]
    pub(super) fn begin(&mut self, database: Database) {
        self.now_ms = self.host.now_ms();
        self.database = database;
    }

    /// The position of the present request's first key, if that is known.
    #[inline]
    pub(super) fn set_first_key(&mut self, key: &[u8], at: Option<(KeyHash, usize)>) {
        self.first_key = at.map(|at| (place_of(key), at));
    }

    /// The present request is carried out.
    #[inline]
    pub(super) const fn forget_first_key(&mut self) {
        self.first_key = None;
    }

    /// The hash of a key of the request's database, and the shard that owns it.
    #[inline]
    pub(super) fn route(&self, key: &[u8]) -> (KeyHash, usize) {
        match self.first_key {
            Some((first, at)) if first == place_of(key) && at.0.database() == self.database => at,
            _ => self.host.route(self.database, key),
        }
    }

    /// The identity to which trees in a shard's memory are bound.
    pub(super) fn home_of(&self, shard: usize) -> Home {
        let table = &self.tables[shard];
        Home { secret: table.secret, region: table.region }
    }

    /// Prefetches the memory that requests about keys with these hashes, of these shards, will
    /// read.
    pub(super) fn fetch(&mut self, keys: &[(KeyHash, usize)]) {
        let home = self.host.home();
        let (tables, host) = (&self.tables, &mut self.host);
        let others = || keys.iter().filter(|at| at.1 != home);
        let here = || keys.iter().filter(|at| at.1 == home).map(|at| at.0);
        let some_here = here().next().is_some();
        others().for_each(|&(hash, at)| tables[at].prefetch(host.memory(at), hash));
        if some_here {
            host.prefetch(Prefetch::Buckets, here());
        }
        others().for_each(|&(hash, at)| tables[at].prefetch_record(host.memory(at), hash));
        if some_here {
            host.prefetch(Prefetch::Records, here());
        }
    }
}

//! One shard: a store, and the types of objects in it. It executes commands one
//! after the other (HydraDB 4.1.1, H2, H3).
//!
//! Invariant: a change is logged before any reader can see it; a new record is complete before it
//! is reachable; the old record of a key is dead before the new one is reachable, so that two paths
//! never lead to two values.

mod apply;
mod change_turns;
mod digest;
mod follow;
mod followed;
mod joint;
#[cfg(test)]
mod kind_tests;
mod large;
mod log_history;
mod moves;
mod progress;
mod rebuild;
mod replica_marks;
mod room;
mod snapshot;
mod synced;
mod waiters;
mod waiting;

pub use replica_marks::ReplicaMarks;

pub use digest::{Digest, DigestRead};
pub use followed::FollowedLog;
pub use joint::PartReply;
pub use log_history::{EpochHistory, LogHistory, ReplicaPosition, Resumption, TailPiece};
pub use progress::{Applied, ApplyError, Origin};
pub use snapshot::{BadOperation, OperationCount, SnapshotTurn, SplitOperation, split_operation};
pub use waiters::Tried;
pub use waiting::{Served, WaitFor, WaiterName};

use crate::evict::Id;
use crate::keys;
use crate::store::{DependsOn, FindElsewhere, Now, ShardOptions, ShardStats, Store, audit};
use crate::types::object::{Listing, LongRead, On, Turn, Types};
use crate::types::registry;
use crate::types::sought::{Seek, Sought};
use crate::types::string::{self, Set};
use followed::Followed;
use progress::AppliedLogs;
use remora_arena::{Journal, NoJournal, Owner};
use remora_index::hash::{TableRef, record_value};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_log::{Cursor, Hold, Log, Lost};
use remora_protocol::applied::AppliedEntry;
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply, Request};
use room::{
    Tries, audit_weights, cover_heap, given_bytes, make_room, may_make_object, release_turn,
    wants_room, weigh,
};

/// A shard. See the module's text.
pub struct Shard<J: Journal = NoJournal> {
    store: Store<J>,
    types: Types<J>,
    /// How far other logs are applied.
    applied: AppliedLogs,
    /// The logs of a primary that it follows, or has followed before a restart.
    followed: Followed,
    /// See [`Shard::own_since`].
    own_since: u64,
    /// What its log was before the start of the server.
    log_history: LogHistory,
    /// That of the log that it has followed, behind a promotion.
    former_log: Option<LogHistory>,
    /// Requests that wait for keys.
    waiters: waiting::Waiters,
    /// Parts of objects have expired and are still there, as far as is known.
    sweeps: bool,
    /// The value that the last change replied with.
    written_value: Vec<u8>,
    /// The rest of a snapshot that has ended.
    written_snapshot: Vec<u8>,
    /// The last sequence that is on the disk of the log; `None` without a disk.
    synced: Option<u64>,
    /// What each replica has.
    replicas: Vec<ReplicaMarks>,
    /// A client has asked the disk to begin.
    is_sync_wanted: bool,
}

impl<J: Journal> Shard<J> {
    /// A shard over a fresh, zeroed region; writes the arena's header.
    pub fn new(owner: Owner<J>, options: ShardOptions) -> Self {
        let types = Types::new(registry());
        let mut store = Store::new(owner, options);
        store.scored = types.iter().filter_map(|of| of.scored()).collect();
        Self {
            store,
            types,
            applied: AppliedLogs::default(),
            followed: Followed::default(),
            own_since: 0,
            log_history: LogHistory::default(),
            former_log: None,
            waiters: waiting::Waiters::default(),
            sweeps: false,
            written_value: Vec::new(),
            written_snapshot: Vec::new(),
            synced: None,
            replicas: Vec::new(),
            is_sync_wanted: false,
        }
    }

    /// The hash of a key of database 0 in this cluster.
    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.store.hash(Database::ZERO, key)
    }

    /// The hash of a command's key in a database; for a command without a key, a hash that stands
    /// for its database.
    #[inline(always)]
    pub fn hash_of(&self, database: Database, command: &Command<'_>) -> KeyHash {
        match command.key() {
            Some(key) => self.store.hash(database, key),
            None => KeyHash::without_key(database),
        }
    }

    /// Returns what a reader needs to walk this shard's table in its present state.
    pub fn table_ref(&self) -> TableRef {
        self.store.table_ref()
    }

    /// The arena, for its owner's thread.
    pub fn owner(&self) -> &Owner<J> {
        &self.store.owner
    }

    /// The operation log.
    pub fn log(&self) -> &Log {
        &self.store.log
    }

    /// Keeps the entries of the log that a cursor has not read.
    ///
    /// # Errors
    /// The log has dropped them.
    pub fn hold_log(&mut self, cursor: &Cursor) -> Result<Hold, Lost> {
        self.store.log.hold(cursor)
    }

    /// The hold keeps what the cursor has not read, and nothing before.
    ///
    /// # Errors
    /// The log has dropped it.
    pub fn move_hold(&mut self, hold: &Hold, cursor: &Cursor) -> Result<(), Lost> {
        self.store.log.move_hold(hold, cursor)
    }

    /// Ends a hold: the log keeps nothing for it any more.
    pub fn release_log(&mut self, hold: Hold) {
        self.store.log.release(hold);
    }

    /// The log keeps so many bytes for readers that may come back, beside what readers hold; see
    /// [`Log::set_limit`].
    pub fn keep_log(&mut self, bytes: usize) {
        self.store.log.set_limit(bytes);
    }

    /// Bytes of the arena that data take.
    pub fn used_bytes(&self) -> u64 {
        self.store.slots.stats().used_bytes
    }

    /// Bytes of memory that it has for data, without the reserve.
    pub fn memory_bytes(&self) -> u64 {
        self.store.owner.region_bytes() as u64 - self.store.options.reserve_bytes
    }

    /// Whether the disk of the log takes entries. While it does not, changes are refused
    /// ([`Status::NotKept`]); what expires or is removed for others goes on.
    pub fn set_keeps(&mut self, keeps: bool) {
        self.store.keeps = keeps;
    }

    /// From now on the hints of links to keys of other shards are found so.
    pub fn set_find_elsewhere(&mut self, find: FindElsewhere) {
        self.store.set_find_elsewhere(find);
    }

    /// Whether enough replicas keep up. While they do not, changes are refused
    /// ([`Status::TooFewReplicas`]); what expires or is removed for others goes on.
    pub fn set_has_replicas(&mut self, has_replicas: bool) {
        self.store.has_replicas = has_replicas;
    }

    /// Counts.
    pub fn stats(&self) -> ShardStats {
        let mut stats = self.store.stats();
        self.types.iter().for_each(|of| of.count(&mut stats));
        stats
    }

    /// Keys of all databases.
    pub fn keys(&self) -> u64 {
        self.store.stats.keys - self.store.flushes.keys()
    }

    /// First of two prefetches of a key: its bucket.
    #[inline(always)]
    pub fn prefetch(&self, hash: KeyHash) {
        self.store.prefetch(hash);
    }

    /// Second prefetch, a while later: its record.
    #[inline(always)]
    pub fn prefetch_record(&self, hash: KeyHash) {
        self.store.prefetch_record(hash);
    }

    /// As [`Shard::prefetch`], for an entry's operation, or one of a snapshot, that is carried out a
    /// while later.
    #[inline]
    pub fn prefetch_operation(&self, operation: &[u8]) {
        let inner = match AppliedEntry::is(operation) {
            true => AppliedEntry::decode(operation).map_or(operation, |applied| applied.operation),
            false => operation,
        };
        if let Ok((database, command, _)) = Command::decode_within(inner)
            && command.key().is_some()
        {
            self.prefetch(self.hash_of(database, &command));
        }
    }

    /// Executes one command. `hash` is of the command's key, or says the database
    /// of a command without one ([`Shard::hash_of`]).
    /// The reply says for which sequence it waits.
    #[inline]
    pub fn execute(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        self.serve_before(command, hash, now);
        self.execute_next(command, hash, now)
    }

    /// The same, when no waiter comes before it.
    #[inline]
    fn execute_next(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        if self.store.lag.is_possible() {
            return self.execute_lagging(command, hash, now);
        }
        self.execute_known(command, hash, now)
    }

    #[inline(never)]
    fn execute_lagging(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        let depends_on = self.store.lag.begin_command();
        if command.key().is_none()
            && !matches!(command, Command::Synced { .. } | Command::Replicated { .. })
        {
            self.store.lag.look_at_all(self.store.last_sequence());
        }
        let reply = self.execute_known(command, hash, now);
        // A refusal shows nothing, and what it would wait for may be its cause: the disk, or the
        // replicas.
        let is_refused = matches!(reply.status, Status::NotKept | Status::TooFewReplicas);
        let depends_on = depends_on.filter(|_| !is_refused);
        waiting(reply, depends_on)
    }

    #[inline]
    fn execute_known(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        if let Command::Get { key } = *command {
            // A function of its own, because this is the most frequent case: a frame for all
            // commands is large.
            self.store.only_reads = true;
            return string::get(&mut self.store, key, hash, now);
        }
        if !command.is_write() {
            self.store.only_reads = true;
            return self.execute_once(command, hash, now);
        }
        if let Some(refusal) = self.store.refusal() {
            return Reply::status(refusal);
        }
        self.execute_write(command, hash, now)
    }

    fn execute_write(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        let store = &mut self.store;
        if wants_room(store) {
            make_room(store, &mut self.types, given_bytes(command), now);
        }
        let hash_of = |database, key: &[u8]| store.hash(database, key);
        if store.moves.has_dumps() && store.moves.refuse(command, hash, hash_of) {
            return Reply::status(Status::TryAgain);
        }
        if store.evictor.is_on() && (store.has_objects() || may_make_object(command)) {
            return self.execute_evicting(command, hash, now);
        }
        self.execute_once(command, hash, now)
    }

    /// Executes a change where keys may go.
    #[cold]
    fn execute_evicting(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        let (mut tries, mut counted) = (Tries::begin(&mut self.store), 0);
        let region = self.store.owner.addresses();
        loop {
            let mut written = Vec::new();
            let Reply { status, number, value, pointer, lease_ms, wait } =
                self.execute_once(command, hash, now);
            // It lies in the arena, where it can be long, or is short.
            let value = value.map(|value| {
                let at = value.as_ptr().addr();
                if !region.contains(&at) {
                    written.extend_from_slice(value);
                    return None;
                }
                Some((at - region.start, value.len()))
            });
            let number = number + counted;
            weigh(&mut self.store, &self.types);
            let (store, types) = (&mut self.store, &mut self.types);
            if status == Status::OutOfMemory
                && tries.make_more_room(store, types, given_bytes(command), now)
            {
                counted = number;
                continue;
            }
            store.making_room.end();
            self.written_value = written;
            let value = value.map(|place| match place {
                Some((at, bytes)) => self.store.owner.slice(at, bytes),
                None => &self.written_value[..],
            });
            return Reply { status, number, value, pointer, lease_ms, wait };
        }
    }

    fn execute_once<'c>(&mut self, command: &Command<'c>, hash: KeyHash, now: Now) -> Reply<'_> {
        let on = |key: &'c [u8]| On { key, hash, now };
        match *command {
            Command::Get { key } => string::get(&mut self.store, key, hash, now),
            Command::Set { key, value, condition, expiry, get } => {
                string::set(&mut self.store, Set { key, hash, value, condition, expiry, get }, now)
            }
            Command::Del { key } => keys::del(&mut self.store, on(key)),
            Command::Exists { key } => keys::exists(&mut self.store, on(key)),
            Command::Touch { key } => keys::touch(&mut self.store, on(key)),
            Command::Incr { key, by } => string::incr(&mut self.store, on(key), by),
            Command::Expire { key, at_ms, condition } => {
                keys::expire(&mut self.store, on(key), at_ms, condition)
            }
            Command::Ttl { key } => keys::ttl(&mut self.store, on(key)),
            Command::Type { key } => keys::type_of(&mut self.store, on(key)),
            Command::MultiSet { pairs } => {
                string::multi_set(&mut self.store, hash.database(), pairs, now)
            }
            Command::Append { key, value } => string::append(&mut self.store, on(key), value),
            Command::SetRange { key, offset, value } => {
                string::set_range(&mut self.store, on(key), offset, value)
            }
            Command::GetRange { key, start, end } => {
                string::get_range(&mut self.store, on(key), start, end)
            }
            Command::SetBit { key, offset, bit } => {
                string::set_bit(&mut self.store, on(key), offset, bit)
            }
            Command::GetBit { key, offset } => string::get_bit(&mut self.store, on(key), offset),
            Command::StrLen { key } => string::strlen(&mut self.store, on(key)),
            Command::GetDel { key } => string::get_del(&mut self.store, on(key)),
            Command::GetEx { key, at_ms } => string::get_ex(&mut self.store, on(key), at_ms),
            Command::Of { key, request } => self.execute_of(on(key), request),
            Command::Digest { key } => self.execute_digest(key, hash, now),
            Command::Encoding { key } => self.encoding(key, hash, now),
            Command::Count => Reply::number(self.store.keys_of(hash.database()) as i64),
            Command::Flush => self.flush(Some(hash.database()), now),
            Command::FlushAll => self.flush(None, now),
            Command::Persist { key } => keys::persist(&mut self.store, on(key)),
            Command::ExpireTime { key } => keys::expire_time(&mut self.store, on(key)),
            Command::Scan { place, count } => {
                keys::scan(&mut self.store, hash.database(), (place, count), now)
            }
            Command::RandomKey { random, place } => {
                keys::random_key(&mut self.store, hash.database(), (random, place), now)
            }
            Command::Synced { until, begins } => self.execute_synced(until, begins),
            Command::Replicated { until, replicas } => self.execute_replicated(until, replicas),
            // A shard knows of no cluster.
            Command::Topology { .. } => Reply::status(Status::NotFound),
            // They are answered in turns only, a plan by the server.
            Command::Elements { .. } | Command::Plan { .. } => Reply::status(Status::Malformed),
            Command::Dump { .. }
            | Command::DumpPart { .. }
            | Command::Load { .. }
            | Command::Transfer { .. }
            | Command::Restore { .. }
            | Command::DelDumped { .. }
            | Command::EndDump { .. } => {
                let shard = (&mut self.store, &mut self.types);
                moves::execute(shard, command, hash, now, &mut self.written_value)
            }
        }
    }

    /// Flushes to the end, in one step.
    fn flush(&mut self, only: Option<Database>, now: Now) -> Reply<'static> {
        let flush = self.store.begin_flush(only);
        // Bounded: each turn sweeps some buckets.
        while !self.store.flushes.have_ended(flush) {
            release_turn(&mut self.store, &mut self.types, now);
        }
        Reply::number(flush.keys as i64)
    }

    #[cold]
    fn execute_digest(&mut self, key: Option<&[u8]>, hash: KeyHash, now: Now) -> Reply<'_> {
        let digest = match key {
            Some(key) => self.digest_value(key, hash, now),
            None => Some(self.digest()),
        };
        let Some(digest) = digest else { return Reply::status(Status::NotFound) };
        self.written_value = digest.0.to_le_bytes().to_vec();
        Reply { value: Some(&self.written_value), ..Reply::status(Status::Ok) }
    }

    /// The encoding of a key's value, in Redis's words.
    fn encoding(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        let Some(found) = self.store.lookup(key, hash, now) else {
            return Reply::status(Status::NotFound);
        };
        let kind = self.store.kind(found);
        let name = match self.types.get(kind.of_type()) {
            Some(of) if kind.is_root() => of.encoding(false),
            Some(of) => of.whole_encoding(record_value(&self.store.owner, found.slot.slot)),
            None => string::encoding(record_value(&self.store.owner, found.slot.slot)),
        };
        let touches = self.store.evictor.touches(found.slot.slot).map_or(-1, i64::from);
        Reply { value: Some(name.as_bytes()), ..Reply::number(touches) }
    }

    fn execute_of(&mut self, on: On<'_>, request: Request<'_>) -> Reply<'_> {
        let Self { store, types, .. } = self;
        if types.get(request.kind()).is_none() {
            return Reply::status(Status::Malformed);
        }
        if store.evictor.is_on() && request.is_write() {
            let found = store.found(on.key, on.hash);
            store.making_room.keep = found.map(|found| found.slot.slot);
        }
        if request.is_write() && !cover_heap(store, types, on.now) && request.grows() {
            return Reply::status(Status::OutOfMemory);
        }
        let of = types.get_mut(request.kind()).expect("looked at above");
        of.execute(store, on, request)
    }

    /// Begins an operation that is answered in turns ([`Request::is_long`]).
    ///
    /// # Errors
    /// The reply.
    pub fn begin_read(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        request: Request<'_>,
        now: Now,
    ) -> Result<LongRead, Reply<'static>> {
        self.serve_before(&Command::Of { key, request }, hash, now);
        if request.is_write()
            && let Some(refusal) = self.store.refusal()
        {
            return Err(Reply::status(refusal));
        }
        let depends_on = self.store.lag.begin_command();
        self.store.only_reads = true;
        let begun = match self.types.get_mut(request.kind()) {
            Some(of) => of.begin_read(&mut self.store, On { key, hash, now }, request),
            None => Err(Status::Malformed),
        };
        match begun {
            Ok(read) => {
                let key = request.is_write().then(|| key.into());
                Ok(LongRead { hash, key, ..read })
            }
            Err(status) => Err(waiting(Reply::status(status), depends_on)),
        }
    }

    /// Begins a listing of the elements of a key's object ([`Command::Elements`]): of those of a range,
    /// if they have an order.
    ///
    /// # Errors
    /// The reply: the key holds nothing, or something without elements.
    pub fn begin_elements(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        (start, stop): (i64, i64),
        now: Now,
    ) -> Result<LongRead, Reply<'static>> {
        self.serve_before(&Command::Elements { key, start, stop }, hash, now);
        let depends_on = self.store.lag.begin_command();
        self.store.only_reads = true;
        let Some(found) = self.store.lookup(key, hash, now) else {
            return Err(waiting(Reply { value: Some(&[]), ..Reply::number(0) }, depends_on));
        };
        let of = self.types.get_mut(self.store.kind(found).of_type());
        let of = of.and_then(|of| Some((of.listing()?, of)));
        let begun = of.ok_or(Status::WrongType).and_then(|(listing, of)| {
            let (request, is_ordered) = match listing {
                Listing::Ordered(of_range) => (of_range(start, stop), true),
                Listing::Unordered(request) => (request, false),
            };
            let read = of.begin_read(&mut self.store, On { key, hash, now }, request)?;
            Ok(LongRead { hash, lists_ordered: Some(is_ordered), ..read })
        });
        begun.map_err(|status| waiting(Reply::status(status), depends_on))
    }

    /// How a plan finds something in objects of this kind; none if it cannot.
    pub fn seek(&self, kind: Kind, sought: &Sought<'_>) -> Option<Box<dyn Seek>> {
        self.types.get(kind)?.seek(sought)
    }

    /// Begins a FLUSHALL, or a FLUSHDB of `only`, that is answered in turns. The returned long read
    /// finds nothing, and ends once everything is dead for readers. [`Shard::release_some`] carries
    /// it out. The caller serves all waiters before ([`Shard::serve_all_waiters`]).
    ///
    /// # Errors
    /// The reply: the shard applies a log.
    pub fn begin_flush(&mut self, only: Option<Database>) -> Result<LongRead, Reply<'static>> {
        if let Some(refusal) = self.store.refusal() {
            return Err(Reply::status(refusal));
        }
        self.store.lag.begin_command();
        Ok(LongRead::of_flush(self.store.begin_flush(only)))
    }

    /// Continues a long read for one turn of the shard, and appends the results to `found`. The
    /// results wait for [`Shard::wait_of`]. An operation that changes its key does that in its last
    /// turn.
    ///
    /// # Errors
    /// The status of the reply: the object was removed meanwhile, or the change is refused.
    pub fn read_turn(
        &mut self,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        now: Now,
    ) -> Result<Turn, Status> {
        if let Some(flush) = read.flush {
            let (ended, number) = (self.store.flushes.have_ended(flush), flush.keys as i64);
            return Ok(Turn { ended, number, ..Turn::default() });
        }
        if read.key.is_some() {
            return self.change_turn(read, found, now);
        }
        let of = self.types.get(read.type_id).ok_or(Status::Malformed)?;
        let turn = of.read_turn(&self.store, read, found, now)?;
        let Some(is_ordered) = read.lists_ordered else { return Ok(turn) };
        Ok(Turn { number: 2 * turn.number + i64::from(is_ordered), is_counted: false, ..turn })
    }

    /// Leaves the first `most` parts of all that a long read has found; false if
    /// there were fewer.
    pub fn cut(&self, read: &LongRead, found: &mut Vec<u8>, most: usize) -> bool {
        let of = self.types.get(read.type_id);
        of.is_some_and(|of| of.cut(found, most))
    }

    /// The sequence for which the replies of a long read's last turn wait; 0 for none.
    pub fn wait_of(&self, read: &LongRead) -> u64 {
        let newest = |hash: &KeyHash| self.store.lag.newest_of(*hash);
        read.others.iter().map(newest).fold(newest(&read.hash), u64::max)
    }

    /// Sequence of the last change.
    pub fn last_sequence(&self) -> u64 {
        self.store.last_sequence()
    }

    /// Sequence up to which changes are as durable as configured.
    pub fn durable_sequence(&self) -> u64 {
        self.store.durable_sequence()
    }

    /// Marks changes up to this sequence as durable: replies that wait for them may be sent, and
    /// readers see the changes, the first of them at once. Has no effect with durability `memory`.
    pub fn set_durable(&mut self, sequence: u64) {
        self.store.set_durable(sequence);
    }

    /// Removes duplicates from all results of a long read.
    pub fn tidy(&self, read: &LongRead, found: &mut Vec<u8>) {
        if let Some(of) = self.types.get(read.type_id) {
            of.tidy(found);
        }
    }

    /// Another thread of the server has read this record: a hint for the eviction policy, which may
    /// be late.
    pub fn hint_touched(&mut self, id: Id) {
        self.store.evictor.hint_touched(&self.store.owner, id);
    }

    /// Ends leases, republishes ask-only records, sweeps some buckets for expired keys, looks for
    /// expired parts of objects, and continues to release the memory of removed objects. The caller
    /// calls it every few milliseconds while [`Shard::wants_ticks`].
    pub fn tick(&mut self, now: Now) {
        self.store.lag.begin_command();
        self.store.tick(now);
        if !self.store.is_applying {
            self.types.iter_mut().for_each(|of| of.tick(&mut self.store));
            self.sweeps = true;
        }
        self.release_some(now);
        cover_heap(&mut self.store, &mut self.types, now);
    }

    /// Whether [`Shard::tick`] has anything to do.
    pub fn wants_ticks(&self) -> bool {
        self.store.wants_ticks()
    }

    /// Whether a flush is under way, removed objects still hold memory, parts of objects have
    /// expired, or durable changes are still to be shown: the caller then calls
    /// [`Shard::release_some`] in every turn.
    #[inline]
    pub fn wants_release(&self) -> bool {
        wants_room(&self.store)
            || self.sweeps
            || self.store.wants_tending
            || self.store.lag.has_to_show()
    }

    /// Continues a flush, releases some of the memory of removed objects, removes some expired
    /// parts, builds some of the indexes of objects, and shows some of the durable changes: a bounded part of each.
    pub fn release_some(&mut self, now: Now) {
        release_turn(&mut self.store, &mut self.types, now);
        if std::mem::take(&mut self.store.wants_tending) {
            self.store.lag.begin_command();
            for of in self.types.iter_mut() {
                self.store.wants_tending |= of.tend(&mut self.store, now);
            }
        }
        if std::mem::take(&mut self.sweeps) && !self.store.is_applying {
            self.store.lag.begin_command();
            for of in self.types.iter_mut() {
                self.sweeps |= of.sweep(&mut self.store, now);
            }
        }
    }

    /// Compares what is reachable from the table with what the allocator has given out. Call it
    /// only while no upload is under way; it walks everything.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub fn audit(&self) -> Result<(), String> {
        let mut parts = 0;
        for of in self.types.iter() {
            parts += of.audit(&self.store)?;
        }
        audit(&self.store, parts)?;
        audit_weights(&self.store, &self.types)
    }

    /// The digest of all keys, in one turn.
    pub fn digest(&self) -> Digest {
        digest::of_all(&self.store, &self.types)
    }

    /// Continues the digest of all keys for one turn; returns it at its end.
    ///
    /// # Errors
    /// `TryAgain`: something was changed too many times between two turns.
    pub fn digest_turn(&self, read: &mut DigestRead) -> Result<Option<Digest>, Status> {
        read.turn(&self.store, &self.types)
    }

    /// The sequence for which a reply with the digest of all keys waits.
    pub fn digest_wait(&self) -> u64 {
        let last = self.store.last_sequence();
        if last > self.store.durable_sequence() { last } else { 0 }
    }

    /// Computes the digest of a key's value, without its name, in one turn; `None` if there is no
    /// such key.
    pub fn digest_value(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Option<Digest> {
        let slot = self.store.lookup(key, hash, now)?.slot.slot;
        Some(digest::of_value(&self.store, &self.types, slot))
    }
}

/// A reply that waits for the changes on which its command depends.
fn waiting(reply: Reply<'_>, depends_on: Option<DependsOn>) -> Reply<'_> {
    let wait = depends_on.map_or(0, DependsOn::sequence);
    Reply { wait, ..reply }
}

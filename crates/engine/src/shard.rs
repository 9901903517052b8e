//! One shard: a store, and the types of objects in it. It executes commands one
//! after the other (HydraDB 4.1.1, H2, H3).
//!
//! What it keeps true: a change is logged before any reader can see it; a new
//! record is complete before it is reachable; the old record of a key is dead
//! before the new one is reachable, so that no two paths lead to two values.

use crate::evict::Id;
use crate::store::{Download, Now, ShardOptions, ShardStats, Store, Target};
use crate::types::object::{LongRead, On, Turn, Type};
use crate::types::registry;
use crate::types::string::{self, Set};
use remora_arena::{Journal, NoJournal, Owner};
use remora_index::hash::{TableRef, record_value};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_log::Log;
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply, Request};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apply::Progress;
pub use apply::{Applied, ApplyError, Origin};
pub use digest::{Digest, DigestRead};
use room::may_make_object;

/// What a command gives.
#[derive(Debug)]
pub enum Outcome<'a> {
    /// A reply, with its value if it has one.
    Reply(Reply<'a>),
    /// A reply whose value, more than `STREAM_BYTES` long, is the download's
    /// bytes; the reply itself has none.
    Stream(Reply<'a>, Download),
}

/// A shard. See the module's text.
pub struct Shard<J: Journal = NoJournal> {
    store: Store<J>,
    types: Vec<Box<dyn Type<J>>>,
    /// How far other logs are applied, by their numbers.
    applied: BTreeMap<u32, Progress>,
    /// Parts of objects have expired and are still there, as far as is known.
    sweeps: bool,
    /// The value that the last change replied with.
    written_value: Vec<u8>,
}

impl<J: Journal> Shard<J> {
    /// A shard over a fresh, zeroed region; writes the arena's header.
    pub fn new(owner: Owner<J>, options: ShardOptions) -> Self {
        Self {
            store: Store::new(owner, options),
            types: registry(),
            applied: BTreeMap::new(),
            sweeps: false,
            written_value: Vec::new(),
        }
    }

    /// The hash of a key of database 0 in this cluster.
    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.store.hash(Database::ZERO, key)
    }

    /// The hash of a command's key in a database; for one without a key, what
    /// tells its database.
    #[inline(always)]
    pub fn hash_of(&self, database: Database, command: &Command<'_>) -> KeyHash {
        match command.key() {
            Some(key) => self.store.hash(database, key),
            None => KeyHash::without_key(database),
        }
    }

    /// What a reader needs to walk this shard's table, as of now.
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

    /// Counts.
    pub fn stats(&self) -> ShardStats {
        let mut stats = self.store.stats();
        self.types.iter().for_each(|of| of.count(&mut stats));
        stats
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

    /// Executes one command. `hash` is of the command's key, or says the database
    /// of a command without one ([`Shard::hash_of`]).
    /// The reply says for which sequence it waits.
    #[inline]
    pub fn execute(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        if self.store.lags() {
            return self.execute_lagging(command, hash, now);
        }
        self.execute_known(command, hash, now)
    }

    #[cold]
    fn execute_lagging(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        let depends_on = self.store.begin_command();
        if command.key().is_none() {
            self.store.look_at_all();
        }
        waiting(self.execute_known(command, hash, now), depends_on)
    }

    #[inline]
    fn execute_known(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        if let Command::Get { key } = *command {
            // By itself, as it is the most frequent: a frame for all commands is large.
            return self.store.get(key, hash, now);
        }
        if !command.is_write() {
            return self.execute_once(command, hash, now);
        }
        if self.store.is_applying {
            return Reply::status(Status::ReadOnly);
        }
        self.execute_write(command, hash, now)
    }

    fn execute_write(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        if self.wants_room() {
            self.make_room(given_bytes(command), now);
        }
        if self.store.has_dumps() && self.store.is_refused(command, hash) {
            return Reply::status(Status::TryAgain);
        }
        if self.store.policy.is_some() && (self.store.has_objects() || may_make_object(command)) {
            return self.execute_evicting(command, hash, now);
        }
        self.execute_once(command, hash, now)
    }

    fn execute_once(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        match *command {
            Command::Get { key } => self.store.get(key, hash, now),
            Command::Set { key, value, condition, expiry, get } => {
                self.store.set(Set { key, hash, value, condition, expiry, get }, now)
            }
            Command::Del { key } => self.store.del(key, hash, now),
            Command::Exists { key } => self.store.exists(key, hash, now),
            Command::Touch { key } => self.store.touch_key(key, hash, now),
            Command::Incr { key, by } => self.store.incr(key, hash, by, now),
            Command::Expire { key, at_ms, condition } => {
                self.store.expire(key, hash, at_ms, condition, now)
            }
            Command::Ttl { key } => self.store.ttl(key, hash, now),
            Command::Type { key } => self.store.type_of(key, hash, now),
            Command::MultiSet { pairs } => self.store.multi_set(hash.database(), pairs, now),
            Command::Append { key, value } => self.store.append(key, hash, value, now),
            Command::SetRange { key, offset, value } => {
                self.store.set_range(key, hash, offset, value, now)
            }
            Command::GetRange { key, start, end } => {
                self.store.get_range(key, hash, start, end, now)
            }
            Command::SetBit { key, offset, bit } => self.store.set_bit(key, hash, offset, bit, now),
            Command::GetBit { key, offset } => self.store.get_bit(key, hash, offset, now),
            Command::StrLen { key } => self.store.strlen(key, hash, now),
            Command::GetDel { key } => self.store.get_del(key, hash, now),
            Command::GetEx { key, at_ms } => self.store.get_ex(key, hash, at_ms, now),
            Command::Of { key, request } => self.execute_of(On { key, hash, now }, request),
            Command::Digest { key } => self.execute_digest(key, hash, now),
            Command::Encoding { key } => self.encoding(key, hash, now),
            Command::Dump { key, holds } => self.dump((key, hash), holds, now),
            Command::DumpPart { key, dump } => self.dump_part((key, hash), dump, now),
            Command::Load { key, load, step } => {
                match self.load(On { key, hash, now }, load, step) {
                    Ok(number) => Reply::number(number),
                    Err(status) => Reply::status(status),
                }
            }
            Command::Count => Reply::number(self.store.keys_of(hash.database()) as i64),
            Command::Flush => self.flush(Some(hash.database()), now),
            Command::FlushAll => self.flush(None, now),
            Command::Persist { key } => self.store.persist(key, hash, now),
            Command::ExpireTime { key } => self.store.expire_time(key, hash, now),
            Command::Scan { place, count } => self.store.scan(hash.database(), (place, count), now),
            Command::RandomKey { random, place } => {
                self.store.random_key(hash.database(), (random, place), now)
            }
            Command::Transfer { key, to, database, replaces, keeps } => {
                let target = Target { to, database, replaces, keeps };
                self.store.transfer((key, hash), target, now)
            }
            Command::Restore { key, dumped, replaces } => {
                self.store.restore((key, hash), dumped, replaces, now)
            }
            Command::DelDumped { key, dump } => self.store.del_dumped((key, hash), dump, now),
            Command::EndDump { dump, .. } => {
                self.store.end_dump(hash, dump);
                Reply::status(Status::Ok)
            }
        }
    }

    /// Flushes to the end, in one step.
    fn flush(&mut self, only: Option<Database>, now: Now) -> Reply<'static> {
        let flush = self.store.begin_flush(only);
        // Bounded: each turn sweeps some buckets.
        while !self.store.has_flushed(flush) {
            self.release_turn(now);
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

    /// How what a key has is kept, in Redis's words.
    fn encoding(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        let Some(found) = self.store.lookup(key, hash, now) else {
            return Reply::status(Status::NotFound);
        };
        let kind = self.store.kind(found);
        let name = match self.of(kind.of_type()) {
            Some((of, _)) => of.encoding(!kind.is_root()),
            None => string::encoding(record_value(&self.store.owner, found.slot.slot)),
        };
        let touches = self.store.touches(found).map_or(-1, i64::from);
        Reply { value: Some(name.as_bytes()), ..Reply::number(touches) }
    }

    fn of(&mut self, type_id: Kind) -> Option<(&mut (dyn Type<J> + 'static), &mut Store<J>)> {
        let of = self.types.iter_mut().find(|of| of.id() == type_id)?;
        Some((&mut **of, &mut self.store))
    }

    fn execute_of(&mut self, on: On<'_>, request: Request<'_>) -> Reply<'_> {
        let Some(at) = self.types.iter().position(|of| of.id() == request.kind()) else {
            return Reply::status(Status::Malformed);
        };
        if self.store.policy.is_some() && request.is_write() {
            let found = self.store.found(on.key, on.hash);
            self.store.making_room.keep = found.map(|found| found.slot.slot);
        }
        if request.is_write() && !self.cover_heap(on.now) && request.grows() {
            return Reply::status(Status::OutOfMemory);
        }
        self.types[at].execute(&mut self.store, on, request)
    }

    /// What types keep on the heap counts in the shard's memory. False if that is
    /// full.
    fn cover_heap(&mut self, now: Now) -> bool {
        let of_types: u64 = self.types.iter_mut().map(|of| of.heap_bytes()).sum();
        let heap_bytes = of_types + self.store.part_reads.bytes();
        // A copy takes what the original took.
        self.store.cover_heap(heap_bytes, now) || self.store.is_applying
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
        let depends_on = self.store.begin_command();
        let begun = match self.of(request.kind()) {
            Some((of, store)) => of.begin_read(store, On { key, hash, now }, request),
            None => Err(Status::Malformed),
        };
        match begun {
            Ok(read) => Ok(LongRead { hash, ..read }),
            Err(status) => Err(waiting(Reply::status(status), depends_on)),
        }
    }

    /// Begins a FLUSHALL, or a FLUSHDB of `only`, that is answered in turns: by the long read that it gives,
    /// which finds nothing, and ends once everything is dead for readers.
    /// [`Shard::release_some`] carries it out.
    ///
    /// # Errors
    /// The reply: the shard applies a log.
    pub fn begin_flush(&mut self, only: Option<Database>) -> Result<LongRead, Reply<'static>> {
        if self.store.is_applying {
            return Err(Reply::status(Status::ReadOnly));
        }
        self.store.begin_command();
        Ok(LongRead::of_flush(self.store.begin_flush(only)))
    }

    /// Goes on with a long read for one turn of the shard; appends what it finds
    /// to `found`. What it has found waits for [`Shard::wait_of`].
    ///
    /// # Errors
    /// The status to reply with: the object has gone meanwhile.
    pub fn read_turn(
        &self,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        now: Now,
    ) -> Result<Turn, Status> {
        if let Some(flush) = read.flush {
            let (ended, number) = (self.store.has_flushed(flush), flush.keys as i64);
            return Ok(Turn { ended, number, ..Turn::default() });
        }
        let of = self.types.iter().find(|of| of.id() == read.type_id);
        of.ok_or(Status::Malformed)?.read_turn(&self.store, read, found, now)
    }

    /// Leaves the first `most` parts of all that a long read has found; false if
    /// there were fewer.
    pub fn cut(&self, read: &LongRead, found: &mut Vec<u8>, most: usize) -> bool {
        let of = self.types.iter().find(|of| of.id() == read.type_id);
        of.is_some_and(|of| of.cut(found, most))
    }

    /// For which sequence the replies of a long read's last turn wait; 0 for none.
    pub fn wait_of(&self, read: &LongRead) -> u64 {
        self.store.newest_pending(read.hash)
    }

    /// Sequence of the last change.
    pub fn last_sequence(&self) -> u64 {
        self.store.last_sequence()
    }

    /// Sequence up to which changes are as durable as configured.
    pub fn durable_sequence(&self) -> u64 {
        self.store.durable_sequence()
    }

    /// Changes up to this sequence are durable: replies that wait for them may go,
    /// and readers see them, the first of them at once. Of no effect with
    /// durability `memory`.
    pub fn set_durable(&mut self, sequence: u64) {
        self.store.set_durable(sequence);
    }

    /// Takes away what stands twice in all that a long read has found.
    pub fn tidy(&self, read: &LongRead, found: &mut Vec<u8>) {
        if let Some(of) = self.types.iter().find(|of| of.id() == read.type_id) {
            of.tidy(found);
        }
    }

    /// Another thread of the server has read this record: a hint, which may
    /// be late, of use to the eviction policy only.
    pub fn hint_touched(&mut self, id: Id) {
        self.store.hint_touched(id);
    }

    /// Ends leases, republishes ask-only records, sweeps some buckets for expired
    /// keys, looks for expired parts of objects, and goes on with releasing what was
    /// removed. To be called every few milliseconds while [`Shard::wants_ticks`].
    pub fn tick(&mut self, now: Now) {
        self.store.begin_command();
        self.store.tick(now);
        if !self.store.is_applying {
            self.types.iter_mut().for_each(|of| of.tick(&mut self.store));
            self.sweeps = true;
        }
        self.release_some(now);
        self.cover_heap(now);
    }

    /// Whether [`Shard::tick`] has anything to do.
    pub fn wants_ticks(&self) -> bool {
        self.store.wants_ticks()
    }

    /// Whether a flush is under way, objects that were removed still hold memory, parts
    /// of objects have expired, or changes that became durable are still to be shown:
    /// [`Shard::release_some`] is to be called in every turn.
    #[inline]
    pub fn wants_release(&self) -> bool {
        self.wants_room() || self.sweeps || self.store.has_to_show()
    }

    /// Goes on with a flush, releases some of the memory of objects that were
    /// removed, removes some parts that have expired, and shows some of what became
    /// durable: a bounded part.
    pub fn release_some(&mut self, now: Now) {
        self.release_turn(now);
        if std::mem::take(&mut self.sweeps) && !self.store.is_applying {
            self.store.begin_command();
            for of in &mut self.types {
                self.sweeps |= of.sweep(&mut self.store, now);
            }
        }
    }

    /// Compares what the table leads to with what the allocator has given out.
    /// To be called while nothing is uploaded; walks everything.
    ///
    /// # Errors
    /// What does not fit.
    pub fn audit(&self) -> Result<(), String> {
        let mut parts = 0;
        for of in &self.types {
            parts += of.audit(&self.store)?;
        }
        self.store.audit(parts)
    }
}

/// A reply that waits for what its command depends on.
/// Bytes of the key and the value that a command brings.
fn given_bytes(command: &Command<'_>) -> usize {
    let mut scratch = Vec::new();
    let (_, key, value) = command.encode(0, &mut scratch);
    key.len() + value.len()
}

fn waiting(reply: Reply<'_>, depends_on: Option<Arc<AtomicU64>>) -> Reply<'_> {
    let wait = depends_on.map_or(0, |sequence| sequence.load(Ordering::Relaxed));
    Reply { wait, ..reply }
}

mod apply;
mod digest;
#[cfg(test)]
mod kind_tests;
mod large;
mod moves;
mod room;

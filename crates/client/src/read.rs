//! Reading one key: by a cached pointer, else by bucket and record.

use crate::api::{Counts, Got, Path, Via};
use crate::choose::{Way, key_class};
use crate::error::Error;
use crate::pointer_cache::Entry;
use crate::session::Session;
use remora_fabric::Link;
use remora_index::hash::{Found as Record, Lookup, TableRef};
use remora_layout::arena_header::ARENA_HEADER_BYTES;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::READ_RETRIES;
use remora_layout::plant::{Plant, planted};
use remora_layout::record::{Reject, Wanted, verify};
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_walk::remote::{Reads, follow};
use remora_walk::{End, Walk};

/// What reading came to.
pub(crate) enum Reading {
    /// The value's range in the landing memory, after this many retries.
    Value { from: usize, bytes: usize, retries: u32 },
    /// There is no usable pointer.
    NoPointer,
    /// Only the owner can say.
    Ask,
}

/// A value that was found, and where.
pub(crate) struct Found {
    pub place: Place,
    pub via: Via,
    pub counts: Counts,
}

pub(crate) enum Place {
    /// In the landing memory.
    Landed { from: usize, bytes: usize },
    /// In the reply; `None`: the key does not exist.
    Reply(Option<(usize, usize)>),
}

impl Session {
    /// The value of a key.
    ///
    /// # Errors
    /// See [`Error`].
    #[inline]
    pub fn get(&mut self, key: &[u8], path: Path) -> Result<Got<'_>, Error> {
        self.check()?;
        self.send_gathered()?;
        let cost = Counts { operations: 1, ..Counts::default() };
        if path == Path::Ask {
            let begun = self.begin_given(Way::Ask)?;
            let found = self.get_asked(key, path, cost)?;
            self.end_given(begun, found.via)?;
            return Ok(self.got(found));
        }
        let (hash, shard) = self.route(key)?;
        if !self.may_read(shard) {
            let found = self.get_asked(key, path, Counts { behind_writes: 1, ..cost })?;
            return Ok(self.got(found));
        }
        let entry = self.find_pointer(hash, shard);
        let class = if entry.is_some() { key_class::CACHED } else { key_class::COLD };
        let begun = self.begin_key(path, class)?;
        let found = match begun.way {
            Way::Ask => {
                let cost = Counts { hits: entry.is_some() as u64, ..cost };
                self.get_asked(key, path, cost)?
            }
            Way::Read => self.get_read(key, hash, shard, entry, path, cost)?,
        };
        self.end_key(begun, class, &found)?;
        Ok(self.got(found))
    }

    /// The value of a key, by READs as far as they go.
    #[inline(always)]
    fn get_read(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        shard: usize,
        entry: Option<Entry>,
        path: Path,
        mut cost: Counts,
    ) -> Result<Found, Error> {
        let mut reading = match entry {
            Some(entry) => self.read_cached(key, hash, shard, entry, path, &mut cost)?,
            None => Reading::NoPointer,
        };
        // Who may choose asks after a READ in vain: that brings a pointer
        // with a lease.
        if matches!(reading, Reading::NoPointer) && (path == Path::Read || entry.is_none()) {
            reading = self.read_cold(key, hash, shard, &mut cost)?;
            if planted(Plant::ConcludeAbsence) && !matches!(reading, Reading::Value { .. }) {
                return Ok(Found { place: Place::Reply(None), via: Via::Read, counts: cost });
            }
        }
        let Reading::Value { from, bytes, retries } = reading else {
            return self.get_asked(key, path, cost);
        };
        cost.read = 1;
        self.totals.add(&cost);
        // A pointer that was stale was a READ in vain too.
        let via = Via::read_after(retries + cost.stale as u32);
        Ok(Found { place: Place::Landed { from, bytes }, via, counts: cost })
    }

    /// What was found, as the caller sees it.
    #[inline(always)]
    pub(crate) fn got(&self, found: Found) -> Got<'_> {
        let value = match found.place {
            Place::Landed { from, bytes } => Some(self.link.landed(from, bytes)),
            Place::Reply(range) => range.map(|(from, to)| &self.reply[from..to]),
        };
        Got { value, via: found.via, counts: found.counts }
    }

    /// Asks for a value after reading has cost `cost`. One that no frame
    /// carries is read by the pointer that came instead, or comes through the
    /// buffer.
    pub(crate) fn get_asked(
        &mut self,
        key: &[u8],
        path: Path,
        mut cost: Counts,
    ) -> Result<Found, Error> {
        let before = cost.round_trips;
        let command = Command::Get { key };
        let answer = match self.ask(&command) {
            Err(Error::Refused(Status::NeedsBuffer)) => {
                let bytes = self.needed_bytes;
                let (hash, shard) = self.route(key)?;
                if path != Path::Ask
                    && self.may_read(shard)
                    && let Some(entry) = self.find_pointer(hash, shard)
                    && let Reading::Value { from, bytes, retries } =
                        self.read_cached(key, hash, shard, entry, Path::Read, &mut cost)?
                {
                    self.totals.add(&Counts { operations: 0, ..cost });
                    cost.asked = 1;
                    let via = Via::ReadAfter(retries + 1);
                    return Ok(Found { place: Place::Landed { from, bytes }, via, counts: cost });
                }
                self.ask_by_buffer(&command, bytes)?
            }
            answer => answer?,
        };
        // The request has been counted; what reading cost comes on top.
        let wasted = Counts { operations: 0, ..cost };
        self.totals.add(&wasted);
        let mut counts = answer.counts;
        counts.add(&wasted);
        let via = if before == 0 { Via::Asked } else { Via::AskedAfterRead };
        Ok(Found { place: Place::Reply(answer.value), via, counts })
    }

    /// One READ through the cached pointer (H19). What it fetched counts only
    /// if lease and reading right still held when it had completed.
    #[inline(always)]
    fn read_cached(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        shard: usize,
        entry: Entry,
        path: Path,
        cost: &mut Counts,
    ) -> Result<Reading, Error> {
        let before_ns = self.clock_ns;
        cost.hits = 1;
        if path == Path::Choose && entry.wants_renewal(before_ns) {
            cost.renewals = 1;
            return Ok(Reading::Ask);
        }
        let pointer = entry.pointer(self.shards[shard].table.region);
        let wanted = Wanted { kind: Kind::STRING, database: hash.database() };
        for retries in 0..READ_RETRIES + 1 {
            self.fetch(shard as u32, pointer.offset(), pointer.length as usize)?;
            cost.round_trips += 1;
            cost.bytes += pointer.length as u64;
            cost.nodes += 1;
            let now_ns = self.now()?;
            if !self.right.holds(now_ns) {
                cost.right_lapsed = 1;
                return Ok(Reading::Ask);
            }
            if now_ns >= entry.lease_end_ns() {
                cost.lease_expired = 1;
                self.cache.forget_expired(hash, pointer, entry.lease_end_ns());
                return Ok(Reading::NoPointer);
            }
            let bytes = self.link.landed(0, pointer.length as usize);
            match verify(
                bytes,
                self.shards[shard].table.secret,
                pointer.region,
                pointer.slot,
                Some(pointer.generation),
                wanted,
                key,
            ) {
                Ok(found) if self.right.may_have_expired(found.mutable.expires_at_ms, now_ns) => {
                    break;
                }
                Ok(found) => {
                    let bytes = found.value.len();
                    let from = found.pointer.length as usize - bytes;
                    return Ok(Reading::Value { from, bytes, retries });
                }
                Err(Reject::Torn) => cost.retries += 1,
                Err(Reject::Pending | Reject::AskOnly) => break,
                Err(Reject::OtherKind) => {
                    // Whole, so it never becomes a string; the server says what it is.
                    self.cache.forget_dead(hash, pointer);
                    break;
                }
                Err(Reject::Dead | Reject::OtherKey) => {
                    // An invalid hit (H23).
                    cost.stale = 1;
                    self.cache.forget_dead(hash, pointer);
                    return Ok(Reading::NoPointer);
                }
            }
        }
        cost.undecided = 1;
        Ok(Reading::Ask)
    }

    /// Fetches the header page of a shard's arena: its table has grown. A page
    /// that was fetched while it changed leaves the view as it was.
    pub(crate) fn refresh_table(&mut self, shard: usize, cost: &mut Counts) -> Result<(), Error> {
        let table = &self.shards[shard].table;
        let (region, region_bytes) = (table.region, table.region_bytes);
        self.fetch(shard as u32, 0, ARENA_HEADER_BYTES)?;
        cost.round_trips += 1;
        cost.bytes += ARENA_HEADER_BYTES as u64;
        let page = self.link.landed(0, ARENA_HEADER_BYTES);
        if let Some(newer) = TableRef::parse(region, region_bytes, page) {
            self.shards[shard].table = newer;
        }
        Ok(())
    }

    /// Bucket, then record: the same walk that the server's own threads run.
    fn read_cold(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        shard: usize,
        cost: &mut Counts,
    ) -> Result<Reading, Error> {
        let table = &self.shards[shard].table;
        let mut lookup = Lookup::begin(key, hash, Kind::STRING, table);
        // Bounded: a walk begins again a bounded number of times.
        let found = loop {
            match follow(&mut lookup, shard as u32, self, cost)? {
                End::Found(found) => break Some(found),
                End::Ask(_) => break None,
                End::Restart | End::Stale | End::Beyond => {
                    self.refresh_table(shard, cost)?;
                    if lookup.restart(&self.shards[shard].table).is_err() {
                        break None;
                    }
                }
            }
        };
        let retries = lookup.retries();
        cost.retries += retries as u64;
        let Some(Record { pointer, mutable, value_bytes, .. }) = found else {
            cost.undecided = 1;
            return Ok(Reading::Ask);
        };
        let now_ns = self.now()?;
        if !self.right.holds(now_ns) {
            cost.right_lapsed = 1;
            return Ok(Reading::Ask);
        }
        if self.right.may_have_expired(mutable.expires_at_ms, now_ns) {
            cost.undecided = 1;
            return Ok(Reading::Ask);
        }
        self.remember((hash, shard), pointer, 0, now_ns);
        let from = pointer.length as usize - value_bytes;
        Ok(Reading::Value { from, bytes: value_bytes, retries })
    }
}

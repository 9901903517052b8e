//! Reading one key: by a cached pointer, else by bucket and record.

use crate::choose::{Route, key_class};
use crate::core::Core;
use crate::counts::Counts;
use crate::directory::Directory;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::found::{Found, FoundAt, Got, Landed, Reading};
use crate::large::ask_by_buffer;
use crate::path::{Path, ServedBy};
use crate::pointer_cache::Entry;
use remora_arena::class_for;
use remora_fabric::Link;
use remora_index::hash::{Found as Record, Lookup, TableRef};
use remora_layout::arena_header::ARENA_HEADER_BYTES;
use remora_layout::bucket::BucketSlot;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::READ_RETRIES;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{Reject, Wanted, verify};
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_walk::remote::{Reads, follow};
use remora_walk::{End, Walk};

/// The value of a key; errors are converted where they arise.
#[inline(always)]
pub(crate) fn get<'c, E: From<Error>>(
    core: &'c mut Core,
    key: &[u8],
    path: Path,
) -> Result<Got<'c>, E> {
    core.asker.ready()?;
    let cost = Counts { operations: 1, ..Counts::default() };
    if path == Path::Ask {
        let timing = core.router.begin_given(&mut core.asker.endpoint, Route::Ask)?;
        let found = get_asked(core, key, path, cost)?;
        core.router.end_given(&mut core.asker.endpoint, timing, found.served_by)?;
        return Ok(core.got(found));
    }
    let (hash, shard) = core.directory.locate(key)?;
    if !core.asker.may_read(shard) {
        let found = get_asked(core, key, path, Counts { behind_writes: 1, ..cost })?;
        return Ok(core.got(found));
    }
    let entry = core.directory.find_pointer(hash, shard);
    let class = if entry.is_some() { key_class::CACHED } else { key_class::COLD };
    let timing = core.router.begin_key(&mut core.asker.endpoint, path, class)?;
    let found = match timing.route {
        Route::Ask => {
            let cost = Counts { hits: entry.is_some() as u64, ..cost };
            get_asked(core, key, path, cost)?
        }
        Route::Read => {
            let mut cost = cost;
            if let Some(landed) = get_read(core, key, (hash, shard), entry, path, &mut cost)? {
                let Core { router, asker, .. } = &mut *core;
                router.end_key(&mut asker.endpoint, timing, class, landed.served_by, &cost)?;
                return Ok(core.got_landed(landed, cost));
            }
            get_asked(core, key, path, cost)?
        }
    };
    let Core { router, asker, .. } = &mut *core;
    router.end_key(&mut asker.endpoint, timing, class, found.served_by, &found.counts)?;
    Ok(core.got(found))
}

/// The value of a key by READs; `None` if the server has to be asked.
#[inline(always)]
fn get_read(
    core: &mut Core,
    key: &[u8],
    place: (KeyHash, usize),
    entry: Option<Entry>,
    path: Path,
    cost: &mut Counts,
) -> Result<Option<Landed>, Error> {
    let Core { asker, directory, .. } = &mut *core;
    let endpoint = &mut asker.endpoint;
    let mut reading = match entry {
        Some(entry) => read_cached(endpoint, directory, key, place, entry, path, cost)?,
        None => Reading::NoPointer,
    };
    // A session that may choose asks after a READ without a result: the reply brings a pointer with
    // a lease.
    if matches!(reading, Reading::NoPointer) && (path == Path::Read || entry.is_none()) {
        reading = read_cold(endpoint, directory, key, place, cost)?;
    }
    let Reading::Value { from, bytes, retries } = reading else { return Ok(None) };
    core.asker.endpoint.staleness.conclude_reads();
    cost.read = 1;
    core.meter.add(cost);
    // A READ through a stale pointer also had no result.
    let served_by = ServedBy::read_after(retries + cost.stale as u32);
    Ok(Some(Landed { from, bytes, served_by }))
}

/// Asks for a value after reading has cost `cost`. If the value does not fit a frame, it reads the
/// value by the pointer in the reply instead, or gets it through the buffer.
pub(crate) fn get_asked(
    core: &mut Core,
    key: &[u8],
    path: Path,
    mut cost: Counts,
) -> Result<Found, Error> {
    let before = cost.round_trips;
    let command = Command::Get { key };
    let answer = match core.ask(&command) {
        Err(Error::Refused(Status::NeedsBuffer)) => {
            let bytes = core.needed_bytes;
            let Core { asker, directory, meter, .. } = &mut *core;
            let place = directory.locate(key)?;
            if path != Path::Ask
                && asker.may_read(place.1)
                && let Some(entry) = directory.find_pointer(place.0, place.1)
                && let Reading::Value { from, bytes, retries } = read_cached(
                    &mut asker.endpoint,
                    directory,
                    key,
                    place,
                    entry,
                    Path::Read,
                    &mut cost,
                )?
            {
                asker.endpoint.staleness.conclude_reads();
                meter.add(&Counts { operations: 0, ..cost });
                cost.asked = 1;
                let served_by = ServedBy::ReadAfter(retries + 1);
                return Ok(Found { at: FoundAt::Landed { from, bytes }, served_by, counts: cost });
            }
            ask_by_buffer(core, &command, bytes)?
        }
        answer => answer?,
    };
    // The request has been counted; this adds the cost of reading.
    let wasted = Counts { operations: 0, ..cost };
    core.meter.add(&wasted);
    let mut counts = answer.counts;
    counts.add(&wasted);
    let served_by = ServedBy::asked_after(before);
    Ok(Found { at: FoundAt::Reply(answer.value), served_by, counts })
}

/// One READ through the cached pointer (H19). Its result counts only if pointer lease and read
/// lease still held when it had completed.
#[inline(always)]
fn read_cached(
    endpoint: &mut Endpoint,
    directory: &mut Directory,
    key: &[u8],
    (hash, shard): (KeyHash, usize),
    entry: Entry,
    path: Path,
    cost: &mut Counts,
) -> Result<Reading, Error> {
    let before_ns = endpoint.clock_ns;
    cost.hits = 1;
    if path == Path::Choose && entry.wants_renewal(before_ns) {
        cost.renewals = 1;
        return Ok(Reading::Ask);
    }
    let pointer = entry.pointer(directory.shards[shard].table.region);
    let wanted = Wanted { kind: Kind::STRING, database: hash.database() };
    for retries in 0..READ_RETRIES + 1 {
        endpoint.fetch(shard as u32, pointer.offset(), pointer.length as usize)?;
        cost.round_trips += 1;
        cost.bytes += pointer.length as u64;
        cost.nodes += 1;
        let now_ns = endpoint.now()?;
        if !endpoint.may_believe(now_ns) {
            cost.read_lease_lapsed = 1;
            return Ok(Reading::Ask);
        }
        if now_ns >= entry.lease_end_ns() {
            cost.lease_expired = 1;
            directory.forget_expired(hash, pointer, entry.lease_end_ns());
            return Ok(Reading::NoPointer);
        }
        let bytes = endpoint.link.landed(0, pointer.length as usize);
        match verify(
            bytes,
            directory.shards[shard].table.secret,
            pointer.region,
            pointer.slot,
            Some(pointer.generation),
            wanted,
            key,
        ) {
            Ok(found) if endpoint.lease.may_have_expired(found.mutable.expires_at_ms, now_ns) => {
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
                // A whole object never becomes a string; the server knows its type.
                directory.forget_dead(hash, pointer);
                break;
            }
            Err(Reject::Dead | Reject::OtherKey) => {
                // An invalid hit (H23).
                cost.stale = 1;
                directory.forget_dead(hash, pointer);
                return Ok(Reading::NoPointer);
            }
        }
    }
    cost.undecided = 1;
    Ok(Reading::Ask)
}

/// Fetches the header page of a shard's arena after its table has grown. A page that changed during
/// the fetch leaves the view as it was.
pub(crate) fn refresh_table(
    endpoint: &mut Endpoint,
    directory: &mut Directory,
    shard: usize,
    cost: &mut Counts,
) -> Result<(), Error> {
    let table = &directory.shards[shard].table;
    let (region, region_bytes) = (table.region, table.region_bytes);
    endpoint.fetch(shard as u32, 0, ARENA_HEADER_BYTES)?;
    cost.round_trips += 1;
    cost.bytes += ARENA_HEADER_BYTES as u64;
    let page = endpoint.link.landed(0, ARENA_HEADER_BYTES);
    if let Some(newer) = TableRef::parse(region, region_bytes, page) {
        directory.shards[shard].table = newer;
    }
    Ok(())
}

/// Finds the record of a key's object of this kind, by bucket and record: the same walk that the
/// server's own threads run. `None` if only the owner knows. Also returns how often something was read
/// again.
#[inline]
pub(crate) fn find_record(
    (endpoint, directory): (&mut Endpoint, &mut Directory),
    (key, hash, shard): (&[u8], KeyHash, usize),
    kind: Kind,
    cost: &mut Counts,
) -> Result<(Option<Record>, u32), Error> {
    let table = &directory.shards[shard].table;
    let mut lookup = Lookup::begin(key, hash, kind, table);
    let found = follow_lookup((endpoint, directory), &mut lookup, shard, cost)?;
    Ok((found, lookup.retries()))
}

/// The word at which a lookup begins that expects the record of a key with this hash at a known place; 0 if
/// there can be none.
pub(crate) fn hint_of(pointer: RemotePointer, hash: KeyHash) -> u64 {
    let RemotePointer { slot, length, generation, .. } = pointer;
    let word = |class| BucketSlot {
        slot,
        class,
        generation_low: generation as u8,
        signature: hash.signature(),
    };
    class_for(length as usize).map_or(0, |class| word(class).to_word())
}

/// Carries a lookup out that has begun in this shard. `None` if only the owner knows.
#[inline]
pub(crate) fn follow_lookup(
    (endpoint, directory): (&mut Endpoint, &mut Directory),
    lookup: &mut Lookup<'_>,
    shard: usize,
    cost: &mut Counts,
) -> Result<Option<Record>, Error> {
    // Bounded: a walk begins again a bounded number of times.
    let found = loop {
        match follow(lookup, shard as u32, endpoint, cost)? {
            End::Found(found) => break Some(found),
            End::Ask(_) => break None,
            End::Restart | End::Stale | End::Beyond => {
                refresh_table(endpoint, directory, shard, cost)?;
                if lookup.restart(&directory.shards[shard].table).is_err() {
                    break None;
                }
            }
        }
    };
    cost.retries += u64::from(lookup.retries());
    Ok(found)
}

/// Why bytes that have just landed may not count, although they pass their checks.
pub(crate) enum Doubt {
    /// The read lease does not hold.
    NoLease,
    /// The object may have expired.
    Expired,
}

/// Whether the record of an object with this expiry, which has just landed, counts.
#[inline]
pub(crate) fn doubt(
    endpoint: &mut Endpoint,
    expires_at_ms: u64,
    cost: &mut Counts,
) -> Result<Option<Doubt>, Error> {
    let now_ns = endpoint.now()?;
    if !endpoint.may_believe(now_ns) {
        cost.read_lease_lapsed = 1;
        return Ok(Some(Doubt::NoLease));
    }
    let may_have_expired = endpoint.lease.may_have_expired(expires_at_ms, now_ns);
    Ok(may_have_expired.then_some(Doubt::Expired))
}

/// A value by bucket and record.
fn read_cold(
    endpoint: &mut Endpoint,
    directory: &mut Directory,
    key: &[u8],
    (hash, shard): (KeyHash, usize),
    cost: &mut Counts,
) -> Result<Reading, Error> {
    let at = (key, hash, shard);
    let (found, retries) = find_record((endpoint, directory), at, Kind::STRING, cost)?;
    let Some(Record { pointer, mutable, value_bytes, .. }) = found else {
        cost.undecided = 1;
        return Ok(Reading::Ask);
    };
    let now_ns = endpoint.now()?;
    if !endpoint.may_believe(now_ns) {
        cost.read_lease_lapsed = 1;
        return Ok(Reading::Ask);
    }
    if endpoint.lease.may_have_expired(mutable.expires_at_ms, now_ns) {
        cost.undecided = 1;
        return Ok(Reading::Ask);
    }
    directory.remember((hash, shard), pointer, 0, now_ns);
    let from = pointer.length as usize - value_bytes;
    Ok(Reading::Value { from, bytes: value_bytes, retries })
}

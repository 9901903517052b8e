//! Reads a range: of the record that holds the whole list, or by the walk over its chunks.

use super::{Held, OpenList};
use crate::counts::Counts;
use crate::directory::Directory;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::read::{Doubt, doubt, find_record};
use remora_fabric::Link;
use remora_index::chain::{ChainRef, Range};
use remora_index::hash::Found;
use remora_layout::arena_header::{durable_of, word};
use remora_layout::chain::{ChainState, encoded, join_hints};
use remora_layout::kind::Kind;
use remora_layout::limits::{READ_RETRIES, WORD_BYTES};
use remora_layout::link::Linked;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{RECORD_HEADER_BYTES, Reject, Wanted, verify};
use remora_protocol::list::range;
use remora_walk::remote::{Reads, Tally, follow_rooted};
use remora_walk::{End, Walk};

/// The result of READs of the present list.
enum Tried {
    /// The elements, encoded, one behind the other, and how many the list has.
    Found(Vec<u8>, u64),
    /// Only the owner knows.
    Ask,
    /// The list may have expired.
    Expired,
    /// The known list has gone.
    Gone,
    /// The list has changed: its present state.
    Changed(ChainState),
}

impl From<Doubt> for Tried {
    fn from(doubt: Doubt) -> Self {
        match doubt {
            Doubt::NoLease => Self::Ask,
            Doubt::Expired => Self::Expired,
        }
    }
}

impl OpenList {
    /// Reads a range, by the known state of its list, otherwise from the bucket on. `None` if only
    /// the owner knows, or if it takes more chunks than that.
    pub(super) fn read_range(
        &mut self,
        (endpoint, directory): (&mut Endpoint, &mut Directory),
        (start, stop): (i64, i64),
        most_chunks: u64,
        cost: &mut Counts,
    ) -> Result<Option<(Vec<u8>, u64)>, Error> {
        cost.hits = u64::from(!matches!(self.held, Held::Unknown));
        // Bounded: each turn forgets something that was known, or ends.
        for _ in 0..=READ_RETRIES {
            let tried = match self.held {
                Held::Unknown => match self.find(endpoint, directory, cost)? {
                    true => continue,
                    false => break,
                },
                Held::Whole(pointer) => {
                    self.read_whole((endpoint, directory), pointer, (start, stop), cost)?
                }
                Held::Chain(chain) => {
                    let range = (start, stop, most_chunks);
                    self.walk((endpoint, directory), chain, range, cost)?
                }
            };
            match tried {
                Tried::Found(entries, total) => return Ok(Some((entries, total))),
                Tried::Ask | Tried::Changed(_) => break,
                Tried::Expired => {
                    self.events.expired += 1;
                    break;
                }
                Tried::Gone => {
                    self.events.gone += 1;
                    self.held = Held::Unknown;
                }
            }
        }
        cost.undecided = 1;
        Ok(None)
    }

    /// A list that lies whole in the record that a pointer names.
    fn read_whole(
        &self,
        (endpoint, directory): (&mut Endpoint, &Directory),
        pointer: RemotePointer,
        (start, stop): (i64, i64),
        cost: &mut Counts,
    ) -> Result<Tried, Error> {
        for _ in 0..=READ_RETRIES {
            let length = pointer.length as usize;
            endpoint.fetch(self.shard as u32, pointer.offset(), length)?;
            cost.fetched(1, 1, length as u64);
            let landed = endpoint.link.landed(0, length);
            let table = &directory.shards[self.shard].table;
            let (secret, region) = (table.secret, table.region);
            let wanted = Wanted { kind: Kind::LIST.whole(), database: self.hash.database() };
            let generation = Some(pointer.generation);
            match verify(landed, secret, region, pointer.slot, generation, wanted, &self.key) {
                Ok(found) => {
                    let expires_at_ms = found.mutable.expires_at_ms;
                    let raw = landed.get(RECORD_HEADER_BYTES + self.key.len()..).unwrap_or(&[]);
                    let linked = match found.kind.has_links() {
                        true => Linked::of(&raw[..length - RECORD_HEADER_BYTES - self.key.len()]),
                        false => None,
                    };
                    let joined = linked.map(join_hints);
                    let all = encoded(joined.as_deref().unwrap_or(found.value));
                    let total = all.clone().count() as u64;
                    let (from, count) = range(total, start, stop).unwrap_or((0, 0));
                    let some = all.skip(from as usize).take(count as usize);
                    let entries = some.flatten().copied().collect();
                    let doubt = doubt(endpoint, expires_at_ms, cost)?;
                    return Ok(doubt.map_or(Tried::Found(entries, total), Tried::from));
                }
                Err(Reject::Torn) => cost.retries += 1,
                Err(Reject::Pending | Reject::AskOnly) => break,
                Err(Reject::Dead | Reject::OtherKey | Reject::OtherKind) => {
                    cost.stale += 1;
                    return Ok(Tried::Gone);
                }
            }
        }
        Ok(Tried::Ask)
    }

    /// A list of chunks. Each chunk is read with the root record behind it, in one batch.
    fn walk(
        &mut self,
        (endpoint, directory): (&mut Endpoint, &mut Directory),
        mut chain: ChainRef,
        (start, stop, most_chunks): (i64, i64, u64),
        cost: &mut Counts,
    ) -> Result<Tried, Error> {
        let region = self.shard as u32;
        let mut walk = Range::begin(chain, 0, 0).within(most_chunks);
        // Bounded: a walk begins again a bounded number of times.
        loop {
            if !self.is_durable((endpoint, directory), &chain.state, cost)? {
                return Ok(Tried::Ask);
            }
            let Some((from, count)) = range(chain.state.length, start, stop) else {
                return self.confirm_empty(endpoint, &chain, cost);
            };
            walk.aim(from, count);
            let root = chain.root_range();
            let followed = follow_rooted(
                &mut walk,
                (region, root),
                endpoint,
                cost,
                |endpoint: &mut Endpoint, at, cost| {
                    check_root(endpoint, &chain, (at, root.1), cost)
                },
            )?;
            let state = match followed {
                Ok(End::Found(())) => {
                    cost.retries += u64::from(walk.retries());
                    self.held = Held::Chain(chain);
                    let entries = walk.found().flatten().copied().collect();
                    return Ok(Tried::Found(entries, chain.state.length));
                }
                Ok(End::Ask(_)) => return Ok(Tried::Ask),
                // Under the state that it knows it met no chunk of the list.
                Ok(End::Restart | End::Stale | End::Beyond) => chain.state,
                Err(Tried::Changed(state)) => {
                    self.events.changed += 1;
                    state
                }
                Err(tried) => return Ok(tried),
            };
            chain.state = state;
            self.held = Held::Chain(chain);
            if walk.restart(&state).is_err() {
                return Ok(Tried::Ask);
            }
        }
    }

    /// A range that is empty by the state that is known: it counts if that is the present one.
    fn confirm_empty(
        &mut self,
        endpoint: &mut Endpoint,
        chain: &ChainRef,
        cost: &mut Counts,
    ) -> Result<Tried, Error> {
        let (offset, bytes) = chain.root_range();
        endpoint.fetch(self.shard as u32, offset, bytes)?;
        cost.fetched(1, 1, bytes as u64);
        Ok(match check_root(endpoint, chain, (0, bytes), cost)? {
            None => Tried::Found(Vec::new(), chain.state.length),
            Some(Tried::Changed(state)) => {
                let mut chain = *chain;
                chain.state = state;
                self.held = Held::Chain(chain);
                Tried::Ask
            }
            Some(tried) => tried,
        })
    }

    /// Whether the last change of a list is as durable as configured.
    fn is_durable(
        &self,
        (endpoint, directory): (&mut Endpoint, &mut Directory),
        state: &ChainState,
        cost: &mut Counts,
    ) -> Result<bool, Error> {
        let known = &mut directory.shards[self.shard].durable;
        if state.changed_at > *known {
            let offset = (word::DURABLE * WORD_BYTES) as u64;
            endpoint.fetch(self.shard as u32, offset, WORD_BYTES)?;
            cost.fetched(1, 0, WORD_BYTES as u64);
            let bytes = endpoint.link.landed(0, WORD_BYTES);
            let word = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            *known = durable_of(word).max(*known);
        }
        Ok(state.changed_at <= *known)
    }

    /// Finds a list's record by its key. False if only the owner knows.
    fn find(
        &mut self,
        endpoint: &mut Endpoint,
        directory: &mut Directory,
        cost: &mut Counts,
    ) -> Result<bool, Error> {
        let at = (&*self.key, self.hash, self.shard);
        let (found, _) = find_record((endpoint, directory), at, Kind::LIST, cost)?;
        let held = found.and_then(|found| held_of(endpoint, directory, &found, self.shard));
        let is_found = held.is_some();
        self.held = held.unwrap_or(Held::Unknown);
        Ok(is_found)
    }
}

/// The state of a list from its record, which has just landed. `None` if it was fetched during a
/// change.
fn held_of(
    endpoint: &Endpoint,
    directory: &Directory,
    found: &Found,
    shard: usize,
) -> Option<Held> {
    if !found.kind.is_root() {
        return Some(Held::Whole(found.pointer));
    }
    // The record's class, with the state behind the key, has landed.
    let record = endpoint.link.landed(0, found.fetched_bytes);
    let table = &directory.shards[shard].table;
    ChainRef::of_record(table, &found.record(record), record).map(Held::Chain)
}

/// Whether the root record, which landed at `at`, validates the chunk that was read before it.
fn check_root(
    endpoint: &mut Endpoint,
    chain: &ChainRef,
    (at, bytes): (usize, usize),
    cost: &mut Counts,
) -> Result<Option<Tried>, Error> {
    match chain.check_root(endpoint.link.landed(at, bytes)) {
        Ok((mutable, state)) => {
            let doubt = doubt(endpoint, mutable.expires_at_ms, cost)?.map(Tried::from);
            Ok(doubt.or_else(|| (state != chain.state).then_some(Tried::Changed(state))))
        }
        // It is being changed: the next batch finds another state.
        Err(Reject::Torn) => {
            cost.retries += 1;
            Ok(Some(Tried::Changed(chain.state)))
        }
        Err(Reject::Pending | Reject::AskOnly) => Ok(Some(Tried::Ask)),
        Err(_) => {
            cost.stale += 1;
            Ok(Some(Tried::Gone))
        }
    }
}

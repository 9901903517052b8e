//! Reading many keys at once: one batch of READs for all cached pointers,
//! then walks in step for the rest, then one pipelined round of asking.
//!
//! A batch is linearizable for each key only, not as a whole.

use crate::asker::PIPELINE_CHUNK;
use crate::choose::{Decision, Route, Spent, key_class};
use crate::core::Core;
use crate::counts::Counts;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::found::Each;
use crate::in_flight::Ticket;
use crate::in_step::{Walking, walk_in_step};
use crate::path::{Path, ServedBy};
use crate::read::get_asked;
use remora_fabric::{Link, RemoteAddress, Work};
use remora_index::hash::Lookup;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{Reject, Wanted, verify};
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_walk::Walk;
use remora_walk::remote::Reads;

/// Working memory of batches, kept between them.
#[derive(Default)]
pub(crate) struct Batch {
    routes: Vec<(KeyHash, usize)>,
    planned: Vec<Planned>,
    rest: Vec<Left>,
    asks: Vec<Left>,
    groups: [Group; 2],
    works: Vec<Work<'static>>,
}

/// The keys of a batch with a pointer, or those without one, and the decision for them.
#[derive(Clone, Copy, Default)]
struct Group {
    keys: usize,
    decision: Option<Decision>,
}

impl Group {
    /// The route of the next key of the group.
    fn route(&mut self, core: &mut Core, path: Path, class: usize) -> Route {
        self.keys += 1;
        if path == Path::Read {
            return Route::Read;
        }
        let decision = *self.decision.get_or_insert_with(|| {
            let Core { router, asker, .. } = core;
            let (load, now_ns) = (asker.endpoint.lease.load(), asker.endpoint.clock_ns);
            router.chooser.decide_key(key_class::IN_BATCH + class, load, now_ns)
        });
        decision.route
    }

    /// Whether the chooser learns from these keys' cost, if they took this route.
    fn is_learned(&self, route: Route) -> bool {
        self.decision.is_some_and(|decision| decision.is_measured && decision.route == route)
    }
}

/// Keys of a group that were read.
struct GroupRead {
    keys: usize,
    class: usize,
    elapsed_ns: u64,
    /// How many of them the client has to ask for after all.
    in_vain: usize,
}

/// A key left for the next way of finding it.
#[derive(Clone, Copy)]
struct Left {
    key: usize,
    /// READs for it without a result.
    tries: u32,
}

/// One READ through a cached pointer.
struct Planned {
    key: usize,
    pointer: RemotePointer,
    lease_end_ns: u64,
    landing: usize,
}

impl Batch {
    /// Fetches the values of several keys; calls `each(index, value, served_by)` once for each, in
    /// any order.
    pub fn get(
        &mut self,
        core: &mut Core,
        keys: &[&[u8]],
        path: Path,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        self.asks.clear();
        self.routes.clear();
        self.rest.clear();
        if path == Path::Ask {
            self.asks.extend((0..keys.len()).map(|key| Left { key, tries: 0 }));
            return ask_many(core, &self.asks, keys, path, each);
        }
        // Keys of a batch often lie apart; three prefetches hide one another's misses: the keys,
        // the cache's entries, the records.
        for first in keys.iter().filter_map(|key| key.first()) {
            remora_arena::prefetch(first);
        }
        for key in keys {
            let route = core.directory.locate(key)?;
            core.directory.prefetch(route.0);
            self.routes.push(route);
        }
        let mut cost = Counts::default();
        self.plan(core, path, &mut cost);
        let [cached, cold] = self.groups;
        let asked_only = self.asks.len();
        let began_ns = batch_clock(&mut core.asker.endpoint, &self.groups)?;
        let read = self.read_planned(core, keys, path, &mut cost, each);
        core.meter.add(&cost);
        read?;
        let in_vain = self.asks.len() - asked_only;
        let cached_read =
            batch_read(&mut core.asker.endpoint, cached, key_class::CACHED, began_ns, in_vain)?;
        let mut cold_read = None;
        if !self.rest.is_empty() {
            let before = self.asks.len();
            let began_ns = batch_clock(&mut core.asker.endpoint, &self.groups)?;
            self.walk_many(core, keys, each)?;
            let in_vain = self.asks.len() - before;
            cold_read =
                batch_read(&mut core.asker.endpoint, cold, key_class::COLD, began_ns, in_vain)?;
        }
        let began_ns = batch_clock(&mut core.asker.endpoint, &self.groups)?;
        ask_many(core, &self.asks, keys, path, each)?;
        for read in [cached_read, cold_read].into_iter().flatten() {
            learn_batch_read(core, &read, began_ns, self.asks.len())?;
        }
        // Only if all asked keys belong to one group.
        for (group, class) in [(cached, key_class::CACHED), (cold, key_class::COLD)] {
            if group.keys == asked_only && self.asks.len() == asked_only {
                learn_batch_asked(core, group, class, began_ns)?;
            }
        }
        Ok(())
    }

    /// Sorts the keys into READs by cached pointers, walks, and asks.
    fn plan(&mut self, core: &mut Core, path: Path, cost: &mut Counts) {
        self.works.clear();
        self.planned.clear();
        self.groups = Default::default();
        let now_ns = core.asker.endpoint.clock_ns;
        let mut landing = 0;
        for (key, &(hash, shard)) in self.routes.iter().enumerate() {
            let may_read = !core.asker.has_writes(shard);
            cost.behind_writes += !may_read as u64;
            if !may_read {
                self.asks.push(Left { key, tries: 0 });
                continue;
            }
            let Some(entry) = core.directory.find_pointer(hash, shard) else {
                let unread = match self.groups[1].route(core, path, key_class::COLD) {
                    Route::Read => &mut self.rest,
                    Route::Ask => &mut self.asks,
                };
                unread.push(Left { key, tries: 0 });
                continue;
            };
            cost.hits += 1;
            if self.groups[0].route(core, path, key_class::CACHED) == Route::Ask {
                self.asks.push(Left { key, tries: 0 });
                continue;
            }
            if path == Path::Choose && entry.wants_renewal(now_ns) {
                cost.renewals += 1;
                self.asks.push(Left { key, tries: 0 });
                continue;
            }
            let pointer = entry.pointer(core.directory.shards[shard].table.region);
            let bytes = pointer.length as usize;
            let from = RemoteAddress { region: shard as u32, offset: pointer.offset() };
            self.works.push(Work::Read { id: self.works.len() as u64, from, into: landing, bytes });
            let lease_end_ns = entry.lease_end_ns();
            self.planned.push(Planned { key, pointer, lease_end_ns, landing });
            cost.bytes += bytes as u64;
            landing += bytes.next_multiple_of(64);
        }
        core.asker.endpoint.link.reserve_landing(landing);
        cost.nodes += self.works.len() as u64;
        cost.round_trips += !self.works.is_empty() as u64;
    }

    /// Carries the planned READs out. The time at their end, and whether what they have read may be
    /// believed.
    fn post_planned(&self, core: &mut Core) -> Result<(u64, bool), Error> {
        let endpoint = &mut core.asker.endpoint;
        endpoint.link.post(&self.works);
        for _ in 0..self.works.len() {
            endpoint.next()?;
        }
        let now_ns = endpoint.now()?;
        let holds = endpoint.may_believe(now_ns);
        if holds {
            endpoint.staleness.conclude_reads();
        }
        Ok((now_ns, holds))
    }

    fn read_planned(
        &mut self,
        core: &mut Core,
        keys: &[&[u8]],
        path: Path,
        cost: &mut Counts,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        if self.works.is_empty() {
            return Ok(());
        }
        let (now_ns, holds) = self.post_planned(core)?;
        for planned in &self.planned {
            let left = Left { key: planned.key, tries: 1 };
            if !holds {
                cost.read_lease_lapsed += 1;
                self.asks.push(left);
                continue;
            }
            let unread = if path == Path::Read { &mut self.rest } else { &mut self.asks };
            let (hash, shard) = self.routes[planned.key];
            let pointer = planned.pointer;
            if now_ns >= planned.lease_end_ns {
                cost.lease_expired += 1;
                core.directory.forget_expired(hash, pointer, planned.lease_end_ns);
                unread.push(left);
                continue;
            }
            let bytes = core.asker.endpoint.link.landed(planned.landing, pointer.length as usize);
            let generation = Some(pointer.generation);
            match verify(
                bytes,
                core.directory.shards[shard].table.secret,
                pointer.region,
                pointer.slot,
                generation,
                Wanted { kind: Kind::STRING, database: hash.database() },
                keys[planned.key],
            ) {
                Ok(found)
                    if core
                        .asker
                        .endpoint
                        .lease
                        .may_have_expired(found.mutable.expires_at_ms, now_ns) =>
                {
                    cost.undecided += 1;
                    self.asks.push(left);
                }
                Ok(found) => {
                    cost.operations += 1;
                    cost.read += 1;
                    each(planned.key, Some(found.value), ServedBy::Read);
                }
                Err(Reject::Torn | Reject::Pending | Reject::AskOnly) => {
                    // The pointer may still be valid; the walk or the owner decides.
                    cost.retries += 1;
                    cost.undecided += (path != Path::Read) as u64;
                    unread.push(left);
                }
                Err(Reject::OtherKind) => {
                    // A whole object never becomes a string; the server knows its type.
                    cost.undecided += 1;
                    core.directory.forget_dead(hash, pointer);
                    self.asks.push(left);
                }
                Err(Reject::Dead | Reject::OtherKey) => {
                    // An invalid hit (H23).
                    cost.stale += 1;
                    core.directory.forget_dead(hash, pointer);
                    unread.push(left);
                }
            }
        }
        Ok(())
    }

    /// Walks for all keys of `self.rest` in step: one batch of READs for all buckets, one for all
    /// records, until each walk has ended.
    fn walk_many(
        &mut self,
        core: &mut Core,
        keys: &[&[u8]],
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        let rest = self.rest.iter();
        let walking = rest.map(|&Left { key, tries }| {
            let (hash, shard) = self.routes[key];
            let table = &core.directory.shards[shard].table;
            let walk = Lookup::begin(keys[key], hash, Kind::STRING, table);
            Walking::new(key, (hash, shard), tries, walk)
        });
        let walking = walking.collect();
        let mut cost = Counts::default();
        let asks = &mut self.asks;
        let walked = walk_in_step(core, walking, &mut cost, &mut |core, cost, one, found| {
            let Some(found) = found else {
                return asks.push(Left { key: one.key, tries: one.tries + 1 });
            };
            let from = one.step.landing() + found.value_from();
            let value = core.asker.endpoint.landed(from, found.value_bytes);
            let tries = one.tries + one.step.walk.retries();
            each(one.key, Some(value), ServedBy::read_after(tries));
            cost.operations += 1;
            cost.read += 1;
            core.directory.remember(one.at, found.pointer, 0, core.asker.endpoint.clock_ns);
        });
        core.meter.add(&cost);
        walked
    }
}

/// The clock, if the chooser learns anything from this batch.
fn batch_clock(endpoint: &mut Endpoint, groups: &[Group; 2]) -> Result<Option<u64>, Error> {
    let is_learned = groups.iter().any(|group| group.decision.is_some_and(|d| d.is_measured));
    if is_learned { endpoint.now().map(Some) } else { Ok(None) }
}

/// The time that reading a group's keys took, if the chooser learns it; the client still has to ask
/// for `in_vain` of them.
fn batch_read(
    endpoint: &mut Endpoint,
    group: Group,
    class: usize,
    began_ns: Option<u64>,
    in_vain: usize,
) -> Result<Option<GroupRead>, Error> {
    let Some(began_ns) = began_ns.filter(|_| group.is_learned(Route::Read)) else {
        return Ok(None);
    };
    let elapsed_ns = endpoint.now()?.saturating_sub(began_ns);
    Ok(Some(GroupRead { keys: group.keys, class, elapsed_ns, in_vain }))
}

/// Learns it, with the group's share of asking for `asks` keys: READs without a result lead to
/// those requests.
fn learn_batch_read(
    core: &mut Core,
    read: &GroupRead,
    asks_began_ns: Option<u64>,
    asks: usize,
) -> Result<(), Error> {
    let now_ns = core.asker.endpoint.now()?;
    let asked_ns = now_ns.saturating_sub(asks_began_ns.unwrap_or(now_ns));
    let part_ns = asked_ns * read.in_vain as u64 / asks.max(1) as u64;
    let spent = Spent {
        elapsed_ns: (read.elapsed_ns + part_ns) / read.keys as u64,
        reads: 1,
        in_vain: read.in_vain as f32 / read.keys as f32,
    };
    core.router.chooser.learn_key(key_class::IN_BATCH + read.class, Route::Read, spent, now_ns);
    Ok(())
}

/// Learns the cost of each asked key of a group.
fn learn_batch_asked(
    core: &mut Core,
    group: Group,
    class: usize,
    began_ns: Option<u64>,
) -> Result<(), Error> {
    let Some(began_ns) = began_ns.filter(|_| group.is_learned(Route::Ask)) else {
        return Ok(());
    };
    let now_ns = core.asker.endpoint.now()?;
    let elapsed_ns = now_ns.saturating_sub(began_ns) / group.keys as u64;
    let spent = Spent { elapsed_ns, reads: 1, in_vain: 0.0 };
    core.router.chooser.learn_key(key_class::IN_BATCH + class, Route::Ask, spent, now_ns);
    Ok(())
}

/// Asks for all keys in `asks`, pipelined.
fn ask_many(
    core: &mut Core,
    asks: &[Left],
    keys: &[&[u8]],
    path: Path,
    each: &mut Each<'_>,
) -> Result<(), Error> {
    let mut tickets = Vec::new();
    let mut large = Vec::new();
    for chunk in asks.chunks(PIPELINE_CHUNK) {
        tickets.clear();
        let asked = ask_chunk(core, chunk, keys, &mut tickets, &mut large, each);
        if asked.is_err() {
            core.asker.abandon_all(tickets.iter().copied());
        }
        asked?;
    }
    for left in large {
        let got = get_asked(core, keys[left.key], path, Counts::default())?;
        let got = core.got(got);
        each(left.key, got.value, got.served_by);
    }
    Ok(())
}

/// Asks for some keys; reports each request in `tickets`, and in `large` the keys whose values do
/// not fit a frame.
fn ask_chunk(
    core: &mut Core,
    asks: &[Left],
    keys: &[&[u8]],
    tickets: &mut Vec<(usize, Ticket)>,
    large: &mut Vec<Left>,
    each: &mut Each<'_>,
) -> Result<(), Error> {
    for left in asks {
        tickets.push(core.send(&Command::Get { key: keys[left.key] })?);
    }
    for (&left, &(shard, ticket)) in asks.iter().zip(&*tickets) {
        let answer = core.collect(shard, ticket)?;
        if answer.status == Status::NeedsBuffer {
            large.push(left);
            continue;
        }
        if let Status::NoReads | Status::Copying = answer.status {
            return Err(Error::Refused(answer.status));
        }
        core.asker.endpoint.staleness.check(answer.lag_ns)?;
        let served_by = if left.tries == 0 { ServedBy::Asked } else { ServedBy::AskedAfterRead };
        each(left.key, answer.value.map(|(from, to)| core.in_reply((from, to))), served_by);
    }
    Ok(())
}

//! Reading many keys at once: one batch of READs for all cached pointers,
//! then walks in step for the rest, then one pipelined round of asking.
//!
//! A batch is linearizable for each key only, not as a whole.

mod walks;

use crate::api::{Counts, Each, Path, Ticket, Via};
use crate::choose::{Decision, Spent, Way, key_class};
use crate::error::Error;
use crate::session::{PIPELINE_CHUNK, Session};
use remora_fabric::{Link, RemoteAddress, Work};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{Reject, Wanted, verify};
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_walk::remote::Reads;

/// Working memory of batches, kept between them.
#[derive(Default)]
pub(crate) struct Batch {
    routes: Vec<(KeyHash, usize)>,
    planned: Vec<Planned>,
    rest: Vec<Left>,
    asks: Vec<Left>,
    ways: [Group; 2],
}

/// The keys of a batch that have a pointer, or those that have none, and what
/// was decided for them.
#[derive(Clone, Copy, Default)]
struct Group {
    keys: usize,
    decision: Option<Decision>,
}

impl Group {
    /// Whether what its keys took is to be learned, if they went this way.
    fn is_learned(&self, way: Way) -> bool {
        self.decision.is_some_and(|decision| decision.is_measured && decision.way == way)
    }
}

/// Keys of a group that were read.
struct GroupRead {
    keys: usize,
    class: usize,
    elapsed_ns: u64,
    /// How many of them have to be asked for after all.
    in_vain: usize,
}

/// A key that is left to the next way of finding it.
#[derive(Clone, Copy)]
struct Left {
    key: usize,
    /// READs that were made for it in vain.
    tries: u32,
}

/// One READ through a cached pointer.
struct Planned {
    key: usize,
    pointer: RemotePointer,
    lease_end_ns: u64,
    landing: usize,
}

impl Session {
    /// The values of several keys; `each(index, value, via)` is called once for
    /// each, in any order. Gives what the whole batch cost.
    ///
    /// # Errors
    /// See [`Error`]. `each` may have been called for some keys.
    pub fn get_batch(
        &mut self,
        keys: &[&[u8]],
        path: Path,
        each: &mut Each<'_>,
    ) -> Result<Counts, Error> {
        self.check()?;
        self.send_gathered()?;
        let before = self.totals;
        // Taken out of the session while it is in use.
        let mut batch = std::mem::take(&mut self.batch);
        let result = self.run_batch(&mut batch, keys, path, each);
        self.batch = batch;
        result.map(|()| self.totals.since(&before))
    }

    fn run_batch(
        &mut self,
        batch: &mut Batch,
        keys: &[&[u8]],
        path: Path,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        batch.asks.clear();
        batch.routes.clear();
        batch.rest.clear();
        if path == Path::Ask {
            batch.asks.extend((0..keys.len()).map(|key| Left { key, tries: 0 }));
            return self.ask_many(&batch.asks, keys, path, each);
        }
        // Keys of a batch often lie apart; three prefetches hide one another's
        // misses: the keys, the cache's entries, the records.
        for first in keys.iter().filter_map(|key| key.first()) {
            remora_arena::prefetch(first);
        }
        for key in keys {
            let route = self.route(key)?;
            self.cache.prefetch(route.0);
            batch.routes.push(route);
        }
        let mut cost = Counts::default();
        self.plan(batch, path, &mut cost);
        let [cached, cold] = batch.ways;
        let asked_only = batch.asks.len();
        let began_ns = self.batch_clock(&batch.ways)?;
        let read = self.read_planned(batch, keys, path, &mut cost, each);
        self.totals.add(&cost);
        read?;
        let in_vain = batch.asks.len() - asked_only;
        let cached_read = self.batch_read(cached, key_class::CACHED, began_ns, in_vain)?;
        let mut cold_read = None;
        if !batch.rest.is_empty() {
            let before = batch.asks.len();
            let began_ns = self.batch_clock(&batch.ways)?;
            self.walk_many(batch, keys, each)?;
            let in_vain = batch.asks.len() - before;
            cold_read = self.batch_read(cold, key_class::COLD, began_ns, in_vain)?;
        }
        let began_ns = self.batch_clock(&batch.ways)?;
        self.ask_many(&batch.asks, keys, path, each)?;
        for read in [cached_read, cold_read].into_iter().flatten() {
            self.learn_batch_read(&read, began_ns, batch.asks.len())?;
        }
        // Only if none but the keys of one group were asked for.
        for (group, class) in [(cached, key_class::CACHED), (cold, key_class::COLD)] {
            if group.keys == asked_only && batch.asks.len() == asked_only {
                self.learn_batch_asked(group, class, began_ns)?;
            }
        }
        Ok(())
    }

    /// The clock, if anything of a batch is to be learned.
    fn batch_clock(&mut self, ways: &[Group; 2]) -> Result<Option<u64>, Error> {
        let is_learned = ways.iter().any(|group| group.decision.is_some_and(|d| d.is_measured));
        if is_learned { self.now().map(Some) } else { Ok(None) }
    }

    /// What reading a group's keys has taken, if that is to be learned;
    /// `in_vain` of them are yet to be asked for.
    fn batch_read(
        &mut self,
        group: Group,
        class: usize,
        began_ns: Option<u64>,
        in_vain: usize,
    ) -> Result<Option<GroupRead>, Error> {
        let Some(began_ns) = began_ns.filter(|_| group.is_learned(Way::Read)) else {
            return Ok(None);
        };
        let elapsed_ns = self.now()?.saturating_sub(began_ns);
        Ok(Some(GroupRead { keys: group.keys, class, elapsed_ns, in_vain }))
    }

    /// Learns it, with the group's part of asking for `asks` keys: that is what
    /// reading in vain leads to.
    fn learn_batch_read(
        &mut self,
        read: &GroupRead,
        asks_began_ns: Option<u64>,
        asks: usize,
    ) -> Result<(), Error> {
        let now_ns = self.now()?;
        let asked_ns = now_ns.saturating_sub(asks_began_ns.unwrap_or(now_ns));
        let part_ns = asked_ns * read.in_vain as u64 / asks.max(1) as u64;
        let spent = Spent {
            elapsed_ns: (read.elapsed_ns + part_ns) / read.keys as u64,
            reads: 1,
            in_vain: read.in_vain as f32 / read.keys as f32,
        };
        self.chooser.learn_key(key_class::IN_BATCH + read.class, Way::Read, spent, now_ns);
        Ok(())
    }

    /// Learns what each key of a group took that was asked for.
    fn learn_batch_asked(
        &mut self,
        group: Group,
        class: usize,
        began_ns: Option<u64>,
    ) -> Result<(), Error> {
        let Some(began_ns) = began_ns.filter(|_| group.is_learned(Way::Ask)) else {
            return Ok(());
        };
        let now_ns = self.now()?;
        let elapsed_ns = now_ns.saturating_sub(began_ns) / group.keys as u64;
        let spent = Spent { elapsed_ns, reads: 1, in_vain: 0.0 };
        self.chooser.learn_key(key_class::IN_BATCH + class, Way::Ask, spent, now_ns);
        Ok(())
    }

    /// The way of the next key of a group of a batch.
    fn batch_way(&mut self, path: Path, group: &mut Group, class: usize) -> Way {
        group.keys += 1;
        if path == Path::Read {
            return Way::Read;
        }
        let decision = *group.decision.get_or_insert_with(|| {
            let load = self.right.load();
            self.chooser.decide_key(key_class::IN_BATCH + class, load, self.clock_ns)
        });
        decision.way
    }

    /// Sorts the keys into READs by cached pointers, walks, and asks.
    fn plan(&mut self, batch: &mut Batch, path: Path, cost: &mut Counts) {
        self.works.clear();
        batch.planned.clear();
        batch.ways = Default::default();
        let now_ns = self.clock_ns;
        let mut landing = 0;
        for (key, &(hash, shard)) in batch.routes.iter().enumerate() {
            let may_read = self.shards[shard].writes == 0;
            cost.behind_writes += !may_read as u64;
            if !may_read {
                batch.asks.push(Left { key, tries: 0 });
                continue;
            }
            let Some(entry) = self.find_pointer(hash, shard) else {
                let unread = match self.batch_way(path, &mut batch.ways[1], key_class::COLD) {
                    Way::Read => &mut batch.rest,
                    Way::Ask => &mut batch.asks,
                };
                unread.push(Left { key, tries: 0 });
                continue;
            };
            cost.hits += 1;
            if self.batch_way(path, &mut batch.ways[0], key_class::CACHED) == Way::Ask {
                batch.asks.push(Left { key, tries: 0 });
                continue;
            }
            if path == Path::Choose && entry.wants_renewal(now_ns) {
                cost.renewals += 1;
                batch.asks.push(Left { key, tries: 0 });
                continue;
            }
            let pointer = entry.pointer(self.shards[shard].table.region);
            let bytes = pointer.length as usize;
            let from = RemoteAddress { region: shard as u32, offset: pointer.offset() };
            self.works.push(Work::Read { id: self.works.len() as u64, from, into: landing, bytes });
            let lease_end_ns = entry.lease_end_ns();
            batch.planned.push(Planned { key, pointer, lease_end_ns, landing });
            cost.bytes += bytes as u64;
            landing += bytes.next_multiple_of(64);
        }
        self.link.reserve_landing(landing);
        cost.nodes += self.works.len() as u64;
        cost.round_trips += !self.works.is_empty() as u64;
    }

    fn read_planned(
        &mut self,
        batch: &mut Batch,
        keys: &[&[u8]],
        path: Path,
        cost: &mut Counts,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        if self.works.is_empty() {
            return Ok(());
        }
        self.link.post(&self.works);
        for _ in 0..self.works.len() {
            self.next()?;
        }
        let now_ns = self.now()?;
        let holds = self.right.holds(now_ns);
        for planned in &batch.planned {
            let left = Left { key: planned.key, tries: 1 };
            if !holds {
                cost.right_lapsed += 1;
                batch.asks.push(left);
                continue;
            }
            let unread = if path == Path::Read { &mut batch.rest } else { &mut batch.asks };
            let (hash, shard) = batch.routes[planned.key];
            let pointer = planned.pointer;
            if now_ns >= planned.lease_end_ns {
                cost.lease_expired += 1;
                self.cache.forget_expired(hash, pointer, planned.lease_end_ns);
                unread.push(left);
                continue;
            }
            let bytes = self.link.landed(planned.landing, pointer.length as usize);
            let generation = Some(pointer.generation);
            match verify(
                bytes,
                self.shards[shard].table.secret,
                pointer.region,
                pointer.slot,
                generation,
                Wanted { kind: Kind::STRING, database: hash.database() },
                keys[planned.key],
            ) {
                Ok(found) if self.right.may_have_expired(found.mutable.expires_at_ms, now_ns) => {
                    cost.undecided += 1;
                    batch.asks.push(left);
                }
                Ok(found) => {
                    cost.operations += 1;
                    cost.read += 1;
                    each(planned.key, Some(found.value), Via::Read);
                }
                Err(Reject::Torn | Reject::Pending | Reject::AskOnly) => {
                    // The pointer may still hold; the walk or the owner knows more.
                    cost.retries += 1;
                    cost.undecided += (path != Path::Read) as u64;
                    unread.push(left);
                }
                Err(Reject::OtherKind) => {
                    // Whole, so it never becomes a string; the server says what it is.
                    cost.undecided += 1;
                    self.cache.forget_dead(hash, pointer);
                    batch.asks.push(left);
                }
                Err(Reject::Dead | Reject::OtherKey) => {
                    // An invalid hit (H23).
                    cost.stale += 1;
                    self.cache.forget_dead(hash, pointer);
                    unread.push(left);
                }
            }
        }
        Ok(())
    }

    /// Asks for all keys in `asks`, pipelined.
    fn ask_many(
        &mut self,
        asks: &[Left],
        keys: &[&[u8]],
        path: Path,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        let mut tickets = Vec::new();
        let mut large = Vec::new();
        for chunk in asks.chunks(PIPELINE_CHUNK) {
            tickets.clear();
            let asked = self.ask_chunk(chunk, keys, &mut tickets, &mut large, each);
            if asked.is_err() {
                self.abandon_all(tickets.iter().copied());
            }
            asked?;
        }
        for left in large {
            let got = self.get_asked(keys[left.key], path, Counts::default())?;
            let got = self.got(got);
            each(left.key, got.value, got.via);
        }
        Ok(())
    }

    /// Asks for some keys; tells of each request in `tickets`, and of the keys
    /// whose values no frame carries in `large`.
    fn ask_chunk(
        &mut self,
        asks: &[Left],
        keys: &[&[u8]],
        tickets: &mut Vec<(usize, Ticket)>,
        large: &mut Vec<Left>,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        for left in asks {
            tickets.push(self.send(&Command::Get { key: keys[left.key] })?);
        }
        for (&left, &(shard, ticket)) in asks.iter().zip(&*tickets) {
            let answer = self.collect(shard, ticket)?;
            if answer.status == Status::NeedsBuffer {
                large.push(left);
                continue;
            }
            let via = if left.tries == 0 { Via::Asked } else { Via::AskedAfterRead };
            each(left.key, answer.value.map(|(from, to)| &self.reply[from..to]), via);
        }
        Ok(())
    }
}

//! Walks of many keys in step.

use super::{Batch, Left};
use crate::api::{Counts, Each, Via};
use crate::error::Error;
use crate::session::Session;
use remora_fabric::{Link, RemoteAddress, Work};
use remora_index::hash::{Step, Walk, Want};
use remora_layout::limits::MAX_SHARDS;

/// One walk under way.
struct Walking<'k> {
    key: usize,
    /// READs in vain before the walk.
    tries: u32,
    walk: Walk<'k>,
    want: Want,
    landing: usize,
}

impl Session {
    /// Walks for all keys of `batch.rest` in step: one batch of READs for all
    /// buckets, one for all records, until each walk has ended.
    pub(super) fn walk_many(
        &mut self,
        batch: &mut Batch,
        keys: &[&[u8]],
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        let mut walking: Vec<Walking<'_>> = batch
            .rest
            .iter()
            .map(|&Left { key, tries }| {
                let (hash, shard) = batch.routes[key];
                let (walk, want) = Walk::begin(keys[key], hash, &self.shards[shard].table);
                Walking { key, tries, walk, want, landing: 0 }
            })
            .collect();
        let mut cost = Counts::default();
        // Bounded: every walk is.
        while !walking.is_empty() {
            self.fetch_wanted(&mut walking, batch, &mut cost)?;
            let now_ns = self.now()?;
            let holds = self.right.holds(now_ns);
            let mut still = Vec::with_capacity(walking.len());
            let mut moved = Vec::new();
            for mut one in walking {
                let (hash, _) = batch.routes[one.key];
                match one.walk.feed(self.link.landed(one.landing, one.want.bytes)) {
                    Step::Fetch(want) => still.push(Walking { want, ..one }),
                    Step::Moved => moved.push(one),
                    Step::Found(found)
                        if holds
                            && !self
                                .right
                                .may_have_expired(found.mutable.expires_at_ms, now_ns) =>
                    {
                        let pointer = found.pointer;
                        let via = Via::read_after(one.tries + one.walk.retries());
                        each(one.key, Some(found.value), via);
                        cost.operations += 1;
                        cost.read += 1;
                        cost.retries += one.walk.retries() as u64;
                        self.remember(hash, pointer, 0, now_ns);
                    }
                    Step::Found(_) | Step::Ask(_) => {
                        cost.right_lapsed += !holds as u64;
                        cost.undecided += holds as u64;
                        cost.retries += one.walk.retries() as u64;
                        batch.asks.push(Left { key: one.key, tries: one.tries + 1 });
                    }
                }
            }
            self.refresh_walks(moved, &mut still, batch, &mut cost)?;
            walking = still;
        }
        self.totals.add(&cost);
        Ok(())
    }

    /// Lets walks whose table has grown begin again: the header page of each
    /// such shard is fetched once for all of them.
    fn refresh_walks<'k>(
        &mut self,
        moved: Vec<Walking<'k>>,
        still: &mut Vec<Walking<'k>>,
        batch: &mut Batch,
        cost: &mut Counts,
    ) -> Result<(), Error> {
        let mut fresh = [false; MAX_SHARDS];
        for mut one in moved {
            let (_, shard) = batch.routes[one.key];
            if !std::mem::replace(&mut fresh[shard], true) {
                self.refresh_table(shard, cost)?;
            }
            match one.walk.refresh(&self.shards[shard].table) {
                Ok(want) => still.push(Walking { want, ..one }),
                Err(_) => {
                    cost.retries += one.walk.retries() as u64;
                    cost.undecided += 1;
                    batch.asks.push(Left { key: one.key, tries: one.tries + 1 });
                }
            }
        }
        Ok(())
    }

    /// One batch of READs for what every walk wants.
    fn fetch_wanted(
        &mut self,
        walking: &mut [Walking<'_>],
        batch: &mut Batch,
        cost: &mut Counts,
    ) -> Result<(), Error> {
        batch.works.clear();
        let mut landing = 0;
        for (id, one) in walking.iter_mut().enumerate() {
            let (_, shard) = batch.routes[one.key];
            one.landing = landing;
            let Want { offset, bytes } = one.want;
            let from = RemoteAddress { region: self.shards[shard].table.region, offset };
            batch.works.push(Work::Read { id: id as u64, from, into: landing, bytes });
            landing += bytes.next_multiple_of(64);
            cost.bytes += bytes as u64;
        }
        self.link.reserve_landing(landing);
        self.link.post(&batch.works);
        for id in 0..batch.works.len() {
            self.complete(id as u64)?;
        }
        cost.nodes += batch.works.len() as u64;
        cost.round_trips += 1;
        Ok(())
    }
}

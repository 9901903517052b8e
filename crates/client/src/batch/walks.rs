//! Walks of many keys in step.

use super::{Batch, Left};
use crate::api::{Counts, Each, Via};
use crate::error::Error;
use crate::session::Session;
use remora_index::hash::Lookup;
use remora_layout::kind::Kind;
use remora_layout::limits::MAX_SHARDS;
use remora_walk::remote::{InStep, Reads, fetch_wanted};
use remora_walk::{End, Walk};

/// One walk under way.
struct Walking<'k> {
    key: usize,
    /// READs in vain before the walk.
    tries: u32,
    step: InStep<Lookup<'k>>,
    /// Its table has grown: it waits for the header page.
    moved: bool,
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
                let table = &self.shards[shard].table;
                let walk = Lookup::begin(keys[key], hash, Kind::STRING, table);
                Walking { key, tries, step: InStep::new(walk, shard as u32), moved: false }
            })
            .collect();
        let mut cost = Counts::default();
        // Bounded: every walk is.
        while !walking.is_empty() {
            let steps = walking.iter_mut().map(|one| &mut one.step);
            fetch_wanted(steps, self, &mut cost)?;
            let now_ns = self.now()?;
            let holds = self.right.holds(now_ns);
            let mut any_moved = false;
            walking.retain_mut(|one| {
                let route = batch.routes[one.key];
                let retries = one.step.walk.retries();
                match one.step.feed(&*self) {
                    None => return true,
                    Some(End::Restart) => {
                        (one.moved, any_moved) = (true, true);
                        return true;
                    }
                    Some(End::Found(found))
                        if holds
                            && !self
                                .right
                                .may_have_expired(found.mutable.expires_at_ms, now_ns) =>
                    {
                        let from = one.step.landing() + found.value_from();
                        let value = self.landed(from, found.value_bytes);
                        each(one.key, Some(value), Via::read_after(one.tries + retries));
                        cost.operations += 1;
                        cost.read += 1;
                        cost.retries += retries as u64;
                        self.remember(route, found.pointer, 0, now_ns);
                    }
                    Some(End::Found(_) | End::Ask(_) | End::Stale | End::Beyond) => {
                        cost.right_lapsed += !holds as u64;
                        cost.undecided += holds as u64;
                        cost.retries += one.step.walk.retries() as u64;
                        batch.asks.push(Left { key: one.key, tries: one.tries + 1 });
                    }
                }
                false
            });
            if any_moved {
                self.refresh_walks(&mut walking, batch, &mut cost)?;
            }
        }
        self.totals.add(&cost);
        Ok(())
    }

    /// Lets walks whose table has grown begin again: the header page of each
    /// such shard is fetched once for all of them.
    fn refresh_walks(
        &mut self,
        walking: &mut Vec<Walking<'_>>,
        batch: &mut Batch,
        cost: &mut Counts,
    ) -> Result<(), Error> {
        let mut fresh = [false; MAX_SHARDS];
        for one in walking.iter().filter(|one| one.moved) {
            let (_, shard) = batch.routes[one.key];
            if !std::mem::replace(&mut fresh[shard], true) {
                self.refresh_table(shard, cost)?;
            }
        }
        walking.retain_mut(|one| {
            let (_, shard) = batch.routes[one.key];
            if !std::mem::take(&mut one.moved)
                || one.step.walk.restart(&self.shards[shard].table).is_ok()
            {
                return true;
            }
            cost.retries += one.step.walk.retries() as u64;
            cost.undecided += 1;
            batch.asks.push(Left { key: one.key, tries: one.tries + 1 });
            false
        });
        Ok(())
    }
}

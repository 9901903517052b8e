//! One shard of a replica applies what belongs to it.
//!
//! Invariants:
//! * batches are carried out in the order in which they came, in bounded turns;
//! * an entry that is refused because memory is full stays the next one, and is tried again.

use super::batch::{Batch, Body};
use super::state::Following;
use remora_arena::Journal;
use remora_engine::{ApplyError, Now, Origin, Shard, split_operation};
use remora_layout::limits::APPLY_TURN_ENTRIES;
use remora_layout::slot::SlotTable;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module's text.
#[derive(Default)]
pub struct Applier {
    batches: VecDeque<Arc<Batch>>,
    /// Entries of the first batch that are applied, or bytes of its operations that are loaded.
    at: usize,
    /// The first batch was refused: it is tried again with the shard's ticks.
    is_refused: bool,
}

impl Applier {
    /// Takes a batch in. The thread that follows bounds how many there are.
    pub fn take(&mut self, batch: Arc<Batch>) {
        self.batches.push_back(batch);
    }

    /// Whether all that was taken is carried out.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether there is something to do now.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.batches.is_empty() && !self.is_refused
    }

    /// The shard's clock ticks: what was refused is tried again.
    pub fn tick(&mut self) {
        self.is_refused = false;
    }

    /// Carries out some of it.
    pub fn turn<J: Journal>(
        &mut self,
        (number, shard): (usize, &mut Shard<J>),
        (slots, following): (&SlotTable, &Following),
        now: Now,
    ) {
        let mut left = APPLY_TURN_ENTRIES;
        while left > 0
            && !self.is_refused
            && let Some(batch) = self.batches.front().cloned()
        {
            let tables = (batch.logs != slots.shards()).then(|| SlotTable::even(batch.logs));
            let takes = |key: &[u8]| match &tables {
                None => true,
                Some(of) => slots.shard_of(key) == number && of.shard_of(key) == batch.log,
            };
            let origin = Origin { log: batch.log as u32, takes: &takes, cut: u64::MAX };
            match self.carry_out(shard, (&batch, &origin), &mut left, now) {
                Ok(true) => {
                    self.batches.pop_front();
                    self.at = 0;
                    let applied = shard.applied(batch.log as u32);
                    following.applied[number][batch.log].store(applied, Ordering::Release);
                    following.done[number].fetch_add(1, Ordering::Release);
                }
                Ok(false) => {}
                Err(error) => {
                    self.is_refused = true;
                    let why = format!("shard {number} cannot apply the log: {error}");
                    if following.trouble() != why {
                        tracing::error!("{why}");
                        following.set_trouble(why);
                    }
                }
            }
        }
    }

    /// Carries out some of a batch. Whether that was the rest of it.
    fn carry_out<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (batch, origin): (&Batch, &Origin<'_>),
        left: &mut usize,
        now: Now,
    ) -> Result<bool, ApplyError> {
        match &batch.body {
            Body::Begin => shard.begin_copy(origin, now),
            Body::Operations(stream) => return self.load(shard, (stream, origin), left, now),
            Body::Copied { sequence, epoch } => {
                shard.begin_applying_at(origin.log, (*sequence, *epoch));
            }
            Body::Entries(entries) => {
                for entry in &entries[self.at..] {
                    if *left == 0 {
                        return Ok(false);
                    }
                    shard.apply(&entry.entry(), origin, now)?;
                    (self.at, *left) = (self.at + 1, *left - 1);
                }
            }
        }
        Ok(true)
    }

    fn load<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (stream, origin): (&[u8], &Origin<'_>),
        left: &mut usize,
        now: Now,
    ) -> Result<bool, ApplyError> {
        // They are whole: the thread that follows has looked at them.
        while let Ok(Some((operation, _))) = split_operation(&stream[self.at..]) {
            if *left == 0 {
                return Ok(false);
            }
            shard.load(operation, origin, now)?;
            self.at += size_of::<u32>() + operation.len();
            *left -= 1;
        }
        Ok(true)
    }
}

//! One shard of a replica applies what belongs to it.
//!
//! Invariants:
//! * batches are carried out in the order in which they came, in bounded turns;
//! * an entry that is refused because memory is full stays the next one, and is tried again.

use super::batch::{Batch, Body};
use super::durable_places::DurablePlaces;
use super::state::Following;
use remora_arena::Journal;
use remora_engine::{ApplyError, FollowedLog, Now, Origin, Shard, split_operation};
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
    /// Which entries of the primary are in those of this shard.
    durable: DurablePlaces,
}

impl Applier {
    /// Takes a batch in. The thread that follows bounds how many there are.
    pub fn take(&mut self, batch: Arc<Batch>) {
        self.batches.push_back(batch);
    }

    /// Whether there is something to do now.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.batches.is_empty() && !self.is_refused
    }

    /// Whether it is to be tried again.
    pub fn waits(&self) -> bool {
        self.is_refused
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
            if !shard.may_apply() {
                // Its disk is behind: it is tried again with the shard's ticks.
                self.is_refused = true;
                break;
            }
            let (log, logs) = (batch.log as u16, batch.logs as u16);
            shard.follow_log(FollowedLog { log, logs, key: batch.key, position: None });
            match self.carry_out(shard, (&batch, &origin), &mut left, now) {
                Ok(true) => {
                    self.batches.pop_front();
                    self.at = 0;
                    shard.log_progress();
                    let applied = shard.applied(batch.log as u32);
                    self.durable.note(shard.last_sequence(), (batch.log, applied));
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
        // All of it is durable at the primary, and need not be here before it is seen.
        shard.set_durable(shard.last_sequence());
    }

    /// The shard's entries up to this one are on the disk.
    pub fn note_synced(&mut self, (number, following): (usize, &Following), synced: u64) {
        self.durable.take(synced, |log, sequence| {
            following.durable[number][log].store(sequence, Ordering::Release);
        });
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
                shard.follow_at(origin.log, (*sequence, *epoch));
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

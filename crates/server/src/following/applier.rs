//! One shard of a replica applies what belongs to it.
//!
//! Invariants:
//! * batches are carried out in the order in which they came, in bounded turns;
//! * a flush, or the beginning of a copy, is swept in turns of the shard; until its end nothing else is
//!   carried out, and it does not count as applied, as readers of the memory may still meet a key;
//! * an entry that is refused stays the next one, and is tried again: each tick if memory is full, or
//!   the disk of this server is behind; else after a pause that grows, as time alone mends nothing.

use super::batch::{Batch, Body, LogPart};
use super::durable_places::DurablePlaces;
use super::state::Following;
use remora_arena::Journal;
use remora_engine::{ApplyError, FollowedLog, Now, Origin, Shard, split_operation};
use remora_layout::limits::{APPLY_AGAIN_MAX_S, APPLY_TURN_ENTRIES};
use remora_layout::slot::SlotTable;
use remora_protocol::message::Status;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module's text.
#[derive(Default)]
pub struct Applier {
    batches: VecDeque<Arc<Batch>>,
    /// Entries of the first batch that are applied, or bytes of its operations that are loaded; of a
    /// beginning, whether it was carried out.
    at: usize,
    /// The first batch was refused: it is tried again with the shard's ticks.
    is_refused: bool,
    /// Not before this time, s after the start of the server.
    again_at_s: u64,
    /// The next pause, s.
    pause_s: u64,
    /// Which entries of the primary the entries of this shard are, and of which primary.
    durable: DurablePlaces,
    following: Option<Arc<Following>>,
    /// That is known to people.
    has_told: bool,
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

    /// Drops what it was given: the server is to follow another one, or anew.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether there is something to do now.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.batches.is_empty() && !self.is_refused
    }

    /// Whether it waits for a tick of the shard's clock.
    pub fn waits(&self) -> bool {
        self.is_refused
    }

    /// The shard's clock ticks: what was refused is tried again.
    pub fn tick(&mut self, now: Now) {
        self.is_refused &= now.since_start_s < self.again_at_s;
    }

    /// Carries out some of it.
    pub fn turn<J: Journal>(
        &mut self,
        (number, shard): (usize, &mut Shard<J>),
        slots: &SlotTable,
        now: Now,
    ) {
        let mut left = APPLY_TURN_ENTRIES;
        while left > 0
            && !self.is_refused
            && let Some(batch) = self.batches.front().cloned()
        {
            if !shard.may_apply() {
                // INFO persistence tells why, if the disk fails.
                self.is_refused = true;
                break;
            }
            let following = &batch.following;
            match self.carry_out((number, shard), (&batch, slots), &mut left, now) {
                Ok(true) => {
                    if std::mem::take(&mut self.has_told) {
                        following.set_shard_trouble(number, "");
                        following.note_room(number, true);
                    }
                    self.pause_s = 0;
                    self.batches.pop_front();
                    self.at = 0;
                    following.done[number].fetch_add(1, Ordering::Release);
                }
                Ok(false) => {}
                Err(error) => {
                    self.refuse(error, now);
                    tell(following, number, error);
                }
            }
        }
        // All of it is durable at the primary, and need not be here before it is seen.
        shard.set_durable(shard.last_sequence());
    }

    /// The first batch is tried again later.
    fn refuse(&mut self, error: ApplyError, now: Now) {
        (self.is_refused, self.has_told) = (true, true);
        if !mends_itself(error) {
            self.again_at_s = now.since_start_s + self.pause_s;
            self.pause_s = (2 * self.pause_s).clamp(1, APPLY_AGAIN_MAX_S);
        }
    }

    /// The entries of this shard, which has this number, are on the disk up to this one.
    pub fn note_synced(&mut self, number: usize, synced: u64) {
        let Some(following) = &self.following else { return };
        self.durable.take(synced, |log, sequence| {
            following.durable[number][log].store(sequence, Ordering::Release);
        });
    }

    /// Carries out some of a batch. Whether that was the rest of it.
    fn carry_out<J: Journal>(
        &mut self,
        (number, shard): (usize, &mut Shard<J>),
        (batch, slots): (&Batch, &SlotTable),
        left: &mut usize,
        now: Now,
    ) -> Result<bool, ApplyError> {
        if shard.is_flushing() {
            // The shard's loop sweeps on.
            batch.following.sweep_turns.fetch_add(1, Ordering::Relaxed);
            *left = 0;
            return Ok(false);
        }
        match &batch.body {
            Body::Clear { logs } => {
                if self.begins() {
                    shard.clear_to_follow(*logs, now);
                }
                Ok(!shard.is_flushing())
            }
            Body::StepBarrier(barrier) => {
                barrier.pass(shard.last_epoch());
                Ok(true)
            }
            Body::Log { log, logs, key, part } => {
                let tables = (*logs != slots.shards()).then(|| SlotTable::even(*logs));
                let takes = |key: &[u8]| match &tables {
                    None => true,
                    Some(of) => slots.shard_of(key) == number && of.shard_of(key) == *log,
                };
                let origin = Origin { log: *log as u32, takes: &takes, cut: u64::MAX };
                let (number_of, of) = (*log as u16, *logs as u16);
                shard.follow_log(FollowedLog {
                    log: number_of,
                    logs: of,
                    key: *key,
                    position: None,
                });
                if let LogPart::Begin | LogPart::Copied { .. } = part {
                    self.durable.forget(*log);
                    batch.following.durable[number][*log].store(0, Ordering::Release);
                }
                let keys = shard.keys();
                let ended = self.take_part(shard, (part, &origin), left, now);
                if let LogPart::Operations(_) = part {
                    let loaded = shard.keys().saturating_sub(keys);
                    batch.following.copy.loaded.fetch_add(loaded, Ordering::Relaxed);
                }
                if shard.is_flushing() {
                    *left = 0;
                    return ended.map(|_| false);
                }
                if ended == Ok(true) {
                    shard.log_progress();
                }
                let applied = shard.applied(origin.log);
                self.durable.note(shard.last_sequence(), (*log, applied));
                self.following.get_or_insert_with(|| Arc::clone(&batch.following));
                batch.following.applied[number][*log].store(applied, Ordering::Release);
                ended
            }
        }
    }

    /// Whether the first batch, the beginning of something, was not carried out before.
    fn begins(&mut self) -> bool {
        std::mem::replace(&mut self.at, 1) == 0
    }

    /// Carries out some of a part of a log. Whether that was the rest of it.
    fn take_part<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (part, origin): (&LogPart, &Origin<'_>),
        left: &mut usize,
        now: Now,
    ) -> Result<bool, ApplyError> {
        match part {
            LogPart::Begin => {
                if self.begins() {
                    shard.begin_copy(origin, now);
                }
            }
            LogPart::Copied { sequence, epoch } => {
                shard.follow_at(origin.log, (*sequence, *epoch));
            }
            LogPart::Entries(entries) => {
                for entry in &entries[self.at..] {
                    if *left == 0 {
                        return Ok(false);
                    }
                    shard.apply(&entry.entry(), origin, now)?;
                    (self.at, *left) = (self.at + 1, *left - 1);
                    if shard.is_flushing() {
                        return Ok(false);
                    }
                }
            }
            LogPart::Operations(stream) => return self.load(shard, (stream, origin), left, now),
        }
        Ok(true)
    }

    /// Loads some operations of a copy. Whether those were the rest.
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

/// Whether time may help: memory becomes free, and a disk catches up.
fn mends_itself(error: ApplyError) -> bool {
    matches!(error, ApplyError::Refused(Status::OutOfMemory | Status::NotKept))
}

/// Tells people, once, why a shard applies nothing.
fn tell(following: &Following, number: usize, error: ApplyError) {
    let helps = match error {
        ApplyError::Refused(Status::OutOfMemory) => {
            following.note_room(number, false);
            "; if it stays so, the primary is copied anew. More max_memory for this replica helps"
        }
        error if mends_itself(error) => "",
        _ => ". It is tried again now and then. RESYNC copies the primary anew",
    };
    let why = format!("shard {number} cannot apply the log: {error}{helps}");
    if following.set_shard_trouble(number, &why) {
        tracing::error!("{why}");
    }
}

#[cfg(test)]
mod tests;

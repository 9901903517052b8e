//! A shard of a replica that follows the logs of a primary, and logs on a disk of its own what it has
//! applied of them (docs/decisions/0060).
//!
//! Invariants:
//! * the log of the shard has each entry that has changed it, with the place of that entry in the
//!   primary's log, in one entry of its own: after a restart the shard has both, or none;
//! * the beginning of a copy is logged before anything of it, and its end behind all of it;
//! * an entry that concerns no key of the shard is not logged, as it may come again.

use super::Shard;
use super::followed::{Followed, FollowedLog};
use super::log_history::LogHistory;
use super::progress::{Applied, AppliedLogs, ApplyError, Origin};
use crate::store::Now;
use remora_arena::Journal;
use remora_layout::limits::LOG_ROOM_BYTES;
use remora_layout::slot::SlotTable;
use remora_protocol::Command;
use remora_protocol::applied::{AppliedEntry, AppliedStep, LogPosition};
use remora_protocol::message::Status;

impl<J: Journal> Shard<J> {
    /// From now on this shard, with this number of so many, follows the logs of a primary. It goes
    /// on where its log has ended before a restart. `is_kept`: the log goes to a disk.
    pub fn begin_following(&mut self, (number, shards): (usize, usize), is_kept: bool) {
        self.begin_applying();
        self.followed.begin_incarnation((shards, Some(number as u16)));
        (self.followed.is_kept, self.followed.is_live) = (is_kept, true);
        self.store.logs_applied = is_kept;
        self.applied = AppliedLogs::default();
        for of in self.followed.logs() {
            if let Some(position) = of.position {
                self.applied.set(of.log.into(), position);
            }
        }
    }

    /// As [`Shard::begin_following`], the logs of another primary. What the shard has stays until the
    /// first copy begins.
    pub fn begin_following_anew(&mut self, of: (usize, usize), is_kept: bool) {
        self.begin_following(of, is_kept);
        self.applied = AppliedLogs::default();
    }

    /// Removes all that the shard has, to follow a primary with so many shards.
    pub fn clear_to_follow(&mut self, logs: usize, now: Now) {
        let own = self.followed.own();
        self.followed.next = Some(FollowedLog { logs: logs as u16, ..FollowedLog::default() });
        self.followed.forget(own);
        self.begin_copy_by(AppliedStep::Clear, &Origin::WHOLE, now);
        self.applied = AppliedLogs::default();
    }

    /// The logs that the shard follows, or has followed before a restart.
    pub fn followed_logs(&self) -> Vec<FollowedLog> {
        let now = |of: FollowedLog| {
            let applied = self.applied.position(of.log.into()).filter(|_| self.followed.is_live);
            FollowedLog { position: of.position.map(|position| applied.unwrap_or(position)), ..of }
        };
        self.followed.logs().map(now).collect()
    }

    /// The entries that come next are of this log.
    pub fn follow_log(&mut self, of: FollowedLog) {
        self.followed.next = Some(of);
    }

    /// Whether another entry may be applied now. It may not while the log has no room for it, or its
    /// disk takes nothing.
    pub fn may_apply(&self) -> bool {
        let has_room = self.store.log.room_bytes() > LOG_ROOM_BYTES;
        !self.followed.is_kept || (self.store.keeps && has_room)
    }

    /// The shard's state is that of the log at this entry: a copy is complete, or the log goes on
    /// with other numbers.
    pub fn follow_at(&mut self, log: u32, entry: (u64, u64)) {
        self.applied.set(log, entry);
        let Some(of) = self.followed.next else { return };
        let of = FollowedLog { position: Some(entry), ..of };
        self.followed.note(self.followed.own(), of);
        self.followed.logged.insert(of.log, entry.0);
        if self.followed.is_kept {
            self.store.log_position(AppliedStep::At, &of.at(entry));
        }
    }

    /// Logs how far the log is applied that comes at present, if the last entries of it were not
    /// logged: else a shard with none of the keys that change would stay behind.
    pub fn log_progress(&mut self) {
        let Some(of) = self.followed.next.filter(|_| self.followed.is_kept) else { return };
        let known = self.followed.log(of.log).is_some_and(|of| of.position.is_some());
        let Some(entry) = self.applied.position(of.log.into()).filter(|_| known) else { return };
        if self.followed.logged.get(&of.log).is_none_or(|&logged| logged < entry.0) {
            self.followed.logged.insert(of.log, entry.0);
            self.store.log_position(AppliedStep::At, &of.at(entry));
        }
    }

    /// From now on the shard has changes of its own: it follows nothing, also after a restart.
    pub fn forget_followed(&mut self) {
        if self.followed.logs().next().is_some() {
            self.store.log_position(AppliedStep::Own, &LogPosition::default());
        }
        self.followed = Followed::default();
        self.store.logs_applied = false;
    }

    /// Apply mode ends. Whether the shard has logged what it has applied: then its log goes on, with
    /// changes of its own.
    pub(super) fn end_following(&mut self) -> bool {
        let is_kept = self.followed.is_kept;
        if is_kept {
            self.forget_followed();
            self.own_since = self.last_sequence();
        }
        is_kept
    }

    /// What the log of the shard was before the start of the server.
    pub fn set_history(&mut self, history: LogHistory) {
        self.log_history = history;
    }

    /// See [`Shard::set_history`].
    pub fn history(&self) -> &LogHistory {
        &self.log_history
    }

    /// The last entry of the log before the shard has changes of its own only, since the start; 0 if
    /// it never had others.
    pub fn own_since(&self) -> u64 {
        self.own_since
    }

    /// Whether the shard may write a snapshot although it applies a log.
    pub(super) fn may_write_snapshot(&self) -> bool {
        self.followed.is_kept && !self.followed.is_copying()
    }

    pub(super) fn note_copy_begins(&mut self, step: AppliedStep) {
        let Some(of) = self.followed.next else { return };
        self.followed.note(self.followed.own(), FollowedLog { position: None, ..of });
        self.log_next(step, (0, 0));
    }

    /// The next change is logged with this step.
    fn log_next(&mut self, step: AppliedStep, entry: (u64, u64)) {
        let of = self.followed.next.filter(|_| self.followed.is_kept);
        self.store.applies = of.map(|of| (step, of.at(entry)));
    }

    /// An entry of a log was applied.
    pub(super) fn note_logged(&mut self, log: u32, sequence: u64) {
        if self.followed.is_kept {
            self.followed.logged.insert(log as u16, sequence);
        }
    }

    fn expect_room(&self) -> Result<(), ApplyError> {
        match self.may_apply() {
            true => Ok(()),
            false => Err(ApplyError::Refused(Status::NotKept)),
        }
    }

    pub(super) fn begin_entry(&mut self, entry: (u64, u64)) -> Result<(), ApplyError> {
        if self.followed.is_kept {
            self.expect_room()?;
            self.log_next(AppliedStep::Entry, entry);
        }
        Ok(())
    }

    pub(super) fn begin_operation(&mut self) -> Result<(), ApplyError> {
        if self.followed.is_kept {
            self.expect_room()?;
            self.log_next(AppliedStep::Copy, (0, 0));
        }
        Ok(())
    }

    /// What comes next was logged by a server with so many shards; `own` is the number of this shard
    /// if it has as many today. For a restart.
    pub fn begin_recovered_incarnation(&mut self, shards: usize, own: Option<usize>) {
        self.followed.begin_incarnation((shards, own.map(|own| own as u16)));
    }

    /// What comes next was logged by the shard with this number. For a restart.
    pub fn recover_from(&mut self, writer: usize) {
        self.followed.recovers = Some(writer as u16);
    }

    /// All is recovered, by this shard of so many.
    pub fn end_recovery(&mut self, (number, shards): (usize, usize)) {
        self.followed.recovers = None;
        self.followed.begin_incarnation((shards, Some(number as u16)));
    }

    /// Carries out what a shard of a replica has logged.
    pub(super) fn apply_again(
        &mut self,
        operation: &[u8],
        origin: &Origin<'_>,
        now: Now,
    ) -> Result<Applied, ApplyError> {
        let AppliedEntry { step, position, operation } =
            AppliedEntry::decode(operation).map_err(|_| ApplyError::Malformed)?;
        let Some(writer) = self.followed.recovers else {
            // A primary that has been a replica says that it is none any more, and nothing else.
            if step != AppliedStep::Own {
                return Err(ApplyError::Malformed);
            }
            if !self.followed.is_kept {
                self.store.pass_entry();
            }
            return Ok(Applied::Elsewhere);
        };
        // A flush is of the keys of its log. Another operation is about a key of that log.
        let is_of_log = is_flush(operation) && step != AppliedStep::Clear;
        let slots = is_of_log.then(|| SlotTable::even(position.logs.into()));
        let takes = |key: &[u8]| {
            let is_of_log = |of: &SlotTable| of.shard_of(key) == usize::from(position.log);
            (origin.takes)(key) && slots.as_ref().is_none_or(is_of_log)
        };
        let (origin, of) = (Origin { takes: &takes, ..*origin }, FollowedLog::of(&position));
        let applied = match step {
            AppliedStep::Clear | AppliedStep::CopyBegins | AppliedStep::Copy => {
                self.carry_out_operation(operation, &origin, now)?
            }
            AppliedStep::Entry => self.carry_out_entry(operation, &origin, now)?,
            AppliedStep::At | AppliedStep::Own => {
                self.store.pass_entry();
                Applied::Elsewhere
            }
        };
        let position = Some((position.sequence, position.epoch));
        match step {
            AppliedStep::Clear => {
                self.followed.forget(writer);
                self.followed.note(writer, of);
            }
            AppliedStep::CopyBegins => self.followed.note(writer, of),
            AppliedStep::Copy => {}
            AppliedStep::Entry | AppliedStep::At => {
                self.followed.note(writer, FollowedLog { position, ..of });
            }
            AppliedStep::Own => self.followed.forget(writer),
        }
        Ok(applied)
    }

    /// Carries out what the snapshot of a shard of a replica says of its logs.
    pub(super) fn load_again(
        &mut self,
        operation: &[u8],
        origin: &Origin<'_>,
        now: Now,
    ) -> Result<Applied, ApplyError> {
        let step = AppliedEntry::decode(operation).map_err(|_| ApplyError::Malformed)?.step;
        match (step, self.followed.recovers) {
            (AppliedStep::Copy | AppliedStep::At, Some(_)) => {
                self.apply_again(operation, origin, now)
            }
            _ => Err(ApplyError::Malformed),
        }
    }
}

/// Whether an operation is about all keys.
fn is_flush(operation: &[u8]) -> bool {
    let command = Command::decode_within(operation).map(|(_, command, _)| command);
    matches!(command, Ok(Command::Flush | Command::FlushAll))
}

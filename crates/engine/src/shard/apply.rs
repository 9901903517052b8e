//! Apply mode: a shard that is changed by the entries of other logs, and by
//! nothing else (design, "One change").
//!
//! Invariant: the shard executes an entry as the command that it is, so that the same code plans
//! and publishes a change as at first. But nothing expires and nothing is evicted, because the log
//! has entries of its own for removals. An entry is one change, or does not concern this shard. An
//! entry that is refused has changed nothing that a command can see, and may come again.
//! [`super::progress`] decides which entry comes next.
//!
//! A shard that applies has its records elsewhere than the shard whose log it is, and may find no
//! place for one although as much is free. Such a change gets memory of the reserve (decision 0061).
//!
//! Nothing is logged: the log counts one sequence for each entry. But the shard of a replica with a
//! disk logs each entry that it carries out ([`super::follow`]).

use super::Shard;
use super::log_history::{EpochHistory, LogHistory, TailPiece};
use super::progress::{Applied, AppliedLogs, ApplyError, Origin};
use super::room::{given_bytes, release_turn};
use crate::store::{Found, LogKeys, Now};
use remora_arena::Journal;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::SPAN_BYTES;
use remora_log::{Entry, LogKey};
use remora_protocol::applied::{AppliedEntry, AppliedStep};
use remora_protocol::message::Status;
use remora_protocol::{Command, Pairs};

impl<J: Journal> Shard<J> {
    /// From now on only [`Shard::apply`] changes the shard; the shard refuses commands that would
    /// change it. It answers reads as of the last entry: an expired key is not visible, and the
    /// log's entry removes it.
    pub fn begin_applying(&mut self) {
        self.store.is_applying = true;
        self.store.slots.begin_lending();
        self.store.moves.end_dumps();
        self.abandon_snapshot();
    }

    /// Whether another log's entries change the shard, and nothing else does.
    pub fn is_applying(&self) -> bool {
        self.store.is_applying
    }

    /// As [`Shard::begin_applying`]. The shard holds the state of a log up to this entry, as after
    /// a snapshot: entries up to it do nothing, and the next one follows it. Has no effect if the
    /// shard has applied more of the log.
    pub fn begin_applying_at(&mut self, log: u32, entry: (u64, u64)) {
        self.begin_applying();
        self.applied.advance_to(log, entry);
    }

    /// Removes what the shard has of the keys of a log, in apply mode: a copy of them begins
    /// ([`Shard::load`]). What was applied of the log does not count any more.
    pub fn begin_copy(&mut self, origin: &Origin<'_>, now: Now) {
        self.begin_copy_by(AppliedStep::CopyBegins, origin, now);
        self.applied.forget(origin.log);
    }

    pub(super) fn begin_copy_by(&mut self, step: AppliedStep, origin: &Origin<'_>, now: Now) {
        self.begin_applying();
        self.note_copy_begins(step);
        self.flush_applied(None, step == AppliedStep::Clear, origin, now);
        self.store.applies = None;
    }

    /// Removes the keys of a log: the caller of a shard that follows it gives the shard turns
    /// ([`Shard::release_some`]) until [`Shard::is_flushing`] says that they are dead, and applies
    /// nothing meanwhile. Commands find none of them at once. `is_all`: those of all logs.
    fn flush_applied(
        &mut self,
        only: Option<Database>,
        is_all: bool,
        origin: &Origin<'_>,
        now: Now,
    ) {
        // Bounded: a sweep that began before runs to its end. A caller with clients to serve has
        // waited for it.
        while self.store.flushes.are_under_way() {
            release_turn(&mut self.store, &mut self.types, now);
        }
        match self.followed.next.filter(|_| self.followed.is_live) {
            Some(of) => {
                let of_log = !is_all && usize::from(of.logs) != self.followed.shards();
                let of_log = of_log.then(|| LogKeys::new(of.log.into(), of.logs.into()));
                self.store.begin_flush_of(only, of_log, origin.takes);
            }
            None => self.store.flush_some(only, origin.takes, now),
        }
    }

    /// Whether a flush is under way: what was applied last counts once it has ended.
    pub fn is_flushing(&self) -> bool {
        self.store.flushes.are_under_way()
    }

    /// Ends apply mode: the shard takes changes of its own again, under this epoch, after those
    /// that it has applied. It never applies an entry twice, also if apply mode begins again; it
    /// then refuses entries that an earlier epoch adds to those logs.
    ///
    /// # Errors
    /// An applied entry is of a later epoch.
    pub fn end_applying(&mut self, epoch: u64) -> Result<(), ApplyError> {
        let before = self.last_epoch();
        if epoch < before {
            return Err(ApplyError::OldEpoch { before, epoch });
        }
        // A log on a disk has one epoch from the start of the server to its end.
        if !self.end_following() {
            self.store.log.begin_epoch(epoch);
        }
        self.store.is_applying = false;
        self.store.slots.end_lending();
        self.applied.begin_epoch(epoch);
        // The entries of the other logs that would continue them do not come any more.
        self.store.drop_loads();
        Ok(())
    }

    /// As [`Shard::end_applying`], and the shard's own log begins anew under a key of this secret:
    /// a reader of the log that it wrote before apply mode does not take the new entries for the
    /// next ones. A log on a disk goes on, and [`Shard::own_since`] tells where it is the shard's own
    /// again.
    ///
    /// If the shard has followed one log, of as many shards, a replica of the same primary may go on
    /// behind what this one has applied of it ([`Shard::go_on_with_former_log`]).
    ///
    /// # Errors
    /// As of [`Shard::end_applying`].
    pub fn promote(&mut self, epoch: u64, log_secret: u64) -> Result<(), ApplyError> {
        let (goes_on, former) = (self.followed.is_kept, self.followed_log());
        self.end_applying(epoch)?;
        if !goes_on {
            let key = LogKey::new(log_secret, self.store.options.log_shard);
            self.store.log.begin_anew(key, epoch);
        }
        if let Some((key, (last, epoch))) = former {
            self.former_log = Some(LogHistory {
                of: Some(key),
                epochs: vec![EpochHistory { epoch, last, is_empty: false }],
                first: self.last_sequence() + 1,
                ..LogHistory::default()
            });
        }
        Ok(())
    }

    /// Replicas of the log that the promoted shard has followed go on behind what it has of that, also
    /// beyond the commit position. The caller sees to it that no other server of that log is promoted
    /// without these entries. `tail`: the last of them, for replicas that have less.
    pub fn go_on_with_former_log(&mut self, tail: Vec<TailPiece>) {
        if let Some(former) = self.former_log.take() {
            self.log_history = LogHistory { tail, ..former };
        }
    }

    /// The log that the shard has followed, if its state is of that one alone: the key, and the
    /// sequence and epoch of the last entry that was applied.
    fn followed_log(&self) -> Option<(u64, (u64, u64))> {
        let of = self.followed.next.filter(|of| usize::from(of.logs) == self.followed.shards())?;
        let own = self.followed.log(of.log)?;
        own.position?;
        Some((own.key, self.applied.position(of.log.into())?))
    }

    /// The latest epoch that the shard has written or applied an entry of.
    pub fn last_epoch(&self) -> u64 {
        self.applied.last_epoch().max(self.store.log.epoch())
    }

    /// Forgets all logs that were applied: another server's are to be, which may have the same
    /// numbers.
    pub fn forget_applied(&mut self) {
        self.applied = AppliedLogs::default();
    }

    /// The last sequence of a log that was applied; 0 before the first.
    pub fn applied(&self, log: u32) -> u64 {
        self.applied.sequence(log)
    }

    /// Applies the next entry of a log. Entries of one log come in order, those of
    /// several in any.
    ///
    /// # Errors
    /// The entry is not applied; the shard is unchanged, except for objects that no key leads to.
    /// The same entry may come again.
    pub fn apply(
        &mut self,
        entry: &Entry<'_>,
        origin: &Origin<'_>,
        now: Now,
    ) -> Result<Applied, ApplyError> {
        if !self.store.is_applying {
            return Err(ApplyError::NotApplying);
        }
        if !self.applied.expect(entry, origin)? {
            return Ok(Applied::Before);
        }
        let applied = match AppliedEntry::is(entry.operation) {
            true => self.apply_again(entry.operation, origin, now)?,
            false => {
                self.begin_entry((entry.sequence, entry.epoch))?;
                let applied = self.carry_out_entry(entry.operation, origin, now);
                self.store.applies = None;
                if applied == Ok(Applied::Done) {
                    self.note_logged(origin.log, entry.sequence);
                }
                applied?
            }
        };
        self.applied.note(origin.log, entry);
        Ok(applied)
    }

    /// Carries out the operation of an entry.
    pub(super) fn carry_out_entry(
        &mut self,
        operation: &[u8],
        origin: &Origin<'_>,
        now: Now,
    ) -> Result<Applied, ApplyError> {
        let decoded = Command::decode_within(operation).map_err(|_| ApplyError::Malformed)?;
        let (database, command, _) = decoded;
        let is_of_snapshot = matches!(command, Command::Load { step, .. } if step.is_of_snapshot());
        if !command.is_write() || is_of_snapshot {
            return Err(ApplyError::Malformed);
        }
        self.carry_out((database, &command), origin, now)
    }

    /// Carries out the next operation of a snapshot ([`Shard::begin_snapshot`]) in apply mode. The
    /// shard had none of the keys of that snapshot at its beginning. After the last operation
    /// [`Shard::begin_applying_at`] says at which sequence the log continues.
    ///
    /// # Errors
    /// As of [`Shard::apply`]. If memory was full, the same operation may come again.
    pub fn load(
        &mut self,
        operation: &[u8],
        origin: &Origin<'_>,
        now: Now,
    ) -> Result<Applied, ApplyError> {
        if !self.store.is_applying {
            return Err(ApplyError::NotApplying);
        }
        if AppliedEntry::is(operation) {
            return self.load_again(operation, origin, now);
        }
        self.begin_operation()?;
        let loaded = self.carry_out_operation(operation, origin, now);
        self.store.applies = None;
        loaded
    }

    /// Carries out an operation of a snapshot.
    pub(super) fn carry_out_operation(
        &mut self,
        operation: &[u8],
        origin: &Origin<'_>,
        now: Now,
    ) -> Result<Applied, ApplyError> {
        let decoded = Command::decode_within(operation).map_err(|_| ApplyError::Malformed)?;
        let (database, command, _) = decoded;
        if !command.is_write() {
            return Err(ApplyError::Malformed);
        }
        match self.carry_out((database, &command), origin, now) {
            Err(ApplyError::Refused(status)) if self.is_ahead((database, &command), status) => {
                self.store.pass_entry();
                Ok(Applied::Done)
            }
            loaded => loaded,
        }
    }

    /// Whether an operation of a snapshot changes nothing here because it is about a part of an
    /// object that the snapshot has not written yet: the part comes later, as the operation left
    /// it.
    fn is_ahead(&self, (database, command): (Database, &Command<'_>), status: Status) -> bool {
        let (Command::Of { key, .. } | Command::SetBit { key, .. }) = *command else {
            return false;
        };
        let found = self.store.found(key, self.store.hash(database, key));
        let is_filling = |found: Found| match command {
            // Of a long string, whose other bytes are zeros.
            Command::SetBit { .. } => true,
            _ => self.store.moves.is_filling(found.slot.slot),
        };
        matches!(status, Status::NotDone | Status::NotFound) && found.is_some_and(is_filling)
    }

    /// Carries a change out, if need be with memory of the reserve.
    fn carry_out(
        &mut self,
        of: (Database, &Command<'_>),
        origin: &Origin<'_>,
        now: Now,
    ) -> Result<Applied, ApplyError> {
        let mut more = 0;
        // Bounded: each turn lends something of the reserve, twice as much as the one before.
        loop {
            let carried_out = self.carry_out_once(of, origin, now);
            if carried_out != Err(ApplyError::Refused(Status::OutOfMemory)) {
                return carried_out;
            }
            more = if more == 0 { (given_bytes(of.1) + SPAN_BYTES) as u64 } else { 2 * more };
            if !self.store.slots.lend(more) {
                return carried_out;
            }
        }
    }

    fn carry_out_once(
        &mut self,
        (database, command): (Database, &Command<'_>),
        origin: &Origin<'_>,
        now: Now,
    ) -> Result<Applied, ApplyError> {
        // Nothing has expired by this clock.
        let now = Now { unix_ms: 0, ..now };
        let before = self.store.last_sequence();
        self.store.lag.begin_command();
        let status = match *command {
            Command::Flush | Command::FlushAll => {
                let only = matches!(command, Command::Flush).then_some(database);
                self.flush_applied(only, false, origin, now);
                Status::Ok
            }
            Command::MultiSet { pairs } => {
                let mut list = Vec::new();
                let own = pairs.iter().filter(|(key, _)| (origin.takes)(key));
                own.for_each(|(key, value)| Pairs::push(&mut list, key, value));
                let pairs = Pairs::parse(&list).expect("pairs of a checked list");
                match list.is_empty() {
                    true => Status::Ok,
                    false => {
                        let hash = KeyHash::without_key(database);
                        self.execute_write(&Command::MultiSet { pairs }, hash, now).status
                    }
                }
            }
            ref command => match command.key() {
                Some(key) if (origin.takes)(key) => {
                    let hash = self.hash_of(database, command);
                    self.execute_write(command, hash, now).status
                }
                Some(_) => Status::Ok,
                None => return Err(ApplyError::Malformed),
            },
        };
        match self.store.last_sequence() - before {
            0 if status != Status::Ok => Err(ApplyError::Refused(status)),
            0 if self.concerns(command, origin) => Err(ApplyError::Refused(Status::NotDone)),
            0 => {
                self.store.pass_entry();
                Ok(Applied::Elsewhere)
            }
            changes => {
                // A hostile primary may send one that is several. Each of them is logged by itself.
                let may_be_many = self.followed.is_live;
                assert!(changes == 1 || may_be_many, "an entry is {changes} changes");
                Ok(Applied::Done)
            }
        }
    }

    /// Whether an entry must change something here.
    fn concerns(&self, command: &Command<'_>, origin: &Origin<'_>) -> bool {
        match *command {
            Command::Flush | Command::FlushAll => true,
            Command::MultiSet { pairs } => pairs.iter().any(|(key, _)| (origin.takes)(key)),
            ref command => command.key().is_some_and(origin.takes),
        }
    }
}

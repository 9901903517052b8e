//! A change of two shards: something leaves a key of one shard for a key of the other (decision 0070).
//!
//! The shard that it leaves is *held*: its thread executes no commands until both parts are made. It
//! looks, and says which sequence its part will have. The other shard makes its part first, which may be
//! refused: then nothing has changed. The held shard's part follows, and cannot fail, as nothing has
//! changed there since the look, and memory is there.
//!
//! ```text
//! held shard          other shard
//!   hold, look
//!      -- command, part (held, 17) -->
//!                      first part: entry 9, names (held, 17) and (other, 9)
//!      <-- reply, part (other, 9) --
//!   second part: entry 17, names both
//!   let go
//! ```
//! Invariant: between the two parts no reader finds the key of the held shard: commands wait, and who
//! reads the memory finds a pending record, and asks. So no client sees what moves in both keys,
//! or in neither.

use super::Shard;
use super::room::weigh;
use crate::store::{JointPart, Now};
use remora_arena::{Journal, slot_of, state_in, withhold};
use remora_layout::hash::KeyHash;
use remora_layout::limits::JOINT_ROOM_BYTES;
use remora_layout::record::State;
use remora_log::Part;
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};

/// The reply to the command of a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartReply {
    /// How it went.
    pub status: Status,
    /// The operation's number.
    pub number: i64,
    /// The value, if any.
    pub value: Option<Vec<u8>>,
    /// The sequence that it waits for; 0 for none.
    pub wait: u64,
    /// The sequence of the entry that names both parts; `None` if nothing was changed.
    pub entry: Option<u64>,
}

impl PartReply {
    fn of(reply: &Reply<'_>) -> Self {
        let Reply { status, number, value, wait, .. } = *reply;
        Self { status, number, value: value.map(<[u8]>::to_vec), wait, entry: None }
    }

    fn refused(status: Status) -> Self {
        Self::of(&Reply::status(status))
    }
}

impl<J: Journal> Shard<J> {
    /// The number of the shard's log, by which parts name it.
    pub fn log_number(&self) -> u32 {
        self.store.options.log_shard
    }

    /// Something is to leave this key. Until [`Shard::let_go`] the caller executes nothing else, and
    /// readers of the memory do not find the key.
    ///
    /// # Errors
    /// The reply: the shard takes no changes, the key is on its way to another one, or there is no
    /// memory for what a removal writes.
    pub fn hold(&mut self, key: &[u8], hash: KeyHash) -> Result<(), Status> {
        if let Some(refusal) = self.store.refusal() {
            return Err(refusal);
        }
        if self.store.moves.has_dump(hash) {
            return Err(Status::TryAgain);
        }
        if self.store.slots.lendable_bytes() < JOINT_ROOM_BYTES {
            return Err(Status::OutOfMemory);
        }
        if let Some(found) = self.store.found(key, hash)
            && state_in(&self.store.owner, found.slot.slot) == State::Live
        {
            let slot = slot_of(&self.store.owner, found.slot.slot);
            withhold(&mut self.store.owner, slot, State::Pending);
        }
        Ok(())
    }

    /// Ends what [`Shard::hold`] has begun. Waiters for the key are looked at again.
    pub fn let_go(&mut self, key: &[u8], hash: KeyHash) {
        self.store.watched.note(hash);
        let Some(found) = self.store.found(key, hash) else { return };
        let slot = found.slot.slot;
        if state_in(&self.store.owner, slot) == State::Pending && !self.store.lag.withholds(slot) {
            let slot = slot_of(&self.store.owner, slot);
            self.store.show_again(slot, hash);
        }
    }

    /// Executes an encoded command that only reads, at a held shard.
    pub fn look_held(&mut self, bytes: &[u8], now: Now) -> PartReply {
        let Ok((database, command, _)) = Command::decode_within(bytes) else {
            return PartReply::refused(Status::Malformed);
        };
        if command.is_write() {
            return PartReply::refused(Status::Malformed);
        }
        let hash = self.hash_of(database, &command);
        PartReply::of(&self.execute_next(&command, hash, now))
    }

    /// Executes an encoded command as the first part of a change: `held` is the part of the held shard,
    /// which follows. If the command changes nothing, the held shard's part depends on what it waits
    /// for.
    pub fn first_part(&mut self, bytes: &[u8], held: Part, now: Now) -> PartReply {
        let Ok((database, command, _)) = Command::decode_within(bytes) else {
            return PartReply::refused(Status::Malformed);
        };
        let hash = self.hash_of(database, &command);
        // Their changes are none of this one.
        self.serve_waiters(now);
        self.store.joint = Some(JointPart::first(held));
        let mut reply = PartReply::of(&self.execute_next(&command, hash, now));
        reply.entry = self.store.joint.take().and_then(|joint| joint.sequence());
        let is_refused = reply.status != Status::Ok;
        assert!(!is_refused || reply.entry.is_none(), "what is refused has changed nothing");
        reply
    }

    /// Executes an encoded command that takes from the key of a held shard: the part behind `first`, or
    /// a change of this shard alone. Its entry has the next sequence.
    ///
    /// # Panics
    /// It changes nothing: the shard was not held, or its caller has not looked.
    pub fn second_part(&mut self, bytes: &[u8], first: Option<Part>, now: Now) -> PartReply {
        let Ok((database, command, _)) = Command::decode_within(bytes) else {
            return PartReply::refused(Status::Malformed);
        };
        let hash = self.hash_of(database, &command);
        let sequence = self.store.last_sequence() + 1;
        // Nothing is removed to make room: that would be the next entry.
        self.store.joint = Some(JointPart::second(first, sequence));
        self.store.slots.begin_lending();
        let mut more = JOINT_ROOM_BYTES;
        // Bounded: each turn lends something of the reserve, twice as much as the one before.
        let mut reply = loop {
            let depends_on = self.store.lag.begin_command();
            let mut reply = PartReply::of(&self.execute_once(&command, hash, now));
            reply.wait = depends_on.map_or(0, |of| of.sequence());
            if reply.status != Status::OutOfMemory || !self.store.slots.lend(more) {
                break reply;
            }
            more *= 2;
        };
        self.store.slots.end_lending();
        weigh(&mut self.store, &self.types);
        self.store.making_room.end();
        let entry = self.store.joint.take().and_then(|joint| joint.sequence());
        assert!(entry.is_some(), "a look at the held key has found what is taken: {reply:?}");
        reply.entry = entry;
        reply
    }
}

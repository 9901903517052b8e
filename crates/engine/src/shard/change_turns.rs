//! Operations in turns that change a key: they look for what they change, or change it in pieces.
//!
//! Invariant: a turn looks at the object, and executes its change as any command. No other command
//! comes between, so that others see nothing of the operation beside its changes, and the log has these
//! alone.

use super::Shard;
use crate::store::Now;
use crate::types::object::{ChangeStep, LongRead, On, Turn};
use remora_arena::Journal;
use remora_layout::hash::KeyHash;
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};

impl<J: Journal> Shard<J> {
    /// Continues such an operation for one turn; appends what it takes.
    ///
    /// # Errors
    /// The status of the reply; nothing is changed.
    pub(super) fn change_turn(
        &mut self,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        now: Now,
    ) -> Result<Turn, Status> {
        let (key, hash) = (read.key.take().unwrap_or_default(), read.hash);
        // What came since the last turn is first for those who wait for it.
        self.serve_key(hash, now);
        self.store.lag.begin_command();
        let on = On { key: &key, hash, now };
        let of = self.types.get_mut(read.type_id).ok_or(Status::Malformed)?;
        let step = of.change_turn(&mut self.store, on, read)?;
        read.key = Some(key);
        let turn =
            |ended, number, gives_value| Ok(Turn { ended, number, gives_value, ..Turn::default() });
        match step {
            ChangeStep::More => turn(false, 0, false),
            ChangeStep::Ended(number) => turn(true, number, read.taken.elements > 0),
            ChangeStep::Change { command, number } => {
                match self.execute_encoded(&command, hash, now)?.status {
                    Status::Ok => turn(true, number, false),
                    status => Err(status),
                }
            }
            ChangeStep::Read { command, state } => {
                match self.execute_encoded(&command, hash, now)?.status {
                    Status::Ok => {
                        (read.key, read.state) = (None, state);
                        turn(false, 0, false)
                    }
                    status => Err(status),
                }
            }
            ChangeStep::Take(command) => {
                let reply = self.execute_encoded(&command, hash, now)?;
                let value = reply.value.unwrap_or_default();
                let taken = &mut read.taken;
                match reply.status {
                    Status::Ok if reply.number > 0 => {
                        found.extend_from_slice(value);
                        taken.elements += reply.number as u64;
                        taken.bytes += value.len();
                        turn(false, taken.elements as i64, true)
                    }
                    // The reply has what was taken.
                    status if status == Status::Ok || taken.elements > 0 => {
                        turn(true, taken.elements as i64, true)
                    }
                    status => Err(status),
                }
            }
        }
    }

    fn execute_encoded(
        &mut self,
        bytes: &[u8],
        hash: KeyHash,
        now: Now,
    ) -> Result<Reply<'_>, Status> {
        let (_, command, _) = Command::decode_within(bytes).map_err(|(status, _)| status)?;
        Ok(self.execute_next(&command, hash, now))
    }
}

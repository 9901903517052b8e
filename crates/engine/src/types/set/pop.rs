//! SPOP of more members than one change may remove.
//!
//! All members of a set go as one change: the key is removed, and a read gives the members as they
//! were. A part of them goes in pieces, a turn and a change for each, and so do all of a set for which
//! the read might have to keep too much: others see the set between two pieces. The reply has each
//! member that has left, once.

use super::held::Sets;
use super::members::Members;
use crate::elements::{Held, Reading};
use crate::store::Store;
use crate::types::object::{ChangeStep, LongRead, On};
use remora_arena::Journal;
use remora_layout::kind::Kind;
use remora_layout::limits::{
    KEPT_PARTS_SHARE, MAX_COMMAND_ITEMS, POP_REPLY_BYTES, POP_TURN_BYTES, POP_TURN_MEMBERS,
};
use remora_protocol::Command;
use remora_protocol::elements::Told;
use remora_protocol::message::Status;
use remora_protocol::set::SetCommand;

/// The members that are asked for in all.
struct Popping(u64);

/// Begins to take so many members.
pub(super) fn begin(count: u64) -> LongRead {
    LongRead::new(Kind::SET, Box::new(Popping(count)))
}

fn encoded(on: On<'_>, command: &Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode_within(on.hash.database(), 0, &mut bytes);
    bytes
}

/// Bytes of a set that may go as one change: its members are kept until the client has taken them, and
/// the read must not be broken off for that.
fn most_kept<J: Journal>(store: &Store<J>) -> u64 {
    let kept = store.owner.region_bytes() as u64 / KEPT_PARTS_SHARE;
    (kept / 2).min(POP_REPLY_BYTES as u64)
}

impl Sets {
    /// The next piece.
    pub(super) fn pop_on<J: Journal>(
        store: &mut Store<J>,
        on: On<'_>,
        read: &mut LongRead,
    ) -> Result<ChangeStep, Status> {
        let taken = read.taken;
        let Popping(count) = read.state.downcast_mut().ok_or(Status::Malformed)?;
        let left = count.saturating_sub(taken.elements);
        let held = Self::find(store, on)?.filter(|_| left > 0 && taken.bytes < POP_REPLY_BYTES);
        let Some(held) = held else { return Ok(ChangeStep::Ended(taken.elements as i64)) };
        let members = Self::length(store, held);
        // Members that come to the key after it was empty are another set's.
        let left = left.min(members);
        *count = taken.elements + left;
        let piece = match held {
            Held::Whole(_) => left,
            Held::Parts(_) if taken.elements == 0 && left <= MAX_COMMAND_ITEMS as u64 => left,
            Held::Parts(root)
                if taken.elements == 0
                    && left >= members
                    && store.parts.of(root.slot.slot).bytes() <= most_kept(store) =>
            {
                let whole = (Some(held), members);
                let reading = Reading::all::<Members, J>(store, whole, Told::Names);
                let command = encoded(on, &Command::Del { key: on.key });
                return Ok(ChangeStep::Read { command, state: Box::new(reading) });
            }
            Held::Parts(root) => {
                let bytes = store.parts.of(root.slot.slot).bytes() / members.max(1);
                left.min(POP_TURN_MEMBERS).min((POP_TURN_BYTES / bytes.max(1)).max(1))
            }
        };
        // So small that it is one step.
        let count = piece.min(MAX_COMMAND_ITEMS as u64);
        let request = SetCommand::Pop { count }.request();
        Ok(ChangeStep::Take(encoded(on, &Command::Of { key: on.key, request })))
    }
}

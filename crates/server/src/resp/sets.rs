//! Small sets in another shard's memory: each lies whole in its record, which says of every member
//! whether it is there. If a read does not conclude, the owner answers.

use super::executor::{RespExecutor, Responder};
use super::hashes::Held;
use super::host::Host;
use remora_frontend::ShardAnswer;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::JOB_KEYS_PER_TURN;
use remora_layout::packed_set;
use remora_protocol::Request;
use remora_protocol::message::Status;
use remora_protocol::set::{SetCommand, packs};
use remora_resp::ReplyForm;

impl<H: Host> RespExecutor<H> {
    /// Answers a read of a set from its shard's memory, if that concludes. Whether it did.
    pub(super) fn read_set(
        &mut self,
        responder: &mut Responder,
        (key, at): (&[u8], (KeyHash, usize)),
        request: Request<'_>,
        form: ReplyForm,
    ) -> bool {
        let Request::Set(command) = request else { return false };
        let may = match command {
            SetCommand::ContainsMany { members } => members.iter().count() <= JOB_KEYS_PER_TURN,
            SetCommand::Contains { .. } | SetCommand::Length => true,
            _ => false,
        };
        let is_read = may && self.answer_set(responder, (key, at), command, form).is_some();
        let counts = self.host.thread_counts();
        counts.optimistic_reads.add(is_read.into());
        counts.asked_reads.add((may && !is_read).into());
        is_read
    }

    fn answer_set(
        &mut self,
        responder: &mut Responder,
        (key, at): (&[u8], (KeyHash, usize)),
        command: SetCommand<'_>,
        form: ReplyForm,
    ) -> Option<()> {
        let Held::Whole(from, to) = self.find_object(key, at, Kind::SET)? else { return None };
        let packed = &self.record[from..to];
        let (status, number, value) = match command {
            SetCommand::Length => (Status::Ok, packed_set::count(packed) as i64, None),
            SetCommand::Contains { member } if packs(packed, member) => (Status::Ok, 0, None),
            SetCommand::Contains { .. } => (Status::NotFound, 0, None),
            SetCommand::ContainsMany { members } => {
                let told: Vec<u8> =
                    members.iter().flatten().map(|of| u8::from(packs(packed, of))).collect();
                (Status::Ok, told.len() as i64, Some(told))
            }
            _ => return None,
        };
        let value = value.as_deref();
        responder.reply_answer(form, ShardAnswer { status, number, value });
        Some(())
    }
}

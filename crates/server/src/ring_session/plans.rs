//! Plans that sessions ask for. The shard's thread runs them; a session keeps their places in the order of
//! its replies, and sends each outcome in as many parts as it needs, a part a turn.

use super::frames::session_of;
use super::{RingSession, SessionError};
use remora_frontend::OwnedReply;
use remora_layout::database::Database;
use remora_plan::{Plan, bytes};
use remora_protocol::Reply;
use remora_protocol::message::Status;

impl RingSession {
    /// A client asks for a plan.
    pub(super) fn begin_plan(
        &mut self,
        (database, plan): (Database, &[u8]),
        id: u32,
    ) -> Result<(), SessionError> {
        let Some(plan) = bytes::decode(plan) else {
            return self.reply(&Reply::status(Status::Malformed), id);
        };
        let most_bytes = plan.limits().bytes;
        if !self.large.may_run_plan(most_bytes) {
            return self.reply(&Reply::status(Status::TryAgain), id);
        }
        self.plans.push((id, (database, plan)));
        let stamp = self.replies.stamp();
        self.large.await_outcome(session_of(id), (id, stamp), most_bytes);
        Ok(())
    }

    /// Plans that were asked for since the last call, with the ids of their requests.
    pub fn take_plans(&mut self) -> impl Iterator<Item = (u32, (Database, Plan))> {
        std::mem::take(&mut self.plans).into_iter()
    }

    /// A plan has ended, with its outcome or a refusal.
    pub fn end_plan(&mut self, id: u32, reply: OwnedReply) {
        self.large.end_plan(id, reply);
    }
}

//! What a session may do: requests are looked at before they are carried out.

use super::uploads::without_value;
use super::user::SessionUser;
use super::{RingSession, SessionError};
use remora_engine::Now;
use remora_layout::database::Database;
use remora_protocol::message::{Op, RequestHeader, Status};
use remora_protocol::{Command, Reply};

impl RingSession {
    /// The session is this user's. Without one it may do all.
    pub(crate) fn of_user(mut self, user: SessionUser) -> Self {
        if !user.rights.may_read() {
            self.replies.tell_no_pointers();
        }
        Self { user: Some(Box::new(user)), ..self }
    }

    /// Whether the user may do all, now.
    #[inline]
    pub(super) fn may_all(&self) -> bool {
        self.user.as_ref().is_none_or(|user| user.may_all())
    }

    /// Whether the user may not make this request; a refusal is noted.
    #[inline]
    pub(super) fn refuses(
        &mut self,
        (database, command): (Database, &Command<'_>),
        now: Now,
    ) -> bool {
        match &mut self.user {
            Some(user) if !user.may_all() => user.refuses(self.session, (database, command), now),
            _ => false,
        }
    }

    /// The status of a SET that the user may not make, before its value has come. What else comes in
    /// pieces is looked at when it is whole.
    pub(super) fn upload_refused(
        &mut self,
        frame: &[u8],
        header: &RequestHeader,
        now: Now,
    ) -> Option<Status> {
        if self.may_all() || header.of != 0 || header.op != Op::Set as u8 {
            return None;
        }
        let is_refused = self.refuses_encoded(&without_value(frame, header), now);
        is_refused.then_some(Status::NoPermission)
    }

    /// Whether the user may not make this request, which is encoded; a refusal is noted.
    pub(super) fn refuses_encoded(&mut self, command: &[u8], now: Now) -> bool {
        !self.may_all()
            && Command::decode_within(command)
                .is_ok_and(|(database, command, _)| self.refuses((database, &command), now))
    }

    /// Refuses a request that the user may not make.
    #[cold]
    pub(super) fn reply_no_permission(&mut self, id: u32) -> Result<(), SessionError> {
        self.reply(&Reply::status(Status::NoPermission), id)
    }
}

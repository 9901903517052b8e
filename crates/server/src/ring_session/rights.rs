//! What a session may do: requests are looked at before they are carried out.

use super::uploads::without_value;
use super::user::{SessionRights, SessionUser};
use super::{RingSession, SessionError};
use remora_engine::Now;
use remora_layout::database::Database;
use remora_protocol::message::{Op, REQUEST_HEADER_BYTES, RequestHeader, Status};
use remora_protocol::{Command, Reply};

impl RingSession {
    /// The session is this user's. Without one it may do all.
    pub(crate) fn of_user(mut self, user: SessionUser) -> Self {
        if !user.rights.may_read() {
            self.replies.tell_no_pointers();
        }
        Self { user: Some(Box::new(user)), ..self }
    }

    /// Whether the client may ask for the log. The control thread ends the session of a user that may not do
    /// all any more, if it could when the session was granted: what a session got later does not count.
    pub(super) fn may_follow(&self) -> bool {
        self.user.as_ref().is_none_or(|user| user.rights == SessionRights::All)
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

    /// Looks at a request of which pieces are to come, before memory is set aside for them: a SET, of which
    /// all but the value is known, as any request, and of others whether the user may do anything with the
    /// key. The others are looked at when they are whole; a SET is again, by what is returned.
    ///
    /// # Errors
    /// The status of the reply.
    pub(super) fn look_at_upload(
        &mut self,
        frame: &[u8],
        header: &RequestHeader,
        now: Now,
    ) -> Result<Option<Vec<u8>>, Status> {
        if self.may_all() {
            return Ok(None);
        }
        if header.of == 0 && header.op == Op::Set as u8 {
            let set = without_value(frame, header);
            return match self.refuses_encoded(&set, now) {
                true => Err(Status::NoPermission),
                false => Ok(Some(set)),
            };
        }
        let key = frame.get(REQUEST_HEADER_BYTES..).unwrap_or_default();
        let key = key.get(..header.key_bytes.get() as usize).ok_or(Status::Malformed)?;
        let may = self.user.as_ref().is_some_and(|user| user.may_touch(key));
        if may { Ok(None) } else { Err(Status::NoPermission) }
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

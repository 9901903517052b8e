//! The user of a session. One that may not do all has each request looked at, as over RESP.

use crate::users::UserTable;
use remora_acl::{Context, Denied, Login, Refusal};
use remora_engine::Now;
use remora_layout::database::Database;
use remora_protocol::Command;
use remora_resp::table::{Asked, asked};
use std::sync::Arc;

/// What a session may do. A later one may do more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SessionRights {
    /// Each request is looked at, and nothing is read by the client itself.
    Asks,
    /// The client reads all memory by itself; each request is looked at.
    Reads,
    /// All.
    All,
}

impl SessionRights {
    /// Those of a login, as of its last look at the users.
    pub fn of(login: &Login) -> Self {
        match (login.is_unrestricted(), login.reads_all()) {
            (true, _) => Self::All,
            (false, true) => Self::Reads,
            (false, false) => Self::Asks,
        }
    }

    /// Whether the client may read memory by itself.
    pub fn may_read(self) -> bool {
        self >= Self::Reads
    }

    /// Whether the client gets the table of shared pointers. A client that writes it can lead the READs of
    /// others to values of its own: only users that may do all get it.
    pub fn may_share_pointers(self) -> bool {
        self == Self::All
    }
}

/// See the module's text.
#[derive(Clone)]
pub struct SessionUser {
    users: Arc<UserTable>,
    login: Login,
    /// What the session may do as it was granted.
    pub rights: SessionRights,
}

impl SessionUser {
    /// The user of a session that is granted now.
    pub fn new(users: Arc<UserTable>, login: Login) -> Self {
        let rights = SessionRights::of(&login);
        Self { users, login, rights }
    }

    /// Whether the user may do all, as far as a look at the version shows.
    #[inline]
    pub fn may_all(&self) -> bool {
        self.login.may_all(self.users.published())
    }

    /// Whether the user may do anything with a key, as of the last look at the users.
    pub fn may_touch(&self, key: &[u8]) -> bool {
        self.login.user().is_some_and(|user| user.may_touch(key))
    }

    /// Why a request is refused, if it is; a refusal is noted.
    #[cold]
    pub fn refuses(
        &mut self,
        session: u64,
        (database, command): (Database, &Command<'_>),
        now: Now,
    ) -> bool {
        // The control thread ends the session of a user who was removed.
        if !self.login.review(self.users.published()) || !self.login.is_logged_in() {
            return true;
        }
        let Some(user) = self.login.user() else { return true };
        let asked = asked(database, command);
        let denied = match &asked {
            None => Some(Denied::Command),
            Some(asked) => asked.check(user).err(),
        };
        let Some(denied) = denied.filter(|_| !user.is_unrestricted()) else { return false };
        let object = asked.as_ref().map_or(&b"session"[..], |asked| Asked::object(asked, denied));
        let client = format!("session={session}");
        let (context, user) = (Context::TopLevel, user.name());
        let refusal =
            Refusal { reason: denied.into(), context, object, user, client: client.as_bytes() };
        self.users.refuse(&refusal, now.unix_ms);
        true
    }
}

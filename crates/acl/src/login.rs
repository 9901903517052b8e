//! The users that a server has now, and the login of a connection.

use crate::error::WRONG_PASSWORD;
use crate::user::User;
use crate::user_counts::LoginPermit;
use crate::users::Users;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The table of users that all threads share. Each change makes a new table with the next version:
/// connections compare versions, and look at the table only after a change.
#[derive(Debug)]
pub struct Published {
    version: AtomicU64,
    users: Mutex<Arc<Users>>,
    /// Logins of one user at a time, at most.
    most_logins: usize,
}

impl Published {
    /// These are the users.
    pub fn new(users: Users) -> Self {
        let users = Mutex::new(Arc::new(users));
        Self { version: AtomicU64::new(1), users, most_logins: usize::MAX }
    }

    /// So many connections and sessions may be logged in as one user at a time. Those that are `default`
    /// without a login do not count.
    pub fn with_most_logins(self, most_logins: usize) -> Self {
        Self { most_logins, ..self }
    }

    /// The version of the table; 0 is none.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The users as they are now.
    pub fn users(&self) -> Arc<Users> {
        Arc::clone(&self.lock())
    }

    /// Changes the users; one change waits for the other. After an error all is as before.
    ///
    /// # Errors
    /// Those of the change.
    pub fn change<R, E>(&self, change: impl FnOnce(&mut Users) -> Result<R, E>) -> Result<R, E> {
        let mut users = self.lock();
        let mut changed = Users::clone(&users);
        let done = change(&mut changed)?;
        *users = Arc::new(changed);
        self.version.fetch_add(1, Ordering::Release);
        Ok(done)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Users>> {
        // A change that panicked has changed nothing.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a login failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoginError {
    /// There is no such user, it is off, or its password is another one.
    #[error("{WRONG_PASSWORD}")]
    WrongPassword,
    /// As many are logged in as this user as may be.
    #[error("max number of logins of this user reached")]
    TooMany,
}

/// The login of a connection: its user, as of the version at which it looked.
///
/// ```
/// use remora_acl::{Login, Published, Users};
/// # use remora_acl::{CommandId, Commands};
/// # struct Table;
/// # impl Commands for Table {
/// #     fn count(&self) -> usize { 0 }
/// #     fn find(&self, _: &[u8], _: Option<&[u8]>) -> Option<CommandId> { None }
/// #     fn name(&self, _: CommandId) -> &str { "" }
/// #     fn subcommands(&self, _: CommandId) -> impl Iterator<Item = CommandId> { [].into_iter() }
/// #     fn categories(&self) -> &[&str] { &[] }
/// #     fn is_in(&self, _: CommandId, _: &str) -> bool { false }
/// #     fn needs_no_auth(&self, _: CommandId) -> bool { false }
/// # }
/// let published = Published::new(Users::new(&Table));
/// let mut login = Login::default();
/// assert!(login.review(&published) && login.is_logged_in());
/// published.change(|users| Ok::<_, ()>(users.require_password(&Table, b"secret"))).unwrap();
/// let mut other = Login::default();
/// assert!(other.review(&published) && !other.is_logged_in());
/// assert!(other.log_in(&published, b"default", b"secret").is_ok());
/// ```
#[derive(Clone, Default, Debug)]
pub struct Login {
    /// `None` before the first look at the users.
    user: Option<Arc<User>>,
    /// It has named a user with a password, or needed none when it came.
    is_authenticated: bool,
    /// A connection that names no user is `default` now.
    needs_none: bool,
    version: u64,
    /// It counts among the logins of its user.
    permit: Option<LoginPermit>,
}

impl Login {
    /// Whether the connection may do all, as far as a look at the version shows.
    #[inline]
    pub fn may_all(&self, published: &Published) -> bool {
        self.version == published.version() && self.is_unrestricted()
    }

    /// Whether it may do all, as of its last look.
    pub fn is_unrestricted(&self) -> bool {
        self.is_logged_in() && self.user.as_ref().is_some_and(|user| user.is_unrestricted())
    }

    /// Whether it may read all that keys hold, as of its last look.
    pub fn reads_all(&self) -> bool {
        self.is_logged_in() && self.user.as_ref().is_some_and(|user| user.reads_all())
    }

    /// Looks at the users if they have changed. False if the connection's user is no more, or is another
    /// one of that name: it must end.
    pub fn review(&mut self, published: &Published) -> bool {
        let version = published.version();
        if self.version == version {
            return true;
        }
        let users = published.users();
        let default = users.default_user();
        self.needs_none = default.is_on() && default.needs_no_password();
        self.user = match &self.user {
            None => {
                self.is_authenticated = self.needs_none;
                Some(Arc::clone(default))
            }
            // Another user of the same name is not it.
            Some(user) => users.get(user.name()).filter(|of| of.number() == user.number()).cloned(),
        };
        self.version = version;
        self.user.is_some()
    }

    /// Whether it may call what needs a login.
    #[inline]
    pub fn is_logged_in(&self) -> bool {
        self.is_authenticated || self.needs_none
    }

    /// AUTH.
    ///
    /// # Errors
    /// That is no user and its password, or too many are logged in as that user. Then all is as before.
    pub fn log_in(
        &mut self,
        published: &Published,
        name: &[u8],
        password: &[u8],
    ) -> Result<(), LoginError> {
        self.become_user(published, |users| users.authenticate(name, password))
    }

    /// The peer has shown that it is the user of this name, as by a certificate.
    ///
    /// # Errors
    /// There is no such user that is on, or too many are logged in as it. Then all is as before.
    pub fn certify(&mut self, published: &Published, name: &[u8]) -> Result<(), LoginError> {
        self.become_user(published, |users| users.get(name).filter(|user| user.is_on()))
    }

    fn become_user(
        &mut self,
        published: &Published,
        find: impl FnOnce(&Users) -> Option<&Arc<User>>,
    ) -> Result<(), LoginError> {
        let version = published.version();
        let users = published.users();
        let user = find(&users).ok_or(LoginError::WrongPassword)?;
        let is_same = self.user.as_ref().is_some_and(|own| {
            (own.name(), own.number()) == (user.name(), user.number()) && self.permit.is_some()
        });
        if !is_same {
            let permit = user.counts.take_login(published.most_logins);
            self.permit = Some(permit.ok_or(LoginError::TooMany)?);
        }
        (self.user, self.is_authenticated) = (Some(Arc::clone(user)), true);
        self.version = version;
        Ok(())
    }

    /// The user; `None` before the first look.
    pub fn user(&self) -> Option<&User> {
        self.user.as_deref()
    }
}

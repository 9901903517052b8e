//! The user that a client logs in as.

use std::fmt;
use std::sync::Arc;

/// A user's name and password; by default none: the user `default` without a password. No log shows the
/// password.
///
/// ```
/// use remora_fabric::Credentials;
/// let credentials = Credentials::new("alice", "secret");
/// assert_eq!(format!("{credentials:?}"), "Credentials { user: \"alice\", .. }");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    user: Arc<[u8]>,
    password: Arc<[u8]>,
}

impl Credentials {
    /// A user with its password.
    pub fn new(user: impl AsRef<[u8]>, password: impl AsRef<[u8]>) -> Self {
        Self { user: user.as_ref().into(), password: password.as_ref().into() }
    }

    /// The user; empty for `default`.
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// The password.
    pub fn password(&self) -> &[u8] {
        &self.password
    }

    /// Whether there is neither.
    pub fn are_none(&self) -> bool {
        self.user.is_empty() && self.password.is_empty()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = String::from_utf8_lossy(&self.user);
        f.debug_struct("Credentials").field("user", &user).finish_non_exhaustive()
    }
}

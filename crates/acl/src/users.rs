//! The table of users.

use crate::commands::Commands;
use crate::error::{DeleteError, RuleError, SetUserError};
use crate::password::PasswordHash;
use crate::pattern::is_one_word;
use crate::user::User;
use crate::words::join_selectors;
use remora_layout::limits::{
    MAX_ACL_HEAP_BYTES, MAX_ACL_PASSWORD_BYTES, MAX_ACL_USERS, MAX_ACL_WORD_BYTES,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The user of a connection that has not named one.
pub const DEFAULT_USER: &[u8] = b"default";

/// All users, by name. A copy shares them, so that a thread can publish a changed table to others.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: BTreeMap<Arc<[u8]>, Arc<User>>,
    /// The number of the next user ([`User::number`]).
    next_number: u64,
    heap_bytes: usize,
    /// They come from a file that has a line of `default`.
    pub(crate) names_default: bool,
}

impl Users {
    /// The users of a new server: `default`, which may do all and needs no password.
    pub fn new(commands: &impl Commands) -> Self {
        let mut users = Self::empty();
        users.put(User::new_default(commands)).expect("one user is within the limits");
        users
    }

    /// No users, not even `default`.
    pub(crate) fn empty() -> Self {
        Self { by_name: BTreeMap::new(), next_number: 1, heap_bytes: 0, names_default: false }
    }

    /// Whether they come from a file that says what `default` may do.
    pub fn names_default(&self) -> bool {
        self.names_default
    }

    /// The user with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// The user `default`.
    pub fn default_user(&self) -> &Arc<User> {
        self.get(DEFAULT_USER).expect("it cannot be removed")
    }

    /// All users by name: ACL USERS, and with [`User::describe`] ACL LIST.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// ACL SETUSER: makes a user, or changes it by all of these rules. Returns the user.
    ///
    /// # Errors
    /// A rule is wrong, or a limit is reached. Then nothing has changed.
    pub fn set_user<'a>(
        &mut self,
        commands: &impl Commands,
        name: &[u8],
        rules: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Arc<User>, SetUserError> {
        if !is_one_word(name) {
            return Err(SetUserError::BadName);
        }
        if name.len() > MAX_ACL_WORD_BYTES {
            return Err(SetUserError::Limit("MAX_ACL_WORD_BYTES"));
        }
        let rules = join_selectors(rules.into_iter())
            .map_err(|start| SetUserError::Unmatched(start.to_vec()))?;
        let mut user = match self.get(name) {
            Some(user) => User::clone(user),
            None => {
                let mut user = User::new(name);
                user.set_number(self.next_number);
                self.next_number += 1;
                user
            }
        };
        for rule in rules {
            user.apply(commands, &rule).map_err(|error| SetUserError::Rule { rule, error })?;
        }
        user.refresh(commands);
        self.put(user).map_err(SetUserError::Limit)
    }

    /// Puts a user in the place of that with its name. The error is the name of a limit.
    pub(crate) fn put(&mut self, user: User) -> Result<Arc<User>, &'static str> {
        let before = self.get(user.name()).map_or(0, |user| user.heap_bytes());
        if before == 0 && self.by_name.len() == MAX_ACL_USERS {
            return Err("MAX_ACL_USERS");
        }
        let after = user.heap_bytes();
        let heap_bytes = self.heap_bytes - before + after;
        if heap_bytes > MAX_ACL_HEAP_BYTES && after > before {
            return Err("MAX_ACL_HEAP_BYTES");
        }
        self.heap_bytes = heap_bytes;
        let user = Arc::new(user);
        self.by_name.insert(user.name().into(), Arc::clone(&user));
        Ok(user)
    }

    /// ACL LOAD: these are the users from now on. Connections of a user that is there again, with the
    /// same passwords, stay; those of others end.
    pub fn replace_by(&mut self, mut loaded: Self) {
        let mut next = self.next_number;
        for (name, user) in &mut loaded.by_name {
            let before = self.by_name.get(name);
            let same = before
                .filter(|before| before.has_passwords_of(user) || *before.name() == *DEFAULT_USER);
            let number = same.map_or(next, |before| before.number());
            next += u64::from(same.is_none());
            let user = Arc::make_mut(user);
            user.set_number(number);
            if let Some(same) = same {
                user.counts = same.counts.clone();
            }
        }
        loaded.next_number = next;
        *self = loaded;
    }

    /// ACL DELUSER: removes users, and returns those that were there. Their connections must be
    /// closed.
    ///
    /// # Errors
    /// One of them is `default`. Then none is removed.
    pub fn del_users<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a [u8]> + Clone,
    ) -> Result<Vec<Arc<User>>, DeleteError> {
        if names.clone().into_iter().any(|name| name == DEFAULT_USER) {
            return Err(DeleteError::Default);
        }
        let removed: Vec<_> =
            names.into_iter().filter_map(|name| self.by_name.remove(name)).collect();
        self.heap_bytes -= removed.iter().map(|user| user.heap_bytes()).sum::<usize>();
        Ok(removed)
    }

    /// AUTH: the user, if it is on and this is one of its passwords. The time does not tell how
    /// much of a password is right, nor whether a user exists, but for users that need no password
    /// or are off.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        if password.len() > MAX_ACL_PASSWORD_BYTES {
            return None;
        }
        let hash = PasswordHash::of(password);
        let user = self.get(name)?;
        let is_right = bool::from(user.has_password(&hash)) || user.needs_no_password();
        (user.is_on() && is_right).then_some(user)
    }

    /// `requirepass`: the one password of `default`; an empty one removes the need.
    pub fn require_password(&mut self, commands: &impl Commands, password: &[u8]) {
        let mut user = User::clone(self.default_user());
        let password = [b">", password].concat();
        let rules: [&[u8]; 2] =
            if password.len() > 1 { [b"resetpass", &password] } else { [b"nopass", b""] };
        for rule in rules {
            user.apply(commands, rule).expect("one password is within the limit");
        }
        user.refresh(commands);
        self.heap_bytes += user.heap_bytes();
        self.heap_bytes -= self.default_user().heap_bytes();
        self.by_name.insert(DEFAULT_USER.into(), Arc::new(user));
    }

    /// Adds a user as a line of the users' file gives it. All errors are collected.
    pub(crate) fn add_from_rules(
        &mut self,
        commands: &impl Commands,
        name: &[u8],
        rules: &[Vec<u8>],
    ) -> Vec<(Vec<u8>, RuleError)> {
        let mut user = User::new(name);
        let mut errors = Vec::new();
        for rule in rules {
            if let Err(error) = user.apply(commands, rule) {
                errors.push((rule.clone(), error));
            }
        }
        user.refresh(commands);
        if let Err(limit) = self.put(user) {
            errors.push((Vec::new(), RuleError::Limit(limit)));
        }
        errors
    }
}

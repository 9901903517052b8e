//! Errors of rules, in Redis's words.

use std::fmt;
use thiserror::Error;

/// Why a rule is refused. The texts are those of Redis 7.0, but for that of the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RuleError {
    /// No such rule, or bytes that no pattern may have.
    #[error("Syntax error")]
    Syntax,
    /// No such command, subcommand or category.
    #[error("Unknown command or category name in ACL")]
    Unknown,
    /// A key pattern beside all keys.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not \
         have any effect. Try 'resetkeys' to start with an empty list of patterns"
    )]
    AfterAllKeys,
    /// A channel pattern beside all channels.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
         not have any effect. Try 'resetchannels' to start with an empty list of channels"
    )]
    AfterAllChannels,
    /// The password to remove is none of the user's.
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    /// Not a SHA-256 hash.
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
         characters"
    )]
    BadHash,
    /// A first argument of a subcommand.
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgumentOfSubcommand,
    /// One of Remora's limits. Redis has none.
    #[error("Limit of {0} exceeded")]
    Limit(&'static str),
}

/// Why ACL SETUSER is refused. Then the user is as before.
#[derive(Clone, PartialEq, Eq, Error)]
pub enum SetUserError {
    /// The user's name has spaces or NULs.
    #[error("Usernames can't contain spaces or null characters")]
    BadName,
    /// A selector without an end.
    #[error("Unmatched parenthesis in acl selector starting at '{}'.", String::from_utf8_lossy(.0))]
    Unmatched(Vec<u8>),
    /// A rule is refused.
    #[error("Error in ACL SETUSER modifier '{}': {error}", String::from_utf8_lossy(rule))]
    Rule {
        /// The rule, which may be a password. It belongs into the reply only.
        rule: Vec<u8>,
        /// The reason.
        error: RuleError,
    },
    /// One of Remora's limits, of which no single rule is the cause.
    #[error("Limit of {0} exceeded")]
    Limit(&'static str),
}

/// Without the rule's bytes, which may be a password.
impl fmt::Debug for SetUserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName => f.write_str("BadName"),
            Self::Unmatched(_) => f.write_str("Unmatched(..)"),
            Self::Rule { error, .. } => write!(f, "Rule {{ error: {error:?}, .. }}"),
            Self::Limit(limit) => write!(f, "Limit({limit:?})"),
        }
    }
}

/// Why ACL DELUSER is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DeleteError {
    /// The user `default` stays.
    #[error("The 'default' user cannot be removed")]
    Default,
}

/// Why ACL DRYRUN has no verdict.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DryRunError {
    /// No such user.
    #[error("User '{}' not found", String::from_utf8_lossy(.0))]
    NoUser(Vec<u8>),
    /// No such command or subcommand. The name is that of the command.
    #[error("Command '{}' not found", String::from_utf8_lossy(.0))]
    NoCommand(Vec<u8>),
    /// The command takes another number of arguments.
    #[error("wrong number of arguments for '{0}' command")]
    ArgumentCount(String),
}

/// AUTH's error without its code `WRONGPASS`.
pub const WRONG_PASSWORD: &str = "invalid username-password pair or user is disabled.";

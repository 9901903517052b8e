//! A call of a command, as far as rights are about it, and how it is refused.

use crate::commands::CommandId;
use crate::pattern::Access;

/// A key of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key<'a> {
    /// Its place among the arguments, at which 0 is the command's name.
    pub at: usize,
    /// The key.
    pub bytes: &'a [u8],
    /// What the command does with it.
    pub access: Access,
}

/// A channel of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Channel<'a> {
    /// Its place among the arguments, at which 0 is the command's name.
    pub at: usize,
    /// The channel, or the pattern of channels.
    pub bytes: &'a [u8],
    /// Whether it is a pattern, as in PSUBSCRIBE. It must be one of the user's, byte for byte.
    pub is_pattern: bool,
}

/// A call of a command. Several selectors may have to walk its keys and channels.
#[derive(Clone, Debug)]
pub struct Call<'a, K, C> {
    /// The command, or the subcommand.
    pub command: CommandId,
    /// The argument behind the command's name.
    pub first_argument: Option<&'a [u8]>,
    /// The keys.
    pub keys: K,
    /// The channels.
    pub channels: C,
}

/// What a call is refused for. With several selectors it is the greatest of what each refuses: a
/// channel before a key before the command, and the later argument, as in Redis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Denied {
    /// No selector allows the command.
    Command,
    /// The key at this place among the arguments.
    Key {
        /// The place.
        at: usize,
    },
    /// The channel at this place among the arguments.
    Channel {
        /// The place.
        at: usize,
    },
}

impl Denied {
    /// The error reply without its code `NOPERM`. The name is the command's full one.
    pub fn error_text(self, command: &str) -> String {
        match self {
            Self::Command => {
                format!("this user has no permissions to run the '{command}' command")
            }
            Self::Key { .. } => {
                "this user has no permissions to access one of the keys used as arguments".into()
            }
            Self::Channel { .. } => {
                "this user has no permissions to access one of the channels used as arguments"
                    .into()
            }
        }
    }

    /// The reply of ACL DRYRUN. `argument` gives the argument at a place.
    pub fn dry_run_text<'a>(self, command: &str, argument: impl Fn(usize) -> &'a [u8]) -> Vec<u8> {
        let (at, kind) = match self {
            Self::Command => {
                let text = format!("This user has no permissions to run the '{command}' command");
                return text.into_bytes();
            }
            Self::Key { at } => (at, &b"' key"[..]),
            Self::Channel { at } => (at, &b"' channel"[..]),
        };
        [b"This user has no permissions to access the '", argument(at), kind].concat()
    }
}

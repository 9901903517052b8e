//! ACL LOG: what was refused.

use remora_layout::limits::{
    ACL_LOG_MERGE_ENTRIES, ACL_LOG_MERGE_MS, MAX_ACL_LOG_ENTRIES, MAX_ACL_WORD_BYTES,
};
use std::collections::VecDeque;

/// Why something was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The user may not run the command.
    Command,
    /// The user may not use the key.
    Key,
    /// The user may not name the channel.
    Channel,
    /// The password was wrong, or the user is off or missing.
    Auth,
}

impl Reason {
    /// The name in ACL LOG.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
            Self::Auth => "auth",
        }
    }
}

impl From<crate::call::Denied> for Reason {
    fn from(denied: crate::call::Denied) -> Self {
        match denied {
            crate::call::Denied::Command => Self::Command,
            crate::call::Denied::Key { .. } => Self::Key,
            crate::call::Denied::Channel { .. } => Self::Channel,
        }
    }
}

/// Where the command came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// A connection.
    TopLevel,
    /// A transaction.
    Multi,
    /// A script.
    Lua,
}

impl Context {
    /// The name in ACL LOG.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TopLevel => "toplevel",
            Self::Multi => "multi",
            Self::Lua => "lua",
        }
    }
}

/// One refusal, to be logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal<'a> {
    /// The reason.
    pub reason: Reason,
    /// The origin.
    pub context: Context,
    /// The full name of the command, the key, the channel, or the command's name as the client
    /// wrote it. It is never a password.
    pub object: &'a [u8],
    /// The user's name; for [`Reason::Auth`] the name that the client gave.
    pub user: &'a [u8],
    /// The client, as in CLIENT LIST.
    pub client: &'a [u8],
}

/// Refusals that are alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// How many there were.
    pub count: u64,
    /// The reason.
    pub reason: Reason,
    /// The origin.
    pub context: Context,
    /// What was refused, up to `MAX_ACL_WORD_BYTES`.
    pub object: Box<[u8]>,
    /// The user's name, up to `MAX_ACL_WORD_BYTES`.
    pub user: Box<[u8]>,
    /// The client of the last, up to `MAX_ACL_WORD_BYTES`.
    pub client: Box<[u8]>,
    /// The time of the last, in ms.
    pub at_ms: u64,
}

impl Entry {
    /// The time since the last refusal, in seconds.
    pub fn age_s(&self, now_ms: u64) -> f64 {
        now_ms.saturating_sub(self.at_ms) as f64 / 1000.0
    }
}

/// The last refusals, the newest first.
#[derive(Clone, Default, Debug)]
pub struct Log {
    entries: VecDeque<Entry>,
}

impl Log {
    /// Adds a refusal: to a recent entry that is like it, or as a new one. The time is in ms.
    pub fn add(&mut self, refusal: &Refusal<'_>, now_ms: u64) {
        let [object, user, client] = [refusal.object, refusal.user, refusal.client].map(shorten);
        let is_like = |entry: &Entry| {
            entry.reason == refusal.reason
                && entry.context == refusal.context
                && entry.at_ms.abs_diff(now_ms) <= ACL_LOG_MERGE_MS
                && *entry.object == *object
                && *entry.user == *user
        };
        let like = self.entries.iter().take(ACL_LOG_MERGE_ENTRIES).position(is_like);
        let count = like.and_then(|at| self.entries.remove(at)).map_or(0, |entry| entry.count);
        let (reason, context) = (refusal.reason, refusal.context);
        let [object, user, client] = [object, user, client].map(Box::from);
        let count = count.saturating_add(1);
        self.entries.push_front(Entry {
            count,
            reason,
            context,
            object,
            user,
            client,
            at_ms: now_ms,
        });
        self.entries.truncate(MAX_ACL_LOG_ENTRIES);
    }

    /// The entries, the newest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// ACL LOG RESET.
    pub fn reset(&mut self) {
        self.entries.clear();
    }
}

fn shorten(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(MAX_ACL_WORD_BYTES)]
}

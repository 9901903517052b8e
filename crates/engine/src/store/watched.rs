//! Keys that requests wait for, and those of them that changes have touched.
//!
//! Invariant: a key that is watched and has changed is noted once, in the order of the changes,
//! until it is taken. Without waiting requests a change costs one branch.

use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_protocol::Command;
use std::collections::{BTreeMap, VecDeque};

/// See the module's text.
#[derive(Default)]
pub(crate) struct WatchedKeys {
    /// By hash, whether the key is noted. Keys of one hash count as one.
    watched: BTreeMap<u64, bool>,
    noted: VecDeque<KeyHash>,
    /// Heap bytes that are kept for waiting requests.
    pub heap_bytes: u64,
}

impl WatchedKeys {
    /// Whether no request waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Whether a watched key has changed.
    #[inline(always)]
    pub fn has_noted(&self) -> bool {
        !self.noted.is_empty()
    }

    /// Requests wait for this key.
    pub fn watch(&mut self, hash: KeyHash) {
        self.watched.entry(hash.0).or_insert(false);
    }

    /// No request waits for this key any more. It may be noted still, with no effect.
    pub fn forget(&mut self, hash: KeyHash) {
        self.watched.remove(&hash.0);
    }

    /// A key may hold what is waited for.
    pub fn note(&mut self, hash: KeyHash) {
        if let Some(is_noted) = self.watched.get_mut(&hash.0)
            && !std::mem::replace(is_noted, true)
        {
            self.noted.push_back(hash);
        }
    }

    /// Whether requests for this key are to be looked at.
    pub fn is_noted(&self, hash: KeyHash) -> bool {
        self.watched.get(&hash.0) == Some(&true)
    }

    /// The key that was noted first.
    pub fn first_noted(&self) -> Option<KeyHash> {
        self.noted.front().copied()
    }

    /// Keys that are noted, and some that were taken since.
    pub fn noted(&self) -> usize {
        self.noted.len()
    }

    /// The requests for this key are served as far as it goes: it is noted by the next change. Behind
    /// others its place stays, with no effect.
    pub fn take(&mut self, hash: KeyHash) {
        if self.first_noted() == Some(hash) {
            self.noted.pop_front();
        }
        if let Some(is_noted) = self.watched.get_mut(&hash.0) {
            *is_noted = false;
        }
    }

    /// The requests for that key are looked at after those for the others.
    pub fn put_off_first(&mut self) {
        if let Some(hash) = self.noted.pop_front() {
            self.noted.push_back(hash);
        }
    }

    /// Notes the keys to which a command may give something. Only objects of types are waited for:
    /// a `MultiSet` makes none.
    #[cold]
    pub fn note_command(
        &mut self,
        (database, command): (Database, &Command<'_>),
        hash_of: impl Fn(Database, &[u8]) -> KeyHash,
    ) {
        if let Some(key) = command.key() {
            self.note(hash_of(database, key));
        }
        if let Command::Transfer { to, database, .. } = *command {
            self.note(hash_of(database, to));
        }
    }
}

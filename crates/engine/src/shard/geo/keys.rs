//! What commands on keys do to a GEO key: those that are about any key treat it
//! as one, those that are about strings refuse it, SET and MSET overwrite it.

use super::super::{Now, Shard, write};
use crate::command::{Command, Condition, Expiry, Reply};
use crate::shard::expire;
use remora_arena::Journal;
use remora_layout::hash::KeyHash;
use remora_layout::message::Status;
use remora_layout::record::MAX_EXPIRES_AT_MS;

/// What a SET does to a key, and whether its old value is asked for.
pub(in crate::shard) type SetTerms = (Condition, Expiry, bool);

impl<J: Journal> Shard<J> {
    /// Whether a key is a GEO key. One that has expired is removed.
    pub(in crate::shard) fn meets_geo(&mut self, key: &[u8], hash: KeyHash, now: Now) -> bool {
        if self.geo.is_empty() {
            return false;
        }
        let Some(set) = self.geo.get(key, hash) else { return false };
        if set.expires_at_ms != 0 && set.expires_at_ms <= now.unix_ms {
            self.expire_geo(key, hash, now);
            return false;
        }
        true
    }

    fn expire_geo(&mut self, key: &[u8], hash: KeyHash, now: Now) {
        self.log.append(&Command::Del { key });
        self.drop_geo(key, hash, now);
        self.stats.expired += 1;
    }

    /// Removes some GEO keys that have expired.
    pub(in crate::shard) fn sweep_geo(&mut self, now: Now) {
        for _ in 0..SWEPT_KEYS {
            let Some((at_ms, key)) = self.geo.due.first() else { return };
            if *at_ms > now.unix_ms {
                return;
            }
            let key = key.clone();
            self.expire_geo(&key, self.hash(&key), now);
        }
    }

    /// Whether a command, not one of trees or GEO keys, is about a GEO key.
    pub(in crate::shard) fn is_geo_key(
        &mut self,
        command: &Command<'_>,
        hash: KeyHash,
        now: Now,
    ) -> bool {
        !matches!(command, Command::Tree { .. } | Command::Geo { .. })
            && command.key().is_some_and(|key| self.meets_geo(key, hash, now))
    }

    /// Executes a command on a GEO key, as [`Shard::is_geo_key`] says it is.
    pub(in crate::shard) fn on_geo_key(
        &mut self,
        command: &Command<'_>,
        hash: KeyHash,
        now: Now,
    ) -> Reply<'_> {
        let key = command.key().unwrap_or_default();
        let present = self.geo.get(key, hash).map_or(0, |set| set.expires_at_ms);
        match *command {
            Command::Del { .. } => {
                self.log.append(command);
                self.drop_geo(key, hash, now);
                Reply::number(1)
            }
            Command::Exists { .. } => Reply::number(1),
            Command::Ttl { .. } if present == 0 => Reply::number(-1),
            Command::Ttl { .. } => Reply::number((present - now.unix_ms) as i64),
            Command::Expire { at_ms, .. } if at_ms > MAX_EXPIRES_AT_MS => {
                Reply::status(Status::InvalidExpiry)
            }
            Command::Expire { at_ms, condition, .. } => {
                if !expire::is_allowed(condition, present, at_ms) {
                    return Reply::number(0);
                }
                if at_ms <= now.unix_ms {
                    self.log.append(&Command::Del { key });
                    self.drop_geo(key, hash, now);
                } else {
                    self.log.append(&Command::Expire {
                        key,
                        at_ms,
                        condition: crate::command::ExpireCondition::Always,
                    });
                    self.set_geo_expiry(key, hash, at_ms);
                }
                Reply::number(1)
            }
            Command::Set { value, condition, expiry, get, .. } => {
                match self.set_over_geo(key, hash, (condition, expiry, get), now) {
                    Ok((condition, expiry, get)) => {
                        let set = write::Set { key, hash, value, condition, expiry, get };
                        let Reply { status, pointer, .. } = self.set(set, now);
                        if status == Status::Ok {
                            self.drop_geo(key, hash, now);
                        }
                        Reply { pointer, ..Reply::status(status) }
                    }
                    Err(status) => Reply::status(status),
                }
            }
            _ => Reply::status(Status::WrongType),
        }
    }

    /// The terms of a SET of a key: over a GEO key as if it were not there,
    /// with the expiry that it would keep. The GEO key, no longer to be read, is
    /// to be dropped once the SET is done.
    ///
    /// # Errors
    /// The status to reply with: the old value cannot be given, or the key was
    /// to be absent.
    pub(in crate::shard) fn set_over_geo(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        (condition, expiry, get): SetTerms,
        now: Now,
    ) -> Result<SetTerms, Status> {
        if !self.meets_geo(key, hash, now) {
            return Ok((condition, expiry, get));
        }
        if get {
            return Err(Status::WrongType);
        }
        if condition == Condition::IfAbsent {
            return Err(Status::NotDone);
        }
        let present = self.geo.get(key, hash).map_or(0, |set| set.expires_at_ms);
        self.hide_geo(key, hash);
        let expiry = match expiry {
            Expiry::Keep if present != 0 => Expiry::At(present),
            Expiry::Keep => Expiry::Never,
            other => other,
        };
        Ok((Condition::Always, expiry, false))
    }

    /// Ends the reading of a key that is about to go or will expire: who read
    /// its successor never reads it again, nor after its time. If it stays
    /// after all, it is the shard's alone to search.
    pub(in crate::shard) fn hide_geo(&mut self, key: &[u8], hash: KeyHash) {
        if let Some(tree) = self.geo.get_mut(key, hash).and_then(|set| set.tree.as_mut()) {
            tree.hide(&mut self.owner);
        }
    }

    fn set_geo_expiry(&mut self, key: &[u8], hash: KeyHash, at_ms: u64) {
        self.hide_geo(key, hash);
        let Some(set) = self.geo.get_mut(key, hash) else { return };
        let before = std::mem::replace(&mut set.expires_at_ms, at_ms);
        let due = &mut self.geo.due;
        if before != 0 {
            due.remove(&(before, key.into()));
        }
        due.insert((at_ms, key.into()));
    }
}

/// Expired keys that one tick removes.
const SWEPT_KEYS: usize = 16;

//! A scan of all keys.

use crate::error::Error;
use crate::session::{KeyType, Session};
use remora_client_core as core;
use remora_protocol::{Command, ScannedKeys};
use std::collections::VecDeque;

/// About how many keys one request asks for.
const STEP_KEYS: u32 = 256;

/// A key that a scan has found.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ScannedKey {
    /// The key.
    pub key: Vec<u8>,
    /// What it holds.
    pub key_type: KeyType,
}

/// Iterates over all keys: [`Session::scan`](crate::Session::scan). It asks shard after shard, for
/// some keys at a time; after an error it continues where it was.
pub struct Scan<'s> {
    session: &'s mut core::Session,
    prefix: Vec<u8>,
    shard: usize,
    /// Where the next request to the shard begins.
    place: u32,
    found: VecDeque<ScannedKey>,
}

impl Session {
    /// All keys of the session's database, with their types, in no order. The scan finds a key that
    /// exists all the time at least once, also while others change.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// for found in session.scan() {
    ///     let found = found?;
    ///     println!("{}: {:?}", found.key.escape_ascii(), found.key_type);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&mut self) -> Scan<'_> {
        Scan::new(&mut self.core)
    }
}

impl<'s> Scan<'s> {
    pub(crate) fn new(session: &'s mut core::Session) -> Self {
        Self { session, prefix: Vec::new(), shard: 0, place: 0, found: VecDeque::new() }
    }

    /// Only keys that begin with these bytes. The server examines all keys nevertheless.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let couriers: Result<Vec<_>, _> = session.scan().prefix(b"courier:").collect();
    /// println!("{} couriers", couriers?.len());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn prefix(mut self, prefix: &[u8]) -> Self {
        self.prefix = prefix.to_vec();
        self
    }

    fn step(&mut self) -> Result<(), Error> {
        let command = Command::Scan { place: self.place, count: STEP_KEYS };
        let reply = self.session.ask_shard(self.shard, &command)?;
        for (kind, key) in ScannedKeys::new(reply.value.unwrap_or_default()) {
            if key.starts_with(&self.prefix) {
                let key_type = KeyType::of(kind);
                self.found.push_back(ScannedKey { key: key.to_vec(), key_type });
            }
        }
        self.place = reply.number as u32;
        self.shard += usize::from(self.place == 0);
        Ok(())
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<ScannedKey, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        // Bounded: each step advances in the order of the scan.
        while self.found.is_empty() {
            if self.shard == self.session.shards() {
                return None;
            }
            if let Err(error) = self.step() {
                return Some(Err(error));
            }
        }
        self.found.pop_front().map(Ok)
    }
}

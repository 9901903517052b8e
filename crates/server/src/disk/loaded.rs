//! What a data directory makes when it is loaded, without a server: to check a backup, and to restore
//! it into a server that runs.

use super::open::DataDirectory;
use super::progress::Progress;
use super::recovery::{RecoverAs, recover};
use crate::start_error::StartError;
use remora_arena::{NoJournal, Region, RegionKind};
use remora_engine::{Digest, Now, Shard, ShardOptions};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{MAX_ARENA_BYTES, MIN_ARENA_BYTES};
use remora_layout::slot::SlotTable;
use remora_protocol::message::Status;
use remora_protocol::{Command, ScannedKeys};
use std::path::Path;

/// Memory for a shard beside its data. Pages that are never touched take none.
const SPARE_BYTES: u64 = 64 << 20;
/// Keys that are looked up together.
const SCANNED: u32 = 256;

/// All keys of a data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// How many.
    pub keys: u64,
    /// The digest of all that they hold, as DEBUG DIGEST gives it.
    pub digest: String,
}

impl Loaded {
    /// As [`LoadedData::of`], and forgets the data again.
    ///
    /// # Errors
    /// Something is damaged, or there is too little memory.
    pub fn of(
        directory: &Path,
        max_memory_bytes: Option<u64>,
        watch: &dyn Fn(Progress),
    ) -> Result<Self, StartError> {
        Ok(LoadedData::of(directory, max_memory_bytes, watch)?.content())
    }
}

/// Takes a key, with its shard and its hash there; false for no more.
pub type EachKey<'a> = dyn FnMut(&mut Shard<NoJournal>, &[u8], KeyHash) -> bool + 'a;

/// The data of a directory, in memory of this process.
pub struct LoadedData {
    shards: Vec<(Region, Shard<NoJournal>)>,
}

impl LoadedData {
    /// Loads a directory that no server has. Nothing in the directory is changed. `max_memory_bytes`
    /// bounds that memory; `None` takes twice what the data took, and a little more.
    ///
    /// # Errors
    /// Something is damaged, or there is too little memory.
    pub fn of(
        directory: &Path,
        max_memory_bytes: Option<u64>,
        watch: &dyn Fn(Progress),
    ) -> Result<Self, StartError> {
        let data = DataDirectory::look(directory)?;
        let count = data.content.shards();
        let most =
            max_memory_bytes.unwrap_or(2 * data.content.used_bytes() + count as u64 * SPARE_BYTES);
        let bytes = (most / count as u64).clamp(MIN_ARENA_BYTES, MAX_ARENA_BYTES) & !4095;
        let mut shards = Vec::with_capacity(count);
        for number in 0..count {
            let region = Region::create("remora-check", RegionKind::Arena, bytes as usize)?;
            let owner = region.owner(NoJournal).expect("just created: it has no other owner");
            let options = ShardOptions {
                epoch: data.content.epoch(),
                log_secret: data.content.identity.secret,
                log_shard: number as u32,
                ..ShardOptions::default()
            };
            shards.push((region, Shard::new(owner, options)));
        }
        let mut all: Vec<&mut Shard<NoJournal>> =
            shards.iter_mut().map(|(_, shard)| shard).collect();
        recover(&data.content, (&mut all, RecoverAs::Primary), &SlotTable::even(count), watch)?;
        Ok(Self { shards })
    }

    /// How many keys there are, and their digest.
    pub fn content(&self) -> Loaded {
        let shards = || self.shards.iter().map(|(_, shard)| shard);
        let digest = shards().fold(Digest::default(), |sum, of| sum.with(of.digest()));
        let keys = shards().map(|of| of.stats().keys).sum();
        Loaded { keys, digest: digest.to_string() }
    }

    /// Keys of a database.
    pub fn keys_in(&self, database: Database) -> u64 {
        let of =
            |shard: &Shard<NoJournal>| shard.stats().databases[database.number() as usize].keys;
        self.shards.iter().map(|(_, shard)| of(shard)).sum()
    }

    /// Hands over the commands that make a key on another server ([`Shard::rebuild`]).
    ///
    /// # Errors
    /// As of [`Shard::rebuild`].
    pub fn rebuild(
        &mut self,
        (database, key): (Database, &[u8]),
        now: Now,
        each: &mut dyn FnMut(&Command<'_>),
    ) -> Result<(), Status> {
        let number = SlotTable::even(self.shards.len()).shard_of(key);
        let (_, shard) = &mut self.shards[number];
        let hash = shard.hash_of(database, &Command::Exists { key });
        shard.rebuild((key, hash), now, each)
    }

    /// Removes what has expired by this time.
    pub fn expire(&mut self, now: Now) {
        for database in Database::all() {
            self.each_key(database, now, &mut |shard, key, hash| {
                shard.execute(&Command::Exists { key }, hash, now);
                true
            });
        }
        for (_, shard) in &mut self.shards {
            shard.tick(now);
            // Bounded: each turn releases something.
            while shard.wants_release() {
                shard.release_some(now);
            }
        }
    }

    /// Visits the keys of a database, until `each` wants no more.
    pub fn each_key(&mut self, database: Database, now: Now, each: &mut EachKey<'_>) {
        for (_, shard) in &mut self.shards {
            let mut place = 0;
            // Bounded by the buckets of the table.
            loop {
                let scan = Command::Scan { place, count: SCANNED };
                let reply = shard.execute(&scan, KeyHash::without_key(database), now);
                place = reply.number as u32;
                let found = reply.value.unwrap_or_default().to_vec();
                for (_, key) in ScannedKeys::new(&found) {
                    let hash = shard.hash_of(database, &Command::Exists { key });
                    if !each(shard, key, hash) {
                        return;
                    }
                }
                if place == 0 {
                    break;
                }
            }
        }
    }
}

//! What a data directory makes when it is loaded, without a server: to check a backup.

use super::open::DataDirectory;
use super::progress::Progress;
use super::recovery::recover;
use crate::start_error::StartError;
use remora_arena::{NoJournal, Region, RegionKind};
use remora_engine::{Digest, Shard, ShardOptions};
use remora_layout::limits::{MAX_ARENA_BYTES, MIN_ARENA_BYTES};
use remora_layout::slot::SlotTable;
use std::path::Path;

/// Memory for a shard beside its data. Pages that are never touched take none.
const SPARE_BYTES: u64 = 64 << 20;

/// All keys of a data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// How many.
    pub keys: u64,
    /// The digest of all that they hold, as DEBUG DIGEST gives it.
    pub digest: String,
}

impl Loaded {
    /// Loads a directory that no server has into memory of this process, and forgets it again.
    /// Nothing in the directory is changed. `max_memory_bytes` bounds that memory; `None` takes twice
    /// what the data took, and a little more.
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
        recover(&data.content, &mut all, &SlotTable::even(count), watch)?;
        let digest = shards.iter().fold(Digest::default(), |sum, (_, of)| sum.with(of.digest()));
        let keys = shards.iter().map(|(_, shard)| shard.stats().keys).sum();
        Ok(Self { keys, digest: digest.to_string() })
    }
}

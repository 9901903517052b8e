//! The keys that a server has evicted, and when, from its shards' logs, which are the only source.

use remora_arena::Journal;
use remora_engine::Shard;
use remora_layout::database::Database;
use remora_log::{Assembler, Frames};
use remora_protocol::Command;

/// Keys that were removed, by eviction or otherwise.
#[derive(Clone, Debug)]
pub struct Removed {
    /// The key; `None` stands for any key, if the log no longer shows it.
    pub key: Option<(Database, Vec<u8>)>,
    /// Not before this time, virtual ns.
    pub from_ns: u64,
    /// Not after this one, if the key is known.
    pub to_ns: u64,
}

/// How far one shard's evictions are known.
#[derive(Clone, Default)]
pub(super) struct Follower {
    sequence: u64,
    evicted: u64,
    looked_ns: u64,
}

impl Follower {
    /// Appends the keys removed since the last look, if any key was evicted.
    pub fn look<J: Journal>(&mut self, shard: &Shard<J>, now_ns: u64, removed: &mut Vec<Removed>) {
        let (evicted, last) = (shard.stats().evicted, shard.last_sequence());
        if evicted > self.evicted {
            self.read(shard, now_ns, removed);
        }
        *self = Self { sequence: last, evicted, looked_ns: now_ns };
    }

    fn read<J: Journal>(&self, shard: &Shard<J>, to_ns: u64, removed: &mut Vec<Removed>) {
        let (log, from_ns) = (shard.log(), self.looked_ns);
        let mut bytes = Vec::new();
        let is_read = log
            .cursor(self.sequence + 1)
            .is_ok_and(|mut cursor| log.read(&mut cursor, usize::MAX, &mut bytes).is_ok());
        if !is_read {
            removed.push(Removed { key: None, from_ns, to_ns });
            return;
        }
        let mut assembler = Assembler::new(self.sequence + 1, usize::MAX);
        for frame in Frames::new(&bytes, log.key()) {
            let entry = assembler.take(frame.expect("the log wrote it"));
            let Some(entry) = entry.expect("the log wrote it in order") else { continue };
            if let Ok((database, Command::Del { key }, _)) = Command::decode_within(entry.operation)
            {
                let key = Some((database, key.to_vec()));
                removed.push(Removed { key, from_ns, to_ns });
            }
        }
    }
}

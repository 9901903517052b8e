//! What this end lets its peer read and write.

use super::frame::Refused;
use remora_arena::Words;
use remora_layout::limits::MAX_REGIONS;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What a peer may do with a region: one of the two, never both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// READ: an arena.
    Read,
    /// WRITE: this peer's mailbox.
    Write,
}

enum Entry {
    Absent,
    Exposed(Words, Access),
    Withdrawn,
}

struct Table {
    entries: Vec<Entry>,
    /// The whole session is over.
    all_withdrawn: bool,
}

/// The regions of one connection. Every access by the peer happens under the
/// read lock, so that whoever has withdrawn a region knows that no access to
/// it is under way any more.
pub(super) struct Regions {
    table: RwLock<Table>,
}

impl Regions {
    pub fn new() -> Self {
        Self { table: RwLock::new(Table { entries: Vec::new(), all_withdrawn: false }) }
    }

    pub fn expose(&self, region: u32, words: Words, access: Access) {
        let index = region as usize;
        assert!(index < MAX_REGIONS, "region {region}: our own numbers are small");
        let mut table = self.write();
        if table.entries.len() <= index {
            table.entries.resize_with(index + 1, || Entry::Absent);
        }
        table.entries[index] = Entry::Exposed(words, access);
    }

    pub fn withdraw(&self, region: u32) {
        if let Some(entry) = self.write().entries.get_mut(region as usize)
            && matches!(entry, Entry::Exposed(..))
        {
            *entry = Entry::Withdrawn;
        }
    }

    pub fn withdraw_all(&self) {
        let mut table = self.write();
        table.all_withdrawn = true;
        table.entries.clear();
    }

    /// Runs `access` on the checked range, or says why it may not.
    pub fn with<T>(
        &self,
        wanted: Access,
        region: u32,
        offset: u64,
        bytes: usize,
        access: impl FnOnce(&Words, usize) -> T,
    ) -> Result<T, Refused> {
        let table = self.read();
        if table.all_withdrawn {
            return Err(Refused::Withdrawn);
        }
        let (words, allowed) = match table.entries.get(region as usize) {
            None | Some(Entry::Absent) => return Err(Refused::NoSuchRegion),
            Some(Entry::Withdrawn) => return Err(Refused::Withdrawn),
            Some(Entry::Exposed(words, allowed)) => (words, *allowed),
        };
        let offset = words.check(offset, bytes).map_err(|_| Refused::OutOfBounds)?;
        match (wanted, allowed) {
            (Access::Read, Access::Write) => Err(Refused::NotReadable),
            (Access::Write, Access::Read) => Err(Refused::NotWritable),
            _ => Ok(access(words, offset)),
        }
    }

    // Nothing panics while it holds the lock half way through a change.
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The regions of this end that its peer may read and write.

use super::frame::Refused;
use remora_arena::{ReadView, Words};
use remora_layout::limits::MAX_REGIONS;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The access of a peer to a region: one of the two, never both.
pub enum Exposed {
    /// READ: an arena.
    Readable(ReadView),
    /// WRITE: this peer's mailbox.
    Writable(Words),
}

enum Entry {
    Absent,
    Exposed(Exposed),
    Withdrawn,
}

struct Table {
    entries: Vec<Entry>,
    /// The whole session is over.
    all_withdrawn: bool,
}

impl Table {
    /// The region, and where the range begins that has to lie in it.
    fn checked(
        &self,
        region: u32,
        offset: u64,
        bytes: usize,
    ) -> Result<(&Exposed, usize), Refused> {
        if self.all_withdrawn {
            return Err(Refused::Withdrawn);
        }
        let exposed = match self.entries.get(region as usize) {
            None | Some(Entry::Absent) => return Err(Refused::NoSuchRegion),
            Some(Entry::Withdrawn) => return Err(Refused::Withdrawn),
            Some(Entry::Exposed(exposed)) => exposed,
        };
        let checked = match exposed {
            Exposed::Readable(view) => view.check(offset, bytes),
            Exposed::Writable(words) => words.check(offset, bytes),
        };
        Ok((exposed, checked.map_err(|_| Refused::OutOfBounds)?))
    }
}

/// The regions of one connection. Every access by the peer happens under the read lock, so that
/// after a withdrawal no access to the region is in flight.
pub(super) struct Regions {
    table: RwLock<Table>,
}

impl Regions {
    pub fn new() -> Self {
        Self { table: RwLock::new(Table { entries: Vec::new(), all_withdrawn: false }) }
    }

    pub fn expose(&self, region: u32, exposed: Exposed) {
        let index = region as usize;
        assert!(index < MAX_REGIONS, "region {region}: our own numbers are small");
        let mut table = self.write();
        if table.entries.len() <= index {
            table.entries.resize_with(index + 1, || Entry::Absent);
        }
        table.entries[index] = Entry::Exposed(exposed);
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

    /// Runs `read` on the checked range, or says why it may not.
    pub fn with_readable<T>(
        &self,
        region: u32,
        offset: u64,
        bytes: usize,
        read: impl FnOnce(&ReadView, usize) -> T,
    ) -> Result<T, Refused> {
        match self.read().checked(region, offset, bytes)? {
            (Exposed::Readable(view), at) => Ok(read(view, at)),
            (Exposed::Writable(_), _) => Err(Refused::NotReadable),
        }
    }

    /// Runs `write` on the checked range, or says why it may not.
    pub fn with_writable<T>(
        &self,
        region: u32,
        offset: u64,
        bytes: usize,
        write: impl FnOnce(&Words, usize) -> T,
    ) -> Result<T, Refused> {
        match self.read().checked(region, offset, bytes)? {
            (Exposed::Writable(words), at) => Ok(write(words, at)),
            (Exposed::Readable(_), _) => Err(Refused::NotWritable),
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

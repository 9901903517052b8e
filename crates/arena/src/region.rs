//! Regions: the memory that a server shares, and the rules about its writers.

use crate::asleep::AsleepWord;
use crate::journal::Journal;
use crate::mapping::{MapError, Mapping};
use crate::numa;
use crate::owner::Owner;
use crate::view::ReadView;
use crate::words::Words;
use remora_layout::arena_header::word;
use remora_layout::limits::WORD_BYTES;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::ProtFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The purpose of a region; it decides which side may write it (design, "Memory").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// Peers read it, its one [`Owner`] writes it.
    Arena,
    /// Peers read it, any thread of its creator writes it: the mailbox into
    /// which the server writes for a client.
    Readable,
    /// One peer writes it: the mailbox of a client at the server.
    Mailbox,
    /// Every peer writes it, and no reader relies on it: any word may hold anything at any time.
    Hints,
}

/// A region of the server: a sealed memfd, mapped writable by its creator.
pub struct Region {
    mapping: Arc<Mapping>,
    fd: OwnedFd,
    kind: RegionKind,
    owned: AtomicBool,
}

impl Region {
    /// Creates, sizes, maps and seals a memfd (in this order: FUTURE_WRITE
    /// leaves the creator's own mapping writable and refuses every later one).
    pub fn create(name: &str, kind: RegionKind, bytes: usize) -> Result<Self, MapError> {
        let kernel = |step| move |source| MapError::Kernel { step, bytes, source };
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(kernel("create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(kernel("reserve"))?;
        let mapping = Mapping::map(fd.as_fd(), ProtFlags::READ | ProtFlags::WRITE, bytes)?;
        let mut seals = SealFlags::SHRINK | SealFlags::GROW;
        if matches!(kind, RegionKind::Arena | RegionKind::Readable) {
            seals |= SealFlags::FUTURE_WRITE;
        }
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(kernel("seal"))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SEAL).map_err(kernel("seal"))?;
        Ok(Self { mapping: Arc::new(mapping), fd, kind, owned: AtomicBool::new(false) })
    }

    /// A view that any thread may read.
    pub fn view(&self) -> ReadView {
        ReadView::new(Words::new(Arc::clone(&self.mapping)))
    }

    /// The words of the region, for any thread of this process to write.
    ///
    /// # Panics
    /// It is an arena: only its owner writes that.
    pub fn words(&self) -> Words {
        assert!(self.kind != RegionKind::Arena, "an arena is its owner's to write");
        Words::new(Arc::clone(&self.mapping))
    }

    /// The word by which an arena's shard says that it sleeps. The thread that
    /// sleeps need not hold the owner; no slice that the owner gives out covers
    /// this word.
    ///
    /// # Panics
    /// It is no arena: [`Region::words`] gives every word of another region.
    pub fn asleep_word(&self) -> AsleepWord {
        assert!(self.kind == RegionKind::Arena, "another region's words are anybody's");
        AsleepWord::new(Words::new(Arc::clone(&self.mapping)), word::ASLEEP)
    }

    /// The region's owner: the single writer, which may hold plain references. `None` if the region
    /// is no arena, and for the second caller.
    pub fn owner<J: Journal>(&self, journal: J) -> Option<Owner<J>> {
        if self.kind != RegionKind::Arena || self.owned.swap(true, Ordering::Relaxed) {
            return None;
        }
        // SAFETY: mapped writable by `create`; peers can only map it read-only
        // (FUTURE_WRITE), and `words` gives no other owner a store; this is its
        // first and only owner. The asleep word lies before its first slice.
        Some(unsafe { Owner::new(&self.mapping, (word::ASLEEP + 1) * WORD_BYTES, journal) })
    }

    /// Asks the kernel to take this region's pages from one NUMA node where it can (H5). Call it
    /// before any thread touches them.
    pub fn prefer_node(&self, node: u32) -> Result<(), MapError> {
        let bytes = self.mapping.bytes();
        // SAFETY: the whole of this region's own mapping.
        unsafe { numa::prefer_node(self.mapping.base(), bytes, node) }
            .map_err(|source| MapError::Kernel { step: "choose a node for", bytes, source })
    }

    /// First byte.
    #[cfg(all(test, not(miri)))]
    pub(crate) fn base(&self) -> *const u8 {
        self.mapping.base()
    }

    /// Gives the pages of a range back to the system; they read as zero from then on. Only for a
    /// mailbox: the seals of an arena forbid it. It affects whole pages inside the range, as far as
    /// the kernel supports it.
    pub fn discard(&self, offset: usize, bytes: usize) {
        assert!(self.kind == RegionKind::Mailbox, "arenas keep their pages");
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        // If the kernel refuses, the memory stays in use, and nothing else happens.
        let _ = rustix::fs::fallocate(&self.fd, flags, offset as u64, bytes as u64);
    }

    /// The descriptor to pass to peers.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

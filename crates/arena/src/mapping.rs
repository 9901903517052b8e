//! Mappings: sealed memfds and files that processes share, and heap words for tests. Memory that a
//! server creates is a `region`.

use crate::huge::HugeTable;
use remora_layout::limits::WORD_BYTES;
use rustix::fs::SealFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// Heap words from this size on lie on large pages.
const LARGE_BYTES: usize = 16 << 20;

/// Why the process got no memory.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The kernel refused.
    #[error("cannot {step} {bytes} bytes of shared memory")]
    Kernel {
        /// The step that failed.
        step: &'static str,
        /// The size asked for.
        bytes: usize,
        /// The kernel's error.
        source: rustix::io::Errno,
    },
    /// A descriptor does not have the expected properties.
    #[error("the shared memory is not acceptable: {0}")]
    Unacceptable(&'static str),
}

/// Memory of a fixed size and address, for as long as this value lives.
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

/// What a mapping of a peer's memory is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write,
}

enum Origin {
    Mapped,
    Heap,
    /// Freed with the table.
    Large {
        _words: HugeTable<u64>,
    },
}

// SAFETY: a mapping is plain memory at a fixed address that no thread owns;
// all access to it goes through `Words`, `ReadView` and `Owner`.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access is by atomic or opaque accesses only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed heap words: for Miri, tests, the simulator, and trees that one process has for
    /// itself. Many of them lie on large pages, as a region does, if the kernel has them.
    pub fn heap(bytes: usize) -> Arc<Self> {
        if bytes >= LARGE_BYTES && !cfg!(miri) {
            let mut words = HugeTable::<u64>::zeroed(bytes.div_ceil(WORD_BYTES));
            let base = NonNull::from(&mut words[..]).cast::<u8>();
            let bytes = bytes.next_multiple_of(WORD_BYTES);
            return Arc::new(Self { base, bytes, origin: Origin::Large { _words: words } });
        }
        let words = vec![0u64; bytes.div_ceil(WORD_BYTES)].into_boxed_slice();
        let base = NonNull::from(Box::leak(words)).cast::<u8>();
        Arc::new(Self { base, bytes: bytes.next_multiple_of(WORD_BYTES), origin: Origin::Heap })
    }

    /// Maps a descriptor that a server passed, for writing: a mailbox or hints. It checks the seals
    /// first: without them the peer could truncate the file while this process uses it (SIGBUS). A
    /// [`ReadView`](crate::ReadView) maps memory that is only read.
    pub fn of_peer(fd: BorrowedFd<'_>, bytes: usize) -> Result<Arc<Self>, MapError> {
        Self::check_seals(fd, bytes)?;
        Self::map_shared(fd, Use::Write, bytes)
    }

    /// As [`Mapping::of_peer`], for reading only.
    pub(crate) fn of_peer_to_read(fd: BorrowedFd<'_>, bytes: usize) -> Result<Arc<Self>, MapError> {
        Self::check_seals(fd, bytes)?;
        Self::map_shared(fd, Use::Read, bytes)
    }

    fn check_seals(fd: BorrowedFd<'_>, bytes: usize) -> Result<(), MapError> {
        let kernel = |step| move |source| MapError::Kernel { step, bytes, source };
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(kernel("check the seals of"))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL) {
            return Err(MapError::Unacceptable("it is not sealed against a change of size"));
        }
        Ok(())
    }

    /// Maps a file of this user's own for hints. Nothing seals a file: another process of the user
    /// that truncates it ends this process (SIGBUS), as it could by a signal. The caller checks
    /// that the file belongs to this user alone.
    pub fn of_own_file(fd: BorrowedFd<'_>, bytes: usize) -> Result<Arc<Self>, MapError> {
        Self::map_shared(fd, Use::Write, bytes)
    }

    /// Maps a descriptor whose file has this size.
    fn map_shared(fd: BorrowedFd<'_>, to: Use, bytes: usize) -> Result<Arc<Self>, MapError> {
        let kernel = |step| move |source| MapError::Kernel { step, bytes, source };
        let size = rustix::fs::fstat(fd).map_err(kernel("stat"))?.st_size;
        if usize::try_from(size) != Ok(bytes) {
            return Err(MapError::Unacceptable("it has another size than announced"));
        }
        let protection = match to {
            Use::Read => ProtFlags::READ,
            Use::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let mapping = Self::map(fd, protection, bytes)?;
        if to == Use::Write {
            // A forked child must not write into its parent's rings, and has no session that would
            // use the hints.
            // SAFETY: the range is the mapping just made; a child that touches
            // it faults instead of corrupting the parent's session.
            unsafe {
                rustix::mm::madvise(mapping.base.as_ptr().cast(), bytes, Advice::LinuxDontFork)
            }
            .map_err(kernel("keep from children"))?;
        }
        Ok(Arc::new(mapping))
    }

    /// Maps `fd` shared with this protection.
    pub(crate) fn map(
        fd: BorrowedFd<'_>,
        protection: ProtFlags,
        bytes: usize,
    ) -> Result<Self, MapError> {
        let kernel = |source| MapError::Kernel { step: "map", bytes, source };
        if bytes == 0 || !bytes.is_multiple_of(WORD_BYTES) {
            return Err(MapError::Unacceptable("its size is not a positive number of words"));
        }
        // SAFETY: a new shared mapping at an address of the kernel's choice;
        // the file's size is sealed, so that no access can fault, or it is a
        // file of the user's own, and one that is cut short ends the process.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0)
        }
        .map_err(kernel)?;
        // SAFETY: the range just mapped. The kernel refuses if shared memory has no large pages
        // (shmem_enabled is not "advise"); small pages then suffice.
        let _ = unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast::<u8>()).expect("mmap never returns null");
        Ok(Self { base, bytes, origin: Origin::Mapped })
    }

    /// First byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Size in bytes, a multiple of eight.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: the mapping was made by `map` with this address and
            // size, and nothing refers to it any more.
            Origin::Mapped => unsafe {
                let _ = rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes);
            },
            // SAFETY: leaked from a box of this many words by `heap`.
            Origin::Heap => unsafe {
                let words = std::ptr::slice_from_raw_parts_mut(
                    self.base.as_ptr().cast::<u64>(),
                    self.bytes / WORD_BYTES,
                );
                drop(Box::from_raw(words));
            },
            Origin::Large { .. } => {}
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::{ReadView, Region, RegionKind, Words};
    use remora_layout::arena_header::word;
    use rustix::fs::MemfdFlags;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn seals_hold() {
        let region = Region::create("test", RegionKind::Readable, 8192).unwrap();
        let file = File::from(region.fd().try_clone_to_owned().unwrap());
        assert!(file.set_len(4096).is_err(), "shrinking is refused");
        assert!(file.set_len(16384).is_err(), "growing is refused");
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err(), "writing is refused");
        assert!(Mapping::of_peer(region.fd(), 8192).is_err());
        let view = ReadView::of_peer(region.fd(), 8192).unwrap();
        region.words().store(3, 77);
        assert_eq!(view.load(3), 77);
        assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE).is_err(), "sealed for good");
    }

    #[test]
    fn a_peer_checks_what_it_is_given() {
        let unsealed = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 4096).unwrap();
        assert!(ReadView::of_peer(unsealed.as_fd(), 4096).is_err());
        let region = Region::create("test", RegionKind::Mailbox, 8192).unwrap();
        assert!(Mapping::of_peer(region.fd(), 4096).is_err(), "wrong size");
        let mailbox = Mapping::of_peer(region.fd(), 8192).unwrap();
        Words::new(mailbox).store(0, 5);
        assert_eq!(region.words().load(0), 5);
    }

    #[test]
    fn a_file_of_ones_own_is_shared_if_it_has_its_size() {
        let file = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        assert!(Mapping::of_own_file(file.as_fd(), 4096).is_err(), "wrong size");
        let views = [(); 2].map(|()| Words::new(Mapping::of_own_file(file.as_fd(), 8192).unwrap()));
        views[0].store(7, 9);
        assert_eq!(views[1].load(7), 9);
    }

    #[test]
    fn hints_are_everyones_to_write_and_nobodys_to_own_or_resize() {
        let region = Region::create("test", RegionKind::Hints, 8192).unwrap();
        assert!(region.owner(crate::NoJournal).is_none());
        let peers = [(); 2].map(|()| Words::new(Mapping::of_peer(region.fd(), 8192).unwrap()));
        peers[0].store(5, 1);
        peers[1].store(6, 2);
        assert_eq!((peers[1].load(5), peers[0].load(6), region.words().load(6)), (1, 2, 2));
        let file = File::from(region.fd().try_clone_to_owned().unwrap());
        assert!(file.set_len(4096).is_err() && file.set_len(16384).is_err());
        assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE).is_err(), "sealed for good");
    }

    #[test]
    fn a_peer_wants_all_seals_and_whole_words() {
        let all = [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL];
        for missing in all {
            let fd = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&fd, 4096).unwrap();
            // The seal against further seals comes last.
            for seal in all.into_iter().filter(|&seal| seal != missing) {
                rustix::fs::fcntl_add_seals(&fd, seal).unwrap();
            }
            let mapped = Mapping::of_peer(fd.as_fd(), 4096);
            assert!(matches!(mapped, Err(MapError::Unacceptable(_))), "without {missing:?}");
        }
        for bytes in [0, 4095] {
            let file = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, bytes).unwrap();
            let mapped = Mapping::of_own_file(file.as_fd(), bytes as usize);
            assert!(matches!(mapped, Err(MapError::Unacceptable(_))), "{bytes} bytes");
        }
    }

    #[test]
    fn an_arena_has_one_owner_and_a_mailbox_none() {
        let arena = Region::create("test", RegionKind::Arena, 8192).unwrap();
        let mut owner = arena.owner(crate::NoJournal).expect("the first");
        owner.store(9, 4);
        assert_eq!(arena.view().load(9), 4);
        assert!(arena.owner(crate::NoJournal).is_none(), "the second");
        for kind in [RegionKind::Readable, RegionKind::Mailbox, RegionKind::Hints] {
            let other = Region::create("test", kind, 8192).unwrap();
            assert!(other.owner(crate::NoJournal).is_none(), "{kind:?}");
        }
    }

    #[test]
    #[should_panic(expected = "its owner's to write")]
    fn nobody_else_gets_an_arena_to_write() {
        Region::create("test", RegionKind::Arena, 8192).unwrap().words();
    }

    #[test]
    fn the_sleeper_of_an_arena_stores_its_word_and_readers_see_it() {
        let arena = Region::create("test", RegionKind::Arena, 8192).unwrap();
        let view = ReadView::of_peer(arena.fd(), 8192).unwrap();
        arena.asleep_word().word().store(1, Ordering::Relaxed);
        let stored: Vec<usize> = (0..8192 / WORD_BYTES).filter(|&at| view.load(at) != 0).collect();
        assert_eq!(stored, [word::ASLEEP]);
    }

    #[test]
    fn discarded_pages_are_zero_and_their_neighbours_stay() {
        let region = Region::create("test", RegionKind::Mailbox, 4 * 4096).unwrap();
        let words = region.words();
        (0..4).for_each(|page| words.store(page * 512, 7));
        region.discard(4096, 2 * 4096);
        let left: Vec<u64> = (0..4).map(|page| words.load(page * 512)).collect();
        assert_eq!(left, [7, 0, 0, 7]);
    }

    #[test]
    fn what_is_dropped_is_unmapped() {
        let name = "remora-dropped";
        let is_mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains(name);
        let region = Region::create(name, RegionKind::Readable, 8192).unwrap();
        let view = ReadView::of_peer(region.fd(), 8192).unwrap();
        drop(region);
        assert!(is_mapped());
        drop(view);
        assert!(!is_mapped());
    }

    #[test]
    fn a_forked_child_reads_an_arena_and_has_no_mailbox() {
        use nix::sys::wait::{WaitStatus, waitpid};
        use nix::unistd::{ForkResult, fork};
        for (kind, exits) in
            [(RegionKind::Arena, true), (RegionKind::Mailbox, false), (RegionKind::Hints, false)]
        {
            let region = Region::create("test", kind, 4096).unwrap();
            let view = match exits {
                true => ReadView::of_peer(region.fd(), 4096).unwrap(),
                false => Words::new(Mapping::of_peer(region.fd(), 4096).unwrap()).view(),
            };
            // SAFETY: the child only loads one word and exits, which is allowed
            // after a fork of a process with several threads.
            let status = match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    let word = view.load(1);
                    // SAFETY: ends the child at once, without running destructors.
                    unsafe { nix::libc::_exit(word as i32) }
                }
                ForkResult::Parent { child } => waitpid(child, None).unwrap(),
            };
            assert_eq!(matches!(status, WaitStatus::Exited(_, 0)), exits, "{kind:?}: {status:?}");
        }
    }
}

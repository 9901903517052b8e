//! The regions of one end, which the peer can read and write.

use super::history::SimJournal;
use super::world::{SimWorld, lock};
use crate::{LinkError, RemoteAddress};
use remora_arena::{Owner, ReadView, Words};
use remora_layout::limits::MAX_REGIONS;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

#[derive(Clone)]
pub(super) enum Region {
    Absent,
    Readable(ReadView, SimJournal),
    Mailbox(Words),
    Withdrawn,
}

#[derive(Default)]
struct State {
    regions: Mutex<Vec<Region>>,
    withdrawn: AtomicBool,
    immediates: Mutex<VecDeque<(u32, u64)>>,
    arrivals: AtomicU64,
    /// The task that waits for an arrival.
    waiting: Mutex<Option<u64>>,
    /// Told of each immediate, in place of being asked for them.
    hook: OnceLock<Box<Hook>>,
}

type Hook = dyn Fn(u32) + Send + Sync;

/// The memory of one end, as one peer sees it. Cheap to clone.
#[derive(Clone, Default)]
pub struct SimTarget(Arc<State>);

impl SimTarget {
    /// Without regions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a readable region of zeroed memory and gives its owner.
    pub fn arena(&self, region: u32, bytes: usize) -> Owner<SimJournal> {
        let journal = SimJournal::new();
        let owner = Owner::heap(bytes, journal.clone());
        self.expose(region, owner.view().clone(), journal);
        owner
    }

    /// Lets the peer read a region whose owner has told `journal` of every
    /// store since the region was zero.
    pub fn expose(&self, region: u32, words: ReadView, journal: SimJournal) {
        self.set(region, Region::Readable(words, journal));
    }

    /// Lets the peer write a region.
    pub fn mailbox(&self, region: u32, words: Words) {
        self.set(region, Region::Mailbox(words));
    }

    /// Withdraws a region: no further operation is executed on it.
    pub fn withdraw(&self, region: u32) {
        self.set(region, Region::Withdrawn);
    }

    /// Takes everything back.
    pub fn withdraw_all(&self) {
        self.0.withdrawn.store(true, Ordering::Relaxed);
    }

    /// The next immediate of which this end was told, and when that was.
    pub fn immediate(&self) -> Option<(u32, u64)> {
        lock(&self.0.immediates).pop_front()
    }

    /// WRITEs of the peer that are stored.
    pub fn arrivals(&self) -> u64 {
        self.0.arrivals.load(Ordering::Relaxed)
    }

    fn set(&self, region: u32, now: Region) {
        let index = region as usize;
        assert!(index < MAX_REGIONS, "region {region}: our own numbers are small");
        let mut regions = lock(&self.0.regions);
        if regions.len() <= index {
            regions.resize(index + 1, Region::Absent);
        }
        regions[index] = now;
    }

    pub(super) fn arrived(&self, imm: Option<u32>, world: &SimWorld) {
        world.wake(&self.0.waiting);
        let now_ns = world.now_ns();
        self.0.arrivals.fetch_add(1, Ordering::Relaxed);
        if let Some(imm) = imm {
            if let Some(hook) = self.0.hook.get() {
                return hook(imm);
            }
            lock(&self.0.immediates).push_back((imm, now_ns));
        }
    }

    /// Calls `hook` for each immediate when its bytes are stored. To be set once.
    pub fn on_immediate(&self, hook: impl Fn(u32) + Send + Sync + 'static) {
        let is_first = self.0.hook.set(Box::new(hook)).is_ok();
        assert!(is_first, "immediates are told to one");
    }

    /// This task, if any, is woken by what arrives here next.
    pub fn set_waiting(&self, task: Option<u64>) {
        *lock(&self.0.waiting) = task;
    }

    fn region(&self, at: RemoteAddress, bytes: usize) -> Result<(Region, usize), LinkError> {
        if self.0.withdrawn.load(Ordering::Relaxed) {
            return Err(LinkError::Withdrawn);
        }
        let RemoteAddress { region, offset } = at;
        let regions = lock(&self.0.regions);
        let found = regions.get(region as usize).unwrap_or(&Region::Absent);
        let checked = match found {
            Region::Absent => return Err(LinkError::NoSuchRegion(region)),
            Region::Withdrawn => return Err(LinkError::Withdrawn),
            Region::Readable(view, _) => view.check(offset, bytes),
            Region::Mailbox(words) => words.check(offset, bytes),
        };
        let start = checked.map_err(|_| LinkError::OutOfBounds { region, offset, bytes })?;
        Ok((found.clone(), start))
    }

    pub(super) fn readable(
        &self,
        from: RemoteAddress,
        bytes: usize,
    ) -> Result<(ReadView, SimJournal, usize), LinkError> {
        match self.region(from, bytes)? {
            (Region::Readable(words, journal), start) => Ok((words, journal, start)),
            _ => Err(LinkError::NotReadable(from.region)),
        }
    }

    pub(super) fn writable(
        &self,
        to: RemoteAddress,
        bytes: usize,
    ) -> Result<(Words, usize), LinkError> {
        match self.region(to, bytes)? {
            (Region::Mailbox(words), start) => Ok((words, start)),
            _ => Err(LinkError::NotWritable(to.region)),
        }
    }
}

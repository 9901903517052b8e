//! What can be read and written: the regions of one end.

use super::history::SimJournal;
use crate::{LinkError, RemoteAddress};
use remora_arena::{Owner, Words};
use remora_layout::limits::MAX_REGIONS;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

#[derive(Clone)]
pub(super) enum Region {
    Absent,
    Readable(Words, SimJournal),
    Mailbox(Words),
    Withdrawn,
}

#[derive(Default)]
struct State {
    regions: RefCell<Vec<Region>>,
    withdrawn: Cell<bool>,
    immediates: RefCell<VecDeque<(u32, u64)>>,
    arrivals: Cell<u64>,
}

/// The memory of one end, as one peer sees it. Cheap to clone.
#[derive(Clone, Default)]
pub struct SimTarget(Rc<State>);

impl SimTarget {
    /// Without regions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a readable region of zeroed memory and gives its owner.
    pub fn arena(&self, region: u32, bytes: usize) -> Owner<SimJournal> {
        let journal = SimJournal::new();
        let owner = Owner::heap(bytes, journal.clone());
        self.expose(region, owner.words().clone(), journal);
        owner
    }

    /// Lets the peer read a region whose owner has told `journal` of every
    /// store since the region was zero.
    pub fn expose(&self, region: u32, words: Words, journal: SimJournal) {
        self.set(region, Region::Readable(words, journal));
    }

    /// Lets the peer write a region.
    pub fn mailbox(&self, region: u32, words: Words) {
        self.set(region, Region::Mailbox(words));
    }

    /// Takes a region back: no operation is executed on it any more.
    pub fn withdraw(&self, region: u32) {
        self.set(region, Region::Withdrawn);
    }

    /// Takes everything back.
    pub fn withdraw_all(&self) {
        self.0.withdrawn.set(true);
    }

    /// The next immediate of which this end was told, and when that was.
    pub fn immediate(&self) -> Option<(u32, u64)> {
        self.0.immediates.borrow_mut().pop_front()
    }

    /// WRITEs of the peer that are stored.
    pub fn arrivals(&self) -> u64 {
        self.0.arrivals.get()
    }

    fn set(&self, region: u32, now: Region) {
        let index = region as usize;
        assert!(index < MAX_REGIONS, "region {region}: our own numbers are small");
        let mut regions = self.0.regions.borrow_mut();
        if regions.len() <= index {
            regions.resize(index + 1, Region::Absent);
        }
        regions[index] = now;
    }

    pub(super) fn arrived(&self, imm: Option<u32>, now_ns: u64) {
        self.0.arrivals.set(self.0.arrivals.get() + 1);
        if let Some(imm) = imm {
            self.0.immediates.borrow_mut().push_back((imm, now_ns));
        }
    }

    fn region(&self, at: RemoteAddress, bytes: usize) -> Result<(Region, usize), LinkError> {
        if self.0.withdrawn.get() {
            return Err(LinkError::Withdrawn);
        }
        let RemoteAddress { region, offset } = at;
        let regions = self.0.regions.borrow();
        let found = regions.get(region as usize).unwrap_or(&Region::Absent);
        let words = match found {
            Region::Absent => return Err(LinkError::NoSuchRegion(region)),
            Region::Withdrawn => return Err(LinkError::Withdrawn),
            Region::Readable(words, _) | Region::Mailbox(words) => words,
        };
        let start = words.check(offset, bytes).map_err(|_| LinkError::OutOfBounds {
            region,
            offset,
            bytes,
        })?;
        Ok((found.clone(), start))
    }

    pub(super) fn readable(
        &self,
        from: RemoteAddress,
        bytes: usize,
    ) -> Result<(Words, SimJournal, usize), LinkError> {
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
